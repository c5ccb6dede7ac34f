"""Matrix products and reductions of a step: which loops they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core import lax
from tracebridge.core.kernels.equations import REDUCTIONS
from tracebridge.core.kernels.steps.dots import dots_of
from tracebridge.core.kernels.steps.products import Product
from tracebridge.core.kernels.steps.reductions import Reduction
from tracebridge.core.kernels.steps.values import Known, NotWritten
from tracebridge.core.kernels.steps.views import View

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.kernels.steps.plan import Plan

_FLOAT = np.dtype(np.float32)
_PADDING = 16  # elements after each row of a matrix: a line of the cache
_COLLIDING = 128  # elements: rows that begin so far apart meet in an eighth of the sets
_LARGE = 1 << 12  # elements
_FEW_ROWS = 2  # to copy a matrix takes as long as to multiply several of them by it
_FEWEST_TERMS = 32
_PARAMS = frozenset({"dimension_numbers", "precision", "preferred_element_type"})


def _reduction(
    plan: Plan, app: Application, args: Sequence[int], variable: int, fixed: bool
) -> Known:
    if not is_written_reduction(app):
        raise NotWritten
    axes, view = app.params["axes"], plan.memory(args[0])
    if not axes:
        return view
    kept = [i for i in range(len(view.shape)) if i not in axes]
    out = plan.slot(variable, app.out.shape, app.out.dtype)
    moved = view.transposed([*kept, *sorted(axes)])
    plan.where(fixed).append(Reduction(REDUCTIONS[app.primitive], moved, out))
    return out


def _product(
    plan: Plan, app: Application, args: Sequence[int], variable: int, fixed: bool
) -> Known:
    if not is_written_product(app):
        raise NotWritten
    (xc, yc), (xb, yb) = app.params["dimension_numbers"]
    x, y = plan.memory(args[0]), plan.memory(args[1])
    xf = [i for i in range(len(x.shape)) if i not in (*xc, *xb)]
    yf = [i for i in range(len(y.shape)) if i not in (*yc, *yb)]
    n = len(xb)
    x = _matrices(plan, x.transposed([*xb, *xf, *xc]), n, len(xf), plan.fixed[args[0]])
    y = _matrices(plan, y.transposed([*yb, *yc, *yf]), n, len(yc), plan.fixed[args[1]])
    out = plan.slot(variable, app.out.shape, app.out.dtype)
    shape = (*x.shape[:-1], y.shape[-1])
    target = out.reshaped(shape)
    if target is None:
        raise NotWritten
    wide = args[1]
    if shape[-1] == 1 and shape[-2] > 1:
        # The transposed product: its columns are what there is more of.
        order = [*range(n), n + 1, n]
        x, y, target = y.transposed(order), x.transposed(order), target.transposed(order)
        wide = args[0]
    adds = variable in plan.totals
    if target.shape[-1] > 1 and target.strides[-1] != 1:
        raise NotWritten
    if _multiplies_rows(x, y) and not adds:
        plan.where(fixed).append(dots_of(x, y, target))
    else:
        plan.where(fixed).append(Product(x, _packed(plan, y, plan.fixed[wide]), target, adds))
    return out


def is_written_reduction(app: Application) -> bool:
    """Whether steps may have such a sum, maximum or minimum."""
    return app.out.dtype == _FLOAT and len(app.params) == 1


def is_written_product(app: Application) -> bool:
    """Whether steps may have such a product."""
    params = app.params
    preferred = params["preferred_element_type"]
    if any([a.dtype != _FLOAT for a in (*app.avals, app.out)]):
        return False
    others = [value for name, value in params.items() if name not in _PARAMS]
    return preferred in (None, _FLOAT) and all([value is None for value in others])


def _matrices(plan: Plan, view: View, n_lead: int, n_rows: int, fixed: bool) -> View:
    """The leading axes, then the ``n_rows`` next ones as one, then the others as one.

    It is a copy if elements do not lie in such an order.
    """
    found = _joined(view, n_lead, n_rows)
    if found is None:
        found = _joined(plan.copied(view, plan.where(fixed)), n_lead, n_rows)
        assert found is not None  # its elements lie one after another
    return found


def _joined(view: View, n_lead: int, n_rows: int) -> View | None:
    at = n_lead + n_rows
    sizes, strides = [*view.shape[:n_lead]], [*view.strides[:n_lead]]
    for a, b in ((n_lead, at), (at, None)):
        part = View(view.base, view.offset, view.shape[a:b], view.strides[a:b], view.dtype)
        found = part.reshaped((_size(part.shape),))
        if found is None:
            return None
        sizes.append(found.shape[0])
        strides.append(found.strides[0])
    return View(view.base, view.offset, tuple(sizes), tuple(strides), view.dtype)


def _size(shape: Sequence[int]) -> int:
    return math.prod(shape)


def _collides(matrix: View) -> bool:
    """Whether the rows of a large matrix begin in the same few sets of the nearest cache."""
    rows, columns = matrix.shape[-2:]
    return rows * columns >= _LARGE and matrix.strides[-2] % _COLLIDING == 0


def _multiplies_rows(x: View, y: View) -> bool:
    """Whether terms lie one after another, not columns, and that is the better way to have them."""
    if y.shape[-1] == 1 or y.strides[-1] == 1 or y.shape[-2] < _FEWEST_TERMS:
        return False
    return x.shape[-2] <= _FEW_ROWS and x.strides[-1] == y.strides[-2] == 1


def _packed(plan: Plan, view: View, fixed: bool) -> View:
    """A matrix whose rows are contiguous, and if it is fixed not in the same sets of lines."""
    is_contiguous = view.strides[-1] == 1 or view.shape[-1] == 1
    if is_contiguous and not (fixed and _collides(view)):
        return view
    if not fixed:
        return plan.copied(view, plan.step)
    if view not in plan.packed:
        *lead, rows, columns = view.shape
        wide = plan.new((*lead, rows, columns + _PADDING), view.dtype)
        packed = wide._replace(shape=view.shape)
        plan.write_copy(view, packed, plan.before)
        plan.packed[view] = packed
    return plan.packed[view]


CONTRACTIONS: Mapping[Any, Callable[..., Known]] = {
    lax.dot_general_p: _product,
    **dict.fromkeys(REDUCTIONS, _reduction),
}
