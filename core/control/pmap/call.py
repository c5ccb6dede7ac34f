"""The callable of pmap: traces and compiles at the first call, then runs the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from tracebridge.core.config.state import settled_state
from tracebridge.core.config.values import fast_path_allowed, option, tracing_key
from tracebridge.core.control.calls.entry import CallEntry
from tracebridge.core.control.calls.traced_call import (
    Arguments,
    TracedCall,
    argument_names,
    trace_call,
)
from tracebridge.core.control.pmap.jaxprs import axis_scope
from tracebridge.core.control.pmap.primitive import pmap_p
from tracebridge.core.control.pmap.program import check_device_count, compile_pmap
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.shown import shown
from tracebridge.core.ir.aval import ShapedArray, element_aval
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.float0 import is_float0
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.signature import signature
from tracebridge.core.runtime.arrays.transfer import move, put_host
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.runtime.calls.fastpath import (
    MAX_ENTRIES,
    CallCache,
    KeyFunctions,
    make_cached_call,
    make_keyed_call,
)
from tracebridge.core.runtime.programs.spmd import SpmdProgram
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.runtime.arrays.placement import MeshPlacement


@final
class PmapOptions:
    """Resolved arguments of ``pmap``.

    ``resolve(args, kwargs)`` binds static arguments; ``input_axes(call, avals, n_args)`` gives the
    mapped axis of each leaf and the size; ``output_axes(tree, avals)`` the axis of each result.
    ``unmapped(args, kwargs)`` computes the call step by step, for ``disable_jit``.
    """

    __slots__ = ("axis_name", "backend", "devices", "input_axes", "output_axes", "resolve",
                 "unmapped")  # fmt: skip

    def __init__(
        self,
        axis_name: Any,
        devices: tuple[Any, ...] | None,
        backend: str | None,
        resolve: Callable[[tuple[Any, ...], dict[str, Any]], Arguments],
        input_axes: Callable[[Arguments, Sequence[Any], int], tuple[tuple[int | None, ...], int]],
        output_axes: Callable[[Any, Sequence[Any]], tuple[int | None, ...]],
        unmapped: Callable[..., Any],
    ) -> None:
        self.axis_name = axis_name
        self.devices = devices
        self.backend = backend
        self.resolve = resolve
        self.input_axes = input_axes
        self.output_axes = output_axes
        self.unmapped = unmapped


@final
class Mapped:
    """A call traced: the parameters of its equation, closed-over values, structure of results."""

    __slots__ = ("hoisted", "out_tree", "params")

    def __init__(self, params: Params, traced: TracedCall) -> None:
        self.params = params
        self.hoisted = traced.hoisted
        self.out_tree = traced.out_tree


@final
class Pmapped:
    """What one ``pmap(fun)`` remembers; the callable is made by ``make_pmap``."""

    __slots__ = ("cache", "fun", "name", "options", "parameters", "runs")

    def __init__(self, fun: Any, options: PmapOptions) -> None:
        self.fun = fun
        self.name = name_of(fun)
        self.options = options
        self.parameters = parameter_names(fun)
        self.cache = CallCache()
        self.runs: BoundedCache[CallEntry] = BoundedCache(f"maps of {self.name}", MAX_ENTRIES)

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Everything that the fast path does not do."""
        if option("disable_jit"):
            return self.options.unmapped(*args, **kwargs)
        call = self.options.resolve(args, kwargs)
        avals = self.leaf_avals(call)
        current = settled_state()
        if (current is not None and current.trace is not None) or any(
            [isinstance(leaf, Tracer) for leaf in call.leaves]
        ):
            return self.bind(call, self.trace(call, avals, len(args)))
        entry = self.entry(call, avals, len(args))
        if entry is None:
            return self.bind(call, self.trace(call, avals, len(args)))
        placement = cast("MeshPlacement", entry.program.placement)
        arrays = _arrays(call.leaves, avals, placement.in_shardings)
        out = entry.call(arrays)
        if current is None and fast_path_allowed():
            self.remember(kwargs, call, entry)
        return out

    def leaf_avals(self, call: Arguments) -> list[ShapedArray]:
        """The avals of the arguments; ndarrays are not moved to a device for it."""
        avals: list[ShapedArray] = []
        for i, leaf in enumerate(call.leaves):
            if type(leaf) is np.ndarray and leaf.dtype.kind in "biufc":
                avals.append(ShapedArray(leaf.shape, canonicalize(leaf.dtype), False))
                continue
            try:
                if is_float0(leaf):
                    raise UnsupportedDtypeError("float0 arrays have no elements to map")
                avals.append(as_value(leaf).aval)
            except UnsupportedDtypeError as error:
                name = argument_names(call.tree, call.parameters)[i]
                msg = (
                    f"pmap({self.name}): argument {name} is {shown(leaf)} of type "
                    f"{type(leaf).__name__}; expected arrays, numbers, and trees of them"
                )
                raise UnsupportedDtypeError(
                    msg, hint=way_out_of(leaf, "name constants in static_broadcasted_argnums")
                ) from error
        return avals

    def trace(self, call: Arguments, avals: Sequence[ShapedArray], n_args: int) -> Mapped:
        """Trace the function of one element."""
        options = self.options
        axes, size = options.input_axes(call, avals, n_args)
        params: Params = {
            "jaxpr": None,
            "axis_name": options.axis_name,
            "axis_size": size,
            "in_axes": axes,
            "out_axes": (),
            "devices": options.devices,
            "backend": options.backend,
            "name": self.name,
            "donated": call.donated,
        }
        check_device_count(params)
        elements = tuple([element_aval(a, d) for a, d in zip(avals, axes, strict=True)])
        with axis_scope(params):
            traced = trace_call(self.fun, call, elements, self.fun, parts=True, role="pmap")
        params["jaxpr"] = traced.jaxpr
        params["in_axes"] = (*[None] * len(traced.hoisted), *axes)
        params["out_axes"] = options.output_axes(traced.out_tree, traced.jaxpr.out_avals)
        return Mapped(params, traced)

    def bind(self, call: Arguments, mapped: Mapped) -> Any:
        """Under a trace: one equation."""
        values = [as_value(leaf) for leaf in call.leaves]
        n = len(mapped.hoisted)
        params = {**mapped.params, "donated": tuple([i + n for i in call.donated])}
        return mapped.out_tree.unflatten(pmap_p.bind(*mapped.hoisted, *values, **params))

    def entry(self, call: Arguments, avals: Sequence[ShapedArray], n_args: int) -> CallEntry | None:
        """The executable for these arguments; None if the function closes over tracers."""
        sigs: tuple[Any, ...] = tuple([getattr(leaf, "_sig", None) for leaf in call.leaves])
        key = (call.tree, call.static_key, tuple(avals), sigs, tracing_key())
        cached = self.runs.get(key)
        if cached is not None:
            return cached
        mapped = self.trace(call, avals, n_args)
        if any([isinstance(h, Tracer) for h in mapped.hoisted]):
            return None
        n = len(mapped.hoisted)
        # Memory of others is not given away; numbers and ndarrays get memory of their own.
        ours = tuple([i for i in call.donated if sigs[i] is None or not sigs[i].borrowed])
        program = compile_pmap(mapped.params, tuple([i + n for i in ours]))
        close_program(program, [to_array(h) for h in mapped.hoisted])
        places = program.placement.in_shardings
        all_sigs = [
            signature(a, place, True) if s is None else s
            for a, s, place in zip(avals, sigs, places, strict=True)
        ]
        cached = CallEntry(self.name, program, mapped.out_tree, True, call.donated, all_sigs)
        self.runs.set(key, cached)
        return cached

    def clear(self) -> None:
        """Forget executables."""
        self.cache.clear()
        self.runs.clear()

    def remember(self, kwargs: dict[str, Any], call: Arguments, entry: CallEntry) -> None:
        """Put a signature on the fast path."""
        cache = self.cache
        if any([type(x) is not Array for x in call.leaves]):
            return
        if len(cache) >= MAX_ENTRIES:
            cache.clear()
        sigs = [x._sig for x in call.leaves]
        run = entry.run(star=True)
        if kwargs or call.static_key:
            cache.keyed_trees[(call.tree, call.static_key), *sigs] = run
        else:
            # The structure of the positional arguments alone.
            cache.trees[call.tree.children()[0], *sigs] = run


def close_program(program: SpmdProgram, hoisted: Sequence[Array]) -> None:
    """Bind leading arguments, which the function closed over."""
    n = len(hoisted)
    places = program.placement.in_shardings
    here = [move(a, s, committed=True) for a, s in zip(hoisted, places, strict=False)]
    program.constants = [*program.constants, *[here[i]._buf for i in program.kept if i < n]]
    program.kept = tuple([i - n for i in program.kept if i >= n])
    program.placement = program.placement.without_first(n)


def _arrays(
    leaves: Sequence[Any], avals: Sequence[ShapedArray], places: Sequence[Any]
) -> list[Array]:
    """The arguments as arrays; ndarrays go straight to the devices where they are needed."""
    arrays: list[Array] = []
    for leaf, aval, place in zip(leaves, avals, places, strict=True):
        if type(leaf) is np.ndarray:
            arrays.append(put_host(leaf.astype(aval.dtype, copy=False), place))
        elif hasattr(leaf, "_sig"):
            arrays.append(leaf)
        else:
            arrays.append(move(to_array(as_value(leaf)), place, committed=True))
    return arrays


def make_pmap(
    fun: object, options: PmapOptions, keys: KeyFunctions | None = None
) -> tuple[Callable[..., Any], Pmapped]:
    """The mapped form of ``fun`` and its state; ``keys`` as in ``make_jit``."""
    pmapped = Pmapped(fun, options)
    if keys is not None:
        return make_keyed_call(pmapped.miss, pmapped.cache, pmapped.name, keys), pmapped
    return make_cached_call(pmapped.miss, pmapped.cache, pmapped.name), pmapped
