"""int8 and int4 on a CPU, from safetensors to answers: what is packed, kept on disk, chosen, refused and let go."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file

import localspec
from localspec.bench.prompts import QUESTIONS
from localspec.core import build_lock
from localspec.core.drain import drain
from localspec.core.errors import CheckpointError, DoesNotFit, EngineError, LocalspecError, UsageError
from localspec.core.events import AnyEvent, Loading, Notice, Ready
from localspec.core.requests import LoadRequest
from localspec.core.weight_formats import find_format
from localspec.engine import lengths
from localspec.engine.arch import read_arch
from localspec.engine.cpu import program
from localspec.engine.cpu.cache import PackedCache
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.isa import FORCE, choose
from localspec.engine.cpu.model import PackedModel
from localspec.engine.decoder import Decoder
from localspec.engine.drafters.early_exit import EarlyExitDrafter
from localspec.engine.rope import rotation_table
from localspec.loading import sources, weight_cache
from localspec.loading.cpu import Packer, pack_source
from localspec.loading.cpu_layout import Blueprint
from localspec.loading.footprint import footprint
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan, make_plan
from localspec.loading.plan_request import PlanRequest
from localspec.loading.sources import Files, StateDictSource, WeightReader
from localspec.loading.torch import assemble
from localspec.models.checkpoint import open_snapshot
from localspec.runtime import open as opening
from localspec.runtime.api import load_events
from localspec.runtime.drafter_setup import attach
from tests.support.models import ODD, TINY, random_tensors, save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

KINDS = ("int8", "int4")
HI = [{"role": "user", "content": "hello there general"}]


@pytest.fixture(scope="module", autouse=True)
def engine() -> program.Program:
    """Compiled before any test turns its cache away."""
    return program.load(choose())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_snapshot(tmp_path_factory.mktemp("models") / "tiny", gpt2_like(), template=CHATML, eos="<|im_end|>")


def small_decoder(config: dict[str, Any], kind: Any, engine: program.Program) -> tuple[Blueprint, PackedDecoder]:
    blueprint = Blueprint(read_arch(config), kind)
    tensors = random_tensors(config, seed=3, dtype=torch.float32)
    return blueprint, PackedDecoder(
        PackedModel(blueprint.arch, pack_source(blueprint, WeightReader(StateDictSource(tensors)), engine), 64, engine)
    )


# --- what is packed


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_knows_to_the_byte_what_is_allocated(kind: Any, engine: program.Program):
    blueprint, decoder = small_decoder({**TINY, **ODD}, kind, engine)
    norms = sum(piece.num_bytes for name, piece in blueprint.pieces.items() if name.endswith("norm"))
    assert blueprint.num_bytes == decoder.weights.num_bytes + norms
    for context in (1, 64, 129, 5000):
        assert blueprint.kv_bytes(context) == PackedCache(blueprint.arch, context).num_bytes


def test_needed_memory_shrinks_with_the_format(folder: Path):
    snapshot = open_snapshot(folder)
    wide, eight, four = (footprint(snapshot, find_format(quant), 64).whole for quant in ("fp32", *KINDS))
    assert wide > eight > four


@pytest.mark.parametrize("kind", KINDS)
def test_scratch_memory_that_grows_with_the_context_is_counted(kind: Any, engine: program.Program, folder: Path):
    """Rotary tables and what attention tasks leave: at 128k positions more than everything else that is not stored."""
    snapshot, contexts = open_snapshot(folder), (512, 9000)
    arch, weights = read_arch(snapshot.config), small_decoder(TINY, kind, engine)[1].weights
    decoders = [PackedDecoder(PackedModel(arch, weights, context, engine)) for context in contexts]
    kept = [sum(tensor.nbytes for tensor in decoder.model.kept) for decoder in decoders]
    short, long = (footprint(snapshot, find_format(kind), context).workspace for context in contexts)
    assert long - short == kept[1] - kept[0] > 0


@pytest.mark.parametrize("name", [*KINDS, "fp32", "bf16"])
def test_what_a_draft_head_of_fewer_words_copies_is_counted(
    name: str, engine: program.Program, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """To the byte, though nothing may draft with this model."""
    snapshot, row = open_snapshot(folder), find_format(name)
    decoder: Decoder | PackedDecoder = (
        small_decoder(snapshot.config, name, engine)[1]
        if row.is_packed
        else assemble(
            read_arch(snapshot.config),
            StateDictSource(random_tensors(snapshot.config, seed=1)),
            dtype=getattr(torch, row.codec),
            context=64,
        )
    )
    before = footprint(snapshot, row, 64).whole
    monkeypatch.setattr(lengths, "SHORTEST", 32)
    monkeypatch.setattr(lengths, "SLOTS", 32)
    drafter = EarlyExitDrafter(decoder, 2)
    assert drafter.shortlist is not None
    assert footprint(snapshot, row, 64).whole - before == decoder.copied_bytes > 0


def test_the_rotary_tables_of_torch_are_counted(folder: Path):
    snapshot = open_snapshot(folder)
    arch = read_arch(snapshot.config)
    tables = rotation_table(arch, 9000, torch.float32)
    assert arch.rotation_bytes(9000) == sum(table.nbytes for table in tables)
    assert footprint(snapshot, find_format("fp32"), 9000).workspace > arch.rotation_bytes(9000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tied_head_is_the_embedding_itself_in_eight_bits(kind: Any, engine: program.Program):
    weights = small_decoder({**TINY, "tie_word_embeddings": True}, kind, engine)[1].weights
    assert (weights.head is weights.embedding, weights.head.weight_format) == (True, "int8")
    apart = small_decoder({**TINY, "tie_word_embeddings": False}, kind, engine)[1].weights
    assert (apart.head is apart.embedding, apart.head.weight_format, apart.embedding.weight_format) == (
        False,
        kind,
        kind,
    )


@pytest.mark.parametrize("slab", [1, 300, 5000])
def test_the_size_of_the_steps_changes_no_byte(slab: int, engine: program.Program, monkeypatch: pytest.MonkeyPatch):
    config = {**TINY, **ODD}
    tensors = random_tensors(config, seed=1, dtype=torch.float32)
    blueprint = Blueprint(read_arch(config), "int4")

    def packed() -> dict[str, torch.Tensor]:
        packer = Packer(blueprint, WeightReader(StateDictSource(tensors)), engine)
        assert sum(packer.pieces()) == sum(
            piece.num_bytes for piece in blueprint.pieces.values() if piece.weight_format
        )
        return packer.made

    whole = packed()
    monkeypatch.setattr("localspec.loading.sources.SLAB_ELEMENTS", slab)
    assert all(torch.equal(whole[name], tensor) for name, tensor in packed().items())
    assert {name: tuple(tensor.shape) for name, tensor in whole.items()} == {
        name: piece.shape for name, piece in blueprint.pieces.items()
    }


def test_files_and_memory_give_the_same_rows(folder: Path):
    tensors = load_file(folder / "model.safetensors")
    files, memory = Files(open_snapshot(folder)), StateDictSource(tensors)
    assert files.names() == memory.names()
    for name, tensor in tensors.items():
        assert files.shape(name) == memory.shape(name)
        assert torch.equal(files.read(name), tensor)
        assert torch.equal(files.rows(name, 1, 5), memory.rows(name, 1, 5))


def with_tensor(folder: Path, copy: Path, name: str, tensor: torch.Tensor | None) -> Path:
    """The model with one tensor other than it was, or without it."""
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(name, None)
    save_file(tensors | ({} if tensor is None else {name: tensor}), copy / "model.safetensors")
    return copy


@pytest.mark.sampled(4)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.3.mlp.down_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.self_attn.v_proj.weight",
        "model.layers.2.self_attn.o_proj.weight",
        "model.layers.2.input_layernorm.weight",
    ],
)
def test_a_weight_that_is_no_number_is_refused_by_its_tensors_name(
    name: str, value: float, folder: Path, tmp_path: Path
):
    spoilt = load_file(folder / "model.safetensors")[name].clone()
    spoilt.view(-1)[-1] = value
    copy = with_tensor(folder, tmp_path / "spoilt", name, spoilt)
    for kind in KINDS:
        with pytest.raises(CheckpointError, match=f"'{name}'.*infinite or not a number") as met:
            load_plan(copy, kind)
        assert met.value.hint


@pytest.mark.parametrize("change", ["missing", "too small", "too many"])
def test_tensors_that_do_not_fit_the_config_are_refused(change: str, folder: Path, tmp_path: Path):
    name = "model.layers.1.mlp.gate_proj.weight"
    changed = {"missing": (name, None), "too small": (name, torch.zeros(4, 4)), "too many": ("extra", torch.zeros(2))}
    copy = with_tensor(folder, tmp_path / "changed", *changed[change])
    with pytest.raises(CheckpointError, match="extra" if change == "too many" else name):
        load_plan(copy, "int8")


@pytest.mark.parametrize("error", [safetensors.SafetensorError("header too small"), OSError(5, "Input/output error")])
def test_what_libraries_raise_while_packing_becomes_one_of_ours(
    error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def failing(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(sources, "safe_open", failing)
    with pytest.raises(CheckpointError) as met:
        load_plan(folder, "int8")
    assert met.value.__cause__ is error


@pytest.mark.parametrize("place", [(Packer, "fill"), (PackedCache, "__init__")])
def test_memory_that_runs_out_while_packing_does_not_fit(
    place: tuple[Any, str], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def failing(*_: object, **__: object) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(*place, failing)
    with pytest.raises(DoesNotFit, match="int8") as met:
        load_plan(folder, "int8")
    assert "int4" in met.value.hint


def load_plan(folder: Path, kind: str, tell: Any = lambda _: None) -> PackedDecoder:
    decoder = drain(load_decoder(open_snapshot(folder), Plan(find_format(kind), 64)), tell)
    assert isinstance(decoder, PackedDecoder)
    return decoder


# --- the copy on disk


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of its own, and for models however small."""
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(weight_cache, "SMALLEST_BYTES", 0)
    return tmp_path / "cache" / "packed"


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each time that something was packed."""
    real, times = Packer.pieces, list[int]()

    def pieces(self: Packer) -> Iterator[int]:
        times.append(1)
        return real(self)

    monkeypatch.setattr(Packer, "pieces", pieces)
    return times


def logits(decoder: PackedDecoder) -> torch.Tensor:
    return decoder.forward(torch.arange(20))


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_start_maps_what_the_first_has_packed(kind: str, folder: Path, cache: Path, packings: list[int]):
    expected = logits(load_plan(folder, kind))
    (file,) = cache.iterdir()
    heard: list[AnyEvent] = []
    assert torch.equal(logits(load_plan(folder, kind, heard.append)), expected)
    assert len(packings) == 1
    assert list(cache.iterdir()) == [file]
    assert [event.done for event in heard if isinstance(event, Loading)][-1] <= heard[-1].total  # type: ignore[union-attr]
    with safetensors.safe_open(file, "pt") as opened:  # anybody can read it
        assert len(opened.keys()) == len(Blueprint(read_arch(open_snapshot(folder).config), kind).pieces)  # type: ignore[arg-type]


def flip(at: int) -> Any:
    def damage(raw: bytes) -> bytes:
        return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 if at != -1 else len(raw) :]

    return damage


DAMAGE = {
    "empty": lambda raw: raw[:0],
    "cut short": lambda raw: raw[:-1],
    "cut in its header": lambda raw: raw[:100],
    "longer": lambda raw: raw + b"\0",
    "its header's length": flip(0),
    "a giant header": lambda raw: b"\xff" * 8 + raw[8:],
    "its header": flip(9),
    "a checksum": lambda raw: raw.replace(b'"checksums":"', b'"checksums":"0', 1).replace(b" ", b"", 1),
    "all checksums": lambda raw: raw[:8] + b"{}".ljust(len(raw[:4096]) - 8) + raw[4096:],
    "not JSON": lambda raw: raw[:8] + b"[" * 4088 + raw[4096:],
    "not text": lambda raw: raw[:8] + b"\xff" * 4088 + raw[4096:],
    "its first weight": flip(8192),
    "a weight in the middle": lambda raw: flip(len(raw) // 2)(raw),
    "its last byte": flip(-1),
    "a lost page": lambda raw: raw[:16384] + bytes(4096) + raw[20480:],
    "two pages swapped": lambda raw: raw[:12288] + raw[16384:20480] + raw[12288:16384] + raw[20480:],
    "another program's file": lambda raw: os.urandom(len(raw)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_copy_is_made_anew_and_never_used(name: str, folder: Path, cache: Path, packings: list[int]):
    expected = logits(load_plan(folder, "int8"))
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(DAMAGE[name](whole))
    assert file.read_bytes() != whole
    heard: list[AnyEvent] = []
    assert torch.equal(logits(load_plan(folder, "int8", heard.append)), expected)
    assert len(packings) == 2
    assert file.read_bytes() == whole
    assert not [event for event in heard if isinstance(event, Notice)]


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/null"), lambda path: path.symlink_to(path)]
)
def test_what_is_no_file_in_place_of_a_copy_is_replaced(make: Any, folder: Path, cache: Path, packings: list[int]):
    """A fifo was waited for, for ever."""
    expected = logits(load_plan(folder, "int8"))
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.unlink()
    make(file)
    assert torch.equal(logits(load_plan(folder, "int8")), expected)
    assert len(packings) == 2
    assert not file.is_symlink()
    assert file.read_bytes() == whole


def test_a_folder_in_place_of_a_copy_is_no_matter_of_free_space(folder: Path, cache: Path):
    load_plan(folder, "int8")
    (file,) = cache.iterdir()
    file.unlink()
    file.mkdir()
    heard: list[AnyEvent] = []
    load_plan(folder, "int8", heard.append)
    (notice,) = [event for event in heard if isinstance(event, Notice)]
    assert "(Is a directory); each start makes them again." in notice.message
    assert notice.hint == "Set LOCALSPEC_CACHE_DIR to another folder."


@pytest.mark.parametrize("what", ["weights in place", "config", "version", "packer"])
def test_a_copy_of_something_else_is_not_used(
    what: str, folder: Path, cache: Path, packings: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name = "model.norm.weight"
    model = with_tensor(folder, tmp_path / "mine", name, torch.ones(32))
    load_plan(model, "int8")
    (old,) = cache.iterdir()
    weights = model / "model.safetensors"
    if what == "weights in place":  # as large, as old, other numbers
        times = weights.stat()
        save_file({**load_file(weights), name: torch.full((32,), 2.0)}, weights)
        os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    elif what == "config":
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    elif what == "version":
        monkeypatch.setattr(weight_cache, "__version__", "99")
    else:
        monkeypatch.setattr(weight_cache, "SOURCES", ("core/errors.py",))
    load_plan(model, "int8")
    assert len(packings) == 2
    (new,) = cache.iterdir()  # the old one is gone: nobody would ever read it again
    assert new != old


BESIDE = {
    "__init__", "core.build_lock", "core.drain", "core.errors", "core.events", "core.families", "core.main_memory",
    "core.plain_file", "core.requests", "core.sizes", "core.strict_json", "core.weight_formats", "engine.arch",
    "engine.cache", "engine.cpu.__init__", "engine.cpu.decoder", "engine.cpu.isa", "engine.cpu.model",
    "engine.cpu.pages", "engine.cpu.program", "engine.cuda_graphs", "engine.decoder", "engine.generic",
    "engine.generic_arch", "engine.memory", "engine.offload", "engine.protocols", "engine.sampling",
    "engine.transformers_faults", "loading.bnb", "loading.footprint", "loading.offload", "loading.plan",
    "loading.progress", "loading.tensor_names", "loading.weight_cache", "models.checkpoint", "models.dtypes",
    "models.safetensors_index",
}  # fmt: skip


@pytest.mark.parametrize("source", weight_cache.SOURCES)
def test_all_that_decides_a_copys_bytes_is_in_its_name(source: str):
    """A mended packer must not read what a faulty one wrote."""
    listed = {name.removesuffix(".py").replace("/", ".") for name in weight_cache.SOURCES}
    tree = ast.parse((Path(localspec.__file__).parent / source).read_text())
    taken = {
        name.removeprefix("localspec").lstrip(".") or "__init__"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("localspec")
        for name in modules_of(node)
    }
    assert taken <= listed | BESIDE


def test_whoever_makes_a_copy_decides_its_bytes():
    top = Path(localspec.__file__).parent
    makers = [file.relative_to(top).as_posix() for file in top.rglob("*.py") if "copy.keep(" in file.read_text()]
    assert len(makers) > 2
    assert set(makers) <= set(weight_cache.SOURCES)


def modules_of(node: ast.ImportFrom) -> Iterator[str]:
    """`from a import b`: a.b where that is a module, else a."""
    folder = Path(localspec.__file__).parent.parent / (node.module or "").replace(".", "/")
    for alias in node.names:
        yield f"{node.module}.{alias.name}" if (folder / f"{alias.name}.py").exists() else node.module or ""


def test_formats_and_models_keep_apart(folder: Path, cache: Path, packings: list[int], tmp_path: Path):
    other = with_tensor(folder, tmp_path / "other", "model.norm.weight", torch.ones(32))
    for _ in range(2):
        for model in (folder, other):
            for kind in KINDS:
                load_plan(model, kind)
    assert len(packings) == 4
    assert len(list(cache.iterdir())) == 4


def notices(folder: Path) -> list[Notice]:
    heard: list[AnyEvent] = []
    logits(load_plan(folder, "int8", heard.append))
    return [event for event in heard if isinstance(event, Notice)]


def test_a_disk_without_room_costs_one_notice(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weight_cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    (notice,) = notices(folder)
    assert (notice.level, notice.code) == ("info", "packed_copy")
    assert "No space left" in notice.message
    assert "LOCALSPEC_CACHE_DIR" in notice.hint
    assert list(cache.iterdir()) == []


def test_a_disk_that_fills_up_leaves_nothing_behind(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    real, calls = weight_cache.in_memory, iter(range(10**6))

    def in_memory(tensor: torch.Tensor) -> memoryview:
        if next(calls) > 9:
            raise OSError(28, "No space left on device")
        return real(tensor)

    monkeypatch.setattr(weight_cache, "in_memory", in_memory)
    assert len(notices(folder)) == 1
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("where", ["/dev/null/x", "/proc/x"])
@pytest.mark.usefixtures("cache")
def test_without_a_folder_for_the_cache_it_is_packed_each_time(
    where: str, folder: Path, packings: list[int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", where)
    for _ in range(2):
        assert len(notices(folder)) == 1
    assert len(packings) == 2


@pytest.mark.usefixtures("cache")
def test_target_and_draft_say_it_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weight_cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    heard = load_events(LoadRequest.of(str(folder), draft=str(folder), quant="int8", threads=1))
    assert [event.code for event in heard if isinstance(event, Notice)] == ["packed_copy", "own_draft"]


def test_a_folder_in_the_copys_place_costs_a_notice(folder: Path, cache: Path):
    load_plan(folder, "int8")
    (file,) = cache.iterdir()
    file.unlink()
    file.mkdir()
    assert len(notices(folder)) == 1


def test_two_that_write_at_once_do_no_harm(
    folder: Path, cache: Path, packings: list[int], monkeypatch: pytest.MonkeyPatch
):
    """One is stopped in the middle of it while another begins, waits no longer, and ends."""
    monkeypatch.setattr(build_lock, "SILENCE_SECONDS", 0.1)
    slow = load_decoder(open_snapshot(folder), Plan(find_format("int8"), 64))
    while next(slow).stage != "writing packed weights to disk":  # type: ignore[union-attr]
        pass
    expected = logits(load_plan(folder, "int8"))
    (file,) = [one for one in cache.iterdir() if one.suffix == ".safetensors"]
    drain(slow)
    assert torch.equal(logits(load_plan(folder, "int8")), expected)
    assert len(packings) == 2
    assert list(cache.iterdir()) == [file]


def test_one_that_is_stopped_while_it_writes_leaves_nothing(folder: Path, cache: Path):
    slow = load_decoder(open_snapshot(folder), Plan(find_format("int8"), 64))
    while next(slow).stage != "writing packed weights to disk":  # type: ignore[union-attr]
        pass
    slow.close()
    assert list(cache.iterdir()) == []


def test_a_small_model_is_not_kept(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(cache.parent))
    load_plan(folder, "int8")
    assert not cache.exists()


PEAK = """
import gc, os, sys, threading, time
from pathlib import Path
from localspec.models.checkpoint import open_snapshot
from localspec.core.drain import drain
from localspec.core.weight_formats import find_format
from localspec.engine.cpu import decoder, isa, program
from localspec.loading.plan import Plan
from localspec.loading.kernels import load_decoder
from localspec.loading import cpu as packing

def own():
    fields = dict(line.split(":") for line in open("/proc/self/status"))
    return 1024 * sum(int(fields[name].split()[0]) for name in ("RssAnon", "VmSwap"))

def watch():
    while True:
        peak[0] = max(peak[0], own())
        time.sleep(0.002)

def load(folder):
    return drain(load_decoder(open_snapshot(Path(folder)), Plan(find_format(kind), 64)))

small, big, kind, cache = sys.argv[1:]
program.load(isa.choose())
os.environ["LOCALSPEC_CACHE_DIR"] = cache
load(small)
gc.collect()
before, peak = own(), [0]
threading.Thread(target=watch, daemon=True).start()
loaded = load(big)
print(own() - before, peak[0] - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", KINDS)
def test_packing_takes_the_packed_size_and_twice_the_largest_tensor_at_most(kind: Any, tmp_path: Path):
    """Memory of its own, wherever the system keeps it, of a process that packs 280 MB of float32: what is mapped is the
    checkpoint, and the system's to take back. Below 250 KB malloc may keep what is free, above it must not. A start
    that was measured too high would show at the end, where all of the packed model is there."""
    small = save_snapshot(tmp_path / "small", gpt2_like())
    wide = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 6, "num_attention_heads": 16}
    folder = save_snapshot(tmp_path / "big", gpt2_like(), **wide, num_key_value_heads=4, vocab_size=2000)
    snapshot = open_snapshot(folder)
    assert snapshot.total_bytes > 270e6
    command = [sys.executable, "-c", PEAK, small, folder, kind, tmp_path / "cache"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "MALLOC_MMAP_THRESHOLD_": "250000"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    end, peak = map(int, done.stdout.split())
    packed = Blueprint(read_arch(snapshot.config), kind).num_bytes
    largest = max(info.num_bytes for info in snapshot.tensors.values())
    assert packed <= end <= peak <= packed + 2 * largest


# --- the compiled engine on disk


@pytest.fixture
def code(engine: program.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the engine's code would be kept; compiling it takes no time here, and is counted in `builds`."""
    real = program.read(program.cache_file(f"{engine.isa.name}-{program.fingerprint(engine.isa)}.bin"))
    assert real is not None
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(program, "LOADED", {})

    def building(*_: object) -> Iterator[tuple[int, int]]:
        (tmp_path / f"build{len(list(tmp_path.glob('build*')))}").touch()
        yield 0, 4
        return real

    monkeypatch.setattr(program, "building", building)
    file = program.cache_file(f"{engine.isa.name}-{program.fingerprint(engine.isa)}.bin")
    assert file is not None
    return file


def builds(tmp_path: Path) -> int:
    return len(list(tmp_path.glob("build*")))


@pytest.mark.parametrize("damage", [b"", b"x", lambda raw: raw[:-1], flip(40), flip(2), lambda raw: bytes(len(raw))])
def test_damaged_code_is_compiled_anew(damage: Any, code: Path, tmp_path: Path):
    program.load(choose())
    whole = code.read_bytes()
    code.write_bytes(damage if isinstance(damage, bytes) else damage(whole))
    program.LOADED.clear()
    program.load(choose())
    assert builds(tmp_path) == 2
    assert code.read_bytes() == whole
    program.LOADED.clear()
    program.load(choose())
    assert builds(tmp_path) == 2
    assert list(code.parent.iterdir()) == [code]


@pytest.mark.usefixtures("code")
def test_without_a_cache_the_engine_is_compiled_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
):
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", "/dev/null/x")
    with localspec.load(str(folder), quant="int8", draft="off", threads=1) as llm:
        assert llm.generate(HI, max_tokens=4).tokens
    assert builds(tmp_path) == 1  # once in this process


def test_of_two_starts_one_compiles_and_the_other_waits(code: Path, tmp_path: Path):
    first, second = program.loading(choose()), program.loading(choose())
    assert next(first) == (0, 4)
    assert next(second) is None
    assert next(second) is None
    loaded = drain(first)
    assert drain(second).kept
    assert loaded.kept
    assert builds(tmp_path) == 1
    assert list(code.parent.iterdir()) == [code]


def test_where_compiling_fails_the_next_in_line_tries(code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def failing(*_: object) -> Iterator[tuple[int, int]]:
        yield 0, 4
        raise EngineError("The CPU engine cannot be compiled here (no compiler).")

    with monkeypatch.context() as broken:
        broken.setattr(program, "building", failing)
        first, second = program.loading(choose()), program.loading(choose())
        next(first)
        assert next(second) is None
        with pytest.raises(EngineError):
            drain(first)
    drain(second)
    assert builds(tmp_path) == 1
    assert list(code.parent.iterdir()) == [code]


@pytest.mark.usefixtures("code")
def test_while_another_compiles_the_screen_says_so(folder: Path):
    first, begun = program.loading(choose()), []

    def elsewhere(event: AnyEvent) -> None:
        if isinstance(event, Loading) and event.stage.startswith("waiting for another start"):
            begun.append(event.stage)
            drain(first)

    next(first)
    llm = drain(load_events(LoadRequest.of(str(folder), draft="off", quant="int8", threads=1)), elsewhere)
    llm.close()
    assert begun == ["waiting for another start, which compiles the engine"]


def test_of_two_starts_one_packs_and_the_other_waits(folder: Path, cache: Path, packings: list[int]):
    plan = Plan(find_format("int8"), 64)
    first, second = (load_decoder(open_snapshot(folder), plan) for _ in range(2))
    assert "packs" not in next(step for step in first if packings).stage  # type: ignore[union-attr]
    heard: list[AnyEvent] = []

    def finish(event: AnyEvent) -> None:
        heard.append(event)
        drain(first)

    assert torch.equal(logits(drain(second, finish)), logits(load_plan(folder, "int8")))  # type: ignore[arg-type]
    assert isinstance(heard[0], Loading)
    assert heard[0].stage == "waiting for another start, which packs these weights"
    assert len(packings) == 1
    assert len(list(cache.iterdir())) == 1


@pytest.mark.usefixtures("code")
def test_while_it_compiles_the_screen_moves(folder: Path):
    heard = list(load_events(LoadRequest.of(str(folder), draft="off", quant="int8", threads=1)))
    stages = [event.stage for event in heard if isinstance(event, Loading)]
    assert stages.index("checking the configuration") < stages.index("compiling the engine (once)")


def test_a_child_that_cannot_compile_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    """The real child, told to build for a processor that is not here; then a Python that is not here."""
    monkeypatch.setattr(program, "environment", lambda _: {**os.environ, FORCE: "abacus"})
    for executable, reason in ((sys.executable, "abacus"), ("/no/such/python", "No such file")):
        monkeypatch.setattr(program.sys, "executable", executable)
        with pytest.raises(EngineError, match=f"cannot be compiled here.*{reason}") as met:
            list(program.building(choose()))
        assert "\n" not in met.value.message
        assert met.value.hint


@pytest.mark.slow
def test_the_child_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(program, "LOADED", {})
    steps = list(program.loading(choose()))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert {done for done, _ in steps} >= {0, 1, 2, 3}
    assert {total for _, total in steps} == {4}
    assert len(list((tmp_path / "engine").iterdir())) == 1


# --- what auto chooses


def memory_of(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=available, total=1 << 40))


def format_notice(folder: Path, **asked: Any) -> tuple[str, list[Notice]]:
    heard = list(load_events(LoadRequest.of(str(folder), draft="off", threads=1, **asked)))
    ready = heard[-1]
    assert isinstance(ready, Ready)
    return ready.model.quant, [event for event in heard if isinstance(event, Notice) and event.code == "format"]


def test_auto_takes_the_best_format_that_fits_and_says_so_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    snapshot = open_snapshot(folder)
    needed = [footprint(snapshot, find_format(kind), 512).whole for kind in KINDS]
    for kind, available in zip(KINDS, needed, strict=True):
        memory_of(monkeypatch, available)
        quant, (notice,) = format_notice(folder)
        assert quant == kind
        assert (notice.level, notice.code) == ("info", "format")
        assert kind in notice.message
        assert ("8-bit numbers (int8, " in notice.message) == (kind == KINDS[0] == "int8"), notice.message
    memory_of(monkeypatch, 1000)
    with pytest.raises(DoesNotFit, match="even with 3 of its 4 layers offloaded"):
        format_notice(folder)


@pytest.mark.parametrize("quant", [*KINDS, "fp32", "bf16"])
def test_a_format_that_is_named_is_taken_without_a_word(quant: str, folder: Path):
    assert format_notice(folder, quant=quant) == (quant, [])


def test_where_the_engine_cannot_run_auto_goes_on_in_torch_and_a_named_format_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    def nowhere(_: object) -> Iterator[tuple[int, int]]:
        yield 0, 4
        raise EngineError("The CPU engine cannot be compiled here (no compiler).", hint="Use --quant fp32 or bf16.")

    monkeypatch.setattr(program, "loading", nowhere)
    quant, (notice,) = format_notice(folder)
    assert (quant, notice.level) == ("fp32", "warning")
    assert "cannot be compiled" in notice.message
    with pytest.raises(EngineError, match="cannot be compiled here") as met:
        format_notice(folder, quant="int8")
    assert met.value.hint


def test_without_numba_auto_goes_on_in_torch(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "localspec.engine.cpu.program", None)
    quant, (notice,) = format_notice(folder)
    assert quant == "fp32"
    assert "not installed" in notice.message


def test_a_decoder_that_fails_its_self_check_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise EngineError("The CPU engine does not agree with torch on this configuration (off by 1).")

    monkeypatch.setattr("localspec.loading.self_check.cpu.verify_packed", refuse)
    assert format_notice(folder)[0] == "fp32"
    with pytest.raises(EngineError):
        format_notice(folder, quant="int4")


def test_int4_is_not_for_other_devices(folder: Path):
    with pytest.raises(UsageError, match="on a CPU only") as met:
        localspec.load(str(folder), quant="int4", device="cuda")
    assert "--device cpu" in met.value.hint
    assert make_plan(open_snapshot(folder), PlanRequest(device="cuda")).weight_format.name == "bf16"


def test_an_instruction_set_that_is_not_here_is_a_usage_error(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOCALSPEC_CPU_ISA", "abacus")
    with pytest.raises(LocalspecError, match="LOCALSPEC_CPU_ISA is 'abacus'") as met:
        localspec.load(str(folder), quant="int8", draft="off")
    assert met.value.exit_code == 2


# --- answers


def ids(llm: localspec.LLM, question: str, **options: Any) -> list[int]:
    asked = [{"role": "user", "content": question}]
    return [token.id for token in llm.generate(asked, **{"temperature": 0, "max_tokens": 64, **options}).tokens]


@lru_cache
def on_guide(draft: str, kind: str) -> list[list[int]]:
    """What is answered to some questions, the last time sampled with a seed."""
    with localspec.load("guide", draft=draft, quant=kind) as llm:
        assert llm.ready.model.quant == kind
        return [*(ids(llm, question) for question in QUESTIONS[:4]), ids(llm, QUESTIONS[0], temperature=1.2, seed=4)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["int4", pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("draft", ["early-exit:1", "early-exit:5", "small"])
def test_on_guide_speculation_writes_the_very_text_of_plain_decoding(draft: str, kind: str):
    """Not "up to near ties": rows are equal bit for bit at every width. Sampled with a seed, too. In int8, in which it
    ships, test_guide.py has it."""
    assert on_guide(draft, kind) == on_guide("off", kind)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_count_of_threads_changes_no_token(threads: int, folder: Path):
    with (
        localspec.load(str(folder), draft="off", quant="int4", threads=1) as one,
        localspec.load(str(folder), draft="early-exit:2", quant="int4", threads=threads) as llm,
    ):
        assert ids(llm, "hello there") == ids(one, "hello there")
        assert torch.get_num_threads() == 1  # torch stays out of the engine's way


def test_threads_end_with_the_model(folder: Path):
    before = threading.active_count()
    with localspec.load(str(folder), draft=str(folder), quant="int8", threads=3) as llm:
        assert threading.active_count() == before + 4  # two beside ours for the target, and two for its draft
        assert llm.generate(HI, max_tokens=4).tokens
    assert threading.active_count() == before


def test_a_target_that_several_share_outlives_each_of_them(folder: Path):
    opened = drain(opening.open_target(LoadRequest.of(str(folder), quant="int8", threads=2)))
    first, second = (drain(attach(opened, "early-exit:1", "auto")) for _ in range(2))
    first.close()
    request = localspec.runtime.api.request_of(HI, max_tokens=4)
    assert list(second.answer(request))
    opened.target.close()


def test_a_draft_has_the_targets_format(folder: Path):
    with localspec.load(str(folder), draft=str(folder), quant="int4", threads=1) as llm:
        assert [type(decoder) for decoder in llm._model.state.parts.decoders] == [PackedDecoder] * 2
        assert llm.ready.memory.drafter_bytes == llm.ready.memory.target_bytes
        assert llm.generate(HI, max_tokens=8).tokens
