"""The frames of a program: shapes of large arrays of which rows are reduced.

Arrays of which costly functions are computed have frames too, of any rows: kernels compute these
faster, and share the work among threads that are awake. So have arrays that are computed and then
joined, as in rotary embeddings: XLA does not use vectors for what it joins.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.traverse import distinct_applications, primitives_of
from tracebridge.core.kernels.equations import REDUCTIONS, is_handled
from tracebridge.core.kernels.rows.frame import Frame, Shape, fit_together, frame_over
from tracebridge.core.kernels.rows.program import RESHAPES
from tracebridge.core.lax.reduce.exp_sums import shifted_exp_sum_p
from tracebridge.core.lowering.rewrites.flat import computed_by, is_call, with_shifts
from tracebridge.core.lowering.rewrites.inlined import inlined
from tracebridge.core.lowering.rewrites.producers import facts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_LEAST = 1 << 15  # elements of the frame: less is done before a kernel is called
SHORTEST = 16  # elements of a row that lie one after another
_SHORTEST_PART = 32  # that lie one after another, of rows which do not as a whole
_LONGEST = 1 << 17  # rows: half a megabyte, which the second cache has
_LONGEST_ACROSS = 1 << 10  # rows of which a vector has one place each

_LEAST_COSTLY = 1 << 16  # elements of which functions are computed
_WANTED = 256  # elements of a row where any will do
_MOST_WANTED = 1 << 13
_LINE = 16  # float32 in a line of the cache

_COSTLY = frozenset(
    {
        lax.exp_p,
        lax.expm1_p,
        lax.log_p,
        lax.log1p_p,
        lax.logistic_p,
        lax.tanh_p,
        lax.sin_p,
        lax.cos_p,
        lax.erfc_p,
    }
)
_REDUCING = frozenset({*REDUCTIONS, shifted_exp_sum_p})
_RESHAPING = RESHAPES | {lax.broadcast_in_dim_p}
_WITH_FRAMES = _COSTLY | _REDUCING | {lax.concatenate_p}
_FLOAT = np.dtype(np.float32)

Rows = tuple[Shape, Shape]
"""A shape, and the axes of it that are a row."""


class Large(NamedTuple):
    """What equations of a program do with large arrays.

    ``costly``: those that compute functions of each element; ``joining``: concatenations; ``rows``:
    of reductions, what they reduce.
    """

    costly: Sequence[Application]
    joining: Sequence[Application]
    rows: Mapping[Application, Rows]


_NOTHING = Large((), (), {})


def large_in(jaxpr: Jaxpr) -> Large:
    """What the program itself does, without what it calls."""
    if primitives_of(jaxpr).isdisjoint(_WITH_FRAMES):
        return _NOTHING
    facts = facts_of(jaxpr)
    found: Large | None = facts.get("large arrays")
    if found is None:
        apps = [a for a in distinct_applications(jaxpr) if a.primitive in _WITH_FRAMES]
        costly = [app for app in apps if is_costly(app)]
        joining = [app for app in apps if is_large_join(app)]
        rows = {app: rows for app in apps if (rows := _rows_of(app)) is not None}
        found = facts["large arrays"] = Large(costly, joining, rows)
    return found


def has_frames(jaxpr: Jaxpr) -> bool:
    """Whether large arrays may have frames, in called functions too."""
    if any(large_in(jaxpr)):
        return True
    calls = {p for p in primitives_of(jaxpr) if is_call(p)}
    for app in distinct_applications(jaxpr) if calls else ():
        if app.primitive in calls:
            called = inlined(app) or computed_by(app)
            if called is not None and has_frames(called):
                return True
    return False


def is_costly(app: Application) -> bool:
    """Whether an equation computes a function of each element of a large array."""
    if app.primitive not in _COSTLY or not is_handled(app):
        return False
    shape = app.out.shape
    return all([type(n) is int for n in shape]) and math.prod(shape) >= _LEAST_COSTLY


def is_large_join(app: Application) -> bool:
    """Whether an equation joins large arrays of one shape."""
    if app.primitive is not lax.concatenate_p or len({a.shape for a in app.avals}) > 1:
        return False
    sizes = app.out.shape
    return all([type(n) is int for n in sizes]) and app.avals[0].size >= _LEAST_COSTLY


def meaning(app: Application) -> Jaxpr | None:
    """What a call is or computes; sums of shifted exponentials have the largest one as shift."""
    is_other = app.primitive is shifted_exp_sum_p and _rows_of(app) is None
    return None if is_other else (inlined(app) or with_shifts(app))


def _rows_of(app: Application) -> Rows | None:
    """The rows that an equation reduces."""
    if app.primitive not in _REDUCING:
        return None
    (aval,) = app.avals
    axes = tuple(sorted(app.params["axes"]))
    return (aval.shape, axes) if _are_rows(aval, axes) else None


def _are_rows(aval: ShapedArray, axes: Shape) -> bool:
    shape = aval.shape
    if aval.dtype != _FLOAT or not axes or not all([type(n) is int for n in shape]):
        return False
    if math.prod(shape) < _LEAST or math.prod(shape) == math.prod([shape[i] for i in axes]):
        return False
    end = 1
    for i in reversed(range(aval.ndim)):
        if shape[i] != 1 and i not in axes:
            break
        end *= shape[i]
    length = math.prod([shape[i] for i in axes])
    if end == 1:  # vectors go across rows
        return _after(shape, axes) >= SHORTEST and 1 < length <= _LONGEST_ACROSS
    return end >= (SHORTEST if end == length else _SHORTEST_PART) and length <= _LONGEST


def _after(shape: Shape, axes: Shape) -> int:
    """How many elements lie one after another behind the axes of a row."""
    return math.prod(shape[max([i for i in axes if shape[i] != 1], default=0) + 1 :])


@final
class Frames:
    """The frames of a program, in turns of those that can be there at the same time."""

    def __init__(self) -> None:
        self.tried: set[Rows] = set()
        self._used: set[Rows] | None = None
        """Rows whose reductions are used again, in the program as it was at first."""

    def next_ones(self, jaxpr: Jaxpr) -> dict[Shape, Frame]:
        """The next frames, by the shapes of their arrays."""
        of_shape: dict[Shape, Rows] = {}
        for rows in self._found(jaxpr):
            if rows not in self.tried and of_shape.setdefault(rows[0], rows) == rows:
                self.tried.add(rows)
        shapes = {rows: [rows[0]] for rows in of_shape.values()}
        _add_reshaped(jaxpr, of_shape, shapes)
        frames: dict[Shape, Frame] = {}
        for (shape, axes), every in shapes.items():
            frame = frame_over(shape, axes, every)
            for s in frame.shapes:
                frames.setdefault(s, frame)
        return frames or self._of_functions(jaxpr)

    def _of_functions(self, jaxpr: Jaxpr) -> dict[Shape, Frame]:
        """The frames of arrays of which only functions of each element are computed."""
        frames: dict[Shape, Frame] = {}
        large = large_in(jaxpr)
        costly = [app.out.shape for app in large.costly]
        joined = [app.avals[0].shape for app in large.joining]
        for shape in dict.fromkeys([*costly, *joined]):
            rows = _any_rows(shape)
            if rows is None or (shape, ()) in self.tried or shape in frames:
                continue
            self.tried.add((shape, ()))
            frame = frame_over(rows, (len(rows) - 1,), (shape,))
            for s in frame.shapes:
                frames.setdefault(s, frame)
        return frames

    def _found(self, jaxpr: Jaxpr) -> list[Rows]:
        """The rows that are reduced; if along several axes, only where they are used again."""
        found = dict.fromkeys(large_in(jaxpr).rows.values())
        several = {rows for rows in found if not _is_plain(rows)}
        if self._used is None:
            self._used = _used_again(jaxpr, several)
        used = self._used & several - self.tried
        across = {rows for rows in used if _is_across(rows)}
        first = [rows for rows in found if rows in used - across]
        plain = [rows for rows in found if _is_plain(rows)]
        last = [rows for rows in found if rows in across]
        return list(dict.fromkeys([*first, *plain, *last]))


def _any_rows(shape: Shape) -> Shape | None:
    """A shape of the same elements whose last axis is a good row; None if there is none.

    Rows are whole lines of the cache, where they can be.
    """
    length, i = 1, len(shape)
    while i and length < _WANTED:
        i -= 1
        length *= shape[i]
    outside = shape[i - 1] if i else 1
    if length > _MOST_WANTED:
        inner = length // shape[i]
        length = max([inner * n for n in _divisors(shape[i]) if inner * n <= _MOST_WANTED])
        outside = inner * shape[i] // length
    whole = [length * n for n in _divisors(outside) if length * n % _LINE == 0]
    length = whole[0] if whole and whole[0] <= _MOST_WANTED else length
    total = math.prod(shape)
    return (total // length, length) if _WANTED <= length < total else None


def _divisors(n: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *[n // d for d in small]})


def _is_across(rows: Rows) -> bool:
    """Whether rows do not end with the array."""
    shape, axes = rows
    return math.prod(shape[max(axes) + 1 :]) > 1


def _is_plain(rows: Rows) -> bool:
    """Whether rows are the last axis."""
    return rows[1] == (len(rows[0]) - 1,)


def _used_again(jaxpr: Jaxpr, candidates: set[Rows]) -> set[Rows]:
    """Rows whose reductions are read by what has as many elements as the array again."""
    if not candidates:
        return set()
    of: dict[int, AbstractSet[Rows]] = {}
    used: set[Rows] = set()
    rows = large_in(jaxpr).rows
    begin = {app: frozenset({rows[app]}) for app in rows if rows[app] in candidates}
    n_elements = {r: math.prod(r[0]) for r in candidates}
    sizes: dict[Application, int] = {}
    variable, are_read = jaxpr.n_in + len(jaxpr.consts), of.keys()
    for app, args in jaxpr.equations:
        if app in begin:
            of[variable] = begin[app]
        elif not are_read.isdisjoint(args):
            if app not in sizes:
                sizes[app] = math.prod([n for n in app.outs[0].shape if type(n) is int])
            size, left = sizes[app], set[Rows]()
            for a in args:
                for r in of.get(a, ()):
                    if size < n_elements[r]:
                        left.add(r)
                    elif size == n_elements[r]:
                        used.add(r)
            if left:
                of.update(dict.fromkeys(range(variable, variable + len(app.outs)), left))
            if len(used) == len(candidates):
                break
        variable += len(app.outs) if app.multiple else 1
    return used


def _add_reshaped(
    jaxpr: Jaxpr, of_shape: dict[Shape, Rows], shapes: dict[Rows, list[Shape]]
) -> None:
    """Add the shapes that arrays of the frames are reshaped to or from."""
    if not of_shape:
        return
    pairs = {
        (app.avals[0].shape, app.out.shape)
        for app in distinct_applications(jaxpr)
        if app.primitive in _RESHAPING and _reshapes(app)
    }
    todo: Sequence[Shape] = list(of_shape)
    while todo:
        new: list[Shape] = []
        for shape in todo:
            rows = of_shape[shape]
            near = [b if a == shape else a for a, b in pairs if shape in (a, b)]
            for other in sorted(near):
                if other not in of_shape and fit_together([*shapes[rows], other]):
                    of_shape[other] = rows
                    shapes[rows].append(other)
                    new.append(other)
        todo = new


def _reshapes(app: Application) -> bool:
    """Whether an equation gives an array of static sizes another shape."""
    sizes = (*app.avals[0].shape, *app.out.shape)
    if not all([type(n) is int for n in sizes]) or math.prod(app.out.shape) < _LEAST:
        return False
    return math.prod(app.avals[0].shape) == math.prod(app.out.shape)
