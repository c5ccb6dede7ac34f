"""The systematic table of operations: one line says what an operation is and where it lives.

``TABLE`` lists the elementwise operations. Tests of other operations make their own ``Op`` lines:
``Op(fun, reference, *domains, dtypes=...)``.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

import tracebridge.core.lax as lax
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.special import bessel

Host = np.ndarray[Any, Any]
Domain = Callable[[np.random.Generator, tuple[int, ...], Any], Host]

FLOATS = (d.float32, d.float64, d.bfloat16, d.float16)
COMPLEX = (d.complex64, d.complex128)
SIGNED = (d.int8, d.int32, d.int64)
UNSIGNED = (d.uint8, d.uint32, d.uint64)
INTS = SIGNED + UNSIGNED
BOOL = (d.bool_,)
INEXACT = FLOATS + COMPLEX
NUMBERS = INEXACT + INTS
REAL = FLOATS + INTS
EVERY = NUMBERS + BOOL


def reals(low: float = -3.0, high: float = 3.0) -> Domain:
    """Numbers between two bounds; complex numbers from a square of that size off the axes."""

    def sample(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Host:
        if d.is_bool(dtype):
            return random.integers(0, 2, shape).astype(dtype)
        if d.is_integer(dtype):
            bounds = np.floor(low), np.ceil(high)
            first, last = np.maximum(bounds, 0) if d.is_unsigned(dtype) else bounds
            return random.integers(int(first), int(last) + 1, shape).astype(dtype)
        x = random.uniform(low, high, shape)
        if d.is_complex(dtype):
            # Off the axes, where branch cuts are.
            y = random.uniform(0.1, 1.0, shape) * random.choice([-1.0, 1.0], shape)
            return (x + 1j * y).astype(dtype)
        return x.astype(dtype)

    return sample


def nonzero(low: float = 0.2, high: float = 3.0) -> Domain:
    """Numbers of both signs with a size between two bounds."""

    def sample(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Host:
        if d.is_integer(dtype):
            return random.integers(1, int(high) + 1, shape).astype(dtype)
        x = reals(low, high)(random, shape, dtype)
        return (x * random.choice([-1.0, 1.0], shape)).astype(dtype)

    return sample


def halves(n: int = 5) -> Domain:
    """Quarters off the integers and halves, where rounding functions are smooth."""

    def sample(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Host:
        steps = random.integers(-n, n, shape) + random.choice([0.25, 0.75], shape)
        return steps.astype(dtype)

    return sample


def ints(low: int, high: int) -> Domain:
    """int32 between two bounds, whatever the dtype of the other operands."""

    def sample(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Host:
        del dtype
        return random.integers(low, high + 1, shape).astype(np.int32)

    return sample


def flags() -> Domain:
    """Booleans."""

    def sample(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Host:
        del dtype
        return random.integers(0, 2, shape).astype(np.bool_)

    return sample


def bits() -> Domain:
    """Integers of any size."""

    def sample(random: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Host:
        if d.is_bool(dtype):
            return random.integers(0, 2, shape).astype(dtype)
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)

    return sample


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation, its NumPy or SciPy counterpart, and where both are defined.

    ``ulps``: units in the last place by which results may differ from the reference.
    ``order``: how often it is differentiated. ``out``: dtype of results (default: that of
    the operands). ``special``: whether special values give what the reference gives.
    """

    name: str
    fun: Callable[..., Any]
    reference: Callable[..., Any]
    domains: tuple[Domain, ...]
    dtypes: tuple[Any, ...]
    ulps: float = 4
    order: int = 2
    out: Any = None
    special: bool = True

    def __str__(self) -> str:
        return self.name

    def args(self, dtype: Any, shape: tuple[int, ...] = (2, 3)) -> list[Host]:
        """Reproducible operands of a dtype."""
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [domain(random, shape, dtype) for domain in self.domains]

    def expected(self, *args: Host) -> Host:
        """The reference at narrow floats widened to float64, rounded by nobody."""
        return np.asarray(self.reference(*[wide(a) for a in args]))

    def out_dtype(self, dtype: Any) -> Any:
        """The dtype of results for operands of ``dtype``."""
        if self.out is None:
            return dtype
        return np.dtype(self.out) if isinstance(self.out, type) else self.out(dtype)


def wide(x: Host) -> Host:
    """Floats below 64 bits as float64, complex64 as complex128; others as they are."""
    if d.is_complex(x.dtype):
        return x.astype(np.complex128)
    return x.astype(np.float64) if d.is_float(x.dtype) else x


def op(
    name: str, reference: Callable[..., Any], *domains: Domain, dtypes: Any = FLOATS, **rest: Any
) -> Op:
    """An Op for the function ``lax.<name>``."""
    return Op(name, getattr(lax, name), reference, domains, tuple(dtypes), **rest)


def _truncated_div(x: Host, y: Host) -> Host:
    if d.is_integer(x.dtype):
        sign = np.where((x < 0) != (y < 0), -1, 1)
        return (np.abs(x.astype(object)) // np.abs(y.astype(object)) * sign).astype(x.dtype)
    return np.divide(x, y)


def _away_from_zero(x: Host) -> Host:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _clz(x: Host) -> Host:
    width = x.dtype.itemsize * 8
    lengths = [(int(v) & (2**width - 1)).bit_length() for v in x.reshape(-1)]
    return (width - np.array(lengths)).reshape(x.shape).astype(x.dtype)


def _shift_logical(x: Host, y: Host) -> Host:
    unsigned = x.view(f"u{x.dtype.itemsize}") >> y.view(f"u{x.dtype.itemsize}")
    return unsigned.view(x.dtype)


def _sign(x: Host) -> Host:
    if d.is_complex(x.dtype):
        return x / np.abs(x)
    # NumPy loses the sign of -0.0.
    return np.where(x == 0, x, np.sign(x)).astype(x.dtype)


def _mulhi(x: Host, y: Host) -> Host:
    product = x.astype(object) * y.astype(object)
    return (product >> (x.dtype.itemsize * 8)).astype(x.dtype)


def _erf_inv(x: Host) -> Host:
    # SciPy loses the sign of -0.0.
    return np.where(x == 0, x, special.erfinv(x))


def _popcount(x: Host) -> Host:
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}")).astype(x.dtype)


UNARY = [
    op("neg", np.negative, reals(), dtypes=NUMBERS, ulps=0),
    op("sign", _sign, nonzero(), dtypes=NUMBERS, ulps=2),
    op("abs", np.abs, nonzero(), dtypes=INEXACT + SIGNED, ulps=2, out=d.real_of),
    op("square", np.square, reals(), dtypes=NUMBERS, ulps=2),
    op("reciprocal", lambda x: 1 / x, nonzero(), dtypes=INEXACT, ulps=2),
    op("sqrt", np.sqrt, reals(0.2, 5), dtypes=INEXACT, ulps=2),
    op("rsqrt", lambda x: 1 / np.sqrt(x), reals(0.2, 5), dtypes=INEXACT, ulps=4),
    op("cbrt", np.cbrt, nonzero(), ulps=4),
    op("exp", np.exp, reals(), dtypes=INEXACT),
    op("exp2", np.exp2, reals(), dtypes=INEXACT),
    op("expm1", np.expm1, reals(), dtypes=INEXACT, ulps=8),
    op("log", np.log, reals(0.1, 5), dtypes=INEXACT),
    op("log1p", np.log1p, reals(-0.6, 5), dtypes=INEXACT, ulps=8),
    op("logistic", lambda x: 1 / (1 + np.exp(-x)), reals(), dtypes=INEXACT, ulps=8, special=False),
    op("sin", np.sin, reals(), dtypes=INEXACT),
    op("cos", np.cos, reals(), dtypes=INEXACT),
    op("tan", np.tan, reals(-1.2, 1.2), dtypes=INEXACT, ulps=8),
    op("asin", np.arcsin, reals(-0.9, 0.9), dtypes=INEXACT, ulps=8),
    op("acos", np.arccos, reals(-0.9, 0.9), dtypes=INEXACT, ulps=8),
    op("atan", np.arctan, reals(), dtypes=INEXACT, ulps=8),
    op("sinh", np.sinh, reals(), dtypes=INEXACT, ulps=8),
    op("cosh", np.cosh, reals(), dtypes=INEXACT, ulps=8),
    op("tanh", np.tanh, reals(), dtypes=INEXACT, ulps=8),
    op("asinh", np.arcsinh, reals(), dtypes=INEXACT, ulps=8),
    op("acosh", np.arccosh, reals(1.2, 5), dtypes=INEXACT, ulps=8),
    op("atanh", np.arctanh, reals(-0.9, 0.9), dtypes=INEXACT, ulps=8),
    op("floor", np.floor, halves(), ulps=0),
    op("ceil", np.ceil, halves(), ulps=0),
    op("round", _away_from_zero, halves(), ulps=0),
    op("is_finite", np.isfinite, reals(), out=np.bool_, ulps=0),
    op("erf", special.erf, reals(), ulps=8),
    op("erfc", special.erfc, reals(), ulps=16),
    op("ndtr", special.ndtr, reals(), ulps=16),
    op("erf_inv", _erf_inv, reals(-0.9, 0.9), ulps=16),
    op("lgamma", special.gammaln, reals(2.2, 5), ulps=16, special=False),
    op("digamma", special.digamma, reals(2.0, 5), ulps=16, special=False),
    op("bitwise_not", np.bitwise_not, bits(), dtypes=INTS + BOOL, ulps=0),
    op("population_count", _popcount, bits(), dtypes=INTS, ulps=0),
    op("clz", _clz, bits(), dtypes=INTS, ulps=0),
    op("real", np.real, reals(), dtypes=COMPLEX, ulps=0, out=d.real_of),
    op("imag", np.imag, reals(), dtypes=COMPLEX, ulps=0, out=d.real_of),
    op("conj", np.conj, reals(), dtypes=COMPLEX, ulps=0),
    op("copy", np.positive, reals(), dtypes=NUMBERS, ulps=0),
]


BINARY = [
    op("add", np.add, reals(), reals(), dtypes=NUMBERS, ulps=1),
    op("sub", np.subtract, reals(), reals(), dtypes=NUMBERS, ulps=1),
    op("mul", np.multiply, reals(), reals(), dtypes=NUMBERS, ulps=2),
    op("mulhi", _mulhi, bits(), bits(), dtypes=(d.int32, d.uint32, d.int64), ulps=0),
    op("div", _truncated_div, reals(), nonzero(), dtypes=NUMBERS, ulps=4),
    op("rem", np.fmod, nonzero(4.2, 4.8), nonzero(1.2, 1.8), dtypes=REAL, ulps=0),
    op("max", np.maximum, reals(), reals(), dtypes=EVERY, ulps=0),
    op("min", np.minimum, reals(), reals(), dtypes=EVERY, ulps=0),
    op("pow", np.power, reals(0.3, 3), reals(), dtypes=INEXACT, ulps=16),
    op("atan2", np.arctan2, nonzero(), nonzero(), ulps=4),
    op("nextafter", np.nextafter, reals(), reals(), dtypes=(d.float32, d.float64), ulps=2),
    op("eq", np.equal, reals(), reals(), dtypes=EVERY, out=np.bool_),
    op("ne", np.not_equal, reals(), reals(), dtypes=EVERY, out=np.bool_),
    op("lt", np.less, reals(), reals(), dtypes=REAL + BOOL, out=np.bool_),
    op("le", np.less_equal, reals(), reals(), dtypes=REAL + BOOL, out=np.bool_),
    op("gt", np.greater, reals(), reals(), dtypes=REAL + BOOL, out=np.bool_),
    op("ge", np.greater_equal, reals(), reals(), dtypes=REAL + BOOL, out=np.bool_),
    op("eq_to", np.equal, reals(), reals(), dtypes=REAL + BOOL, out=np.bool_, special=False),
    op("lt_to", np.less, reals(), reals(), dtypes=REAL + BOOL, out=np.bool_, special=False),
    op("le_to", np.less_equal, reals(), reals(), dtypes=REAL + BOOL, out=np.bool_, special=False),
    op("bitwise_and", np.bitwise_and, bits(), bits(), dtypes=INTS + BOOL),
    op("bitwise_or", np.bitwise_or, bits(), bits(), dtypes=INTS + BOOL),
    op("bitwise_xor", np.bitwise_xor, bits(), bits(), dtypes=INTS + BOOL),
    op("shift_left", np.left_shift, bits(), reals(0, 6), dtypes=INTS),
    op("shift_right_arithmetic", np.right_shift, bits(), reals(0, 6), dtypes=SIGNED),
    op("shift_right_logical", _shift_logical, bits(), reals(0, 6), dtypes=INTS),
    op("complex", lambda x, y: x + 1j * y, reals(), reals(), dtypes=(d.float32, d.float64),
       out=d.complex_of, special=False),
    op("polygamma", special.polygamma, lambda r, s, t: np.full(s, 2).astype(t), reals(2, 5),
       dtypes=(d.float32, d.float64), ulps=64, order=0, special=False),
    op("zeta", special.zeta, reals(2.2, 5), reals(1, 4), dtypes=(d.float32, d.float64), ulps=64,
       order=0, special=False),
]  # fmt: skip

OTHERS = [
    Op("pow with an int32 exponent", lax.pow, np.power, (nonzero(), ints(-3, 3)), INEXACT, ulps=16,
       special=False),
    Op("integer_pow 3", lambda x: lax.integer_pow(x, 3), lambda x: x**3, (nonzero(),),
       INEXACT + SIGNED, ulps=8),
    Op("integer_pow -2", lambda x: lax.integer_pow(x, -2), lambda x: 1 / (x * x), (nonzero(),),
       INEXACT, ulps=8, special=False),
    Op("integer_pow 0", lambda x: lax.integer_pow(x, 0), np.ones_like, (reals(),), NUMBERS),
    Op("round to even", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), np.rint,
       (halves(),), FLOATS, ulps=0),
    Op("reduce_precision to bfloat16", lambda x: lax.reduce_precision(x, 8, 7),
       lambda x: x.astype(d.bfloat16).astype(x.dtype), (reals(),), (d.float32,), ulps=0, order=0,
       special=False),
    Op("clamp", lax.clamp, lambda a, x, b: np.clip(x, a, b),
       (reals(-2, -1), nonzero(0.2, 3), reals(1, 2)), REAL, ulps=0),
    Op("select_n bool", lax.select_n, lambda w, x, y: np.where(w, y, x),
       (flags(), reals(), reals()), EVERY, ulps=0, special=False),
    Op("select_n int32", lax.select_n, lambda w, *xs: np.choose(w, xs),
       (ints(0, 3), reals(), reals(), reals(), reals()), EVERY, ulps=0, special=False),
    Op("select", lax.select, np.where, (flags(), reals(), reals()), EVERY, ulps=0, special=False),
    Op("convert to float64", lambda x: lax.convert_dtype(x, d.float64),
       lambda x: x.astype(np.float64), (reals(),), REAL + BOOL, ulps=0, out=np.float64),
    Op("convert to float32", lambda x: lax.convert_dtype(x, d.float32),
       lambda x: x.astype(np.float32), (reals(),), REAL + BOOL, ulps=1, out=np.float32,
       order=1),
    Op("convert to complex128", lambda x: lax.convert_dtype(x, d.complex128),
       lambda x: x.astype(np.complex128), (reals(),), EVERY, ulps=0, out=np.complex128,
       special=False),
    Op("convert to int8", lambda x: lax.convert_dtype(x, d.int8),
       lambda x: x.astype(np.int8), (reals(),), REAL + BOOL, ulps=0, out=np.int8, special=False),
    Op("convert to bool", lambda x: lax.convert_dtype(x, d.bool_), lambda x: x.astype(bool),
       (reals(-1, 1),), REAL + BOOL, ulps=0, out=np.bool_),
]  # fmt: skip

SPECIAL = [
    Op("bessel_i0e", bessel.bessel_i0e, special.i0e, (reals(),), FLOATS, ulps=8),
    Op("bessel_i1e", bessel.bessel_i1e, special.i1e, (reals(),), FLOATS, ulps=16, special=False),
    # Programs with loops take long to compile: they are in tests/core/special.
]  # fmt: skip

TABLE = UNARY + BINARY + OTHERS + SPECIAL
