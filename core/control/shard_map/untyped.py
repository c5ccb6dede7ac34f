"""Programs of blocks without what types say of axes: as they are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.collectives.casts import pcast_p
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import NOWHERE
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.traverse import applications
from tracebridge.core.ir.values import Literal

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application


def untyped(jaxpr: Jaxpr) -> Jaxpr:
    """``jaxpr`` without axes in its types, and without the equations that only change these.

    Compiled programs, and the faster forms that are looked up for them, are those of values
    anywhere else.
    """
    cached = jaxpr.cache.get("untyped")
    if cached is None:
        cached = ()
        if _is_typed(jaxpr):
            avals = [a.with_vma(NOWHERE) for a in jaxpr.in_avals]
            cached = (stage(lambda *xs: _run(jaxpr, xs), avals, jaxpr.debug, locate=False),)
        jaxpr.cache["untyped"] = cached
    return cached[0] if cached else jaxpr


def _is_typed(jaxpr: Jaxpr) -> bool:
    values = [a.vma for app in applications(jaxpr) for a in (*app.avals, *app.outs)]
    return any([*values, *[a.vma for a in (*jaxpr.in_avals, *jaxpr.out_avals)]])


def _run(jaxpr: Jaxpr, args: Sequence[Any]) -> list[Any]:
    staging = current_trace().process

    def process(app: Application, values: Any) -> Any:
        values = [_plain(v) for v in values]
        if app.primitive is pcast_p:
            return values[0]
        avals = tuple([a.with_vma(NOWHERE) for a in app.avals])
        params = {name: _mapped(value) for name, value in app.params.items()}
        return staging(app.primitive.application(avals, params), values)

    return [_plain(v) for v in eval_jaxpr(jaxpr, process, args)]


def _plain(value: Any) -> Any:
    if type(value) is Literal and value.aval.vma:
        return Literal(value.value, value.aval.with_vma(NOWHERE))
    return value


def _mapped(value: Any) -> Any:
    kind = type(value)
    if kind is Jaxpr:
        return untyped(value)
    if kind is ClosedJaxpr:
        return _mapped(value.jaxpr)
    return tuple([_mapped(v) for v in value]) if kind is tuple else value
