"""The four inner loops, as instructions: weights × rows, queries × keys, probabilities × values. Addresses in, sums out.

Each row has its own sums, added up in one order, so a row's numbers do not depend on how many rows came along.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from localspec.engine.cpu import emit
from localspec.engine.cpu.emit import BYTES, F32, FLOATS, I32, INTS, LANES, WORDS, Builder, Value, at, int64, load, splat, store
from localspec.engine.cpu.formats import CODES, GROUP, RECORD_BYTES, SCALE_BYTES, Format
from localspec.engine.cpu.isa import Isa

QUADS = GROUP // 4
BYTE = 64  # bytes of a vector


@dataclass(frozen=True, slots=True)
class Rows:
    """Addresses of quantised rows: bytes [rows, inputs], scales and corrections [rows, groups], and both strides."""

    bytes_: Value
    scales: Value
    corrections: Value
    bytes_stride: Value
    groups_stride: Value

    def four(self, b: Builder, row: int, offset: Value) -> Value:
        return load(b, at(b, at(b, self.bytes_, b.mul(self.bytes_stride, int64(row))), offset), I32)

    def of_group(self, b: Builder, which: Value, row: int, group: Value) -> Value:
        return at(b, at(b, which, b.mul(self.groups_stride, int64(row))), b.mul(group, int64(4)))


def linear(b: Builder, isa: Isa, kind: Format, count: int, arguments: list[Value]) -> None:
    """Stores [count, 32] float32: one block of 32 outputs for `count` rows.

    arguments: block, groups, then the fields of Rows, then where to store and the stride there; all int64.
    """
    block, groups = arguments[:2]
    rows, out, out_stride = Rows(*arguments[2:7]), arguments[7], arguments[8]

    def body(group: Value, carried: list[Value]) -> list[Value]:
        record = at(b, block, b.mul(group, int64(RECORD_BYTES[kind])))
        sums = products(b, isa, kind, record, rows, group, count)
        scales = [emit.widen(b, load(b, at(b, record, 32 * half), WORDS)) for half in (0, 1)]
        added = []
        for row in range(count):
            scale = splat(b, load(b, rows.of_group(b, rows.scales, row, group), F32), FLOATS)
            for half in (0, 1):
                whole = b.sitofp(sums[2 * row + half], FLOATS)
                added.append(emit.fma(b, isa, b.fmul(whole, scales[half]), scale, carried[2 * row + half]))
        return added

    totals = emit.counted(b, groups, [emit.every(FLOATS, 0)] * (2 * count), body)
    for place, total in enumerate(totals):
        row, half = divmod(place, 2)
        store(b, total, at(b, at(b, out, b.mul(out_stride, int64(row))), 64 * half))


def products(b: Builder, isa: Isa, kind: Format, record: Value, rows: Rows, group: Value, count: int) -> list[Value]:
    """One group's integer sums, [2 * count] vectors."""
    sums = []
    for row in range(count):
        start = emit.begin(b, isa, rows.of_group(b, rows.corrections, row, group))
        sums += [start, start]
    inputs = b.mul(group, int64(GROUP))
    for quad, halves in weights(b, isa, kind, record):
        ready = [emit.prepared(b, isa, half) for half in halves]
        for row in range(count):
            four = rows.four(b, row, at(b, inputs, 4 * quad))
            for half in (0, 1):
                sums[2 * row + half] = emit.dot(b, isa, sums[2 * row + half], ready[half], four)
    return sums


def weights(b: Builder, isa: Isa, kind: Format, record: Value) -> list[tuple[int, list[Value]]]:
    """A record's bytes w + 128 by fours of inputs: (quad, [first sixteen outputs, second])."""
    start = at(b, record, SCALE_BYTES)
    if kind == "int8":
        return [
            (quad, [load(b, at(b, start, BYTE * (2 * quad + half)), BYTES) for half in (0, 1)]) for quad in range(QUADS)
        ]
    found = []
    for pair in range(QUADS // 2):
        packed = [load(b, at(b, start, BYTE * (2 * pair + half)), BYTES) for half in (0, 1)]
        low = [b.and_(byte, emit.every(BYTES, 15)) for byte in packed]
        high = [b.lshr(byte, emit.every(BYTES, 4)) for byte in packed]
        found += [(2 * pair, [emit.look_up(b, isa, CODES, n) for n in low])]
        found += [(2 * pair + 1, [emit.look_up(b, isa, CODES, n) for n in high])]
    return found


def scores(b: Builder, isa: Isa, count: int, arguments: list[Value]) -> None:
    """Stores [count, 16] float32: `count` queries against sixteen positions, whose keys lie as [head_dim, 16].

    arguments: keys (bfloat16), queries (float32) and their stride, head_dim, where to store and the stride there.
    """
    keys, queries, stride, size, out, out_stride = arguments

    def body(channel: Value, carried: list[Value]) -> list[Value]:
        key = emit.widen(b, load(b, at(b, keys, b.mul(channel, int64(2 * LANES))), WORDS))
        place = at(b, queries, b.mul(channel, int64(4)))
        return [
            emit.fma(b, isa, key, splat(b, load(b, at(b, place, b.mul(stride, int64(n))), F32), FLOATS), total)
            for n, total in enumerate(carried)
        ]

    totals = emit.counted(b, size, [emit.every(FLOATS, 0)] * count, body)
    for n, total in enumerate(totals):
        store(b, total, at(b, out, b.mul(out_stride, int64(n))))


def mix(b: Builder, isa: Isa, count: int, width: int, arguments: list[Value]) -> None:
    """Adds to [count, 16 * width] float32: `count` rows of probabilities times values, position after position.

    arguments: values (bfloat16) and the stride of a position, probabilities (float32) and their stride, how many
    positions, where to add and the stride there.
    """
    values, value_stride, chances, stride, positions, out, out_stride = arguments
    places = [(n, at(b, at(b, out, b.mul(out_stride, int64(n))), 64 * i)) for n in range(count) for i in range(width)]

    def body(position: Value, carried: list[Value]) -> list[Value]:
        start = at(b, values, b.mul(position, value_stride))
        value = [emit.widen(b, load(b, at(b, start, 2 * LANES * i), WORDS)) for i in range(width)]
        place = at(b, chances, b.mul(position, int64(4)))
        chance = [splat(b, load(b, at(b, place, b.mul(stride, int64(n))), F32), FLOATS) for n in range(count)]
        return [emit.fma(b, isa, chance[n], value[i % width], total) for i, ((n, _), total) in enumerate(zip(places, carried, strict=True))]

    totals = emit.counted(b, positions, [load(b, place, FLOATS) for _, place in places], body)
    for (_, place), total in zip(places, totals, strict=True):
        store(b, total, place)


def library(isa: Isa) -> ir.Module:
    """All of them as functions of int64 arguments: int8_N and int4_N, scores_N, mix_N_WIDTH."""
    module = ir.Module("kernels")
    for count in range(1, isa.rows + 1):
        for kind in ("int8", "int4"):
            b, arguments = begin_function(module, f"{kind}_{count}", 9)
            linear(b, isa, kind, count, arguments)
            b.ret_void()
    for count in (1, 4):
        b, arguments = begin_function(module, f"scores_{count}", 6)
        scores(b, isa, count, arguments)
        b.ret_void()
        for width in (1, 4):
            b, arguments = begin_function(module, f"mix_{count}_{width}", 7)
            mix(b, isa, count, width, arguments)
            b.ret_void()
    return module


def begin_function(module: ir.Module, name: str, count: int) -> tuple[Builder, list[Value]]:
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), [emit.I64] * count), name)
    return ir.IRBuilder(made.append_basic_block()), list(made.args)
