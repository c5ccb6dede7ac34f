"""io_callback: a Python function with side effects as an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.callbacks.base import (
    CallbackPrimitive,
    check_sharding,
    flat_callback,
    in_sequence,
    result_types,
)
from tracebridge.core.control.callbacks.vmap_methods import is_over_devices
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import EffectError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import Effects, IOEffect, OrderedIOEffect

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value


_UNORDERED: Effects = frozenset((IOEffect(),))
_ORDERED: Effects = frozenset((OrderedIOEffect(),))


@final
class IOCallback(CallbackPrimitive):
    """``callback(*args)``, exactly once; ``ordered``: in the order of the program."""

    name = "io_callback"

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        del avals
        return _ORDERED if params["ordered"] else _UNORDERED

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        raise _no_derivative(params["callback"].name, "differentiation")

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        raise _no_derivative(params["callback"].name, "transposition")

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        of_devices = is_over_devices(ctx)
        if params["ordered"] and not of_devices:
            msg = f"{params['callback'].name}: vmap met an ordered callback that depends on a batch"
            raise EffectError(
                msg, hint="use ordered=False, or loop over the elements with lax.map or lax.scan"
            )
        unroll = None if of_devices else False
        results = in_sequence(self, ctx.size, args, dims, params, unroll=unroll)
        return results, [0] * len(results)


io_callback_p = IOCallback()


def _no_derivative(name: str, what: str) -> EffectError:
    msg = f"{name}: {what} reached a callback with side effects, which has no derivative"
    return EffectError(
        msg,
        hint="call it on stop_gradient(x), or in a function with custom_jvp or custom_vjp, whose "
        "rule you give",
    )


@api_boundary
def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: object,
    *args: Any,
    sharding: object = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function with side effects from traced code.

    The compiled program calls back into Python, once each time the program comes to this point;
    results that are not used change nothing in that. ``effects_barrier()`` waits for calls of
    programs that run asynchronously.

    Args:
        callback: called as ``callback(*args, **kwargs)``; its results have the structure, shapes
            and dtypes of ``result_shape_dtypes``.
        result_shape_dtypes: tree of ``ShapeDtypeStruct``, or of anything with shape and dtype;
            None if the function returns None.
        *args: trees of arrays; leaves that are no arrays are given to the function as they are.
        sharding: None, or the device of the program.
        ordered: whether the call happens after the ordered calls before it, in this and in
            earlier programs of this thread. Such calls cannot be mapped by ``vmap``.
        **kwargs: further arguments of the function, likewise.

    Returns:
        What the function returned, as arrays.

    Raises:
        ArgumentSpecError: an argument is not as described.
        CallbackError: the function raised, or returned something of another type.
        EffectError: a derivative is asked for, or ``vmap`` of an ordered call.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental import io_callback
    >>> seen = []
    >>> @tb.jit
    ... def count_to(n):
    ...     step = lambda i, _: io_callback(lambda k: seen.append(int(k)), None, i, ordered=True)
    ...     return tb.lax.fori_loop(0, n, step, None)
    >>> count_to(3)
    >>> seen
    [0, 1, 2]
    """
    check_sharding("io_callback", sharding)
    avals, out_tree = result_types("io_callback", result_shape_dtypes)
    flat, values = flat_callback("io_callback", callback, args, kwargs, out_tree)
    results = io_callback_p.bind(*values, callback=flat, result_avals=avals, ordered=bool(ordered))
    return out_tree.unflatten(results)
