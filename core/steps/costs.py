"""How many operations a step of a kernel takes."""

from __future__ import annotations

import math

from tracebridge.core.rows.costs import is_dear
from tracebridge.core.steps.dots import Dots
from tracebridge.core.steps.elementwise import Group
from tracebridge.core.steps.plan import Plan, Statement
from tracebridge.core.steps.products import Product


def operations(plan: Plan) -> tuple[int, int]:
    """Cheap ones, and exponentials and their like."""
    found = [_of_statement(s) for s in (*plan.step, *plan.after)]
    return sum([cheap for cheap, _ in found]), sum([dear for _, dear in found])


def _of_statement(statement: Statement) -> tuple[int, int]:
    if isinstance(statement, Group):
        made = [n.kind for n in statement.nodes if n.kind not in ("load", "number")]
        size = math.prod(statement.shape)
        dear = sum([is_dear(kind) for kind in made])
        return (len(made) - dear) * size, dear * size
    if isinstance(statement, Product):
        return 2 * statement.x.size * statement.y.shape[-1], 0
    return (2 * statement.matrix.size if isinstance(statement, Dots) else statement.x.size), 0
