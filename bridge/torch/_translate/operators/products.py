"""Matrix products, and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

import tracebridge.nn as nn
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.random.transforms import bernoulli
from tracebridge.torch._translate.numbers import (
    Operator,
    as_numpy_dtype,
    axes_of,
    cast,
    promoted,
    wide,
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


def attention(
    key: Value,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention over arrays of shape ``(..., heads, length, size)``."""
    if attn_mask is not None and attn_mask.dtype != np.bool_:
        # A query that sees no key gives 0, with derivatives that are numbers.
        some = tnp.any(attn_mask != -math.inf, axis=-1, keepdims=True)
        attn_mask = tnp.where(some, attn_mask, cast(0, attn_mask.dtype))
        y = _seeing(key, q, k, v, attn_mask, dropout_p, is_causal, scale)
        return tnp.where(some, y, cast(0, y.dtype))
    return _seeing(key, q, k, v, attn_mask, dropout_p, is_causal, scale)


def _seeing(
    key: Value,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Any:
    """Attention in which a mask of floats leaves each query a key."""
    if dropout_p == 0 and q.ndim == k.ndim == v.ndim == 4 and v.shape[-1] == q.shape[-1]:
        n = max([x.shape[0] if isinstance(x.shape[0], int) else 0 for x in (q, k, v)])
        if any([type(x.shape[0]) is int and x.shape[0] < n for x in (q, k, v)]):
            q, k, v = [tnp.broadcast_to(x, (n, *x.shape[1:])) for x in (q, k, v)]
        if k.shape[1] == 1 != v.shape[1]:
            k = tnp.broadcast_to(k, (k.shape[0], v.shape[1], *k.shape[2:]))
        if v.shape[1] == 1 != k.shape[1]:
            v = tnp.broadcast_to(v, (v.shape[0], k.shape[1], *v.shape[2:]))
        if k.shape[1] == v.shape[1] and q.shape[1] == 1:
            q = tnp.broadcast_to(q, (q.shape[0], k.shape[1], *q.shape[2:]))
        query, keys, values = [tnp.swapaxes(x, 1, 2) for x in (q, k, v)]
        bias = mask = None
        if attn_mask is not None:
            attn_mask = tnp.reshape(attn_mask, (1,) * (4 - attn_mask.ndim) + attn_mask.shape)
            bias, mask = (None, attn_mask) if attn_mask.dtype == np.bool_ else (attn_mask, None)
        if mask is None:
            y = nn.dot_product_attention(
                query, keys, values, bias, scale=scale, is_causal=is_causal
            )
            return tnp.swapaxes(y, 1, 2)
    return _explicit(key, q, k, v, attn_mask, dropout_p, is_causal, scale)


def _explicit(
    key: Value,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: Any,
) -> Any:
    """The softmax written out: with dropout, and where a query may see no key at all."""
    k, v = [
        tnp.repeat(x, q.shape[-3] // x.shape[-3], axis=-3)
        if q.ndim > 2 and x.shape[-3] != q.shape[-3] and 1 not in (x.shape[-3], q.shape[-3])
        else x  # one for all
        for x in (k, v)
    ]
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = tnp.matmul(wide(q), tnp.swapaxes(wide(k), -1, -2))
    scores *= cast(factor, scores.dtype)
    if is_causal:
        rows, columns = scores.shape[-2:]
        mask = tnp.arange(rows)[:, None] >= tnp.arange(columns)
    if mask is not None and mask.dtype == np.bool_:
        low = cast(-math.inf, scores.dtype)
        some = tnp.any(mask, axis=-1, keepdims=True)
        # A query that sees no key gives 0, with derivatives that are numbers.
        scores = tnp.where(mask | ~some, scores, low)
        weights = tnp.where(some, nn.softmax(scores, axis=-1), cast(0, scores.dtype))
    else:
        scores = scores if mask is None else scores + cast(mask, scores.dtype)
        weights = nn.softmax(scores, axis=-1)
    if dropout_p > 0:
        kept = bernoulli(key, 1 - dropout_p, weights.shape)
        factor = 1 / (1 - dropout_p) if dropout_p < 1 else 0
        weights = tnp.where(kept, weights * cast(factor, weights.dtype), cast(0, weights.dtype))
    return cast(tnp.matmul(weights, wide(v)), v.dtype)


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
KEYED_ROWS: Final[dict[str, Operator]] = {
    "scaled_dot_product_attention.default": attention,
}


def draws_in_attention(*args: Any, **kwargs: Any) -> bool:
    """Whether a call of attention draws numbers."""
    given = args[4] if len(args) > 4 else kwargs.get("dropout_p", 0.0)
    return given != 0
