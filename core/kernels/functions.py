"""Which elementwise equations kernels can have, and their text, for numbers and for vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tracebridge.core.kernels import double_functions
from tracebridge.core.kernels.error_functions import erf, erfc, ndtr
from tracebridge.core.kernels.exponentials import exp, expm1, log, log1p, logistic, tanh
from tracebridge.core.kernels.text import NAMES, REALS, Text, type_of
from tracebridge.core.kernels.waves import cos, sin

_HALF = ("float16", "bfloat16")
_OF_SINGLES = frozenset({"float32", "int32", "bool", *_HALF})
_OF_DOUBLES = frozenset({"float64", "int32", "bool"})
_CONVERSIONS = frozenset({
    ("bool", "float32"), ("bool", "int32"), ("int32", "float32"),
    ("float16", "float32"), ("bfloat16", "float32"),
    ("float32", "float16"), ("float32", "bfloat16"),
    ("bool", "float64"), ("int32", "float64"),
})  # fmt: skip
_COMPARISONS = {
    "eq": ("oeq", "eq"), "ne": ("une", "ne"), "lt": ("olt", "slt"), "le": ("ole", "sle"),
    "gt": ("ogt", "sgt"), "ge": ("oge", "sge"),
}  # fmt: skip


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
    return to.line(f"fneg {to.type(to.real)} {x}")


def _sign(to: Text, x: str) -> str:
    """1 with the sign; zeros and NaN stay."""
    one = to.call("copysign", to.constant(1.0), x)
    is_other = to.compare("ueq", x, to.constant(0.0))
    return to.select(is_other, x, one)


def _sqrt(to: Text, x: str) -> str:
    return to.call("sqrt", x)


_UNARY: Mapping[str, Callable[[Text, str], str]] = {
    "exp": exp,
    "log": log,
    "logistic": logistic,
    "tanh": tanh,
    "expm1": expm1,
    "log1p": log1p,
    "sin": sin,
    "cos": cos,
    "erf": erf,
    "erfc": erfc,
    "ndtr": ndtr,
    "floor": lambda to, x: to.call("floor", x),
    "ceil": lambda to, x: to.call("ceil", x),
    "sign": _sign,
    "neg": _negated,
    "sqrt": _sqrt,
    "rsqrt": lambda to, x: to.op("fdiv", to.constant(1.0), _sqrt(to, x)),
    "abs": lambda to, x: to.call("fabs", x),
    "square": lambda to, x: to.op("fmul", x, x),
    "stop_gradient": lambda _, x: x,
    "is_finite": lambda to, x: to.compare("one", to.call("fabs", x), to.constant(math.inf)),
}
_OF_DOUBLE: Mapping[str, Callable[[Text, str], str]] = {
    "exp": double_functions.exp,
    "log": double_functions.log,
}
"""Functions that are written otherwise in kernels of float64."""
_ONLY_OF_SINGLES = frozenset({
    "logistic", "tanh", "expm1", "log1p", "sin", "cos", "erf", "erfc", "ndtr",
})  # fmt: skip
"""Functions that those have not."""
# Not contracted: LLVM would round a product in one pass and not in another, so that the largest
# element of a row would not be equal to its maximum.
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_OPS = {"add": "add", "sub": "sub", "mul": "mul"}
_LOGICAL_OPS = {"and": "and", "or": "or", "xor": "xor"}
_OF_BOOLS = frozenset({"not", *_LOGICAL_OPS})
_OF_FLOATS = frozenset({*_UNARY, *_FLOAT_OPS, "max", "min", "clamp"})
MOST_POWER = 8
TRANSCENDENTAL = frozenset({
    "exp", "expm1", "log", "log1p", "logistic", "tanh", "sin", "cos", "erf", "erfc", "ndtr",
    "sqrt", "rsqrt", "pow",
})  # fmt: skip
EXPENSIVE = TRANSCENDENTAL | {"div"}


def handles(
    name: str, params: Mapping[str, Any], dtypes: Sequence[Any], out: Any, doubles: bool = False
) -> bool:
    """Whether ``elementwise`` can write a primitive with such parameters, operands and result.

    ``doubles``: in a kernel of float64.
    """
    kinds, result = [NAMES.get(d) for d in dtypes], NAMES.get(out)
    there = _OF_DOUBLES if doubles else _OF_SINGLES
    if not there.issuperset((*kinds, result)) or (doubles and name in _ONLY_OF_SINGLES):
        return False
    floats = kinds[0] == ("float64" if doubles else "float32")
    if name == "integer_pow":
        return floats and 1 <= abs(params["y"]) <= MOST_POWER
    if name == "convert_element_type":
        pair = kinds[0], result
        return pair[0] == pair[1] or pair in _CONVERSIONS
    if name == "select_n":
        return kinds[0] == "bool" and len(kinds) == 3
    if name == "round":
        return floats and params["rounding_method"].name == "TO_NEAREST_EVEN"
    if (params and any([v is not None for v in params.values()])) or kinds[0] in _HALF:
        return False  # parameters such as an accuracy
    if name in _COMPARISONS:
        return kinds[0] != "bool"
    if name in _OF_BOOLS:
        return kinds[0] == "bool"
    return (floats and name in _OF_FLOATS) or (kinds[0] == "int32" and name in _INTEGER_OPS)


def elementwise(
    to: Text, name: str, args: Sequence[str], dtypes: Sequence[Any], out: Any, params: Any
) -> str:
    """The text of a primitive; the name of its result."""
    scalar = type_of(dtypes[0])
    if scalar == "double" and name in _OF_DOUBLE:
        return _OF_DOUBLE[name](to, args[0])
    if name in _UNARY:
        return _UNARY[name](to, args[0])
    if name == "clamp":
        low, x, high = args
        return to.call("minimum", to.call("maximum", x, low, flags="nsz "), high, flags="nsz ")
    if name in ("max", "min"):
        return to.call(f"{name}imum", *args, flags="nsz ")
    if name in _COMPARISONS:
        return to.compare(_COMPARISONS[name][scalar not in REALS], args[0], args[1], scalar)
    if name == "integer_pow":
        return power(to, args[0], params["y"])
    if name == "round":
        return to.call("roundeven", args[0])
    if name == "pow":
        return root_or_power(to, args[0], params["y"])
    if name == "convert_element_type":
        return _converted(to, args[0], scalar, type_of(out))
    if name == "select_n":
        return to.select(args[0], args[2], args[1], type_of(out))
    if name == "not":
        return to.op("xor", args[0], to.constant(True, "i1"), "i1")
    ops = _FLOAT_OPS if scalar in REALS else _LOGICAL_OPS if scalar == "i1" else _INTEGER_OPS
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
    if new in REALS:
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
