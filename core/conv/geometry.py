"""The numbers that describe one convolution, as the forms for the CPU need them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import tracebridge.core.lax as lax
from tracebridge.core.conv.numbers import ConvDimensionNumbers, Ints, Pads
from tracebridge.core.lax.ad_util import full_of

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.value import Value


class Geometry(NamedTuple):
    """Shapes and parameters of a convolution; spatial entries are in the order of the kernel."""

    lhs: Ints
    rhs: Ints
    out: Ints
    numbers: ConvDimensionNumbers
    strides: Ints
    padding: Pads
    lhs_dilation: Ints
    rhs_dilation: Ints
    feature_groups: int
    batch_groups: int
    precision: Any

    @property
    def n_space(self) -> int:
        """How many spatial axes there are."""
        return len(self.strides)

    @property
    def groups(self) -> int:
        """The number of groups, of features or of the batch."""
        return max(self.feature_groups, self.batch_groups)

    @property
    def sizes(self) -> Ints:
        """Spatial sizes of the array."""
        return tuple([self.lhs[i] for i in self.numbers.lhs_spec[2:]])

    @property
    def kernel(self) -> Ints:
        """Spatial sizes of the kernel."""
        return tuple([self.rhs[i] for i in self.numbers.rhs_spec[2:]])

    @property
    def results(self) -> Ints:
        """Spatial sizes of the result."""
        return tuple([self.out[i] for i in self.numbers.out_spec[2:]])

    @property
    def inputs(self) -> int:
        """Input features of a group."""
        return self.rhs[self.numbers.rhs_spec[1]]

    @property
    def outputs(self) -> int:
        """Output features of a group."""
        return self.rhs[self.numbers.rhs_spec[0]] // self.groups

    @property
    def products(self) -> int:
        """How many numbers are multiplied."""
        return math.prod(self.out) * self.inputs * math.prod(self.kernel)

    def params(self, **changes: object) -> Params:
        """The parameters of the primitive."""
        return {
            "window_strides": self.strides,
            "padding": self.padding,
            "lhs_dilation": self.lhs_dilation,
            "rhs_dilation": self.rhs_dilation,
            "dimension_numbers": self.numbers,
            "feature_group_count": self.feature_groups,
            "batch_group_count": self.batch_groups,
            "precision": self.precision,
            "preferred_element_type": None,
            **changes,
        }


def geometry_of(lhs: Ints, rhs: Ints, out: Ints, params: Params) -> Geometry:
    """That of a convolution with ``params``."""
    return Geometry(
        lhs,
        rhs,
        out,
        params["dimension_numbers"],
        params["window_strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
        params["feature_group_count"],
        params["batch_group_count"],
        params["precision"],
    )


def places(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All places in an array of ``sizes``, in its order."""
    return itertools.product(*map(range, sizes))


def padded(x: Value, axes: Sequence[int], pads: Pads) -> Any:
    """``x`` with zeros around, or cut, along ``axes``."""
    if not any(map(any, pads)):
        return x
    config = [(0, 0, 0)] * x.aval.ndim
    for axis, (low, high) in zip(axes, pads, strict=True):
        config[axis] = (low, high, 0)
    return lax.pad(x, full_of(x.aval.update(shape=()), 0), config)


def part(
    x: Value, axes: Sequence[int], starts: Sequence[int], counts: Sequence[int], steps: Ints
) -> Any:
    """``counts`` elements along ``axes``, from ``starts`` on, ``steps`` apart."""
    low, high, apart = [0] * x.aval.ndim, list(x.aval.shape), [1] * x.aval.ndim
    for axis, start, count, step in zip(axes, starts, counts, steps, strict=True):
        low[axis], high[axis], apart[axis] = start, start + (count - 1) * step + 1, step
    return lax.slice(x, low, high, apart)


def split(x: Value, axis: int, outer: int) -> Any:
    """``axis`` as two axes, the first one of size ``outer``."""
    shape = x.aval.shape
    return lax.reshape(x, (*shape[:axis], outer, shape[axis] // outer, *shape[axis + 1 :]))


def merged(x: Value, axis: int, inner: int) -> Any:
    """Axis ``inner`` made the inner part of ``axis``; the others keep their order."""
    order = [i for i in range(x.aval.ndim) if i != inner]
    at = order.index(axis)
    order.insert(at + 1, inner)
    x = lax.transpose(x, tuple(order))
    shape = x.aval.shape
    return lax.reshape(x, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))


def without(spec: Ints, axis: int) -> Ints:
    """The axes of ``spec`` when ``axis`` is gone."""
    return tuple([i - (i > axis) for i in spec if i != axis])


def in_order(x: Value, source: Ints, target: Ints) -> Any:
    """``x`` with axes named by ``source``, transposed to where ``target`` says."""
    order = [source[target.index(i)] for i in range(len(target))]
    return x if order == list(range(len(order))) else lax.transpose(x, tuple(order))
