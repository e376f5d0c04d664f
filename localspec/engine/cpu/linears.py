"""Linears of the compiled forward: blocks of weights times quantised rows, and the operation fused behind them.

A task is a run of blocks for all rows. Knows nothing about what the rows mean.
"""

from __future__ import annotations

import numpy as np

from localspec.engine.cpu import layout as at
from localspec.engine.cpu.barrier import barrier
from localspec.engine.cpu.formats import GROUP, RECORD4, RECORD8
from localspec.engine.cpu.lang import ISA, Vector, claim, compiled, exp16, inner, int_at, load16, look, splat16, store16
from localspec.engine.cpu.rows import quantise

F32 = np.float32
STEP = ISA.rows
LEAST_BYTES = 8192  # of weights claimed at once: with fewer, claiming takes too much of the time
SHARES = 2  # a thread claims 1 / SHARES of its part of the remaining blocks

int8, int4 = inner("int8", 10), inner("int4", 10)


@compiled
def record_bytes(linear: int) -> int:
    return RECORD8 if int_at(linear + at.BITS) == 8 else RECORD4


@compiled
def block_times_rows(linear: int, block: int, quantised: int, rows: int, out: int) -> None:
    """Computes [rows, 32] float32 of one block, with its bias, at `out`."""
    if block >= int_at(linear + at.BLOCKS):
        block, linear = block - int_at(linear + at.BLOCKS), linear + at.LINEAR_BYTES
    bits, groups = int_at(linear + at.BITS), int_at(linear + at.GROUPS)
    weight = int_at(linear + at.WEIGHT) + block * groups * record_bytes(linear)
    x, scales = int_at(quantised + at.Q_BYTES), int_at(quantised + at.Q_SCALES)
    corrections, row_groups = int_at(quantised + at.Q_CORRECTIONS), int_at(quantised + at.Q_GROUPS)
    x_stride, s_stride = row_groups * GROUP, row_groups * 4
    for row in range(0, rows, STEP):
        some, target = min(STEP, rows - row), out + row * 128
        x_row, scales_row, corrections_row = x + row * x_stride, scales + row * s_stride, corrections + row * s_stride
        # Bytes are read 6 to 8 % faster for two rows than for one; the extra row holds old values and is ignored.
        if bits == 8:
            int8(some + some % 2, weight, groups, x_row, scales_row, corrections_row, x_stride, s_stride, target, 128)
        else:
            int4(some, weight, groups, x_row, scales_row, corrections_row, x_stride, s_stride, target, 128)
    bias = int_at(linear + at.BIAS)
    if bias != 0:
        first, second = load16(bias + block * 128), load16(bias + block * 128 + 64)
        for row in range(rows):
            target = out + row * 128
            store16(target, load16(target) + first)
            store16(target + 64, load16(target + 64) + second)


@compiled
def run_length(left: int, threads: int, num_bytes: int) -> int:
    """The number of things of `num_bytes` to claim when `left` remain: a share of them (guided self-scheduling,
    Polychronopoulos and Kuck 1987). A core prefetches only while it reads on, so runs begin long; short ones at the
    end leave no thread waiting."""
    return max(1, LEAST_BYTES // num_bytes, left // (SHARES * threads))


@compiled
def claim_run(sync: int, linear: int, multiple: int) -> tuple[int, int]:
    """Claims a run of blocks for this thread: its first block and its end, a multiple of `multiple` blocks. Empty where
    none is left."""
    blocks = int_at(linear + at.BLOCKS) + int_at(linear + at.MORE)
    num_bytes = int_at(linear + at.GROUPS) * record_bytes(linear) * multiple
    left = (blocks - look(sync + at.NEXT)) // multiple
    some = multiple * run_length(left, int_at(sync + at.THREADS), num_bytes)
    first = claim(sync + at.NEXT, some)
    return first, min(blocks, first + some)


@compiled
def linear_phase(sync: int, linear: int, quantised: int, rows: int, out: int, stride: int, own: int) -> None:
    """Computes [rows, outputs] at `out`."""
    first, last = claim_run(sync, linear, 1)
    while first < last:
        for block in range(first, last):
            block_times_rows(linear, block, quantised, rows, own)
            for row in range(rows):
                target, new = out + row * stride + block * 128, own + row * 128
                store16(target, load16(new))
                store16(target + 64, load16(new + 64))
        first, last = claim_run(sync, linear, 1)
    barrier(sync)


@compiled
def added_phase(sync: int, linear: int, quantised: int, rows: int, x: int, stride: int, own: int) -> None:
    """Adds [rows, outputs] to the residual stream at `x`."""
    first, last = claim_run(sync, linear, 1)
    while first < last:
        for block in range(first, last):
            block_times_rows(linear, block, quantised, rows, own)
            for row in range(rows):
                target, new = x + row * stride + block * 128, own + row * 128
                store16(target, load16(target) + load16(new))
                store16(target + 64, load16(target + 64) + load16(new + 64))
        first, last = claim_run(sync, linear, 1)
    barrier(sync)


@compiled
def gated(pair: int) -> Vector:
    """silu(gate) · up of sixteen channels, whose gate and up are interleaved."""
    gate, up = load16(pair), load16(pair + 64)
    return gate / (splat16(F32(1)) + exp16(splat16(F32(0)) - gate)) * up


@compiled
def gate_phase(sync: int, linear: int, quantised: int, rows: int, gated_rows: int, own: int) -> None:
    """Computes the gated channels and quantises them: four blocks make one group."""
    first, last = claim_run(sync, linear, 4)
    while first < last:
        for four in range(first, last, 4):
            for i in range(4):
                block_times_rows(linear, four + i, quantised, rows, own + i * at.MAX_ROWS * 128)
            for row in range(rows):
                pair = own + row * 128
                step = at.MAX_ROWS * 128
                quantise(
                    gated_rows,
                    row,
                    four // 4,
                    gated(pair),
                    gated(pair + step),
                    gated(pair + 2 * step),
                    gated(pair + 3 * step),
                )
        first, last = claim_run(sync, linear, 4)
    barrier(sync)
