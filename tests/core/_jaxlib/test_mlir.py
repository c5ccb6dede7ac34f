"""Modules and tracebacks of jaxlib."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from tests.core._jaxlib.programs import ADD, build
from tracebridge.core._jaxlib import mlir, xla


def test_traceback_is_captured_without_a_switch() -> None:
    """The innermost frame first, as code objects with instruction offsets."""
    stored = xla.get_traceback()
    assert stored is not None
    codes, offsets = stored.raw_frames()

    assert codes[0] is test_traceback_is_captured_without_a_switch.__code__
    line = xla.Traceback.code_addr2line(codes[0], offsets[0])
    assert line == codes[0].co_firstlineno + 2


def test_traceback_keeps_no_locals() -> None:
    """A stored traceback does not keep arrays of its frames alive."""

    class Value:
        pass

    def inner() -> tuple[Any, weakref.ref[Any]]:
        value = Value()
        return xla.get_traceback(), weakref.ref(value)

    stored, ref = inner()
    gc.collect()

    assert stored is not None
    assert ref() is None


def test_traceback_becomes_an_mlir_location(context: Any) -> None:
    """`TracebackToLocationCache` names file and line of the captured frames."""
    stored = xla.get_traceback()
    cache = mlir.TracebackToLocationCache(lambda code: code.co_filename, 1, context)

    assert "test_mlir.py" in str(cache.get(stored))


def test_context_knows_our_dialects_only(context: Any) -> None:
    """StableHLO, CHLO, Shardy and func parse; nonsense does not; threading is off."""
    text = """
    module {
      func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
        %0 = chlo.erf_inv %x : tensor<4xf32> -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }
    """
    assert "chlo.erf_inv" in str(mlir.parse_module(text, context))
    assert not context.allow_unregistered_dialects
    with pytest.raises(mlir.ir.MLIRError):
        mlir.parse_module('module { "nonsense.op"() : () -> () }', context)


def test_operations_can_be_made_by_name(context: Any) -> None:
    """`ir.Operation.create` with explicit types and attributes, cloning, operand replacement."""
    ir = mlir.ir
    with context, ir.Location.unknown():
        module = ir.Module.create()
        f32x2 = ir.RankedTensorType.get([2], ir.F32Type.get())
        with ir.InsertionPoint(module.body):
            function = mlir.func.FuncOp("main", ir.FunctionType.get([f32x2, f32x2], [f32x2]))
        entry = function.add_entry_block()
        x, y = entry.arguments
        with ir.InsertionPoint(entry):
            add = ir.Operation.create("stablehlo.add", results=[f32x2], operands=[x, y])
            twin = add.clone()
            twin.operands[0] = add.result
            mlir.func.ReturnOp([twin.result])
        assert module.operation.verify()
        assert str(module).count("stablehlo.add") == 2


def test_portable_artifact_round_trip(context: Any) -> None:
    """Serialised for the oldest offered and the current version, read back equal."""
    module = mlir.parse_module(ADD.replace("ATTRS", ""), context)

    for target in (None, "1.0.0"):
        data = mlir.serialize_portable_artifact(module, target)
        assert str(module) == str(mlir.deserialize_portable_artifact(data, context))


def test_stablehlo_versions() -> None:
    """Three numbers, and the oldest is not newer than the current one."""
    oldest, current = (
        tuple(map(int, text.split(".")))
        for text in (mlir.minimum_version(), mlir.current_stablehlo_version())
    )
    assert len(oldest) == len(current) == 3
    assert oldest <= current


def test_hlo_to_stablehlo(client: xla.Client, context: Any) -> None:
    """The optimised HLO of a program converts back to StableHLO bytecode."""
    executable = build(client, context, ADD.replace("ATTRS", ""))
    proto = executable.hlo_modules()[0].as_serialized_hlo_module_proto()

    assert "stablehlo" in str(mlir.parse_module(mlir.hlo_to_stablehlo(proto), context))


def test_refine_polymorphic_shapes(context: Any) -> None:
    """A module with a dynamic inner dimension becomes static."""
    text = """
    module {
      func.func public @main(%x: tensor<4xf32>) -> tensor<?xf32> {
        %0 = call @inner(%x) : (tensor<4xf32>) -> tensor<?xf32>
        return %0 : tensor<?xf32>
      }
      func.func private @inner(%x: tensor<4xf32>) -> tensor<?xf32> {
        %0 = stablehlo.sine %x : tensor<4xf32>
        %1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<?xf32>
        return %1 : tensor<?xf32>
      }
    }
    """
    refined = mlir.refine_polymorphic_shapes(
        mlir.module_to_bytecode(mlir.parse_module(text, context))
    )

    assert "?" not in str(mlir.parse_module(refined, context))
