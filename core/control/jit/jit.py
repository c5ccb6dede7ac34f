"""jit: trace once, compile once, then call the executable.

``make_jit`` gives the Python callable. Under a trace a call becomes one ``jit`` equation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast, final

from tracebridge.core.config.state import settled_state
from tracebridge.core.config.values import option, tracing_key
from tracebridge.core.control.calls.cache_info import Counts
from tracebridge.core.control.calls.closed_call import CallPrimitive
from tracebridge.core.control.calls.compiler_options import check_outermost
from tracebridge.core.control.calls.entry import CallEntry
from tracebridge.core.control.calls.explain import Names, why_again, why_first
from tracebridge.core.control.calls.traced_call import (
    Arguments,
    TracedCall,
    argument_names,
    forget_traces,
    leaf_values,
    logger,
    trace_call,
    why_traced,
)
from tracebridge.core.control.jit.rerun import explained
from tracebridge.core.control.refs.calls import RefCall, ref_arguments
from tracebridge.core.control.refs.cells import is_differentiated, note_custom
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.higher_order import is_high_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.name_stack import NAME_SCOPES, attributes_only, in_use
from tracebridge.core.ir.trace import current_trace, is_eager
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.lax.sharding_constraint import constrained_to
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.placement import Wishes, choose_placement
from tracebridge.core.runtime.arrays.result_memories import wishes_of_results
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.runtime.calls.fastpath import (
    MAX_ENTRIES,
)
from tracebridge.core.runtime.programs.compile import compile_jaxpr, release
from tracebridge.core.runtime.programs.debug import wants_checks
from tracebridge.core.runtime.programs.donation import owned
from tracebridge.core.runtime.programs.key_watch import watches_keys
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import LoweringContext


@final
class Jit(CallPrimitive):
    """A compiled function: params ``jaxpr, name, donated, inline``, ``compiler_options`` if any."""

    name = "jit"

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        """A function of the module, which XLA compiles with the options of the outermost jit."""
        check_outermost(params["name"], params.get("compiler_options"))
        return super().lower(ctx, *operands, **params)

    def with_jaxpr(self, params: Params, jaxpr: Jaxpr, suffix: str) -> dict[str, Any]:
        name = f"{suffix}({params['name']})" if suffix in ("jvp", "vmap", "transpose") else None
        changed = {**params, "jaxpr": jaxpr, "donated": ()}
        return changed if name is None else {**changed, "name": name}


jit_p = Jit()


@final
class JitOptions:
    """Resolved arguments of ``jit``. Positions and names are sorted tuples."""

    __slots__ = (
        "abstracted_axes",
        "compiler_options",
        "donate_argnames",
        "donate_argnums",
        "inline",
        "keep_unused",
        "placement",
        "shardings",
        "static_argnames",
        "static_argnums",
    )

    def __init__(
        self,
        static_argnums: tuple[int, ...] = (),
        static_argnames: tuple[str, ...] = (),
        donate_argnums: tuple[int, ...] = (),
        donate_argnames: tuple[str, ...] = (),
        keep_unused: bool = False,
        inline: bool = False,
        placement: Any = None,
        compiler_options: tuple[tuple[str, Any], ...] = (),
        shardings: Any = None,
        abstracted_axes: Any = None,
    ) -> None:
        self.static_argnums = static_argnums
        self.static_argnames = static_argnames
        self.donate_argnums = donate_argnums
        self.donate_argnames = donate_argnames
        self.keep_unused = keep_unused
        self.inline = inline
        # Callable that gives the placement of option ``device`` or ``backend``, or None.
        self.placement = placement
        # XLA flags by name.
        self.compiler_options = compiler_options
        # Checks of arguments and results against option ``in_shardings`` and ``out_shardings``:
        # has ``check_inputs(name, call, signatures)``, ``check_outputs(name, tree)``,
        # ``places_of_results(name, tree)``, and ``wishes`` that give what they say about a mesh;
        # or None.
        self.shardings = shardings
        # Function (name, call, avals) to the avals with named sizes and the sizes, or None.
        self.abstracted_axes = abstracted_axes


class JitPrograms:
    """The traces and programs of one ``jit(fun)``; ``Jitted`` adds how its calls find them."""

    __slots__ = (
        "captures",
        "counts",
        "fun",
        "high",
        "name",
        "options",
        "parameters",
        "resolve",
        "runs",
    )

    def __init__(
        self,
        fun: Any,
        options: JitOptions,
        resolve: Callable[[Any, tuple[Any, ...], dict[str, Any]], Arguments],
    ) -> None:
        self.fun = fun
        self.name = name_of(fun)
        self.options = options
        self.parameters = parameter_names(fun)
        self.resolve = resolve
        # Whether the function was seen to close over mutable references.
        self.captures = False
        # Whether types of users were seen inside.
        self.high = False
        self.runs: BoundedCache[Any] = BoundedCache(f"calls of {self.name}", MAX_ENTRIES)
        self.counts = Counts()

    def trace(
        self,
        call: Arguments,
        avals: tuple[Any, ...],
        sigs: Sequence[Any] = (),
        *,
        refs: bool = False,
    ) -> TracedCall:
        """The function traced for these arguments, with the checks that options ask for."""
        options = self.options
        if options.shardings is not None:
            options.shardings.check_inputs(self.name, call, sigs)
        sizes = None
        if options.abstracted_axes is not None:
            avals, sizes = options.abstracted_axes(self.name, call, avals)
        nums = options.static_argnums
        # The program is used wherever the function is called: scopes are those inside of it.
        names = NAME_SCOPES.enter(attributes_only) if in_use[0] else None
        try:
            traced = trace_call(
                self.fun,
                call,
                avals,
                self.fun,
                refs=refs,
                static_nums=nums,
                counts=self.counts,
                again=not is_eager(),
            )
        finally:
            if names is not None:
                NAME_SCOPES.leave(names)
        if options.shardings is not None:
            options.shardings.check_outputs(self.name, traced.out_tree)
        return traced.at_sizes(sizes) if sizes else traced

    def wishes(
        self, call: Arguments, traced: TracedCall, avals: Sequence[Any], sigs: Sequence[Any] = ()
    ) -> Wishes | None:
        """What the options, or else the function, say about a mesh, if they do."""
        return self.option_wishes(call, traced, avals, sigs) or wishes_of_results(
            traced.whole, sigs
        )

    def option_wishes(
        self, call: Arguments, traced: TracedCall, avals: Sequence[Any], sigs: Sequence[Any] = ()
    ) -> Wishes | None:
        """What ``in_shardings`` and ``out_shardings`` say about a mesh, if they do."""
        shardings, outs = self.options.shardings, traced.whole.out_avals
        if shardings is None:
            return None
        return shardings.wishes(self.name, call, avals, sigs, traced.out_tree, outs)

    def bind(self, call: Arguments, values: list[Any]) -> Any:
        """Under a trace: one equation (or its equations, with ``inline``)."""
        traced = self.trace(call, tuple([v.aval for v in values]), refs=True)
        if traced.refs is not None:
            return self.call_with_refs(call)
        if self.options.shardings is not None:
            wishes = self.option_wishes(call, traced, [v.aval for v in values])
            if wishes is not None:
                given = constrained_to(values, wishes.ins)
                outs = constrained_to(self.equation(call, traced, given), wishes.outs)
                return traced.out_tree.unflatten(outs)
        return traced.out_tree.unflatten(self.equation(call, traced, values))

    def equation(self, call: Arguments, traced: TracedCall, values: list[Any]) -> list[Any]:
        """Flat results of one equation (of its equations, with ``inline``)."""
        operands = [*traced.hoisted, *values]
        if self.options.inline:
            check_outermost(self.name, self.options.compiler_options)
            return eval_jaxpr(traced.jaxpr, current_trace().process, operands)
        if wants_checks():
            run = functools.partial(self.one_equation, call, traced, operands)
            return explained(run, call, values, traced.jaxpr.effects)
        return self.one_equation(call, traced, operands)

    def one_equation(
        self, call: Arguments, traced: TracedCall, operands: Sequence[Any]
    ) -> list[Any]:
        """Bind jit."""
        options = self.options.compiler_options
        more = {"compiler_options": options} if options else {}
        return jit_p.bind(
            *operands,
            jaxpr=traced.jaxpr,
            name=self.name,
            donated=call.donated,
            inline=False,
            **more,
        )

    def call_with_refs(self, call: Arguments) -> Any:
        """The call where references are used: their contents go in, the last ones come out."""
        label, leaves = f"jit({self.name})", call.leaves
        passed = ref_arguments(call, label, argument_names(call.tree, call.parameters))
        values = leaf_values(call, self.name)
        traced = self.trace(call, tuple([v.aval for v in values]), refs=True)
        if traced.refs is not None and traced.refs.custom:
            if is_differentiated():
                args, kwargs = call.tree.unflatten(leaves)
                return call.fun(*args, **kwargs)
            note_custom(label)
        used = RefCall(label, traced.refs, passed)
        current = settled_state()
        traces = current is not None and current.trace is not None
        if traces or any([isinstance(v, Tracer) for v in values]):
            outs = self.equation(call, traced, [*values, *used.contents()])
            return traced.out_tree.unflatten(used.write_back(outs))
        # The program writes to the memory of the contents, unless a check may refuse its results.
        contents, places = used.consumed(values)
        if not wants_checks():
            call.donated = tuple(sorted({*call.donated, *places}))
        arrays = [to_array(v) for v in contents]
        outs = cast("CallEntry", self.make_entry(call, arrays, traced)).call(arrays)
        return traced.out_tree.unflatten(used.write_back(outs, fresh=True))

    def entry(self, call: Arguments, arrays: list[Array]) -> CallEntry | None:
        """The executable for these arguments; None if the function closes over references."""
        if self.captures or self.high:
            return None
        found = self.make_entry(call, arrays, None)
        self.captures = found is None and not self.high
        return found

    def make_entry(
        self, call: Arguments, arrays: list[Array], traced_with_refs: TracedCall | None
    ) -> CallEntry | None:
        """The executable; of ``traced_with_refs``, which uses references, with flat results."""
        sigs = tuple([a._sig for a in arrays])
        donated = owned(arrays, call.donated)
        placed = None if self.options.placement is None else self.options.placement()
        key = (call.tree, call.static_key, sigs, donated, tracing_key(), placed)
        key = (*key, option("default_device"), traced_with_refs is not None, call.refs)
        cached = self.runs.get(key)
        if cached is None:
            self.note_miss(key, call.parameters, again=traced_with_refs is not None)
            traced = traced_with_refs or self.trace(
                call, tuple([s.aval for s in sigs]), sigs, refs=True
            )
            if traced_with_refs is None and traced.refs is not None:
                return None
            if is_high_jaxpr(traced.whole):
                self.high = True
                return None
            wishes = self.wishes(call, traced, [s.aval for s in sigs], sigs)
            placement, committed = choose_placement(sigs, self.name, placed, wishes)
            self.counts.compilations += 1
            program = compile_jaxpr(
                traced.whole,
                self.name,
                placement,
                keep_unused=self.options.keep_unused,
                donated=donated,
                compiler_options=self.options.compiler_options,
            )
            out_tree = (
                traced.out_tree if traced_with_refs is None else list_of(len(traced.whole.outs))
            )
            followed = traced.whole if watches_keys() else None
            cached = CallEntry(
                self.name, program, out_tree, committed, call.donated, sigs, followed
            )
            self.runs.set(key, cached)
        return cached

    def note_miss(self, key: Any, parameters: tuple[str, ...], *, again: bool) -> None:
        """Note, and say if an option asks for it, why a call has no program yet.

        ``again``: it may have been noted, before the trace found that the call uses references.
        """
        counts, seen = self.counts, self.runs.keys()
        if again and counts.missed == "compiled" and not counts.compilations:
            return
        first = None if seen else why_first(self.fun)
        counts.note("compiled", first, parameters)
        if option("explain_cache_misses"):
            why = first or self.why_compiled([*seen, key], parameters)
            logger.warning("jit(%s): %s", self.name, why)

    def why_compiled(self, keys: Sequence[Any], parameters: tuple[str, ...]) -> str:
        """How the last one of ``keys`` of programs differs from the others."""
        *seen, key = keys
        leaves, nums = argument_names(key[0], parameters), self.options.static_argnums
        return why_again(key, seen, Names(leaves, parameters, self.parameters, nums))

    def why_missed(self) -> str | None:
        """Why the function was traced or compiled the last time; None if that is forgotten."""
        counts = self.counts
        if counts.first is not None:
            return counts.first
        if counts.missed == "traced":
            return why_traced(self.fun, None, self.options.static_argnums, counts.parameters)
        keys = self.runs.keys()
        return self.why_compiled(keys, counts.parameters) if keys else None

    def clear(self) -> None:
        """Forget traces and executables."""
        keys = self.runs.keys()
        for key in keys:
            release(self.runs.get(key).program)
        self.runs.clear()
        forget_traces(self.fun)


def list_of(n: int) -> Any:
    """The structure of a list of ``n`` arrays."""
    return flatten([0] * n)[1]
