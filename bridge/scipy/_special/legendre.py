"""Tables of associated Legendre functions, by recurrence in the degree.

Source: NIST DLMF 14.10 (recurrences, derivatives), 14.7 and 14.30 (values, norms). A function of
order ``m + 1`` over the sine is a sum of functions of the degree below, so that derivatives have
no singular term but at order 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.core.config.inner_steps import inner_steps
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact, widened
from tracebridge.scipy._nested import nested

Host = np.ndarray[Any, np.dtype[np.float64]]


def _steps(n: int, normalized: bool) -> tuple[Host, Host, Host]:
    """Factors to the degrees 1 to ``n``: from the diagonal below, from one and two degrees below.

    The last two have a row for a degree and a column for an order, 0 from the diagonal on.
    """
    degree, order = np.arange(1.0, n + 1)[:, None], np.arange(n + 1.0)
    inside = order < degree
    if normalized:
        diagonal = -np.sqrt((2 * degree + 1) / (2 * degree))
        square = np.where(inside, degree**2 - order**2, 1.0)
        one = np.sqrt((4 * degree**2 - 1) / square)
        below = np.maximum((degree - 1) ** 2 - order**2, 0.0)
        two = one * np.sqrt(below / np.maximum(4 * (degree - 1) ** 2 - 1, 1.0))
    else:
        diagonal = 1 - 2 * degree
        less = np.where(inside, degree - order, 1.0)
        one, two = (2 * degree - 1) / less, (degree + order - 1) / less
    return diagonal, np.where(inside, one, 0.0), np.where(inside, two, 0.0)


def _slopes(n: int, normalized: bool) -> Host:
    """Factors of a derivative, of the functions one degree below and two orders less, equal, more.

    Its axes: those three, order, degree. At order 1 they are those of order 0 and 2 at the same
    degree, of the derivative times the sine.
    """
    degree, order = np.arange(n + 1.0), np.arange(n + 1.0)[:, None]
    total, less = degree + order, np.maximum(degree - order, 0.0)
    # Order 0 takes the function of order -2 as one of order 2.
    lower = np.where(order > 1, 4 * (order - 1), math.inf)
    upper = np.where(order > 0, 4 * (order + 1), 2.0)
    ladder = total * (less + 1) / lower
    same = np.where(order > 0, total * (total + 1) / upper - ladder, total * (total + 1) / 2)
    found = np.stack([-ladder * (total - 2) * (total - 1), same, 1 / upper + 0 * degree])
    if normalized:
        ratio = (2 * degree + 1) / np.maximum(2 * degree - 1, 1.0)
        falling = np.maximum(total * (total - 1) * (total - 2), 1.0)
        rising = less * np.maximum(less - 1, 0.0) * np.maximum(less - 2, 0.0)
        scale = [1 / ((less + 1) * falling), less / np.maximum(total, 1.0), rising * (total + 1)]
        found = found * np.sqrt(ratio * np.stack(scale))
    found = np.where((order <= degree) & (degree > 0), found, 0.0)
    if n:
        product = degree * (degree + 1)
        norms = np.stack([np.sqrt(product), np.sqrt(np.maximum(product - 2, 0.0))])
        first = np.stack([product, -np.ones(n + 1)]) * 0.5
        found[0, 1], found[1, 1] = norms * [[0.5], [-0.5]] if normalized else first
        found[:2, 1, 0] = 0.0
    return found


def _table(x: Array, n: int, normalized: bool) -> Any:
    """The functions of the orders and degrees 0 to ``n``: axes order, degree, point."""
    sine = tnp.sqrt((1.0 - x) * (1.0 + x))
    orders = np.arange(n + 1)[:, None]

    def step(carry: tuple[Array, Array], factors: tuple[Array, ...]) -> Any:
        last, this = carry
        degree, diagonal, one, two = factors
        shifted = tnp.concatenate([tnp.zeros_like(this[:1]), this[:-1]])
        inside = one[:, None] * x * this - two[:, None] * last
        following = tnp.where(orders == degree, diagonal * sine * shifted, inside)
        return (this, following), following

    start = 0.5 / math.sqrt(math.pi) if normalized else 1.0
    zeros = tnp.zeros((n + 1, *x.shape), x.dtype)
    first = zeros.at[0].set(start)
    diagonal, one, two = (v.astype(x.dtype) for v in _steps(n, normalized))
    degrees = np.arange(1, n + 1, dtype=np.int32)
    _, rows = scan(step, (zeros, first), (degrees, diagonal[:, 0], one, two))
    return tnp.swapaxes(tnp.concatenate([first[None], rows]), 0, 1)


def _values_of(n: int, normalized: bool) -> Any:
    """The table as a function of the points, with its derivative."""
    wrapped = custom_jvp(lambda x: _table(x, n, normalized))

    def jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> Any:
        values = wrapped(*primals)
        return values, _derivatives(values, primals[0], normalized) * tangents[0]

    wrapped.defjvp(jvp)
    return wrapped


def _derivatives(values: Array, x: Array, normalized: bool) -> Any:
    """The derivatives of a table at the points it is of."""
    n = values.shape[0] - 1
    factors = _slopes(n, normalized).astype(x.dtype)[..., None]
    below = tnp.pad(values, ((2, 2), (1, 0), (0, 0)))[:, :-1]
    terms = [factors[k] * below[2 * k : 2 * k + n + 1] for k in range(3)]
    found = terms[0] + terms[1] + terms[2]
    if not n:
        return found
    first = factors[0, 1, 1:] * values[0, 1:]
    if n > 1:
        first = first + factors[1, 1, 1:] * values[2, 1:]
    return found.at[1, 1:].set(first / tnp.sqrt((1.0 - x) * (1.0 + x)))


def _lpmn(z: Array, m: int, n: int, normalized: bool, slopes: bool) -> Any:
    (x,) = promote_inexact(z)
    name = "lpmn" if slopes else "lpmn_values"
    if is_complex(x.aval.dtype):
        msg = f"{name}: got {x.aval.str_short()}, expected real numbers"
        raise UnsupportedDtypeError(msg)
    if x.ndim != 1:
        raise ArgumentValueError(
            call=name, where="argument z", got=x.aval.str_short(), expected="one axis"
        )

    def run(x: Array) -> Any:
        values = _values_of(n, normalized)(x)
        if not slopes:
            return values[: m + 1]
        return [values[: m + 1], _derivatives(values, x, normalized)[: m + 1]]

    return widened(run)(x)


_lpmn_staged = StagedFunction(_lpmn, "lpmn")


def _orders(call: str, m: object, n: object) -> tuple[int, int]:
    """The highest order and degree, as known integers."""
    order, degree = index_of(m, call, "m"), index_of(n, call, "n")
    if not 0 <= order <= degree:
        raise ArgumentValueError(
            call=call, where="argument m", got=str(order), expected=f"0 to n, which is {degree}"
        )
    return order, degree


@inner_steps()
def lpmn(m: int, n: int, z: ArrayLike) -> tuple[Array, Array]:
    """Associated Legendre functions of all orders and degrees up to the highest, and derivatives.

    They have the phase of Condon and Shortley; those of an order above the degree are 0.

    Args:
        m: highest order, a known integer from 0 to ``n``.
        n: highest degree, a known integer.
        z: real numbers from -1 to 1, with one axis.

    Returns:
        Values and derivatives, each of shape ``(m + 1, n + 1, len(z))``. Derivatives of order 1
        are infinite at the ends.

    Raises:
        ArgumentTypeError: ``m`` or ``n`` is no integer.
        ArgumentValueError: ``m`` is not in its range, or ``z`` has not one axis.
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> values, slopes = tb.scipy.special.lpmn(2, 2, tb.numpy.array([0.5]))
    >>> float(values[0, 2, 0]), float(slopes[0, 2, 0])
    (-0.125, 1.5)
    """
    order, degree = _orders("lpmn", m, n)
    values, slopes = _lpmn_staged((nested(z),), (order, degree, False, True))
    return values, slopes


@inner_steps()
def lpmn_values(m: int, n: int, z: ArrayLike, is_normalized: bool) -> Array:
    """Associated Legendre functions of all orders and degrees up to the highest.

    Differentiable in ``z``.

    Args:
        m: highest order, a known integer from 0 to ``n``.
        n: highest degree, a known integer.
        z: real numbers from -1 to 1, with one axis.
        is_normalized: whether functions are scaled so that those times ``exp(i m phi)`` are
            orthonormal on the sphere; high degrees do not overflow then.

    Returns:
        Array of shape ``(m + 1, n + 1, len(z))``.

    Raises:
        ArgumentTypeError: ``m`` or ``n`` is no integer.
        ArgumentValueError: ``m`` is not in its range, or ``z`` has not one axis.
        UnsupportedDtypeError: the numbers are complex.

    >>> import tracebridge as tb
    >>> tb.scipy.special.lpmn_values(1, 1, tb.numpy.array([0.6]), False)[:, 1, 0].tolist()
    [0.60..., -0.80...]
    """
    order, degree = _orders("lpmn_values", m, n)
    return _lpmn_staged((nested(z),), (order, degree, bool(is_normalized), False))
