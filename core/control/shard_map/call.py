"""The callable of shard_map: traces the function of blocks, and binds the primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

from tracebridge.core.config.state import axis_env
from tracebridge.core.config.values import tracing_key
from tracebridge.core.control.calls.traced_call import (
    Arguments,
    TracedCall,
    leaf_values,
    trace_call,
)
from tracebridge.core.control.shard_map.check import check_effects_in_body, check_results
from tracebridge.core.control.shard_map.places import Place
from tracebridge.core.control.shard_map.primitive import shard_map_p
from tracebridge.core.control.shard_map.rules import axes_scope, mesh_inside, spread
from tracebridge.core.runtime.calls.fastpath import MAX_ENTRIES
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.sharding.mesh import Mesh
    from tracebridge.core.tree.tree import PyTreeDef


class Specs(Protocol):
    """The arguments of ``shard_map``, as they are understood for one call."""

    call: str

    def axes(self) -> tuple[Mesh, tuple[Any, ...]]:
        """The mesh, and those of its axes whose devices have blocks of their own."""
        ...

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The flat arguments of a call."""
        ...

    def in_places(
        self, call: Arguments, values: Sequence[Any], mesh: Mesh, names: Sequence[Any]
    ) -> tuple[Place, ...]:
        """How each argument is spread."""
        ...

    def out_places(
        self, tree: PyTreeDef, avals: Sequence[ShapedArray], mesh: Mesh, names: Sequence[Any]
    ) -> tuple[Place, ...]:
        """How each result is spread."""
        ...

    def name_of_result(self, tree: PyTreeDef, index: int) -> str:
        """What messages call a result."""
        ...


@final
class BlockCalls:
    """What one ``shard_map(f)`` remembers: equations by the types of the arguments."""

    __slots__ = ("cache", "check", "fun", "name", "specs")

    def __init__(self, fun: Callable[..., Any], name: str, specs: Specs, *, check: bool) -> None:
        self.fun = fun
        self.name = name
        self.specs = specs
        self.check = check
        self.cache: BoundedCache[tuple[Params, TracedCall]] = BoundedCache(
            f"shard_maps of {name}", MAX_ENTRIES
        )

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results, or under a trace one equation."""
        call = self.specs.arguments(args, kwargs)
        values = leaf_values(call, self.name, self.specs.call)
        mesh, names = self.specs.axes()
        ins = self.specs.in_places(call, values, mesh, names)
        avals = tuple([v.aval for v in values])
        key = (call.tree, call.static_key, avals, ins, mesh, names, tracing_key(), axis_env())
        found = self.cache.get(key)
        if found is None:
            found = self.traced(call, avals, ins, mesh, names)
            if not found[1].has_tracers():
                self.cache.set(key, found)
        params, traced = found
        return traced.out_tree.unflatten(shard_map_p.bind(*traced.hoisted, *values, **params))

    def traced(
        self,
        call: Arguments,
        avals: Sequence[ShapedArray],
        ins: tuple[Place, ...],
        mesh: Mesh,
        names: tuple[Any, ...],
    ) -> tuple[Params, TracedCall]:
        """The parameters of the equation for these arguments, and the function of blocks."""
        typed = names if self.check else ()
        params: Params = {"jaxpr": None, "mesh": mesh, "names": names, "name": self.name}
        params["typed"] = typed
        sizes = mesh.shape
        pairs = zip(avals, ins, strict=True)
        inside = mesh_inside(params)
        blocks = tuple([p.part(a, sizes, inside, typed) for a, p in pairs])
        with axes_scope(params):
            traced = trace_call(self.fun, call, blocks, self.fun, parts=True)
        jaxpr, tree = traced.jaxpr, traced.out_tree
        check_effects_in_body(self.specs.call, jaxpr)
        whole = tuple([Place(((),) * h.aval.ndim) for h in traced.hoisted])
        outs = self.specs.out_places(tree, jaxpr.out_avals, mesh, names)
        if self.check:

            def name_of(index: int) -> str:
                return self.specs.name_of_result(tree, index)

            check_results(self.specs.call, jaxpr, names, (*whole, *ins), outs, name_of)
        params["jaxpr"] = spread(jaxpr, outs, typed)
        params["in_places"] = (*whole, *ins)
        params["out_places"] = outs
        return params, traced
