"""pure_callback: a Python function without side effects as an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.callbacks.base import (
    CallbackPrimitive,
    check_sharding,
    flat_callback,
    result_types,
)
from tracebridge.core.control.callbacks.vmap_methods import VMAP_METHODS, batch_by_method
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError, EffectError

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value


@final
class PureCallback(CallbackPrimitive):
    """``callback(*args)``, any number of times; ``vmap_method`` says how to call it for a batch."""

    name = "pure_callback"

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        raise no_derivative(params["callback"].name, "differentiation")

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        raise no_derivative(params["callback"].name, "transposition")

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        call = f"{params['callback'].name}: vmap needs to know how to call the function"
        return batch_by_method(self, call, ctx, args, dims, params)


pure_callback_p = PureCallback()


def no_derivative(name: str, what: str) -> EffectError:
    """The error for a callback that a transformation has reached."""
    msg = f"{name}: {what} reached a Python callback, whose derivative is not known"
    return EffectError(
        msg, hint="call it in a function with custom_jvp or custom_vjp, whose rule you give"
    )


@api_boundary
def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: object,
    *args: Any,
    sharding: object = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a Python function without side effects from traced code.

    The compiled program calls back into Python. It may do so more than once, or not at all if the
    results are not used. The function gets arrays on the CPU; it may compute with NumPy or with
    this package.

    Args:
        callback: called as ``callback(*args, **kwargs)``; its results have the structure, shapes
            and dtypes of ``result_shape_dtypes``.
        result_shape_dtypes: tree of ``ShapeDtypeStruct``, or of anything with shape and dtype.
        *args: trees of arrays; leaves that are no arrays are given to the function as they are.
        sharding: None, or the device of the program.
        vmap_method: what ``vmap`` does. ``"sequential"`` calls the function for each element in
            turn (``"sequential_unrolled"`` writes the calls out). The other ways call it once,
            with the batch as a leading axis of mapped arguments and of results: unmapped
            arguments have a leading axis of size 1 (``"expand_dims"``), of the batch's size
            (``"broadcast_all"``), or none (``"legacy_vectorized"``). With None ``vmap`` raises.
        **kwargs: further arguments of the function, likewise.

    Returns:
        What the function returned, as arrays.

    Raises:
        ArgumentSpecError: an argument is not as described.
        CallbackError: the function raised, or returned something of another type.
        EffectError: a derivative is asked for, or ``vmap`` without ``vmap_method``.

    >>> import numpy as np
    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> @tb.jit
    ... def sorted_copy(x):
    ...     return tb.pure_callback(np.sort, tb.ShapeDtypeStruct(x.shape, x.dtype), x)
    >>> print(sorted_copy(tnp.array([3.0, 1.0, 2.0])))
    [1. 2. 3.]
    """
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        msg = f"pure_callback: vmap_method is {vmap_method!r}"
        raise ArgumentSpecError(msg, expected=f"None or {' or '.join(map(repr, VMAP_METHODS))}")
    check_sharding("pure_callback", sharding)
    avals, out_tree = result_types("pure_callback", result_shape_dtypes)
    flat, values = flat_callback("pure_callback", callback, args, kwargs, out_tree)
    results = pure_callback_p.bind(
        *values, callback=flat, result_avals=avals, vmap_method=vmap_method
    )
    return out_tree.unflatten(results)
