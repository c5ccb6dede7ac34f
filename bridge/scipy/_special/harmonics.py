"""Bessel functions of whole order, spherical harmonics, generalized exponential integrals.

Sources: NIST DLMF 10.17 and 10.74 (Bessel functions), 14.10 and 14.30 (spherical harmonics).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.core.config.inner_steps import inner_steps
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_shape, broadcast_to, promote_inexact, widened
from tracebridge.scipy._nested import nested
from tracebridge.scipy._special.elementwise import floats
from tracebridge.scipy._special.expn_formulas import expn as expn_formula
from tracebridge.scipy._special.series import eps_of, horner

_FAR = 25.0
"""From here on the expansion in inverse powers is exact, with 24 terms."""


def _hankel(order: int) -> list[float]:
    """The coefficients of ``z**-k``."""
    found = [1.0]
    for k in range(1, 24):
        found.append(found[-1] * (4.0 * order**2 - (2 * k - 1) ** 2) / (8.0 * k))
    return found


def _far_start(z: Array) -> tuple[Any, Any]:
    """The functions of order 0 and 1 for ``z >= 25``."""
    eps = eps_of(z)
    root = tnp.sqrt(1.0 / (math.pi * z))
    sin, cos = tnp.sin(z), tnp.cos(z)
    inverse = 1.0 / z
    square = -inverse * inverse
    found: list[Any] = []
    # cos(z - pi / 4) and sin(z - pi / 4), but for the root of 2; a quarter turn for each order.
    for order, (c, s) in enumerate(((cos + sin, sin - cos), (sin - cos, -(cos + sin)))):
        a = [v for k, v in enumerate(_hankel(order)) if k < 2 or abs(v) * _FAR**-k > eps * 1e-2]
        p, q = horner(square, a[0::2]), inverse * horner(square, a[1::2])
        found.append(root * (p * c - q * s))
    return found[0], found[1]


def _bessel_all(z: Array, order: int, n_iter: int) -> Any:
    """Orders 0 to ``order``: upwards where ``z`` is larger than they, else from far above."""
    split = max(_FAR, order + 1.0)
    start = max(int(split + 13.0 * split ** (1 / 3)) + 5, order + 1, n_iter)
    size = tnp.abs(z)
    upwards = size > split
    low, high = tnp.where(upwards, 1.0, z), tnp.where(upwards, size, split)

    def down(carry: tuple[Array, ...], n: Array) -> Any:
        ratio, total = carry
        below = 2.0 * n - low * ratio
        tiny = 1e-30
        below = tnp.where(tnp.abs(below) < tiny, tiny, below)
        ratio = low / below  # of the functions of order n and n - 1
        even = n - 2.0 * tnp.floor(0.5 * n) == 1
        # The sum of the functions above, over that of order n - 1; 1 = J0 + 2 (J2 + J4 + ...).
        total = ratio * total + tnp.where(even, tnp.where(n == 1, 1.0, 2.0), 0.0)
        return (ratio, total), ratio

    zero = tnp.zeros_like(low)
    counts = lax.iota(z.aval.dtype, start) + 1.0
    (_, total), ratios = scan(down, (zero, zero), counts, reverse=True)
    far_0, far_1 = _far_start(high)
    first = tnp.where(upwards, far_0, 1.0 / total)
    sign = tnp.where(z < 0, -1.0, tnp.ones_like(z))
    second = tnp.where(upwards, sign * far_1, first * ratios[0])
    if order == 0:
        return tnp.stack([first])
    signed = sign * high

    def up(carry: tuple[Array, ...], step: tuple[Array, ...]) -> Any:
        last, this = carry
        n, ratio = step
        following = tnp.where(upwards, 2.0 * n / signed * this - last, ratio * this)
        return (this, following), this

    steps = counts[:order], ratios[1 : order + 1]
    _, higher = scan(up, (first, second), steps)
    return tnp.concatenate([first[None], higher])


def _bessel_of(order: int, n_iter: int) -> Any:
    """The function of ``z`` with its derivative ``(J(n - 1) - J(n + 1)) / 2``."""

    def plain(z: Array) -> Any:
        nowhere, end = tnp.isnan(z), tnp.isinf(z)
        bessel = _bessel_all(tnp.where(nowhere | end, 1.0, z), order, n_iter)
        return tnp.where(nowhere, math.nan, tnp.where(end, 0.0, bessel))

    wrapped = custom_jvp(plain)

    def jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Any:
        more = _bessel_of(order + 1, n_iter)(primals[0])
        lower = tnp.concatenate([-more[1:2], more[:order]])
        return more[: order + 1], 0.5 * (lower - more[1:]) * tangents[0]

    wrapped.defjvp(jvp)
    return wrapped


def _bessel_jn(z: Array, order: int, n_iter: int) -> Any:
    (z,) = promote_inexact(z)
    if is_complex(z.aval.dtype):
        msg = f"bessel_jn: got {z.aval.str_short()}, expected real numbers"
        raise UnsupportedDtypeError(msg)
    return widened(_bessel_of(order, n_iter))(z)


_bessel_staged = StagedFunction(_bessel_jn, "bessel_jn")


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Bessel functions of the first kind, of the orders 0 to ``v``.

    Errors are below 20 units in the last place of the largest one, for ``z`` of any size.

    Args:
        z: real numbers.
        v: highest order, a known integer, not negative.
        n_iter: from which order the recurrence goes downwards at least; more are taken where they
            are needed.

    Returns:
        Array of shape ``(v + 1, *z.shape)``.

    Raises:
        ArgumentTypeError: ``v`` or ``n_iter`` is no integer.
        ArgumentValueError: ``v`` is negative.
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> tb.scipy.special.bessel_jn(1.0, v=1).tolist()
    [0.765..., 0.440...]
    """
    order, count = index_of(v, "bessel_jn", "v"), index_of(n_iter, "bessel_jn", "n_iter")
    if order < 0:
        raise ArgumentValueError(
            call="bessel_jn", where="argument v", got=str(order), expected="at least 0"
        )
    return _bessel_staged((nested(z),), (order, count))


def _legendre(n: Array, m: Array, theta: Array, n_max: int) -> Any:
    """Associated Legendre functions of the cosine, normalized on the sphere, for ``0 <= m``."""
    cos, sin = tnp.cos(theta), tnp.sin(theta)

    def step(carry: tuple[Array, ...], degree: Array) -> Any:
        last, this = carry
        # Up to the order along the diagonal, then up to the degree.
        diagonal = degree <= m
        on_diagonal = -tnp.sqrt((2.0 * degree + 1.0) / (2.0 * degree)) * sin * this
        below = tnp.where(diagonal, 1.0, degree * degree - m * m)
        first = tnp.sqrt((4.0 * degree * degree - 1.0) / below)
        less = degree - 1.0
        second = tnp.sqrt(
            tnp.maximum(less * less - m * m, 0.0) / tnp.maximum(4.0 * less * less - 1.0, 1.0)
        )
        upwards = first * (cos * this - second * last)
        following = tnp.where(diagonal, on_diagonal, upwards)
        use = degree <= n
        last = tnp.where(use, tnp.where(diagonal, 0.0, this), last)
        return (last, tnp.where(use, following, this)), None

    start = tnp.full_like(theta, math.sqrt(0.25 / math.pi))
    degrees = lax.iota(theta.aval.dtype, n_max) + 1.0
    (_, polynomial), _ = scan(step, (tnp.zeros_like(theta), start), degrees)
    return tnp.where(m > n, 0.0, polynomial)


def _harmonic_of(n_max: int) -> Any:
    """The function of ``n, m, theta, phi``; its derivatives by ladder operators."""

    def plain(n: Array, m: Array, theta: Array, phi: Array) -> Any:
        size = tnp.abs(m)
        odd = size - 2.0 * tnp.floor(0.5 * size) == 1
        value = _legendre(n, size, theta, n_max)
        value = tnp.where((m < 0) & odd, -value, value)
        nowhere = (n < 0) | (n != tnp.floor(n)) | (m != tnp.floor(m))
        value = tnp.where(nowhere, math.nan, value)
        return lax.complex(value * tnp.cos(m * phi), value * tnp.sin(m * phi))

    wrapped = custom_jvp(plain)

    def jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Any:
        n, m, theta, phi = primals
        ans = wrapped(*primals)
        up = tnp.sqrt(tnp.maximum((n - m) * (n + m + 1.0), 0.0))
        down = tnp.sqrt(tnp.maximum((n + m) * (n - m + 1.0), 0.0))
        turn = lax.complex(tnp.cos(phi), tnp.sin(phi))
        by_theta = up * tnp.conj(turn) * wrapped(n, m + 1.0, theta, phi)
        by_theta = 0.5 * (by_theta - down * turn * wrapped(n, m - 1.0, theta, phi))
        by_phi = lax.complex(-m * lax.imag(ans), m * lax.real(ans))
        return ans, by_theta * tangents[2] + by_phi * tangents[3]

    wrapped.defjvp(jvp)
    return wrapped


def _sph_harm(*args: Any) -> Any:
    *operands, n_max = args
    n, m, theta, phi = promote_inexact(*operands)
    shape = broadcast_shape("sph_harm_y", [v.aval.shape for v in (n, m, theta, phi)])
    n = tnp.minimum(n, n_max)
    values = [broadcast_to(v, shape) for v in (n, m, theta, phi)]
    narrow = np.dtype(np.float32)
    if eps_of(values[0]) > 1e-6:
        values = [lax.convert_dtype(v, narrow) for v in values]
    return _harmonic_of(n_max)(*values)


_sph_harm_staged = StagedFunction(_sph_harm, "sph_harm_y")


def _highest(n: object) -> int:
    """The largest of degrees that are known."""
    if isinstance(n, Tracer):
        raise ArgumentValueError(
            call="sph_harm_y",
            where="argument n_max",
            got="None, and degrees that are traced",
            expected="the highest degree",
            hint="pass n_max, a Python integer",
        )
    return max(0, int(np.max(np.asarray(n), initial=0)))


@inner_steps()
def sph_harm_y(
    n: Array,
    m: Array,
    theta: Array,
    phi: Array,
    diff_n: int | None = None,
    n_max: int | None = None,
) -> Array:
    """Spherical harmonics, with the phase of Condon and Shortley.

    Args:
        n: degrees, whole numbers from 0 on.
        m: orders, whole numbers; the result is 0 where ``abs(m) > n``.
        theta: polar angles, from the pole at 0 to that at pi.
        phi: azimuths.
        diff_n: only ``None`` and 0: derivatives in the angles are those of ``jvp`` and ``grad``.
        n_max: the highest degree, a known integer; others are taken for it. ``None`` means the
            largest of ``n``, which must be known then.

    Returns:
        Complex array of the common shape; NaN where ``n`` is negative. There is no derivative in
        ``n`` and ``m``, which are whole.

    Raises:
        ArgumentTypeError: ``n_max`` is no integer.
        ArgumentValueError: ``diff_n`` asks for derivatives, or ``n_max`` is needed and missing.

    >>> import tracebridge as tb
    >>> complex(tb.scipy.special.sph_harm_y(1, 0, 0.0, 0.0))
    (0.488...+0j)
    """
    if diff_n not in (None, 0):
        raise ArgumentValueError(
            call="sph_harm_y",
            where="argument diff_n",
            got=str(diff_n),
            expected="None or 0",
            hint="use jvp or grad for the derivatives",
        )
    most = _highest(n) if n_max is None else max(0, index_of(n_max, "sph_harm_y", "n_max"))
    return _sph_harm_staged((n, m, theta, phi), (most,))


_expn_staged = floats("expn", expn_formula, full=True)


def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """The generalized exponential integral: of ``exp(-x t) / t**n`` from 1 to infinity.

    Accurate to 40 units in the last place.

    Args:
        n: orders, whole numbers; the result is NaN between them and below 0. They have no
            derivative.
        x: real numbers; the result is NaN below 0. Differentiable.

    Raises:
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.expn(2, 1.0))
    0.148...
    """
    return _expn_staged((nested(n), nested(x)))
