"""make_jaxpr: the traced program of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.core.ir.pretty as _pretty  # pyright: ignore[reportUnusedImport]  # noqa: F401 - printing Jaxprs begins here
from tracebridge._api.args.abstracted_axes import AbstractedAxes
from tracebridge._api.args.argnums import check_callable, resolve
from tracebridge._api.args.statics import Splitter
from tracebridge._api.args.wraps import named_like
from tracebridge.core.aot.abstract import avals_of
from tracebridge.core.config.state import enter_scope, leave_scope, with_axes
from tracebridge.core.control.calls.traced_call import Arguments, argument_names, result_names
from tracebridge.core.control.refs.cells import Captures
from tracebridge.core.control.refs.ref import has_refs, hide_refs
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import DebugInfo, name_of, where_is
from tracebridge.core.ir.flat_fun import FlatFun
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr
from tracebridge.core.ir.shape_struct import struct_of
from tracebridge.core.tree.tree import PyTreeDef


def make_jaxpr(
    fun: Callable[..., object],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
    abstracted_axes: object = None,
) -> Callable[..., Any]:
    """A function that traces ``fun`` and gives its Jaxpr.

    Args:
        fun: function of arrays and trees of arrays.
        static_argnums: positions of arguments that are compile-time constants.
        axis_env: pairs of axis name and size that ``fun`` may use in collectives.
        return_shape: also give the tree of ``ShapeDtypeStruct`` of the result.
        abstracted_axes: axes whose sizes are names, as in ``jit``; the Jaxpr has the names.

    Returns:
        A function that takes the arguments of ``fun``, or ``ShapeDtypeStruct`` in their place,
        and gives a ``ClosedJaxpr``, with ``return_shape`` a pair of it and the result's shapes.

    >>> import tracebridge as tb
    >>> tb.make_jaxpr(lambda x: tb.lax.sin(x))(1.0)
    { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
    >>> tb.make_jaxpr(tb.lax.sin, abstracted_axes=("n",))(tb.lax.iota("float32", 3))
    { lambda ; a:f32[n]. let b:f32[n] = sin a in (b,) }
    """
    check_callable("make_jaxpr", fun)
    nums, names = resolve("make_jaxpr", fun, "static", static_argnums, None)
    splitter = Splitter("make_jaxpr", fun, nums, names)
    axes = None if abstracted_axes is None else AbstractedAxes("make_jaxpr", abstracted_axes)

    @named_like(fun)
    def make_jaxpr_f(*args: object, **kwargs: object) -> Any:
        scope = enter_scope(with_axes, axis_env) if axis_env else None
        try:
            call = splitter.arguments(args, kwargs)
            jaxpr, tree = trace_to_jaxpr("make_jaxpr", fun, call, axes=axes, captures=Captures())
        finally:
            if scope is not None:
                leave_scope(scope)
        closed = ClosedJaxpr(jaxpr)
        if not return_shape:
            return closed
        return closed, tree.unflatten([struct_of(a) for a in jaxpr.out_avals[: tree.num_leaves]])

    name = name_of(fun)
    make_jaxpr_f.__name__ = f"make_jaxpr({name})"
    make_jaxpr_f.__qualname__ = f"make_jaxpr({getattr(fun, '__qualname__', name)})"
    make_jaxpr_f.__module__ = __name__.partition(".")[0]
    return api_boundary(make_jaxpr_f)


def trace_to_jaxpr(
    call: str,
    fun: Callable[..., object],
    args: Arguments,
    *,
    locate: bool | None = None,
    axes: AbstractedAxes | None = None,
    captures: Captures | None = None,
) -> tuple[Jaxpr, PyTreeDef]:
    """The Jaxpr of a call of ``fun`` at arguments or stand-ins, and the result's structure.

    With ``captures`` the contents of mutable references are further inputs and results.
    """
    name = name_of(fun)
    if captures is not None and has_refs(args.leaves):
        args.leaves, args.tree = hide_refs(args.leaves, args.tree)
    avals = avals_of(f"{call}({name})", args)
    if axes is not None:
        avals, _ = axes(name, args, avals)
    flat_fun = FlatFun(args.fun, args.tree, name)
    trees: list[PyTreeDef] = []

    def flat(*xs: object) -> list[Any]:
        outs, out_tree = flat_fun.call(*xs)
        trees.append(out_tree)
        return outs

    names = functools.partial(argument_names, args.tree, args.parameters)
    debug = DebugInfo(name, where_is(fun), names)
    jaxpr = stage(flat, avals, debug, locate=locate, captures=captures)
    debug.name_results(functools.partial(result_names, trees[0]))
    return jaxpr, trees[0]
