"""--save-quantized: the second start reads what bitsandbytes made at the first, bit for bit, or makes it anew."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

from localspec import load
from localspec.config import precedence
from localspec.config.tables import Config, EngineTable
from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit
from localspec.core.events import AnyEvent, Loading, Notice
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.core.weight_formats import find_format
from localspec.engine import four_bit, linear
from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.isa import choose
from localspec.engine.linear import EightBitLinears, FourBit, FourBitLinears
from localspec.loading import quantised_linears as loader_quantised
from localspec.loading import weight_cache
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan
from localspec.loading.quantised_linears import QuantisedContents, llama_linears
from localspec.loading.sources import Files, WeightReader
from localspec.loading.torch import Assembly, quantised
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import load_events
from localspec.runtime.open import unsaved
from tests.conftest import Program
from tests.loading.test_packed_loading import DAMAGE
from tests.support.generic_models import make_model, save_generic
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = pytest.mark.heavy

# Whole blocks, which a CPU's fused product takes, and sizes with a remainder, which it does not.
WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
ODD = {"hidden_size": 40, "intermediate_size": 56, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 8}
MODELS: dict[str, dict[str, Any]] = {
    "wide": {**WIDE, "tie_word_embeddings": False},
    "wide, tied": {**WIDE, "tie_word_embeddings": True},
    "odd, with biases": {**ODD, "tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top, tokenizer = tmp_path_factory.mktemp("models"), gpt2_like()
    for name, sizes in MODELS.items():
        save_snapshot(top / name, tokenizer, template=CHATML, eos="<|im_end|>", **sizes)
    rows = tokenizer.get_vocab_size()
    save_generic(make_model("gpt2", vocab_size=rows).float(), top / "gpt2", tokenizer, chat_template=CHATML)
    return top


@pytest.fixture
def folder(models: Path) -> Path:
    return models / "wide"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("localspec.loading.kernels.verify_config", lambda _: None)
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packed"


@pytest.fixture
def makings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shape of every weight that was quantised."""
    real, shapes = four_bit.quantise, list[tuple[int, int]]()

    def quantise(slabs: Any, shape: tuple[int, int], kind: Any, device: str) -> Any:
        shapes.append(shape)
        return real(slabs, shape, kind, device)

    monkeypatch.setattr(linear, "quantise", quantise)
    return shapes


@pytest.fixture(params=["fused", "not fused"])
def fused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU with AVX512-BF16, if this one has it, and on one without."""
    if request.param != "fused":
        monkeypatch.setattr(linear, "suits_the_cpu", lambda *_: False)


def started(folder: Path, quant: str = "nf4", *, save: bool = True, **plan: Any) -> tuple[Any, list[AnyEvent]]:
    """The decoder, and what was told on the way."""
    heard: list[AnyEvent] = []
    steps = load_decoder(
        open_snapshot(folder), Plan(find_format(quant), 64, WeightOptions(save_quantized=save, **plan))
    )
    return drain(steps, heard.append), heard


def logits(decoder: Any) -> torch.Tensor:
    found: torch.Tensor = decoder.forward(torch.arange(20))
    return found


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def notices(heard: list[AnyEvent]) -> list[Notice]:
    return [event for event in heard if isinstance(event, Notice)]


# --- the second start


@pytest.mark.sampled(5)
@pytest.mark.parametrize("keep_head", [False, True])
@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("name", MODELS)
def test_the_second_start_quantises_nothing_and_computes_the_same_to_the_bit(
    name: str,
    kind: str,
    keep_head: bool,
    models: Path,
    cache: Path,
    makings: list[tuple[int, int]],
):
    first, _ = started(models / name, kind, keep_head=keep_head)
    count, expected = len(makings), logits(first)
    assert count > 0
    (file,) = cache.iterdir()
    second, _ = started(models / name, kind, keep_head=keep_head, save=False)  # it need not be asked for again
    assert len(makings) == count
    assert torch.equal(logits(second), expected)
    assert second.weights.num_bytes == first.weights.num_bytes
    with safetensors.safe_open(file, "pt") as opened:  # anybody can read it
        assert len(opened.keys()) > count


@pytest.mark.parametrize("threshold", [0.0, 6.0])
def test_a_gpus_int8_is_kept_too(threshold: float, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Its products are bitsandbytes' own in torch here."""
    snapshot, plan = (
        open_snapshot(folder),
        Plan(find_format("int8"), 64, WeightOptions(save_quantized=True)),
    )
    maker = EightBitLinears(threshold, torch.float32, "cpu")

    def weights() -> Any:
        assembly = Assembly(read_arch(snapshot.config), WeightReader(Files(snapshot)), maker)
        return drain(quantised(snapshot, assembly, maker, plan, "weights"))

    first = weights()
    monkeypatch.setattr(EightBitLinears, "linear", None)  # nothing can be quantised any more
    second, rows = weights(), torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    for one, other in ((first.head, second.head), (first.layers[1].qkv, second.layers[1].qkv)):
        assert torch.equal(one(rows), other(rows))


def test_a_family_that_transformers_runs_is_kept_too(models: Path, makings: list[tuple[int, int]]):
    first, _ = started(models / "gpt2")
    count, expected = len(makings), logits(first)
    second, _ = started(models / "gpt2", save=False)
    assert count > 0
    assert len(makings) == count
    assert torch.equal(logits(second), expected)


def test_nothing_is_kept_unless_it_is_asked_for(folder: Path, cache: Path):
    started(folder, save=False)
    assert not list(cache.glob("*"))


def test_the_cpus_int8_and_a_gpus_lie_side_by_side(folder: Path):
    """Each takes the place of its own older copies alone."""
    snapshot = open_snapshot(folder)
    arch, of_a_gpu = read_arch(snapshot.config), EightBitLinears(6.0, torch.bfloat16, "cuda")
    quantised_by_hand = QuantisedContents.of(of_a_gpu, llama_linears(arch, keep_head=False))
    for mine, other in itertools.permutations((Blueprint(arch, "int8"), quantised_by_hand)):
        copy, kept = weight_cache.CachedWeights(snapshot, mine), weight_cache.CachedWeights(snapshot, other).file()
        old = [copy.file().with_name(f"{copy.family}{'0' * 16}.{end}") for end in ("safetensors", "7.part")]
        for file in (kept, copy.file(), *old):
            file.touch()
            os.utime(file, (0, 0))
        copy.sweep(copy.file())
        assert [file.exists() for file in (kept, copy.file(), *old)] == [True, False, False, False]


@pytest.mark.parametrize("quant", ["bf16", "fp32"])
def test_floats_leave_no_copy(quant: str, folder: Path, cache: Path):
    started(folder, quant)
    assert not list(cache.glob("*"))


def test_what_the_room_says_is_what_is_made(monkeypatch: pytest.MonkeyPatch):
    """On a CPU with a fused product and without, for shapes with whole blocks and with a remainder."""
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr(linear, "suits_the_cpu", lambda *_: False)
        for shape in ((96, 128), (33, 128), (40, 48), (3, 5)):
            maker = FourBitLinears("nf4", torch.float32)
            made = maker.linear([torch.randn(shape)], shape, None)
            assert isinstance(made, FourBit)
            room = maker.empty_parts(shape)
            assert {name: (part.dtype, part.shape) for name, part in made.parts().items()} == {
                name: (part.dtype, part.shape) for name, part in room.items()
            }


def test_every_tensor_begins_where_its_type_may(models: Path):
    """Whole borders of 64 bytes first, since the CPU's fused product reads from them where they are mapped."""
    for name in MODELS:
        snapshot = open_snapshot(models / name)
        maker = FourBitLinears("nf4", torch.float32)
        contents = QuantisedContents.of(maker, llama_linears(read_arch(snapshot.config), keep_head=False))
        copy = weight_cache.CachedWeights(snapshot, contents, asked=True)
        for part in contents.pieces.values():
            like = maker.empty_parts(dict(contents.linears)[part.name.rpartition(".")[0]])[part.name.rpartition(".")[2]]
            assert copy.starts[part.name] % like.element_size() == 0
            if part.num_bytes % 64 == 0:
                assert copy.starts[part.name] % 64 == 0


# --- copies that may not be used


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_copy_is_made_anew_and_never_used(
    name: str, folder: Path, cache: Path, makings: list[tuple[int, int]]
):
    first, _ = started(folder)
    count, expected = len(makings), logits(first)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(DAMAGE[name](whole))
    assert file.read_bytes() != whole
    second, heard = started(folder)
    assert torch.equal(logits(second), expected)
    assert len(makings) == 2 * count
    assert file.read_bytes() == whole
    assert notices(heard) == []


@pytest.mark.parametrize("what", ["weights in place", "version", "bitsandbytes", "format", "head", "machine"])
def test_a_copy_of_something_else_is_not_used(
    what: str,
    folder: Path,
    cache: Path,
    makings: list[tuple[int, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    model = copied(folder, tmp_path / "mine")
    if what == "machine":  # a cache that is shared with one whose products are fused; any CPU can prepare that
        monkeypatch.setattr(four_bit.library().functional, "has_avx512bf16", lambda: True)
    started(model)
    count, plan = len(makings), {"quant": "nf4", "keep_head": False}
    if what == "weights in place":  # as large, as old, other numbers
        file = model / "model.safetensors"
        times, tensors = file.stat(), load_file(file)
        save_file({**tensors, "lm_head.weight": tensors["lm_head.weight"] * 2}, file)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif what == "version":
        monkeypatch.setattr(weight_cache, "__version__", "99")
    elif what == "bitsandbytes":
        monkeypatch.setattr(four_bit.library(), "__version__", "99")
    elif what == "machine":
        monkeypatch.setattr(linear, "suits_the_cpu", lambda *_: False)
    plan |= {"quant": "fp4"} if what == "format" else {"keep_head": True} if what == "head" else {}
    found, _ = started(model, **plan)
    assert len(makings) > count
    fresh, _ = started(model, save=False, **plan)
    assert torch.equal(logits(fresh), logits(found))
    assert len(list(cache.iterdir())) == (2 if what == "format" else 1)  # of one format only the last is any use


def test_what_the_config_says_beside_the_weights_is_read_every_time(folder: Path, cache: Path, tmp_path: Path):
    """The codes do not depend on an epsilon, so the copy is used, and the new epsilon too."""
    model = copied(folder, tmp_path / "mine")
    before, _ = started(model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.1}))
    after, _ = started(model)
    for file in cache.iterdir():
        file.unlink()
    fresh, _ = started(model)
    assert torch.equal(logits(after), logits(fresh))
    assert not torch.equal(logits(after), logits(before))


def test_the_plain_start_after_damage_is_right_as_well(folder: Path, cache: Path):
    first, _ = started(folder)
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    second, heard = started(folder, save=False)
    assert torch.equal(logits(second), logits(first))
    assert notices(heard) == []


# --- saving


def test_quantising_and_saving_tell_how_far_they_are_and_how_long_it_takes(folder: Path):
    _, heard = started(folder)
    told = [event for event in heard if isinstance(event, Loading)]
    stages = list(dict.fromkeys(event.stage for event in told))
    assert stages == ["loading weights", "writing quantised weights to disk"]
    for stage in stages:
        steps = [event for event in told if event.stage == stage]
        assert all(step.eta_s is not None for step in steps)
        assert [step.done for step in steps] == sorted(step.done for step in steps)
        assert steps[-1].done == steps[-1].total


def test_a_disk_without_room_costs_one_sentence_and_the_run_goes_on(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(weight_cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    decoder, heard = started(folder)
    (notice,) = notices(heard)
    assert notice.level == "warning"
    assert notice.message.startswith("The quantised weights cannot be kept on disk (No space left on device)")
    assert "LOCALSPEC_CACHE_DIR" in notice.hint
    assert logits(decoder).isfinite().all()
    assert list(cache.iterdir()) == []


def test_a_disk_that_fills_up_while_it_is_written_leaves_nothing_behind(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    real, calls = weight_cache.in_memory, iter(range(10**6))

    def in_memory(tensor: torch.Tensor) -> memoryview:
        if next(calls) > 9:
            raise OSError(28, "No space left on device")
        return real(tensor)

    monkeypatch.setattr(weight_cache, "in_memory", in_memory)
    decoder, heard = started(folder)
    assert len(notices(heard)) == 1
    assert logits(decoder).isfinite().all()
    assert list(cache.iterdir()) == []


def test_one_that_is_stopped_while_it_writes_leaves_nothing(folder: Path, cache: Path):
    steps: Iterator[Any] = load_decoder(
        open_snapshot(folder), Plan(find_format("nf4"), 64, WeightOptions(save_quantized=True))
    )
    while next(steps).stage != "writing quantised weights to disk":
        pass
    steps.close()  # type: ignore[attr-defined]
    assert list(cache.iterdir()) == []


def test_memory_that_runs_out_while_quantising_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def quantise(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(linear, "quantise", quantise)
    with pytest.raises(DoesNotFit, match="Memory ran out while loading"):
        started(folder)


# --- how it is asked for


def test_a_flag_the_environment_and_the_settings_ask_for_it(
    folder: Path, cache: Path, localspec: Program, monkeypatch: pytest.MonkeyPatch
):
    words = ["run", str(folder), "hi", "--quant", "nf4", "--draft", "off", "--max-tokens", "2", "--threads", "1"]
    assert localspec(*words)[0] == 0
    assert not list(cache.glob("*.safetensors"))
    assert localspec(*words, "--save-quantized")[0] == 0
    (file,) = cache.glob("*.safetensors")
    file.unlink()
    monkeypatch.setenv("LOCALSPEC_SAVE_QUANTIZED", "1")
    assert localspec(*words)[0] == 0
    assert len(list(cache.glob("*.safetensors"))) == 1
    config = Config(engine=EngineTable(save_quantized=True))
    assert precedence.load_request(config, Catalog.load(), "guide", {}).weights.save_quantized


def test_python_asks_for_it_in_the_same_word(folder: Path, cache: Path):
    with load(str(folder), quant="nf4", draft="off", threads=1, save_quantized=True) as llm:
        assert llm.ready.model.quant == "nf4"
    assert len(list(cache.glob("*.safetensors"))) == 1


def test_the_copy_names_the_linears_that_the_loader_makes(models: Path):
    """Else a linear would be quantised at every start, or the copy could not be written."""
    for name in MODELS:
        snapshot = open_snapshot(models / name)
        arch, maker = read_arch(snapshot.config), FourBitLinears("nf4", torch.float32)
        assembly = Assembly(arch, WeightReader(Files(snapshot)), maker)
        drain(assembly.weights())
        sizes = {key: tuple(made.state.shape) for key, made in assembly.made.items() if isinstance(made, FourBit)}
        assert sizes == dict(llama_linears(arch, keep_head=False))
        assert loader_quantised.HEAD in sizes


# --- where there is nothing to keep


@pytest.fixture(scope="module")
def engine() -> program.Program:
    """Compiled before any test turns its cache away."""
    return program.load(choose())


def told_at_start(folder: Path, **asked: Any) -> list[Notice]:
    heard: list[AnyEvent] = []
    with drain(load_events(LoadRequest.of(str(folder), draft="off", threads=1, **asked)), heard.append):
        return [notice for notice in notices(heard) if notice.code == "save_quantized"]


@pytest.mark.parametrize(
    ("quant", "why"),
    [
        ("int8", "the CPU engine keeps the packed weights of larger models anyway"),
        ("int4", "the CPU engine keeps the packed weights of larger models anyway"),
        ("fp32", "floats are not quantised"),
        ("bf16", "floats are not quantised"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_a_format_for_which_it_does_nothing_says_so_once(quant: str, why: str, folder: Path):
    (told,) = told_at_start(folder, quant=quant, save_quantized=True)
    assert told.level == "info"
    assert told.message == f"--save-quantized changes nothing for {folder.name} in {quant}: {why}."


@pytest.mark.parametrize(("quant", "save"), [("nf4", True), ("fp32", False)])
def test_nothing_is_said_where_it_keeps_a_copy_or_was_not_asked_for(quant: str, save: bool, folder: Path):
    assert told_at_start(folder, quant=quant, save_quantized=save) == []


def test_a_repository_in_four_bits_has_nothing_to_keep_either(folder: Path):
    snapshot = open_snapshot(folder)
    config = snapshot.config | {"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}}
    plan = Plan(find_format("nf4"), 64, WeightOptions(save_quantized=True))
    assert unsaved(replace(snapshot, config=config), plan) == "it is stored in this format already"
    assert unsaved(snapshot, plan) == ""
    assert unsaved(snapshot, replace(plan, weight_format=find_format("int8", "cuda"))) == ""
