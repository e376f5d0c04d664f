"""--device offload and --max-memory, from safetensors to answers: what stays in memory, what is told and refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import localspec
from benchmarks.shapes.layer_offload import Rate, read_rate
from localspec.cli.main import main
from localspec.core import paths
from localspec.core.drain import drain
from localspec.core.errors import DoesNotFit, EngineError, LocalspecError, UsageError
from localspec.core.events import AnyEvent, Notice, Ready
from localspec.core.requests import LoadRequest, WeightOptions
from localspec.core.weight_formats import BITSANDBYTES_BYTES, find_format
from localspec.engine.cpu import program
from localspec.engine.cpu.decoder import PackedDecoder
from localspec.engine.cpu.isa import choose
from localspec.engine.decoder import Decoder
from localspec.engine.offload import OnThread
from localspec.loading import offload, weight_cache
from localspec.loading.cpu import Packer
from localspec.loading.footprint import SLOTS, footprint
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan, fit_word, ladder, make_plan, needed, others
from localspec.loading.plan_request import PlanRequest
from localspec.loading.torch import Assembly
from localspec.models.checkpoint import open_snapshot
from localspec.runtime.api import load_events
from localspec.tui.control.fit_report import what_fits
from tests.support.models import save_snapshot
from tests.support.tokenizers import CHATML, gpt2_like

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("verified")]

HI = [{"role": "user", "content": "hello there general"}]
LAYERS = 6
FORMATS = ("int8", "int4", "bf16", "fp32")
ON_A_GPU = ("bf16", "fp32", "int8", "nf4", "fp4")


@pytest.fixture(scope="module", autouse=True)
def engine() -> program.Program:
    """Compiled before any test turns its cache away."""
    return program.load(choose())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("models") / "six"
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": LAYERS}
    return save_snapshot(where, gpt2_like(), template=CHATML, eos="<|im_end|>", **sizes)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packed"


def memory_of(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=available, total=1 << 40))


def load_plan(folder: Path, quant: str, resident: int | None, tell: Any = lambda _: None) -> Any:
    return drain(load_decoder(open_snapshot(folder), Plan(find_format(quant), 64, resident=resident)), tell)


# --- weights


@pytest.mark.sampled(5)
@pytest.mark.parametrize("resident", [1, 3, 5])
@pytest.mark.parametrize("quant", FORMATS)
@pytest.mark.usefixtures("cache")
def test_layers_from_disk_compute_what_resident_ones_do(quant: str, resident: int, folder: Path):
    """To the bit where the CPU engine computes and where layers lie as they do resident."""
    whole, target = load_plan(folder, quant, None), load_plan(folder, quant, resident)
    ids = torch.arange(43) % whole.arch.vocab_size
    for part in torch.split(ids, [1, 5, 17, 20]):
        assert torch.equal(whole.forward(part), target.forward(part))
    assert len(target.weights.layers) == resident
    layer = whole.layer_bytes[-1]
    assert whole.weights.num_bytes - target.weights.num_bytes == (LAYERS - resident - SLOTS) * layer
    target.close()


@pytest.mark.parametrize("quant", ["bf16", "fp32"])
@pytest.mark.parametrize("config", [{"attention_bias": True, "mlp_bias": True}, {"model_type": "qwen3", "head_dim": 8}])
def test_biases_and_norms_come_too(config: dict[str, Any], quant: str, tmp_path: Path):
    odd = save_snapshot(tmp_path / "odd", gpt2_like(), **config)
    whole, target = load_plan(odd, quant, None), load_plan(odd, quant, 1)
    ids = torch.arange(9)
    assert torch.equal(whole.forward(ids), target.forward(ids))
    target.close()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("config", [{"attention_bias": True, "mlp_bias": True}, {"model_type": "qwen3", "head_dim": 8}])
def test_packed_biases_and_norms_come_too(config: dict[str, Any], tmp_path: Path):
    odd = save_snapshot(tmp_path / "odd", gpt2_like(), **config)
    whole, target = load_plan(odd, "int4", None), load_plan(odd, "int4", 1)
    ids = torch.arange(9)
    assert torch.equal(whole.forward(ids), target.forward(ids))
    target.close()


def test_what_is_packed_to_disk_is_what_a_whole_start_keeps(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Tensor by tensor, and never all of them at once."""
    load_plan(folder, "int8", 2).close()
    (piecewise,) = cache.iterdir()
    written = piecewise.read_bytes()
    piecewise.unlink()
    monkeypatch.setattr(weight_cache, "SMALLEST_BYTES", 0)
    load_plan(folder, "int8", None)
    (whole,) = cache.iterdir()
    assert (whole.name, whole.read_bytes()) == (piecewise.name, written)


def test_a_damaged_copy_is_packed_anew_also_where_its_damage_stays_on_disk(folder: Path, cache: Path):
    ids = torch.arange(9)
    first = load_plan(folder, "int8", 2)
    expected = first.forward(ids)
    first.close()
    (file,) = cache.iterdir()
    raw = file.read_bytes()
    file.write_bytes(raw[:-9000] + bytes([raw[-9000] ^ 1]) + raw[-8999:])  # of a layer that is not resident
    again = load_plan(folder, "int8", 2)
    assert torch.equal(again.forward(ids), expected)
    assert file.read_bytes() == raw
    again.close()


@pytest.mark.parametrize("quant", ["int8", "bf16"])
def test_a_file_that_goes_away_while_it_is_read_is_one_sentence(quant: str, tmp_path: Path, cache: Path):
    mine = save_snapshot(tmp_path / "mine", gpt2_like(), num_hidden_layers=LAYERS)
    target = load_plan(mine, quant, 2)
    file = next(cache.iterdir()) if quant == "int8" else mine / "model.safetensors"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(EngineError, match=r"Layer \d cannot be read from disk any more") as met:
        target.forward(torch.tensor([1]))
    assert met.value.hint
    target.close()


def test_layers_from_main_memory_compute_what_resident_ones_do(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """What a GPU does, with a thread in the slot of its copies: everything but its own stream."""
    monkeypatch.setattr(offload, "OnDevice", OnThread)
    whole = load_plan(folder, "bf16", None)
    weights, ids = whole.weights, torch.arange(20)
    expected = whole.forward(ids)
    stream = offload.from_main_memory(weights.layers[2:], "cpu", 2)
    target = Decoder(whole.arch, replace(weights, layers=weights.layers[:2], stream=stream), whole.cache)
    target.crop(0)
    for _ in range(2):
        assert torch.equal(target.forward(ids), expected)
        target.crop(0)
    target.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("quant", ON_A_GPU)
def test_a_gpu_computes_with_layers_from_main_memory(quant: str, folder: Path):
    snapshot = open_snapshot(folder)
    whole, target = (drain(load_decoder(snapshot, Plan(find_format(quant, "cuda"), 64, resident=r))) for r in (None, 2))
    for width in (1, 5, 17):
        ids = torch.arange(width)
        graphs, eager = (decoder.forward(ids).float() for decoder in (whole, target))
        assert float(torch.nn.functional.cosine_similarity(graphs, eager).min()) > 0.999
    target.close()


# --- the plan


def test_the_plan_keeps_as_many_layers_as_fit_and_as_the_drafter_needs(folder: Path):
    snapshot = open_snapshot(folder)
    needs = footprint(snapshot, find_format("int8"), 512)
    for resident in (1, 2, 3):
        request = PlanRequest(WeightOptions("int8", "offload"), max_bytes=needs.offloaded(resident))
        assert make_plan(snapshot, request).resident == resident
    assert make_plan(snapshot, PlanRequest(WeightOptions("int8", "offload"))).resident == 1
    assert make_plan(snapshot, PlanRequest(WeightOptions("int8", "offload"), min_resident=4)).resident == 4
    assert make_plan(snapshot, PlanRequest(WeightOptions("int8", "offload"), max_bytes=needs.whole)).resident is None
    with pytest.raises(DoesNotFit):
        make_plan(snapshot, PlanRequest(WeightOptions("int8", "offload"), max_bytes=needs.offloaded(3), min_resident=4))


def test_a_drafter_takes_its_memory_from_the_layers(folder: Path, tmp_path: Path):
    drafter = open_snapshot(save_snapshot(tmp_path / "draft", gpt2_like(), num_hidden_layers=1))
    snapshot = open_snapshot(folder)
    limit = footprint(snapshot, find_format("int8"), 512).offloaded(3)
    alone, beside = (
        make_plan(snapshot, PlanRequest(WeightOptions("int8", "offload"), max_bytes=limit, drafter=d))
        for d in (None, drafter)
    )
    assert (alone.resident or 0) > (beside.resident or 0)


def test_the_larger_workspace_is_for_target_and_drafter(folder: Path):
    """And what an import of bitsandbytes brings is in main memory, also where a GPU computes."""
    snapshot = open_snapshot(folder)
    own, theirs = (footprint(snapshot, find_format(quant), 512) for quant in ("int8", "nf4"))
    assert theirs.workspace > BITSANDBYTES_BYTES > own.workspace
    both = needed(
        snapshot, PlanRequest(WeightOptions("int8", ctx=512, draft_format="nf4"), drafter=snapshot), find_format("int8")
    )
    assert both.whole == own.whole + theirs.whole - own.workspace
    on_gpu, int8 = (footprint(snapshot, find_format(quant, "cuda"), 512) for quant in ("nf4", "int8"))
    assert theirs.workspace - BITSANDBYTES_BYTES == int8.workspace
    assert on_gpu.workspace - int8.workspace == 2 * 128 * 2 * 256, "gate and up, which a prompt takes in 16 bits"


def test_the_ladder_goes_from_int8_to_int4_to_disk(folder: Path, monkeypatch: pytest.MonkeyPatch):
    snapshot = open_snapshot(folder)
    whole = {quant: footprint(snapshot, find_format(quant), 512).whole for quant in ("int8", "int4")}
    least = footprint(snapshot, find_format("int4"), 512).offloaded(1)

    def rungs(free: int) -> list[tuple[str, bool]]:
        memory_of(monkeypatch, free)
        return [(plan.weight_format.name, plan.resident is None) for plan in ladder(snapshot, PlanRequest())]

    assert rungs(1 << 40) == [("int8", True), ("int4", True), ("int4", False), ("bf16", False)]
    assert rungs(whole["int8"] - 1)[0] == ("int4", True)
    assert rungs(whole["int4"] - 1)[0] == ("int4", False)
    assert rungs(least) == [("int4", False)]
    with pytest.raises(DoesNotFit, match=r"even with 5 of its 6 layers offloaded"):
        rungs(least - 1)
    memory_of(monkeypatch, 1 << 40)
    no_engine = [plan.weight_format.name for plan in ladder(snapshot, PlanRequest(allow_cpu_engine=False))]
    assert no_engine == ["fp32", "bf16", "bf16"]
    gpu = [(plan.weight_format.name, plan.resident) for plan in ladder(snapshot, PlanRequest(device="cuda"))]
    assert gpu == [("bf16", None), ("int8", None), ("nf4", None), ("nf4", 1), ("bf16", 1)]
    asked = [
        (plan.weight_format.name, plan.resident)
        for plan in ladder(snapshot, PlanRequest(WeightOptions(device="offload"), "cuda"))
    ]
    assert asked == [("int8", 1), ("nf4", 1), ("bf16", 1)]


def test_what_a_hint_suggests_would_work(folder: Path):
    """Whatever was asked for, at the borders of what each format needs."""
    snapshot, told = open_snapshot(folder), set[str]()
    needs = [footprint(snapshot, find_format(quant), 64) for quant in FORMATS]
    limits = [size - less for one in needs for size in (one.whole, one.offloaded(1)) for less in (0, 1)]
    for quant, limit in product(("nf4", *FORMATS), limits):
        request = PlanRequest(WeightOptions(quant, ctx=64), max_bytes=limit)
        hint = ""
        try:
            make_plan(snapshot, request)
        except DoesNotFit as fault:
            hint = fault.hint
        ways = others(request)
        for way in [way for way in ways if way in hint]:
            make_plan(snapshot, ways[way])
            told.add(way)
    assert told == {"--quant auto", "--device offload"}


def test_a_picker_says_that_it_would_come_from_disk(folder: Path):
    snapshot = open_snapshot(folder)
    int8, int4 = (footprint(snapshot, find_format(quant), 512) for quant in ("int8", "int4"))
    free = [int8.whole, int4.whole, int4.offloaded(1), int4.offloaded(1) - 1]
    assert [fit_word(snapshot, n) for n in free] == ["fits", "fits in int4", "from disk", "too large"]


def test_what_would_be_loaded_is_told_with_where_it_comes_from(folder: Path):
    told = what_fits(LoadRequest.of(str(folder), draft="off", device="offload"), None)
    assert "It would be loaded in int8 with layers from disk." in told


def test_memory_that_is_given_back_first_counts_as_free(folder: Path, monkeypatch: pytest.MonkeyPatch):
    memory_of(monkeypatch, 0)
    snapshot = open_snapshot(folder)
    whole = footprint(snapshot, find_format("int8"), 512).whole
    assert make_plan(snapshot, PlanRequest(WeightOptions("int8")), held_bytes=whole).resident is None
    with pytest.raises(DoesNotFit):
        make_plan(snapshot, PlanRequest(WeightOptions("int8")), held_bytes=whole - 1)


def test_plans_that_differ_in_what_is_resident_are_not_equally_fast():
    labels = {Plan(find_format("int8"), 64, resident=resident).label for resident in (None, 1, 2)}
    assert len(labels) == 3


# --- opening


def opened(folder: Path, **asked: Any) -> tuple[Ready, list[Notice], list[int]]:
    """What is told, and a greedy text."""
    heard: list[AnyEvent] = []
    with drain(load_events(LoadRequest.of(str(folder), threads=1, **asked)), heard.append) as llm:
        ids = [token.id for token in llm.generate(HI, max_tokens=24, temperature=0).tokens]
        return llm.ready, [event for event in heard if isinstance(event, Notice)], ids


@pytest.mark.parametrize("draft", ["off", "early-exit:2", "early-exit:4", "lookup", "lookup+early-exit:2"])
@pytest.mark.usefixtures("cache")
def test_an_offloaded_model_says_what_the_resident_one_says(draft: str, folder: Path):
    _, _, expected = opened(folder, draft="off", quant="int8")
    ready, notices, ids = opened(folder, draft=draft, quant="int8", device="offload", k=8)
    assert ids == expected
    assert ready.model.device == "cpu and disk"
    least = int(draft[-1]) if draft[-1].isdecimal() else 1
    (told,) = [notice for notice in notices if notice.code == "offload"]
    assert f"in int8: {least} of {LAYERS} layers stay in memory" in told.message
    assert told.hint


@pytest.mark.usefixtures("cache")
def test_too_little_memory_leads_auto_to_disk_with_a_notice(folder: Path, monkeypatch: pytest.MonkeyPatch):
    memory_of(monkeypatch, footprint(open_snapshot(folder), find_format("int4"), 512).offloaded(2))
    ready, notices, _ = opened(folder, draft="off")
    assert (ready.model.quant, ready.model.device) == ("int4", "cpu and disk")
    assert [notice.code for notice in notices if notice.level == "info"] == ["offload"]


def failing_for(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> list[str]:
    """Packing runs out of memory in these formats, after some of it."""
    real, tried = Packer.linear, list[str]()

    def linear(self: Packer, name: str, slabs: Iterator[torch.Tensor]) -> Iterator[int]:
        kind = f"{self.blueprint.weight_format}{'' if self.keep == self.made.__setitem__ else ' to disk'}"
        if name == "3.qk" and kind in kinds:
            tried.append(kind)
            raise torch.OutOfMemoryError("a planted one")
        return real(self, name, slabs)

    monkeypatch.setattr(Packer, "linear", linear)
    return tried


@pytest.mark.parametrize(
    ("kinds", "quant", "device"),
    [
        (["int8"], "int4", "cpu"),
        (["int8", "int4"], "int4", "cpu and disk"),
        (["int8", "int4", "int4 to disk"], "bf16", "cpu and disk"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_memory_that_runs_out_while_loading_leads_one_rung_down(
    kinds: list[str], quant: str, device: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """C1: each rung a Notice, and an answer at the end."""
    tried = failing_for(monkeypatch, *kinds)
    ready, notices, ids = opened(folder, draft="off")
    assert tried == kinds
    assert (ready.model.quant, ready.model.device) == (quant, device)
    assert [notice.level for notice in notices if notice.code == "memory"] == ["warning"] * len(kinds)
    assert ids


@pytest.mark.usefixtures("cache")
def test_when_the_last_rung_fails_it_is_one_sentence_and_nothing_is_held(folder: Path, monkeypatch: pytest.MonkeyPatch):
    failing_for(monkeypatch, "int8", "int4", "int4 to disk")

    def layer(*_: object) -> Any:
        raise torch.OutOfMemoryError("a planted one")

    monkeypatch.setattr(
        "localspec.loading.self_check.cpu.check_agreement", lambda *_: None
    )  # its reference has layers too
    monkeypatch.setattr(Assembly, "layer", layer)
    with pytest.raises(DoesNotFit, match="Memory ran out") as met:
        opened(folder, draft="off")
    assert met.value.exit_code == 5
    cause = met.value.__cause__
    assert isinstance(cause, torch.OutOfMemoryError)
    assert cause.__traceback__ is None, "it would hold what was loaded"


@pytest.mark.usefixtures("cache")
def test_a_named_format_does_not_go_down_the_ladder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    failing_for(monkeypatch, "int8")
    with pytest.raises(DoesNotFit, match="Memory ran out while loading") as met:
        opened(folder, draft="off", quant="int8")
    assert "--device offload" in met.value.hint


# --- what cannot be


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--max-memory", "8 cows"], 2, ["'8 cows' is not a memory size", "--max-memory 8GB"]),
        (["--max-memory", "8"], 2, ["is not a memory size"]),
        (["--max-memory", "1MB"], 5, ["even with", "--max-memory is 1 MB", "a larger --max-memory"]),
        (["--max-memory", "1MB", "--device", "offload"], 5, ["--max-memory is 1 MB", "a larger --max-memory"]),
        (["--max-memory", "1MB", "--quant", "fp32"], 5, ["--max-memory is 1 MB", "a larger --max-memory"]),
        (
            ["--device", "offload", "--quant", "nf4"],
            2,
            ["Layers in nf4 cannot be streamed to a CPU from disk", "int4 or bf16"],
        ),
        (["--device", "floppy"], 2, ["no device 'floppy'", "offload"]),
    ],
)
def test_bad_input_is_one_sentence_with_the_next_command(
    arguments: list[str],
    code: int,
    words: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr("localspec.cli.main.read_prompt", lambda prompt: prompt)
    monkeypatch.setattr(sys, "argv", ["localspec", "run", str(folder), "hi", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == code
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == []
    assert said.count("\n") == 1


def test_larger_than_memory_and_disk_is_one_sentence(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weight_cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(DoesNotFit, match="does not fit in memory, nor its packed weights on disk") as met:
        opened(folder, draft="off", quant="int8", device="offload")
    assert met.value.exit_code == 5
    assert "--quant bf16" in met.value.hint
    assert list(cache.iterdir()) == []
    ready, notices, _ = opened(folder, draft="off", device="offload")  # auto goes on without a copy
    assert ready.model.quant == "bf16"
    assert [notice.code for notice in notices] == ["offload", "memory", "offload", "memory", "offload"]


@pytest.mark.parametrize("written", ["fast", "2", "-1GB/s", "0GB/s", ""])
def test_a_rate_that_is_none_is_one_sentence(written: str):
    with pytest.raises(UsageError, match=f"^'{written}' is not a rate") as met:
        read_rate(written)
    assert "2GB/s" in met.value.hint


def test_a_rate_is_read():
    assert [read_rate(words) for words in ("2GB/s", "real")] == [Rate(2_000_000_000), Rate()]


def test_python_takes_a_limit_too(folder: Path):
    with pytest.raises(LocalspecError, match="is not a memory size"):
        localspec.load(str(folder), max_memory="lots")


# --- what it really takes

PEAK = """
import sys, threading, time
from pathlib import Path
import psutil, torch
from localspec.models.checkpoint import open_snapshot
from localspec.core.drain import drain
from localspec.core.weight_formats import find_format
from localspec.engine import linear
from localspec.engine.cpu import decoder, isa, program
from localspec.loading.plan import Plan
from localspec.loading.footprint import footprint
from localspec.loading import cpu as packing
from localspec.loading.kernels import load_decoder

program.load(isa.choose())
folder, quant, resident = sys.argv[1:]
quant, *unfused = quant.split()
if unfused:  # as on a CPU without AVX512-BF16
    linear.suits_the_cpu = lambda *_: False
snapshot, peak, me = open_snapshot(Path(folder)), [0], psutil.Process()
resident = None if resident == "all" else int(resident)

def watch():
    while True:
        peak[0] = max(peak[0], me.memory_info().rss)
        time.sleep(0.002)

before = me.memory_info().rss
threading.Thread(target=watch, daemon=True).start()
target = drain(load_decoder(snapshot, Plan(find_format(quant), 2048, resident=resident)))
prompt = torch.arange(1900) % 1000
for part in torch.split(prompt, 512):
    target.forward(part, last_only=True)
for _ in range(4):
    target.forward(torch.arange(17))
needs = footprint(snapshot, find_format(quant), 2048)
print(peak[0] - before, needs.whole if resident is None else needs.offloaded(resident))
target.close()
"""


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two gigabytes of float32: 520 MB in int8."""
    sizes = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 10, "num_attention_heads": 16}
    more = {"num_key_value_heads": 4, "vocab_size": 16000, "max_position_embeddings": 2048}
    return save_snapshot(tmp_path_factory.mktemp("big") / "big", gpt2_like(), **sizes, **more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quant", "resident"),
    [*product(("int8", "int4", "fp32", "bf16"), ("all", "2")), *product(("nf4", "fp4", "nf4 unfused"), ("all",))],
)
def test_the_plan_is_within_a_tenth_of_the_measured_peak(quant: str, resident: str, big: Path, tmp_path: Path):
    """C3, of a process that packs, loads, reads a long prompt and verifies; and of the next, which finds the copy."""
    shutil.copytree(paths.compiled_dir(), tmp_path / "engine")
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "LOCALSPEC_CACHE_DIR": str(tmp_path)}
    for _ in range(2 if find_format(quant.split(maxsplit=1)[0]).is_packed else 1):
        command = [sys.executable, "-c", PEAK, str(big), quant, resident]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        peak, planned = map(int, done.stdout.split())
        assert abs(planned - peak) <= 0.1 * peak


PEAK_OF_SEVERAL = """
import sys, threading, time
from pathlib import Path
import psutil
import localspec
from localspec.core.weight_formats import find_format
from localspec.loading.footprint import footprint
from localspec.models.checkpoint import open_snapshot

folder, quant, parallel = sys.argv[1], sys.argv[2], int(sys.argv[3])
text, peak, me = "the quick brown fox jumps over a lazy dog and " * 170, [0], psutil.Process()

def watch():
    while True:
        peak[0] = max(peak[0], me.memory_info().rss)
        time.sleep(0.002)

def write(parallel, length):
    with localspec.load(folder, quant=quant, ctx=2048, parallel=parallel, draft="lookup", k=16, threads=2) as llm:
        peak[0] = 0  # what loading takes beyond the plan for a moment is measured above
        llm.generate_many([f"{one} {text[:length]}" for one in range(parallel)], max_tokens=40, temperature=0)

write(1, 100)
before = me.memory_info().rss
threading.Thread(target=watch, daemon=True).start()
write(parallel, len(text))
plan = footprint(open_snapshot(Path(folder)), find_format(quant), 2048, parallel=parallel)
print(peak[0] - before, plan.whole)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("quant", "parallel"), [("int8", 4), ("int8", 8), ("int4", 8), ("fp32", 4)])
def test_several_answers_take_what_is_planned(quant: str, parallel: int, big: Path, tmp_path: Path):
    shutil.copytree(paths.compiled_dir(), tmp_path / "engine")
    environment = {**os.environ, "LOCALSPEC_CACHE_DIR": str(tmp_path), "LOCALSPEC_STATE_DIR": str(tmp_path / "state")}
    command = [sys.executable, "-c", PEAK_OF_SEVERAL, str(big), quant, str(parallel)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    peak, planned = map(int, done.stdout.split())
    assert 0.7 * planned <= peak <= planned


def test_decoders_of_both_kinds_are_what_is_tested(folder: Path, cache: Path):
    kinds = {quant: type(load_plan(folder, quant, 2)) for quant in ("int8", "bf16")}
    assert kinds == {"int8": PackedDecoder, "bf16": Decoder}
    assert len(list(cache.iterdir())) == 1
