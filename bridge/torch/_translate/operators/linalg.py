"""Factorizations and systems of linear equations.

Torch checks factors on the host and raises for singular matrices; compiled programs do not:
there, as with `check_errors=False`, results are infinite or not numbers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.core.linalg.cholesky import cholesky
from tracebridge.core.linalg.eig import eig
from tracebridge.core.linalg.eigh import eigh
from tracebridge.core.linalg.lu import lu, lu_pivots_to_permutation
from tracebridge.core.linalg.qr import geqrf_p, householder_product, ormqr, qr
from tracebridge.core.linalg.svd import svd
from tracebridge.core.linalg.triangular import triangular_solve
from tracebridge.scipy.linalg._exponential import expm
from tracebridge.torch._translate.numbers import Operator, cast

_INT32: Final = np.dtype(np.int32)


def _adjoint(x: Value) -> Any:
    return tnp.conj(tnp.swapaxes(x, -1, -2))


def _info(x: Value) -> Any:
    """Zero for each matrix that could be factored."""
    return cast(~tnp.all(lax.eq(x, x), axis=(-2, -1)), _INT32)


def _empty(x: Value) -> Any:
    """What torch gives in the place of factors that nobody asked for."""
    return tnp.zeros((0,), x.dtype)


def _hermitian(x: Value, *, lower: bool) -> Any:
    """The matrix of one triangle, with the derivative of a Hermitian one."""
    real = tnp.diagonal(x, axis1=-2, axis2=-1).real
    part = tnp.tril(x, -1) if lower else tnp.triu(x, 1)
    eye = tnp.eye(x.shape[-1], dtype=x.dtype)
    whole = part + _adjoint(part) + eye * cast(real, x.dtype)[..., None, :]
    mean = (x + _adjoint(x)) * cast(0.5, x.dtype)
    return mean + lax.stop_gradient(whole - mean)


def _cholesky(x: Value, *, upper: bool = False, check_errors: bool = False) -> Any:
    del check_errors
    factor = cholesky(_hermitian(x, lower=not upper), symmetrize_input=False)
    return (_adjoint(factor) if upper else factor), _info(factor)


def _cholesky_solve(b: Value, factor: Value, upper: bool = False) -> Any:
    low = _adjoint(factor) if upper else factor
    low, b = _same_batch(low, b)
    y = triangular_solve(low, b, left_side=True, lower=True)
    return triangular_solve(low, y, left_side=True, lower=True, transpose_a=True, conjugate_a=True)


def _cholesky_inverse(factor: Value, upper: bool = False) -> Any:
    return _cholesky_solve(tnp.eye(factor.shape[-1], dtype=factor.dtype), factor, upper)


def _same_batch(a: Value, b: Value) -> tuple[Any, Any]:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (
        tnp.broadcast_to(a, (*batch, *a.shape[-2:])),
        tnp.broadcast_to(b, (*batch, *b.shape[-2:])),
    )


def _factored(x: Value) -> tuple[Any, Any]:
    """LU in one, and row exchanges counted from 1."""
    factors, pivots, _ = lu(x)
    return factors, pivots + np.int32(1)


def _lu_factor(x: Value, *, pivot: bool = True, check_errors: bool = False) -> Any:
    del check_errors
    _check_pivots(pivot)
    factors, pivots = _factored(x)
    return factors, pivots, _info(factors)


def _check_pivots(pivot: bool) -> None:
    if not pivot:
        msg = "LU factors without pivots exist on GPUs alone: use pivot=True"
        raise ValueError(msg)


def _split(factors: Value, pivots: Value) -> tuple[Any, Any, Any]:
    """P, L, U of LU factors with row exchanges counted from 1."""
    m, n = factors.shape[-2:]
    k = min(m, n)
    low = tnp.tril(factors[..., :, :k], -1) + tnp.eye(m, k, dtype=factors.dtype)
    order = lu_pivots_to_permutation(pivots - np.int32(1), m)
    rows = tnp.arange(m, dtype=_INT32)
    p = cast(lax.eq(*tnp.broadcast_arrays(rows[:, None], order[..., None, :])), factors.dtype)
    return p, low, tnp.triu(factors[..., :k, :])


def _lu(x: Value, *, pivot: bool = True) -> tuple[Any, Any, Any]:
    _check_pivots(pivot)
    return _split(*_factored(x))


def _lu_unpack(
    factors: Value, pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Any, Any, Any]:
    p, low, up = _split(factors, pivots)
    none = _empty(factors)
    return (p if unpack_pivots else none, *((low, up) if unpack_data else (none, none)))


def _lu_solve(
    factors: Value, pivots: Value, b: Value, *, left: bool = True, adjoint: bool = False
) -> Any:
    if not left:  # X A = B: A^H X^H = B^H
        return _adjoint(_lu_solve(factors, pivots, _adjoint(b), adjoint=not adjoint))
    p, low, up = _split(factors, pivots)
    p, b = _same_batch(p, b)
    low, _ = _same_batch(low, b)
    up, _ = _same_batch(up, b)
    if adjoint:
        y = triangular_solve(up, b, left_side=True, transpose_a=True, conjugate_a=True)
        y = triangular_solve(
            low, y, left_side=True, lower=True, transpose_a=True, conjugate_a=True,
            unit_diagonal=True,
        )  # fmt: skip
        return tnp.matmul(p, y)
    y = tnp.matmul(_adjoint(p), b)
    y = triangular_solve(low, y, left_side=True, lower=True, unit_diagonal=True)
    return triangular_solve(up, y, left_side=True)


def _inverse(x: Value, *, check_errors: bool = False) -> Any:
    del check_errors
    inverse = tnp.linalg.inv(x)
    return inverse, _info(inverse)


def _solve(a: Value, b: Value, *, left: bool = True, check_errors: bool = False) -> Any:
    del check_errors
    is_vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    rhs = b[..., None] if is_vector else b
    if left:
        x = tnp.linalg.solve(a, rhs)
    else:
        x = tnp.swapaxes(
            tnp.linalg.solve(tnp.swapaxes(a, -1, -2), tnp.swapaxes(rhs, -1, -2)), -1, -2
        )
    factors, pivots = _factored(lax.stop_gradient(a))
    return (x[..., 0] if is_vector else x), factors, pivots, _info(factors)


def _det(x: Value) -> tuple[Any, Any, Any]:
    return tnp.linalg.det(x), *_factored(lax.stop_gradient(x))


def _slogdet(x: Value) -> tuple[Any, Any, Any, Any]:
    sign, size = tnp.linalg.slogdet(x)
    return sign, size, *_factored(lax.stop_gradient(x))


def _eigh(x: Value, uplo: str = "L", compute_v: bool = True) -> tuple[Any, Any]:
    lower = uplo.upper() == "L"
    vectors, values = eigh(_hermitian(x, lower=lower), lower=lower, symmetrize_input=False)
    return values, vectors if compute_v else _empty(x)


def _eig(x: Value) -> tuple[Any, Any]:
    values, vectors = eig(x, compute_left_eigenvectors=False, enable_eigvec_derivs=True)
    return values, vectors


def _eigvals(x: Value) -> Any:
    (values,) = eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    return values


def _svd(
    x: Value, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Any, Any, Any]:
    del driver  # of GPUs
    if not compute_uv:
        return _empty(x), svd(x, compute_uv=False), _empty(x)
    return svd(x, full_matrices=full_matrices)


def _qr(x: Value, mode: str = "reduced") -> tuple[Any, Any]:
    q, r = qr(x, full_matrices=mode == "complete")
    return (_empty(x) if mode == "r" else q), r


def _reflected(a: Value, taus: Value, c: Value, left: bool = True, transpose: bool = False) -> Any:
    """A product with the reflectors, of which there may be fewer than columns."""
    k = taus.shape[-1]
    return ormqr(a[..., :k], taus, c, left=left, transpose=transpose)


def _triangle(
    a: Value, b: Value, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    a, b = _same_batch(a, b)
    return triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular)


def _old_triangle(
    b: Value, a: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Any, Any]:
    matrix, b = _same_batch(a, b)
    x = triangular_solve(
        matrix, b, left_side=True, lower=not upper, transpose_a=transpose,
        unit_diagonal=unitriangular,
    )  # fmt: skip
    return x, a


def _pinv(x: Value, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    if hermitian:  # torch reads the lower triangle, and differentiates as if it read all
        x = x + lax.stop_gradient(_hermitian(x, lower=True) - x)
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(tnp.finfo(x.dtype).eps) if atol is None else 0.0
    if atol is not None:
        largest = tnp.max(svd(lax.stop_gradient(x), compute_uv=False), axis=-1, initial=0)
        least = tnp.where(largest > 0, tnp.asarray(atol) / largest, np.inf)
        rtol = tnp.maximum(cast(rtol, largest.dtype), cast(least, largest.dtype))
    return tnp.linalg.pinv(x, rtol=rtol)


ROWS: Final[dict[str, Operator]] = {
    "linalg_cholesky_ex.default": _cholesky,
    "cholesky.default": lambda x, upper=False: _cholesky(x, upper=upper)[0],
    "cholesky_solve.default": _cholesky_solve,
    "cholesky_inverse.default": _cholesky_inverse,
    "linalg_inv_ex.default": _inverse,
    "_linalg_solve_ex.default": _solve,
    "_linalg_det.default": _det,
    "_linalg_slogdet.default": _slogdet,
    "_linalg_eigh.default": _eigh,
    "linalg_eig.default": _eig,
    "linalg_eigvals.default": _eigvals,
    "_linalg_eigvals.default": _eigvals,
    "_linalg_svd.default": _svd,
    "linalg_qr.default": _qr,
    "geqrf.default": lambda x: tuple(geqrf_p.bind(x, pivoting=False)),
    "ormqr.default": _reflected,
    "linalg_lu.default": _lu,
    "linalg_lu_factor_ex.default": _lu_factor,
    "linalg_lu_solve.default": _lu_solve,
    "lu_unpack.default": _lu_unpack,
    "linalg_solve_triangular.default": _triangle,
    "triangular_solve.default": _old_triangle,
    "linalg_householder_product.default": householder_product,
    "linalg_matrix_exp.default": expm,
    "linalg_pinv.atol_rtol_tensor": _pinv,
}
