"""StableHLO builders that hide the difference between static and symbolic shapes.

Lowering rules get a ``Builder`` as their context (lowering/context.py adds what needs Jaxprs).
Operations whose result shape is an attribute when static become their ``dynamic_`` form, with the
sizes computed at run time, when a dimension is symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.mlir.attrs import dense_i64, i64, i64_array
from tracebridge.core.mlir.constants import dense_attr, splat_attr
from tracebridge.core.mlir.types import element_type, is_static, tensor_type
from tracebridge.core.symbolic.answers import no_value
from tracebridge.core.symbolic.evaluate import dims_evaluate

if TYPE_CHECKING:
    from collections.abc import Callable


_I32 = np.dtype(np.int32)
_SIZE = ShapedArray((), _I32)
_FLAG = ShapedArray((), np.dtype(np.bool_))


class Builder:
    """Emits operations at the current insertion point."""

    __slots__ = ("_const_values", "_constants", "_dims", "create")

    def __init__(self) -> None:
        self.create = mlir.ir.Operation.create
        # Constants of the current function: (value key, aval) -> ir.Value.
        self._constants: dict[Any, Any] = {}
        # id of an Array constant -> ir.Value, for constants passed as arguments of main too.
        self._const_values: dict[int, Any] = {}
        # Sizes in the current function: variable's name or expression -> i32 scalar, shape -> i32
        # tensor.
        self._dims: dict[Any, Any] = {}

    # generic operations --------------------------------------------------------------------------

    def op(
        self,
        name: str,
        operands: Sequence[object],
        results: Sequence[object],
        attributes: dict[str, Any] | None = None,
        regions: int = 0,
    ) -> Any:
        """The operation ``name``; ``results`` are avals or MLIR types."""
        types = [tensor_type(r) if type(r) is ShapedArray else r for r in results]
        return self.create(
            name, results=types, operands=operands, attributes=attributes, regions=regions
        )

    def op1(
        self,
        name: str,
        operands: Sequence[Any],
        result: object,
        attributes: dict[str, Any] | None = None,
    ) -> Any:
        """The only result of operation ``name``."""
        return self.op(name, operands, [result], attributes).results[0]

    # constants -----------------------------------------------------------------------------------

    def splat(self, value: object, aval: ShapedArray) -> Any:
        """A constant array, all elements the Python scalar ``value``."""
        if not is_static(aval):
            scalar = self.splat(value, aval.update(shape=()))
            return self.broadcast_in_dim(scalar, aval, ())
        data = np.asarray(value).tobytes() if type(value) in (float, complex) else value
        key = (type(value), data, aval.strong)
        found = self._constants.get(key)
        if found is None:
            found = self.op1("stablehlo.constant", [], aval, {"value": splat_attr(value, aval)})
            self._constants[key] = found
        return found

    def dense(self, array: object) -> Any:
        """A constant with the elements of a NumPy array."""
        data = np.asarray(array)
        aval = ShapedArray(data.shape, data.dtype)
        return self.op1("stablehlo.constant", [], aval, {"value": dense_attr(data)})

    def constant(self, value: object, aval: ShapedArray) -> Any:
        """A splat (Python scalar) or dense (array) constant of ``aval``."""
        if isinstance(value, np.ndarray):
            return self.dense(value.astype(aval.dtype))
        return self.splat(value, aval)

    # shapes --------------------------------------------------------------------------------------

    def dim(self, size: object) -> Any:
        """An ``i32`` scalar that holds a dimension: a constant, or the value of an expression."""
        if type(size) is int:
            return self.splat(size, _SIZE)
        found = self._dims.get(size)
        if found is None:
            try:
                value = dims_evaluate(size, self.dims_by_name(), DimArithmetic(self))
            except KeyError as error:
                raise no_value(str(size)) from error
            found = self._dims[size] = value
        return found

    def dims_by_name(self) -> dict[str, Any]:
        """The ``i32`` scalars that hold the dimension variables."""
        return {k: v for k, v in self._dims.items() if isinstance(k, str)}

    def define_dim(self, name: str, value: object) -> None:
        """Say which ``i32`` scalar holds the dimension variable ``name``."""
        self._dims[name] = value

    def shape_tensor(self, shape: Sequence[object]) -> Any:
        """A 1-d ``i32`` tensor that holds ``shape``."""
        if all([type(d) is int for d in shape]):
            return self.dense(np.asarray(shape, np.int32).reshape(len(shape)))
        key = tuple(shape)
        found = self._dims.get(key)
        if found is None:
            one = ShapedArray((1,), _I32)
            parts = [self.op1("stablehlo.reshape", [self.dim(d)], one) for d in shape]
            found = parts[0] if len(parts) == 1 else self._concatenated(parts)
            self._dims[key] = found
        return found

    def _concatenated(self, parts: Sequence[object]) -> Any:
        result = ShapedArray((len(parts),), _I32)
        return self.op1("stablehlo.concatenate", parts, result, {"dimension": i64(0)})

    def broadcast_in_dim(self, x: object, aval: ShapedArray, dims: Sequence[int]) -> Any:
        """``x`` with its axes placed at ``dims`` of ``aval`` and repeated along the others."""
        attributes = {"broadcast_dimensions": i64_array(dims)}
        if is_static(aval):
            return self.op1("stablehlo.broadcast_in_dim", [x], aval, attributes)
        return self.op1(
            "stablehlo.dynamic_broadcast_in_dim",
            [x, self.shape_tensor(aval.shape)],
            aval,
            attributes,
        )

    def reshape(self, x: object, aval: ShapedArray) -> Any:
        """``x`` with the shape of ``aval``."""
        if is_static(aval):
            return self.op1("stablehlo.reshape", [x], aval)
        return self.op1("stablehlo.dynamic_reshape", [x, self.shape_tensor(aval.shape)], aval)

    def iota(self, aval: ShapedArray, dimension: int) -> Any:
        """Positions along ``dimension``."""
        attributes = {"iota_dimension": i64(dimension)}
        if is_static(aval):
            return self.op1("stablehlo.iota", [], aval, attributes)
        return self.op1("stablehlo.dynamic_iota", [self.shape_tensor(aval.shape)], aval, attributes)

    def transpose(self, x: object, aval: ShapedArray, permutation: Sequence[int]) -> Any:
        """``x`` with permuted axes; ``aval`` is the result's."""
        return self.op1("stablehlo.transpose", [x], aval, {"permutation": i64_array(permutation)})

    def slice(
        self,
        x: object,
        aval: ShapedArray,
        starts: Sequence[Any],
        limits: Sequence[Any],
        strides: Sequence[Any],
    ) -> Any:
        """``x[starts:limits:strides]``."""
        if all([type(d) is int for d in (*starts, *limits, *strides)]):
            attributes = {
                "start_indices": i64_array(starts),
                "limit_indices": i64_array(limits),
                "strides": i64_array(strides),
            }
            return self.op1("stablehlo.slice", [x], aval, attributes)
        bounds = [self.shape_tensor(b) for b in (starts, limits, strides)]
        return self.op1("stablehlo.real_dynamic_slice", [x, *bounds], aval)

    def resized(
        self, x: object, aval: ShapedArray, axis: int, size: object
    ) -> tuple[Any, ShapedArray]:
        """``x`` with zeros behind, or cut there, so that ``axis`` has ``size``; and its aval."""
        if size == aval.shape[axis]:
            return x, aval
        result = aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis + 1 :]))
        high: list[Any] = [0] * aval.ndim
        high[axis] = size - aval.shape[axis]
        none, high = self.shape_tensor((0,) * aval.ndim), self.shape_tensor(high)
        zero = self.splat(False if aval.dtype.kind == "b" else 0, aval.update(shape=()))
        return self.op1("stablehlo.dynamic_pad", [x, zero, none, high, none], result), result

    def convert(self, x: object, aval: ShapedArray) -> Any:
        """``x`` with the element type of ``aval``."""
        return self.op1("stablehlo.convert", [x], aval)

    def compare(
        self, x: Any, y: Any, aval: ShapedArray, direction: str, kind: str | None = None
    ) -> Any:
        """Elementwise comparison; ``aval`` is the boolean result's."""
        hlo = mlir.stablehlo
        attributes = {"comparison_direction": hlo.ComparisonDirectionAttr.get(direction)}
        if kind is not None:
            attributes["compare_type"] = hlo.ComparisonTypeAttr.get(kind)
        return self.op1("stablehlo.compare", [x, y], aval, attributes)

    def select(self, predicate: object, on_true: Any, on_false: Any, aval: ShapedArray) -> Any:
        """``on_true`` where ``predicate``, else ``on_false``."""
        return self.op1("stablehlo.select", [predicate, on_true, on_false], aval)

    def reduce(
        self,
        operands: Sequence[object],
        inits: Sequence[object],
        avals_out: Sequence[ShapedArray],
        axes: Sequence[int],
        body: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]],
    ) -> list[Any]:
        """``stablehlo.reduce``; ``body(accumulators, elements)`` emits the combined scalars."""
        operation = self.op(
            "stablehlo.reduce",
            [*operands, *inits],
            avals_out,
            {"dimensions": i64_array(axes)},
            regions=1,
        )
        scalars = [a.update(shape=()) for a in avals_out]
        with self.block(operation.regions[0], [*scalars, *scalars]) as arguments:
            n = len(scalars)
            self.finish(body(arguments[:n], arguments[n:]))
        return list(operation.results)

    def while_loop(
        self,
        operands: Sequence[object],
        avals: Sequence[ShapedArray],
        condition: Callable[[Sequence[Any]], Any],
        body: Callable[[Sequence[Any]], Sequence[Any]],
    ) -> list[Any]:
        """``stablehlo.while``; ``condition(values)`` and ``body(values)`` emit their regions."""
        operation = self.op("stablehlo.while", operands, avals, regions=2)
        with self.block(operation.regions[0], avals) as arguments:
            self.finish([condition(arguments)])
        with self.block(operation.regions[1], avals) as arguments:
            self.finish(body(arguments))
        return list(operation.results)

    # regions -------------------------------------------------------------------------------------

    def block(self, region: object, avals: Sequence[ShapedArray]) -> _Block:
        """``with builder.block(region, avals) as arguments:`` emits into a new block."""
        return _Block(
            self, region, [tensor_type(a) if type(a) is ShapedArray else a for a in avals]
        )

    def finish(self, values: Sequence[object], terminator: str = "stablehlo.return") -> None:
        """End a block with its results."""
        self.create(terminator, operands=list(values))

    def element_type(self, dtype: Any) -> Any:
        """The MLIR type of one element."""
        return element_type(np.dtype(dtype))

    def type_of(self, aval: ShapedArray) -> Any:
        """The MLIR type of ``aval``."""
        return tensor_type(aval)

    def dense_i64(self, values: object) -> Any:
        """A dense attribute of int64."""
        return dense_i64(values)


class _Block:
    """Insertion into a new block; constants made inside stay inside."""

    __slots__ = ("_arrays", "_builder", "_outer", "_point", "block")

    def __init__(self, builder: Builder, region: Any, types: Sequence[Any]) -> None:
        self._builder = builder
        ir = mlir.ir
        self.block = region.blocks.append(*types, arg_locs=[ir.Location.unknown()] * len(types))
        self._point = ir.InsertionPoint(self.block)

    def __enter__(self) -> list[Any]:
        self._outer = (self._builder._constants, self._builder._dims)
        self._builder._constants = {}
        self._builder._dims = dict(self._builder._dims)
        self._arrays = self._builder._const_values
        self._builder._const_values = dict(self._arrays)
        self._point.__enter__()
        return list(self.block.arguments)

    def __exit__(self, *exc: object) -> None:
        self._point.__exit__(*exc)
        self._builder._constants, self._builder._dims = self._outer
        self._builder._const_values = self._arrays


class DimArithmetic:
    """Arithmetic on ``i32`` scalars for ``dims_evaluate``.

    Division rounds down, as Python's: conditions on sizes are checked by expressions that may be
    negative for sizes that break the condition. A divisor of 0 counts as 1: who evaluates constant
    operations on integers divides with the processor, which ends the process.
    """

    __slots__ = ("_b",)

    def __init__(self, builder: Builder) -> None:
        self._b = builder

    def constant(self, value: int) -> Any:
        return self._b.splat(int(value), _SIZE)

    def add(self, a: object, b: Any) -> Any:
        return self._binary("stablehlo.add", a, b)

    def mul(self, a: object, b: Any) -> Any:
        return self._binary("stablehlo.multiply", a, b)

    def floordiv(self, a: object, b: object) -> Any:
        exact = self._binary("stablehlo.subtract", a, self.mod(a, b))
        return self._binary("stablehlo.divide", exact, self._not_zero(b))

    def _not_zero(self, b: Any) -> Any:
        if getattr(b.owner, "name", "") == "stablehlo.constant":
            return b
        zero, one = self.constant(0), self.constant(1)
        is_zero = self._b.compare(b, zero, _FLAG, "EQ", "SIGNED")
        return self._b.op1("stablehlo.select", [is_zero, one, b], _SIZE)

    def mod(self, a: object, b: Any) -> Any:
        b = self._not_zero(b)
        rest = self._binary("stablehlo.remainder", a, b)
        shifted = self._binary("stablehlo.add", rest, b)
        return self._binary("stablehlo.remainder", shifted, b)

    def max(self, a: object, b: object) -> Any:
        return self._binary("stablehlo.maximum", a, b)

    def min(self, a: object, b: object) -> Any:
        return self._binary("stablehlo.minimum", a, b)

    def _binary(self, name: str, a: object, b: object) -> Any:
        return self._b.op1(name, [a, b], _SIZE)
