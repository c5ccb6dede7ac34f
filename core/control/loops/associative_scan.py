"""associative_scan: all prefixes of an associative operation, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.bodies import flatten_values, leaf_paths
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    AxisSizeError,
    TreeMismatchError,
)
from tracebridge.core.tree.tree import PyTreeDef, flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: object, reverse: bool = False, axis: int = 0
) -> Any:
    """Combine the elements along an axis up to each position, by an associative function.

    The number of steps grows with the logarithm of the size, where ``scan`` takes as many steps
    as there are elements.

    Args:
        fn: ``(a, b) -> c`` on trees like ``elems``, with any size of the axis; associative and
            elementwise along the axis. ``c`` may be another tree with as many leaves.
        elems: array or tree of arrays of one size along ``axis``.
        reverse: combine from the end: the result at ``i`` is that of the elements from ``i`` on.
        axis: the axis.

    Returns:
        Tree like ``elems``; at position ``i`` the combination of the elements 0 to ``i``.

    Raises:
        AxisError: an array has no such axis.
        AxisSizeError: the sizes along the axis disagree.
        ArgumentSpecError: ``fn`` is no function.
        TreeMismatchError: ``fn`` returns another number of leaves.

    Source: Blelloch (1990), "Prefix Sums and Their Applications", CMU-CS-90-190.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> tb.lax.associative_scan(tb.lax.add, tnp.arange(1, 6)).tolist()
    [1, 3, 6, 10, 15]
    """
    if not callable(fn):
        msg = f"associative_scan: fn is {fn!r} of type {type(fn).__name__}, expected a function"
        raise ArgumentSpecError(msg)
    values, tree = flatten_values("associative_scan", "elems", elems)
    if not values:
        return elems
    axes = [_axis_of(v, axis) for v in values]
    sizes = {v.aval.shape[a]: p for v, a, p in zip(values, axes, leaf_paths(elems), strict=True)}
    if len(sizes) > 1:
        shown_sizes = ", ".join([f"elems{path} has {size}" for size, path in sizes.items()])
        msg = f"associative_scan: the sizes along axis {axis} disagree: {shown_sizes}"
        raise AxisSizeError(msg)
    if reverse:
        values = [lax.rev(v, (a,)) for v, a in zip(values, axes, strict=True)]
    results = _Prefixes(fn, tree, axes).of(values)
    results = [lax.convert_dtype(r, r.aval.dtype) if r.aval.weak_type else r for r in results]
    if reverse:
        results = [lax.rev(r, (a,)) for r, a in zip(results, axes, strict=True)]
    return tree.unflatten(results)


def _axis_of(value: Value, axis: int) -> int:
    ndim = value.aval.ndim
    if not -ndim <= axis < ndim:
        raise AxisError(axis, ndim, call="associative_scan")
    return axis % ndim


class _Prefixes:
    """The recursion: prefixes of pairs give every second prefix of the elements."""

    def __init__(self, fn: Callable[[Any, Any], Any], tree: PyTreeDef, axes: Sequence[int]) -> None:
        self.fn = fn
        self.tree = tree
        self.axes = axes

    def of(self, xs: list[Any]) -> list[Any]:
        """All prefixes of ``xs``."""
        n = xs[0].aval.shape[self.axes[0]]
        if n < 2:
            return xs
        pairs = self.combine(self.take(xs, 0, n - 1, 2), self.take(xs, 1, n, 2))
        odd = self.of(pairs)
        first = self.take(xs, 0, 1)
        if n == 2:
            return self.joined(first, odd)
        before = self.take(odd, 0, (n - 1) // 2)
        rest = self.combine(before, self.take(xs, 2, n, 2))
        return self.interleaved(self.joined(first, rest), odd, n)

    def combine(self, a: list[Any], b: list[Any]) -> list[Any]:
        """``fn`` on flat values."""
        result = self.fn(self.tree.unflatten(a), self.tree.unflatten(b))
        # Of the structure only the number of leaves counts: elements of a class of users are
        # often combined to plain tuples, and their leaves have one order.
        if flatten(result)[1].num_leaves != self.tree.num_leaves:
            msg = "associative_scan: fn returned another structure than its arguments have"
            raise TreeMismatchError(msg, got=str(flatten(result)[1]), expected=str(self.tree))
        values = flatten_values("associative_scan", "the result of fn", result)[0]
        for value, given in zip(values, a, strict=True):
            if value.aval.shape != given.aval.shape:
                msg = "associative_scan: fn returned another shape than its arguments have"
                got, expected = value.aval.str_short(), given.aval.str_short()
                raise ShapeMismatchError(msg, got=got, expected=expected)
        return values

    def take(self, xs: Sequence[object], start: int, stop: int, step: int = 1) -> list[Any]:
        """Every ``step``-th element of a range."""
        pairs = zip(xs, self.axes, strict=True)
        return [lax.slice_in_dim(x, start, stop, step, a) for x, a in pairs]

    def joined(self, a: Sequence[object], b: Sequence[object]) -> list[Any]:
        """One after the other."""
        triples = zip(a, b, self.axes, strict=True)
        return [lax.concatenate((x, y), axis) for x, y, axis in triples]

    def interleaved(self, even: list[Any], odd: list[Any], n: int) -> list[Any]:
        """Elements of ``even`` and ``odd`` in turn; ``even`` may have one more."""
        half = n // 2
        mixed: list[Any] = []
        for x, y, axis in zip(even, odd, self.axes, strict=True):
            shape = y.aval.shape
            wide = (*shape[: axis + 1], 1, *shape[axis + 1 :])
            front = lax.slice_in_dim(x, 0, half, 1, axis)
            both = lax.concatenate((lax.reshape(front, wide), lax.reshape(y, wide)), axis + 1)
            flat = lax.reshape(both, (*shape[:axis], 2 * half, *shape[axis + 1 :]))
            if n % 2:
                last = lax.slice_in_dim(x, half, half + 1, 1, axis)
                flat = lax.concatenate((flat, last), axis)
            mixed.append(flat)
        return mixed
