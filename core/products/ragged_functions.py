"""Ragged products of arrays with any order of axes."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import int32, is_integer
from tracebridge.core.dtypes.promotion import dtype_of_product
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.contract.dot import DotDimensionNumbers, dot_general_p
from tracebridge.core.lax.contract.precision import canonical_precision
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.products.ragged import ragged_rows_p, ragged_sums_p
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand, Value

_NAME = "ragged_dot_general"


@public_path("tracebridge.lax")
@dataclasses.dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """Axes of ``ragged_dot_general``.

    Args:
        dot_dimension_numbers: as in ``dot_general``.
        lhs_ragged_dimensions: the axis of ``lhs`` that is cut into groups, as a sequence of one.
        rhs_group_dimensions: the axis of ``rhs`` that has a matrix for each group, as a sequence
            of one; of none where the ragged axis is a contracting or a batch axis.

    >>> import tracebridge as tb
    >>> tb.lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0]).rhs_group_dimensions
    (0,)
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]

    def __post_init__(self) -> None:
        numbers = tuple(
            [tuple([_ints(side) for side in pair]) for pair in self.dot_dimension_numbers]
        )
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", _ints(self.lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", _ints(self.rhs_group_dimensions))


def _ints(axes: Sequence[Any]) -> tuple[int, ...]:
    return tuple([operator.index(a) for a in axes])


_OF_MATRICES = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(
    lhs: Operand,
    rhs: Operand,
    group_sizes: Operand,
    precision: object = None,
    preferred_element_type: object = None,
    group_offset: object = None,
    out_sharding: object = None,
) -> Any:
    """Products of groups of rows, each with its own matrix.

    The first ``group_sizes[0]`` rows of ``lhs`` are multiplied with ``rhs[0]``, the next
    ``group_sizes[1]`` rows with ``rhs[1]``, and so on.

    Args:
        lhs: array of shape ``(m, k)``.
        rhs: array of shape ``(g, k, n)``.
        group_sizes: integers of shape ``(g,)``; rows after the last group give zeros.
        precision: as in ``dot_general``.
        preferred_element_type: as in ``dot_general``.
        group_offset: only ``None``.
        out_sharding: as in ``dot_general``.

    Returns:
        Array of shape ``(m, n)``.

    Raises:
        RankError, ShapeMismatchError: the shapes are others.
        UnsupportedDtypeError: ``group_sizes`` are no integers.
        UnsupportedArgumentError: ``group_offset`` is given.

    >>> import tracebridge as tb
    >>> x, matrices = tb.numpy.ones((3, 1)), tb.numpy.array([[[2.0]], [[5.0]]])
    >>> tb.lax.ragged_dot(x, matrices, tb.numpy.array([1, 2])).ravel().tolist()
    [2.0, 5.0, 5.0]
    """
    return ragged_dot_general(
        lhs,
        rhs,
        group_sizes,
        _OF_MATRICES,
        precision,
        preferred_element_type,
        group_offset,
        out_sharding,
    )


def ragged_dot_general(
    lhs: Operand,
    rhs: Operand,
    group_sizes: Operand,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: object = None,
    preferred_element_type: object = None,
    group_offset: object = None,
    out_sharding: object = None,
) -> Any:
    """``dot_general`` along an axis of ``lhs`` that is cut into groups.

    What the groups are for depends on the axis:

    * a free axis of ``lhs``: each group has its own part of ``rhs``, which has an axis of groups;
    * a contracting axis: the sum over each group is a result of its own;
    * a batch axis: nothing; this is ``dot_general``.

    Args:
        lhs: array with batch, contracting and free axes.
        rhs: array likewise, and with an axis of groups in the first case.
        group_sizes: integers of shape ``(g,)``, or with the sizes of all batch axes and of the
            free (or contracting) axes before the ragged one in front. Rows after the last group
            give zeros, or are left out of the sums.
        ragged_dot_dimension_numbers: a ``RaggedDotDimensionNumbers``.
        precision: as in ``dot_general``.
        preferred_element_type: as in ``dot_general``.
        group_offset: only ``None``.
        out_sharding: as in ``dot_general``.

    Returns:
        The shape of ``dot_general``; in the second case an axis of size g comes first.

    Raises:
        RankError: axes are not as above.
        ShapeMismatchError: sizes do not agree.
        UnsupportedDtypeError: ``group_sizes`` are no integers.
        UnsupportedArgumentError: ``group_offset`` is given.

    >>> import tracebridge as tb
    >>> sums = tb.lax.RaggedDotDimensionNumbers((([0], [0]), ([], [])), [0], [])
    >>> x = tb.numpy.ones((5, 2))
    >>> tb.lax.ragged_dot_general(x, x, tb.numpy.array([2, 3]), sums)[:, 0].tolist()
    [[2.0, 2.0], [3.0, 3.0]]
    """
    if group_offset is not None:
        msg = f"{_NAME}: group_offset={group_offset!r}, expected None"
        raise UnsupportedArgumentError(msg, hint="pass the sizes and matrices of the groups wanted")
    x, y, sizes = [as_value(v, _NAME) for v in (lhs, rhs, group_sizes)]
    if not is_integer(sizes.aval.dtype):
        msg = f"{_NAME}: group_sizes are {sizes.aval.str_short()}, expected integers"
        raise UnsupportedDtypeError(msg, hint="convert them: x.astype('int32')")
    dtype = preferred_element_type
    if dtype is not None:
        dtype = canonicalize_explicit(dtype, _NAME)
    else:
        dtype = dtype_of_product(x.aval.dtype, y.aval.dtype)
    form = _Form(x, y, sizes, ragged_dot_dimension_numbers)
    form.check(x.aval, y.aval, dtype)
    precision = canonical_precision(precision, _NAME)
    out = form.product(x, y, lax.convert_dtype(sizes, int32), precision, dtype)
    return out if out_sharding is None else constrained_result(_NAME, out, out_sharding)


class _Form:
    """The axes of one call, checked."""

    def __init__(
        self, x: Value, y: Value, sizes: Value, numbers: RaggedDotDimensionNumbers
    ) -> None:
        self.numbers = numbers.dot_dimension_numbers
        (xc, yc), (xb, yb) = self.numbers
        self.xb, self.yb = list(xb), list(yb)
        ragged, groups = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
        if len(ragged) != 1 or not 0 <= ragged[0] < x.aval.ndim:
            msg = f"{_NAME}: lhs_ragged_dimensions {ragged} of lhs {x.aval.str_short()}"
            raise RankError(msg, expected="one axis of lhs")
        (self.ragged,) = ragged
        x_free = [i for i in range(x.aval.ndim) if i not in (*xc, *xb)]
        kind = "free"
        axes = x_free
        if self.ragged not in x_free:
            kind, axes = ("sum", list(xc)) if self.ragged in xc else ("batch", list(xb))
        self.kind = kind
        wanted = 1 if kind == "free" else 0
        taken = (*yc, *yb)
        if len(groups) != wanted or any([not 0 <= a < y.aval.ndim or a in taken for a in groups]):
            msg = f"{_NAME}: rhs_group_dimensions {groups} of rhs {y.aval.str_short()}"
            what = "one axis that is neither a contracting nor a batch axis" if wanted else "none"
            raise RankError(
                msg, expected=what, where=f"the ragged axis {self.ragged} is a {kind} axis"
            )
        self.group = list(groups)
        before = axes.index(self.ragged)
        self.outer, self.inner = axes[:before], axes[before + 1 :]
        self.x_free = x_free
        self.y_free = [i for i in range(y.aval.ndim) if i not in (*taken, *groups)]
        self._check_sizes(x, y, sizes)

    def _check_sizes(self, x: Value, y: Value, sizes: Value) -> None:
        own = self.outer if self.kind == "batch" else [*self.xb, *self.outer]
        got: tuple[Any, ...] = sizes.aval.shape
        prefix = tuple([x.aval.shape[i] for i in own])
        groups = sizes.aval.shape[sizes.aval.ndim - 1] if got else None
        if not got or (len(got) > 1 and got[:-1] != prefix):
            msg = f"{_NAME}: group_sizes are {sizes.aval.str_short()}"
            wanted = ", ".join(map(str, (*prefix, "groups")))
            raise ShapeMismatchError(msg, expected=f"the shape (groups,) or ({wanted})")
        if self.group and y.aval.shape[self.group[0]] != groups:
            axis = self.group[0]
            msg = f"{_NAME}: axis {axis} of rhs {y.aval.str_short()} is for {groups} groups"
            raise ShapeMismatchError(msg, expected="as many groups as group_sizes have")
        self.shared = len(got) == 1

    def check(self, x: ShapedArray, y: ShapedArray, dtype: np.dtype[Any]) -> None:
        """The checks of ``dot_general``, for one group."""
        (xc, yc), (xb, yb) = self.numbers
        kept = [i for i in range(y.ndim) if i not in self.group]
        place = {a: i for i, a in enumerate(kept)}
        of_one = y.update(shape=tuple([y.shape[i] for i in kept]))
        yc, yb = [tuple([place.get(a, a) for a in axes]) for axes in (yc, yb)]
        numbers = ((xc, yc), (xb, yb))
        dot_general_p.abstract_eval(
            x, of_one, dimension_numbers=numbers, preferred_element_type=dtype
        )

    def product(self, x: Value, y: Value, sizes: Value, precision: Any, dtype: Any) -> Any:
        """The result, by the primitives."""
        if self.kind == "batch":
            return dot_general_p.bind(
                x,
                y,
                dimension_numbers=self.numbers,
                precision=precision,
                preferred_element_type=dtype,
            )
        params = {"precision": precision, "dtype": dtype}
        product = self._rows if self.kind == "free" else self._sums
        return product(x, y, sizes, params)

    def _rows(self, x: Value, y: Value, sizes: Value, params: dict[str, Any]) -> Any:
        (xc, yc), _ = self.numbers
        b, n = _sizes(x, self.xb), _sizes(y, self.y_free)
        outer, inner, r = _sizes(x, self.outer), _sizes(x, self.inner), x.aval.shape[self.ragged]
        k, (g,) = math.prod(_sizes(x, xc)), _sizes(y, self.group)
        y = lax.transpose(y, (*self.group, *self.yb, *yc, *self.y_free))
        if self.shared:
            x = lax.transpose(x, (self.ragged, *self.xb, *self.outer, *self.inner, *xc))
            x = lax.reshape(x, (1, r, math.prod(b), math.prod(outer) * math.prod(inner), k))
            y = lax.reshape(y, (g, 1, math.prod(b), k, math.prod(n)))
            sizes = lax.reshape(sizes, (1, g))
            out = ragged_rows_p.bind(x, y, sizes, sets=1, **params)
            out = lax.reshape(out, (r, *b, *outer, *inner, *n))
            return _axis_to(out, 0, len(b) + len(outer))
        x = lax.transpose(x, (*self.xb, *self.outer, self.ragged, *self.inner, *xc))
        prefixes, sets = math.prod(b) * math.prod(outer), math.prod(b)
        x = lax.reshape(x, (prefixes, r, 1, math.prod(inner), k))
        y = lax.reshape(y, (g, sets, 1, k, math.prod(n)))
        sizes = lax.reshape(sizes, (prefixes, g))
        out = ragged_rows_p.bind(x, y, sizes, sets=sets, **params)
        return lax.reshape(out, (*b, *outer, r, *inner, *n))

    def _sums(self, x: Value, y: Value, sizes: Value, params: dict[str, Any]) -> Any:
        (xc, yc), _ = self.numbers
        partner = dict(zip(xc, yc, strict=True))
        b, m, n = _sizes(x, self.xb), _sizes(x, self.x_free), _sizes(y, self.y_free)
        outer, inner, r = _sizes(x, self.outer), _sizes(x, self.inner), x.aval.shape[self.ragged]
        g = sizes.aval.shape[-1]
        operands: list[Any] = []
        for operand, batch, free, pair in (
            (x, self.xb, self.x_free, {a: a for a in xc}),
            (y, self.yb, self.y_free, partner),
        ):
            ragged = pair[self.ragged]
            before, after = [pair[a] for a in self.outer], [pair[a] for a in self.inner]
            last = math.prod(_sizes(operand, free))
            if self.shared:
                v = lax.transpose(operand, (ragged, *batch, *before, *after, *free))
                shape = (1, r, math.prod(b), math.prod(outer) * math.prod(inner), last)
            else:
                v = lax.transpose(operand, (*batch, *before, ragged, *after, *free))
                shape = (math.prod(b) * math.prod(outer), r, 1, math.prod(inner), last)
            operands.append(lax.reshape(v, shape))
        sets = 1 if self.shared else math.prod(b)
        sizes = lax.reshape(sizes, (operands[0].aval.shape[0], g))
        out = ragged_sums_p.bind(*operands, sizes, sets=sets, **params)
        return lax.reshape(out, (g, *b, *m, *n))


def _sizes(x: Value, axes: Sequence[int]) -> list[Any]:
    return [x.aval.shape[i] for i in axes]


def _axis_to(x: Value, source: int, target: int) -> Any:
    order = [i for i in range(x.aval.ndim) if i != source]
    order.insert(target, source)
    return lax.transpose(x, tuple(order))
