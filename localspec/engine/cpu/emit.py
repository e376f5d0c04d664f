"""Vector operations as LLVM IR, sixteen lanes on every processor; only dot products differ by instruction set.

Emits instructions through an IRBuilder. Knows nothing about models, nor about numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any  # Any: llvmlite's IR is untyped

from llvmlite import ir

from localspec.engine.cpu.isa import Isa

Value = Any
Builder = Any

LANES = 16
I8, I16, I32, I64, F32 = (*(ir.IntType(bits) for bits in (8, 16, 32, 64)), ir.FloatType())
BYTES, WORDS, INTS, FLOATS = (
    ir.VectorType(I8, 64),
    ir.VectorType(I16, 16),
    ir.VectorType(I32, 16),
    ir.VectorType(F32, 16),
)


def int64(value: int) -> Value:
    return ir.Constant(I64, value)


def every(kind: Any, value: float) -> Value:
    """A vector constant with one value in every lane."""
    return ir.Constant(kind, [value] * kind.count)


def at(b: Builder, address: Value, offset: int | Value) -> Value:
    if isinstance(offset, int):
        return b.add(address, int64(offset)) if offset else address
    return b.add(address, offset)


def load(b: Builder, address: Value, kind: Any, *, align: int = 1) -> Value:
    return b.load(b.inttoptr(address, kind.as_pointer()), align=align, typ=kind)


def store(b: Builder, value: Value, address: Value, *, align: int = 1) -> None:
    b.store(value, b.inttoptr(address, value.type.as_pointer()), align=align)


def splat(b: Builder, value: Value, kind: Any) -> Value:
    first = b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    mask = ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count)
    return b.shuffle_vector(first, ir.Constant(kind, ir.Undefined), mask)


def lanes(b: Builder, value: Value, chosen: Sequence[int]) -> Value:
    mask = ir.Constant(ir.VectorType(I32, len(chosen)), list(chosen))
    return b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)


def join(b: Builder, parts: list[Value]) -> Value:
    """Concatenates vectors."""
    while len(parts) > 1:
        count = 2 * parts[0].type.count
        mask = ir.Constant(ir.VectorType(I32, count), list(range(count)))
        parts = [b.shuffle_vector(a, c, mask) for a, c in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def call(b: Builder, name: str, kind: Any, arguments: list[Value]) -> Value:
    """Calls an LLVM intrinsic, declared once per module."""
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(kind, [a.type for a in arguments]), name)
    return b.call(function, arguments)


def widen(b: Builder, words: Value) -> Value:
    """Converts bfloat16 [16] to float32."""
    return b.bitcast(b.shl(b.zext(words, INTS), every(INTS, 16)), FLOATS)


HALVES = ir.VectorType(ir.HalfType(), 16)
HALF_SCALE = 2.0**112  # between the exponents of float16 and float32


def widen_half(b: Builder, isa: Isa, words: Value) -> Value:
    """Converts float16 [16] to float32, exactly."""
    if isa.fused:  # such a processor converts by itself
        return b.fpext(b.bitcast(words, HALVES), FLOATS)
    bits = b.zext(words, INTS)
    size = b.bitcast(b.shl(b.and_(bits, every(INTS, 0x7FFF)), every(INTS, 13)), FLOATS)
    sign = b.shl(b.and_(bits, every(INTS, 0x8000)), every(INTS, 16))
    wide = b.bitcast(b.fmul(size, every(FLOATS, HALF_SCALE)), INTS)
    none = b.icmp_unsigned(">=", b.and_(bits, every(INTS, 0x7FFF)), every(INTS, 0x7C00))
    return b.bitcast(b.or_(b.select(none, every(INTS, 0x7FC00000), wide), sign), FLOATS)


def narrow_half(b: Builder, floats: Value) -> Value:
    """Converts float32 [16] to float16, rounded to nearest, ties to even; values that are too large become the largest,
    infinite ones NaN."""
    bits = b.bitcast(floats, INTS)
    sign = b.and_(b.lshr(bits, every(INTS, 16)), every(INTS, 0x8000))
    size = b.bitcast(b.and_(bits, every(INTS, 0x7FFFFFFF)), FLOATS)
    scaled = b.bitcast(b.fmul(size, every(FLOATS, 1 / HALF_SCALE)), INTS)
    odd = b.and_(b.lshr(scaled, every(INTS, 13)), every(INTS, 1))
    rounded = b.lshr(b.add(scaled, b.add(odd, every(INTS, 0xFFF))), every(INTS, 13))
    largest = every(INTS, 0x7BFF)
    kept = b.select(b.icmp_unsigned("<", rounded, largest), rounded, largest)
    none = b.icmp_unsigned(">=", b.bitcast(size, INTS), every(INTS, 0x7F800000))
    kept = b.select(none, every(INTS, 0x7E00), kept)
    return b.trunc(b.or_(kept, sign), WORDS)


def fetch(b: Builder, address: Value) -> None:
    """Prefetches a cache line into the second-level cache; an invalid address does no harm."""
    hints = [ir.Constant(I32, hint) for hint in (0, 2, 1)]  # to read, to keep in the second cache, data
    call(b, "llvm.prefetch.p0", ir.VoidType(), [b.inttoptr(address, I8.as_pointer()), *hints])


def fma(b: Builder, isa: Isa, x: Value, y: Value, z: Value) -> Value:
    """x·y + z, with one rounding where the processor has fused multiply-add, two elsewhere."""
    return call(b, "llvm.fma.v16f32", FLOATS, [x, y, z]) if isa.fused else b.fadd(b.fmul(x, y), z)


def counted(
    b: Builder, count: Value, carried: list[Value], body: Callable[[Value, list[Value]], list[Value]]
) -> list[Value]:
    """Emits a loop: body(index, carried) -> carried, for index 0..count - 1, at least once; returns the last."""
    entry, head, after = b.block, b.append_basic_block("head"), b.append_basic_block("after")
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(int64(0), entry)
    phis = [b.phi(value.type) for value in carried]
    results = body(index, phis)
    following, last = b.add(index, int64(1)), b.block
    index.add_incoming(following, last)
    for phi, first, result in zip(phis, carried, results, strict=True):
        phi.add_incoming(first, entry)
        phi.add_incoming(result, last)
    b.cbranch(b.icmp_signed("<", following, count), head, after)
    b.position_at_end(after)
    return results


# --- the dot product: weights are bytes w + 128, activations signed bytes, four inputs to a lane


def begin(b: Builder, isa: Isa, correction: Value) -> Value:
    """The sixteen initial sums. `correction` [address] holds -128 times the sum of the activations,
    which products of the unsigned bytes need and products of signed ones do not."""
    if isa.name.endswith("vnni"):
        return splat(b, load(b, correction, I32, align=4), INTS)
    return every(INTS, 0)


def prepared(b: Builder, isa: Isa, weights: Value) -> tuple[Value, ...]:
    """The form of 64 weights that `dot` takes, computed once for all rows."""
    if isa.name.endswith("vnni"):
        return (weights,)
    signed = b.xor(weights, every(BYTES, 0x80))
    if isa.name != "avx2":
        return (signed,)
    size = b.select(b.icmp_signed("<", signed, every(BYTES, 0)), b.neg(signed), signed)
    return signed, size


def dot(b: Builder, isa: Isa, sums: Value, weights: tuple[Value, ...], four: Value) -> Value:
    """sums[i] + Σ of four products, i = 0..15; `four` is an int32 that holds four activations."""
    signed = splat(b, four, INTS)
    match isa.name:
        case "avx512-vnni":
            return call(b, "llvm.x86.avx512.vpdpbusd.512", INTS, [sums, weights[0], b.bitcast(signed, BYTES)])
        case "avx-vnni":
            return halves(b, "llvm.x86.avx512.vpdpbusd.256", sums, weights[0], b.bitcast(signed, BYTES))
        case "avx2":
            return dot_avx2(b, sums, weights, b.bitcast(signed, BYTES))
        case "neon":
            return dot_neon(b, sums, weights[0], b.bitcast(signed, BYTES))
        case _:
            return dot_plain(b, sums, weights[0], four)


def halves(b: Builder, name: str, sums: Value, weights: Value, activations: Value) -> Value:
    half = ir.VectorType(I32, 8)
    parts = [
        call(
            b,
            name,
            half,
            [
                lanes(b, sums, range(8 * i, 8 * i + 8)),
                *(lanes(b, v, range(32 * i, 32 * i + 32)) for v in (weights, activations)),
            ],
        )
        for i in (0, 1)
    ]
    return join(b, parts)


def dot_avx2(b: Builder, sums: Value, weights: tuple[Value, ...], activations: Value) -> Value:
    """|w| times x with w's sign: two such products stay below 2 · 127 · 127 < 2^15, so nothing saturates."""
    shorts, ints, bytes_ = ir.VectorType(I16, 16), ir.VectorType(I32, 8), ir.VectorType(I8, 32)
    parts = []
    for i in (0, 1):
        signed, size, x = (lanes(b, v, range(32 * i, 32 * i + 32)) for v in (*weights, activations))
        signed_x = call(b, "llvm.x86.avx2.psign.b", bytes_, [x, signed])
        pairs = call(b, "llvm.x86.avx2.pmadd.ub.sw", shorts, [size, signed_x])
        fours = call(b, "llvm.x86.avx2.pmadd.wd", ints, [pairs, every(shorts, 1)])
        parts.append(b.add(lanes(b, sums, range(8 * i, 8 * i + 8)), fours))
    return join(b, parts)


def dot_neon(b: Builder, sums: Value, weights: Value, activations: Value) -> Value:
    ints, parts = ir.VectorType(I32, 4), []
    for i in range(4):
        w, x = (lanes(b, v, range(16 * i, 16 * i + 16)) for v in (weights, activations))
        parts.append(
            call(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", ints, [lanes(b, sums, range(4 * i, 4 * i + 4)), w, x])
        )
    return join(b, parts)


def dot_plain(b: Builder, sums: Value, weights: Value, four: Value) -> Value:
    for byte in range(4):
        w = b.sext(lanes(b, weights, range(byte, 64, 4)), INTS)
        x = b.ashr(b.shl(four, ir.Constant(I32, 24 - 8 * byte)), ir.Constant(I32, 24))
        sums = b.add(sums, b.mul(w, splat(b, x, INTS)))
    return sums


def look_up(b: Builder, isa: Isa, table: Sequence[int], nibbles: Value) -> Value:
    """table[nibble], 64 at once; the table is sixteen ascending bytes."""
    match isa.name:
        case "avx512-vnni":
            return call(b, "llvm.x86.avx512.pshuf.b.512", BYTES, [ir.Constant(BYTES, list(table) * 4), nibbles])
        case "avx-vnni" | "avx2":
            half = ir.VectorType(I8, 32)
            parts = [lanes(b, nibbles, range(32 * i, 32 * i + 32)) for i in (0, 1)]
            return join(
                b,
                [call(b, "llvm.x86.avx2.pshuf.b", half, [ir.Constant(half, list(table) * 2), part]) for part in parts],
            )
        case "neon":
            quarter = ir.VectorType(I8, 16)
            parts = [lanes(b, nibbles, range(16 * i, 16 * i + 16)) for i in range(4)]
            return join(
                b,
                [
                    call(b, "llvm.aarch64.neon.tbl1.v16i8", quarter, [ir.Constant(quarter, list(table)), part])
                    for part in parts
                ],
            )
    found = every(BYTES, table[0])
    for index in range(1, 16):
        reached = b.icmp_unsigned(">=", nibbles, every(BYTES, index))
        found = b.add(found, b.select(reached, every(BYTES, table[index] - table[index - 1]), every(BYTES, 0)))
    return found
