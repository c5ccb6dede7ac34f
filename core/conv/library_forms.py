"""Convolutions written so that a library for them has kernels: with features last.

The gradient of a kernel is a convolution whose examples are the features of the array, whose
features are its examples, and whose kernel is as large as an image. oneDNN is fast at it where
what counts as features lies last. Each form binds the convolution that the function ``..._of``
describes, so that a rule can ask first whether the library takes that one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.conv.geometry import Geometry, in_order, split
from tracebridge.core.conv.numbers import ConvDimensionNumbers, Ints
from tracebridge.core.ir.primitive import Primitive

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value

_LEAST_PART = 1 << 22  # bytes of a part of a kernel: beside its products a call is nothing
_VECTOR = 16  # outputs that are computed together
# Steps over examples, below which the library takes few of them less fast than many:
_LEAST_EXAMPLES = 4  # of a step
_LARGE_IMAGE = 1 << 12  # places
_LARGE_ARRAYS = 12 << 20  # bytes of both
_MANY_TIMES = 100  # what they are to what they add up to, so that adding that is nothing


def _usual(n_space: int) -> ConvDimensionNumbers:
    """Features are the last axis of arrays, and the last two of kernels."""
    space = tuple(range(1, n_space + 1))
    array: Ints = (0, n_space + 1, *space)
    return ConvDimensionNumbers(array, (n_space + 1, n_space, *range(n_space)), array)


def _with_sizes(
    g: Geometry, batch: int, features: int, inputs: int, outputs: int, groups: int
) -> Geometry:
    """A convolution over the places of ``g``, features last, with groups of features."""
    return g._replace(
        lhs=(batch, *g.sizes, features),
        rhs=(*g.kernel, inputs, outputs),
        out=(batch, *g.results, outputs),
        numbers=_usual(g.n_space),
        feature_groups=groups,
        batch_groups=1,
    )


def turned(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """The same convolution of an array with features in front, of a copy with features last."""
    usual = _usual(g.n_space)
    numbers = usual._replace(rhs_spec=g.numbers.rhs_spec)
    x = in_order(x, g.numbers.lhs_spec, usual.lhs_spec)
    total = prim.bind(x, y, **g.params(dimension_numbers=numbers))
    return in_order(total, usual.out_spec, g.numbers.out_spec)


def _rows_and_examples(g: Geometry) -> tuple[int, int]:
    """Features of the array, which count as the batch, and examples, which count as features."""
    return g.lhs[g.numbers.lhs_spec[0]], g.lhs[g.numbers.lhs_spec[1]]


def features_last_of(g: Geometry) -> Geometry:
    """What ``features_last`` binds."""
    return _with_sizes(g, *_rows_and_examples(g), g.inputs, g.outputs, 1)


def features_last(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """The same convolution with features as last axes, as libraries want them.

    Both arrays are copied into that order. Large ones are taken by steps over the examples, one
    after the other, so that only the copies of one step are there at a time.
    """
    n_steps = _steps(g)
    if n_steps == 1:
        return _in_library_order(prim, x, y, g)
    n = g.inputs // n_steps
    step = _with_examples(g, n)
    total: Any = None
    for k in range(n_steps):
        left, right = [
            lax.slice_in_dim(value, k * n, (k + 1) * n, axis=spec[1])
            for value, spec in ((x, g.numbers.lhs_spec), (y, g.numbers.rhs_spec))
        ]
        if k:
            # The next step begins when this sum is there.
            total, left, right = lax.optimization_barrier([total, left, right])
        part = _in_library_order(prim, left, right, step)
        total = lax.add(total, part) if k else part
    return total


def _steps(g: Geometry) -> int:
    """In how many steps over the examples a sum is made."""
    size = 4 * (math.prod(g.lhs) + math.prod(g.rhs))
    is_wide = g.outputs >= 2 * _VECTOR and g.outputs % _VECTOR == 0
    if not is_wide or math.prod(g.sizes) < _LARGE_IMAGE or size < _LARGE_ARRAYS:
        return 1
    if size < _MANY_TIMES * 4 * math.prod(g.out):
        return 1
    for n in (4, 2):
        if g.inputs % n == 0 and g.inputs >= n * _LEAST_EXAMPLES:
            return n
    return 1


def _with_examples(g: Geometry, n: int) -> Geometry:
    """The convolution of ``n`` examples, which count as features."""
    lhs, rhs = [*g.lhs], [*g.rhs]
    lhs[g.numbers.lhs_spec[1]] = rhs[g.numbers.rhs_spec[1]] = n
    return g._replace(lhs=tuple(lhs), rhs=tuple(rhs))


def _in_library_order(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """A convolution of arrays that are copied. Large kernels are taken by parts of their outputs.

    Of each part the library makes a copy.
    """
    made = features_last_of(g)
    x = in_order(x, g.numbers.lhs_spec, made.numbers.lhs_spec)
    axis, n_parts = g.numbers.rhs_spec[0], _parts(g)
    n = g.outputs // n_parts
    results = []
    for k in range(n_parts):
        y_part = lax.slice_in_dim(y, k * n, (k + 1) * n, axis=axis) if n_parts > 1 else y
        y_part = in_order(y_part, g.numbers.rhs_spec, made.numbers.rhs_spec)
        results.append(prim.bind(x, y_part, **made.params()))
    total = results[0] if n_parts == 1 else lax.concatenate(results, made.numbers.out_spec[1])
    return in_order(total, made.numbers.out_spec, g.numbers.out_spec)


def _parts(g: Geometry) -> int:
    """In how many parts of equally many outputs a kernel is taken: more would take longer."""
    is_large = 4 * math.prod(g.rhs) >= 2 * _LEAST_PART
    return 2 if is_large and g.outputs % (2 * _VECTOR) == 0 else 1


def depthwise_gradient_of(g: Geometry) -> Geometry:
    """What ``depthwise_gradient`` binds."""
    rows, examples = _rows_and_examples(g)
    return _with_sizes(g, 1, rows * examples, 1, rows * examples, rows * examples)


def depthwise_gradient(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """Groups of one row and one output: each row of each example is a feature for itself."""
    made, n = depthwise_gradient_of(g), g.n_space
    # Examples are the features of the array here, and the inputs of the kernel.
    x, y = [in_order(v, g.numbers[i], (n + 1, n, *range(n))) for i, v in enumerate((x, y))]
    total = prim.bind(lax.reshape(x, made.lhs), lax.reshape(y, made.rhs), **made.params())
    rows, examples = _rows_and_examples(g)
    total = lax.reduce_sum(lax.reshape(total, (1, *g.results, examples, rows)), (n + 1,))
    return in_order(total, made.numbers.out_spec, g.numbers.out_spec)


def grouped_gradient_of(g: Geometry) -> Geometry:
    """What ``grouped_gradient`` binds."""
    rows, examples = _rows_and_examples(g)
    groups = g.batch_groups
    return _with_sizes(g, rows // groups, groups * examples, examples, groups * g.outputs, groups)


def grouped_gradient(prim: Primitive, x: Value, y: Value, g: Geometry) -> Any:
    """Groups of the batch as groups of features: examples are those of each group."""
    made, n = grouped_gradient_of(g), g.n_space
    x = split(in_order(x, g.numbers.lhs_spec, made.numbers.lhs_spec), 0, g.batch_groups)
    # (group, row, space, example) to (row, space, group, example)
    x = lax.reshape(lax.transpose(x, (*range(1, n + 2), 0, n + 2)), made.lhs)
    y = in_order(y, g.numbers.rhs_spec, made.numbers.rhs_spec)
    return in_order(prim.bind(x, y, **made.params()), made.numbers.out_spec, g.numbers.out_spec)
