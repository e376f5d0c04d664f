"""The attack: a repository's quantised tensors are not of the shape, type or range that unpacking them trusts.

Every one must end in one CheckpointError that names the module, before memory that a header claims is taken, and never
in weights that are something else than the files say.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from localspec.core.drain import drain
from localspec.core.errors import CheckpointError
from localspec.core.weight_formats import find_format
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan
from localspec.models.catalog import Entry
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.local_models import UNREADABLE, listed_model
from tests.support.models import save_snapshot
from tests.support.prequantised import STYLES, compressed, group, ints, store_folder
from tests.support.tokenizers import gpt2_like

pytestmark = pytest.mark.heavy

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "tie_word_embeddings": False,
    "vocab_size": 448,
}
AT = "model.layers.1.mlp.down_proj"  # [64, 96]
Change = Callable[[dict[str, Tensor]], object]


def change(part: str, how: Callable[[Tensor], Tensor]) -> Change:
    return lambda tensors: tensors.update({f"{AT}.{part}": how(tensors[f"{AT}.{part}"]).contiguous()})


def drop(part: str) -> Change:
    return lambda tensors: tensors.pop(f"{AT}.{part}")


def spoilt(number: float) -> Callable[[Tensor], Tensor]:
    def spoil(tensor: Tensor) -> Tensor:
        tensor.view(-1)[-1] = number
        return tensor

    return spoil


def fewer(tensor: Tensor) -> Tensor:
    return tensor[:-1].clone()


def narrower(tensor: Tensor) -> Tensor:
    return tensor[:, :-1].clone()


def flat(tensor: Tensor) -> Tensor:
    return tensor.flatten()


def nothing(tensor: Tensor) -> Tensor:
    return tensor[:0].clone()


def no_number(codes: Tensor) -> Tensor:
    octets = codes.view(torch.uint8).clone()
    octets[-1, -1] = 127
    return octets.view(torch.float8_e4m3fn)


NAN, INF = float("nan"), float("inf")
STORIES: dict[str, tuple[str, Change]] = {
    "gptq: a group that is not there": ("gptq", change("g_idx", spoilt(3))),
    "gptq: a group of 2^31 - 1": ("gptq", change("g_idx", spoilt((1 << 31) - 1))),
    "gptq: a group below zero": ("gptq", change("g_idx", spoilt(-1))),
    "gptq: too few groups": ("gptq", change("g_idx", fewer)),
    "gptq: groups that are no whole numbers": ("gptq", change("g_idx", Tensor.float)),
    "gptq: no order, where inputs had one": ("gptq ordered", drop("g_idx")),
    "gptq: scales of no dimension": ("gptq", change("scales", lambda _: torch.tensor(1.0))),
    "gptq: scales that lie the other way": ("gptq", change("scales", Tensor.t)),
    "gptq: too few scales": ("gptq", change("scales", fewer)),
    "gptq: no scales": ("gptq", drop("scales")),
    "gptq: whole scales": ("gptq", change("scales", Tensor.int)),
    "gptq: a scale that is no number": ("gptq", change("scales", spoilt(NAN))),
    "gptq: an endless scale": ("gptq", change("scales", spoilt(INF))),
    "gptq: too few zeros": ("gptq", change("qzeros", narrower)),
    "gptq: no zeros": ("gptq", drop("qzeros")),
    "gptq: zeros in 64 bits": ("gptq", change("qzeros", Tensor.long)),
    "gptq: too few codes": ("gptq", change("qweight", fewer)),
    "gptq: codes for other outputs": ("gptq", change("qweight", narrower)),
    "gptq: codes in 64 bits": ("gptq", change("qweight", Tensor.long)),
    "gptq: codes in one row": ("gptq", change("qweight", flat)),
    "gptq: no rows of codes": ("gptq", change("qweight", nothing)),
    "gptq: codes of three bits that end in a word": ("gptq 3", change("qweight", fewer)),
    "gptq: the weight in floats, too": ("gptq", lambda tensors: tensors.update({f"{AT}.weight": torch.zeros(64, 96)})),
    "gptq: whole numbers for floats": ("gptq", lambda tensors: tensors.update(bytes_of_up())),
    "awq: too few codes": ("awq", change("qweight", fewer)),
    "awq: codes for other outputs": ("awq", change("qweight", narrower)),
    "awq: too few zeros": ("awq", change("qzeros", narrower)),
    "awq: a scale that is no number": ("awq", change("scales", spoilt(NAN))),
    "awq: as GPTQ packs them": ("awq", change("qweight", Tensor.t)),
    "packed: another shape": ("w4a16", change("weight_shape", spoilt(1 << 40))),
    "packed: a shape below zero": ("w4a16", change("weight_shape", spoilt(-96))),
    "packed: three sizes": ("w4a16", change("weight_shape", lambda shape: torch.cat([shape, shape[:1]]))),
    "packed: no zeros, where they are not in the middle": ("w4a16 uneven", drop("weight_zero_point")),
    "packed: zeros of another shape": ("w4a16 uneven", change("weight_zero_point", narrower)),
    "packed: zeros in floats": ("w4a16 uneven", change("weight_zero_point", Tensor.float)),
    "packed: no order, where inputs had one": ("w4a16 ordered", drop("weight_g_idx")),
    "packed: a group that is not there": ("w4a16 ordered", change("weight_g_idx", spoilt(3))),
    "packed: an order for some": ("w4a16 ordered", change("weight_g_idx", spoilt(-1))),
    "packed: too few scales": ("w4a16", change("weight_scale", narrower)),
    "whole: codes in floats of 8 bits": ("w8a8", change("weight", lambda codes: codes.view(torch.float8_e4m3fn))),
    "whole: codes without a sign": ("w8a8", change("weight", lambda codes: codes.view(torch.uint8))),
    "whole: one scale for each input": ("w8a8", change("weight_scale", lambda _: torch.ones(1, 96))),
    "whole: no scales": ("w8a8", drop("weight_scale")),
    "fp8: codes that are whole": ("fp8", change("weight", lambda codes: codes.view(torch.int8))),
    "fp8: five bits of exponent": ("fp8", change("weight", lambda codes: codes.view(torch.float8_e5m2))),
    "fp8: a weight that is no number": ("fp8", change("weight", no_number)),
    "fp8: a scale that is no number": ("fp8", change("weight_scale_inv", spoilt(NAN))),
    "fp8: blocks of another size": ("fp8", change("weight_scale_inv", lambda _: torch.ones(4, 4))),
    "fp8: scales of three dimensions": ("fp8", change("weight_scale_inv", lambda scales: scales[None])),
    "fp8: scales that are exponents": ("fp8", change("weight_scale_inv", lambda scales: scales.to(torch.uint8))),
    "fp8: no scales": ("fp8", drop("weight_scale_inv")),
    "fp8: both kinds of scales": ("fp8", lambda tensors: tensors.update({f"{AT}.weight_scale": torch.ones(64, 1)})),
}


SEEN_LATER = ("fp8: a weight that is no number",)  # as of any floats, when they are computed with


def bytes_of_up() -> dict[str, Tensor]:
    return {f"{AT}.bias.weight": torch.zeros(4, dtype=torch.int8)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    top = tmp_path_factory.mktemp("models")

    def make(name: str) -> Path:
        if not (top / name).exists():
            store_folder(save_snapshot(top / name, gpt2_like(), **SIZES), STYLES[name])
        return top / name

    return make


def refusal(folder: Path, quant: str = "nf4") -> str:
    """The one sentence that loading the folder ends in."""
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError) as caught:
        drain(load_decoder(open_snapshot(folder), Plan(find_format(quant), 64)))
    assert time.process_time() - start < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500 << 10
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert len(caught.value.message) < 500
    return caught.value.message


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """bitsandbytes, which no story is about."""
    from localspec.engine.four_bit import library

    library()


@pytest.mark.parametrize("story", STORIES)
def test_tensors_that_are_not_as_their_config_says_are_one_sentence(
    story: str, made: Callable[[str], Path], tmp_path: Path
):
    name, spoil = STORIES[story]
    folder = tmp_path / "spoilt"
    shutil.copytree(made(name), folder)
    tensors = load_file(folder / "model.safetensors")
    spoil(tensors)
    save_file(tensors, folder / "model.safetensors")
    assert AT in refusal(folder)
    if story not in SEEN_LATER:
        assert AT in refusal(folder, "fp32")


def test_a_config_that_says_less_than_the_files_have_is_one_sentence(made: Callable[[str], Path], tmp_path: Path):
    """Packed weights that no config explains would be read as numbers, or be missing."""
    for name in STYLES:
        folder = tmp_path / name
        shutil.copytree(made(name), folder)
        config = json.loads((folder / "config.json").read_text())
        del config["quantization_config"]
        (folder / "config.json").write_text(json.dumps(config))
        assert "The checkpoint" in refusal(folder)


def test_bits_that_are_not_the_files_are_one_sentence(made: Callable[[str], Path], tmp_path: Path):
    for name, fields in (
        ("gptq", {**STYLES["gptq"].config, "bits": 8}),
        ("gptq 2", {**STYLES["gptq 2"].config, "bits": 4}),
        ("awq", {**STYLES["awq"].config, "group_size": 64}),
        ("w4a16", compressed("pack-quantized", group(ints(8, 32)))),
        ("fp8", {**STYLES["fp8"].config, "weight_block_size": [128, 128]}),
    ):
        folder = tmp_path / name
        shutil.copytree(made(name), folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": fields}))
        assert re.search("_proj|lm_head", refusal(folder))


def test_the_picker_lists_it_and_does_not_end(made: Callable[[str], Path], tmp_path: Path):
    folder = tmp_path / "spoilt"
    shutil.copytree(made("gptq"), folder)
    tensors = load_file(folder / "model.safetensors")
    drop("scales")(tensors)
    save_file(tensors, folder / "model.safetensors")
    assert listed_model("it", Entry("it", "it", folder), 1 << 40).fit == UNREADABLE
