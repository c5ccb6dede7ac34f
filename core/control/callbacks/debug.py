"""debug_callback: a Python function that looks at values and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.callbacks.base import (
    CallbackPrimitive,
    flat_callback,
    in_sequence,
)
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import DebugEffect, Effects, OrderedDebugEffect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value
    from tracebridge.core.runtime.effects.host_callback import HostCallback


_UNORDERED: Effects = frozenset((DebugEffect(),))
_ORDERED: Effects = frozenset((OrderedDebugEffect(),))


@final
class DebugCallback(CallbackPrimitive):
    """``callback(*args)`` without results. It follows what becomes of the code around it.

    Derivatives leave it with the primals; a batch calls it for each element; a checkpoint that is
    computed again calls it again.
    """

    name = "debug_callback"

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> list[ShapedArray]:
        del avals, params
        return []

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        del avals
        return _ORDERED if params["ordered"] else _UNORDERED

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> list[Any]:
        """Eagerly the function fails as every function that is called: with its own error."""
        try:
            return super().evaluate(arrays, **params)
        except CallbackError as error:
            failure = error.__cause__
            if failure is None:
                raise
        callback: HostCallback = params["callback"]
        failure.add_note(f"raised in {callback.name}")
        raise failure

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        del tangents
        return self.bind(*primals, **params), []

    def transpose(
        self, ct: Sequence[Value | None], *args: Value, **params: object
    ) -> Sequence[Any]:
        del ct, params
        return [None] * len(args)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        in_sequence(self, ctx.size, args, dims, params)
        return [], []


debug_callback_p = DebugCallback()


def bind_debug(
    call: str,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: Mapping[str, object],
    *,
    ordered: bool,
    partitioned: bool,
) -> None:
    """Bind debug_callback under the name ``call``."""
    # A program runs on one device, so that shards and whole arrays are the same.
    del partitioned
    flat, values = flat_callback(call, callback, args, kwargs, None)
    debug_callback_p.bind(*values, callback=flat, result_avals=(), ordered=bool(ordered))


def check_options(call: str, args: tuple[Value, ...], kwargs: Mapping[str, object]) -> None:
    """Raise if a call that gives only options has arguments too."""
    if args or kwargs:
        msg = f"{call}: got arguments, but no function or text to give them to"
        raise ArgumentSpecError(msg, hint=f"write {call}(ordered=...)(what, *args, **kwargs)")


@api_boundary
def callback(
    callback: Callable[..., Any] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Callable[..., None] | None:
    """Call a Python function with values of traced code, to look at them.

    The call changes nothing in the program around it and follows what transformations do to that:
    under ``vmap`` it happens for each element, under ``grad`` with the primals, in a checkpoint
    each time its body is computed, in a batched ``cond`` for every branch. Use
    ``experimental.io_callback`` for effects that must happen exactly once.

    Args:
        callback: called as ``callback(*args, **kwargs)``; what it returns is ignored. Without it
            the result is a function that takes it with its arguments, with the options set.
        *args: trees of arrays; leaves that are no arrays are given to the function as they are.
        ordered: whether the call happens after the ordered debugging calls before it, in this and
            in earlier programs of this thread.
        partitioned: whether the function sees the parts of arrays on each device; programs run on
            one device, which holds the whole arrays.
        **kwargs: further arguments of the function, likewise.

    Raises:
        ArgumentSpecError: ``callback`` is no function.
        CallbackError: the function raised in a compiled program; outside of those its own error
            is raised.

    >>> import tracebridge as tb
    >>> @tb.jit
    ... def double(x):
    ...     tb.debug.callback(lambda v: print("doubling", v), x)
    ...     return 2 * x
    >>> print(double(3))
    doubling 3
    6
    """
    if callback is None:
        check_options("debug.callback", args, kwargs)

        def with_options(callback: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
            bind_debug(
                "debug.callback", callback, args, kwargs, ordered=ordered, partitioned=partitioned
            )

        return api_boundary(with_options)
    bind_debug("debug.callback", callback, args, kwargs, ordered=ordered, partitioned=partitioned)
    return None
