"""What the text of a kernel of steps depends on, and about how long the text is.

A kernel that is planned when it is lowered is named by this (others by their programs), so its text
is written only when LLVM is to compile it: a program of other parts may have had it done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracebridge.core.kernels.functions import TRANSCENDENTAL
from tracebridge.core.kernels.steps.boxes import Boxes, Number, Source, n_cells
from tracebridge.core.kernels.steps.elementwise import Group, Node, floor_of_two, pieces
from tracebridge.core.kernels.steps.products import Product, lines_of_product
from tracebridge.core.kernels.steps.views import View, bytes_of
from tracebridge.core.kernels.text import NAMES, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.kernels.steps.plan import Plan
    from tracebridge.core.kernels.steps.values import Statement

# Lines that a value takes, measured.
_OF_FUNCTION, _OF_OPERATION, _OF_ELEMENT, _OF_LOOP = 30, 2, 3, 8
_OF_REDUCTION = 60
_OF_HANDLER = 350


def described(plan: Plan, *more: object, by_steps: bool) -> str:
    """All that ``steps_function`` and the handlers look at, and ``more``.

    ``by_steps``: slices for each step lie one after another (``places_of_steps``), else they are
    parts.
    """
    arrays, n_in, n_out = plan.arrays, len(plan.arrays.in_avals), len(plan.arrays.out_avals)
    slices = [*arrays.in_avals[plan.n_consts + plan.n_carry :], *arrays.out_avals[plan.n_carry :]]
    carried = [
        (_view(arrays.operand(plan.n_consts + k, "")), _view(arrays.result(k, "")), _view(carry))
        for k, carry in enumerate(plan.carries)
    ]
    parts = [
        (plan.n_consts, plan.n_carry, n_in, n_out, plan.scratch, more),
        (arrays.counts[1:], arrays.by_rows, sorted(arrays.totals)),
        [arrays.operand_steps(i) for i in range(n_in)],
        [arrays.result_steps(k) for k in range(n_out)],
        [bytes_of(a.shape, a.dtype) for a in slices] if by_steps else None,
        list(plan.places.items()),
        carried,
        [
            [_statement(s) for s in some]
            for some in (plan.before, plan.first, plan.step, plan.after)
        ],
    ]
    return repr(parts)


def _statement(statement: Statement) -> tuple[object, ...]:
    if isinstance(statement, Group):
        nodes = [_node(node) for node in statement.nodes]
        return statement.shape, nodes, [(i, _view(view)) for i, view in statement.stores]
    kind = type(statement).__name__
    return kind, *[_view(v) if isinstance(v, View) else v for v in statement]


def _node(node: Node) -> tuple[object, ...]:
    params: Any = node.params
    if node.kind == "load":
        params = _source(params)
    elif node.kind == "number":
        params = number_of(params, node.dtype)
    elif params:
        params = repr(params)
    return node.kind, node.args, NAMES[node.dtype], params


def _source(source: Source) -> tuple[object, ...]:
    if isinstance(source, Boxes):
        return source.shape, [(part.starts, _source(part.source)) for part in source.parts]
    if isinstance(source, Number):
        return number_of(source.value, source.dtype), NAMES[source.dtype], source.shape
    return _view(source)


def _view(view: View) -> tuple[object, ...]:
    return view.base, view.offset, view.shape, view.strides, NAMES[view.dtype]


def lines_of(plan: Plan, lanes: int) -> int:
    """About how many lines the text has."""
    statements = [*plan.before, *plan.first, *plan.step, *plan.after]
    return _OF_HANDLER + sum([_lines_of(s, lanes) for s in statements])


def _lines_of(statement: Statement, lanes: int) -> int:
    if isinstance(statement, Group):
        return _lines_of_group(statement, lanes)
    if isinstance(statement, Product):
        return lines_of_product(statement.x.shape[-2], statement.y.shape[-1], lanes)
    return _OF_REDUCTION


def _lines_of_group(group: Group, lanes: int) -> int:
    size = group.shape[-1] if group.shape else 1
    width = min(2 * lanes, floor_of_two(size))
    total = _OF_LOOP * max(len(group.shape), 1)
    for wide in (width, *[w for _, w in pieces(size % width, width)]):
        total += sum([_lines_of_node(node, wide) for node in group.nodes])
        total += sum([_lines_of_access(view, wide) for _, view in group.stores])
    return total * n_cells(group.shape, group.boxes()) if group.shape else total


def _lines_of_node(node: Node, width: int) -> int:
    if node.kind == "load":
        is_view = isinstance(node.params, View)
        return _lines_of_access(node.params, width) if is_view else _OF_ELEMENT
    if node.kind == "number":
        return 0
    return _OF_FUNCTION if node.kind in TRANSCENDENTAL else _OF_OPERATION


def _lines_of_access(view: View, width: int) -> int:
    """Elements that do not lie one after another are read and written one by one."""
    strides: Sequence[int] = view.strides
    return _OF_ELEMENT * (1 if not strides or strides[-1] in (0, 1) else width)
