"""Exponentials and logarithms as LLVM's text.

Polynomials are fitted to the functions: least squares on Chebyshev points, weights repeated until
the largest relative error is spread evenly. ``exp`` and ``log`` are within 1.01 ulp, the others
within 2.5. Infinities, NaN and zeros are those of IEEE 754; subnormal arguments of ``log`` are
zeros, as everywhere in XLA's programs for the CPU.
"""

from __future__ import annotations

import math

import numpy as np

from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.text import Text, float_text

# exp(r) = 1 + r + r^2 P(r) for |r| <= log(2) / 2; relative error 3e-9.
_EXP = (0.4999999403953552, 0.1666651964187622, 0.04166840389370918,
        0.00836889911442995, 0.001381422160193324)  # fmt: skip
# log(1 + f) = f - f^2 / 2 + f^3 P(f) for sqrt(1/2) <= 1 + f < sqrt(2); relative error 6e-9.
_LOG = (0.3333333134651184, -0.2500081956386566, 0.20001226663589478, -0.16623356938362122,
        0.14201758801937103, -0.13160182535648346, 0.12761574983596802,
        -0.07634492963552475)  # fmt: skip
# tanh(x) = x + x^3 P(x^2) for |x| <= 5/8; relative error 4e-9.
_TANH = (-0.3333328068256378, 0.13331441581249237, -0.05373970419168472,
         0.020639054477214813, -0.005704953335225582)  # fmt: skip
_TANH_BOUND = 0.625
# log(2) as a float32 of 16 bits, whose product with an exponent is exact, and the rest.
_LOG2_HIGH = 0.693145751953125
_LOG2_LOW = math.log(2) - _LOG2_HIGH
_ROUNDER = 12582912.0  # 1.5 * 2**23: a sum with it has the nearest integer in its last bits
_EVEN_BIASES = 254.0  # what the exponents of two float32 are more than those of their powers
_BIASED_ROUNDER = _ROUNDER + _EVEN_BIASES
_ROUNDER_BITS = 0x4B400000 + 254
AVX512 = 16  # float32 in its vectors
# exp(r) = 1 + r + r^2 P(r) for |r| <= log(2) / 32; relative error 2e-9.
_EXP_OF_SIXTEENTH = (0.5000097749180301, 0.16666862164590476)
_SIXTEENTHS = 1.5 * 2.0**19  # a sum with it has the nearest sixteenth in its last bits
# log(2) of 12 bits, whose product with sixteenths below 256 is exact, and the rest.
_LOG2_FIRST = 0.693115234375
_LOG2_LAST = math.log(2) - _LOG2_FIRST
# Powers of two of the sixteenths, and what each has lost.
_ROOTS = tuple([float(np.float32(2.0 ** (k / 16))) for k in range(16)])
_LOST = tuple([2.0 ** (k / 16) - root for k, root in enumerate(_ROOTS)])
_ALL_DIGITS = 18.0  # exp of it is more than 2^24
_ROOT_HALF_BITS = 0x3F3504F3


def exp(to: Text, x: str) -> str:
    """Of ``x = n log(2) + r``: ``2^n`` in two factors, since the result may be infinite."""
    for bound, how in ((-104.0, "olt"), (104.0, "ogt")):
        c = to.constant(bound)
        x = to.select(to.compare(how, x, c), c, x)  # NaN stays
    shifted, part = exp_parts(to, x)
    return times_power(to, to.op("fadd", part, to.constant(1.0)), shifted)


def times_power(to: Text, y: str, shifted: str) -> str:
    """``y`` times two to the ``n`` of ``exp_parts``; the result may be subnormal or infinite."""
    if has_registers(to):
        return scaled(to, y, to.op("fsub", shifted, to.constant(_BIASED_ROUNDER)))
    biases = to.bits(shifted)  # of both powers, with other bits above: these do not stay
    half = to.op("lshr", biases, to.constant(1, "i32"), "i32")
    for biased in (half, to.op("sub", biases, half, "i32")):
        y = to.op("fmul", y, to.of_bits(to.op("shl", biased, to.constant(23, "i32"), "i32")))
    return y


def has_registers(to: Text) -> bool:
    """Whether the processor takes such vectors by whole registers of 16 float32 or 8 float64."""
    return to.width > 0 and to.width % _places(to.real) == 0 and machine().lanes == AVX512


def _places(scalar: str) -> int:
    """How many numbers are in a register."""
    return AVX512 // 2 if scalar in ("double", "i64") else AVX512


def scaled(to: Text, y: str, n: str) -> str:
    """``y`` times two to the ``n``, rounded once as the product of two factors is."""
    kind = f"<{_places(to.real)} x {to.real}>"
    suffix, mask = ("pd", "i8") if to.real == "double" else ("ps", "i16")
    function = f"@llvm.x86.avx512.mask.scalef.{suffix}.512"
    to.needs.add(f"declare {kind} {function}({kind}, {kind}, {kind}, {mask}, i32)")
    parts = [
        to.line(f"call {kind} {function}({kind} {a}, {kind} {b}, {kind} {a}, {mask} -1, i32 4)")
        for a, b in zip(registers(to, y, to.real), registers(to, n, to.real), strict=True)
    ]
    return joined(to, parts)


def registers(to: Text, x: str, scalar: str) -> list[str]:
    """A vector in pieces of a register each."""
    parts: list[str] = []
    size = _places(scalar)
    for start in range(0, to.width, size):
        places = ", ".join([f"i32 {start + i}" for i in range(size)])
        vector, taken = to.type(scalar), f"<{size} x i32> <{places}>"
        parts.append(to.line(f"shufflevector {vector} {x}, {vector} poison, {taken}"))
    return parts


def joined(to: Text, parts: list[str]) -> str:
    """Vectors one after another, all at a time by twos."""
    width = _places(to.real)
    while len(parts) > 1:
        kind, places = f"<{width} x {to.real}>", ", ".join([f"i32 {i}" for i in range(2 * width)])
        taken = f"<{2 * width} x i32> <{places}>"
        parts = [
            to.line(f"shufflevector {kind} {a}, {kind} {b}, {taken}")
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        width *= 2
    return parts[0]


def log(to: Text, x: str) -> str:
    """Of numbers ``m`` times two to the ``e``; ``m`` is between the roots of 1/2 and of 2."""
    bits = to.bits(x)
    above = to.op("sub", bits, to.constant(_ROOT_HALF_BITS, "i32"), "i32")
    e = to.op("ashr", above, to.constant(23, "i32"), "i32")
    shifted = to.op("shl", e, to.constant(23, "i32"), "i32")
    f = to.op("fsub", to.of_bits(to.op("sub", bits, shifted, "i32")), to.constant(1.0))
    n = to.widened("sitofp", e, "i32", "float")
    squared = to.op("fmul", f, f)
    rest = to.op("fmul", to.op("fmul", squared, f), to.polynomial(f, _LOG))
    rest = to.fma(n, to.constant(_LOG2_LOW), rest)
    rest = to.fma(squared, to.constant(-0.5), rest)
    y = to.fma(n, to.constant(_LOG2_HIGH), to.op("fadd", f, rest))
    infinity = to.constant(math.inf)
    y = to.select(to.compare("oeq", x, infinity), infinity, y)
    y = to.select(to.compare("ult", x, to.constant(0.0)), to.constant(math.nan), y)
    small = to.call("fabs", x)
    is_zero = to.compare("olt", small, to.constant(2.0**-126))
    return to.select(is_zero, to.constant(-math.inf), y)


def logistic(to: Text, x: str) -> str:
    """The inverse of 1 + exp(-x)."""
    one = to.constant(1.0)
    e = exp(to, to.line(f"fneg {to.type('float')} {x}"))
    return to.op("fdiv", one, to.op("fadd", one, e))


def tanh(to: Text, x: str) -> str:
    """A polynomial near 0, elsewhere of exp(-2 |x|)."""
    size, one = to.call("fabs", x), to.constant(1.0)
    squared = to.op("fmul", x, x)
    near = to.fma(to.op("fmul", x, squared), to.polynomial(squared, _TANH), x)
    e = small_exp(to, to.op("fmul", size, to.constant(-2.0)))
    far = to.op("fdiv", to.op("fsub", one, e), to.op("fadd", one, e))
    y = to.select(to.compare("olt", size, to.constant(_TANH_BOUND)), near, far)
    return to.call("copysign", y, x)  # near -0 too, which the sum makes 0


def small_exp(to: Text, x: str) -> str:
    """Of numbers below 0, to be added to 1: the power of two is one factor, and not subnormal."""
    least, rounder = to.constant(-20.0), to.constant(_ROUNDER)
    x = to.select(to.compare("olt", x, least), least, x)  # NaN stays
    shifted = to.fma(x, to.constant(1 / math.log(2)), rounder)
    n = to.line(f"fsub {to.type('float')} {shifted}, {rounder}")
    r = to.fma(n, to.constant(-math.log(2)), x)
    squared = to.op("fmul", r, r)
    y = to.op("fadd", to.fma(to.polynomial(r, _EXP), squared, r), to.constant(1.0))
    power = to.op("shl", to.bits(shifted), to.constant(23, "i32"), "i32")
    return to.op("fmul", y, to.of_bits(to.op("add", power, to.constant(127 << 23, "i32"), "i32")))


def expm1(to: Text, x: str) -> str:
    """``2^n (1 + r + r^2 P(r)) - 1`` without the 1 that is taken away again."""
    shifted, part = exp_parts(to, x)
    n = to.op("sub", to.bits(shifted), to.constant(_ROUNDER_BITS, "i32"), "i32")
    biased = to.op("add", n, to.constant(127, "i32"), "i32")
    scale = to.of_bits(to.op("shl", biased, to.constant(23, "i32"), "i32"))
    one = to.constant(1.0)
    y = to.fma(scale, part, to.op("fsub", scale, one))
    # Where 1 is less than half of the last digit, and beyond, where the scale is no number.
    y = to.select(to.compare("ogt", x, to.constant(_ALL_DIGITS)), exp(to, x), y)
    y = to.select(to.compare("olt", x, to.constant(-_ALL_DIGITS)), to.constant(-1.0), y)
    return to.select(to.compare("oeq", x, to.constant(0.0)), x, y)  # of -0 it is -0


def log1p(to: Text, x: str) -> str:
    """The logarithm of the rounded sum, and what rounding has lost."""
    one = to.constant(1.0)
    sum_ = to.op("fadd", one, x)
    lost = to.op("fsub", x, to.op("fsub", sum_, one))
    y = to.op("fadd", log(to, sum_), to.op("fdiv", lost, sum_))
    size = to.call("fabs", x)
    is_small = to.compare("olt", size, to.constant(2.0**-24))
    is_end = to.compare("oge", x, to.constant(2.0**26))  # infinity minus itself is NaN
    y = to.select(is_end, log(to, x), y)
    y = to.select(to.compare("oeq", sum_, to.constant(0.0)), to.constant(-math.inf), y)
    return to.select(is_small, x, y)


def exp_parts(to: Text, x: str, less: str = "") -> tuple[str, str]:
    """``n`` with the rounder, and ``exp(r) - 1``, of ``x = n log(2) + r``.

    ``less``: a small number that is taken from ``r``, for a difference with more digits.
    """
    rounder = to.constant(_BIASED_ROUNDER)
    shifted = to.fma(x, to.constant(1 / math.log(2)), rounder)
    n = to.line(f"fsub {to.type('float')} {shifted}, {rounder}")
    r = to.fma(n, to.constant(-_LOG2_HIGH), x)
    r = to.fma(n, to.constant(-_LOG2_LOW), r)
    r = to.op("fsub", r, less) if less else r
    return shifted, to.fma(to.polynomial(r, _EXP), to.op("fmul", r, r), r)


def exp_parts_looked_up(to: Text, x: str) -> tuple[str, str, str]:
    """``n``, ``a`` and ``b`` with ``exp(-x^2) = 2^floor(n) (a + b)``; ``b`` is small.

    ``n`` is a whole number of sixteenths, and the square of ``x`` is not rounded. Vectors have to
    be whole registers (``has_registers``).
    """
    rounder = to.constant(_SIXTEENTHS)
    shifted = to.fma(to.op("fmul", x, to.constant(-1 / math.log(2))), x, rounder)
    n = to.op("fsub", shifted, rounder)
    minus = to.line(f"fneg {to.type('float')} {x}")
    r = to.fma(minus, x, to.op("fmul", n, to.constant(-_LOG2_FIRST)))
    r = to.fma(n, to.constant(-_LOG2_LAST), r)
    part = to.fma(to.polynomial(r, _EXP_OF_SIXTEENTH), to.op("fmul", r, r), r)
    indices = registers(to, to.bits(shifted), "i32")
    power = _from_sixteen(to, indices, _ROOTS)
    return n, power, to.fma(power, part, _from_sixteen(to, indices, _LOST))


def _from_sixteen(to: Text, indices: list[str], table: tuple[float, ...]) -> str:
    """The numbers of a table that the last 4 binary digits of each index tell."""
    kind, function = f"<{AVX512} x float>", "@llvm.x86.avx512.permvar.sf.512"
    to.needs.add(f"declare {kind} {function}({kind}, <{AVX512} x i32>)")
    numbers = ", ".join([f"float {float_text(c)}" for c in table])
    parts = [
        to.line(f"call {kind} {function}({kind} <{numbers}>, <{AVX512} x i32> {i})")
        for i in indices
    ]
    return joined(to, parts)
