"""Specialization: a Jaxpr with symbolic dimensions becomes one with sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.values import literal
from tracebridge.core.lax.shape.iota import dimension_size_p
from tracebridge.core.symbolic.dims import DimExpr, is_static
from tracebridge.core.symbolic.evaluate import dims_evaluate

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application


def specialize_jaxpr(jaxpr: Jaxpr, sizes: Mapping[str, int]) -> Jaxpr:
    """``jaxpr`` with a size for each dimension variable; remembered on ``jaxpr``.

    Raises:
        KeyError: a variable has no size.
    """
    key = ("specialize", tuple(sorted(sizes.items())))
    found = jaxpr.cache.get(key)
    if found is None:
        avals = [specialize_aval(a, sizes) for a in jaxpr.in_avals]
        found = jaxpr.cache[key] = stage(_Run(jaxpr, sizes), avals, jaxpr.debug, locate=False)
    return found


def specialize_aval(aval: ShapedArray, sizes: Mapping[str, int]) -> ShapedArray:
    """``aval`` with sizes for its dimension variables."""
    if is_static(aval.shape):
        return aval
    shape = tuple([dims_evaluate(d, sizes) for d in aval.shape])
    return aval.update(shape=shape)


class _Run:
    """The program as a function, to be staged again at the sizes."""

    __slots__ = ("jaxpr", "sizes")

    def __init__(self, jaxpr: Jaxpr, sizes: Mapping[str, int]) -> None:
        self.jaxpr = jaxpr
        self.sizes = sizes

    def __call__(self, *args: object) -> list[Any]:
        jaxpr = self.jaxpr
        env: list[Any] = [*args, *jaxpr.consts]
        for app, variables in jaxpr.equations:
            result = self._apply(app, [env[i] for i in variables])
            if app.multiple:
                env.extend(result)
            else:
                env.append(result)
        return [env[i] for i in jaxpr.outs]

    def _apply(self, app: Application, args: list[Any]) -> Any:
        if app.primitive is dimension_size_p:
            size = dims_evaluate(app.params["dim"], self.sizes)
            return literal(size, app.params["dtype"], app.out.weak_type)
        params = {name: specialize_param(p, self.sizes) for name, p in app.params.items()}
        return app.primitive.bind(*args, **params)


def specialize_param(value: object, sizes: Mapping[str, int]) -> Any:
    """A parameter of an equation with sizes for the dimension variables in it."""
    if isinstance(value, DimExpr):
        return dims_evaluate(value, sizes)
    if isinstance(value, Jaxpr):
        return specialize_jaxpr(value, sizes)
    if isinstance(value, ShapedArray):
        return specialize_aval(value, sizes)
    if type(value) is tuple:
        return tuple([specialize_param(v, sizes) for v in value])
    return value
