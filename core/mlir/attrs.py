"""Attributes that StableHLO operations take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib import mlir

if TYPE_CHECKING:
    from collections.abc import Mapping


def i64_array(values: Sequence[int]) -> Any:
    """``array<i64: ...>``."""
    return mlir.ir.DenseI64ArrayAttr.get([int(v) for v in values])


def i64(value: int) -> Any:
    """An ``i64`` attribute."""
    ir = mlir.ir
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), int(value))


def i32(value: int) -> Any:
    """An ``i32`` attribute."""
    ir = mlir.ir
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), int(value))


def boolean(value: bool) -> Any:
    """A ``bool`` attribute."""
    return mlir.ir.BoolAttr.get(bool(value))


def string(value: str) -> Any:
    """A string attribute."""
    return mlir.ir.StringAttr.get(value)


def dense_i64(values: object) -> Any:
    """``dense<...> : tensor<..xi64>``."""
    return mlir.ir.DenseElementsAttr.get(np.ascontiguousarray(values, dtype=np.int64))


def index_tensor(values: Sequence[int]) -> Any:
    """``dense<...> : tensor<..xindex>``, as layouts are written: axes, minor to major."""
    ir = mlir.ir
    return ir.DenseIntElementsAttr.get(np.asarray(values, np.int64), type=ir.IndexType.get())


def comparison(direction: str, kind: str | None) -> dict[str, Any]:
    """Attributes of ``stablehlo.compare``; kind is FLOAT, TOTALORDER, SIGNED or UNSIGNED."""
    hlo = mlir.stablehlo
    attributes = {"comparison_direction": hlo.ComparisonDirectionAttr.get(direction)}
    if kind is not None:
        attributes["compare_type"] = hlo.ComparisonTypeAttr.get(kind)
    return attributes


def type_attr(type_: object) -> Any:
    """An attribute that holds a type."""
    return mlir.ir.TypeAttr.get(type_)


def array(values: Sequence[object]) -> Any:
    """An array attribute."""
    return mlir.ir.ArrayAttr.get(list(values))


def dictionary(values: Mapping[str, object]) -> Any:
    """A dictionary attribute."""
    return mlir.ir.DictAttr.get(values)


def leave_apart(result: Any) -> None:
    """Keep XLA from inlining the call that gives ``result``.

    Its operands and results are in memory then, and belong to no loops of others.
    """
    attributes = result.owner.attributes
    attributes["mhlo.frontend_attributes"] = dictionary({"inlineable": string("false")})
