"""Recipes: what lowering remembers on an application.

Most equations become one operation whose name, result types and attributes depend only on the
application. A ``Recipe`` keeps them, so that emitting costs little more than the creation of the
operation. Other primitives are lowered by their ``lower`` method each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.mlir.types import is_static, tensor_type

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application


@final
class Recipe:
    """One operation. ``scalars``: rank-0 operands that are repeated to the shape of ``out``."""

    __slots__ = ("attributes", "avals", "name", "out", "scalars", "types")

    def __init__(
        self, name: str, app: Application, attributes: Any, scalars: tuple[int, ...]
    ) -> None:
        out = app.out
        self.name = name
        self.avals = app.avals
        self.types = [tensor_type(out)]
        self.attributes = attributes
        self.out = out
        self.scalars = scalars


def recipe_of(app: Application) -> Recipe | Literal[False]:
    """The recipe of an application, or False where its primitive must lower it."""
    found = _make(app)
    app.recipe = found
    return found


def _make(app: Application) -> Recipe | Literal[False]:
    if app.multiple:
        return False
    aval = app.out
    if not is_static(aval) or any([is_extended(a.dtype) for a in (aval, *app.avals)]):
        return False
    made = app.primitive.recipe(*app.avals, **app.params)
    if made is None:
        return False
    name, attributes = made
    scalars = [i for i, a in enumerate(app.avals) if not a.ndim] if aval.ndim else []
    return Recipe(name, app, attributes, tuple(scalars))
