"""Attention by blocks of scores, so that never all of them are in memory.

Scores are one number for each query and key of each head: far more than queries, keys and values
together. A block of them fits into the caches; it is computed, used and forgotten, and computed
again in the backward pass. Measured on two cores, batches of 64 to 1 heads, 256 to 4096 queries,
forward and backward: 0.4 to 0.6 of the time that all scores at once take, for their memory goes
back to the system and has to be mapped again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.derivatives.checkpoint import checkpoint
from tracebridge.core.config.values import option
from tracebridge.core.control.loops.map import map as map_slices
from tracebridge.core.ir.value import Value
from tracebridge.core.kernels.machine import is_there, n_threads
from tracebridge.core.kernels.steps.parts import FEWEST_ROWS
from tracebridge.core.runtime.backends.clients import get_backend
from tracebridge.core.sharding.context import get_abstract_mesh
from tracebridge.random.keys import split

_AT_ONCE: Final = 1 << 20  # scores that are one block
_BLOCK: Final = 1 << 18
_HEAD: Final = 1 << 19  # scores of one head that a kernel does as a whole, each thread another one
_HEAD_BY_ROWS: Final = 1 << 22  # the same if it takes some queries after others
_PRODUCTS_BY_ROWS: Final = 1 << 28  # products of numbers in a product of matrices of such a head
_ALL_BY_ROWS: Final = 1 << 25  # scores of all: without kernels, blocks of so many are held
_PART_OF_HEAD: Final = 1 << 18  # where there are more, in three arrays at a time
_ROWS: Final = 128  # queries in a block, if there are so many: fewer are no matrix worth the name
# Parts of queries, each with the keys that it sees: 5/8 or 9/16 of the scores. Each of them has
# kernels of its own, which LLVM compiles.
_CAUSAL_PARTS: Final = 4
_MORE_CAUSAL_PARTS: Final = 8
_FEWEST_CAUSAL: Final = 512  # queries that are cut into parts
_MANY_CAUSAL: Final = 2048  # into more
_CAUSAL_ROWS: Final = FEWEST_ROWS  # whose multiple the queries of a part are
_ON_ACCELERATORS: Final = 1 << 7  # times as many: these have memory, and wait for each step


class Layout(NamedTuple):
    """The axes of queries and of keys, by letter.

    b: batch, k: heads of keys, g: heads of queries that share one, t: queries, s: keys, h: size.
    """

    query: str
    keys: str

    def without(self, letter: str) -> Layout:
        """The layout of slices along an axis."""
        return Layout(self.query.replace(letter, ""), self.keys.replace(letter, ""))

    @property
    def scores(self) -> str:
        """The axes of scores, and of all that is one number for some of these."""
        return "".join([c for c in "bkg" if c in self.query]) + "ts"

    def logits(self, q: Value, k: Value, dtype: Any = None) -> Any:
        """The products of queries and keys."""
        spec = f"{self.query},{self.keys}->{self.scores}"
        return tnp.einsum(spec, q, k, preferred_element_type=dtype)

    def average(self, weights: Value, v: Value) -> Any:
        """The values, weighted: in the layout of queries."""
        return tnp.einsum(f"{self.scores},{self.keys}->{self.query}", weights, v)


class Operands(NamedTuple):
    """What attention is computed from.

    ``extras``: arrays with the axes of scores, each in full or 1 long, or None. ``rows``: the
    number of each query. ``key``: of random numbers, or None.
    """

    q: Any
    k: Any
    v: Any
    extras: tuple[Any, ...]
    rows: Any
    key: Any


def with_heads(x: Value, heads: int) -> Any:
    """An array of shape ``(b, n, t, s)``, its second axis as that of keys and that within it."""
    b, n, t, s = x.shape
    return tnp.reshape(x, (b, *((1, 1) if n == 1 else (heads, n // max(heads, 1))), t, s))


Attend = Callable[[Layout, Operands], tuple[Any, ...]]
"""Arrays in the layout of queries, of which those after the first lack the last axis."""


def by_blocks(
    attend: Attend, layout: Layout, operands: Operands, is_causal: bool = False
) -> tuple[Any, ...]:
    """``attend(layout, operands)`` with ``rows`` filled in: block by block, if there are many.

    ``is_causal``: a query sees a key at its place or before, and no other one; there are no
    ``extras``. Then keys that all queries of a block do not see are left out.
    """
    q, k = operands.q, operands.k
    sizes = {**dict(zip(layout.query, q.shape, strict=True)), "s": k.shape[layout.keys.index("s")]}
    operands = operands._replace(rows=tnp.arange(sizes["t"]))
    # A loop over an axis that is split over devices would gather it.
    is_split = not get_abstract_mesh().empty or any(
        [x.aval.split is not None for x in operands[:3]]
    )
    if is_split or not all([type(n) is int for n in sizes.values()]):
        return attend(layout, operands)
    more = 1 if get_backend().platform == "cpu" else _ON_ACCELERATORS
    n_scores = math.prod([sizes[c] for c in layout.scores])
    if n_scores <= _AT_ONCE * more or sizes["h"] == 0:
        return attend(layout, operands)
    if is_causal and more == 1 and operands.key is None and sizes["t"] >= _FEWEST_CAUSAL:
        return _by_parts(attend, layout, operands, sizes)
    return _by_small_blocks(attend, layout, operands, sizes, more)


def _by_parts(
    attend: Attend, layout: Layout, operands: Operands, sizes: dict[str, int]
) -> tuple[Any, ...]:
    """Some queries after others, with the keys up to the last one of them."""
    q, k, v, _, rows, _ = operands
    place, of_keys = layout.query.index("t"), layout.keys.index("s")
    n = _CAUSAL_PARTS if sizes["t"] < _MANY_CAUSAL else _MORE_CAUSAL_PARTS
    size = -(-sizes["t"] // (n * _CAUSAL_ROWS)) * _CAUSAL_ROWS
    outs: list[tuple[Any, ...]] = []
    for start in range(0, sizes["t"], size):
        end = min(start + size, sizes["t"])
        seen = min(end, sizes["s"])
        queries = lax.slice_in_dim(q, start, end, axis=place)
        keys = [lax.slice_in_dim(x, 0, seen, axis=of_keys) for x in (k, v)]
        part = operands._replace(q=queries, k=keys[0], v=keys[1], rows=rows[start:end])
        there = {**sizes, "t": end - start, "s": seen}
        outs.append(_by_small_blocks(attend, layout, part, there, 1))
    return tuple([tnp.concatenate(parts, place) for parts in zip(*outs, strict=True)])


def _by_small_blocks(
    attend: Attend, layout: Layout, operands: Operands, sizes: dict[str, int], more: int
) -> tuple[Any, ...]:
    """In loops over blocks of scores, by kernels or along all axes."""
    shape = operands.q.shape[:-1]
    if _are_kernels(operands, sizes):
        return _Blocks(attend, sizes, _of_kernel(operands, sizes), 1).over_queries(layout, operands)
    if sizes["g"] == 1:
        operands, layout = _without_groups(operands, layout), layout.without("g")
    if layout.query.startswith("bk"):
        operands, sizes = _as_one_batch(operands, sizes)
    outs = _Blocks(attend, sizes, _BLOCK * more).over("bk", layout, operands)
    return tuple([tnp.reshape(y, (*shape, *y.shape[len(layout.query) - 1 :])) for y in outs])


def _are_kernels(operands: Operands, sizes: dict[str, int]) -> bool:
    """Whether blocks of the queries of all heads are kernels, forward and backward."""
    arrays = [x for x in (*operands[:3], *operands.extras) if x is not None]
    if operands.key is not None or get_backend().platform != "cpu":
        return False
    if any([x.dtype not in (np.float32, np.bool_, np.int32) for x in arrays]):
        return False
    if sizes["b"] * sizes["k"] < n_threads() or not option("platform_rules"):
        return False
    return is_there()


def _of_kernel(operands: Operands, sizes: dict[str, int]) -> int:
    """How many scores of one head a kernel has at most."""
    n = sizes["g"] * sizes["t"] * sizes["s"]
    if _are_by_rows(operands, sizes):
        # All queries in one kernel: a loop over blocks of them would copy these, and add up
        # gradients of all keys in each of its steps.
        return _HEAD_BY_ROWS if n * sizes["h"] <= _PRODUCTS_BY_ROWS else _HEAD
    return _HEAD if n <= _HEAD else _PART_OF_HEAD


def _are_by_rows(operands: Operands, sizes: dict[str, int]) -> bool:
    """Whether a kernel takes some queries of a head after others, forward and backward.

    Gradients of biases have all scores, those of shared keys are sums over two axes.
    """
    t, s = sizes["t"], sizes["s"]
    if sizes["g"] != 1 or t * s > _HEAD_BY_ROWS:
        return False
    if t * s * sizes["b"] * sizes["k"] > _ALL_BY_ROWS:
        return False
    if any([x is not None and x.dtype.kind == "f" for x in operands.extras]):
        return False
    return any([t % n == 0 for n in range(FEWEST_ROWS, min(t, _PART_OF_HEAD // s) + 1)])


def _without_groups(operands: Operands, layout: Layout) -> Operands:
    """Operands whose heads all have keys of their own: axes of one element cost copies."""
    place, of_scores = layout.query.index("g"), layout.scores.index("g")
    extras = [x if x is None else lax.squeeze(x, (of_scores,)) for x in operands.extras]
    return operands._replace(q=lax.squeeze(operands.q, (place,)), extras=tuple(extras))


def _as_one_batch(operands: Operands, sizes: dict[str, int]) -> tuple[Operands, dict[str, int]]:
    """Heads of all elements of the batch in one row, if they lie so: one loop instead of two."""
    b, k = sizes["b"], sizes["k"]
    extras: list[Any] = []
    for x in operands.extras:
        if x is None or b == 1:
            extras.append(x)
            continue
        is_small = x.shape[0] != 1 == x.shape[1] and x.shape[-2] == 1  # for each head, too
        each = tnp.broadcast_to(x, (b, k, *x.shape[2:])) if is_small else x
        if each.shape[:2] not in ((1, 1), (b, k)):
            return operands, sizes
        extras.append(tnp.reshape(each, (1, -1, *each.shape[2:])))
    q, keys, v = [
        tnp.reshape(x, (1, b * k, *x.shape[2:])) for x in (operands.q, operands.k, operands.v)
    ]
    changed = operands._replace(q=q, k=keys, v=v, extras=tuple(extras))
    return changed, {**sizes, "b": 1, "k": b * k}


class _Blocks:
    """Loops over batches, heads and queries, as far as slices are larger than a block."""

    def __init__(
        self, attend: Attend, sizes: dict[str, int], block: int, rows: int = _ROWS
    ) -> None:
        self.attend, self.sizes, self.block, self.rows = attend, sizes, block, rows

    def over(self, letters: str, layout: Layout, operands: Operands) -> tuple[Any, ...]:
        """Slice by slice along the axes ``letters``, then over queries."""
        if not letters:
            return self.over_queries(layout, operands)
        letter, inner = letters[0], layout.without(letters[0])
        n, each = self.sizes[letter], math.prod([self.sizes[c] for c in inner.scores])
        slices, joined = _slices(operands, layout, letter, n)

        def step(parts: list[Any]) -> tuple[Any, ...]:
            if each <= self.block:
                return self.again(inner, joined(parts))
            return self.over(letters[1:], inner, joined(parts))

        place = layout.query.index(letter)
        if n == 1:
            return tuple([tnp.expand_dims(y, place) for y in step(slices)])
        size = _even(n, max(1, self.block // each))
        outs = map_slices(step, slices, batch_size=size if size > 1 else None)
        return tuple([tnp.moveaxis(y, 0, place) for y in outs])

    def over_queries(self, layout: Layout, operands: Operands) -> tuple[Any, ...]:
        """So many queries at a time that their scores are a block."""
        n, keys = self.sizes["t"], self.sizes["g"] * self.sizes["s"]
        size = _even(n, max(self.rows, self.block // keys))
        rounds = -(-n // size)
        if rounds == 1:
            return self.again(layout, operands)
        place = layout.query.index("t")
        slices, joined = _slices(operands, layout, "t", n, size)
        outs = map_slices(lambda parts: self.again(layout, joined(parts)), slices)
        return tuple([lax.slice_in_dim(_whole(y, place), 0, n, axis=place) for y in outs])

    def again(self, layout: Layout, operands: Operands) -> tuple[Any, ...]:
        """A block, computed once more for its derivatives, in the loop of these."""

        def run(*arrays: Any) -> tuple[Any, ...]:
            return self.attend(layout, Operands(*arrays))

        return checkpoint(run, prevent_cse=False)(*operands)


def _slices(
    operands: Operands, layout: Layout, letter: str, n: int, size: int = 0
) -> tuple[list[Any], Callable[[list[Any]], Operands]]:
    """What differs along an axis, slices first, and the operands of one slice of each.

    With a ``size`` they are so many places of the axis, the last ones filled up with zeros.
    """
    q, k, v, extras, rows, key = operands
    scores = layout.scores.index(letter)
    along_keys = [(x, layout.keys.find(letter)) for x in (k, v)]
    along = [(q, layout.query.index(letter)), *along_keys, *[(x, scores) for x in extras]]
    along += [(rows, 0 if letter == "t" else -1)]
    moves = [x is not None and at >= 0 and x.shape[at] == n > 1 for x, at in along]
    slices = [_first(x, at, size) for (x, at), here in zip(along, moves, strict=True) if here]
    keys = None if key is None or n == 1 else split(key, -(-n // (size or 1)))
    if keys is not None:
        slices.append(keys)

    def joined(parts: list[Any]) -> Operands:
        found = iter(parts)
        *values, of_rows = [
            next(found) if here else _only(x, -1 if size else at)
            for (x, at), here in zip(along, moves, strict=True)
        ]
        q, k, v, *extras = values
        return Operands(q, k, v, tuple(extras), of_rows, key if keys is None else next(found))

    return slices, joined


def _first(x: Value, at: int, size: int) -> Any:
    """An axis in front, or the axis of blocks of it."""
    if size:
        missing = -x.shape[at] % size
        if missing:
            x = tnp.pad(x, [(0, missing * (i == at)) for i in range(x.ndim)])
        x = tnp.reshape(x, (*x.shape[:at], -1, size, *x.shape[at + 1 :]))
    return tnp.moveaxis(x, at, 0)


def _whole(y: Value, place: int) -> Any:
    """Blocks in front as places of an axis."""
    y = tnp.moveaxis(y, 0, place)
    return tnp.reshape(y, (*y.shape[:place], -1, *y.shape[place + 2 :]))


def _only(x: Any, at: int) -> Any:
    """The one slice that all share."""
    return x if x is None or at < 0 else lax.squeeze(x, (at,))


def _even(n: int, most: int) -> int:
    """The size of blocks of ``n`` things: a divisor, unless all of them are small."""
    if most >= n:
        return n
    divisor = max([d for d in range(1, most + 1) if n % d == 0])
    return divisor if 2 * divisor > most else most
