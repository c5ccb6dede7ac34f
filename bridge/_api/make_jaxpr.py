"""make_jaxpr: the traced program of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tracebridge._api.argnums import check_callable, resolve
from tracebridge._api.statics import Splitter
from tracebridge._api.values import aval_of, name_of_leaf, short_repr
from tracebridge.core.config.scopes import reset_state, set_state, state, with_axis
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import DebugInfo, name_of, where_is
from tracebridge.core.ir.flat_fun import FlatFun
from tracebridge.core.ir.jaxpr import ClosedJaxpr, Jaxpr
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct, struct_of
from tracebridge.core.tree.tree import PyTreeDef, flatten


def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    axis_env: Sequence[tuple[Any, int]] | None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function that traces ``fun`` and gives its Jaxpr.

    Args:
        fun: function of arrays and trees of arrays.
        static_argnums: positions of arguments that are compile-time constants.
        axis_env: pairs of axis name and size that ``fun`` may use in collectives.
        return_shape: also give the tree of ``ShapeDtypeStruct`` of the result.

    Returns:
        A function that takes the arguments of ``fun``, or ``ShapeDtypeStruct`` in their place,
        and gives a ``ClosedJaxpr``, with ``return_shape`` a pair of it and the result's shapes.

    >>> import tracebridge as tb
    >>> tb.make_jaxpr(lambda x: tb.lax.sin(x))(1.0)
    { lambda ; a:f32[]. let b:f32[] = sin a in (b,) }
    """
    check_callable("make_jaxpr", fun)
    nums, names = resolve("make_jaxpr", fun, "static", static_argnums, None)
    splitter = Splitter("make_jaxpr", fun, nums, names)

    @functools.wraps(fun)
    def make_jaxpr_f(*args: Any, **kwargs: Any) -> Any:
        bound, dynamic, dynamic_kwargs, _ = splitter.split(args, kwargs)
        token = set_state(_with_axes(axis_env))
        try:
            jaxpr, tree = trace_to_jaxpr("make_jaxpr", bound, fun, dynamic, dynamic_kwargs)
        finally:
            reset_state(token)
        closed = ClosedJaxpr(jaxpr)
        if not return_shape:
            return closed
        return closed, tree.unflatten([struct_of(a) for a in jaxpr.out_avals])

    return api_boundary(make_jaxpr_f)


def _with_axes(axis_env: Sequence[tuple[Any, int]] | None) -> Any:
    current = state()
    for name, size in axis_env or ():
        current = with_axis(current, name, size)
    return current


def trace_to_jaxpr(
    call: str,
    fun: Any,
    named: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    locate: bool | None = None,
) -> tuple[Jaxpr, PyTreeDef]:
    """The Jaxpr of ``fun`` at arguments or stand-ins for them, and the result's structure.

    ``named`` is the user's function that ``fun`` was made of, for messages.
    """
    leaves, tree = flatten((args, kwargs))
    name = name_of(named)
    avals = avals_of(f"{call}({name})", leaves, tree)
    flat_fun = FlatFun(fun, tree, name)
    trees: list[PyTreeDef] = []

    def flat(*xs: Any) -> list[Any]:
        outs, out_tree = flat_fun.call(*xs)
        trees.append(out_tree)
        return outs

    debug = DebugInfo(name, where_is(named))
    jaxpr = stage(flat, avals, debug, locate=locate)
    return jaxpr, trees[0]


def avals_of(call: str, leaves: Sequence[Any], tree: PyTreeDef) -> list[ShapedArray]:
    """The avals of flat arguments ``(args, kwargs)``; names the one that is no array."""
    avals: list[ShapedArray] = []
    for i, leaf in enumerate(leaves):
        if type(leaf) is ShapeDtypeStruct:
            avals.append(leaf.to_aval())
            continue
        try:
            avals.append(aval_of(leaf))
        except UnsupportedDtypeError as error:
            msg = (
                f"{call}: {argument_name(tree, i)} is {short_repr(leaf)} of type "
                f"{type(leaf).__name__}; expected arrays, numbers, and trees of them"
            )
            raise UnsupportedDtypeError(
                msg, hint="mark it static (static_argnums) if it is a constant"
            ) from error
    return avals


def argument_name(tree: PyTreeDef, index: int) -> str:
    """The name of leaf ``index`` of ``(args, kwargs)``: ``args[0]['w']``, ``kwargs['x']``."""
    path = name_of_leaf(tree, index, "")
    return ("args" if path.startswith("[0]") else "kwargs") + path[3:]
