"""Iteration over arrays: some rows at a time, by one program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracebridge.core import lax
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.staged_functions import StagedFunction

_AT_ONCE = 16  # more results of a program take longer to compile


def _block(x: Value, start: Value, n: int) -> list[Any]:
    part = lax.dynamic_slice_in_dim(x, start, n, 0)
    return [lax.index_in_dim(part, i, 0, keepdims=False) for i in range(n)]


def _all(x: Value) -> list[Any]:
    return [lax.index_in_dim(x, i, 0, keepdims=False) for i in range(x.aval.shape[0])]


_block_staged = StagedFunction(_block, "rows")
_all_staged = StagedFunction(_all, "rows")


def rows(x: Array) -> Iterator[Any]:
    """The rows of an array on one device, in the default state.

    The last block overlaps the one before, so that each shape has one program.
    """
    size = x.aval.shape[0]
    if size <= _AT_ONCE:
        return iter(_all_staged((x,)) if size else ())
    return _by_blocks(x, size)


def _by_blocks(x: Array, size: int) -> Iterator[Any]:
    for first in range(0, size, _AT_ONCE):
        start = min(first, size - _AT_ONCE)
        block = _block_staged((x, start), (_AT_ONCE,))
        yield from block[first - start :]
