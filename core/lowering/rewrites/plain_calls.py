"""Programs without rules of derivatives: what is lowered of a function that has its own ones.

Rules are functions of the user, often made anew for each trace. Programs without them are equal
where they compute the same, and may be kept without keeping these functions alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.config.values import tracing_key
from tracebridge.core.ir.content import IS_SHARED, content_of, has_arrays
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Equation, Jaxpr
from tracebridge.core.ir.traverse import distinct_applications, holds_functions, is_with_functions
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import LoweringContext

_SAME: BoundedCache[Jaxpr] = BoundedCache("called programs by content", 256)


@final
class PlainCall(HigherOrderPrimitive):
    """What ``jaxpr`` computes, in place. It is made while programs are lowered."""

    name = "plain_call"
    computes = "jaxpr"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> Sequence[ShapedArray]:
        del avals
        called: Jaxpr = params["jaxpr"]
        return called.out_avals

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.inline_jaxpr(params["jaxpr"], operands)


plain_call_p = PlainCall()


def without_rules(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` with plain calls of functions that have derivatives of their own, at any depth."""
    if not holds_functions(jaxpr):
        return jaxpr
    known = jaxpr.cache.get("without rules")
    if known is None:
        others = {
            app: _without_rules(app)
            for app in distinct_applications(jaxpr)
            if is_with_functions(app)
        }
        equations = with_others(jaxpr, others)
        known = jaxpr.cache["without rules"] = _with(jaxpr, equations)
    return known


def with_others(jaxpr: Jaxpr, others: Mapping[Application, Application]) -> list[Equation]:
    """The equations of ``jaxpr``, some of them with other applications."""
    return [
        (others[equation[0]], equation[1]) if equation[0] in others else equation
        for equation in jaxpr.equations
    ]


def _with(jaxpr: Jaxpr, equations: Sequence[Equation]) -> Jaxpr:
    """A program without what is remembered on the other one, and the names of its arguments.

    Both may refer to the function of the user: names are asked of it.
    """
    outs, out_avals, sources = jaxpr.outs, jaxpr.out_avals, jaxpr.sources
    return Jaxpr(jaxpr.in_avals, jaxpr.consts, equations, outs, out_avals, sources)


def _without_rules(app: Application) -> Application:
    """The equation, of which other functions than rules remain."""
    primitive, params = app.primitive, app.params
    if primitive.computes is not None:
        called = _same(without_rules(params[primitive.computes]))
        return plain_call_p.application(app.avals, {"jaxpr": called})
    new = {name: _inside(value) for name, value in params.items()}
    if all([new[name] is value for name, value in params.items()]):
        return app
    return primitive.application(app.avals, new)


def _inside(value: Any) -> Any:
    """A parameter with other programs in it; itself if these stay as they are."""
    if type(value) is Jaxpr:
        plain = without_rules(value)
        return value if plain is value else _same(plain)
    if type(value) is tuple:
        inside = tuple([_inside(v) for v in value])
        return value if all([a is b for a, b in zip(inside, value, strict=True)]) else inside
    return value


def _same(jaxpr: Jaxpr) -> Jaxpr:
    """An equal program of the same lines that was called before: equal calls have one."""
    if has_arrays(jaxpr) or holds_functions(jaxpr):
        return jaxpr
    key = tracing_key(), content_of(jaxpr), jaxpr.sources
    same = _SAME.get_or_make(key, lambda: _with(jaxpr, jaxpr.equations))
    same.cache[IS_SHARED] = True
    return same
