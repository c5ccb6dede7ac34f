"""Functions of matrices from Taylor series of a function of numbers.

Source: Davies, Higham (2003), SIAM J. Matrix Anal. Appl. 25(2), the Schur-Parlett method. In a
Schur form whose close eigenvalues are neighbours, each block of close ones has the function of its
Taylor series, and Sylvester's equations give what is between the blocks. Sizes are static here:
the blocks are masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge._api.derivatives.jet import jet
from tracebridge.core.control.solve.custom_linear_solve import custom_linear_solve
from tracebridge.core.linalg.matrices import adjoint, as_dtype, eye_of, repeated
from tracebridge.core.linalg.schur import lower_turn
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.scipy.linalg._eigen import complex_schur

_MORE_TERMS = {np.dtype(np.complex64): 5, np.dtype(np.complex128): 10}
"""How many terms of a series follow those that equal eigenvalues need."""
_CLOSE = {np.dtype(np.complex64): 0.05, np.dtype(np.complex128): 0.03}
"""The part of the radius of convergence within which eigenvalues are close."""
_MOST_TERMS = 48


@dataclass(frozen=True)
class Series:
    """Of a function at one number for each row: in powers of the distance over ``scales``."""

    centers: Any
    scales: Any
    coefficients: Any

    def at(self, rows: Any) -> Series:
        """The series of some rows."""
        coefficients = tnp.take(self.coefficients, rows, axis=1)
        return Series(tnp.take(self.centers, rows), tnp.take(self.scales, rows), coefficients)


def taylor_series(func: Callable[[Any], Any], d: Any) -> Series:
    """Those of ``func`` at the eigenvalues ``d``."""
    order = min(d.shape[0] - 1 + _MORE_TERMS[d.dtype], _MOST_TERMS)
    # Coefficients of high order are to be numbers of moderate size.
    scales = as_dtype(tnp.clip(tnp.abs(d), 0.1, 10), d.dtype)
    series = [scales, *[tnp.zeros_like(d)] * (order - 1)]
    value, terms = jet(func, (d,), (series,), factorial_scaled=False)
    coefficients = tnp.stack([as_dtype(tnp.asarray(c), d.dtype) for c in (value, *terms)])
    return Series(d, scales, coefficients)


def groups_of(series: Series) -> Any:
    """For each eigenvalue the first one of those that are close to it, or close to close ones."""
    d, size = series.centers, tnp.abs(lax.stop_gradient(series.coefficients))
    order = min(size.shape[0] - 1, 12)
    # Late terms, against the first ones, tell how far the series converges.
    late, first = tnp.maximum(size[order], size[order - 1]), tnp.maximum(size[0], size[1])
    known = (late > 0) & tnp.isfinite(late) & tnp.isfinite(first)
    radius = (first / tnp.where(known, late, 1)) ** (1 / (order - 1)) * tnp.abs(series.scales)
    radius = tnp.where(known, radius, 0)
    gap = tnp.abs(d[:, None] - d[None, :])
    reach = _CLOSE[d.dtype] * tnp.minimum(radius[:, None], radius[None, :])
    # Rounding alone moves equal eigenvalues that far.
    eps = 100 * float(tnp.finfo(d.dtype).eps)
    reach = tnp.maximum(reach, eps * tnp.maximum(tnp.abs(d[:, None]), tnp.abs(d[None, :])))
    close = as_dtype((gap <= reach) | np.eye(d.shape[0], dtype=bool), gap.dtype)
    for _ in range(int(np.ceil(np.log2(max(d.shape[0], 2))))):
        close = tnp.minimum(tnp.matmul(close, close), 1)
    return tnp.argmax(close > 0, axis=1)


def grouped(t: Any, z: Any, groups: Any) -> list[Any]:
    """The Schur form with equal ``groups`` side by side: neighbours change places by rotations."""
    n = t.shape[-1]
    place = np.arange(n - 1)

    def step(i: Any, state: Any) -> Any:
        t, z, groups = state
        a, b = tnp.diagonal(t), tnp.diagonal(t, 1)
        swap = (groups[:-1] > groups[1:]) & (tnp.asarray(place, i.dtype) % 2 == i % 2)
        # The eigenvector of the second eigenvalue comes first.
        x, y = b, a[1:] - a[:-1]
        length = tnp.sqrt(tnp.abs(x) ** 2 + tnp.abs(y) ** 2)
        swap = swap & (length > 0)
        length = tnp.where(swap, length, 1)
        x, y = (tnp.where(swap, v / as_dtype(length, v.dtype), w) for v, w in ((x, 1), (y, 0)))
        first, second = tnp.append(swap, False), tnp.append(False, swap)
        main = tnp.where(first, tnp.append(x, 1), tnp.where(second, tnp.append(1, x.conj()), 1))
        turn = tnp.diag(main) + tnp.diag(y, -1) - tnp.diag(y.conj(), 1)
        t = tnp.triu(tnp.matmul(adjoint(turn), tnp.matmul(t, turn)))
        after, before = tnp.append(groups[1:], 0), tnp.append(0, groups[:-1])
        groups = tnp.where(first, after, tnp.where(second, before, groups))
        return t, tnp.matmul(z, turn), groups

    return list(repeated(n if n > 1 else 0, step, (t, z, groups)))


def together(groups: Any) -> Any:
    """Which elements of a matrix belong to the blocks."""
    return groups[:, None] == groups[None, :]


def function_of_triangular(t: Any, groups: Any, series: Series) -> Any:
    """The function of a matrix that is triangular but for its blocks."""
    n = t.shape[-1]
    same = together(groups)
    unit = eye_of(t)
    shifted = tnp.where(same, t - series.centers[:, None] * unit, 0) / series.scales[:, None]
    coefficients = series.coefficients
    order = coefficients.shape[0] - 1
    # At the ends of the domain of the function eigenvalues that are alone need its value only.
    alone = (tnp.sum(same, axis=1) == 1)[None] & ~tnp.isfinite(coefficients)
    alone = alone.at[0].set(False)
    singular = _without_value(tnp.diagonal(shifted), tnp.where(alone, coefficients, 0)[1])
    coefficients = tnp.where(alone, 0, coefficients)
    # More eigenvalues than the series has terms for.
    many = tnp.max(tnp.sum(same, axis=1)) > order + 1 - _MORE_TERMS[t.dtype]
    lost = many & (tnp.max(tnp.abs(lax.stop_gradient(shifted))) > 0.1)

    def horner(i: Any, f: Any) -> Any:
        c = lax.dynamic_index_in_dim(coefficients, order - 1 - i, keepdims=False)
        return c[:, None] * unit + tnp.matmul(shifted, f)

    blocks = repeated(order, horner, coefficients[-1][:, None] * unit)
    blocks = tnp.where(lost, np.nan, blocks) + singular[:, None] * unit
    upper = tnp.triu(tnp.ones((n, n), bool)) & ~same

    def commutator(x: Any) -> Any:
        return tnp.where(upper, tnp.matmul(t, x) - tnp.matmul(x, t), 0)

    fixed = lax.stop_gradient(t)
    rest = custom_linear_solve(
        lambda x: commutator(tnp.where(upper, x, 0)),
        -commutator(blocks),
        lambda _, right: _between(fixed, upper, right, transposed=False),
        lambda _, right: _between(fixed, upper, right, transposed=True),
    )
    return blocks + tnp.where(upper, rest, 0)


@custom_jvp
def _without_value(x: Any, slope: Any) -> Any:
    """Zeros with the derivative ``slope`` where that is not 0, though it is infinite."""
    return tnp.zeros_like(x)


@_without_value.defjvp
def _without_value_jvp(primals: Any, tangents: Any) -> Any:
    x, slope = primals
    return _without_value(x, slope), tnp.where(slope != 0, slope * tangents[0], 0)


def _between(t: Any, upper: Any, right: Any, *, transposed: bool) -> Any:
    """What is between the blocks, one diagonal after the other, those next to the main first.

    Transposed, where T is lower triangular, the corner is first.
    """
    n = t.shape[-1]
    d = tnp.diagonal(t)
    gap = tnp.where(upper, d[:, None] - d[None, :], 1)
    others = tnp.triu(t, 1)
    others = others.T if transposed else others
    distance = np.arange(n)[None, :] - np.arange(n)[:, None]

    def step(i: Any, x: Any) -> Any:
        here = tnp.asarray(distance, i.dtype) == (n - 1 - i if transposed else i + 1)
        known = tnp.matmul(others, x) - tnp.matmul(x, others)
        return tnp.where(here & upper, (right - known) / gap, x)

    return repeated(max(n - 1, 0), step, tnp.zeros_like(right))


def form_in_groups(a: Any, func: Callable[[Any], Any]) -> tuple[Any, Any, Any, Series]:
    """A Schur form in groups, and for its rows the groups and the series of ``func``.

    Its derivatives leave out how the vectors of a group turn into each other, which the function
    does not depend on: the tangent of T has elements below the diagonal within blocks.
    """
    t, z, d = _form_staged((a,))
    series = taylor_series(func, d)
    parts = (series.centers, series.scales, series.coefficients)
    t, z, groups, *parts = _in_groups_staged((a, t, z, *parts))
    return t, z, groups, Series(*parts)


def _form(a: Any) -> list[Any]:
    t, z = complex_schur(lax.stop_gradient(a))
    return [t, z, tnp.diagonal(t)]


def _in_groups(a: Any, t: Any, z: Any, *parts: Any) -> list[Any]:
    series = Series(*parts)
    t, z, groups = grouped(t, z, groups_of(series))
    t, z = _moving_form(a, t, z, groups)
    series = series.at(groups)
    return [t, z, groups, series.centers, series.scales, series.coefficients]


# What the user's function has no part in is two programs, compiled once for all functions.
_form_staged = StagedFunction(_form, "funm_schur")
_in_groups_staged = StagedFunction(_in_groups, "funm_groups")


@custom_jvp
def _moving_form(a: Any, t: Any, z: Any, groups: Any) -> Any:
    """``t`` and ``z``, a form of ``a``."""
    return t, z


@_moving_form.defjvp
def _moving_form_jvp(primals: Any, tangents: Any) -> Any:
    a, t, z, groups = primals
    t, z = _moving_form(a, t, z, groups)
    lower = tnp.tril(tnp.ones(t.shape, bool)) & ~together(groups)
    inner = tnp.matmul(adjoint(z), tnp.matmul(as_dtype(tangents[0], t.dtype), z))
    turn = lower_turn(t, lower, inner)
    turn = turn - adjoint(turn)
    change = inner - (tnp.matmul(turn, t) - tnp.matmul(t, turn))
    return (t, z), (tnp.where(lower, 0, change), tnp.matmul(z, turn))
