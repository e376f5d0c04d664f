"""Whole models in GGUF: in every format and device they say what the same numbers say from safetensors.

With early exit, layers from disk, draft models and the weight cache, as any other; one notice says what the file is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from localspec import load
from localspec.core.drain import drain
from localspec.core.events import AnyEvent, Loading, Notice
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.isa import choose
from localspec.loading import weight_cache
from localspec.loading.cpu import Packer
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import load_events
from localspec.runtime.local_models import listed_model, on_disk
from localspec.tui.control.fit_report import what_fits
from tests.conftest import Program
from tests.loading.test_packed_loading import PEAK
from tests.support.gguf_files import KINDS, save_pair

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

MODELS = {  # a format and a family each
    "llama": ("Q4_K", {"num_hidden_layers": 3}),
    "mistral": ("Q5_1", {"num_hidden_layers": 3, "model_type": "mistral", "sliding_window": None}),
    "qwen2": ("Q6_K", {"num_hidden_layers": 3, "model_type": "qwen2", "tie_word_embeddings": False}),
    "qwen3": ("F16", {"num_hidden_layers": 3, "model_type": "qwen3", "head_dim": 32}),
}
HI = [{"role": "user", "content": "hello there general"}]
IDS = torch.arange(20)


@pytest.fixture(scope="module", autouse=True)
def engine() -> program.Program:
    """Compiled before any test turns its cache away."""
    return program.load(choose())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A family → a GGUF file, and the folder with the same numbers; a format → a llama in it."""
    top, lock, made = tmp_path_factory.mktemp("gguf"), threading.Lock(), dict[str, tuple[Path, Path]]()

    def pair(name: str) -> tuple[Path, Path]:
        with lock:
            if name not in made:
                kind, config = MODELS.get(name, (name, {}))
                made[name] = save_pair(top / name, kind, **config)
        return made[name]

    return pair


def logits(model: Path, quant: str, resident: int | None = None, **more: Any) -> torch.Tensor:
    plan = Plan(find_format(quant), 64, WeightOptions(**more), resident)
    decoder: Any = drain(load_decoder(open_snapshot(model), plan))
    try:
        found: torch.Tensor = decoder.forward(IDS)
        return found
    finally:
        decoder.close()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_packs_to_what_its_floats_pack_to(kind: str, models: Any):
    file, folder = models(kind)
    for quant in ("int8", "int4"):
        got, expected = logits(file, quant), logits(folder, quant)
        assert got.isfinite().all()
        assert torch.equal(got, expected)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("quant", ["fp32", "bf16", "int8", "int4", "nf4", "fp4"])
@pytest.mark.parametrize("name", MODELS)
def test_every_weight_format_may_be_asked_for(name: str, quant: str, models: Any):
    file, folder = models(name)
    for keep_head in {False, quant == "nf4"}:
        assert torch.equal(logits(file, quant, keep_head=keep_head), logits(folder, quant, keep_head=keep_head))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("quant", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("name", MODELS)
def test_layers_may_come_from_disk(name: str, quant: str, models: Any, cache: Path):
    file, _ = models(name)
    assert torch.equal(logits(file, quant, resident=1), logits(file, quant))
    assert cache.exists() == (quant in ("int8", "int4"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(weight_cache, "SMALLEST_BYTES", 0)
    return tmp_path / "cache" / "packed"


def test_the_second_start_maps_what_the_first_has_packed(models: Any, cache: Path, monkeypatch: pytest.MonkeyPatch):
    file, _ = models("llama")
    expected = logits(file, "int8")
    (kept,) = cache.iterdir()
    monkeypatch.setattr(Packer, "pieces", None)
    assert torch.equal(logits(file, "int8"), expected)
    assert list(cache.iterdir()) == [kept]


def test_another_file_in_its_place_is_packed_anew(models: Any, cache: Path, tmp_path: Path):
    place = tmp_path / "model.gguf"
    for name in ("Q4_0", "Q4_1"):
        place.unlink(missing_ok=True)
        place.write_bytes(models(name)[0].read_bytes())
        assert torch.equal(logits(place, "int8"), logits(models(name)[1], "int8"))
    assert len([kept for kept in cache.iterdir() if kept.name.startswith(packed_of(place))]) == 1


def packed_of(model: Path) -> str:
    snapshot = open_snapshot(model)
    return weight_cache.CachedWeights(snapshot, Blueprint(read_arch(snapshot.config), "int8")).family


@pytest.mark.parametrize("quant", ["fp32", "nf4"])
def test_progress_ends_where_it_should(quant: str, models: Any):
    events: list[AnyEvent] = []
    drain(load_decoder(open_snapshot(models("qwen2")[0]), Plan(find_format(quant), 64)), events.append)
    steps = [event for event in events if isinstance(event, Loading) and event.stage == "loading weights"]
    assert steps[-1].done == steps[-1].total > 0


# --- as people meet them


def answer(model: Path, **asked: Any) -> tuple[list[int], Any]:
    with load(str(model), threads=1, **asked) as llm:
        found = llm.generate(HI, max_tokens=24, temperature=0)
        return [token.id for token in found.tokens], llm


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("one_state_folder", "cache")
@pytest.mark.parametrize("name", MODELS)
def test_drafting_changes_no_token(name: str, models: Any):
    """Early exit, a GGUF draft for safetensors, the reverse, itself, and layers from disk."""
    file, folder = models(name)
    for target, draft in ((file, folder), (folder, file)):
        plain, llm = answer(target, draft="off")
        assert (llm.ready.model.quant, llm.ready.model.layers) == ("int8", 3)
        for asked in (
            {"draft": "early-exit:1", "k": 4},
            {"draft": str(draft), "k": 4, "draft_quant": "fp32"},
            {"draft": str(target), "k": "auto"},
            {"draft": "early-exit:1", "k": 4, "device": "offload", "quant": "int8"},
        ):
            ids, llm = answer(target, **asked)
            assert ids == plain
            assert llm.ready.spec.kind == ("early-exit" if asked["draft"] == "early-exit:1" else "model")


def heard(model: Path, **asked: Any) -> list[Notice]:
    request = LoadRequest.of(str(model), **{"draft": "off", "threads": 1, **asked})
    return [event for event in load_events(request) if isinstance(event, Notice)]


@pytest.mark.usefixtures("one_state_folder")
def test_one_notice_says_what_the_file_is(models: Any):
    file, _ = models("llama")
    for asked in ({}, {"quant": "int8"}, {"draft": str(file)}):
        (notice,) = (one for one in heard(file, **asked) if one.code != "own_draft")
        assert (notice.level, notice.code) == ("info", "converted")
        assert notice.message == "Loaded in int8; the files are Q4_K."
    assert [notice.code for notice in heard(models("qwen3")[0])] == ["format"]


def test_fit_says_what_the_floats_would_take(models: Any, monkeypatch: pytest.MonkeyPatch):
    for where in ("loading.plan", "loading.fit"):
        monkeypatch.setattr(f"localspec.{where}.available_bytes", lambda: 10**9)
    for name in MODELS:
        file, folder = models(name)
        for quant in ("auto", "nf4"):
            reports = [what_fits(LoadRequest.of(str(one), draft="off", quant=quant), None) for one in (file, folder)]
            assert reports[0].splitlines()[1:] == reports[1].splitlines()[1:]


def test_the_picker_says_its_format_size_and_fit(models: Any):
    file, _ = models("qwen2")
    found = listed_model("mine", Catalog.load().resolve(str(file)), 10**9)
    assert (found.quant, found.fit, found.num_bytes) == ("Q6_K", "fits", open_snapshot(file).total_bytes)
    assert found.drafts == (("auto", "look-up"), ("off", "decode plain"))


def test_models_toml_may_name_one_and_a_draft_of_its_kind(models: Any, tmp_path: Path):
    file, draft = models("qwen2")[0], models("llama")[0]
    (tmp_path / "draft.gguf").symlink_to(draft)
    own = tmp_path / "config" / "models.toml"
    own.parent.mkdir(parents=True)
    own.write_text(
        f'schema_version = 1\n[models.mine]\npath = "{file}"\ndraft = {{ kind = "model", model = "../draft.gguf" }}\n'
    )
    catalog = Catalog.load()
    entry = catalog.resolve("mine")
    assert entry.path == file
    assert entry.draft
    assert entry.draft.folder
    assert entry.draft.folder.resolve() == draft
    assert "mine" in [one.name for one in on_disk(catalog, "guide")]
    plain, _ = answer(file, draft="off")
    ids, llm = answer(Path("mine"))
    assert (ids, llm.ready.spec.kind) == (plain, "model")


@pytest.mark.usefixtures("one_state_folder")
def test_bench_measures_a_file(models: Any, localspec: Program):
    """In int8, with the same text whatever drafts."""
    file, _ = models("llama")
    code, out, err = localspec("bench", str(file), "--draft", "early-exit:1", "-n", "8", "-r", "1", "-o", "json")
    assert code == 0, err
    rows = [(row["method"], row["quant"], row["same"]) for row in json.loads(out)["rows"]]
    assert rows == [("plain", "int8", "8/8"), ("early exit 1", "int8", "8/8")]


def test_a_name_is_a_file_only_where_it_looks_like_one(models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ollama's have no ending; a file that happens to be called as a model is not one."""
    monkeypatch.chdir(tmp_path)
    file, _ = models("llama")
    for name in ("sha256-0123", "mine.gguf", "MINE.GGUF"):
        (tmp_path / name).symlink_to(file)
    catalog = Catalog.load()
    for name in ("./sha256-0123", str(tmp_path / "sha256-0123"), "mine.gguf", "MINE.GGUF"):
        assert catalog.resolve(name).path.resolve() == file
        assert catalog.lasting_name(name) == str((tmp_path / name).absolute())
    with pytest.raises(Exception, match="There is no model 'sha256-0123'"):
        catalog.resolve("sha256-0123")


@pytest.mark.usefixtures("one_state_folder")
def test_run_answers_from_a_file(models: Any, localspec: Program):
    file, _ = models("qwen3")
    code, out, err = localspec("run", str(file), "hello", "--max-tokens", "4", "--temperature", "0", "--draft", "off")
    assert (code, "Traceback" in err) == (0, False)
    assert out.strip()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["Q4_K", "Q8_0"])
def test_loading_takes_no_more_memory_than_packing_floats_does(kind: str, tmp_path: Path):
    """As test_packed_loading.py has it of 280 MB of float32: the packed size, and twice the largest tensor at most."""
    wide = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 6, "num_attention_heads": 16}
    small, _ = save_pair(tmp_path / "small", kind)
    big, folder = save_pair(tmp_path / "big", kind, **wide, num_key_value_heads=4, vocab_size=2000)
    largest = max(tensor.nbytes for tensor in load_file(folder / "model.safetensors").values())
    command = [sys.executable, "-c", PEAK, small, big, "int8", tmp_path / "cache"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "MALLOC_MMAP_THRESHOLD_": "250000"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    end, peak = map(int, done.stdout.split())
    packed = Blueprint(read_arch(open_snapshot(big).config), "int8").num_bytes
    assert packed <= end <= peak <= packed + 2 * largest
