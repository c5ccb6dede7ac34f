"""Elementwise functions as LLVM's text, for numbers and for vectors of them.

Polynomials are fitted to the functions: least squares on Chebyshev points, weights repeated until
the largest relative error is spread evenly. ``exp`` and ``log`` are within 1.01 ulp, ``logistic``
and ``tanh`` within 2.5. Infinities, NaN and zeros are those of IEEE 754; subnormal arguments of ``log`` are
zeros, as everywhere in XLA's programs for the CPU.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

# Numbers of 16 bits are read and written; everything is computed in float32.
_TYPES = {
    "float32": "float", "bool": "i1", "int32": "i32", "float16": "half", "bfloat16": "i16",
}  # fmt: skip
_HALF = ("float16", "bfloat16")
_CONVERSIONS = frozenset({
    ("bool", "float32"), ("bool", "int32"), ("int32", "float32"),
    ("float16", "float32"), ("bfloat16", "float32"),
    ("float32", "float16"), ("float32", "bfloat16"),
})  # fmt: skip
_COMPARISONS = {
    "eq": ("oeq", "eq"), "ne": ("une", "ne"), "lt": ("olt", "slt"), "le": ("ole", "sle"),
    "gt": ("ogt", "sgt"), "ge": ("oge", "sge"),
}  # fmt: skip

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
_ROUNDER_BITS = 0x4B400000
_ROOT_HALF_BITS = 0x3F3504F3


def float_text(value: Any) -> str:
    """A float32 as LLVM writes it: the bits of the same float64."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(np.float32(value))))[0]:016X}"


def type_of(dtype: Any) -> str:
    """LLVM's type of a number."""
    return _TYPES[np.dtype(dtype).name]


@final
class Text:
    """Lines of LLVM's text, whose names are numbered; ``width``: of vectors, 0 for numbers."""

    def __init__(self, names: list[int], width: int) -> None:
        self.lines: list[str] = []
        self.width, self._names = width, names
        self.needs: set[str] = set()

    def name(self) -> str:
        self._names[0] += 1
        return f"%v{self._names[0]}"

    def line(self, text: str) -> str:
        """A line that makes a value; its name."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return name

    def type(self, scalar: str) -> str:
        return f"<{self.width} x {scalar}>" if self.width else scalar

    def suffix(self, scalar: str = "f32") -> str:
        return f"v{self.width}{scalar}" if self.width else scalar

    def constant(self, value: Any, scalar: str = "float") -> str:
        """The text of a constant at every place."""
        if scalar == "float":
            text = float_text(value)
        else:
            text = ("true" if value else "false") if scalar == "i1" else str(int(value))
        return f"<{', '.join([f'{scalar} {text}'] * self.width)}>" if self.width else text

    def op(self, name: str, x: str, y: str, scalar: str = "float") -> str:
        return self.line(f"{name} {self.type(scalar)} {x}, {y}")

    def call(self, function: str, *args: str, flags: str = "") -> str:
        """An intrinsic function of floats."""
        kind, name = self.type("float"), f"@llvm.{function}.{self.suffix()}"
        self.needs.add(f"declare {kind} {name}({', '.join([kind] * len(args))})")
        return self.line(f"call {flags}{kind} {name}({', '.join([f'{kind} {a}' for a in args])})")

    def fma(self, x: str, y: str, z: str) -> str:
        return self.call("fma", x, y, z)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        total = self.constant(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, self.constant(c))
        return total

    def bits(self, x: str) -> str:
        return self.line(f"bitcast {self.type('float')} {x} to {self.type('i32')}")

    def of_bits(self, x: str) -> str:
        return self.line(f"bitcast {self.type('i32')} {x} to {self.type('float')}")

    def compare(self, how: str, x: str, y: str, scalar: str = "float") -> str:
        what = "fcmp" if scalar == "float" else "icmp"
        return self.line(f"{what} {how} {self.type(scalar)} {x}, {y}")

    def select(self, flag: str, yes: str, no: str, scalar: str = "float") -> str:
        kind = self.type(scalar)
        return self.line(f"select {self.type('i1')} {flag}, {kind} {yes}, {kind} {no}")

    def splat(self, x: str, scalar: str) -> str:
        """A number at every place of a vector."""
        kind = self.type(scalar)
        first = self.line(f"insertelement {kind} poison, {scalar} {x}, i32 0")
        zeros = f"<{self.width} x i32> zeroinitializer"
        return self.line(f"shufflevector {kind} {first}, {kind} poison, {zeros}")

    def widened(self, how: str, x: str, old: str, new: str) -> str:
        return self.line(f"{how} {self.type(old)} {x} to {self.type(new)}")


def exp(to: Text, x: str) -> str:
    """Of ``x = n log(2) + r``: ``2^n`` in two factors, since the result may be infinite."""
    for bound, how in ((-104.0, "olt"), (104.0, "ogt")):
        c = to.constant(bound)
        x = to.select(to.compare(how, x, c), c, x)  # NaN stays
    rounder = to.constant(_ROUNDER)
    shifted = to.fma(x, to.constant(1 / math.log(2)), rounder)
    n = to.line(f"fsub {to.type('float')} {shifted}, {rounder}")
    r = to.fma(n, to.constant(-_LOG2_HIGH), x)
    r = to.fma(n, to.constant(-_LOG2_LOW), r)
    squared = to.op("fmul", r, r)
    y = to.op("fadd", to.fma(to.polynomial(r, _EXP), squared, r), to.constant(1.0))
    whole = to.op("sub", to.bits(shifted), to.constant(_ROUNDER_BITS, "i32"), "i32")
    half = to.op("ashr", whole, to.constant(1, "i32"), "i32")
    for power in (half, to.op("sub", whole, half, "i32")):
        biased = to.op("add", power, to.constant(127, "i32"), "i32")
        y = to.op("fmul", y, to.of_bits(to.op("shl", biased, to.constant(23, "i32"), "i32")))
    return y


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
    e = _small_exp(to, to.op("fmul", size, to.constant(-2.0)))
    far = to.op("fdiv", to.op("fsub", one, e), to.op("fadd", one, e))
    y = to.select(to.compare("olt", size, to.constant(_TANH_BOUND)), near, far)
    return to.call("copysign", y, x)  # near -0 too, which the sum makes 0


def _small_exp(to: Text, x: str) -> str:
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


def power(to: Text, x: str, y: int) -> str:
    """A whole power, by squaring."""
    total, base, n = "", x, abs(y)
    while n:
        if n & 1:
            total = to.op("fmul", total, base) if total else base
        n >>= 1
        base = to.op("fmul", base, base) if n else base
    return to.op("fdiv", to.constant(1.0), total) if y < 0 else total


def root_or_power(to: Text, x: str, y: float) -> str:
    """A power as IEEE 754 has it: whole, or of half of one."""
    if y == int(y):
        return power(to, x, int(y))
    infinity = to.constant(math.inf)
    root = to.op("fadd", _sqrt(to, x), to.constant(0.0))  # of -0 it is 0
    root = to.select(to.compare("oeq", x, to.constant(-math.inf)), infinity, root)
    return to.op("fdiv", to.constant(1.0), root) if y < 0 else root


def is_easy_power(y: float) -> bool:
    """Whether ``root_or_power`` can write it."""
    return abs(y) == 0.5 or (abs(y) in range(1, MOST_POWER + 1))


def _negated(to: Text, x: str) -> str:
    return to.line(f"fneg {to.type('float')} {x}")


def _sqrt(to: Text, x: str) -> str:
    return to.call("sqrt", x)


_UNARY: Mapping[str, Callable[[Text, str], str]] = {
    "exp": exp,
    "log": log,
    "logistic": logistic,
    "tanh": tanh,
    "neg": _negated,
    "sqrt": _sqrt,
    "rsqrt": lambda to, x: to.op("fdiv", to.constant(1.0), _sqrt(to, x)),
    "abs": lambda to, x: to.call("fabs", x),
    "square": lambda to, x: to.op("fmul", x, x),
    "stop_gradient": lambda _, x: x,
    "is_finite": lambda to, x: to.compare("one", to.call("fabs", x), to.constant(math.inf)),
}
# Not contracted: LLVM would round a product in one pass and not in another, so that the largest
# element of a row would not be equal to its maximum.
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_OPS = {"add": "add", "sub": "sub", "mul": "mul"}
_LOGICAL_OPS = {"and": "and", "or": "or", "xor": "xor"}
MOST_POWER = 8
EXPENSIVE = frozenset({"exp", "log", "logistic", "tanh", "sqrt", "rsqrt", "pow", "div"})


def handles(name: str, params: Mapping[str, Any], dtypes: Sequence[Any], out: Any) -> bool:
    """Whether ``elementwise`` can write a primitive with such parameters, operands and result."""
    kinds = [np.dtype(d).name for d in dtypes]
    if any([k not in _TYPES for k in (*kinds, np.dtype(out).name)]):
        return False
    floats = kinds[0] == "float32"
    if name == "integer_pow":
        return floats and 1 <= abs(params["y"]) <= MOST_POWER
    if name == "convert_element_type":
        pair = kinds[0], np.dtype(out).name
        return pair[0] == pair[1] or pair in _CONVERSIONS
    if name == "select_n":
        return kinds[0] == "bool" and len(kinds) == 3
    if any([v is not None for v in params.values()]) or kinds[0] in _HALF:
        return False  # parameters such as an accuracy
    if name in _COMPARISONS:
        return kinds[0] != "bool"
    if name in ("not", *_LOGICAL_OPS):
        return kinds[0] == "bool"
    return (floats and name in (*_UNARY, *_FLOAT_OPS, "max", "min")) or (
        kinds[0] == "int32" and name in _INTEGER_OPS
    )


def elementwise(
    to: Text, name: str, args: Sequence[str], dtypes: Sequence[Any], out: Any, params: Any
) -> str:
    """The text of a primitive; the name of its result."""
    scalar = type_of(dtypes[0])
    if name in _UNARY:
        return _UNARY[name](to, args[0])
    if name in ("max", "min"):
        return to.call(f"{name}imum", *args, flags="nsz ")
    if name in _COMPARISONS:
        return to.compare(_COMPARISONS[name][scalar != "float"], args[0], args[1], scalar)
    if name == "integer_pow":
        return power(to, args[0], params["y"])
    if name == "pow":
        return root_or_power(to, args[0], params["y"])
    if name == "convert_element_type":
        return _converted(to, args[0], scalar, type_of(out))
    if name == "select_n":
        return to.select(args[0], args[2], args[1], type_of(out))
    if name == "not":
        return to.op("xor", args[0], to.constant(True, "i1"), "i1")
    ops = _FLOAT_OPS if scalar == "float" else _LOGICAL_OPS if scalar == "i1" else _INTEGER_OPS
    return to.op(ops[name], args[0], args[1], scalar)


def _converted(to: Text, x: str, old: str, new: str) -> str:
    if old == new:
        return x
    if old == "half":
        return to.widened("fpext", x, old, new)
    if new == "half":
        return to.widened("fptrunc", x, old, new)
    if old == "i16":
        shift = to.constant(16, "i32")
        return to.of_bits(to.op("shl", to.widened("zext", x, old, "i32"), shift, "i32"))
    if new == "i16":
        return _rounded_to_bfloat16(to, x)
    if new == "float":
        return to.widened("uitofp" if old == "i1" else "sitofp", x, old, new)
    return to.widened("zext", x, old, new)


def _rounded_to_bfloat16(to: Text, x: str) -> str:
    """The first 16 bits, rounded to the nearest, of two the even one; NaN stays NaN."""
    bits, sixteen = to.bits(x), to.constant(16, "i32")
    first = to.op("lshr", bits, sixteen, "i32")
    odd = to.op("and", first, to.constant(1, "i32"), "i32")
    half = to.op("add", odd, to.constant(0x7FFF, "i32"), "i32")
    rounded = to.op("lshr", to.op("add", bits, half, "i32"), sixteen, "i32")
    quiet = to.op("or", first, to.constant(0x40, "i32"), "i32")
    made = to.select(to.compare("uno", x, x), quiet, rounded, "i32")
    return to.widened("trunc", made, "i32", "i16")
