"""Solutions of systems of equations, by factors."""

from __future__ import annotations

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.ir.value import Value
from tracebridge.core.linalg.lu import lu_pivots_to_permutation_p
from tracebridge.core.linalg.matrices import (
    hermitian_of,
)
from tracebridge.core.linalg.solving import (
    cholesky_solution,
    lu_solution,
    positive_solution,
    solution,
)
from tracebridge.core.linalg.triangular import triangular_solve
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_to
from tracebridge.numpy.linalg._systems import finished, system
from tracebridge.numpy.linalg._systems import inv as inverse
from tracebridge.scipy._nested import nested, of_lists
from tracebridge.scipy.linalg._factors import cholesky

_TRANSPOSED = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


# systems -----------------------------------------------------------------------------------------


def _solve(a: Value, b: Value, lower: bool, positive: bool) -> Any:
    a, b, dtype, is_vector = system("solve", a, b)
    x = positive_solution(hermitian_of(a, lower=lower), b) if positive else solution(a, b)
    return finished(x, dtype, is_vector)


def _cho_solve(c: Value, b: Value, lower: bool) -> Any:
    c, b, dtype, is_vector = system("cho_solve", c, b, vectors=True)
    return finished(cholesky_solution(c, b, lower=lower), dtype, is_vector)


def _lu_solve(factors: Value, pivots: Value, b: Value, trans: int) -> Any:
    size = factors.aval.shape[-1]
    order = lu_pivots_to_permutation_p.bind(
        lax.convert_element_type(pivots, "int32"), permutation_size=size
    )
    factors, b, dtype, is_vector = system("lu_solve", factors, b, vectors=True)
    order = broadcast_to(order, (*b.aval.shape[:-2], size))
    return finished(lu_solution(factors, order, b, trans), dtype, is_vector)


def _solve_triangular(a: Value, b: Value, trans: int, lower: bool, unit: bool) -> Any:
    a, b, dtype, is_vector = system("solve_triangular", a, b, vectors=True)
    x = triangular_solve(
        a,
        b,
        left_side=True,
        lower=lower,
        transpose_a=trans != 0,
        conjugate_a=trans == 2,
        unit_diagonal=unit,
    )
    return finished(x, dtype, is_vector)


_solve_staged = of_lists(StagedFunction(_solve, "solve"))
_cho_solve_staged = of_lists(StagedFunction(_cho_solve, "cho_solve"))
_lu_solve_staged = of_lists(StagedFunction(_lu_solve, "lu_solve"))
_solve_triangular_staged = of_lists(StagedFunction(_solve_triangular, "solve_triangular"))


@remembered
def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """Cholesky factors for ``cho_solve``.

    Args:
        a: as in ``cholesky``.
        lower: as in ``cholesky``.
        overwrite_a: no effect.
        check_finite: no effect.

    Returns:
        ``(factor, lower)``; the other triangle is zero.

    >>> import tracebridge as tb
    >>> factor, lower = tb.scipy.linalg.cho_factor(tb.numpy.array([[4.0]]))
    >>> factor.tolist(), lower
    ([[2.0]], False)
    """
    return cholesky(a, lower, overwrite_a, check_finite), bool(lower)


@remembered
def cho_solve(
    c_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution of ``a @ x = b`` from the Cholesky factor of ``a``.

    Args:
        c_and_lower: what ``cho_factor`` gave.
        b: one vector of shape ``(n,)``, or matrices of shape ``(..., n, k)``. With one axis less
            than the matrices and ``n`` for the last: a vector for each of them, with a
            FutureWarning.
        overwrite_b: no effect.
        check_finite: no effect.

    Returns:
        Array of the shape of ``b``, leading axes broadcast.

    Raises:
        ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> factor = tb.scipy.linalg.cho_factor(tb.numpy.array([[4.0]]))
    >>> tb.scipy.linalg.cho_solve(factor, tb.numpy.array([8.0])).tolist()
    [2.0]
    """
    del overwrite_b, check_finite
    c, lower = c_and_lower
    return _cho_solve_staged((c, b), (bool(lower),))


def _transposed(name: str, trans: Any) -> int:
    if not isinstance(trans, int | str) or trans not in _TRANSPOSED:
        msg = f"{name}: trans={trans!r}"
        raise ArgumentValueError(msg, expected="0 or 'N', 1 or 'T', 2 or 'C'")
    return _TRANSPOSED[trans]


@remembered
def lu_solve(
    lu_and_piv: tuple[Array, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution of ``a @ x = b`` from the LU factors of ``a``.

    Args:
        lu_and_piv: what ``lu_factor`` gave.
        b: one vector of shape ``(n,)``, or matrices of shape ``(..., n, k)``. With one axis less
            than the matrices and ``n`` for the last: a vector for each of them, with a
            FutureWarning.
        trans: 0; 1 to solve with the transposed, 2 with the adjoint of ``a``.
        overwrite_b: no effect.
        check_finite: no effect.

    Returns:
        Array of the shape of ``b``, leading axes broadcast.

    Raises:
        ArgumentValueError: another ``trans``.
        ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> factors = tb.scipy.linalg.lu_factor(tb.numpy.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> tb.scipy.linalg.lu_solve(factors, tb.numpy.array([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    del overwrite_b, check_finite
    factors, pivots = lu_and_piv
    return _lu_solve_staged((factors, pivots, b), (_transposed("lu_solve", trans),))


@remembered
def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """The solution of ``a @ x = b``.

    Args:
        a: matrices of shape ``(..., n, n)``.
        b: one vector of shape ``(n,)``, or matrices of shape ``(..., n, k)``.
        lower: which triangle is read of positive definite matrices.
        overwrite_a: no effect.
        overwrite_b: no effect.
        debug: no effect.
        check_finite: no effect.
        assume_a: ``"gen"``, ``"sym"``, ``"her"``: LU factors of the whole matrix; ``"pos"``:
            Cholesky factors.

    Returns:
        Array of the shape of ``b``, leading axes broadcast. Infinities or NaN where a matrix is
        singular, NaN where it is not positive definite although ``assume_a`` says so.

    Raises:
        ArgumentValueError: another ``assume_a``.
        ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> a, b = tb.numpy.array([[2.0, 0.0], [0.0, 4.0]]), tb.numpy.array([2.0, 2.0])
    >>> tb.scipy.linalg.solve(a, b, assume_a="pos").round(4).tolist()
    [1.0, 0.5]
    """
    del overwrite_a, overwrite_b, debug, check_finite
    if assume_a not in ("gen", "sym", "her", "pos"):
        msg = f"solve: assume_a={assume_a!r}"
        raise ArgumentValueError(msg, expected="'gen', 'sym', 'her' or 'pos'")
    return _solve_staged((a, b), (bool(lower), assume_a == "pos"))


@remembered
def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: object = None,
    check_finite: bool = True,
) -> Array:
    """The solution of ``a @ x = b`` for triangular ``a``.

    Args:
        a: matrices of shape ``(..., n, n)``.
        b: one vector of shape ``(n,)``, or matrices of shape ``(..., n, k)``. With one axis less
            than the matrices and ``n`` for the last: a vector for each of them, with a
            FutureWarning.
        trans: 0 or ``"N"``; 1 or ``"T"`` for the transposed, 2 or ``"C"`` for the adjoint.
        lower: which triangle of ``a`` is read.
        unit_diagonal: whether the diagonal is taken for ones, and not read.
        overwrite_b: no effect.
        debug: no effect.
        check_finite: no effect.

    Returns:
        Array of the shape of ``b``, leading axes broadcast.

    Raises:
        ArgumentValueError: another ``trans``.
        ShapeMismatchError: the shapes do not fit.

    >>> import tracebridge as tb
    >>> a, b = tb.numpy.array([[2.0, 0.0], [1.0, 1.0]]), tb.numpy.array([4.0, 3.0])
    >>> tb.scipy.linalg.solve_triangular(a, b, lower=True).tolist()
    [2.0, 1.0]
    """
    del overwrite_b, debug, check_finite
    how = (_transposed("solve_triangular", trans), bool(lower), bool(unit_diagonal))
    return _solve_triangular_staged((a, b), how)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse matrices.

    Args:
        a: matrices of shape ``(..., n, n)``; integers become floats.
        overwrite_a: no effect.
        check_finite: no effect.

    Returns:
        Array of the shape of ``a``. Infinities or NaN where a matrix is singular.

    Raises:
        ShapeMismatchError: the matrices are not square.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.inv(tb.numpy.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    del overwrite_a, check_finite
    return inverse(nested(a))
