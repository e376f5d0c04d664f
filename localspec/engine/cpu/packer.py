"""The compiled packer: the steps of pack.py's `quantise8` and `quantise4` in the same order, so the bytes are equal.

Reads float32 rows, writes records. Uses the primitives of `lang`, and a few more.
"""

from __future__ import annotations

from typing import Any  # Any: numba and llvmlite are untyped

import numpy as np
from llvmlite import ir
from numba import types

from localspec.engine.cpu import emit, lang
from localspec.engine.cpu.emit import FLOATS, I8, I16, I32, INTS
from localspec.engine.cpu.formats import (
    BORDERS,
    GROUP,
    LEVELS,
    OUTPUTS,
    RECORD4,
    RECORD8,
    REFINEMENTS,
    SCALE_BYTES,
    SHARES,
    SMALLEST,
)
from localspec.engine.cpu.lang import (
    FLOAT,
    FLOATS16,
    INT,
    Vector,
    compiled,
    greater16,
    greatest16,
    load16,
    size16,
    splat16,
    total16,
    word,
    word_at,
)

F32: Any = np.float32
INFINITY = F32(np.inf)
TRIES = tuple(F32(share) for share in SHARES)


@word(FLOATS16, FLOATS16)
def level16(b: Any, x: Any) -> Any:
    """The nearest levels."""
    found = emit.every(FLOATS, LEVELS[0])
    for border, level in zip(BORDERS, LEVELS[1:], strict=True):
        beyond = b.fcmp_ordered(">", x, emit.every(FLOATS, border))
        found = b.select(beyond, emit.every(FLOATS, level), found)
    return found


def codes16(b: Any, x: Any) -> Any:
    """The codes of the nearest levels, as bytes."""
    found = emit.every(INTS, 0)
    for code, border in enumerate(BORDERS, 1):
        beyond = b.fcmp_ordered(">", x, emit.every(FLOATS, border))
        found = b.select(beyond, emit.every(INTS, code), found)
    return b.trunc(found, ir.VectorType(I8, 16))


@word(types.void, INT, FLOAT)
def put_word(b: Any, address: Any, value: Any) -> None:
    """Stores a bfloat16, rounded to nearest, ties to even."""
    bits = b.bitcast(value, I32)
    odd = b.and_(b.lshr(bits, ir.Constant(I32, 16)), ir.Constant(I32, 1))
    rounded = b.add(bits, b.add(odd, ir.Constant(I32, 0x7FFF)))
    emit.store(b, b.trunc(b.lshr(rounded, ir.Constant(I32, 16)), I16), address)


def put_fours(b: Any, address: Any, codes: Any) -> None:
    """Stores each four bytes into the run of sixteen outputs that they belong to."""
    fours = b.bitcast(codes, ir.VectorType(I32, codes.type.count // 4))
    for i in range(fours.type.count):
        emit.store(b, b.extract_element(fours, ir.Constant(I32, i)), emit.at(b, address, 128 * i))


@word(types.void, INT, FLOATS16)
def put_bytes16(b: Any, address: Any, x: Any) -> None:
    """Stores sixteen inputs of an int8 record."""
    whole, most, least = lang.nearest(b, x), emit.every(FLOATS, 127), emit.every(FLOATS, -127)
    whole = b.select(b.fcmp_ordered(">", whole, most), most, whole)
    whole = b.select(b.fcmp_ordered("<", whole, least), least, whole)
    codes = b.add(b.fptosi(whole, INTS), emit.every(INTS, 128))
    put_fours(b, address, b.trunc(codes, ir.VectorType(I8, 16)))


@word(types.void, INT, FLOATS16)
def put_nibbles16(b: Any, address: Any, x: Any) -> None:
    """Stores sixteen inputs of an int4 record: the low nibbles hold the first four of eight."""
    codes = codes16(b, x)
    low, high = (emit.lanes(b, codes, [8 * pair + first + i for pair in (0, 1) for i in range(4)]) for first in (0, 4))
    put_fours(b, address, b.or_(low, b.shl(high, ir.Constant(high.type, [4] * 8))))


@compiled
def fitted(a: Vector, b: Vector, c: Vector, d: Vector, scale: float) -> tuple[float, float]:
    """The scale that fits the levels which `scale` chooses, and how much of the sum of squares it explains."""
    inverse = splat16(F32(1) / scale)
    p, q, r, s = level16(a * inverse), level16(b * inverse), level16(c * inverse), level16(d * inverse)
    squares = total16(p * p + q * q + r * r + s * s)
    product = total16(a * p + b * q + c * r + d * s)
    return product / squares, product * (product / squares)


@compiled
def best_scale(a: Vector, b: Vector, c: Vector, d: Vector) -> float:
    """The best scale of 64 weights, none of them beyond 1."""
    scale, merit = fitted(a, b, c, d, TRIES[0])
    for share in TRIES[1:]:
        other, its_merit = fitted(a, b, c, d, share)
        if its_merit > merit:
            scale, merit = other, its_merit
    for _ in range(REFINEMENTS):
        other, its_merit = fitted(a, b, c, d, scale)
        if its_merit > merit:
            scale, merit = other, its_merit
    return scale


@compiled
def extreme(a: Vector, b: Vector, c: Vector, d: Vector) -> float:
    """The weight farthest from zero, with its sign; the positive one of two."""
    high = greatest16(greater16(greater16(a, b), greater16(c, d)))
    top = greatest16(greater16(greater16(size16(a), size16(b)), greater16(size16(c), size16(d))))
    far: float = top if high == top else -top
    return far


@compiled
def put_scale(address: int, scale: float) -> float:
    """Stores a scale as bfloat16; returns its inverse, 0 for 0."""
    put_word(address, scale)
    inverse: float = F32(1) / word_at(address) if scale != F32(0) else F32(0)
    return inverse


@compiled
def pack_group(bits: int, x: int, record: int, output: int) -> bool:
    """Packs 64 weights of one output; False if one of them is not finite."""
    a, b, c, d = load16(x), load16(x + 64), load16(x + 128), load16(x + 192)
    far = extreme(a, b, c, d)
    if not abs(far) < INFINITY:
        return False
    codes = record + SCALE_BYTES + output // 16 * 64 + output % 16 * 4
    scale = F32(0)
    if bits == 8:
        if abs(far) > F32(SMALLEST):
            scale = abs(far) / F32(127)
        inverse = splat16(put_scale(record + 2 * output, scale))
        put_bytes16(codes, a * inverse)
        put_bytes16(codes + 512, b * inverse)
        put_bytes16(codes + 1024, c * inverse)
        put_bytes16(codes + 1536, d * inverse)
    else:
        if abs(far) > F32(SMALLEST):
            unit = splat16(F32(1) / far)
            scale = far * best_scale(a * unit, b * unit, c * unit, d * unit)
        inverse = splat16(put_scale(record + 2 * output, scale))
        put_nibbles16(codes, a * inverse)
        put_nibbles16(codes + 256, b * inverse)
        put_nibbles16(codes + 512, c * inverse)
        put_nibbles16(codes + 768, d * inverse)
    return True


@compiled
def pack(bits: int, source: int, blocks: int, groups: int, out: int) -> int:
    """Packs [blocks * 32, groups * 64] float32 into records; returns 0 if a weight is not finite."""
    record_bytes = RECORD8 if bits == 8 else RECORD4
    sound = 1
    for block in range(blocks):
        for group in range(groups):
            record = out + (block * groups + group) * record_bytes
            for output in range(OUTPUTS):
                row = block * OUTPUTS + output
                if not pack_group(bits, source + (row * groups + group) * GROUP * 4, record, output):
                    sound = 0
    return sound
