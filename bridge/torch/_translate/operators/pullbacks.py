"""Operators that torch's autograd leaves in graphs: modules that differentiate inside have them.

Those of which torch knows no parts. Each is the pullback of the operator that it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.numpy as tnp
from tracebridge._api.derivatives.vjp import vjp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, axis_of
from tracebridge.torch._translate.operators import windows

_FORWARD: Final = windows.ROWS


def _pullback(name: str) -> Operator:
    """The derivative by the first operand of an operator of the table."""

    def run(g: Value, x: Value, *options: Any) -> Any:
        return vjp(lambda x: _FORWARD[name](x, *options), x)[1](g)[0]

    return run


def _of_convolution(
    g: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[Any] | None,
    *options: Any,
) -> tuple[Any, ...]:
    """Derivatives by input, kernel and bias; the last option says which ones are wanted."""
    *options_of_forward, wanted = options
    axes = (0, *range(2, g.ndim))

    def forward(x: Any, weight: Any) -> Any:
        return _FORWARD["convolution.default"](x, weight, None, *options_of_forward)

    by_x, by_weight = vjp(forward, x, weight)[1](g)
    found = (by_x, by_weight, tnp.sum(g, axis=axes))
    return tuple([v if is_wanted else None for v, is_wanted in zip(found, wanted, strict=True)])


def _of_maxima(n: int) -> Operator:
    """Cotangents of maxima at the positions that their operator gave."""

    def run(g: Value, x: Value, *options: Any) -> Any:
        index = options[-1]
        batch = x.shape[: x.ndim - n]
        rows, size = math.prod(batch), math.prod(x.shape[x.ndim - n :])
        flat = tnp.zeros((rows, size), g.dtype)
        row = tnp.arange(rows, dtype=np.int32)[:, None]
        flat = flat.at[row, index.reshape(rows, -1)].add(g.reshape(rows, -1))
        return flat.reshape(x.shape)

    return run


def _of_adaptive_mean(n: int) -> Operator:
    pullback = _pullback(f"_adaptive_avg_pool{n}d.default")
    return lambda g, x: pullback(g, x, g.shape[axis_of(-n, g.ndim) :])


ROWS: Final[dict[str, Operator]] = {
    "_adaptive_avg_pool2d_backward.default": _of_adaptive_mean(2),
    "_adaptive_avg_pool3d_backward.default": _of_adaptive_mean(3),
    "adaptive_max_pool2d_backward.default": _of_maxima(2),
    "adaptive_max_pool3d_backward.default": _of_maxima(3),
    "avg_pool2d_backward.default": _pullback("avg_pool2d.default"),
    "avg_pool3d_backward.default": _pullback("avg_pool3d.default"),
    "convolution_backward.default": _of_convolution,
    "max_pool2d_with_indices_backward.default": _of_maxima(2),
    "max_pool3d_with_indices_backward.default": _of_maxima(3),
}
