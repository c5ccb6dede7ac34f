"""HigherOrderPrimitive: an operation with programs inside, such as a loop or a call."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.effects import Effects, check_effects, no_effects
from tracebridge.core.ir.jaxpr import jaxprs_in_params, open_params
from tracebridge.core.ir.operators import are_of_engine
from tracebridge.core.ir.owners import largest_jaxpr, names_axis_inside
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.varied import differ, together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.values import Value


class HigherOrderPrimitive(Primitive):
    """A primitive with Jaxprs in its parameters.

    Its applications are remembered on a Jaxpr of theirs, so that they die with the program. Rules
    that one such primitive should have, and others need not: ``linearize``, ``dce``,
    ``unknown_outs`` with ``split_by_known``, and ``by_steps`` where a Jaxpr runs more than once or
    not.
    """

    is_higher_order = True
    multiple_results = True
    cost = Cost.OTHER
    # What is inside is looked at on its own.
    makes_nan = False
    joins = False
    # The attribute of Effect that effects inside must have.
    effect_place: ClassVar[str] = ""

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[Any] | None:
        """As the results of what is inside are."""
        del avals, outs, params
        return None

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[frozenset[Any]] | None:
        """As the results of what is inside do, unless all operands are joined."""
        return super().vary_results(avals, outs, **params) if self.joins else None

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        """The effects of the Jaxprs inside."""
        del avals
        found: Effects = no_effects
        for jaxpr in jaxprs_in_params(params):
            if jaxpr.effects:
                found |= jaxpr.effects
        if found and self.effect_place:
            check_effects(found, self.effect_place, self.name)
        return found

    def is_high(self, avals: Sequence[Any], outs: Sequence[Any], params: Params) -> bool:
        """Whether values of types of users go in or out, or are inside."""
        return super().is_high(avals, outs, params) or any(
            map(is_high_jaxpr, jaxprs_in_params(params))
        )

    def names_axis(self, axis_name: object, params: Params) -> bool:
        """Whether a collective over ``axis_name`` is inside."""
        return any([names_axis_inside(jaxpr, axis_name) for jaxpr in jaxprs_in_params(params)])

    def bind(self, *args: Value, **params: Any) -> Any:
        """Apply the primitive to values under the current trace."""
        if not are_of_engine(args):
            args = tuple([as_value(a) for a in args])
        avals = tuple([a.aval for a in args])
        if self.joins and differ(avals):
            args = together(args)
            avals = tuple([a.aval for a in args])
        app = self.application(avals, params)
        return current_trace().process(app, args)

    def application(self, avals: tuple[ShapedArray, ...], params: Params) -> Application:
        """The application at ``avals`` and ``params``, remembered on a Jaxpr in params."""
        cache, key = self.place(avals, params)
        return self.remembered(cache, key, avals, params)

    def place(
        self, avals: tuple[ShapedArray, ...], params: Params
    ) -> tuple[dict[Any, Any], tuple[Any, ...]]:
        """The cache of a Jaxpr in ``params``, and the key there, which does not refer to it."""
        owner = largest_jaxpr(jaxprs_in_params(params))
        values = [None if value is owner else value for value in params.values()]
        return owner.cache, (self, avals, *params, *values)

    def remembered(
        self,
        cache: dict[Any, Any],
        key: tuple[object, ...],
        avals: tuple[ShapedArray, ...],
        params: Params,
    ) -> Application:
        """The application under ``key`` of the ``cache`` of a Jaxpr in ``params``.

        At first the cache refers to it weakly: a program that is used once dies at once, not when
        the garbage collector finds the cycle. What is wanted again after its death stays.
        """
        cached = cache.get(key)
        if cached is None:
            # Views of equations have closed Jaxprs in their parameters.
            app = Application(self, avals, open_params(params))
            cache[key] = weakref.ref(app)
            return app
        if type(cached) is Application:
            return cached
        app = cached()
        if app is None:
            app = cache[key] = Application(self, avals, open_params(params))
        return app

    def keep(self, app: Application) -> None:
        """Let ``app`` live as long as the program."""
        cache, key = self.place(app.avals, app.params)
        cache[key] = app


def is_high_jaxpr(jaxpr: Any) -> bool:
    """Whether a program has variables of types of users, at any depth."""
    found = jaxpr.cache.get("high")
    if found is None:
        avals = (*jaxpr.in_avals, *[c.aval for c in jaxpr.consts])
        found = any([type(aval) is not ShapedArray for aval in avals])
        found = found or any([app.high for app, _ in jaxpr.equations])
        jaxpr.cache["high"] = found
    return found
