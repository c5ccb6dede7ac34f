"""The systematic table of accuracy: one line says how exact an elementwise function is.

``TABLE`` has a line per function and the largest errors that it may have, in units in the last
place of float32 and float64. The reference is mpmath; at infinities, NaN, poles and outside the
domain it is NumPy or SciPy. Points are the hard ones of the function and a random sample with
uniform logarithms; ``worst`` measures any number of them.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
from mpmath import mp
from scipy import special

import tracebridge.core.lax as lax
import tracebridge.lax as tbl
import tracebridge.numpy as tnp

Host = np.ndarray[Any, Any]

# The largest sizes of random arguments, as powers of two; None is what the dtype can hold.
Exponents = tuple[float | None, float | None]
EVERYWHERE: Exponents = (None, None)
PRECISION = 200
HARD = (0.0, 1.0, 0.5, 2.0, np.inf)


@dataclasses.dataclass(frozen=True)
class Row:
    """A function of one operand, its reference, where it is sampled and how exact it is."""

    name: str
    fun: Callable[..., Any]
    exact: Callable[..., Any]
    host: Callable[..., Any]
    # Largest errors in ulps: float32, float64.
    bounds: tuple[float, float]
    sizes: Exponents = EVERYWHERE
    # Random points come as close to these as floats can.
    near: tuple[float, ...] = ()
    negative: bool = True
    # Of the second operand, where there are two: sizes, and whether it may be negative.
    second: Exponents | None = None
    second_negative: bool = True
    # Results below this size, near zeros of the function, are measured in ulps of it: there the
    # digits that count are lost before the function is called, or in a sum of large terms.
    least: float = 0.0
    # Only random points: tests of the function itself have its poles and ends.
    inside: bool = False

    def __str__(self) -> str:
        return self.name


def sample(row: Row, dtype: Any, count: int) -> Host:
    """``count`` random numbers of the row's sizes, and as many in all around its hard points."""
    random = np.random.default_rng(zlib.crc32(f"{row.name}".encode()))
    info = np.finfo(dtype)
    low = info.minexp if row.sizes[0] is None else row.sizes[0]
    high = info.maxexp if row.sizes[1] is None else row.sizes[1]
    sizes = np.exp2(random.uniform(low, high, count))
    signs = random.choice([-1.0, 1.0], count) if row.negative else 1.0
    found = [sizes * signs]
    for point in row.near:
        each = max(2, count // (2 * len(row.near)))
        steps = np.exp2(random.uniform(-info.nmant - 1, -1, each)) * random.choice([-1, 1], each)
        found.append(point * (1.0 + steps))
        found.append(np.array([point]))
    with np.errstate(over="ignore"):
        return np.concatenate(found).astype(dtype)


def hard_points(row: Row, dtype: Any) -> Host:
    """Zeros, ones, infinities, NaN, and the smallest and largest floats, of both signs."""
    info = np.finfo(dtype)
    dtype = np.dtype(dtype).type
    ends = [info.tiny, info.tiny / dtype(8), info.max, np.sqrt(info.max), info.eps]
    both = np.array([*HARD, *ends, *row.near], dtype)
    # Functions with zeros below 0 lose all their digits beside them.
    below = -both if row.negative else np.array([-0.0, -np.inf], dtype)
    return np.concatenate([both, below, np.array([np.nan], dtype)])


def points(row: Row, dtype: Any, count: int = 24) -> tuple[Host, ...]:
    """The hard points of a function and a random sample; pairs of them for two operands."""
    if row.second is None:
        return (np.concatenate([hard_points(row, dtype), sample(row, dtype, count)]),)
    hard = np.array([0, 1, 3, 0.5, np.inf, np.finfo(dtype).tiny, np.finfo(dtype).max], dtype)
    if row.inside:
        hard = hard[:0]
    hard = np.concatenate([hard, -hard, np.array([np.nan], dtype)[: len(hard)]])
    x, y = (v.ravel() for v in np.meshgrid(hard, hard))
    other = dataclasses.replace(
        row, name=f"{row.name} second", sizes=row.second, near=(), negative=row.second_negative
    )
    first = sample(row, dtype, count)
    second = sample(other, dtype, len(first))
    return np.concatenate([x, first]), np.concatenate([y, second])


def _reference(row: Row, xs: tuple[Any, ...]) -> Any:
    """The value in mpmath, or in NumPy where there is none in the reals."""
    if all(np.isfinite(x) for x in xs) and (len(xs) == 1 or all(xs)):
        try:
            value = row.exact(*[mpmath.mpf(float(x)) for x in xs])
        except (ValueError, ZeroDivisionError, ArithmeticError, NotImplementedError):
            value = None
        if isinstance(value, mpmath.mpf) and mpmath.isfinite(value) and value:
            return value
    with np.errstate(all="ignore"):
        return row.host(*[np.float64(x) for x in xs])


def _error(got: Any, wanted: Any, info: Any, least: float) -> float:
    """The distance in units in the last place of ``wanted``; infinite for a wrong kind."""
    if not isinstance(wanted, mpmath.mpf):
        if np.isnan(wanted) or np.isnan(got):
            return 0.0 if np.isnan(wanted) == np.isnan(got) else np.inf
        if np.isinf(wanted) or wanted == 0:
            if least and wanted == 0 and np.isfinite(got):
                return float(abs(got) / (least * info.eps))
            same = got == wanted and (wanted != 0 or np.signbit(got) == np.signbit(wanted))
            return 0.0 if same else np.inf
        wanted = mpmath.mpf(float(wanted))
    if not np.isfinite(got):
        limit = mpmath.mpf(float(info.max)) * (1 - 4 * float(info.eps))
        return 0.0 if np.isinf(got) and abs(wanted) > limit and got * wanted > 0 else np.inf
    if got and (got < 0) != (wanted < 0) and abs(got) > least * info.eps * 64:
        return np.inf
    # Subnormal results may be flushed to zero.
    tiny = mpmath.mpf(float(info.tiny))
    distance = abs(mpmath.mpf(float(got)) - wanted)
    if abs(wanted) < tiny * (1 + float(info.eps)) and distance <= tiny:
        return 0.0
    wanted = max(abs(wanted), mpmath.mpf(least))
    exponent = max(mpmath.frexp(wanted)[1] - 1, int(info.minexp))
    return float(distance / mpmath.mpf(2) ** (exponent - int(info.nmant)))


def errors(row: Row, xs: tuple[Host, ...], got: Host) -> list[float]:
    """The error of each element, in ulps; subnormal operands may count as zeros."""
    info = np.finfo(got.dtype)
    found: list[float] = []
    with mp.workprec(PRECISION):
        for *x, y in zip(*xs, got, strict=True):
            error = _error(y, _reference(row, tuple(x)), info, row.least)
            if error > 0 and any(0 < abs(v) < info.tiny for v in x):
                flushed = [np.copysign(0.0, v) if abs(v) < info.tiny else v for v in x]
                error = min(error, _error(y, _reference(row, tuple(flushed)), info, row.least))
            found.append(error)
    return found


def _host_sinc(x: Any) -> Any:
    """NaN at infinities as in NumPy, and a true zero at whole numbers but 0."""
    if x == 0 or not np.isfinite(x):
        return np.sinc(x)
    return np.copysign(0.0, -x if x % 2 else x)


def _sinc(x: Any) -> Any:
    return mp.sinpi(x) / (mp.pi * x) if x else mp.mpf(1)


def _lgamma(x: Any) -> Any:
    return mp.log(abs(mp.gamma(x))) if abs(x) < 1000 else mp.re(mp.loggamma(x))


def _by_host(x: Any, y: Any) -> Any:
    """Nothing: the host's function is exact."""
    raise NotImplementedError


def _host_pow(x: Any, y: Any) -> Any:
    """NumPy takes the root for the exponent 0.5 unless exponents differ."""
    return np.power(np.array([x, x]), np.array([y, y]))[0]


def _host_erf_inv(x: Any) -> Any:
    """SciPy loses the sign of zero."""
    return x if x == 0 else special.erfinv(x)


def _host_digamma(x: Any) -> Any:
    """NaN at the poles, where the two sides differ."""
    return np.nan if x == 0 or np.isneginf(x) else special.digamma(x)


def _pow(x: Any, y: Any) -> Any:
    value = mp.power(x, y)
    return mp.re(value) if mp.im(value) == 0 or y == mp.floor(y) else None


UNARY = (
    Row("sqrt", lax.sqrt, mp.sqrt, np.sqrt, (0.5, 0.5)),
    Row("rsqrt", lax.rsqrt, lambda x: 1 / mp.sqrt(x), lambda x: 1 / np.sqrt(x), (1.2, 1.5)),
    Row("cbrt", lax.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), np.cbrt, (0.6, 0.8)),
    Row("exp", lax.exp, mp.exp, np.exp, (4.5, 1.1), (-30, 11), (88.7, 709.7, -87.3, -708.3)),
    Row(
        "exp2",
        lax.exp2,
        lambda x: mp.power(2, x),
        np.exp2,
        (0.8, 0.8),
        (-30, 11),
        (127.9, 1023.9, -126.0, -1022.0),
    ),
    Row(
        "expm1",
        lax.expm1,
        mp.expm1,
        np.expm1,
        (0.9, 1.2),
        (-60, 11),
        (88.7, 709.7, -0.5, 0.5, 0.3, -0.3, 0.3781),
    ),
    Row("log", lax.log, mp.log, np.log, (1.0, 0.8), EVERYWHERE, (1.0,)),
    Row("log2", tnp.log2, lambda x: mp.log(x, 2), np.log2, (1.8, 1.5), EVERYWHERE, (1.0, 8.0)),
    Row("log10", tnp.log10, mp.log10, np.log10, (1.7, 2.0), EVERYWHERE, (1.0, 1000.0)),
    Row("log1p", lax.log1p, mp.log1p, np.log1p, (1.9, 0.8), EVERYWHERE, (-1.0, 1.0, -0.5, -0.3)),
    Row(
        "logistic",
        lax.logistic,
        lambda x: 1 / (1 + mp.exp(-x)),
        special.expit,
        (2.1, 2.1),
        (-30, 11),
        (-87.3, -708.3),
    ),
    Row(
        "sin",
        lax.sin,
        mp.sin,
        np.sin,
        (1.6, 0.5),
        EVERYWHERE,
        (3.141592653589793, 22.0, 1.5707963267948966),
    ),
    Row(
        "cos",
        lax.cos,
        mp.cos,
        np.cos,
        (1.3, 0.5),
        EVERYWHERE,
        (3.141592653589793, 11.0, 1.5707963267948966),
    ),
    Row(
        "tan",
        lax.tan,
        mp.tan,
        np.tan,
        (1.4, 0.6),
        EVERYWHERE,
        (3.141592653589793, 11.0, 1.5707963267948966, 0.7853981633974483),
    ),
    Row("asin", lax.asin, mp.asin, np.arcsin, (2.1, 2.0), (None, 0), (1.0, 0.5, 0.5009)),
    Row("acos", lax.acos, mp.acos, np.arccos, (1.2, 1.1), (None, 0), (1.0, 0.5)),
    Row("atan", lax.atan, mp.atan, np.arctan, (2.1, 2.2), EVERYWHERE, (1.0, 0.41421356)),
    Row("sinh", lax.sinh, mp.sinh, np.sinh, (1.8, 1.8), (-40, 10.5), (1.0, 89.4, 710.4, 0.3)),
    Row("cosh", lax.cosh, mp.cosh, np.cosh, (1.1, 1.3), (-40, 10.5), (1.0, 89.4, 710.4)),
    Row(
        "tanh",
        lax.tanh,
        mp.tanh,
        np.tanh,
        (3.8, 2.3),
        (-40, 10.5),
        (1.0, 0.5, 9.0, 19.9982, 0.12005),
    ),
    Row("asinh", lax.asinh, mp.asinh, np.arcsinh, (1.3, 1.3), EVERYWHERE, (1.0, 0.1, 0.437)),
    Row("acosh", lax.acosh, mp.acosh, np.arccosh, (1.8, 2.0), (0, None), (1.0, 2.0, 1.0867)),
    Row("atanh", lax.atanh, mp.atanh, np.arctanh, (2.2, 1.4), (None, 0), (1.0, 0.5, 0.4245)),
    Row(
        "sinc",
        tnp.sinc,
        _sinc,
        _host_sinc,
        (2.1, 2.0),
        (None, 20),
        (1.0, 0.05, 3.0, 2.9114401, 1.43273),
    ),
    Row("deg2rad", tnp.deg2rad, lambda x: x * mp.pi / 180, np.deg2rad, (0.7, 0.8)),
    Row("rad2deg", tnp.rad2deg, lambda x: x * 180 / mp.pi, np.rad2deg, (0.8, 0.9)),
    Row("square", lax.square, lambda x: x * x, np.square, (0.5, 0.5)),
    Row("reciprocal", lax.reciprocal, lambda x: 1 / x, np.reciprocal, (0.5, 0.5)),
    Row("erf", lax.erf, mp.erf, special.erf, (2.8, 1.2), (None, 4), (1.0, 0.5, 3.9)),
    Row("erfc", lax.erfc, mp.erfc, special.erfc, (3.5, 4.5), (-60, 5), (1.0, 0.5, 9.0, 26.0)),
    Row("erf_inv", lax.erf_inv, mp.erfinv, _host_erf_inv, (2.3, 2.5), (-60, 0), (1.0, 0.5)),
    Row(
        "lgamma",
        lax.lgamma,
        _lgamma,
        lambda x: np.inf if np.isinf(x) else special.gammaln(x),
        (3.0, 3.0),
        EVERYWHERE,
        (1.0, 2.0, 0.5, 1.5, 0.8633163571357727),
        negative=False,
    ),
    Row(
        "digamma",
        lax.digamma,
        mp.digamma,
        _host_digamma,
        (2.0, 2.0),
        EVERYWHERE,
        (1.4616321449683622, 1.0, 10.0),
        negative=False,
    ),
    Row(
        "bessel_i0e",
        tbl.bessel_i0e,
        lambda x: mp.exp(-abs(x)) * mp.besseli(0, x),
        special.i0e,
        (2.4, 2.3),
        (-40, 40),
        (8.0,),
    ),
    Row(
        "bessel_i1e",
        tbl.bessel_i1e,
        lambda x: mp.exp(-abs(x)) * mp.besseli(1, x),
        lambda x: x if x == 0 else special.i1e(x),
        (2.6, 2.6),
        (-40, 40),
        (8.0,),
    ),
    Row(
        "i0",
        tnp.i0,
        lambda x: mp.besseli(0, x),
        lambda x: np.abs(x),
        (3.0, 3.6),
        (-40, 9.4),
        (8.0, 7.2875064, 52.729019, 277.7954, 8.0709525),
    ),
)
BINARY = (
    Row("div", lax.div, lambda x, y: x / y, np.divide, (0.5, 0.5), second=EVERYWHERE),
    Row("rem", lax.rem, _by_host, np.fmod, (0.0, 0.0), (-20, 40), second=(-20, 40)),
    Row("pow", lax.pow, _pow, _host_pow, (0.5, 0.5), (-20, 20), (1.0,), False, (-6, 6)),
    Row("atan2", lax.atan2, mp.atan2, np.arctan2, (1.0, 1.1), second=EVERYWHERE),
    Row("hypot", tnp.hypot, mp.hypot, np.hypot, (1.5, 1.6), second=EVERYWHERE),
    Row(
        "logaddexp",
        tnp.logaddexp,
        lambda x, y: mp.log(mp.exp(x) + mp.exp(y)),
        np.logaddexp,
        (1.1, 1.1),
        (-10, 10),
        least=1.0,
        second=(-10, 10),
    ),
    Row(
        "logaddexp2",
        tnp.logaddexp2,
        lambda x, y: mp.log(mp.power(2, x) + mp.power(2, y), 2),
        np.logaddexp2,
        (1.2, 1.4),
        (-10, 10),
        least=1.0,
        second=(-10, 10),
    ),
    Row(
        "zeta",
        lax.zeta,
        mp.zeta,
        special.zeta,
        (3.1, 2.3),
        (0.1, 5),
        second=(-10, 10),
        negative=False,
        second_negative=False,
        inside=True,
    ),
)
TABLE = UNARY + BINARY
