"""Factors of matrices by torch's own functions; the other functions by what they consist of."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.torch._aten.builder import Builder, aten, rule


def _nan_where(b: Builder, failed: fx.Proxy, x: fx.Proxy, more: int = 2) -> Any:
    """``x`` with NaN where the flag of its matrix is set."""
    for _ in range(more):
        failed = b.call(aten.unsqueeze.default, failed, -1)
    return b.call(aten.masked_fill.Scalar, x, failed, math.nan)


def _adjoint(b: Builder, x: fx.Proxy, *, conjugate: bool = True) -> Any:
    x = b.call(aten.transpose.int, x, -2, -1)
    return b.call(aten.conj_physical.default, x) if conjugate else x


def _is_empty(b: Builder) -> bool:
    return any([type(n) is int and n == 0 for a in b.avals for n in a.shape])


@rule("cholesky")
def _cholesky(b: Builder, x: fx.Proxy, **_: object) -> Any:
    factor, info = b.call_all(aten.linalg_cholesky_ex.default, 2, x)
    failed = b.call(aten.ne.Scalar, info, 0)
    return b.call(aten.tril.default, _nan_where(b, failed, factor))


@rule("lu")
def _lu(b: Builder, x: fx.Proxy, **_: object) -> Any:
    if _is_empty(b):
        return NotImplemented
    factors, pivots, _info = b.call_all(aten.linalg_lu_factor_ex.default, 3, x)
    chosen = b.call_all(aten.lu_unpack.default, 3, factors, pivots, False, True)[0]
    if is_complex(b.avals[0].dtype):
        chosen = b.call(aten.real.default, chosen)
    order = b.call(aten.argmax.default, chosen, -2)
    return [factors, b.call(aten.sub.Scalar, pivots, 1), b.convert(order, torch.int32)]


@rule("qr")
def _qr(b: Builder, x: fx.Proxy, full_matrices: bool, pivoting: bool = False, **_: object) -> Any:
    if pivoting or _is_empty(b):
        return NotImplemented
    return b.call_all(aten.linalg_qr.default, 2, x, "complete" if full_matrices else "reduced")


@rule("eigh")
def _eigh(b: Builder, x: fx.Proxy, lower: bool, subset_by_index: Any = None, **_: object) -> Any:
    if _is_empty(b):
        return NotImplemented
    w, v = b.call_all(aten.linalg_eigh.default, 2, x, "L" if lower else "U")
    if subset_by_index is not None and tuple(subset_by_index) != (0, b.avals[0].shape[-1]):
        low, high = subset_by_index
        w, v = (b.call(aten.slice.Tensor, a, -1, low, high) for a in (w, v))
    return [v, w]


@rule("svd")
def _svd(
    b: Builder,
    x: fx.Proxy,
    compute_uv: bool,
    full_matrices: bool = True,
    subset_by_index: Any = None,
    **_: object,
) -> Any:
    if _is_empty(b) or subset_by_index is not None:
        return NotImplemented
    if not compute_uv:
        return [b.call(aten.linalg_svdvals.default, x)]
    u, s, v = b.call_all(aten.linalg_svd.default, 3, x, full_matrices)
    return [s, u, v]


@rule("eig")
def _eig(
    b: Builder,
    x: fx.Proxy,
    compute_left_eigenvectors: bool,
    compute_right_eigenvectors: bool,
    **_: object,
) -> Any:
    if compute_left_eigenvectors or _is_empty(b):
        return NotImplemented
    if not compute_right_eigenvectors:
        return [b.call(aten.linalg_eigvals.default, x)]
    return b.call_all(aten.linalg_eig.default, 2, x)


@rule("triangular_solve")
def _triangular_solve(
    b: Builder,
    a: fx.Proxy,
    y: fx.Proxy,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
    **_: object,
) -> Any:
    if conjugate_a and is_complex(b.avals[0].dtype):
        a = b.call(aten.conj_physical.default, a)
    upper = not lower
    if transpose_a:
        a, upper = b.call(aten.transpose.int, a, -2, -1), not upper
    # torch reads nothing of the other triangle, but its gradient does not leave it out.
    a = b.call(aten.triu.default if upper else aten.tril.default, a)
    return b.call(
        aten.linalg_solve_triangular.default,
        a,
        y,
        upper=upper,
        left=left_side,
        unitriangular=unit_diagonal,
    )


@rule("det")
def _det(b: Builder, x: fx.Proxy, **_: object) -> Any:
    return b.call(aten.linalg_det.default, x)


@rule("householder_product")
def _householder_product(b: Builder, a: fx.Proxy, taus: fx.Proxy, **_: object) -> Any:
    return (
        NotImplemented if _is_empty(b) else b.call(aten.linalg_householder_product.default, a, taus)
    )


@rule("symmetric_product")
def _symmetric_product(
    b: Builder, a: fx.Proxy, c: fx.Proxy, alpha: float, beta: float, **_: object
) -> Any:
    product = b.call(aten.matmul.default, a, _adjoint(b, a, conjugate=False))
    product = b.call(aten.mul.Scalar, product, alpha)
    return b.call(aten.add.Tensor, product, b.call(aten.mul.Scalar, c, beta))
