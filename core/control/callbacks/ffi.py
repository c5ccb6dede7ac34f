"""ffi_call: a function of a library, which a program calls by the name of its target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.control.callbacks.base import result_types
from tracebridge.core.control.callbacks.vmap_methods import VMAP_METHODS, batch_by_method
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError, EffectError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.effects import Effects, IOEffect, no_effects
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.mlir.attrs import array, boolean, dictionary, i32, i64, string
from tracebridge.core.mlir.types import element_type, tensor_type
from tracebridge.core.sharding.layout import Layout

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value

TYPED_VERSION = 4  # of StableHLO's custom_call: XLA's typed FFI, whose attributes are a dictionary
_SIDE_EFFECT: Effects = frozenset({IOEffect()})

Order: TypeAlias = tuple[int, ...] | None
LayoutOption: TypeAlias = Layout | Sequence[int] | None
"""Axes from major to minor, a Layout, or None: row-major."""


@final
class Attributes:
    """Named attributes of a call; equal ones have equal keys, in which 1, 1.0 and True differ."""

    __slots__ = ("_key", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self._key = _key_of(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attributes) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.values)


def _key_of(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        found: Any = np.asarray(value)
        return type(value), found.dtype.str, found.shape, found.tobytes()
    if isinstance(value, Mapping):
        return dict, tuple([(k, _key_of(v)) for k, v in sorted(value.items())])
    if isinstance(value, list | tuple):
        return tuple, tuple([_key_of(v) for v in value])
    if isinstance(value, float):
        return float, value.hex()
    return type(value), value


@final
class FfiCall(Primitive):
    """Calls ``target_name`` of the platform; results have the types ``result_avals``."""

    name = "ffi_call"
    cost = Cost.OTHER
    multiple_results = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        target, outs = params["target_name"], params["result_avals"]
        for what, orders, found in (
            ("input", params["input_layouts"], avals),
            ("output", params["output_layouts"], outs),
        ):
            if orders is not None:
                _check_orders(target, what, orders, found)
        for i, o in params["aliases"]:
            _check_alias(target, i, o, avals, outs)
        return list(outs)

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        del avals
        return _SIDE_EFFECT if params["has_side_effect"] else no_effects

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        ins = _orders(params["input_layouts"], ctx.avals_in)
        outs = _orders(params["output_layouts"], ctx.avals_out)
        version = params["api_version"]
        config: Any = string(params["backend_config"] or "")
        place = "backend_config"
        if version >= TYPED_VERSION:
            config = dictionary(
                {k: attribute_of(v) for k, v in params["attributes"].values.items()}
            )
            # Serialised programs can hold a dictionary only where no verifier looks.
            place = "mhlo.backend_config" if ctx.platform == "portable" else place
        call = ctx.create(
            "stablehlo.custom_call",
            results=[tensor_type(a) for a in ctx.avals_out],
            operands=list(operands),
            attributes={
                "call_target_name": string(params["target_name"]),
                "has_side_effect": boolean(params["has_side_effect"]),
                "api_version": i32(version),
                place: config,
                "operand_layouts": layouts_attribute([o[::-1] for o in ins]),
                "result_layouts": layouts_attribute([o[::-1] for o in outs]),
                "output_operand_aliases": aliases_attribute(params["aliases"], len(outs)),
            },
        )
        return list(call.results)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        raise _no_derivative(params["target_name"], "differentiation")

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        raise _no_derivative(params["target_name"], "transposition")

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """As ``pure_callback``; the batch is the slowest axis in memory."""
        n_out = len(params["result_avals"])
        has_axis = [d is not None or params["vmap_method"] != "legacy_vectorized" for d in dims]
        layouts = {
            "input_layouts": _batched(params["input_layouts"], has_axis),
            "output_layouts": _batched(params["output_layouts"], [True] * n_out),
        }
        call = f"ffi_call of {params['target_name']!r}: vmap needs to know how to call it"
        return batch_by_method(self, call, ctx, args, dims, params, layouts)


ffi_call_p = FfiCall()


def _no_derivative(target: str, what: str) -> EffectError:
    msg = f"ffi_call of {target!r}: {what} reached a foreign function without a known derivative"
    return EffectError(
        msg, hint="call it in a function with custom_jvp or custom_vjp, whose rule you give"
    )


def _batched(orders: Any, has_axis: Sequence[bool]) -> Any:
    if orders is None:
        return None
    return tuple(
        [
            (0, *[a + 1 for a in o]) if o is not None and there else o
            for o, there in zip(orders, has_axis, strict=True)
        ]
    )


def _orders(orders: Any, avals: Sequence[ShapedArray]) -> list[tuple[int, ...]]:
    """Axes from major to minor of each array."""
    given = [None] * len(avals) if orders is None else orders
    return [tuple(range(a.ndim)) if o is None else o for o, a in zip(given, avals, strict=True)]


def _check_orders(target: str, what: str, orders: Any, avals: Sequence[ShapedArray]) -> None:
    if len(orders) != len(avals):
        msg = f"ffi_call of {target!r}: {len(orders)} {what}_layouts for {len(avals)} arrays"
        raise ArgumentValueError(msg)
    for i, (order, aval) in enumerate(zip(orders, avals, strict=True)):
        if order is not None and sorted(order) != list(range(aval.ndim)):
            msg = f"ffi_call of {target!r}: {what}_layouts[{i}] is {order}"
            raise ArgumentValueError(
                msg, expected=f"an order of the {aval.ndim} axes of {aval.str_short()}"
            )


def _check_alias(
    target: str, i: int, o: int, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray]
) -> None:
    where = f"ffi_call of {target!r}: input_output_aliases {{{i}: {o}}}"
    if not (0 <= i < len(avals) and 0 <= o < len(outs)):
        msg = f"{where}, but there are {len(avals)} inputs and {len(outs)} outputs"
        raise ArgumentValueError(msg)
    if (avals[i].shape, avals[i].dtype) != (outs[o].shape, outs[o].dtype):
        msg = f"{where}, but {avals[i].str_short()} is not {outs[o].str_short()}"
        raise ArgumentValueError(msg)


# attributes --------------------------------------------------------------------------------------


def attribute_of(value: Any) -> Any:
    """The MLIR attribute of a keyword argument of a call."""
    ir = mlir.ir
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, bool | np.bool_):
        return boolean(bool(value))
    if isinstance(value, np.integer):
        return ir.IntegerAttr.get(element_type(value.dtype), int(value))
    if isinstance(value, np.floating):
        return ir.FloatAttr.get(element_type(value.dtype), float(value))
    if isinstance(value, int):
        return i64(value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, np.ndarray):
        return _elements(value)
    if isinstance(value, list | tuple):
        return array([attribute_of(v) for v in value])
    if isinstance(value, Mapping):
        return dictionary({str(k): attribute_of(v) for k, v in value.items()})
    msg = f"ffi_call: an attribute is {value!r} of type {type(value).__name__}"
    raise ArgumentTypeError(
        msg, expected="a bool, a number, a string, a NumPy array, or a list or dict of these"
    )


def _elements(value: np.ndarray[Any, Any]) -> Any:
    """A NumPy array of one axis as XLA's FFI takes it: a dense array."""
    ir = mlir.ir
    makers = {
        "int8": ir.DenseI8ArrayAttr,
        "int16": ir.DenseI16ArrayAttr if hasattr(ir, "DenseI16ArrayAttr") else None,
        "int32": ir.DenseI32ArrayAttr,
        "int64": ir.DenseI64ArrayAttr,
        "float32": ir.DenseF32ArrayAttr,
        "float64": ir.DenseF64ArrayAttr,
    }
    make = makers.get(value.dtype.name)
    if make is not None and value.ndim == 1:
        return make.get(value.tolist())
    return ir.DenseElementsAttr.get(np.ascontiguousarray(value))


def layouts_attribute(orders: Sequence[Sequence[int]]) -> Any:
    """Layouts, each from minor to major, as StableHLO has them."""
    attr, index = mlir.ir.DenseElementsAttr, mlir.ir.IndexType.get()
    return array([attr.get(np.asarray(o, dtype=np.int64), type=index) for o in orders])


def aliases_attribute(aliases: Sequence[tuple[int, int]], n_out: int) -> Any:
    """Pairs (input, output) that share memory."""
    make = mlir.stablehlo.OutputOperandAlias.get
    return array(
        [
            make(
                output_tuple_indices=[] if n_out == 1 else [o],
                operand_index=i,
                operand_tuple_indices=[],
            )
            for i, o in aliases
        ]
    )


# the function ------------------------------------------------------------------------------------


def _order_of(what: str, layout: Any) -> Order:
    if layout is None:
        return None
    if isinstance(layout, Layout):
        if layout.tiling:
            msg = f"ffi_call: {what} has a layout with tiles {layout!r}"
            raise ArgumentValueError(msg, expected="an order of axes")
        return tuple(layout.major_to_minor)
    if not isinstance(layout, Sequence) or isinstance(layout, str):
        msg = f"ffi_call: {what} is {layout!r} of type {type(layout).__name__}"
        raise ArgumentTypeError(msg, expected="None, a Layout, or axes from major to minor")
    return tuple([index_of(a, "ffi_call", what) for a in layout])


def _layouts_of(what: str, layouts: Any) -> Any:
    if layouts is None:
        return None
    if not isinstance(layouts, Sequence) or isinstance(layouts, str):
        msg = f"ffi_call: {what} is {layouts!r}"
        raise ArgumentTypeError(msg, expected="a sequence with a layout for each array")
    return tuple([_order_of(f"{what}[{i}]", layout) for i, layout in enumerate(layouts)])


@api_boundary
def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[LayoutOption] | None = None,
    output_layouts: LayoutOption | Sequence[LayoutOption] = None,
    input_output_aliases: dict[int, int] | None = None,
    custom_call_api_version: int = TYPED_VERSION,
    legacy_backend_config: str | None = None,
) -> Callable[..., Any]:
    """A function that calls a foreign function, which was registered under a name.

    Args:
        target_name: as given to ``register_ffi_target``.
        result_shape_dtypes: a ``ShapeDtypeStruct``, or anything with shape and dtype, for the
            result; a list or tuple of them for several.
        has_side_effect: it is called even where nobody uses its results.
        vmap_method: what ``vmap`` does, as in ``pure_callback``.
        input_layouts: for each argument None (row-major), a ``Layout``, or its axes from the
            slowest to the fastest: ``(0, 2, 1)`` is a batch of column-major matrices.
        output_layouts: likewise for the results.
        input_output_aliases: positions of arguments, and of the results that take their memory.
        custom_call_api_version: 4, XLA's typed FFI; lower ones are those of old targets.
        legacy_backend_config: the text that old targets get instead of attributes.

    Returns:
        ``call(*arrays, **attributes)``. Attributes are bools, numbers, strings, vectors (Python
        numbers have 64 bits; NumPy's have their dtype), and lists and dicts of these. It returns
        an array, or a list (a tuple where ``result_shape_dtypes`` is one) of arrays.

    Raises:
        ArgumentSpecError: ``vmap_method`` is none of those, or results are not described.
        ArgumentValueError: layouts or aliases do not fit, or attributes for an old target.
        ArgumentTypeError: a layout or an attribute has a type that cannot be passed.
        EffectError: a derivative is asked for, or ``vmap`` without ``vmap_method``.

    >>> import numpy as np
    >>> import tracebridge as tb
    >>> call = tb.ffi.ffi_call("my_target", tb.ShapeDtypeStruct((3,), np.float32))
    >>> print(tb.make_jaxpr(lambda x: call(x, scale=2.0))(np.ones(3)).eqns[0].primitive)
    ffi_call
    """
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        msg = f"ffi_call: vmap_method is {vmap_method!r}"
        raise ArgumentSpecError(msg, expected=f"None or {' or '.join(map(repr, VMAP_METHODS))}")
    several = isinstance(result_shape_dtypes, list | tuple)
    avals, _ = result_types("ffi_call", result_shape_dtypes)
    version = index_of(custom_call_api_version, "ffi_call", "custom_call_api_version")
    if version >= TYPED_VERSION and legacy_backend_config is not None:
        msg = "ffi_call: legacy_backend_config is for a custom_call_api_version below 4"
        raise ArgumentValueError(msg, hint="pass attributes as keyword arguments of the call")
    outs: Any = output_layouts if several or output_layouts is None else [output_layouts]
    params: Params = {
        "target_name": str(target_name),
        "result_avals": avals,
        "has_side_effect": bool(has_side_effect),
        "vmap_method": vmap_method,
        "input_layouts": _layouts_of("input_layouts", input_layouts),
        "output_layouts": _layouts_of("output_layouts", outs),
        "aliases": tuple(sorted((input_output_aliases or {}).items())),
        "api_version": version,
        "backend_config": legacy_backend_config,
    }

    def call(*args: Any, **attributes: Any) -> Any:
        if attributes and version < TYPED_VERSION:
            msg = f"ffi_call of {target_name!r}: attributes {list(attributes)} for an old target"
            raise ArgumentValueError(msg, hint="pass legacy_backend_config")
        for value in attributes.values():
            _check_attribute(value)
        values = [as_value(a, "ffi_call") for a in args]
        results = ffi_call_p.bind(*values, **params, attributes=Attributes(attributes))
        if not several:
            return results[0]
        return tuple(results) if isinstance(result_shape_dtypes, tuple) else list(results)

    return api_boundary(call)


def _check_attribute(value: Any) -> None:
    """Raise now what lowering would raise."""
    if isinstance(value, list | tuple):
        for v in value:
            _check_attribute(v)
    elif isinstance(value, Mapping):
        for v in value.values():
            _check_attribute(v)
    elif not isinstance(value, bool | int | float | str | np.generic | np.ndarray):
        msg = f"ffi_call: an attribute is {value!r} of type {type(value).__name__}"
        raise ArgumentTypeError(
            msg, expected="a bool, a number, a string, a NumPy array, or a list or dict of these"
        )
