"""Programs of other libraries as parts of a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.errors.export_errors import ExportError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lowering.callbacks import emit_callback
from tracebridge.core.mlir.attrs import boolean, dictionary, i32, string
from tracebridge.core.mlir.types import tensor_type

if TYPE_CHECKING:
    from tracebridge.core.ir.rule_contexts import LoweringContext


class Read(NamedTuple):
    """Something that a program reads when it runs: ``function() -> [ndarray]`` of type ``aval``.

    ``name`` and ``hint`` are for the message where it cannot be read.
    """

    function: Callable[[], list[np.ndarray[Any, Any]]]
    aval: ShapedArray
    name: str
    hint: str


class Embedded(NamedTuple):
    """A module with a function ``main``, as bytecode or text.

    ``arguments`` of ``main``: positions among the operands, constants, or what is read.
    """

    source: bytes | str
    arguments: Sequence[int | np.ndarray[Any, Any] | Read]


class OfConsumer(NamedTuple):
    """A function that the consumer of an exported program has, for any sizes.

    ``arguments``: as of ``Embedded``, positions or constants.
    """

    function: Any
    arguments: Sequence[int | np.ndarray[Any, Any]]
    name: str


CONSUMER_TARGET = "tf.call_tf_function"


def call_embedded(
    ctx: LoweringContext, embedded: Embedded | OfConsumer, operands: Sequence[Any], name: str
) -> list[Any] | None:
    """Call ``main`` for the current equation; None if its types are others than expected.

    Raises:
        ExportError: it reads something while the program is to run in another process.
    """
    if isinstance(embedded, OfConsumer):
        return _call_of_consumer(ctx, embedded, operands)
    expected = (
        [_type_of(ctx, a) for a in embedded.arguments],
        [tensor_type(a) for a in ctx.avals_out],
    )
    symbol = _merged(ctx, embedded, expected, name)
    if symbol is None:
        return None
    given = [_argument(ctx, a, operands) for a in embedded.arguments]
    return list(
        ctx.create(
            "func.call",
            results=expected[1],
            operands=given,
            attributes={"callee": mlir.ir.FlatSymbolRefAttr.get(symbol)},
        ).results
    )


def _call_of_consumer(
    ctx: LoweringContext, embedded: OfConsumer, operands: Sequence[Any]
) -> list[Any]:
    """A custom call, which the consumer replaces when it knows all sizes."""
    if ctx.platform != "portable":
        msg = f"{embedded.name}: called at sizes that are not known, in a program that is no export"
        raise ExportError(msg, hint="call it at known sizes, or in a function of tf.to_tf")
    ir = mlir.ir
    ctx.keepalives.append(embedded)
    index = sum([type(k) is OfConsumer for k in ctx.keepalives]) - 1
    given = [_argument(ctx, a, operands) for a in embedded.arguments]
    places = np.arange(len(given), len(given) + len(ctx.avals_out))
    given += [ctx.shape_tensor(a.shape) for a in ctx.avals_out]
    return list(
        ctx.create(
            "stablehlo.custom_call",
            results=[tensor_type(a) for a in ctx.avals_out],
            operands=given,
            attributes={
                "call_target_name": string(CONSUMER_TARGET),
                "has_side_effect": boolean(False),
                "api_version": i32(2),
                "tf.backend_config": dictionary(
                    {
                        "called_index": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), index),
                        "has_token_input_output": boolean(False),
                    }
                ),
                "indices_of_shape_operands": ir.DenseIntElementsAttr.get(places.astype(np.int64)),
            },
        ).results
    )


def _type_of(ctx: LoweringContext, argument: Any) -> Any:
    if type(argument) is int:
        return tensor_type(ctx.avals_in[argument])
    if isinstance(argument, Read):
        return tensor_type(argument.aval)
    return tensor_type(ShapedArray(argument.shape, argument.dtype))


def _argument(ctx: LoweringContext, argument: Any, operands: Sequence[Any]) -> Any:
    if type(argument) is int:
        return operands[argument]
    if not isinstance(argument, Read):
        return ctx.dense(argument)
    if ctx.platform == "portable":
        msg = f"{argument.name}, which an exported program does not have"
        raise ExportError(msg, hint=argument.hint)
    outer = ctx.avals_in, ctx.avals_out
    ctx.avals_in, ctx.avals_out = (), (argument.aval,)
    (value,) = emit_callback(ctx, argument.function, [], None, argument.name)
    ctx.avals_in, ctx.avals_out = outer
    return value


def _merged(
    ctx: LoweringContext, embedded: Embedded, expected: tuple[list[Any], list[Any]], name: str
) -> str | None:
    """The symbol of ``main`` among the functions of the module, which has it once."""
    ir = mlir.ir
    key = ("embedded", embedded.source)
    found = ctx.merged.get(key)
    if found is not None:
        return found
    source = mlir.parse_module(embedded.source, ctx.module.context)
    functions = [op for op in source.body.operations if op.operation.name == "func.func"]
    names = [ir.StringAttr(f.attributes["sym_name"]).value for f in functions]
    main = functions[names.index("main")]
    own = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    if (list(own.inputs), list(own.results)) != expected:
        return None
    for old in names:
        new = ctx.unique_name(f"{name}_{old}")
        while new in names:
            new = ctx.unique_name(f"{name}_{old}")
        ir.SymbolTable.replace_all_symbol_uses(old, new, source.operation)
        function = functions[names.index(old)]
        function.attributes["sym_name"] = string(new)
        function.attributes["sym_visibility"] = string("private")
        _without_copies(function)
        ctx.module.body.append(function)
        if old == "main":
            ctx.merged[key] = new
    return ctx.merged[key]


def _without_copies(function: Any) -> None:
    """Drop ``mhlo.copy``, which means nothing here and is no StableHLO."""
    copies: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == "mhlo.copy":
            copies.append(operation)
        return mlir.ir.WalkResult.ADVANCE

    function.operation.walk(visit)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()
