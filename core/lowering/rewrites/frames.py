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
from tracebridge.core.lowering.rewrites.whole_programs import LEAST_COSTLY, whole_shape
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_LEAST = 1 << 17  # bytes of the frame: less is done before a kernel is called
_MOST = 1 << 40  # elements: no memory has more, and an error says so elsewhere
SHORTEST = 16  # elements of a row that lie one after another
_SHORTEST_PART = 32  # that lie one after another, of rows which do not as a whole
_LONGEST = 1 << 19  # bytes of rows, which the second cache has
_LONGEST_ACROSS = 1 << 10  # rows of which a vector has one place each

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
        lax.ndtr_p,
    }
)
_REDUCING = frozenset({*REDUCTIONS, shifted_exp_sum_p})
_RESHAPING = RESHAPES | {lax.broadcast_in_dim_p}
_WITH_FRAMES = _COSTLY | _REDUCING | {lax.concatenate_p}
_WITH_USES = _WITH_FRAMES | _RESHAPING
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)

Rows = tuple[Shape, Shape]
"""A shape, and the axes of it that are a row."""


class Large(NamedTuple):
    """What equations of a program do with large arrays.

    ``costly``: those that compute functions of each element; ``joining``: concatenations; ``rows``:
    of reductions, what they reduce; ``reshaped``: shapes that arrays have before and after.
    """

    costly: list[Application]
    joining: list[Application]
    rows: dict[Application, Rows]
    reshaped: list[tuple[Shape, Shape]]


class _Use(NamedTuple):
    """What one equation does, as in ``Large``."""

    costly: bool
    joining: bool
    rows: Rows | None
    reshaped: tuple[Shape, Shape] | None
    doubles: bool = False


_NOTHING = Large([], [], {}, [])
_NO_USE = _Use(False, False, None, None)
_FRAMES: BoundedCache[Frame] = BoundedCache("frames of rows", 256)
_USES: BoundedCache[_Use] = BoundedCache("what equations do with large arrays", 4096)


def large_in(jaxpr: Jaxpr, doubles: bool = False) -> Large:
    """What the program itself does, without what it calls; ``doubles``: with arrays of float64."""
    if primitives_of(jaxpr).isdisjoint(_WITH_FRAMES):
        return _NOTHING
    facts = facts_of(jaxpr)
    both: tuple[Large, Large] | None = facts.get("large arrays")
    if both is None:
        both = Large([], [], {}, []), Large([], [], {}, [])
        for app in distinct_applications(jaxpr):
            if app.primitive in _WITH_USES:
                use = _USES.get(app) or _use_of(app)
                if use is not _NO_USE:
                    _add_use(app, use, both)
        facts["large arrays"] = both  # whole: other threads may ask
    return both[doubles]


def _use_of(app: Application) -> _Use:
    pair = (app.avals[0].shape, app.out.shape) if _reshapes(app) else None
    doubles = app.avals[0].dtype == _DOUBLE if app.avals else False
    use = _Use(is_costly(app), is_large_join(app), _rows_of(app), pair, doubles)
    if use[:4] == _NO_USE[:4]:
        use = _NO_USE
    _USES.set(app, use)
    return use


def _add_use(app: Application, use: _Use, both: tuple[Large, Large]) -> None:
    found = both[use.doubles]
    if use.costly:
        found.costly.append(app)
    if use.joining:
        found.joining.append(app)
    if use.rows is not None:
        found.rows[app] = use.rows
    if use.reshaped is not None:
        for large in both:  # of masks, too
            large.reshaped.append(use.reshaped)


def has_frames(jaxpr: Jaxpr) -> bool:
    """Whether large arrays may have frames, in called functions too."""
    large = large_in(jaxpr)
    if large.costly or large.joining or large.rows or large_in(jaxpr, doubles=True).rows:
        return True
    if whole_shape(jaxpr) is not None:
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
    return all([type(n) is int for n in shape]) and math.prod(shape) >= LEAST_COSTLY


def is_large_join(app: Application) -> bool:
    """Whether an equation joins large arrays of one shape."""
    if app.primitive is not lax.concatenate_p or len({a.shape for a in app.avals}) > 1:
        return False
    sizes = app.out.shape
    return all([type(n) is int for n in sizes]) and app.avals[0].size >= LEAST_COSTLY


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
    shape, itemsize = aval.shape, aval.dtype.itemsize
    if aval.dtype not in (_SINGLE, _DOUBLE) or not axes:
        return False
    if not all([type(n) is int for n in shape]):
        return False
    length, size = math.prod([shape[i] for i in axes]), math.prod(shape)
    if size * itemsize < _LEAST or size > _MOST or size == length:
        return False
    end = 1
    for i in reversed(range(aval.ndim)):
        if shape[i] != 1 and i not in axes:
            break
        end *= shape[i]
    if end == 1:  # vectors go across rows
        return _after(shape, axes) >= SHORTEST and 1 < length <= _LONGEST_ACROSS
    return end >= (SHORTEST if end == length else _SHORTEST_PART) and length * itemsize <= _LONGEST


def _after(shape: Shape, axes: Shape) -> int:
    """How many elements lie one after another behind the axes of a row."""
    return math.prod(shape[max([i for i in axes if shape[i] != 1], default=0) + 1 :])


@final
class Frames:
    """The frames of a program, in turns of those that can be there at the same time.

    ``doubles``: those of arrays of float64; others are of float32.
    """

    def __init__(self, doubles: bool = False) -> None:
        self.doubles = doubles
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
        _add_reshaped(large_in(jaxpr, self.doubles), of_shape, shapes)
        frames: dict[Shape, Frame] = {}
        for (shape, axes), every in shapes.items():
            frame = _frame_over(shape, axes, tuple(every), self.doubles)
            for s in frame.shapes:
                frames.setdefault(s, frame)
        return frames or self._of_functions(jaxpr)

    def _of_functions(self, jaxpr: Jaxpr) -> dict[Shape, Frame]:
        """The frames of arrays of which only functions of each element are computed.

        Of float64 only where that is all: XLA has functions that kernels have not.
        """
        frames: dict[Shape, Frame] = {}
        large = _NOTHING if self.doubles else large_in(jaxpr)
        costly = [app.out.shape for app in large.costly]
        joined = [app.avals[0].shape for app in large.joining]
        whole = whole_shape(jaxpr)
        found: list[Shape] = [*costly, *joined, *([] if whole is None else [whole])]
        for shape in dict.fromkeys(found):
            rows = _any_rows(shape)
            if rows is None or (shape, ()) in self.tried or shape in frames:
                continue
            self.tried.add((shape, ()))
            frame = _frame_over(rows, (len(rows) - 1,), (shape,), self.doubles)
            for s in frame.shapes:
                frames.setdefault(s, frame)
        return frames

    def _found(self, jaxpr: Jaxpr) -> list[Rows]:
        """The rows that are reduced; if along several axes, only where they are used again."""
        found = dict.fromkeys(large_in(jaxpr, self.doubles).rows.values())
        several = {rows for rows in found if not _is_plain(rows)}
        if not several:
            self._used = self._used or set()
            return list(found)
        if self._used is None:
            self._used = _used_again(jaxpr, several, self.doubles)
        used = self._used & several - self.tried
        across = {rows for rows in used if _is_across(rows)}
        first = [rows for rows in found if rows in used - across]
        plain = [rows for rows in found if _is_plain(rows)]
        last = [rows for rows in found if rows in across]
        return list(dict.fromkeys([*first, *plain, *last]))


def _frame_over(shape: Shape, axes: Shape, shapes: tuple[Shape, ...], doubles: bool) -> Frame:
    """As ``frame_over``, remembered: programs of one size have the same frames."""
    key = shape, axes, shapes, doubles
    return _FRAMES.get_or_make(key, lambda: frame_over(*key))


def _any_rows(shape: Shape) -> Shape | None:
    """A shape of the same elements whose last axis is a good row; None if there is none.

    Rows are whole lines of the cache, where they can be.
    """
    shape = tuple([n for n in shape if n != 1])
    if math.prod(shape) > _MOST:
        return None
    length, i = 1, len(shape)
    while i and length < _WANTED:
        i -= 1
        length *= shape[i]
    outside = shape[i - 1] if i else 1
    if i == 0 and length <= _MOST_WANTED:  # all of it: a part
        inner = length // shape[0]
        length, outside = inner, shape[0]
        parts = [inner * n for n in _divisors(outside) if inner * n >= _WANTED]
        whole = [n for n in parts if n % _LINE == 0]
        return _shape_of_rows(math.prod(shape), (whole or parts)[0])
    if length > _MOST_WANTED:
        inner = length // shape[i]
        length = max([inner * n for n in _divisors(shape[i]) if inner * n <= _MOST_WANTED])
        outside = inner * shape[i] // length
    whole = [length * n for n in _divisors(outside) if length * n % _LINE == 0]
    length = whole[0] if whole and whole[0] <= _MOST_WANTED else length
    return _shape_of_rows(math.prod(shape), length)


def _shape_of_rows(total: int, length: int) -> Shape | None:
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


def _used_again(jaxpr: Jaxpr, candidates: set[Rows], doubles: bool) -> set[Rows]:
    """Rows whose reductions are read by what has as many elements as the array again."""
    if not candidates:
        return set()
    rows, bits = large_in(jaxpr, doubles).rows, {r: 1 << i for i, r in enumerate(candidates)}
    n_elements = {r: math.prod(r[0]) for r in candidates}
    begin = {app: bits[r] for app, r in rows.items() if r in bits}
    of: dict[int, int] = {}
    """Of variables: the rows whose reductions they depend on, as bits."""
    used, every = 0, (1 << len(bits)) - 1
    fitting: dict[Application, tuple[int, int]] = {}
    """Of equations: the rows of arrays as large as the result, and of larger ones."""
    variable, are_read = jaxpr.n_in + len(jaxpr.consts), of.keys()
    for app, args in jaxpr.equations:
        if app in begin:
            of[variable] = begin[app]
        elif of and not are_read.isdisjoint(args):
            fits = fitting.get(app)
            if fits is None:
                size = math.prod([n for n in app.outs[0].shape if type(n) is int])
                alike = sum([bits[r] for r, n in n_elements.items() if n == size])
                larger = sum([bits[r] for r, n in n_elements.items() if n > size])
                fits = fitting[app] = alike, larger
            alike, left = fits
            read = 0
            for a in args:
                read |= of.get(a, 0)
            used |= read & alike
            left &= read
            if left:
                of[variable] = left
                for nth in range(1, len(app.outs) if app.multiple else 1):
                    of[variable + nth] = left
            if used == every:
                break
        variable += len(app.outs) if app.multiple else 1
    return {r for r, bit in bits.items() if used & bit}


def _add_reshaped(
    large: Large, of_shape: dict[Shape, Rows], shapes: dict[Rows, list[Shape]]
) -> None:
    """Add the shapes that arrays of the frames are reshaped to or from."""
    if not of_shape:
        return
    near: dict[Shape, set[Shape]] = {}
    for a, b in large.reshaped:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    todo: Sequence[Shape] = list(of_shape)
    while todo:
        new: list[Shape] = []
        for shape in todo:
            rows = of_shape[shape]
            for other in sorted(near.get(shape, ())):
                if other not in of_shape and fit_together([*shapes[rows], other]):
                    of_shape[other] = rows
                    shapes[rows].append(other)
                    new.append(other)
        todo = new


def _reshapes(app: Application) -> bool:
    """Whether an equation gives an array of static sizes another shape."""
    if app.primitive not in _RESHAPING:
        return False
    sizes = (*app.avals[0].shape, *app.out.shape)
    if not all([type(n) is int for n in sizes]) or math.prod(app.out.shape) < _LEAST // 8:
        return False
    return math.prod(app.avals[0].shape) == math.prod(app.out.shape)
