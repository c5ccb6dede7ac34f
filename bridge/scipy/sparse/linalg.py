"""Iterative solvers of linear systems, as in ``scipy.sparse.linalg``.

The matrix may be a function. Derivatives are those of the solution, not of the iteration: they
solve systems with the same matrix, or its transpose, by the same method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tracebridge.numpy as tnp
from tracebridge._api.args.ravel import ravel_pytree
from tracebridge._api.derivatives.vjp import linear_transpose
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.control.solve.custom_linear_solve import custom_linear_solve
from tracebridge.core.dtypes.dtypes import complex_of, is_complex, is_inexact
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.linalg.matrices import as_dtype, eye
from tracebridge.core.runtime.arrays.argument_types import PyTree
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.tree import tree

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

__all__ = ["bicgstab", "cg", "gmres"]

Operator = Callable[[Any], Any]


def _operator(name: str, what: str, A: Any, b: Any) -> Operator:
    """Products with a function, a matrix, or an object that has them."""
    if callable(A):
        return A
    if hasattr(A, "shape"):
        if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
            msg = f"{name}: {what} has shape {tuple(A.shape)}, expected a square matrix"
            raise RankError(msg)
        if hasattr(b, "shape") and b.shape[:1] != (A.shape[1],):
            msg = f"{name}: {what} has shape {tuple(A.shape)}, b {tuple(b.shape)}"
            raise ShapeMismatchError(msg, expected=f"b of shape ({A.shape[1]},)")
        return lambda v: A @ v
    if hasattr(A, "__matmul__"):
        return lambda v: A @ v
    msg = f"{name}: {what} is of type {type(A).__name__}, expected a matrix or a function"
    raise ArgumentTypeError(msg)


def _same(v: Value) -> Any:
    return v


def _solve(
    name: str, A: Any, b: Any, x0: Any, M: Any, method: Callable[..., Any], hermitian: bool
) -> Any:
    """``method(matvec, b, x0, preconditioner)`` on vectors, with the derivatives of a solution."""
    b = tree.map(_inexact, b)
    matrix = _operator(name, "A", A, b)
    preconditioner = _same if M is None else _operator(name, "M", M, b)
    # The solution is complex where the matrix is.
    if _is_complex(A) or _is_complex(M):
        b = tree.map(lambda x: as_dtype(x, complex_of(x.dtype)), b)
    vector, restored = ravel_pytree(b)
    if vector.size == 0:
        return b
    start = tnp.zeros_like(vector)
    if x0 is not None:
        _check_like(name, x0, b)
        start = ravel_pytree(tree.map(lambda x, y: as_dtype(tnp.asarray(x), y.dtype), x0, b))[0]

    def matvec(v: Any) -> Any:
        operand = restored(v)
        product = matrix(operand)
        _check_like(name, product, operand, "A of x")
        return _flat(name, "A of x", product, v.dtype)

    def precondition(v: Any) -> Any:
        return v if M is None else _flat(name, "M of x", preconditioner(restored(v)), v.dtype)

    def transposed(v: Any) -> Any:
        return v if M is None else linear_transpose(precondition, v)(v)[0]

    def forward(matvec: Operator, right: Any) -> Any:
        return method(matvec, right, start, precondition)

    def backward(vecmat: Operator, right: Any) -> Any:
        return method(vecmat, right, tnp.zeros_like(right), transposed)

    symmetric = hermitian and not is_complex(vector.dtype)
    solution = custom_linear_solve(
        matvec, vector, forward, None if symmetric else backward, symmetric=symmetric
    )
    return restored(solution)


def _is_complex(A: Any) -> bool:
    return hasattr(A, "dtype") and is_complex(A.dtype)


def _flat(name: str, what: str, product: Any, dtype: Any) -> Any:
    flat = ravel_pytree(product)[0]
    if is_complex(flat.dtype) and not is_complex(dtype):
        msg = f"{name}: {what} is complex, b has dtype {dtype.name}"
        raise DtypeMismatchError(msg, hint="make b complex: b + 0j")
    return as_dtype(flat, dtype)


def _inexact(x: Any) -> Any:
    x = tnp.asarray(x)
    return x if is_inexact(x.dtype) else x.astype(tnp.result_type(x, 1.0))


def _check_like(name: str, x: Value, b: Value, what: str = "x0") -> None:
    """Raise unless both are trees of arrays of the same shapes."""
    leaves, structure = tree.flatten(x)
    others, expected = tree.flatten(b)
    if structure != expected:
        msg = f"{name}: {what} has the structure {structure}, b {expected}"
        raise ArgumentValueError(msg)
    got = [tnp.shape(v) for v in leaves]
    shapes = [tnp.shape(v) for v in others]
    if got != shapes:
        msg = f"{name}: {what} has arrays of shapes {got}, b of {shapes}"
        raise ShapeMismatchError(msg)


def _squared(v: Value) -> Any:
    return tnp.real(tnp.vdot(v, v))


def _limit(b: Value, tol: Any, atol: Any) -> Any:
    """The square of the residual's norm that is small enough."""
    return tnp.maximum(tol**2 * _squared(b), atol**2)


def _is_zero(x: Value) -> Any:
    return x == 0


def _ratio(a: Value, b: Value) -> Any:
    """The quotient; 0 where the divisor is."""
    return tnp.where(_is_zero(b), 0, a / tnp.where(_is_zero(b), 1, b))


# conjugate gradients -----------------------------------------------------------------------------


def _cg(tol: Any, atol: Any, maxiter: Any) -> Callable[..., Any]:
    def run(A: Operator, b: Any, x0: Any, M: Operator) -> Any:
        limit = _limit(b, tol, atol)

        def going(state: Any) -> Any:
            _, r, gamma, _, k = state
            return (_squared(r) > limit) & (gamma != 0) & (k < maxiter)

        def step(state: Any) -> Any:
            x, r, gamma, p, k = state
            product = A(p)
            alpha = as_dtype(_ratio(gamma, tnp.vdot(p, product)), x.dtype)
            x, r = x + alpha * p, r - alpha * product
            z = M(r)
            new = tnp.vdot(r, z)
            return x, r, new, z + as_dtype(_ratio(new, gamma), x.dtype) * p, k + 1

        r = b - A(x0)
        z = M(r)
        return while_loop(going, step, (x0, r, tnp.vdot(r, z), z, 0))[0]

    return run


def cg(
    A: Any,
    b: PyTree,
    x0: PyTree = None,
    *,
    tol: ArrayLike = 1e-5,
    atol: ArrayLike = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """Solve ``A x = b`` by conjugate gradients, for a Hermitian positive definite ``A``.

    Args:
        A: square matrix, an object with ``A @ v``, or a linear function of trees like ``b``.
        b: array, or tree of arrays that stands for one vector.
        x0: where to start, a tree like ``b`` (default: zeros).
        tol: the residual may have this norm, relative to that of ``b``,
        atol: or this norm.
        maxiter: most iterations (default: 10 per unknown).
        M: preconditioner, an approximate inverse of ``A``, given as ``A`` is.

    Returns:
        ``(x, None)``; ``x`` is a tree like ``b``.

    Raises:
        ArgumentTypeError: ``A`` or ``M`` is neither a matrix nor a function.
        RankError: a matrix that is not square.
        ArgumentValueError: ``x0``, or what ``A`` gives, is another tree than ``b``.
        ShapeMismatchError: it has other shapes, or a matrix another size than ``b``.
        DtypeMismatchError: a function gives complex numbers for a real ``b``; complex matrices
            have complex solutions.

    >>> import tracebridge as tb
    >>> A = tb.numpy.array([[4.0, 1.0], [1.0, 3.0]])
    >>> x, _ = tb.scipy.sparse.linalg.cg(A, tb.numpy.array([6.0, 7.0]))
    >>> [round(v, 3) for v in x.tolist()]
    [1.0, 2.0]
    """
    return _solve("cg", A, b, x0, M, _cg(tol, atol, _most(b, maxiter)), True), None


def _most(b: Any, maxiter: Any) -> Any:
    return 10 * max(sum(tnp.size(v) for v in tree.leaves(b)), 1) if maxiter is None else maxiter


# stabilised biconjugate gradients ----------------------------------------------------------------


def _bicgstab(tol: Any, atol: Any, maxiter: Any) -> Callable[..., Any]:
    def run(A: Operator, b: Any, x0: Any, M: Operator) -> Any:
        limit = _limit(b, tol, atol)
        shadow = b - A(x0)

        def going(state: Any) -> Any:
            _, r, _, _, _, _, _, k = state
            return (_squared(r) > limit) & (k >= 0) & (k < maxiter)

        def step(state: Any) -> Any:
            x, r, alpha, omega, rho, p, q, k = state
            new = as_dtype(tnp.vdot(shadow, r), x.dtype)
            beta = _ratio(new, rho) * _ratio(alpha, omega)
            p = r + beta * (p - omega * q)
            direction = M(p)
            q = A(direction)
            alpha = as_dtype(_ratio(new, tnp.vdot(shadow, q)), x.dtype)
            s = r - alpha * q
            early = _squared(s) < limit
            correction = M(s)
            t = A(correction)
            omega = as_dtype(_ratio(tnp.vdot(t, s), _squared(t)), x.dtype)
            omega = tnp.where(early, 0, omega)
            x = x + alpha * direction + omega * correction
            r = s - omega * t
            broken = ((omega == 0) | (alpha == 0)) & ~early
            return x, r, alpha, omega, new, p, q, tnp.where(broken, -1, k + 1)

        one = tnp.ones_like(b, shape=())
        zero = tnp.zeros_like(b)
        state = (x0, shadow, one, one, one, zero, zero, tnp.zeros((), "int32"))
        return while_loop(going, step, state)[0]

    return run


def bicgstab(
    A: Any,
    b: PyTree,
    x0: PyTree = None,
    *,
    tol: ArrayLike = 1e-5,
    atol: ArrayLike = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """Solve ``A x = b`` by stabilised biconjugate gradients; arguments as of ``cg``.

    ``A`` need not be symmetric; derivatives in reverse mode solve the transposed system.

    >>> import tracebridge as tb
    >>> A = tb.numpy.array([[4.0, 2.0], [1.0, 3.0]])
    >>> x, _ = tb.scipy.sparse.linalg.bicgstab(A, tb.numpy.array([8.0, 7.0]))
    >>> [round(v, 3) for v in x.tolist()]
    [1.0, 2.0]
    """
    method = _bicgstab(tol, atol, _most(b, maxiter))
    return _solve("bicgstab", A, b, x0, M, method, False), None


# generalised minimal residuals -------------------------------------------------------------------


def _givens(a: Value, b: Value) -> tuple[Any, Any]:
    """Cosine and sine of the rotation that turns ``(a, b)`` into ``(., 0)``; ``b`` is real."""
    size = tnp.sqrt(tnp.abs(a) ** 2 + tnp.abs(b) ** 2)
    a_size = tnp.abs(a)
    phase = tnp.where(a_size == 0, 1, a / tnp.where(a_size == 0, 1, a_size))
    cosine = _ratio(a_size, size)
    return as_dtype(cosine, a.dtype), as_dtype(phase * _ratio(b, size), a.dtype)


def _cycle(A: Operator, M: Operator, b: Value, x: Value, m: int, small: Any) -> Any:
    """Minimise the residual over the Krylov space of ``m`` products, by rotations."""
    r = M(b - A(x))
    beta = tnp.sqrt(_squared(r))
    dtype = b.dtype
    basis = tnp.zeros_like(b, shape=(m + 1, b.shape[0])).at[0].set(_ratio(r, beta))
    rotations = tnp.zeros_like(b, shape=(2, m))
    triangle = eye((m, m), dtype)
    right = tnp.zeros_like(b, shape=m + 1).at[0].set(as_dtype(beta, dtype))
    places = tnp.arange(m + 1)

    def going(state: Any) -> Any:
        j, _, _, _, right = state
        return (j < m) & (tnp.abs(right[j]) > small * beta)

    def step(state: Any) -> Any:
        j, basis, rotations, triangle, right = state
        w = M(A(basis[j]))
        # Twice, since once leaves errors that grow with the number of products.
        first = tnp.conj(basis) @ w
        w = w - first @ basis
        second = tnp.conj(basis) @ w
        w = w - second @ basis
        column = first + second
        norm = tnp.sqrt(_squared(w))
        column = column.at[j + 1].set(as_dtype(norm, dtype))

        def rotated(i: Any, c: Any) -> Any:
            top = rotations[0, i] * c[i] + rotations[1, i] * c[i + 1]
            low = rotations[0, i] * c[i + 1] - tnp.conj(rotations[1, i]) * c[i]
            return c.at[i].set(top).at[i + 1].set(low)

        _, column = while_loop(
            lambda s: s[0] < j, lambda s: (s[0] + 1, rotated(s[0], s[1])), (j * 0, column)
        )
        cosine, sine = _givens(column[j], column[j + 1])
        rotations = rotations.at[0, j].set(cosine).at[1, j].set(sine)
        column = rotated_at(column, cosine, sine, j)
        right = rotated_at(right, cosine, sine, j)
        column = tnp.where(places <= as_dtype(j, places.dtype), column, 0)[:m]
        triangle = triangle.at[:, j].set(column)
        return j + 1, basis.at[j + 1].set(_ratio(w, norm)), rotations, triangle, right

    def rotated_at(c: Any, cosine: Any, sine: Any, i: Any) -> Any:
        top = cosine * c[i] + sine * c[i + 1]
        low = cosine * c[i + 1] - tnp.conj(sine) * c[i]
        return c.at[i].set(top).at[i + 1].set(low)

    state = (tnp.zeros((), "int32"), basis, rotations, triangle, right)
    j, basis, _, triangle, right = while_loop(going, step, state)
    right = tnp.where(places[:m] < as_dtype(j, places.dtype), right[:m], 0)

    def substitute(state: Any) -> Any:
        i, y = state
        known = triangle[i] @ y
        return i - 1, y.at[i].set(_ratio(right[i] - known, triangle[i, i]))

    _, y = while_loop(lambda s: s[0] >= 0, substitute, (j - 1, tnp.zeros_like(b, shape=m)))
    return x + y @ basis[:m]


def _gmres(tol: Any, atol: Any, restart: int, maxiter: Any, early: bool) -> Callable[..., Any]:
    def run(A: Operator, b: Any, x0: Any, M: Operator) -> Any:
        limit = _limit(b, tol, atol)
        m = min(restart, b.shape[0])
        eps = tnp.finfo(b.dtype).eps

        def going(state: Any) -> Any:
            _, squared, k = state
            return (squared > limit) & (k < maxiter)

        def step(state: Any) -> Any:
            x, squared, k = state
            # Enough for this cycle, if the preconditioner does not distort the norm.
            wanted = 0.5 * tnp.sqrt(_ratio(limit, squared)) if early else 0.0
            x = _cycle(A, M, b, x, m, tnp.maximum(wanted, eps))
            return x, _squared(b - A(x)), k + 1

        state = (x0, _squared(b - A(x0)), tnp.zeros((), "int32"))
        return while_loop(going, step, state)[0]

    return run


def gmres(
    A: Any,
    b: PyTree,
    x0: PyTree = None,
    *,
    tol: ArrayLike = 1e-5,
    atol: ArrayLike = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Array]:
    """Solve ``A x = b`` by generalised minimal residuals; other arguments as of ``cg``.

    Args:
        A: as of ``cg``; it need not be symmetric.
        b: as of ``cg``.
        x0: as of ``cg``.
        tol: as of ``cg``.
        atol: as of ``cg``.
        restart: size of the Krylov space; memory grows with it.
        maxiter: how often such a space is built (default: 10 per unknown).
        M: as of ``cg``.
        solve_method: "batched" always uses the whole space, "incremental" stops inside it.

    Returns:
        The solution, and -1 where it has NaN, else 0.

    Raises:
        ArgumentValueError: no such ``solve_method``, or ``restart`` is less than 1.

    >>> import tracebridge as tb
    >>> A = tb.numpy.array([[4.0, 2.0], [1.0, 3.0]])
    >>> x, _ = tb.scipy.sparse.linalg.gmres(A, tb.numpy.array([8.0, 7.0]))
    >>> [round(v, 3) for v in x.tolist()]
    [1.0, 2.0]
    """
    if solve_method not in ("batched", "incremental"):
        msg = f"gmres: solve_method is {solve_method!r}, expected 'batched' or 'incremental'"
        raise ArgumentValueError(msg)
    size = index_of(restart, "gmres", "restart")
    if size < 1:
        msg = f"gmres: restart is {size}, expected at least 1"
        raise ArgumentValueError(msg)
    method = _gmres(tol, atol, size, _most(b, maxiter), solve_method == "incremental")
    x = _solve("gmres", A, b, x0, M, method, False)
    lost = [tnp.isnan(v).any() for v in tree.leaves(x)]
    return x, tnp.where(tnp.asarray(lost, bool).any(), -1, 0)


shield(globals(), __name__)
