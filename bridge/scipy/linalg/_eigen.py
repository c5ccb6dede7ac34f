"""Eigenvalues, similar matrices, polar factors, products with Q, with SciPy's arguments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.custom.custom_jvp import custom_jvp
from tracebridge._api.derivatives.jvp import jvp
from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.errors.argument_errors import ArgumentValueError, UnsupportedArgumentError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.lax.shape.axes import surely_less
from tracebridge.core.linalg.blocks import complex_form
from tracebridge.core.linalg.cholesky import cholesky as lax_cholesky
from tracebridge.core.linalg.eigh import eigh as lax_eigh
from tracebridge.core.linalg.family import check_square, matrices
from tracebridge.core.linalg.hessenberg import hessenberg as lax_hessenberg
from tracebridge.core.linalg.matrices import adjoint, as_dtype, complex_dtype
from tracebridge.core.linalg.polar import qdwh, with_derivative
from tracebridge.core.linalg.qr import householder_product
from tracebridge.core.linalg.qr import qr as lax_qr
from tracebridge.core.linalg.schur import schur as lax_schur
from tracebridge.core.linalg.triangular import triangular_solve
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import one_program, remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy import linalg
from tracebridge.numpy._promote import promote_inexact
from tracebridge.numpy._staging import value_of
from tracebridge.scipy._nested import nested
from tracebridge.scipy.linalg._bisection import SMALL, bisected

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


def inexact(*xs: Any) -> list[Any]:
    """Values in one floating or complex dtype."""
    return promote_inexact(*[value_of(nested(x)) for x in xs])


def complex_schur(a: Any) -> tuple[Any, Any]:
    """Triangular and unitary matrices. Real eigenvalues of real matrices stay real.

    Rounding would choose the side of the cut where roots and logarithms of negative ones are.
    """
    t, z = lax_schur(a)
    if not is_complex(t.dtype):
        t, z = complex_form(t, z)
    return t, z


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Determinants, as ``tracebridge.numpy.linalg.det``.

    Args:
        a: matrices of shape ``(..., n, n)``.
        overwrite_a: no effect.
        check_finite: no effect.

    >>> import tracebridge as tb
    >>> float(tb.scipy.linalg.det(tb.numpy.eye(2)))
    1.0
    """
    del overwrite_a, check_finite
    return linalg.det(nested(a))


@remembered
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """Singular value decomposition, as ``tracebridge.numpy.linalg.svd``.

    Args:
        a: matrices of shape ``(..., m, n)``.
        full_matrices: whether U and V are square.
        compute_uv: whether singular vectors are wanted.
        overwrite_a: no effect.
        check_finite: no effect.
        lapack_driver: no effect.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.svd(tb.numpy.eye(2), compute_uv=False).tolist()
    [1.0, 1.0]
    """
    del overwrite_a, check_finite, lapack_driver
    out = linalg.svd(nested(a), full_matrices, compute_uv)
    return tuple(out) if compute_uv else out


def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> Any:
    """The product of a matrix with Q of the QR factors of another one, and R.

    Args:
        a: matrix of shape ``(m, n)``.
        c: matrix or vector that fits.
        mode: ``"left"`` for ``Q c``, ``"right"`` for ``c Q``.
        pivoting: as in ``qr``.
        conjugate: whether Q is conjugated.
        overwrite_a: no effect.
        overwrite_c: whether ``"left"`` takes a ``c`` of ``m`` rows too, times all of Q.

    Returns:
        ``(product, R)``, with ``pivoting`` followed by the order of columns.

    Raises:
        ArgumentValueError: another mode.
        ShapeMismatchError: ``c`` does not fit.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.qr_multiply(tb.numpy.eye(2), tb.numpy.eye(2))[0].shape
    (2, 2)
    """
    del overwrite_a
    if mode not in ("left", "right"):
        msg = f"qr_multiply: mode={mode!r}"
        raise ArgumentValueError(msg, expected="'left' or 'right'")
    x, y = inexact(a, c)
    m, n = x.aval.shape[-2:]
    k = min(m, n)
    is_vector = y.aval.ndim == 1
    if is_vector:
        y = tnp.expand_dims(y, 1 if mode == "left" else 0)
    # The first columns of Q take as many rows of c; a c that may be lost has rows for all.
    full = overwrite_c and mode == "left" and y.shape[-2] == m and m > n
    q, r, *order = lax_qr(x, pivoting=pivoting, full_matrices=full)
    q = tnp.conj(q) if conjugate else q
    out = tnp.matmul(q, y) if mode == "left" else tnp.matmul(y, q)
    if is_vector:
        out = tnp.ravel(out)
    return (out, r[..., :k, :], *order)


@one_program
def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """The Hessenberg form: ``a = Q H Q^H``.

    Args:
        a: matrices of shape ``(..., n, n)``.
        calc_q: whether Q is wanted.
        overwrite_a: no effect.
        check_finite: no effect.

    Returns:
        H, or ``(H, Q)``.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.hessenberg(tb.numpy.eye(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    del overwrite_a, check_finite
    packed, taus = lax_hessenberg(inexact(a)[0])
    h = tnp.triu(packed, -1)
    if not calc_q:
        return h
    n = packed.shape[-1]
    inner = householder_product(packed[..., 1:, :-1], taus)
    q = tnp.pad(inner, (*[(0, 0)] * (packed.ndim - 2), (1, 0), (1, 0)))
    corner = np.zeros((n, n))
    corner[:1, :1] = 1
    return h, q + as_dtype(tnp.asarray(corner), q.dtype)


@one_program
def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """The Schur form: ``a = Z T Z^H``.

    Args:
        a: matrices of shape ``(..., n, n)``.
        output: ``"real"``, or ``"complex"`` for a triangular T of a real matrix too.

    Returns:
        ``(T, Z)``.

    Raises:
        ArgumentValueError: another ``output``.
        UnsupportedDtypeError, RankError, ShapeMismatchError: as ``lax.linalg.schur``.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.schur(tb.numpy.eye(2))[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if output not in ("real", "complex", "r", "c"):
        msg = f"schur: output={output!r}"
        raise ArgumentValueError(msg, expected="'real' or 'complex'")
    (x,) = inexact(a)
    if output.startswith("c"):
        # Narrow floats have no complex dtype of their own.
        (x,), _ = matrices("schur", x)
        x = as_dtype(x, complex_dtype(x.aval.dtype))
    t, z = lax_schur(x)
    return t, z


def _complex_form(t: Value, z: Value) -> list[Any]:
    weak = t.aval.weak_type and z.aval.weak_type
    return [lax.convert_dtype(x, x.aval.dtype, weak) for x in complex_form(t, z)]


_complex_form_staged = StagedFunction(_complex_form, "rsf2csf")


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The complex Schur form of a real one.

    Args:
        T: quasi-triangular matrices of shape ``(..., n, n)``.
        Z: the matrices of Schur vectors.
        check_finite: no effect.

    Returns:
        ``(T, Z)``: triangular and unitary.

    Raises:
        UnsupportedDtypeError: the matrices hold neither floats nor complex numbers.
        RankError, ShapeMismatchError: they are no square matrices with the same leading axes.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.rsf2csf(tb.numpy.eye(2), tb.numpy.eye(2))[0].shape
    (2, 2)
    """
    del check_finite
    (t, z), _ = matrices("rsf2csf", *inexact(T, Z), ranks=(2, 2))
    check_square("rsf2csf", t.aval)
    if z.aval.shape != t.aval.shape:
        msg = f"rsf2csf: T is {t.aval.str_short()}, Z is {z.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="two matrices of one shape")
    form, vectors = _complex_form_staged((t, z))
    return form, vectors


def _unitary_factor(x: Value, method: str, eps: float | None, max_iterations: int | None) -> Any:
    if method == "qdwh":

        def by_qdwh(x: Value) -> Any:
            return qdwh(x, eps=eps, max_iterations=max_iterations)[0]

        *batch, m, n = x.aval.shape
        if not batch:
            return by_qdwh(x)
        return tnp.reshape(vmap(by_qdwh)(tnp.reshape(x, (math.prod(batch), m, n))), (*batch, m, n))

    def by_svd(x: Value) -> list[Any]:
        u, _, vh = linalg.svd(x, full_matrices=False)
        return [value_of(tnp.matmul(u, vh))]

    return with_derivative("polar", value_of(x), by_svd)[0]


@one_program
def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """The polar decomposition: ``a = U P``, or with ``side="left"`` ``a = P U``.

    Args:
        a: matrices of shape ``(..., m, n)``.
        side: on which side the positive semidefinite factor stands.
        method: ``"qdwh"`` or ``"svd"``. Both can be differentiated where ``a`` has full rank.
        eps: precision of ``qdwh``.
        max_iterations: of ``qdwh``.

    Raises:
        ArgumentValueError: another side or method.
        RankError: ``a`` has fewer than 2 axes.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.polar(2 * tb.numpy.eye(2))[1].round(3).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    if side not in ("left", "right") or method not in ("qdwh", "svd"):
        msg = f"polar: side={side!r}, method={method!r}"
        raise ArgumentValueError(msg, expected="'left' or 'right', 'qdwh' or 'svd'")
    (x,) = inexact(a)
    if x.aval.ndim < 2:
        msg = f"polar: got {x.aval.str_short()}, expected matrices"
        raise RankError(msg)
    turned = surely_less(*x.aval.shape[-2:])
    factor = _unitary_factor(adjoint(x) if turned else x, method, eps, max_iterations)
    unitary = adjoint(factor) if turned else factor
    back = adjoint(unitary)
    p = tnp.matmul(x, back) if side == "left" else tnp.matmul(back, x)
    return unitary, (p + adjoint(p)) / 2


@one_program
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Eigenvalues and vectors of Hermitian matrices: ``a v = w v``, with ``b`` ``a v = w b v``.

    Args:
        a: matrices of shape ``(..., n, n)``.
        b: positive definite matrices of shape ``(..., n, n)``.
        lower: which triangles are read.
        eigvals_only: whether eigenvalues alone are wanted.
        overwrite_a: no effect.
        overwrite_b: no effect.
        turbo: no effect.
        eigvals: only None.
        type: which problem with ``b``: 1, 2 for ``a b v = w v``, 3 for ``b a v = w v``.
        check_finite: no effect.

    Returns:
        ``(w, v)``, or ``w``.

    Raises:
        UnsupportedArgumentError: ``eigvals`` is given.
        ArgumentValueError: another type.

    >>> import tracebridge as tb
    >>> tb.scipy.linalg.eigh(tb.numpy.eye(2), eigvals_only=True).tolist()
    [1.0, 1.0]
    """
    del overwrite_a, overwrite_b, turbo, check_finite
    if eigvals is not None:
        msg = "eigh: eigvals is given"
        raise UnsupportedArgumentError(msg, hint="use subset_by_index of lax.linalg.eigh")
    if type not in (1, 2, 3):
        msg = f"eigh: type={type}, expected 1, 2 or 3"
        raise ArgumentValueError(msg)
    if b is None:
        v, w = lax_eigh(inexact(a)[0], lower=lower, symmetrize_input=False)
        return w if eigvals_only else (w, v)
    x, y = inexact(a, b)
    if not lower:
        x, y = adjoint(x), adjoint(y)
    x = tnp.tril(x) + adjoint(tnp.tril(x, -1))
    factor = lax_cholesky(y, symmetrize_input=False)
    form = {"lower": True, "conjugate_a": True, "transpose_a": True}
    if type == 1:
        left = triangular_solve(factor, x, left_side=True, lower=True)
        inner = triangular_solve(factor, left, **form)
    else:
        inner = tnp.matmul(adjoint(factor), tnp.matmul(x, factor))
    v, w = lax_eigh(inner)
    if eigvals_only:
        return w
    if type == 3:
        return w, tnp.matmul(factor, v)
    return w, triangular_solve(factor, v, left_side=True, **form)


def _whole(main: Any, beside: Any) -> Any:
    return tnp.diag(main) + tnp.diag(beside, -1) + tnp.diag(tnp.conj(beside), 1)


def _of_whole(main: Any, beside: Any, subset: tuple[int, int] | None) -> list[Any]:
    return list(lax_eigh(_whole(main, beside), symmetrize_input=False, subset_by_index=subset))


_of_whole_staged = StagedFunction(_of_whole, "eigh_tridiagonal")


def _eigenvalues(main: Any, beside: Any, first: int, last: int) -> Any:
    """By bisection; the derivative is that of the whole matrix, as it takes eigenvectors."""

    @custom_jvp
    def run(main: Any, beside: Any) -> Any:
        return bisected(tnp.real(main), beside, first, last)

    def rule(primals: Any, tangents: Any) -> Any:
        def whole(*xs: Any) -> Any:
            _, w = lax_eigh(_whole(*xs), symmetrize_input=False, subset_by_index=(first, last))
            return w

        return run(*primals), jvp(whole, primals, tangents)[1]

    run.defjvp(rule)
    return run(main, beside)


_eigenvalues_staged = StagedFunction(_eigenvalues, "eigh_tridiagonal")


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Array | None = None,
) -> Any:
    """Eigenvalues and vectors of a symmetric tridiagonal matrix.

    Vectors, derivatives and small matrices come from the whole matrix; eigenvalues alone of large
    ones from their diagonals, by bisection.

    Args:
        d: the diagonal, of shape ``(n,)``.
        e: the elements beside it, of shape ``(n - 1,)``.
        eigvals_only: whether eigenvalues alone are wanted.
        select: ``"a"`` for all, ``"i"`` for those of indices in ``select_range``, both ends
            included, ``"v"`` for values in ``(select_range[0], select_range[1]]``, outside of
            traced functions.
        select_range: see ``select``.
        tol: no effect.
        key: no effect.

    Returns:
        Ascending ``w``, or ``(w, v)``.

    Raises:
        ArgumentValueError: another ``select``, or none of the range that it needs.
        RankError: ``d`` or ``e`` is no vector.
        ShapeMismatchError: ``d`` does not have one element more than ``e``.

    >>> import tracebridge as tb
    >>> d, e = tb.numpy.array([1.0, 2.0]), tb.numpy.zeros(1)
    >>> tb.scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True).tolist()
    [1.0, 2.0]
    """
    del tol, key
    if select not in ("a", "i", "v") or (select != "a" and select_range is None):
        msg = f"eigh_tridiagonal: select={select!r}, select_range={select_range}"
        raise ArgumentValueError(msg, expected="'a', or 'i' or 'v' with a range")
    main, beside = inexact(d, e)
    for x in (main, beside):
        if x.aval.ndim != 1:
            msg = f"eigh_tridiagonal: got {x.aval.str_short()}, expected a vector"
            raise RankError(msg, hint="use tracebridge.vmap for batches")
    n = main.aval.shape[0]
    if beside.aval.shape[0] != n - 1:
        msg = f"eigh_tridiagonal: d is {main.aval.str_short()}, e {beside.aval.str_short()}"
        raise ShapeMismatchError(msg, expected="one element of d more than of e")
    subset = None
    if select == "i" and select_range is not None:
        subset = (int(select_range[0]), int(select_range[1]) + 1)
    if eigvals_only and n > SMALL:
        w = _eigenvalues_staged((main, beside), (0, n) if subset is None else subset)
        if select == "v" and select_range is not None:
            w = w[(w > select_range[0]) & (w <= select_range[1])]
        return w
    v, w = _of_whole_staged((main, beside), (subset,))
    if select == "v" and select_range is not None:
        keep = (w > select_range[0]) & (w <= select_range[1])
        v, w = v[:, keep], w[keep]
    return w if eigvals_only else (w, v)
