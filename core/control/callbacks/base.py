"""What the primitives that call Python functions share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import tracebridge.core.lax as lax
from tracebridge.core.control.scan.forward import bind_scan
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.shown import shown
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray, element_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.effects import Effects, no_effects
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lowering.callbacks import emit_callback
from tracebridge.core.runtime.effects.host_callback import HostCallback
from tracebridge.core.runtime.effects.tokens import wait_for
from tracebridge.core.runtime.programs.debug import check_finite, wants_checks
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import flatten, leaves_with_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value


MAX_UNROLLED = 16  # calls for the elements of a batch that are written out, not looped over


class CallbackPrimitive(Primitive):
    """Calls ``callback``, a HostCallback; results have the types ``result_avals``.

    Applications are not remembered: they hold a function of the user, which dies with the
    programs that call it.
    """

    cost = Cost.OTHER
    multiple_results: ClassVar[bool] = True
    holds_functions: ClassVar[bool] = True

    def bind(self, *args: Any, **params: Any) -> Any:
        values = [as_value(a) for a in args]
        app = self.application(tuple([v.aval for v in values]), params)
        return current_trace().process(app, values)

    def application(self, avals: tuple[ShapedArray, ...], params: Params) -> Application:
        return Application(self, avals, params)

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        return list(params["result_avals"])

    def effects(self, *avals: ShapedArray, **params: object) -> Effects:
        del avals, params
        return no_effects

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> list[Any]:
        """Eagerly: the call itself, after the programs that it has to wait for."""
        for effect in self.effects(**params):
            if effect.ordered:
                wait_for(effect)
        callback: HostCallback = params["callback"]
        outs = callback.evaluate(params["result_avals"], arrays)
        if wants_checks():
            check_finite(outs, callback.name)
        return outs

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        callback: HostCallback = params["callback"]
        function = functools.partial(callback.from_host, ctx.avals_out)
        effects = list(self.effects(**params))
        return emit_callback(
            ctx, function, operands, effects[0] if effects else None, callback.name
        )


def flat_callback(
    call: str,
    callback: Callable[..., Any],
    args: tuple[Value, ...],
    kwargs: Mapping[str, object],
    out_tree: Any,
) -> tuple[HostCallback, list[Any]]:
    """The callback of flat arrays, and the arguments that are arrays as values."""
    if not callable(callback):
        msg = f"{call}: callback is {callback!r} of type {type(callback).__name__}"
        raise ArgumentSpecError(msg, expected="a function")
    leaves, in_tree = flatten((args, kwargs))
    values: list[Any] = []
    statics: dict[int, Any] = {}
    for i, leaf in enumerate(leaves):
        try:
            values.append(as_value(leaf))
        except UnsupportedDtypeError:
            statics[i] = leaf
    return HostCallback(call, callback, in_tree, statics, out_tree), values


def result_types(call: str, result_shape_dtypes: object) -> tuple[tuple[ShapedArray, ...], Any]:
    """Avals and structure of the declared results."""
    leaves, tree = flatten(result_shape_dtypes)
    avals: list[ShapedArray] = []
    for i, leaf in enumerate(leaves):
        shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        if shape is None or dtype is None:
            where = keystr(leaves_with_path(result_shape_dtypes)[i][0])
            description = f"{shown(leaf)} of type {type(leaf).__name__}"
            msg = f"{call}: result_shape_dtypes{where} is {description}"
            raise ArgumentSpecError(
                msg,
                expected="something with shape and dtype, such as ShapeDtypeStruct(shape, dtype)",
            )
        if canonicalize(dtype) != dtype:
            msg = f"{call}: result_shape_dtypes names {dtype} while 64-bit dtypes are off"
            raise UnsupportedDtypeError(
                msg, expected=str(canonicalize(dtype)), hint="turn on option enable_x64"
            )
        avals.append(ShapedArray(tuple(shape), dtype))
    return tuple(avals), tree


def check_sharding(call: str, sharding: object) -> None:
    """Raise unless ``sharding`` is None or names one device: programs run on one."""
    if sharding is not None and not isinstance(sharding, SingleDeviceSharding):
        msg = f"{call}: sharding is {sharding!r}"
        raise DevicePlacementError(msg, expected="None or a SingleDeviceSharding")


def in_sequence(
    primitive: Primitive,
    size: object,
    args: Sequence[Value],
    dims: Sequence[int | None],
    params: Params,
    *,
    unroll: bool | None = None,
) -> list[Any]:
    """Bind once for each element of a batch, in order; results have the batch axis in front.

    ``unroll``: whether the calls are written out; by default if they are few.
    """
    args = [a if d is None else move_batch_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    fits = type(size) is int and size <= MAX_UNROLLED
    if type(size) is int and (fits if unroll is None else unroll):
        rows: list[list[Any]] = []
        for i in range(size):
            slices_of_args = [
                a if d is None else lax.index_in_dim(a, i, 0, keepdims=False)
                for a, d in zip(args, dims, strict=True)
            ]
            rows.append(primitive.bind(*slices_of_args, **params))
        if rows:
            stacked = zip(*rows, strict=True)
            return [lax.concatenate([lax.expand_dims(r, (0,)) for r in c], 0) for c in stacked]
    n_fixed = dims.count(None)
    fixed = [a for a, d in zip(args, dims, strict=True) if d is None]
    moved = [a for a, d in zip(args, dims, strict=True) if d is not None]

    def step(*values: Any) -> list[Any]:
        constant, sliced = iter(values[:n_fixed]), iter(values[n_fixed:])
        slices_of_args = [next(constant) if d is None else next(sliced) for d in dims]
        return primitive.bind(*slices_of_args, **params)

    slices = [element_aval(a.aval) for a in moved]
    body = stage(step, [*[a.aval for a in fixed], *slices], locate=False)
    return bind_scan(body, fixed, (), moved, length=size)
