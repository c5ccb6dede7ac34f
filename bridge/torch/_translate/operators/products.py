"""Matrix products and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import (
    Operator,
    as_numpy_dtype,
    axes_of,
    cast,
    promoted,
)


def _linear(x: Value, weight: Value, bias: Value | None = None) -> Any:
    y = tnp.matmul(x, weight.T)
    return y if bias is None else y + bias


def _plus(fun: Operator) -> Operator:
    """``beta * x + alpha * fun(a, b)``."""

    def run(x: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Any:
        y = fun(a, b)
        y = y if alpha == 1 else y * cast(alpha, y.dtype)
        if beta == 0:  # also where x is no number
            return y
        return y + (x if beta == 1 else x * cast(beta, x.dtype))

    return run


def _cdist(x: Value, y: Value, p: float, compute_mode: int | None = None) -> Any:
    return norm_of(x[..., :, None, :] - y[..., None, :, :], p)


def _pdist(x: Value, p: float = 2.0) -> Any:
    rows, columns = np.triu_indices(x.shape[0], 1)
    return norm_of(x[rows] - x[columns], p)


def _trilinear(
    x: Value,
    y: Value,
    z: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Any:
    """The product of three arrays with new axes, summed over some."""
    del unroll_dim
    letters = "abcdefghij"[: x.ndim + len(expand1)]
    terms = [
        "".join([c for i, c in enumerate(letters) if i not in new])
        for new in (expand1, expand2, expand3)
    ]
    kept = "".join([c for i, c in enumerate(letters) if i not in sumdim])
    return tnp.einsum(f"{','.join(terms)}->{kept}", x, y, z)


def norm_of(x: Value, p: Any, axes: Any = -1, *, keepdims: bool = False) -> Any:
    """The ``p``-norm, with the derivative 0 where it is 0."""
    size = tnp.abs(x)
    if p == 0:
        return cast(tnp.sum(size != 0, axis=axes, keepdims=keepdims), size.dtype)
    if abs(p) == math.inf:
        return (tnp.max if p > 0 else tnp.min)(size, axis=axes, keepdims=keepdims)
    if p == 1:
        safe = tnp.where(size == 0, cast(0, size.dtype), size)
        return tnp.sum(safe, axis=axes, keepdims=keepdims)
    zero, one = cast(0, size.dtype), cast(1, size.dtype)
    powers = tnp.where(
        size == 0,
        zero if p > 0 else cast(math.inf, size.dtype),
        tnp.where(size == 0, one, size) ** cast(p, size.dtype),
    )
    total = tnp.sum(powers, axis=axes, keepdims=keepdims)
    root = tnp.where(total == 0, one, total) ** cast(1 / p, size.dtype)
    return tnp.where(total == 0, zero, root)


def _dist(x: Value, y: Value, p: Any = 2) -> Any:
    x, y = promoted(x, y)
    difference = x - y
    return norm_of(difference, p, tuple(range(difference.ndim)))


def _vector_norm(
    x: Value,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    x = x if dtype is None else cast(x, as_numpy_dtype(dtype))
    return norm_of(x, ord, axes_of(dim, x.ndim), keepdims=keepdim)


ROWS: Final[dict[str, Operator]] = {
    "_cdist_forward.default": _cdist,
    "_pdist_forward.default": _pdist,
    "_trilinear.default": _trilinear,
    "addbmm.default": _plus(lambda a, b: tnp.sum(tnp.matmul(a, b), axis=0)),
    "addmm.default": _plus(tnp.matmul),
    "addmv.default": _plus(tnp.matmul),
    "baddbmm.default": _plus(tnp.matmul),
    "bmm.default": tnp.matmul,
    "dist.default": _dist,
    "dot.default": tnp.matmul,
    "linalg_vector_norm.default": _vector_norm,
    "linear.default": _linear,
    "matmul.default": tnp.matmul,
    "mm.default": tnp.matmul,
    "mv.default": tnp.matmul,
}
