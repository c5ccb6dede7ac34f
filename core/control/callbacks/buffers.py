"""buffer_callback: a Python function that writes its results into memory of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core._jaxlib import mlir
from tracebridge.core.config.state import enter_scope, leave_scope, outside_of_traces
from tracebridge.core.control.callbacks.base import CallbackPrimitive, result_types
from tracebridge.core.control.callbacks.ffi import (
    TYPED_VERSION,
    aliases_attribute,
    layouts_attribute,
)
from tracebridge.core.control.callbacks.pure import no_derivative
from tracebridge.core.control.callbacks.vmap_methods import VMAP_METHODS, batch_by_method
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.effects import Effects, IOEffect, no_effects
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lowering.callbacks import HostFunction, python_target
from tracebridge.core.mlir.attrs import boolean, dictionary, i32, string
from tracebridge.core.mlir.types import tensor_type
from tracebridge.core.tree.tree import PyTreeDef, flatten

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value

_TARGETS = {
    "cpu": "xla_buffer_python_cpu_callback",
    "cuda": "xla_buffer_python_gpu_callback",
    "rocm": "xla_buffer_python_gpu_callback",
}
# GPUs can record what the function starts, and repeat it without the function.
_RECORDED = {"cuda": "_cmd_buffer", "rocm": "_cmd_buffer"}
_SIDE_EFFECT: Effects = frozenset({IOEffect()})


@final
class BufferFunction:
    """The user's function of flat buffers. Hashed by identity."""

    __slots__ = ("__weakref__", "fun", "in_tree", "out_tree")

    def __init__(self, fun: Callable[..., Any], in_tree: PyTreeDef, out_tree: PyTreeDef) -> None:
        self.fun = fun
        self.in_tree = in_tree
        self.out_tree = out_tree

    @property
    def name(self) -> str:
        """For messages: what was called with what."""
        return f"buffer_callback({name_of(self.fun)})"

    def __repr__(self) -> str:
        return name_of(self.fun)

    def __call__(self, context: Any, *buffers: Any) -> tuple[()]:
        """Called by the program: arguments, then results."""
        n = self.in_tree.num_leaves
        args, kwargs = self.in_tree.unflatten(buffers[:n])
        out = self.out_tree.unflatten(buffers[n:])
        # A program may run while something is traced, on the same thread.
        scope = enter_scope(outside_of_traces)
        try:
            result = self.fun(context, out, *args, **kwargs)
        finally:
            leave_scope(scope)
        if result is not None:
            msg = f"{self.name}: the callback returned {type(result).__name__}"
            raise CallbackError(msg, expected="None", hint="write results into the buffers")
        return ()


@final
class BufferCallback(CallbackPrimitive):
    """Calls ``callback``, a BufferFunction; results have the types ``result_avals``."""

    name = "buffer_callback"

    evaluate = Primitive.evaluate

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        del avals
        return _SIDE_EFFECT if params["has_side_effect"] else no_effects

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        callback: BufferFunction = params["callback"]
        target = python_target(ctx, callback.name, _TARGETS)
        if params["recorded"]:
            target += _RECORDED.get(ctx.platform, "")
        index = len(ctx.callbacks)
        ctx.callbacks.append(HostFunction(callback, callback.name, 0, ()))
        ui64 = mlir.ir.IntegerType.get_unsigned(64)
        ins, outs = ctx.avals_in, ctx.avals_out
        call = ctx.create(
            "stablehlo.custom_call",
            results=[tensor_type(a) for a in outs],
            operands=list(operands),
            attributes={
                "call_target_name": string(target),
                "has_side_effect": boolean(params["has_side_effect"]),
                "api_version": i32(TYPED_VERSION),
                "backend_config": dictionary({"index": mlir.ir.IntegerAttr.get(ui64, index)}),
                "operand_layouts": layouts_attribute([range(a.ndim)[::-1] for a in ins]),
                "result_layouts": layouts_attribute([range(a.ndim)[::-1] for a in outs]),
                "output_operand_aliases": aliases_attribute(params["aliases"], len(outs)),
            },
        )
        return list(call.results)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        raise no_derivative(params["callback"].name, "differentiation")

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        raise no_derivative(params["callback"].name, "transposition")

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        call = f"{params['callback'].name}: vmap needs to know how to call the function"
        return batch_by_method(self, call, ctx, args, dims, params)


buffer_callback_p = BufferCallback()


def _aliases(
    given: Mapping[int, int] | None, ins: Sequence[ShapedArray], outs: Sequence[ShapedArray]
) -> tuple[tuple[int, int], ...]:
    pairs = tuple([(int(i), int(o)) for i, o in sorted((given or {}).items())])
    for i, o in pairs:
        where = f"buffer_callback: input_output_aliases {{{i}: {o}}}"
        if not (0 <= i < len(ins) and 0 <= o < len(outs)):
            msg = f"{where}, but there are {len(ins)} inputs and {len(outs)} outputs"
            raise ArgumentValueError(msg)
        if (ins[i].shape, ins[i].dtype) != (outs[o].shape, outs[o].dtype):
            msg = f"{where}, but {ins[i].str_short()} is not {outs[o].str_short()}"
            raise ArgumentValueError(msg)
    return pairs


@api_boundary
def buffer_callback(
    callback: Callable[..., None],
    result_shape_dtypes: object,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_output_aliases: dict[int, int] | None = None,
    command_buffer_compatible: bool = False,
) -> Callable[..., Any]:
    """A function of arrays that calls a Python function with the memory of the program.

    Unlike ``pure_callback`` no results are copied: the Python function writes them. What it is
    given are buffers, which NumPy and libraries with DLPack read and write in place; they are valid
    while it runs. It works on CPUs and GPUs.

    Args:
        callback: called as ``callback(context, out, *args, **kwargs)`` with an `ExecutionContext`
            and a `Buffer` for each leaf; ``out`` has the structure of ``result_shape_dtypes``. It
            returns None.
        result_shape_dtypes: tree of ``ShapeDtypeStruct``, or of anything with shape and dtype.
        has_side_effect: it is called even where nobody uses its results.
        vmap_method: what ``vmap`` does, as in ``pure_callback``.
        input_output_aliases: numbers of arguments, and of the results that take their memory,
            counted over leaves.
        command_buffer_compatible: on GPUs the function is called once, and what it starts on the
            stream is repeated without it.

    Returns:
        The function; it takes trees of arrays and gives a tree like ``result_shape_dtypes``.

    Raises:
        ArgumentSpecError: ``callback`` is no function, ``vmap_method`` is unknown, or results are
            not described.
        ArgumentValueError: when it is called: ``input_output_aliases`` do not fit.
        CallbackError: when it is called: the Python function raised.
        EffectError: a derivative is asked for, or ``vmap`` without ``vmap_method``.

    >>> import numpy as np
    >>> import tracebridge as tb
    >>> from tracebridge.experimental.buffer_callback import buffer_callback
    >>> def double(context, out, x):
    ...     np.multiply(x, 2, out=np.asarray(out))
    >>> print(buffer_callback(double, tb.ShapeDtypeStruct((3,), "float32"))(tb.numpy.arange(3.0)))
    [0. 2. 4.]
    """
    if not callable(callback):
        msg = f"buffer_callback: callback is {callback!r} of type {type(callback).__name__}"
        raise ArgumentSpecError(msg, expected="a function")
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        msg = f"buffer_callback: vmap_method is {vmap_method!r}"
        raise ArgumentSpecError(msg, expected=f"None or {' or '.join(map(repr, VMAP_METHODS))}")
    avals, out_tree = result_types("buffer_callback", result_shape_dtypes)

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, in_tree = flatten((args, kwargs))
        values = [as_value(leaf) for leaf in leaves]
        results = buffer_callback_p.bind(
            *values,
            callback=BufferFunction(callback, in_tree, out_tree),
            result_avals=avals,
            vmap_method=vmap_method,
            has_side_effect=has_side_effect,
            aliases=_aliases(input_output_aliases, [v.aval for v in values], avals),
            recorded=command_buffer_compatible,
        )
        return out_tree.unflatten(results)

    return call
