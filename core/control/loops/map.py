"""map: apply a function to each slice of arrays, one after the other or in batches."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.bodies import Wrapped, flatten_values
from tracebridge.core.control.scan.forward import number_of_steps, run_scan
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.lax.batch_util import to_front
from tracebridge.core.tree.tree import PyTreeDef

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Operand


def map(f: Callable[[Any], Any], xs: object, *, batch_size: int | None = None) -> Any:
    """Apply ``f`` to the slices of ``xs`` along the leading axis, and stack the results.

    Like ``vmap`` in what it computes, like ``scan`` in how: slices are worked on in turn, so that
    intermediate values of one slice at a time are in memory.

    Args:
        f: function of a slice, a tree of the structure of ``xs``.
        xs: tree of arrays whose leading axes have one size.
        batch_size: how many slices to work on at once, by ``vmap``; 0 for all.

    Returns:
        The results with a new leading axis.

    Raises:
        AxisSizeError: the leading axes disagree.
        ArgumentSpecError: ``f`` is no function, or ``batch_size`` is negative or no integer.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> tb.lax.map(lambda x: x * x, tnp.arange(4)).tolist()
    [0, 1, 4, 9]
    """
    if batch_size is None:
        return run_scan("map", f, _ONE, (), xs, None)[1]
    size = _checked_batch_size(batch_size)
    if not callable(f):
        msg = f"map: f is {f!r} of type {type(f).__name__}, expected a function"
        raise ArgumentSpecError(msg)
    values, tree = flatten_values("map", "xs", xs)
    n = number_of_steps("map", xs, values, None)
    size = size or n or 1
    rounds, n_left = divmod(n, size)
    parts: list[list[Any]] = []
    out_tree: Any = None
    if rounds or not n_left:
        blocks = [_leading(v, 0, rounds * size) for v in values]
        blocks = [lax.reshape(b, (rounds, size, *b.aval.shape[1:])) for b in blocks]
        apply = Wrapped(functools.partial(_many, size), _slice_of)
        _, ys = run_scan("map", f, apply, (), tree.unflatten(blocks), rounds)
        leaves, out_tree = flatten_values("map", "the results", ys)
        parts.append([lax.reshape(y, (rounds * size, *y.aval.shape[2:])) for y in leaves])
    if n_left:
        last = [_leading(v, rounds * size, n) for v in values]
        outs, out_tree = _batched(f, tree, last, n_left)
        parts.append(outs)
    if len(parts) == 1:
        return out_tree.unflatten(parts[0])
    return out_tree.unflatten([lax.concatenate(pair, 0) for pair in zip(*parts, strict=True)])


def _checked_batch_size(batch_size: Any) -> int:
    try:
        size = operator.index(batch_size)
    except TypeError:
        size = -1
    if size < 0:
        msg = f"map: batch_size is {batch_size!r}, expected an integer, not below 0"
        raise ArgumentSpecError(msg)
    return size


def _one(f: Callable[[Any], Any], carry: object, x: object) -> tuple[Any, Any]:
    return carry, f(x)


def _slice_of(carry: object, x: object) -> tuple[object]:
    return (x,)


_ONE = Wrapped(_one, _slice_of)


def _many(size: int, f: Callable[[Any], Any], carry: object, x: object) -> tuple[Any, Any]:
    leaves, tree = flatten_values("map", "xs", x)
    outs, out_tree = _batched(f, tree, leaves, size)
    return carry, out_tree.unflatten(outs)


def _batched(
    f: Callable[[Any], Any], tree: PyTreeDef, values: list[Any], size: int
) -> tuple[list[Any], PyTreeDef]:
    """``f`` of all slices at once: flat results with the batch axis in front."""
    trees: list[PyTreeDef] = []

    def flat(*leaves: object) -> list[Any]:
        outs, out_tree = flatten_values("map", "the result", f(tree.unflatten(leaves)))
        trees.append(out_tree)
        return outs

    outs, dims = batch_flat(flat, values, [0] * len(values), size)
    return [to_front(o, d, size) for o, d in zip(outs, dims, strict=True)], trees[0]


def _leading(x: Operand, start: int, stop: int) -> Any:
    """Slices ``start`` to ``stop`` of the leading axis."""
    return lax.slice_in_dim(x, start, stop, axis=0)
