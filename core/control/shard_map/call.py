"""The callable of shard_map: traces the function of blocks, and binds the primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

from tracebridge.core.config.state import axis_env
from tracebridge.core.config.values import tracing_key
from tracebridge.core.control.calls.traced_call import (
    Arguments,
    TracedCall,
    argument_names,
    leaf_values,
    trace_call,
)
from tracebridge.core.control.refs.calls import RefCall, ref_arguments
from tracebridge.core.control.refs.ref import has_refs
from tracebridge.core.control.shard_map.check import check_effects_in_body, check_results
from tracebridge.core.control.shard_map.places import Place
from tracebridge.core.control.shard_map.primitive import shard_map_p
from tracebridge.core.control.shard_map.rules import axes_scope, mesh_inside, spread
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.interpreters.known import needed_equations
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.trace import current_trace, is_eager, use_trace
from tracebridge.core.ir.tracer import known_value
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

    __slots__ = ("asking", "cache", "check", "fun", "name", "specs")

    def __init__(self, fun: Callable[..., Any], name: str, specs: Specs, *, check: bool) -> None:
        self.fun = fun
        self.name = name
        self.specs = specs
        self.check = check
        self.cache: BoundedCache[tuple[Params, TracedCall]] = BoundedCache(
            f"shard_maps of {name}", MAX_ENTRIES
        )
        # Calls whose Python code looks at numbers: they are traced each time.
        self.asking: BoundedCache[bool] = BoundedCache(f"questions of {name}", MAX_ENTRIES)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results, or under a trace one equation."""
        call = self.specs.arguments(args, kwargs)
        names_of = argument_names(call.tree, call.parameters) if has_refs(call.leaves) else ()
        passed = ref_arguments(call, self.specs.call, names_of) if names_of else []
        values = leaf_values(call, self.name, self.specs.call)
        mesh, names = self.specs.axes()
        ins = self.specs.in_places(call, values, mesh, names)
        avals = tuple([v.aval for v in values])
        key = (
            call.tree, call.static_key, call.refs, avals, ins, mesh, names,
            tracing_key(), axis_env(),
        )  # fmt: skip
        found = self.cache.get(key)
        if found is None:
            found = self._found(key, call, values, ins, mesh, names)
        params, traced = found
        refs = RefCall(self.specs.call, traced.refs, passed)
        outs = shard_map_p.bind(*traced.hoisted, *values, *refs.contents(), **params)
        return traced.out_tree.unflatten(refs.write_back(outs))

    def _found(
        self,
        key: Any,
        call: Arguments,
        values: Sequence[Any],
        ins: tuple[Place, ...],
        mesh: Mesh,
        names: tuple[Any, ...],
    ) -> tuple[Params, TracedCall]:
        """The equation at these arguments, remembered unless it holds for their numbers only."""
        known = [known_value(v) for v in values] if self.check and is_eager() else [None]
        numbers = None if None in [k if k is None else 0 for k in known] else known
        if key not in self.asking or numbers is None:
            try:
                found = self.traced(call, values, ins, mesh, names)
            except ConcretizationTypeError:
                if numbers is None:
                    raise
                self.asking.set(key, True)
            else:
                uses = found[1].refs
                if not found[1].has_tracers() and (uses is None or not uses.captured):
                    self.cache.set(key, found)
                return found
        return self.traced(call, values, ins, mesh, names, numbers)

    def traced(
        self,
        call: Arguments,
        values: Sequence[Any],
        ins: tuple[Place, ...],
        mesh: Mesh,
        names: tuple[Any, ...],
        numbers: Sequence[Any] | None = None,
    ) -> tuple[Params, TracedCall]:
        """The parameters of the equation for these arguments, and the function of blocks.

        Python code in the function may look at ``numbers``, the arrays of the arguments.
        """
        typed = names if self.check else ()
        params: Params = {"jaxpr": None, "mesh": mesh, "names": names, "name": self.name}
        params["typed"] = typed
        sizes = mesh.shape
        inside = mesh_inside(params)
        pairs = zip(values, ins, strict=True)
        blocks = tuple([p.part(v.aval, sizes, inside, typed) for v, p in pairs])
        known: Any = None if numbers is None else SharedNumbers(params, ins, numbers)
        with axes_scope(params):
            traced = trace_call(
                self.fun,
                call,
                blocks,
                self.fun,
                refs=True,
                known=known,
                parts=True,
                role="shard_map",
            )
        jaxpr, tree = traced.jaxpr, traced.out_tree
        check_effects_in_body(self.specs.call, jaxpr, mesh.size)
        all_ins, outs = self._places(traced, ins, mesh, names)
        if self.check:
            n = tree.num_leaves

            def name_of(index: int) -> str:
                if index >= n:
                    return "the content that a reference gets"
                return self.specs.name_of_result(tree, index)

            check_results(self.specs.call, jaxpr, names, all_ins, outs, name_of)
        params["jaxpr"] = spread(jaxpr, outs, typed)
        params["in_places"] = all_ins
        params["out_places"] = outs
        return params, traced

    def _places(
        self, traced: TracedCall, ins: tuple[Place, ...], mesh: Mesh, names: tuple[Any, ...]
    ) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
        """Those of arguments and results, with what is closed over and contents of references."""
        jaxpr, tree, uses = traced.jaxpr, traced.out_tree, traced.refs
        first, n = len(traced.hoisted), tree.num_leaves
        whole = [Place(((),) * a.ndim) for a in jaxpr.in_avals]
        all_ins = (*whole[:first], *ins, *whole[first + len(ins) :])
        outs = self.specs.out_places(tree, jaxpr.out_avals[:n], mesh, names)
        if uses is None:
            return all_ins, outs
        written = [i for i, w in zip(uses.arguments, uses.written, strict=False) if w]
        passed = [ins[i] for i in written]
        rest = [Place(((),) * a.ndim) for a in jaxpr.out_avals[n + len(passed) :]]
        return all_ins, (*outs, *passed, *rest)


@final
class SharedNumbers:
    """Numbers that all devices share, for Python code in a function of blocks that is called.

    Stands for the known arrays of a trace (interpreters/staging.py).
    """

    __slots__ = ("_arrays", "_ins", "_params")

    def __init__(self, params: Params, ins: tuple[Place, ...], arrays: Sequence[Any]) -> None:
        self._params = params
        self._ins = ins
        self._arrays = arrays

    def number_of(self, tracer: Any, equations: Sequence[tuple[Any, ...]]) -> Any:
        """The array that ``tracer`` stands for; None if it varies, or needs an effect."""
        if tracer.aval.vma:
            return None
        kept = needed_equations(tracer, equations)
        if kept is None:
            return None
        trace, params = tracer._trace, self._params
        hoisted: list[Any] = []

        def run(*blocks: Any) -> list[Any]:
            process = current_trace().process
            values: dict[int, Any] = {}

            def value_of(a: Any) -> Any:
                if a._trace is not trace:
                    return a
                return blocks[a.source] if isinstance(a.source, int) else values[id(a)]

            for app, args, outs, _ in kept:
                result = process(app, [value_of(a) for a in args])
                if app.multiple:
                    values.update(zip(map(id, outs), result, strict=True))
                else:
                    values[id(outs)] = result
            return [value_of(tracer)]

        sizes, inside = params["mesh"].shape, mesh_inside(params)
        pairs = zip(self._arrays, self._ins, strict=True)
        avals = [p.part(a.aval, sizes, inside, params["typed"]) for a, p in pairs]
        with use_trace(None):
            jaxpr = stage(run, avals, hoisted=hoisted, locate=False)
            whole = [Place(((),) * h.aval.ndim) for h in hoisted]
            outs = (Place(((),) * tracer.aval.ndim),)
            given = {**params, "jaxpr": jaxpr, "in_places": (*whole, *self._ins)}
            return shard_map_p.bind(*hoisted, *self._arrays, **{**given, "out_places": outs})[0]
