"""What is known of a kernel of steps before it is planned: that there is one, and about its size.

Lowering asks only whether there is a kernel that LLVM compiles soon enough. To plan it takes
longer than all else of lowering, and is left to those who compile the program. What is not certain
from equations alone (arrays that are put together of parts, for one) is planned at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracebridge.core import lax
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.ir.values import Literal
from tracebridge.core.kernels.equations import REDUCTIONS, exponent_of, is_handled
from tracebridge.core.kernels.functions import is_easy_power
from tracebridge.core.kernels.machine import machine
from tracebridge.core.kernels.steps.contractions import is_written_product, is_written_reduction
from tracebridge.core.kernels.steps.elementwise import floor_of_two, pieces
from tracebridge.core.kernels.steps.moves import only_adds
from tracebridge.core.kernels.steps.products import lines_of_product
from tracebridge.core.kernels.steps.views import without_ones
from tracebridge.core.kernels.steps.work import work
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr

_FUNCTIONS = frozenset({Cost.EXPENSIVE, Cost.COMPOSED})
_FLOAT = np.dtype(np.float32)
_DTYPES = frozenset({_FLOAT, np.dtype(np.int32), np.dtype(np.bool_)})
_LEAST_IN_PARTS = 1 << 11  # elements: larger arrays may be read where their parts are
_MOST_LINES = 1 << 12  # half of what a kernel may have
_MOST_SCRATCH = 1 << 20  # bytes
_ALIGNED = 64  # bytes
_HANDLER, _LOOP, _OPERATION, _FUNCTION, _ACCESS = 350, 8, 2, 30, 3  # lines
_REDUCTION = 60


class Outlook(NamedTuple):
    """About how many lines the text has, and bytes of memory of its own, at most.

    ``work``: nanoseconds.
    """

    lines: int
    scratch: int
    work: float = 0.0


_OPEN = Outlook(_MOST_LINES + 1, 0)
_EQUATIONS: BoundedCache[Outlook] = BoundedCache("outlook of equations", 4096)

_RESHAPES = frozenset({lax.reshape_p, lax.squeeze_p})
_BY_NUMBERS = frozenset({lax.pow_p, lax.pad_p})
_OF_PARTS = frozenset({lax.slice_p, lax.concatenate_p, lax.pad_p, lax.roll_p, lax.split_p})


def outlook(body: Jaxpr) -> Outlook | None:
    """What a kernel of a step will be, whatever its arrays are cut into; None if it is open."""
    if body.effects or not all([type(c) is Literal for c in body.consts]):
        return None
    if not all([_is_written(a) for a in {*body.in_avals, *[c.aval for c in body.consts]}]):
        return None
    counts: dict[Application, int] = {}
    for app, _ in body.equations:
        counts[app] = counts.get(app, 0) + 1
    lines, scratch, total = _HANDLER, 2 * sum([_bytes(a) for a in body.in_avals]), 0.0
    for app, count in counts.items():
        found = _EQUATIONS.get(app)
        if found is None:
            found = (_of_equation(app, machine().lanes) or _OPEN)._replace(work=work(app))
            _EQUATIONS.set(app, found)
        lines += count * found.lines
        scratch += count * found.scratch
        total += count * found.work
    if lines > _MOST_LINES or scratch > _MOST_SCRATCH or not _are_numbers_known(body):
        return None
    return Outlook(lines, scratch, total)


def _is_written(aval: ShapedArray) -> bool:
    """Whether kernels may have such an array, none of whose axes is along devices or empty."""
    is_plain = not aval.vma and aval.dtype in _DTYPES
    return is_plain and all([type(n) is int and n > 0 for n in aval.shape])


def _are_numbers_known(body: Jaxpr) -> bool:
    """Whether powers have exponents, and what is padded numbers, that stand in the program."""
    if primitives_of(body).isdisjoint(_BY_NUMBERS):
        return True
    for app, args in body.equations:
        if app.primitive is lax.pow_p:
            y = exponent_of(body, args[1])
            if y is None or not is_easy_power(y) or app.out.dtype != _FLOAT:
                return False
        elif app.primitive is lax.pad_p and not 0 <= args[1] - body.n_in < len(body.consts):
            return False
    return True


def _of_equation(app: Application, lanes: int) -> Outlook | None:
    """What an equation adds; None if it may have no place in a kernel, or one that is not known."""
    if not all([_is_written(a) for a in app.outs]):
        return None
    primitive = app.primitive
    scratch = 2 * sum([_bytes(a) for a in app.outs])  # the result, and a copy in another order
    if primitive is lax.split_p:
        return Outlook(0, scratch) if _keeps_vectors(app) else None
    if app.multiple:
        return None
    if primitive is lax.dot_general_p:
        return _of_product(app, scratch, lanes) if is_written_product(app) else None
    if primitive in REDUCTIONS:
        return Outlook(_REDUCTION, scratch) if is_written_reduction(app) else None
    if primitive in _RESHAPES or primitive is lax.broadcast_in_dim_p:
        return Outlook(_copy(app.out, lanes), scratch)
    if primitive is lax.transpose_p:
        is_kept = app.params["permutation"][-1] == app.out.ndim - 1
        return Outlook(0 if is_kept else 2 * _across(app.out, lanes), scratch)
    if primitive in _OF_PARTS:
        return Outlook(_of_parts(app, lanes), scratch) if _is_small_move(app) else None
    is_plain = all([not a.ndim or a.shape == app.out.shape for a in app.avals])
    if not is_plain or not (primitive is lax.pow_p or is_handled(app)):
        return None
    operation = _FUNCTION if primitive.cost in _FUNCTIONS else _OPERATION
    accesses = _ACCESS * (1 + len(app.avals))
    return Outlook(_LOOP + _widths(app.out, lanes) * (operation + accesses), scratch)


def _bytes(aval: ShapedArray) -> int:
    return aval.size * aval.dtype.itemsize + _ALIGNED


def _widths(aval: ShapedArray, lanes: int) -> int:
    """How many times what is done with a vector is written: vectors of several widths."""
    size = (without_ones(aval.shape) or (1,))[-1]
    width = min(2 * lanes, floor_of_two(size))
    return 1 + len(pieces(size % width, width))


def _copy(aval: ShapedArray, lanes: int) -> int:
    return _LOOP * max(aval.ndim, 1) + 2 * _ACCESS * _widths(aval, lanes)


def _across(aval: ShapedArray, lanes: int) -> int:
    """Of a copy that reads across the order of elements, one by one."""
    size = (without_ones(aval.shape) or (1,))[-1]
    width = min(2 * lanes, floor_of_two(size))
    elements = width + sum([n for _, n in pieces(size % width, width)])
    return _LOOP * max(aval.ndim, 1) + _ACCESS * (elements + _widths(aval, lanes))


def _of_product(app: Application, scratch: int, lanes: int) -> Outlook:
    """A product, with copies of factors in another order, the second one with wider rows."""
    (xc, yc), (xb, yb) = app.params["dimension_numbers"]
    xf, yf = _free(app.avals[0], xc, xb), _free(app.avals[1], yc, yb)
    n_lead, n_free, shape = len(xb), len(xb) + len(xf), app.out.shape
    n_rows, n_columns = math.prod(shape[n_lead:n_free]), math.prod(shape[n_free:])
    if n_columns == 1:  # the transposed product is done
        n_rows, n_columns = n_columns, n_rows
    lines = lines_of_product(n_rows, n_columns, lanes)
    factors = [(*xb, *xf, *xc), (*yb, *yc, *yf)]
    for aval, order in zip(app.avals, factors, strict=True):
        if list(order) != list(range(aval.ndim)):
            lines += _across(aval, lanes)
    copies = sum([2 * _bytes(a) + _ALIGNED * a.size // a.shape[-1] for a in app.avals if a.ndim])
    return Outlook(lines, scratch + copies)


def _free(aval: ShapedArray, summed: Sequence[int], batch: Sequence[int]) -> list[int]:
    return [i for i in range(aval.ndim) if i not in summed and i not in batch]


def _keeps_vectors(app: Application) -> bool:
    """Whether no part of an array is a column of it."""
    return all([not a.ndim or a.shape[-1] != 1 for a in app.outs])


def _is_small_move(app: Application) -> bool:
    """Whether what is moved, joined or cut off stands in memory, in vectors."""
    params: dict[str, Any] = app.params
    if max([a.size for a in (*app.avals, app.out)]) >= _LEAST_IN_PARTS:
        return False
    if app.primitive is lax.pad_p:
        return only_adds(app)
    if app.primitive is lax.slice_p:
        steps = params["strides"]
        return _keeps_vectors(app) and (not steps or all([n == 1 for n in steps]))
    return app.primitive is lax.concatenate_p


def _of_parts(app: Application, lanes: int) -> int:
    """Lines of a copy for each part, of any width, and for each edge."""
    n_edges = 2 * app.out.ndim if app.primitive is lax.pad_p else 0
    most = floor_of_two(2 * lanes).bit_length()
    each = _LOOP * max(app.out.ndim, 1) + 2 * _ACCESS * most
    return each * (len(app.avals) + n_edges)
