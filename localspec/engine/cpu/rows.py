"""Rows of the compiled forward: embeds, norms, and quantises them in groups for the linears. Knows no weights but
norms and the embedding. RMSNorm: arXiv 1910.07467.
"""

from __future__ import annotations

import math
from typing import Any  # Any: llvmlite is untyped

import numpy as np
from llvmlite import ir

from localspec.engine.cpu import emit
from localspec.engine.cpu import layout as at
from localspec.engine.cpu.barrier import barrier
from localspec.engine.cpu.formats import GROUP, LEVELS, OUTPUTS, RECORD4, RECORD8, SCALE_BYTES, SMALLEST
from localspec.engine.cpu.lang import (
    FLOAT,
    INT,
    Vector,
    byte_at,
    claim,
    compiled,
    float_at,
    fma16,
    greater16,
    greatest16,
    int_at,
    load16,
    put_float,
    put_int32,
    size16,
    splat16,
    store16,
    store_bytes16,
    total16,
    word,
    word_at,
)

F32 = np.float32


@compiled
def quantise(quantised: int, row: int, group: int, a: Vector, b: Vector, c: Vector, d: Vector) -> None:
    """Quantises 64 floats to bytes, with their scale and the correction for unsigned weights. NaN stays NaN; a group
    too small to have an inverse scale becomes zero."""
    groups = int_at(quantised + at.Q_GROUPS)
    index = row * groups + group
    top = greatest16(greater16(greater16(size16(a), size16(b)), greater16(size16(c), size16(d))))
    inverse = splat16(F32(127) / top if top > F32(SMALLEST) else F32(0))
    out = int_at(quantised + at.Q_BYTES) + index * GROUP
    total = store_bytes16(out, a * inverse) + store_bytes16(out + 16, b * inverse)
    total += store_bytes16(out + 32, c * inverse) + store_bytes16(out + 48, d * inverse)
    put_float(int_at(quantised + at.Q_SCALES) + index * 4, top / F32(127))
    put_int32(int_at(quantised + at.Q_CORRECTIONS) + index * 4, -128 * total)


@compiled
def quantise_row(quantised: int, row: int, x: int, groups: int) -> None:
    for group in range(groups):
        source = x + group * 256
        quantise(quantised, row, group, load16(source), load16(source + 64), load16(source + 128), load16(source + 192))


@compiled
def inverse_rms(x: int, vectors: int, inverse_size: float, epsilon: float) -> F32:
    """One over the root of the mean square."""
    total = splat16(F32(0))
    for i in range(vectors):
        value = load16(x + 64 * i)
        total = fma16(value, value, total)
    return F32(1) / F32(math.sqrt(total16(total) * inverse_size + epsilon))


@compiled
def norm_row(model: int, quantised: int, row: int, x: int, weight: int) -> None:
    hidden, constants = int_at(model + at.HIDDEN), int_at(model + at.CONSTANTS)
    scale = splat16(inverse_rms(x, hidden // 16, float_at(constants + 4), float_at(constants)))
    for group in range(hidden // GROUP):
        source, factor = x + group * 256, weight + group * 256
        a, b = load16(source) * scale * load16(factor), load16(source + 64) * scale * load16(factor + 64)
        c, d = load16(source + 128) * scale * load16(factor + 128), load16(source + 192) * scale * load16(factor + 192)
        quantise(quantised, row, group, a, b, c, d)


@compiled
def norm_phase(sync: int, model: int, weight: int, x: int, rows: int) -> None:
    hidden = int_at(model + at.HIDDEN)
    row = claim(sync + at.NEXT, 1)
    while row < rows:
        norm_row(model, model + at.NARROW, row, x + row * hidden * 4, weight)
        row = claim(sync + at.NEXT, 1)
    barrier(sync)


@compiled
def read_phase(sync: int, model: int, weight: int, x: int, read: int, rows: int) -> None:
    """Norms the rows of a list, in its order."""
    hidden = int_at(model + at.HIDDEN)
    row = claim(sync + at.NEXT, 1)
    while row < rows:
        norm_row(model, model + at.NARROW, row, x + int_at(read + row * 8) * hidden * 4, weight)
        row = claim(sync + at.NEXT, 1)
    barrier(sync)


@compiled
def embed_row(model: int, token: int, x: int) -> None:
    """Dequantises one token's row of the embedding to float32."""
    linear = model + at.EMBEDDING
    groups, output, is_wide = int_at(linear + at.GROUPS), token % OUTPUTS, int_at(linear + at.BITS) == 8
    record_bytes = RECORD8 if is_wide else RECORD4
    record = int_at(linear + at.WEIGHT) + token // OUTPUTS * groups * record_bytes
    first = SCALE_BYTES + output // 16 * 64 + output % 16 * 4
    for group in range(groups):
        scale = word_at(record + 2 * output)
        for i in range(GROUP):
            if is_wide:
                level = F32(byte_at(record + first + i // 4 * 128 + i % 4) - 128)
            else:
                level = level_of(byte_at(record + first + i // 8 * 128 + i % 4) >> (i % 8 // 4 * 4))
            put_float(x + (group * GROUP + i) * 4, level * scale)
        record += record_bytes


@word(FLOAT, INT)
def level_of(b: Any, code: Any) -> Any:
    """The level of the lower nibble."""
    nibble = b.trunc(b.and_(code, emit.int64(15)), emit.I32)
    return b.extract_element(ir.Constant(emit.FLOATS, LEVELS), nibble)


@compiled
def copy_row(source: int, target: int, vectors: int) -> None:
    for i in range(vectors):
        store16(target + 64 * i, load16(source + 64 * i))


@compiled
def start_phase(sync: int, job: int, model: int, x: int) -> None:
    """Copies the given states to the first rows of the residual stream, and embeds the other rows."""
    hidden, rows, done = int_at(model + at.HIDDEN), int_at(job + at.ROWS), int_at(job + at.DONE)
    row = claim(sync + at.NEXT, 1)
    while row < rows:
        target = x + row * hidden * 4
        if row < done:
            copy_row(int_at(job + at.STATES) + row * hidden * 4, target, hidden // 16)
        else:
            embed_row(model, int_at(int_at(job + at.IDS) + row * 8), target)
        row = claim(sync + at.NEXT, 1)
    barrier(sync)
