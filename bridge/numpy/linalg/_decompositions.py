"""Factors, eigenvalues and singular values."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.linalg.cholesky import cholesky as lax_cholesky
from tracebridge.core.linalg.eig import eig as lax_eig
from tracebridge.core.linalg.eigh import eigh as lax_eigh
from tracebridge.core.linalg.family import matrices, rounded
from tracebridge.core.linalg.matrices import adjoint, swapped
from tracebridge.core.linalg.qr import geqrf_p
from tracebridge.core.linalg.qr import qr as lax_qr
from tracebridge.core.linalg.svd import svd as lax_svd
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.remembered import remembered
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import promote_inexact


class EigResult(NamedTuple):
    """Eigenvalues and the matrix whose columns are the eigenvectors."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """Ascending eigenvalues and the matrix whose columns are the eigenvectors."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """Orthonormal columns, and the upper triangular factor."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """Left singular vectors, descending singular values, adjoints of right singular vectors."""

    U: Array
    S: Array
    Vh: Array


def _cholesky(a: Any, upper: bool, symmetrize: bool) -> Any:
    (a,) = promote_inexact(a)
    a = adjoint(a) if upper and not symmetrize else a
    factor = lax_cholesky(a, symmetrize_input=symmetrize)
    return adjoint(factor) if upper else factor


def _eig(a: Any) -> Any:
    (a,) = promote_inexact(a)
    return lax_eig(a, compute_left_eigenvectors=False)


def _eigvals(a: Any) -> Any:
    (a,) = promote_inexact(a)
    return lax_eig(a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


def _eigh(a: Any, lower: bool, symmetrize: bool) -> Any:
    (a,) = promote_inexact(a)
    v, w = lax_eigh(a, lower=lower, symmetrize_input=symmetrize)
    return [w, v]


def _qr(a: Any, mode: str) -> Any:
    (a,) = promote_inexact(a)
    if mode == "raw":
        (a,), dtype = matrices("qr", a)
        found, taus = geqrf_p.bind(a, pivoting=False)
        return [rounded(swapped(found), dtype), rounded(taus, dtype)]
    q, r = lax_qr(a, full_matrices=mode == "complete")
    return r if mode == "r" else [q, r]


def _svd(a: Any, full: bool, vectors: bool, subset: Any) -> Any:
    (a,) = promote_inexact(a)
    out = lax_svd(a, full_matrices=full, compute_uv=vectors, subset_by_index=subset)
    return list(out) if vectors else out


_cholesky_staged = StagedFunction(_cholesky, "cholesky")
_eig_staged = StagedFunction(_eig, "eig")
_eigvals_staged = StagedFunction(_eigvals, "eigvals")
_eigh_staged = StagedFunction(_eigh, "eigh")
_eigvalsh_staged = StagedFunction(lambda *args: _eigh(*args)[0], "eigvalsh")
_qr_staged = StagedFunction(_qr, "qr")
_svd_staged = StagedFunction(_svd, "svd")


@remembered
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Cholesky factors: lower triangular matrices with ``L L^H = a``.

    Args:
        a: Hermitian positive definite matrices of shape ``(..., n, n)``; integers become floats.
        upper: whether the adjoint of L is wanted.
        symmetrize_input: whether the mean of ``a`` and its adjoint is factored; if not, one
            triangle alone is read.

    Returns:
        Array of the shape of ``a``; NaN where a matrix is not positive definite.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.cholesky(tnp.array([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    return _cholesky_staged((a,), (bool(upper), bool(symmetrize_input)))


@remembered
def eig(a: ArrayLike) -> EigResult:
    """Eigenvalues and eigenvectors of general matrices.

    Args:
        a: matrices of shape ``(..., n, n)``; integers become floats.

    Returns:
        Complex ``(eigenvalues, eigenvectors)`` of shapes ``(..., n)`` and ``(..., n, n)``. The
        vectors have no derivatives here, see ``tracebridge.lax.linalg.eig``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.eig(tnp.eye(2)).eigenvalues.tolist()
    [(1+0j), (1+0j)]
    """
    return EigResult(*_eig_staged((a,)))


@remembered
def eigvals(a: ArrayLike) -> Array:
    """Eigenvalues of general matrices, complex.

    Args:
        a: matrices of shape ``(..., n, n)``; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.eigvals(tnp.eye(2)).tolist()
    [(1+0j), (1+0j)]
    """
    return _eigvals_staged((a,))


def _is_lower(name: str, uplo: str | None) -> bool:
    letter = "L" if uplo is None else uplo
    if letter not in ("L", "U", "l", "u"):
        msg = f"{name}: UPLO={uplo!r}"
        raise ArgumentValueError(msg, expected="'L' or 'U'")
    return letter.upper() == "L"


@remembered
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric or Hermitian matrices.

    Args:
        a: matrices of shape ``(..., n, n)``; integers become floats.
        UPLO: which triangle is read without ``symmetrize_input``: ``"L"`` or ``"U"``.
        symmetrize_input: whether the mean of ``a`` and its adjoint is decomposed.

    Returns:
        ``(eigenvalues, eigenvectors)``: real and ascending, of shape ``(..., n)``; columns of
        arrays of shape ``(..., n, n)``. Derivatives where eigenvalues are equal: see
        ``lax.linalg.eigh``.

    Raises:
        ArgumentValueError: another ``UPLO``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.eigh(tnp.diag(tnp.array([2.0, 1.0]))).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return EighResult(*_eigh_staged((a,), (_is_lower("eigh", UPLO), bool(symmetrize_input))))


@remembered
def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Eigenvalues of symmetric or Hermitian matrices, real and ascending.

    Args:
        a: matrices of shape ``(..., n, n)``; integers become floats.
        UPLO: as in ``eigh``.
        symmetrize_input: as in ``eigh``.

    Raises:
        ArgumentValueError: another ``UPLO``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.eigvalsh(tnp.diag(tnp.array([2.0, 1.0]))).tolist()
    [1.0, 2.0]
    """
    return _eigvalsh_staged((a,), (_is_lower("eigvalsh", UPLO), bool(symmetrize_input)))


@remembered
def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """QR factors: ``a = Q R`` with orthonormal columns of Q and upper triangular R.

    Args:
        a: matrices of shape ``(..., m, n)``; integers become floats.
        mode: ``"reduced"``, ``"complete"`` for a square Q, ``"r"`` for R alone; ``"full"`` is
            another name of ``"reduced"``. ``"raw"``: what LAPACK's geqrf gives.

    Returns:
        ``(Q, R)``, or R. For ``"raw"`` ``(h, tau)`` of shapes ``(..., n, m)`` and
        ``(..., min(m, n))``: transposed, ``h`` has R in its upper triangle and below it the
        reflectors whose product is Q; ``tau`` has their factors.

    Raises:
        ArgumentValueError: another ``mode``.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.qr(tnp.array([[3.0], [4.0]])).R.round(4).tolist()
    [[-5.0]]
    """
    if mode not in ("reduced", "full", "complete", "r", "raw"):
        msg = f"qr: mode={mode!r}"
        raise ArgumentValueError(msg, expected="'reduced', 'complete', 'r' or 'raw'")
    out = _qr_staged((a,), (mode,))
    return out if mode == "r" else QRResult(*out)


@remembered
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """Singular value decomposition: ``a = U diag(S) Vh``.

    Args:
        a: matrices of shape ``(..., m, n)``; integers become floats.
        full_matrices: whether U and Vh are square.
        compute_uv: whether singular vectors are wanted.
        hermitian: whether the matrices are Hermitian; no effect on the result.
        subset_by_index: ``(start, stop)``: which of the descending singular values are wanted.

    Returns:
        ``(U, S, Vh)``, or ``S``. Derivatives where singular values are equal: see
        ``lax.linalg.svd``.

    Raises:
        ArgumentValueError: the subset is no range of singular values.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.svd(tnp.diag(tnp.array([3.0, 4.0]))).S.tolist()
    [4.0, 3.0]
    """
    del hermitian
    subset = None if subset_by_index is None else (int(subset_by_index[0]), int(subset_by_index[1]))
    out = _svd_staged((a,), (bool(full_matrices), bool(compute_uv), subset))
    return SVDResult(*out) if compute_uv else out


@remembered
def svdvals(x: ArrayLike, /) -> Array:
    """Singular values, descending.

    Args:
        x: matrices of shape ``(..., m, n)``; integers become floats.

    >>> import tracebridge.numpy as tnp
    >>> tnp.linalg.svdvals(tnp.diag(tnp.array([3.0, 4.0]))).tolist()
    [4.0, 3.0]
    """
    return _svd_staged((x,), (False, False, None))
