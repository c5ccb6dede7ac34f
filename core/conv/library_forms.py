"""Gradients of kernels written so that a library for convolutions has kernels for them.

The gradient of a kernel is a convolution whose examples are the features of the array, whose
features are its examples, and whose kernel is as large as an image. oneDNN is fast at it where
what counts as features lies last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.conv.geometry import Geometry, in_order, split
from tracebridge.core.conv.numbers import ConvDimensionNumbers, Ints
from tracebridge.core.ir.primitive import Primitive

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


def _usual(n_space: int) -> tuple[Ints, Ints]:
    """Axes of an array and of a kernel whose features are last."""
    return (0, n_space + 1, *range(1, n_space + 1)), (n_space + 1, n_space, *range(n_space))


def features_last(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """The same convolution with features as last axes, as libraries want them."""
    usual, kernel = _usual(g.n_space)
    lhs, rhs, out = g.numbers
    x, y = in_order(x, lhs, usual), in_order(y, rhs, kernel)
    numbers = ConvDimensionNumbers(usual, kernel, usual)
    return in_order(prim.bind(x, y, **g.params(dimension_numbers=numbers)), usual, out)


def depthwise_gradient(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """Groups of one row and one output: each row of each example is a feature for itself."""
    n = g.n_space
    lhs, rhs, out = g.numbers
    # Examples are the features of the array here, and the inputs of the kernel.
    x = in_order(x, (lhs[0], lhs[1], *lhs[2:]), (n + 1, n, *range(n)))
    y = in_order(y, (rhs[0], rhs[1], *rhs[2:]), (n + 1, n, *range(n)))
    examples, count = x.aval.shape[n:]
    size = examples * count
    usual, kernel = _usual(n)
    params = g.params(
        dimension_numbers=ConvDimensionNumbers(usual, kernel, usual),
        feature_group_count=size,
        batch_group_count=1,
    )
    x = lax.reshape(x, (1, *g.sizes, size))
    total = prim.bind(x, lax.reshape(y, (*g.kernel, 1, size)), **params)
    total = lax.reduce_sum(lax.reshape(total, (1, *g.results, examples, count)), (n + 1,))
    return in_order(total, usual, out)


def grouped_gradient(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """Groups of the batch as groups of features: examples are those of each group."""
    n = g.n_space
    lhs, rhs, out = g.numbers
    x = split(in_order(x, lhs, (0, n + 1, *range(1, n + 1))), 0, g.groups)
    # (group, row, space, example) to (row, space, group, example)
    x = lax.transpose(x, (*range(1, n + 2), 0, n + 2))
    x = lax.reshape(x, (*x.aval.shape[: n + 1], g.groups * x.aval.shape[-1]))
    usual, kernel = _usual(n)
    params = g.params(
        dimension_numbers=ConvDimensionNumbers(usual, kernel, usual),
        feature_group_count=g.groups,
        batch_group_count=1,
    )
    return in_order(prim.bind(x, in_order(y, rhs, kernel), **params), usual, out)
