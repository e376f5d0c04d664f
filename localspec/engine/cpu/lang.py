"""The primitives of the compiled functions: vectors of sixteen floats, memory by address, atomics between threads.

Imported only where numba compiles, in a process of its own, for one instruction set.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeVar  # Any: numba and llvmlite are untyped

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, models, overload, register_model

from localspec.engine.cpu import emit, isa
from localspec.engine.cpu.emit import F32, FLOATS, I8, I16, I32, I64, INTS

ISA = isa.choose()
Vector = Any
Function = TypeVar("Function", bound=Callable[..., Any])

INT, FLOAT = types.int64, types.float32


def compiled(function: Function) -> Function:
    """Compiles a function of addresses and numbers, without reference counts, exceptions or Python objects."""
    made: Function = njit(_nrt=False, error_model="numpy")(function)
    return made


class Floats(types.Type):  # type: ignore[misc]
    """The numba type of sixteen float32."""

    def __init__(self) -> None:
        super().__init__("floats16")


FLOATS16 = Floats()


@register_model(Floats)
class FloatsModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


def word(result: Any, *parameters: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes an intrinsic from a function of a builder and values."""

    def make(emitter: Callable[..., Any]) -> Any:
        def codegen(context: Any, b: Any, _: Any, arguments: Any) -> Any:
            value = emitter(b, *arguments)
            return context.get_dummy_value() if result is types.void else value

        names = ", ".join(f"a{i}" for i in range(len(parameters)))
        space: dict[str, Any] = {"signature": result(*parameters), "codegen": codegen}
        exec(f"def {emitter.__name__}(context, {names}):\n    return signature, codegen", space)  # numba wants names
        return intrinsic(space[emitter.__name__])

    return make


# --- memory


@word(FLOATS16, INT)
def load16(b: Any, address: Any) -> Any:
    return emit.load(b, address, FLOATS)


@word(types.void, INT, FLOATS16)
def store16(b: Any, address: Any, value: Any) -> None:
    emit.store(b, value, address)


@word(types.void, INT, FLOATS16)
def store_halves16(b: Any, address: Any, value: Any) -> None:
    """Stores sixteen values as float16."""
    emit.store(b, emit.narrow_half(b, value), address)


@word(INT, INT)
def int_at(b: Any, address: Any) -> Any:
    return emit.load(b, address, I64, align=8)


@word(FLOAT, INT)
def float_at(b: Any, address: Any) -> Any:
    return emit.load(b, address, F32, align=4)


@word(types.void, INT, FLOAT)
def put_float(b: Any, address: Any, value: Any) -> None:
    emit.store(b, value, address, align=4)


@word(INT, INT)
def byte_at(b: Any, address: Any) -> Any:
    """Loads an unsigned byte."""
    return b.zext(emit.load(b, address, I8), I64)


@word(FLOAT, INT)
def word_at(b: Any, address: Any) -> Any:
    """Loads a bfloat16."""
    return b.bitcast(b.shl(b.zext(emit.load(b, address, I16), I32), ir.Constant(I32, 16)), F32)


@word(types.void, INT, FLOAT)
def put_half(b: Any, address: Any, value: Any) -> None:
    """Stores a value as float16."""
    narrow = emit.narrow_half(b, emit.splat(b, value, FLOATS))
    emit.store(b, b.extract_element(narrow, ir.Constant(I32, 0)), address)


@word(types.void, INT, INT)
def put_int32(b: Any, address: Any, value: Any) -> None:
    """Stores an int32."""
    emit.store(b, b.trunc(value, I32), address, align=4)


# --- arithmetic


@word(FLOATS16, FLOAT)
def splat16(b: Any, value: Any) -> Any:
    return emit.splat(b, value, FLOATS)


@word(FLOATS16, FLOATS16, FLOATS16, FLOATS16)
def fma16(b: Any, x: Any, y: Any, z: Any) -> Any:
    """x·y + z."""
    return emit.fma(b, ISA, x, y, z)


@word(FLOATS16, FLOATS16, FLOATS16)
def greater16(b: Any, x: Any, y: Any) -> Any:
    """The greater of each pair; NaN where either is."""
    return emit.call(b, "llvm.maximum.v16f32", FLOATS, [x, y])


@word(FLOATS16, FLOATS16)
def size16(b: Any, x: Any) -> Any:
    """The absolute values."""
    return emit.call(b, "llvm.fabs.v16f32", FLOATS, [x])


@word(FLOAT, FLOATS16)
def total16(b: Any, x: Any) -> Any:
    """The sum of the lanes, in one fixed order."""
    for half in (8, 4, 2, 1):
        x = b.fadd(emit.lanes(b, x, range(half)), emit.lanes(b, x, range(half, 2 * half)))
    return b.extract_element(x, ir.Constant(I32, 0))


@word(FLOAT, FLOATS16)
def greatest16(b: Any, x: Any) -> Any:
    """The greatest lane; NaN if any is."""
    for half in (8, 4, 2, 1):
        kind = f"llvm.maximum.v{half}f32" if half > 1 else "llvm.maximum.v1f32"
        low, high = emit.lanes(b, x, range(half)), emit.lanes(b, x, range(half, 2 * half))
        x = emit.call(b, kind, ir.VectorType(F32, half), [low, high])
    return b.extract_element(x, ir.Constant(I32, 0))


MAGIC = 12582912.0  # 1.5 · 2^23: adding and taking it away rounds to the nearest integer, ties to even


def nearest(b: Any, x: Any) -> Any:
    return b.fsub(b.fadd(x, emit.every(FLOATS, MAGIC)), emit.every(FLOATS, MAGIC))


@word(INT, INT, FLOATS16)
def store_bytes16(b: Any, address: Any, value: Any) -> Any:
    """Rounds to signed bytes, stores them, and returns their sum."""
    whole = b.fptosi(nearest(b, value), INTS)
    emit.store(b, b.trunc(whole, ir.VectorType(I8, 16)), address)
    for half in (8, 4, 2, 1):
        whole = b.add(emit.lanes(b, whole, range(half)), emit.lanes(b, whole, range(half, 2 * half)))
    return b.sext(b.extract_element(whole, ir.Constant(I32, 0)), I64)


@word(FLOATS16, FLOATS16, FLOATS16, INT, INT)
def seen16(b: Any, x: Any, other: Any, first: Any, last: Any) -> Any:
    """Selects lanes first..last of x, and of `other` outside."""
    lane = ir.Constant(ir.VectorType(I64, 16), list(range(16)))
    many = ir.VectorType(I64, 16)
    inside = b.and_(
        b.icmp_signed(">=", lane, emit.splat(b, first, many)), b.icmp_signed("<=", lane, emit.splat(b, last, many))
    )
    return b.select(inside, x, other)


LOG2E, LN2_HIGH, LN2_LOW = 1.44269504088896341, 0.693359375, -2.12194440e-4
SMALLEST, LARGEST = -87.0, 88.0


@word(FLOATS16, FLOATS16)
def exp16(b: Any, x: Any) -> Any:
    """e to the x within 2e-7 of itself; exactly 0 below -87. 2^n times a polynomial on ±ln 2 / 2 (Taylor, degree 7)."""
    top = b.select(b.fcmp_ordered(">", x, emit.every(FLOATS, LARGEST)), emit.every(FLOATS, LARGEST), x)
    kept = b.select(b.fcmp_ordered("<", top, emit.every(FLOATS, SMALLEST)), emit.every(FLOATS, SMALLEST), top)
    n = nearest(b, b.fmul(kept, emit.every(FLOATS, LOG2E)))
    rest = emit.fma(b, ISA, n, emit.every(FLOATS, -LN2_HIGH), kept)
    rest = emit.fma(b, ISA, n, emit.every(FLOATS, -LN2_LOW), rest)
    value = emit.every(FLOATS, 1 / math.factorial(7))
    for power in range(6, -1, -1):
        value = emit.fma(b, ISA, value, rest, emit.every(FLOATS, 1 / math.factorial(power)))
    exponent = b.shl(b.add(b.fptosi(n, INTS), emit.every(INTS, 127)), emit.every(INTS, 23))
    value = b.fmul(value, b.bitcast(exponent, FLOATS))
    return b.select(b.fcmp_ordered("<", x, emit.every(FLOATS, SMALLEST)), emit.every(FLOATS, 0), value)


def operation(sign: Any, name: str) -> None:
    @word(FLOATS16, FLOATS16, FLOATS16)
    def apply(b: Any, x: Any, y: Any) -> Any:
        return getattr(b, name)(x, y)

    @overload(sign)
    def chosen(x, y):  # type: ignore[no-untyped-def]  # numba compares it with the lambda
        if x is FLOATS16 and y is FLOATS16:
            return lambda x, y: apply(x, y)  # noqa: PLW0108 - numba compiles a function, not an intrinsic
        return None


for sign, name in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    operation(sign, name)


# --- threads


@word(INT, INT, INT)
def claim(b: Any, address: Any, count: Any) -> Any:
    """Adds atomically; returns the value before."""
    return b.atomic_rmw("add", b.inttoptr(address, I64.as_pointer()), count, "acq_rel")


@word(INT, INT, INT)
def exchange(b: Any, address: Any, value: Any) -> Any:
    return b.atomic_rmw("xchg", b.inttoptr(address, I64.as_pointer()), value, "acq_rel")


@word(INT, INT)
def look(b: Any, address: Any) -> Any:
    """Loads a value that another thread may have written (acquire)."""
    return b.load_atomic(b.inttoptr(address, I64.as_pointer()), "acquire", 8, typ=I64)


@word(types.void, INT, INT)
def tell(b: Any, address: Any, value: Any) -> None:
    """Stores a value for other threads, after all earlier writes (release)."""
    b.store_atomic(value, b.inttoptr(address, I64.as_pointer()), "release", 8)


@word(types.void, INT)
def breathe(b: Any, _: Any) -> None:
    """Tells the core that this is a spin loop."""
    if isa.on_x86():
        emit.call(b, "llvm.x86.sse2.pause", ir.VoidType(), [])
    elif isa.on_arm():
        emit.call(b, "llvm.aarch64.hint", ir.VoidType(), [ir.Constant(I32, 1)])


@word(types.void, INT, INT)
def nap(b: Any, address: Any, how_long: Any) -> None:
    """Calls the system's sleep function at `address` with the argument `how_long`."""
    kind = ir.FunctionType(I32, [I64, I64])
    b.call(b.inttoptr(address, kind.as_pointer()), [how_long, ir.Constant(I64, 0)])


# --- the inner loops, compiled by themselves and called by name


def inner(name: str, count: int) -> Any:
    """A kernel with `count` arguments, called by name."""

    @word(types.void, *[INT] * count)
    def kernel(b: Any, *arguments: Any) -> None:
        emit.call(b, name, ir.VoidType(), list(arguments))

    return kernel
