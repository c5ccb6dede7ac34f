"""eval_shape: shapes and dtypes of a result, without computing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.programs.jit import places_results
from tracebridge._api.programs.make_jaxpr import trace_to_jaxpr
from tracebridge.core.aot.abstract import avals_of
from tracebridge.core.config.state import axis_env
from tracebridge.core.config.values import tracing_key
from tracebridge.core.control.calls.traced_call import Arguments
from tracebridge.core.control.jit.contents import shapes_with_contents
from tracebridge.core.control.refs.cells import Captures
from tracebridge.core.control.refs.ref import has_refs
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.float0 import is_float0
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct, struct_of
from tracebridge.core.ir.user_type import is_mutable
from tracebridge.core.runtime.calls.fastpath import has_statics
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.caching import WeakIdCache

# Structures and leaves of results.
_KNOWN: WeakIdCache[tuple[Any, list[Any]]] = WeakIdCache("shapes of results", per_function=32)


@api_boundary
def eval_shape(fun: Callable[..., object], *args: object, **kwargs: object) -> Any:
    """Shapes and dtypes of the result of ``fun``, without computing it.

    Args:
        fun: function of arrays and trees of arrays.
        *args: arguments, or objects with ``shape`` and ``dtype`` in their place.
        **kwargs: keyword arguments, likewise.

    Static arguments of a jitted function are given as in its calls. ``fun`` is traced once for
    arguments of the same structure, shapes and dtypes.

    Returns:
        A tree like the result of ``fun`` with ``ShapeDtypeStruct`` as leaves; ``fun`` itself may
        return some, and they stay what they are. If ``fun`` is a jitted function, they have the
        shardings of its option ``out_shardings``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> tb.eval_shape(lambda x, y: x @ y, tnp.ones((2, 3)), tnp.ones((3, 4)))
    ShapeDtypeStruct(shape=(2, 4), dtype=float32)
    """
    check_callable("eval_shape", fun)
    if has_statics(fun) or places_results(fun):
        # It knows which arguments these are, and where its results go.
        return fun.eval_shape(*args, **kwargs)  # type: ignore[attr-defined]  # jit makes it
    leaves, structure = flatten((args, kwargs))
    if any(map(is_mutable, leaves)):
        return shapes_with_contents(eval_shape, fun, leaves, structure)
    structs: dict[int, ShapeDtypeStruct] = {}
    call = Arguments(
        _without_structs(fun, structs), leaves, structure, parameters=parameter_names(fun)
    )
    captures = Captures()
    key = None if has_refs(leaves) else _key(fun, call)
    known = None if key is None else _KNOWN.get(fun, key)
    if known is not None:
        return known[0].unflatten(known[1])
    jaxpr, tree = trace_to_jaxpr("eval_shape", fun, call, locate=False, captures=captures)
    result = tree.unflatten([struct_of(a) for a in jaxpr.out_avals[: tree.num_leaves]])
    outs, full = flatten(result)
    if structs or full.num_leaves != tree.num_leaves:
        # Arrays of float0 stand in the structure of the traced result.
        outs = [ShapeDtypeStruct(x.shape, x.dtype) if is_float0(x) else x for x in outs]
        outs = [structs.get(i, x) for i, x in enumerate(outs)]
        result = full.unflatten(outs)
    if key is not None and not captures.refs:
        _KNOWN.set(fun, key, (full, outs))
    return result


def _key(fun: object, call: Arguments) -> Any:
    """What decides the result of a pure function; None if that can't be compared."""
    key = avals_of(f"eval_shape({name_of(fun)})", call), call.tree, tracing_key(), axis_env()
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _without_structs(
    fun: Callable[..., object], structs: dict[int, ShapeDtypeStruct]
) -> Callable[..., Any]:
    """``fun`` with numbers for shapes without data among its results, which go to ``structs``."""

    def run(*args: object, **kwargs: object) -> Any:
        result = fun(*args, **kwargs)
        leaves, tree = flatten(result)
        structs.update({i: x for i, x in enumerate(leaves) if isinstance(x, ShapeDtypeStruct)})
        return tree.unflatten([0 if i in structs else x for i, x in enumerate(leaves)])

    return run
