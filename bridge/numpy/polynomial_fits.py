"""Polynomials and their roots, or fitted to samples: what needs linear algebra."""

from __future__ import annotations

__all__ = ["poly", "polyfit", "roots"]

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.argument_errors import ArgumentValueError, index_of
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import one_program, remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy import linalg
from tracebridge.numpy._promote import promote_inexact, strongly
from tracebridge.numpy._staging import concrete, shape_of, unwrapped, value_of


def _companion_values(p: Value) -> Any:
    """Eigenvalues of the companion matrix; the first coefficient is not 0."""
    (p,) = promote_inexact(p)
    n = p.aval.shape[0] - 1
    row = -p[1:] / p[0]
    below = tnp.eye(n - 1, n, dtype=p.aval.dtype)
    return linalg.eigvals(tnp.concatenate([row[None], below], 0))


def _all_roots(p: Value) -> Any:
    """As many as the degree could be; NaN for coefficients that lead and are 0."""
    (p,) = promote_inexact(p)
    n = p.aval.shape[0] - 1
    zeros = tnp.cumsum(p != 0) == 0
    count = tnp.minimum(tnp.sum(zeros), n)
    # Times a power of the variable: as many of the smallest roots do not belong to it.
    moved = tnp.roll(p, -count)
    found = _companion_values(
        tnp.where(tnp.all(p == 0), tnp.eye(1, n + 1, dtype=p.dtype)[0], moved)
    )
    order = tnp.argsort(-tnp.abs(lax.stop_gradient(found)))
    kept = tnp.arange(n) < n - count
    return tnp.where(kept, found[order], tnp.asarray(np.nan + 1j * np.nan, found.dtype))


_companion_staged = StagedFunction(_companion_values, "roots")
_all_roots_staged = StagedFunction(_all_roots, "roots")


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots of a polynomial, as eigenvalues of its companion matrix; on the CPU alone.

    Args:
        p: coefficients of shape ``(n,)``, highest power first; integers become floats.
        strip_zeros: whether zeros at both ends are left out first, which decides the size of the
            result by values; pass False where ``p`` is traced.

    Returns:
        Complex array with one element per root. Without ``strip_zeros`` it has ``n - 1``: roots by
        descending absolute value, NaN behind them for each zero that leads ``p``.

    Raises:
        RankError: ``p`` has more than one axis.
        ConcretizationTypeError: ``p`` is traced and ``strip_zeros`` is True.

    >>> import tracebridge.numpy as tnp
    >>> tnp.roots(tnp.array([1.0, -3.0, 2.0])).real.round(4).tolist()
    [2.0, 1.0]
    """
    values = tnp.atleast_1d(tnp.asarray(as_value(p, "roots")))
    if values.ndim != 1:
        msg = f"roots: coefficients must be a vector, got shape {values.shape}"
        raise RankError(msg)
    if values.size <= 1:
        return _none(values)
    if not strip_zeros:
        return _all_roots_staged((values,))
    hint = "pass strip_zeros=False"
    known = concrete(values, "roots: zeros at the ends decide how many roots there are", hint)
    places = np.flatnonzero(known)
    if not places.size:
        return _none(values)
    first, last = int(places[0]), int(places[-1])
    nonzero_roots = _none(values)
    if first < last:
        nonzero_roots = _companion_staged((values[first : last + 1],))
    return tnp.concatenate([nonzero_roots, tnp.zeros(values.size - 1 - last, nonzero_roots.dtype)])


def _none(p: Array) -> Array:
    # As of a sum with a float and a complex number: integers have roots of the default floats.
    return tnp.zeros(0, tnp.result_type(p, 1.0, 1j))


def _poly(zeros: Value) -> Any:
    (zeros,) = promote_inexact(zeros)
    if zeros.aval.shape[0] == 0:
        return full_of(zeros.aval.update(shape=()), 1)
    one = full_of(zeros.aval.update(shape=(1,)), 1)
    scalar = zeros_of(zeros.aval.update(shape=()))
    total = one
    for i in range(zeros.aval.shape[0]):
        zero = lax.index_in_dim(zeros, i, 0, keepdims=False)
        longer = lax.pad(total, scalar, [(0, 1, 0)])
        total = lax.sub(longer, lax.pad(lax.mul(total, zero), scalar, [(1, 0, 0)]))
    return total


_poly_staged = StagedFunction(strongly(_poly), "poly")


@one_program
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The polynomial with the given zeros and leading coefficient 1.

    Args:
        seq_of_zeros: vector of zeros; or a square matrix, whose eigenvalues they are.

    Returns:
        The coefficients, highest power first; those of a real matrix are real.

    Raises:
        RankError: the zeros are neither a vector nor a square matrix.

    >>> import tracebridge.numpy as tnp
    >>> tnp.poly(tnp.array([1.0, 2.0])).tolist()
    [1.0, -3.0, 2.0]
    """
    shape = shape_of(seq_of_zeros)
    zeros = value_of(seq_of_zeros)
    if len(shape) == 2 and shape[0] == shape[1] and shape[0]:
        found = _poly_staged((linalg.eigvals(zeros),))
        return found if is_complex(zeros.aval.dtype) else found.real
    if len(shape) > 1:
        msg = f"poly: expected a vector of zeros or a square matrix, got shape {shape}"
        raise RankError(msg)
    return _poly_staged((zeros.reshape(-1),))


def _polyfit(x: Value, y: Value, w: Value | None, deg: int, rcond: float | None) -> list[Any]:
    x, y = promote_inexact(x, y)
    if x.aval.ndim != 1 or y.aval.ndim not in (1, 2) or x.aval.shape[0] != y.aval.shape[0]:
        msg = f"polyfit: got points {x.aval.str_short()} and samples {y.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="(m,), and (m,) or (m, k)")
    left, right = tnp.vander(x, deg + 1), y
    if w is not None:
        if w.aval.shape != x.aval.shape:
            msg = f"polyfit: got weights {w.aval.str_short()} for points {x.aval.str_short()}"
            raise ShapeMismatchError(msg, expected=f"shape {x.aval.shape}")
        left = left * w[:, None]
        right = right * (w if y.aval.ndim == 1 else w[:, None])
    # Columns of length 1 make singular values comparable.
    scale = tnp.sqrt(tnp.sum(tnp.abs(left) ** 2, 0))
    scale = tnp.where(scale == 0, 1, scale)
    left = left / scale
    c, residuals, rank, s = linalg.lstsq(left, right, rcond)
    c = c / (scale if y.aval.ndim == 1 else scale[:, None])
    return [c, residuals, rank, s, left, scale]


_polyfit_staged = StagedFunction(_polyfit, "polyfit")
_coefficients_staged = StagedFunction(lambda *args: _polyfit(*args)[0], "polyfit")


@remembered
def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Any:
    """The polynomial of a degree that fits samples best, by least squares.

    Args:
        x: points of shape ``(m,)``; integers become floats.
        y: samples of shape ``(m,)`` or ``(m, k)``.
        deg: the degree.
        rcond: singular values up to this times the largest count as 0; ``m`` roundings by default.
        full: whether residuals, rank, singular values and ``rcond`` are wanted too.
        w: weights of the differences, of shape ``(m,)``.
        cov: whether the covariance of the coefficients is wanted too; ``"unscaled"``: without
            scaling by the residuals.

    Returns:
        Coefficients, highest power first, of shape ``(deg + 1,)`` or ``(deg + 1, k)``; with
        ``full`` ``(coefficients, residuals, rank, singular values, rcond)``; with ``cov``
        ``(coefficients, covariance)``.

    Raises:
        ArgumentValueError: ``deg`` is negative, or there are too few points for ``cov``.
        ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.arange(4.0)
    >>> tnp.polyfit(x, 2 * x + 1, 1).round(3).tolist()
    [2.0, 1.0]
    """
    degree = index_of(deg, "polyfit", "deg")
    if degree < 0:
        msg = f"polyfit: deg={deg}, expected at least 0"
        raise ArgumentValueError(msg)
    x, y = unwrapped(x), unwrapped(y)
    size = tnp.size(x)
    if rcond is None:
        rcond = size * float(finfo(tnp.result_type(x, y, 1.0)).eps)
    weights = () if w is None else (w,)
    if not full and cov is False:
        run = _coefficients_staged if weights else _unweighted_coefficients_staged
        return run((x, y, *weights), (degree, float(rcond)))
    run = _polyfit_staged if weights else _unweighted_staged
    c, residuals, rank, s, left, scale = run((x, y, *weights), (degree, float(rcond)))
    if full:
        return c, residuals, rank, s, tnp.asarray(rcond, s.dtype)
    base = linalg.inv(tnp.conj(left.T) @ left) / tnp.outer(scale, scale)
    if cov != "unscaled":
        if size <= degree + 1:
            msg = f"polyfit: {size} points for {degree + 1} coefficients leave no covariance"
            raise ArgumentValueError(msg, hint="pass cov='unscaled', or more points")
        factor = residuals / (size - degree - 1)
        return c, base * factor[0] if c.ndim == 1 else base[..., None] * factor
    return c, base if c.ndim == 1 else base[..., None]


_unweighted_staged = StagedFunction(
    lambda x, y, deg, rcond: _polyfit(x, y, None, deg, rcond), "polyfit"
)
_unweighted_coefficients_staged = StagedFunction(
    lambda x, y, deg, rcond: _polyfit(x, y, None, deg, rcond)[0], "polyfit"
)
