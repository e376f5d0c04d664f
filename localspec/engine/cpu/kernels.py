"""The inner loops as LLVM IR: weights × rows, queries × keys, probabilities × values. Addresses in, sums out.

Each row has its own sums, added up in one order, so its results do not depend on the number of rows: batch-invariant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from localspec.engine.cpu import emit
from localspec.engine.cpu.emit import (
    BYTES,
    F32,
    FLOATS,
    I32,
    LANES,
    WORDS,
    Builder,
    Value,
    at,
    int64,
    load,
    splat,
    store,
)
from localspec.engine.cpu.formats import CODES, GROUP, RECORD_BYTES, SCALE_BYTES, PackedFormat
from localspec.engine.cpu.isa import Isa

QUADS = GROUP // 4
BYTE = 64  # bytes of a vector, and of a cache line
# Rows from which a core computes so long that its own prefetching does not reach far enough. Measured on Zen 4.
FETCHED_ROWS: dict[PackedFormat, int] = {"int8": 7, "int4": 3}
AHEAD = 8  # records, about two pages: measured best of 2, 4, 8, 16 and 32


@dataclass(frozen=True, slots=True)
class QuantisedRows:
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


def linear(b: Builder, isa: Isa, weight_format: PackedFormat, count: int, arguments: list[Value]) -> None:
    """Stores [count, 32] float32: one block of 32 outputs for `count` rows.

    arguments: block, groups, then the fields of QuantisedRows, then where to store and the stride there; all int64.
    """
    block, groups = arguments[:2]
    rows, out, out_stride = QuantisedRows(*arguments[2:7]), arguments[7], arguments[8]

    def body(group: Value, carried: list[Value]) -> list[Value]:
        record = at(b, block, b.mul(group, int64(RECORD_BYTES[weight_format])))
        sums = products(b, isa, weight_format, record, rows, group, count)
        scales = [emit.widen(b, load(b, at(b, record, 32 * half), WORDS)) for half in (0, 1)]
        added = []
        for row in range(count):
            scale = splat(b, load(b, rows.of_group(b, rows.scales, row, group), F32), FLOATS)
            for half in (0, 1):
                whole = b.sitofp(sums[2 * row + half], FLOATS)
                added.append(emit.fma(b, isa, b.fmul(whole, scales[half]), scale, carried[2 * row + half]))
        return added

    totals = emit.counted(b, groups, [emit.every(FLOATS, 0)] * (2 * count), body)
    for index, total in enumerate(totals):
        row, half = divmod(index, 2)
        store(b, total, at(b, at(b, out, b.mul(out_stride, int64(row))), 64 * half))


def products(
    b: Builder, isa: Isa, weight_format: PackedFormat, record: Value, rows: QuantisedRows, group: Value, count: int
) -> list[Value]:
    """The integer sums of one group, [2 * count] vectors."""
    sums = []
    for row in range(count):
        start = emit.begin(b, isa, rows.of_group(b, rows.corrections, row, group))
        sums += [start, start]
    inputs = b.mul(group, int64(GROUP))
    for quad, halves in weights(b, isa, weight_format, record):
        if count >= FETCHED_ROWS[weight_format]:
            lines = RECORD_BYTES[weight_format] // BYTE
            for line in range(quad * lines // QUADS, (quad + 1) * lines // QUADS):
                emit.fetch(b, at(b, record, AHEAD * RECORD_BYTES[weight_format] + BYTE * line))
        ready = [emit.prepared(b, isa, half) for half in halves]
        for row in range(count):
            four = rows.four(b, row, at(b, inputs, 4 * quad))
            for half in (0, 1):
                sums[2 * row + half] = emit.dot(b, isa, sums[2 * row + half], ready[half], four)
    return sums


def weights(b: Builder, isa: Isa, weight_format: PackedFormat, record: Value) -> list[tuple[int, list[Value]]]:
    """A record's bytes w + 128 by fours of inputs: (quad, [first sixteen outputs, second])."""
    start = at(b, record, SCALE_BYTES)
    if weight_format == "int8":
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
    """Stores [count, 32] float32: `count` queries against two blocks of sixteen positions, keys [head_dim, 16] each.

    arguments: keys (float16), queries (float32) and their stride, head_dim, where to store and the stride there.
    """
    keys, queries, stride, size, out, out_stride = arguments
    block = b.mul(size, int64(2 * LANES))

    def body(channel: Value, carried: list[Value]) -> list[Value]:
        first = at(b, keys, b.mul(channel, int64(2 * LANES)))
        key = [emit.widen_half(b, isa, load(b, address, WORDS)) for address in (first, at(b, first, block))]
        start = at(b, queries, b.mul(channel, int64(4)))
        query = [splat(b, load(b, at(b, start, b.mul(stride, int64(n))), F32), FLOATS) for n in range(count)]
        return [emit.fma(b, isa, key[i % 2], query[i // 2], total) for i, total in enumerate(carried)]

    totals = emit.counted(b, size, [emit.every(FLOATS, 0)] * (2 * count), body)
    for i, total in enumerate(totals):
        store(b, total, at(b, at(b, out, b.mul(out_stride, int64(i // 2))), 64 * (i % 2)))


def mix(b: Builder, isa: Isa, count: int, width: int, arguments: list[Value]) -> None:
    """Adds to [count, 16 * width] float32: `count` rows of probabilities times values, position after position.

    arguments: values (float16) and the stride of a position, probabilities (float32) and their stride, how many
    positions, where to add and the stride there.
    """
    values, value_stride, chances, stride, positions, out, out_stride = arguments
    addresses = [at(b, at(b, out, b.mul(out_stride, int64(n))), 64 * i) for n in range(count) for i in range(width)]

    def body(position: Value, carried: list[Value]) -> list[Value]:
        start = at(b, values, b.mul(position, value_stride))
        value = [emit.widen_half(b, isa, load(b, at(b, start, 2 * LANES * i), WORDS)) for i in range(width)]
        weight = at(b, chances, b.mul(position, int64(4)))
        chance = [splat(b, load(b, at(b, weight, b.mul(stride, int64(n))), F32), FLOATS) for n in range(count)]
        return [emit.fma(b, isa, chance[i // width], value[i % width], total) for i, total in enumerate(carried)]

    totals = emit.counted(b, positions, [load(b, address, FLOATS) for address in addresses], body)
    for address, total in zip(addresses, totals, strict=True):
        store(b, total, address)


MOST_QUERIES = 4  # of one call of `scores` or `mix`
MIX_WIDTHS = (1, 4)


def library(isa: Isa) -> ir.Module:
    """A module with all kernels as functions of int64 arguments: `int8`, `int4`, `scores`, `mix_1` and `mix_4`.

    The first argument is the number of rows, 1..isa.rows, or of queries, 1..MOST_QUERIES."""
    module = ir.Module("kernels")
    counts, queries = range(1, isa.rows + 1), range(1, MOST_QUERIES + 1)
    family(module, "int8", 9, {n: partial(linear, isa=isa, weight_format="int8", count=n) for n in counts})
    family(module, "int4", 9, {n: partial(linear, isa=isa, weight_format="int4", count=n) for n in counts})
    family(module, "scores", 6, {n: partial(scores, isa=isa, count=n) for n in queries})
    for width in MIX_WIDTHS:
        family(module, f"mix_{width}", 7, {n: partial(mix, isa=isa, count=n, width=width) for n in queries})
    return module


def family(module: ir.Module, name: str, parameters: int, emitters: dict[int, Callable[..., None]]) -> None:
    """Adds the functions `name`_count, and `name`(count, …), which calls one of them."""
    chooser, (count, *arguments) = begin(module, name, parameters + 1)
    switch = chooser.switch(count, none := chooser.append_basic_block("none"))
    for number, emitter in emitters.items():
        b, own = begin(module, f"{name}_{number}", parameters)
        emitter(b, arguments=own)
        b.ret_void()
        switch.add_case(int64(number), block := chooser.append_basic_block())
        chooser.position_at_end(block)
        chooser.call(b.function, arguments)
        chooser.ret_void()
    chooser.position_at_end(none)
    chooser.ret_void()


def begin(module: ir.Module, name: str, parameters: int) -> tuple[Builder, list[Value]]:
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), [emit.I64] * parameters), name)
    return ir.IRBuilder(made.append_basic_block()), list(made.args)
