"""Configurations that people run, as they are published: each is judged as configs/index.toml says beforehand.

Without weights: what can be judged from config.json alone, from the reading of the file to the self-check.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from localspec.core.errors import CheckpointError
from localspec.engine.arch import Arch, read_arch
from localspec.engine.generic_arch import GenericArch, read_any
from localspec.loading.generic import LEFT_OUT
from localspec.loading.self_check.config import telling, verify_config
from localspec.models import checkpoint
from tests.support.models import tensor_shapes

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("one_state_folder")]

FOLDER = Path(__file__).parent / "configs"
INDEX_TEXT = (FOLDER / "index.toml").read_text(encoding="utf-8")
INDEX: dict[str, dict[str, str]] = tomllib.loads(INDEX_TEXT)
OWN, THEIRS = "own", "transformers"
PRINTED = 100  # of them at least
LAYERS = 2


def all_configs() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.json")):
        yield from json.loads(file.read_text(encoding="utf-8")).items()


CONFIGS = dict(all_configs())


def expected(*verdicts: str) -> list[str]:
    return [name for name, entry in INDEX.items() if entry["expect"] in verdicts]


REFUSED = [name for name in INDEX if name not in expected(OWN, THEIRS)]


@pytest.fixture(autouse=True)
def nothing_more_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What GPTQ needs is on some machines only."""
    monkeypatch.setattr("localspec.models.prequantised.stored_format.find_spec", lambda _: None)


def as_read(name: str, folder: Path) -> dict[str, Any]:
    """The configuration as it comes out of a file."""
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIGS[name]))
    return checkpoint.read_config(file)


def theirs(config: dict[str, Any]) -> Any:
    """transformers' own record of it."""
    from transformers import CONFIG_MAPPING

    fields = {name: value for name, value in config.items() if name not in LEFT_OUT}
    return CONFIG_MAPPING[config["model_type"]].from_dict(fields)


def test_the_index_names_all_of_them_and_a_hundred_are_printed_somewhere():
    assert CONFIGS.keys() == INDEX.keys()
    printed = sum("source" in entry for entry in INDEX.values())
    assert printed >= PRINTED
    assert f"{len(INDEX)} configurations: {printed} are printed somewhere, {len(INDEX) - printed} are" in INDEX_TEXT
    assert all(("source" in entry) != ("derived" in entry) for entry in INDEX.values())
    assert {entry["derived"] for entry in INDEX.values() if "derived" in entry} <= INDEX.keys()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", expected(OWN))
def test_our_decoder_takes_it_and_agrees_with_transformers(name: str, tmp_path: Path):
    config = as_read(name, tmp_path)
    assert isinstance(read_any(config), Arch)
    verify_config(config)


@pytest.mark.parametrize("name", expected(OWN))
def test_our_decoder_reads_it_as_transformers_does(name: str, tmp_path: Path):
    """Sizes, windows and defaults: the self-check sees a stand-in only, and 24 rows."""
    config = as_read(name, tmp_path)
    arch, known = read_arch(config), theirs(telling(config))
    windows = getattr(known, "sliding_window", None) if known.model_type != "llama" else None
    kinds = getattr(known, "layer_types", None) or ["sliding_attention"] * known.num_hidden_layers
    assert arch == read_arch(
        {
            **config,
            "num_key_value_heads": known.num_key_value_heads,
            "head_dim": getattr(known, "head_dim", None) or known.hidden_size // known.num_attention_heads,
            "max_position_embeddings": known.max_position_embeddings,
            "rms_norm_eps": known.rms_norm_eps,
            "tie_word_embeddings": known.tie_word_embeddings,
        }
    )
    assert arch.windows == tuple(windows if kind == "sliding_attention" else None for kind in kinds)
    assert dict(arch.rope)["rope_theta"] == known.rope_parameters["rope_theta"]


@pytest.mark.parametrize("name", expected(OWN))
def test_its_tensors_have_the_names_and_shapes_that_our_decoder_reads(name: str, tmp_path: Path):
    """Of two of its layers, in their true size."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    config = {**telling(as_read(name, tmp_path)), "num_hidden_layers": LAYERS}
    config |= {"layer_types": config["layer_types"][:LAYERS]} if "layer_types" in config else {}
    known = theirs(config)
    with torch.device("meta"):
        weights = MODEL_FOR_CAUSAL_LM_MAPPING[type(known)](known).state_dict()
    shapes = {key: tuple(weight.shape) for key, weight in weights.items()}
    wanted = tensor_shapes(read_arch(config))
    assert wanted == {key: shape for key, shape in shapes.items() if key in wanted}
    assert shapes.keys() - wanted.keys() <= {"lm_head.weight"}  # tied


@pytest.mark.parametrize("name", expected(THEIRS))
def test_transformers_runs_it_and_we_know_its_sizes(name: str, tmp_path: Path):
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    config = as_read(name, tmp_path)
    arch, known = read_any(config), theirs(config)
    assert isinstance(arch, GenericArch)
    assert (arch.num_layers, arch.vocab_size) == (known.num_hidden_layers, known.vocab_size)
    assert type(known) in MODEL_FOR_CAUSAL_LM_MAPPING
    if arch.num_kv_heads:
        heads = known.num_attention_heads
        assert arch.head_dim == (getattr(known, "head_dim", None) or known.hidden_size // heads)
        assert heads % arch.num_kv_heads == 0


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_a_sentence_that_says_why(name: str, tmp_path: Path):
    with pytest.raises(CheckpointError) as refused:
        read_any(as_read(name, tmp_path))
    assert refused.value.message.startswith(INDEX[name]["expect"])
    assert "Download" not in refused.value.hint  # nothing is wrong with the file
