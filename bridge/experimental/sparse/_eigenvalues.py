"""The largest eigenvalues of a Hermitian matrix that is known by its products: lobpcg_standard.

Each step looks for the best vectors in the span of three blocks: the vectors so far (X), the
directions in which they moved (P), and the residuals (R). All blocks are kept orthonormal; a
direction that depends on the others becomes zero instead of noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tracebridge.numpy as tnp
from tracebridge._api.programs.jit import jit
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.numpy.linalg._decompositions import eigh

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

Operator = Callable[[Any], Any]


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: Any = None) -> tuple[Any, Any, Any]:
    """The largest eigenvalues of a Hermitian matrix, by LOBPCG without a preconditioner.

    Args:
        A: matrix of shape ``(n, n)``, or a function that multiplies ``(n, k)`` arrays by it.
        X: ``(n, k)`` array of independent columns, where to begin; ``5 * k`` is less than ``n``.
        m: how many steps at most.
        tol: an eigenvalue w and its vector v are found when the norm of ``A v - w v`` is below
            ``tol * 10 * n * (|w| + |A v|)``; None is the precision of the dtype.

    Returns:
        ``(w, U, i)``: the ``k`` eigenvalues, largest first; their vectors, the columns of
        ``(n, k)``; the number of steps.

    Raises:
        ShapeMismatchError: ``A`` is no square matrix of the size of ``X``.
        DtypeMismatchError: ``A`` and ``X`` have different dtypes.
        ArgumentValueError: ``X`` has no columns, or too many.

    Source: Knyazev (2001), SIAM J. Sci. Comput. 23(2); Duersch, Shao, Yang, Gu (2018), SIAM J.
    Sci. Comput. 40(5), for the bases.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental.sparse.linalg import lobpcg_standard
    >>> diagonal = tnp.arange(20.0)
    >>> w, _, _ = lobpcg_standard(lambda x: diagonal[:, None] * x, tnp.eye(20)[:, 16:18] + 1.0)
    >>> print(w.round(3))
    [19. 18.]
    """
    start = tnp.asarray(X)
    _check(A, start)
    limit = float(tnp.finfo(start.dtype).eps) if tol is None else tol
    if callable(A):
        return _solve(A, start, m, limit)
    return _with_matrix(tnp.asarray(A), start, m, limit)


def _check(A: Any, X: Value) -> None:
    if len(X.shape) != 2:
        raise ShapeMismatchError(f"lobpcg_standard: X has shape {X.shape}, expected (n, k)")
    n, k = X.shape
    if k == 0:
        raise ArgumentValueError(f"lobpcg_standard: X has shape {X.shape}, expected some columns")
    if 5 * k >= n:
        msg = f"lobpcg_standard: X has shape {X.shape}, expected fewer columns than a fifth of {n}"
        raise ArgumentValueError(msg)
    product: Any = A(X) if callable(A) else A
    expected = (n, k) if callable(A) else (n, n)
    if tuple(product.shape) != expected:
        what = "A must be a function that gives" if callable(A) else "A must be"
        msg = f"lobpcg_standard: {what} {expected}, got {tuple(product.shape)}"
        raise ShapeMismatchError(msg)
    if product.dtype != X.dtype:
        msg = f"lobpcg_standard: A has dtype {product.dtype}, X has {X.dtype}, expected one dtype"
        raise DtypeMismatchError(msg)


@jit
def _with_matrix(A: Any, X: Any, m: Any, tol: Any) -> tuple[Any, Any, Any]:
    return _solve(lambda x: _product(A, x), X, m, tol)


def _solve(action: Operator, x: Any, m: Any, tol: Any) -> tuple[Any, Any, Any]:
    n, k = x.shape
    x = _orthonormal(x)
    product = action(x)
    theta = _real_diagonal(x, product)
    state = tnp.int32(0), tnp.int32(0), theta, x, tnp.zeros_like(x), product - x * theta

    def unfinished(state: Any) -> Any:
        step, n_found, *_ = state
        return (step < m) & (n_found < k)

    def improve(state: Any) -> Any:
        step, _, theta, x, p, r = state
        r = _against(tnp.concatenate([x, p], axis=1), r)
        theta, x, p = _best(action, tnp.concatenate([x, p, r], axis=1), k)
        product = action(x)
        r = product - x * theta
        scale = 10 * n * (abs(theta) + _norms(product))
        n_found = (_norms(r) < tol * scale).sum(dtype="int32")
        return step + 1, n_found, theta, x, p, r

    steps, _, theta, x, _, _ = while_loop(unfinished, improve, state)
    return theta, x, steps


def _best(action: Operator, basis: Any, k: int) -> tuple[Any, Any, Any]:
    """The ``k`` best values and vectors in the span of a basis, and how the vectors moved."""
    small = _product(_adjoint(basis), action(basis))
    small = (small + _adjoint(small)) / 2
    # Zero columns have no values: let theirs be below all others.
    missing = _norms(basis) < 0.5
    below = -2 * abs(small).sum(axis=1).max() - 1
    values, vectors = eigh(small + tnp.diag(tnp.where(missing, below, 0)).astype(small.dtype))
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    # The part that the vectors had before is no direction of a movement.
    moved = vectors.at[:k].set(0)
    moved = _against(vectors, moved)
    return values, _normalized(_product(basis, vectors)), _normalized(_product(basis, moved))


def _against(basis: Any, x: Any) -> Any:
    """An orthonormal basis of what ``x`` adds to one; zeros where it is nothing."""
    size = _norms(x)
    for _ in range(2):
        x = x - _product(basis, _product(_adjoint(basis), x))
    # What is left of a column by rounding alone says nothing.
    x = tnp.where(_norms(x) > 10 * tnp.finfo(x.dtype).eps * size, x, 0)
    x = _orthonormal(x)
    x = x - _product(basis, _product(_adjoint(basis), x))
    return _normalized(tnp.where(_norms(x) > 0.5, x, 0))


def _orthonormal(x: Any) -> Any:
    """An orthonormal basis of the columns, by their products; zeros for what they lack."""
    eps = tnp.finfo(x.dtype).eps
    for _ in range(2):
        x = _normalized(x)
        values, vectors = eigh(_product(_adjoint(x), x))
        kept = values > 10 * x.shape[1] * eps * values[-1:]
        x = _product(x, vectors) / tnp.sqrt(tnp.where(kept, values, 1))
        x = tnp.where(kept, x, 0)
    return _normalized(x)


def _normalized(x: Any) -> Any:
    norms = _norms(x)
    return x / tnp.where(norms == 0, 1, norms)


def _norms(x: Any) -> Any:
    """Of the columns."""
    return tnp.sqrt((abs(x) ** 2).sum(axis=0))


def _real_diagonal(x: Any, product: Any) -> Any:
    return (x.conj() * product).sum(axis=0).real


def _adjoint(x: Any) -> Any:
    return x.conj().T


def _product(A: Any, B: Any) -> Any:
    return tnp.matmul(A, B, precision="highest")
