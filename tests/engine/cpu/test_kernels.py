"""The inner loops by themselves: integer sums are exact at every extreme, floats are torch's.

Scales are powers of two and sums stay below 2^24, so that every float32 on the way is exact and equality is meant.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import llvmlite.binding as llvm
import pytest
import torch
from llvmlite import ir
from torch import Tensor

from localspec.engine.cpu import build, emit, kernels
from localspec.engine.cpu.formats import GROUP, OUTPUTS, RECORD_BYTES, SCALE_BYTES, PackedFormat
from localspec.engine.cpu.isa import KINDS as ALL_ISAS
from localspec.engine.cpu.isa import Isa, on_x86
from localspec.engine.cpu.pack import pack, unpack
from tests.support.packed_models import ISAS, KINDS

pytestmark = pytest.mark.heavy

Kernel = Callable[..., None]
ENGINES: list[llvm.ExecutionEngine] = []  # a kernel lives as long as the engine that holds it
every_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
every_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def functions(isa: Isa) -> dict[str, Kernel]:
    """The library of a kind of processor, callable one by one."""
    return callable_here(isa, kernels.library(isa))


def callable_here(isa: Isa, library: ir.Module) -> dict[str, Kernel]:
    """Compiled as the engine is."""
    target, module = build.machine(isa), llvm.parse_assembly(str(library))
    shapes = {made.name: len(list(made.arguments)) for made in module.functions if not made.is_declaration}
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), build.machine(isa))
    engine.add_object_file(llvm.ObjectFileRef.from_data(build.optimised(module, target)))
    engine.finalize_object()
    ENGINES.append(engine)
    return {
        name: ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * count)(engine.get_function_address(name))
        for name, count in shapes.items()
    }


class Rows(NamedTuple):
    """Quantised rows: bytes [rows, inputs], scales [rows, groups]."""

    codes: Tensor
    scales: Tensor

    @property
    def corrections(self) -> Tensor:
        return -128 * self.codes.view(*self.scales.shape, GROUP).int().sum(-1, dtype=torch.int32)


def multiply(isa: Isa, kind: PackedFormat, block: Tensor, rows: Rows) -> Tensor:
    """[rows, 32] by the kernel. Rows and results lie apart, so a wrong stride is seen; what is between is kept."""
    count, groups = rows.scales.shape
    apart = [torch.cat((part, part + 1), dim=1).contiguous() for part in (*rows, rows.corrections)]
    out = torch.full((count, 2 * OUTPUTS), -7.0)
    strides = apart[0].stride(0), 4 * apart[1].stride(0)
    pointers = [part.data_ptr() for part in apart]
    functions(isa)[kind](count, block.data_ptr(), groups, *pointers, *strides, out.data_ptr(), 8 * OUTPUTS)
    assert (out[:, OUTPUTS:] == -7).all(), "written past its own outputs"
    return out[:, :OUTPUTS]


def exact(kind: PackedFormat, block: Tensor, rows: Rows) -> Tensor:
    """The same in whole numbers: every scale is a power of two, at least 1."""
    count, groups = rows.scales.shape
    scales = block[:, :SCALE_BYTES].contiguous().view(torch.bfloat16).long()  # [groups, 32]
    levels = unpack(block[None], kind).view(OUTPUTS, groups, GROUP) / scales.t()[..., None]
    sums = torch.einsum("ogi,rgi->rog", levels.long(), rows.codes.view(count, groups, GROUP).long())
    return (sums * scales.t() * rows.scales.long()[:, None]).sum(-1)


def block_of(codes: Tensor, scales: Tensor) -> Tensor:
    """codes [groups, bytes] and scales [groups, 32] as a block of records."""
    return torch.cat((scales.bfloat16().view(torch.uint8).view(len(scales), SCALE_BYTES), codes), dim=1).contiguous()


def code_bytes(kind: PackedFormat) -> int:
    return RECORD_BYTES[kind] - SCALE_BYTES


# What weights are made of, by format; int8 knows no byte 0, and 4 bits any.
EXTREMES: dict[PackedFormat, tuple[int, ...]] = {"int8": (1, 255), "int4": (0x00, 0xFF, 0x0F, 0xF0)}
MIDDLE: dict[PackedFormat, int] = {"int8": 128, "int4": 0x77}


def weights_like(kind: PackedFormat, what: str, groups: int, draw: torch.Generator) -> Tensor:
    shape = (groups, code_bytes(kind))
    low, high = EXTREMES[kind][:2]
    if what == "random":
        return torch.randint(low, high + 1, shape, generator=draw, dtype=torch.uint8)
    if what == "extremes":
        ends = torch.tensor(EXTREMES[kind], dtype=torch.uint8)
        return ends[torch.randint(len(ends), shape, generator=draw)]
    return torch.full(shape, {"lowest": low, "highest": high, "middle": MIDDLE[kind]}[what], dtype=torch.uint8)


def rows_like(what: str, count: int, groups: int, draw: torch.Generator) -> Tensor:
    shape = (count, groups * GROUP)
    if what == "random":
        return torch.randint(-127, 128, shape, generator=draw, dtype=torch.int8)
    if what == "extremes":
        return (torch.randint(2, shape, generator=draw) * 254 - 127).to(torch.int8)
    return torch.full(shape, {"lowest": -127, "highest": 127, "zero": 0}[what], dtype=torch.int8)


WEIGHTS = ("random", "extremes", "lowest", "highest", "middle")
ACTIVATIONS = ("random", "extremes", "lowest", "highest", "zero")


def powers(shape: tuple[int, int], most: int, draw: torch.Generator) -> Tensor:
    return 2.0 ** torch.randint(0, most + 1, shape, generator=draw)


def signs(shape: tuple[int, int], draw: torch.Generator) -> Tensor:
    """A weight's scale may be negative."""
    return 1.0 - 2.0 * torch.randint(2, shape, generator=draw)


GROUPS_AND_SCALES = ((1, 1), (3, 1), (5, 0), (16, 0))


@pytest.mark.parametrize("each", [len(GROUPS_AND_SCALES), pytest.param(1, marks=pytest.mark.slow)])
@every_kind
@every_isa
def test_integer_sums_are_exact_for_every_row_count_at_every_extreme(isa: Isa, kind: PackedFormat, each: int) -> None:
    """Any scale up to 2 where there are few groups; 1 where sixteen greatest sums come within a hair of 2^24. The small
    figure takes one count of groups with each count of rows, in turn; a single row and the most meet them all."""
    draw = torch.Generator().manual_seed(1)
    for count in range(1, isa.rows + 1):
        few = GROUPS_AND_SCALES[count % each :: each]
        for groups, most in GROUPS_AND_SCALES if count in (1, isa.rows) else few:
            for heavy in WEIGHTS:
                shape = (groups, OUTPUTS)
                scales = powers(shape, most, draw) * signs(shape, draw) if groups < 16 else torch.ones(shape)
                block = block_of(weights_like(kind, heavy, groups, draw), scales)
                for active in ACTIVATIONS:
                    rows = Rows(rows_like(active, count, groups, draw), powers((count, groups), most, draw))
                    got = multiply(isa, kind, block, rows)
                    assert torch.equal(got.long(), exact(kind, block, rows)), (count, groups, heavy, active)


@every_kind
@every_isa
def test_every_weight_and_every_input_has_its_own_place(isa: Isa, kind: PackedFormat) -> None:
    """One weight that is not 0 among 32 x 128 that are, as `pack` lays it out: it meets its own input in its own
    output, and nothing else."""
    draw = torch.Generator().manual_seed(2)
    rows = Rows(rows_like("random", 1, 2, draw), torch.ones(1, 2))
    for place in torch.randperm(OUTPUTS * 2 * GROUP, generator=draw)[:40].tolist():
        output, of = divmod(place, 2 * GROUP)
        weight = torch.zeros(OUTPUTS, 2 * GROUP)
        weight[output, of] = 127.0
        block = pack(weight, kind)[0]
        block[:, :SCALE_BYTES] = torch.ones(2, OUTPUTS).bfloat16().view(torch.uint8)  # all scales 1: zeros show too
        levels = unpack(block[None], kind)
        expected = levels @ rows.codes[0].float()
        assert torch.equal(multiply(isa, kind, block, rows)[0], expected)
        assert levels[output, of] == levels.max()
        assert (levels == levels.max()).sum() == 1


@every_kind
@every_isa
def test_a_row_is_the_same_bits_alone_and_among_others(isa: Isa, kind: PackedFormat) -> None:
    """With scales that are anything, so that each rounding counts."""
    draw = torch.Generator().manual_seed(3)
    block = block_of(weights_like(kind, "random", 9, draw), torch.rand(9, OUTPUTS, generator=draw))
    rows = Rows(rows_like("random", isa.rows, 9, draw), torch.rand(isa.rows, 9, generator=draw))
    together = [multiply(isa, kind, block, Rows(rows[0][:count], rows[1][:count])) for count in range(1, isa.rows + 1)]
    for row in range(isa.rows):
        alone = multiply(isa, kind, block, Rows(rows.codes[row : row + 1], rows.scales[row : row + 1]))[0]
        assert all(torch.equal(found[row], alone) for found in together[row:])


@every_kind
def test_all_kinds_of_processor_agree(kind: PackedFormat) -> None:
    """Within the roundings of 9 groups: the integers are the same, and only a fused multiply-add rounds once less."""
    draw = torch.Generator().manual_seed(4)
    block = block_of(weights_like(kind, "random", 9, draw), torch.rand(9, OUTPUTS, generator=draw))
    rows = Rows(rows_like("random", 1, 9, draw), torch.rand(1, 9, generator=draw))
    found = [multiply(isa, kind, block, rows) for isa in ISAS]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-6 * float(found[0].abs().max()))


# --- attention's two


def close(got: Tensor, expected: Tensor) -> None:
    """float32 sums of some hundred terms."""
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=2e-6 * max(float(expected.abs().max()), 1e-30))


@pytest.mark.parametrize("size", [16, 32, 80, 128])
@every_isa
def test_scores_are_queries_times_keys(isa: Isa, size: int) -> None:
    draw = torch.Generator().manual_seed(5)
    keys = torch.randn(2, size, 16, generator=draw).half()
    for count in range(1, kernels.MOST_QUERIES + 1):
        queries = torch.randn(count, size + 16, generator=draw)
        out = torch.full((count, 48), -7.0)
        strides = 4 * queries.stride(0), 4 * out.stride(0)
        pointers = keys.data_ptr(), queries.data_ptr(), out.data_ptr()
        functions(isa)["scores"](count, *pointers[:2], strides[0], size, pointers[2], strides[1])
        expected = torch.einsum("qc,bcp->qbp", queries[:, :size].double(), keys.double())
        close(out[:, :32], expected.flatten(1))
        assert (out[:, 32:] == -7).all()


@pytest.mark.parametrize("width", kernels.MIX_WIDTHS)
@every_isa
def test_values_are_added_by_their_weights(isa: Isa, width: int) -> None:
    draw = torch.Generator().manual_seed(6)
    for positions in (1, 16, 128):
        values = torch.randn(positions, 16 * width + 16, generator=draw).half()
        for count in range(1, kernels.MOST_QUERIES + 1):
            chances = torch.rand(count, positions + 8, generator=draw)
            before = torch.randn(count, 16 * width + 16, generator=draw)
            out = before.clone()
            pointers = (values.data_ptr(), 2 * values.stride(0), chances.data_ptr(), 4 * chances.stride(0))
            functions(isa)[f"mix_{width}"](count, *pointers, positions, out.data_ptr(), 4 * out.stride(0))
            added = chances[:, :positions].double() @ values.double()
            close(out[:, : 16 * width], (before.double() + added)[:, : 16 * width])
            assert torch.equal(out[:, 16 * width :], before[:, 16 * width :])


@every_isa
def test_a_query_is_the_same_bits_alone_and_among_others(isa: Isa) -> None:
    draw = torch.Generator().manual_seed(7)
    keys = torch.randn(2, 64, 16, generator=draw).half()
    queries = torch.randn(kernels.MOST_QUERIES, 64, generator=draw)

    def scores(some: Tensor) -> Tensor:
        out = torch.empty(len(some), 32)
        functions(isa)["scores"](len(some), keys.data_ptr(), some.data_ptr(), 256, 64, out.data_ptr(), 128)
        return out

    whole = scores(queries)
    for query in range(kernels.MOST_QUERIES):
        assert torch.equal(scores(queries[query : query + 1])[0], whole[query])
        assert torch.equal(scores(queries[: query + 1]), whole[: query + 1])


# --- softmax's and the gate's one


def exponentials(isa: Isa, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """e to the x [multiple of 16], by the word that attention and the gate are written with."""
    from localspec.engine.cpu import lang  # it imports numba

    monkeypatch.setattr(lang, "ISA", isa)
    module = ir.Module("exponential")
    b, (source, out) = kernels.begin(module, "exponential", 2)
    _, emitted = lang.exp16._defn(None, lang.FLOATS16)
    emit.store(b, emitted(None, b, None, [emit.load(b, source, emit.FLOATS)]), out)
    b.ret_void()
    exponential, found = callable_here(isa, module)["exponential"], torch.empty_like(x)
    for first in range(0, 4 * len(x), 64):
        exponential(x.data_ptr() + first, found.data_ptr() + first)
    return found


@every_isa
def test_the_exponential_is_float64s_within_two_in_ten_million(isa: Isa, monkeypatch: pytest.MonkeyPatch) -> None:
    """From -87 to 88; less is exactly 0, more is e^88, and NaN stays."""
    borders = torch.tensor([-90.0, -87.0, 0.0, 88.0, 90.0])
    ends = [torch.nextafter(borders, torch.tensor(float(way))) for way in (-100, 100)]
    x = torch.cat((torch.linspace(-90, 90, 1 << 16), torch.linspace(-1, 1, 1 << 12), borders, *ends, torch.zeros(1)))
    got, exact = exponentials(isa, x, monkeypatch), x.double().clamp(max=88).exp()
    low = x < -87
    assert (got[low] == 0).all()
    assert ((got - exact).abs() / exact)[~low].max() <= 2e-7
    assert exponentials(isa, torch.full((16,), float("nan")), monkeypatch).isnan().all()
    assert torch.equal(exponentials(isa, torch.zeros(16), monkeypatch), torch.ones(16))


# --- kinds of processor that this machine is not


def compiled_for(isa: Isa, triple: str) -> tuple[bytes, str]:
    """The library as an object, and in the words of another processor; skipped where this LLVM does not know it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as fault:
        pytest.skip(f"This LLVM cannot make code for {triple}: {fault}")
    machine = target.create_target_machine(cpu=isa.cpu, features=isa.features, opt=3, reloc="pic")
    module = llvm.parse_assembly(str(kernels.library(isa)))
    module.triple = triple
    return build.optimised(module, machine), str(machine.emit_assembly(module))


@pytest.mark.parametrize("rows", [1, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "triple", "words"),
    [("neon", "aarch64-linux-gnu", ("sdot", "tbl", "fmla")), ("avx-vnni", "x86_64-linux-gnu", ("vpdpbusd", "vpshufb"))],
)
def test_a_kind_that_may_not_run_here_compiles_to_its_own_instructions(
    name: str, triple: str, words: tuple[str, ...], rows: int | None
) -> None:
    isa = next(isa for isa in ALL_ISAS if isa.name == name)
    code, found = compiled_for(replace(isa, rows=rows or isa.rows), triple)
    assert code.startswith(b"\x7fELF")
    assert [word for word in words if word not in found] == []
    assert "zmm" not in found
    assert "llvm." not in found  # an instruction that LLVM does not know is a call of a function that nobody has


@pytest.mark.slow
@pytest.mark.skipif(not on_x86(), reason="compiled for itself by every other test")
def test_the_whole_engine_compiles_for_neon() -> None:
    """Whether it also runs there, only such a processor can say."""
    try:
        llvm.initialize_all_targets()
        llvm.Target.from_triple("aarch64-linux-gnu")
    except RuntimeError as fault:
        pytest.skip(f"This LLVM cannot make code for aarch64: {fault}")
    command = [sys.executable, "-m", "tests.engine.cpu.for_neon"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == 0, done.stderr[-2000:]
    said = [line.split() for line in done.stdout.splitlines() if line.startswith("count ")]
    counts = {word: int(count) for _, word, count in said}
    assert counts.pop("llvm.") == 0
    assert min(counts.values()) > 0, counts
