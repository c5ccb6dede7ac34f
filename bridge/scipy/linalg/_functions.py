"""Functions of matrices, and Sylvester's equation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge.core.config.inner_steps import inner_steps
from tracebridge.core.control.solve.custom_linear_solve import custom_linear_solve
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.linalg.family import check_square, matrices, rounded
from tracebridge.core.linalg.matrices import adjoint, as_dtype, complex_dtype, eye_of, repeated
from tracebridge.core.linalg.triangular import triangular_solve
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import one_program
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_shape, broadcast_to
from tracebridge.numpy._staging import is_traced
from tracebridge.scipy.linalg._eigen import complex_schur, inexact
from tracebridge.scipy.linalg._taylor import (
    Series,
    form_in_groups,
    function_of_triangular,
    together,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


def _square(name: str, a: Any) -> tuple[Any, Any]:
    (x,) = inexact(a)
    (x,), dtype = matrices(name, x)
    check_square(name, x.aval)
    return x, dtype


def _diagonals(d: Any) -> tuple[Any, Any]:
    return d[..., :, None], d[..., None, :]


def funm(A: ArrayLike, func: Callable[[Array], Array], disp: bool = True) -> Any:
    """A function of a matrix, from its values at the eigenvalues.

    Args:
        A: matrix of shape ``(n, n)``.
        func: elementwise function of complex arrays.
        disp: whether the result comes alone; otherwise with an estimate of its error.

    Returns:
        The matrix, or ``(matrix, error)``. Close and equal eigenvalues, also of matrices that are
        not normal, take the function's Taylor series, which it must have there; its derivatives
        come from the series too. NaN where more than about 40 eigenvalues of such a matrix are
        close.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.funm(4 * tb.numpy.eye(2), tb.numpy.sqrt).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    a, dtype = _square("funm", A)
    if not a.size:
        return (a, tnp.zeros((), tnp.finfo(a.dtype).dtype)) if not disp else a
    t, z, groups, series = form_in_groups(a, func)
    parts = (series.centers, series.scales, series.coefficients)
    out = _function_of_form_staged((t, z, groups, *parts))
    if not tnp.iscomplexobj(a):
        # Where the imaginary part is rounding, the function is real.
        out = rounded(tnp.real(out), dtype) if _is_real(out) else out
    if disp:
        return out
    tiny = float(tnp.finfo(t.dtype).eps)
    rows, columns = _diagonals(tnp.diagonal(t))
    least = tnp.min(tnp.where(together(groups), np.inf, tnp.abs(rows - columns)), initial=1.0)
    size = tnp.sum(tnp.abs(tnp.triu(t, 1)))
    error = tnp.minimum(1.0, tnp.maximum(tiny, tiny / least * size))
    return out, tnp.where(tnp.all(tnp.isfinite(out)), error, np.inf)


def _function_of_form(t: Value, z: Value, groups: Value, *parts: Value) -> Any:
    f = function_of_triangular(t, groups, Series(*parts))
    return tnp.matmul(tnp.matmul(z, f), adjoint(z))


_function_of_form_staged = StagedFunction(_function_of_form, "funm")


def _is_real(x: Value) -> bool:
    """Whether imaginary parts are rounding errors; traced values stay complex."""
    if is_traced(x):
        return False
    values: Any = np.asarray(x)
    bound = 1000 * float(tnp.finfo(x.dtype).eps) * max(np.abs(values).max(initial=0), 1)
    return bool(np.abs(values.imag).max(initial=0) <= bound)


def _triangular_root(t: Value) -> Any:
    """The square root of triangular matrices, one diagonal after the other.

    Row ``k`` of ``rows`` is diagonal ``k`` by the row of its elements, row ``n - k`` of ``columns``
    the same by their column: then what a diagonal needs of those before lies side by side.
    """
    n, lead = t.shape[-1], t.shape[:-2]
    if n == 0:
        return t
    origin = (0,) * len(lead)
    place = np.arange(n)
    diagonals = t[..., place, (place + place[:, None]) % n]
    d = tnp.sqrt(diagonals[..., 0, :])
    following = tnp.concatenate([d, tnp.zeros_like(d)], -1)

    def step(i: Any, state: Any) -> Any:
        rows, columns = state
        k = i + 1
        before = lax.dynamic_slice(columns, (*origin, n - k, k), (*lead, n, n))
        other = lax.dynamic_slice(following, (*origin, k), (*lead, n))
        given = lax.dynamic_slice(diagonals, (*origin, k, 0), (*lead, 1, n))
        total = d + other
        total = tnp.where(total == 0, 1, total)[..., None, :]
        new = (given - tnp.sum(rows * before, -2, keepdims=True)) / total
        new = tnp.where(tnp.asarray(place, k.dtype) < n - k, new, 0)
        rows = lax.dynamic_update_slice(rows, new, (*origin, k, 0))
        return rows, lax.dynamic_update_slice(columns, new, (*origin, n - k, k))

    none = tnp.zeros_like(t)
    first = tnp.concatenate([d[..., None, :], none[..., 1:, :]], -2)
    left = tnp.concatenate([none, first], -2)
    columns = tnp.concatenate([left, tnp.zeros_like(left)], -1)
    rows, _ = repeated(n - 1, step, (first, columns))
    return tnp.triu(rows[..., (place - place[:, None]) % n, place[:, None]])


@custom_jvp
def _sqrtm(a: Value) -> Any:
    t, z = complex_schur(a)
    return tnp.matmul(tnp.matmul(z, _triangular_root(t)), adjoint(z))


@_sqrtm.defjvp
def _sqrtm_jvp(primals: Any, tangents: Any) -> Any:
    """With X X = A: X dX + dX X = dA."""
    x = _sqrtm(primals[0])
    return x, _sylvester(x, x, as_dtype(tangents[0], x.dtype))


_sqrtm_staged = StagedFunction(lambda a: _sqrtm(a), "sqrtm")


@one_program
@inner_steps()
def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """Square roots of matrices, complex.

    Args:
        A: matrices of shape ``(..., n, n)``.
        blocksize: only 1.

    Raises:
        UnsupportedArgumentError: another ``blocksize``.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.sqrtm(4 * tb.numpy.eye(2)).real.tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    if blocksize > 1:
        msg = f"sqrtm: blocksize={blocksize}, expected 1"
        raise UnsupportedArgumentError(msg)
    a, _ = _square("sqrtm", A)
    return _sqrtm_staged((a,))


def _sylvester(a: Value, b: Value, c: Any) -> Any:
    """All complex. Derivatives solve again, so that they need none of the Schur forms."""
    fixed = [lax.stop_gradient(x) for x in (a, b)]
    forms = [complex_schur(x) for x in fixed]

    def transposed(_: Any, y: Any) -> Any:
        return _by_columns([complex_schur(tnp.matrix_transpose(x)) for x in fixed], y)

    return custom_linear_solve(
        lambda x: tnp.matmul(a, x) + tnp.matmul(x, b),
        c,
        lambda _, y: _by_columns(forms, y),
        transposed,
    )


_sylvester_staged = StagedFunction(_sylvester, "solve_sylvester")


def _by_columns(forms: Any, c: Any) -> Any:
    """Bartels and Stewart (1972): column by column in the bases of the Schur forms."""
    (ta, za), (tb, zb) = forms
    f = tnp.matmul(tnp.matmul(adjoint(za), c), zb)
    n = tb.shape[-1]
    unit = eye_of(ta)
    place = np.arange(n)

    def step(j: Any, y: Any) -> Any:
        here = tnp.asarray(place, j.dtype) == j
        weights = tnp.sum(tnp.where(here, tb, 0), -1)
        value = tnp.sum(tnp.where(here, weights, 0), -1)
        others = tnp.where(here, 0, weights)
        right = tnp.sum(tnp.where(here, f, 0), -1) - tnp.sum(y * others[..., None, :], -1)
        moved = ta + value[..., None, None] * unit
        filled = triangular_solve(moved, right[..., None], left_side=True)
        return tnp.where(here, filled, y)

    y = repeated(n, step, tnp.zeros_like(f))
    return tnp.matmul(tnp.matmul(za, y), adjoint(zb))


@one_program
@inner_steps()
def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8
) -> Array:
    """The solution X of ``A X + X B = C``.

    Args:
        A: matrices of shape ``(..., m, m)``.
        B: matrices of shape ``(..., n, n)``.
        C: matrices of shape ``(..., m, n)``; leading axes are broadcast.
        method: ``"schur"`` or ``"eigen"``: Schur forms are used in any case.
        tol: no effect.

    Raises:
        ArgumentValueError: another method.
        RankError, ShapeMismatchError, BroadcastError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> one = tb.numpy.ones((1, 1))
    >>> tb.scipy.linalg.solve_sylvester(one, one, 4 * one).tolist()
    [[2.0]]
    """
    del tol
    if method not in ("schur", "eigen"):
        msg = f"solve_sylvester: method={method!r}"
        raise ArgumentValueError(msg, expected="'schur' or 'eigen'")
    given = inexact(A, B, C)
    batch = broadcast_shape("solve_sylvester", [x.aval.shape[:-2] for x in given])
    given = [broadcast_to(x, (*batch, *x.aval.shape[-2:])) for x in given]
    (a, b, c), dtype = matrices("solve_sylvester", *given, ranks=(2, 2, 2))
    m, n = a.aval.shape[-1], b.aval.shape[-1]
    if [x.aval.shape[-2:] for x in (a, b, c)] != [(m, m), (n, n), (m, n)]:
        msg = f"solve_sylvester: got {[x.aval.str_short() for x in (a, b, c)]}"
        raise ShapeMismatchError(msg, expected="(..., m, m), (..., n, n) and (..., m, n)")
    kind = complex_dtype(a.aval.dtype)
    x = _sylvester_staged([as_dtype(v, kind) for v in (a, b, c)])
    return x if kind == a.aval.dtype else rounded(tnp.real(x), dtype)
