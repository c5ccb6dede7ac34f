"""Types, constants and attributes of MLIR, as lowering rules need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import typeof
from tracebridge.core.mlir import attrs
from tracebridge.core.mlir.constants import dense_attr
from tracebridge.core.mlir.context import mlir_context
from tracebridge.core.mlir.types import element_type, tensor_type


def make_ir_context() -> Any:
    """The MLIR context of all programs; types and attributes are made inside ``with`` it.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.i32_attr(3))
    3 : i32
    """
    return mlir_context()


def aval_to_ir_type(aval: ShapedArray) -> Any:
    """The MLIR type of an aval.

    Args:
        aval: the type of an array.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.aval_to_ir_type(tb.core.ShapedArray((2,), "float32")))
    tensor<2xf32>
    """
    return tensor_type(aval)


def aval_to_ir_types(aval: ShapedArray) -> list[Any]:
    """The MLIR types of an aval, of which there is one.

    Args:
        aval: the type of an array.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.aval_to_ir_types(tb.core.ShapedArray((2,), "float32"))[0])
    tensor<2xf32>
    """
    return [tensor_type(aval)]


def dtype_to_ir_type(dtype: Any) -> Any:
    """The MLIR type of one element.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.dtype_to_ir_type("bfloat16"))
    bf16
    """
    return element_type(np.dtype(dtype))


def ir_constant(val: Any) -> Any:
    """A constant of a number or an array, as an MLIR value.

    Args:
        val: a number or an array of the host.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> from tracebridge.extend.core import Primitive
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> mlir.register_lowering(twice_p, lambda ctx, x: [mlir.ir_constant(6.0)])
    >>> print(twice_p.bind(3.0))
    6.0
    """
    aval = typeof(val)
    array = np.asarray(val, aval.dtype)
    kind = tensor_type(ShapedArray(array.shape, array.dtype))
    return mlir.ir.Operation.create(
        "stablehlo.constant", results=[kind], attributes={"value": dense_attr(array)}
    ).result


def ir_constants(val: object) -> list[Any]:
    """The values of a constant, of which there is one.

    Args:
        val: a number or an array of the host.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> from tracebridge.extend.core import Primitive
    >>> twice_p = Primitive("twice")
    >>> _ = twice_p.def_abstract_eval(lambda x: x)
    >>> mlir.register_lowering(twice_p, lambda ctx, x: mlir.ir_constants(6.0))
    >>> print(twice_p.bind(3.0))
    6.0
    """
    return [ir_constant(val)]


def dense_int_elements(xs: object) -> Any:
    """``dense<...> : tensor<..xi64>``.

    Args:
        xs: integers.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.dense_int_elements([1, 2]))
    dense<[1, 2]> : tensor<2xi64>
    """
    return attrs.dense_i64(np.asarray(xs))


def dense_int_array(xs: Sequence[int]) -> Any:
    """``array<i64: ...>``.

    Args:
        xs: integers.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.dense_int_array([1, 2]))
    array<i64: 1, 2>
    """
    return attrs.i64_array(xs)


def i32_attr(i: int) -> Any:
    """An ``i32`` attribute.

    Args:
        i: an integer.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.i32_attr(3))
    3 : i32
    """
    return attrs.i32(i)


def i64_attr(i: int) -> Any:
    """An ``i64`` attribute.

    Args:
        i: an integer.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.i64_attr(3))
    3 : i64
    """
    return attrs.i64(i)


def ir_attribute(val: object) -> Any:
    """An attribute of a bool, int, float, string, dtype, sequence or dict.

    Args:
        val: the object.

    Raises:
        ArgumentTypeError: any other object.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> with mlir.make_ir_context():
    ...     print(mlir.ir_attribute({"axis": 1, "name": "sum"}))
    {axis = 1 : i64, name = "sum"}
    """
    ir = mlir.ir
    if isinstance(val, ir.Attribute):
        return val
    if isinstance(val, bool | np.bool_):
        return attrs.boolean(bool(val))
    if isinstance(val, np.integer | np.floating):
        kind = element_type(val.dtype)
        make = ir.IntegerAttr if isinstance(val, np.integer) else ir.FloatAttr
        return make.get(kind, val.item())
    if isinstance(val, int):
        return attrs.i64(val)
    if isinstance(val, float):
        return ir.FloatAttr.get(ir.F64Type.get(), val)
    if isinstance(val, str):
        return attrs.string(val)
    if isinstance(val, np.dtype):
        return attrs.type_attr(element_type(val))
    if isinstance(val, np.ndarray):
        return ir.DenseElementsAttr.get(np.ascontiguousarray(val))
    if isinstance(val, list | tuple):
        return attrs.array([ir_attribute(v) for v in val])
    if isinstance(val, dict):
        return attrs.dictionary({str(k): ir_attribute(v) for k, v in val.items()})
    msg = f"ir_attribute: got {val!r} of type {type(val).__name__}"
    raise ArgumentTypeError(msg, expected="a bool, int, float, string, dtype, sequence or dict")


def shape_tensor(sizes: Sequence[int]) -> Any:
    """Sizes as a rank-1 tensor of ``i32``.

    Args:
        sizes: integers.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> from tracebridge.extend.core import Primitive
    >>> sizes_p = Primitive("sizes")
    >>> _ = sizes_p.def_abstract_eval(lambda x: tb.core.ShapedArray((x.ndim,), "int32"))
    >>> mlir.register_lowering(sizes_p, lambda ctx, x: [mlir.shape_tensor(ctx.avals_in[0].shape)])
    >>> print(sizes_p.bind(tb.lax.full((2, 3), 1.0)))
    [2 3]
    """
    return ir_constant(np.asarray(sizes, np.int32))


def module_to_string(module: Any, enable_debug_info: bool | None = None) -> str:
    """The text of a module.

    Args:
        module: an MLIR module.
        enable_debug_info: whether locations are printed.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> module = tb.jit(tb.lax.sin).lower(1.0).compiler_ir()
    >>> "stablehlo.sine" in mlir.module_to_string(module)
    True
    """
    return module.operation.get_asm(enable_debug_info=bool(enable_debug_info))


def module_to_bytecode(module: Any) -> bytes:
    """The bytecode of a module.

    Args:
        module: an MLIR module.

    >>> import tracebridge as tb
    >>> from tracebridge.interpreters import mlir
    >>> module = tb.jit(tb.lax.sin).lower(1.0).compiler_ir()
    >>> mlir.module_to_bytecode(module).startswith(b"ML")
    True
    """
    return mlir.module_to_bytecode(module)
