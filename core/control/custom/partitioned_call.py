"""Calls that a function of the user splits over devices.

What is propagated through such a call its rule says (`sharding.axis_rules`). When XLA knows how
operands and results are split, it asks for a program for one device: the function of the user gives
it, and it is lowered like the body of a shard_map over the whole mesh. On one device, inside of a
shard_map, and in derivatives and batches the call is what its function says.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

from tracebridge.core._jaxlib import mlir
from tracebridge.core._jaxlib.partitioning import TARGET, register_partitioner
from tracebridge.core._jaxlib.xla import HloSharding
from tracebridge.core.config.state import (
    enter_scope,
    leave_scope,
    outside_of_traces,
    with_axis,
)
from tracebridge.core.control.calls.closed_call import CallPrimitive, closed_call_p
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.shape_struct import ShapeDtypeStruct
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.mlir.attrs import boolean, i32, string
from tracebridge.core.mlir.context import borrowed
from tracebridge.core.mlir.types import tensor_type
from tracebridge.core.runtime.programs.spmd import named_from_hlo
from tracebridge.core.sharding.axis_rules import SdyShardingRule, parse_rule, rule_text
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.tree.tree import PyTreeDef, flatten

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value
    from tracebridge.core.sharding.mesh import Mesh

_API_VERSION = 2
_NUMBERS = itertools.count()
# number -> what is to be split: alive as long as a program that calls it
_CALLS: weakref.WeakValueDictionary[str, _Splitting] = weakref.WeakValueDictionary()


@final
class PartitionedFunction:
    """A function with its way to split it. Hashed by identity.

    ``partition(*statics, mesh, args, result)`` gives ``(mesh, function, result shardings,
    argument shardings)``, in trees. ``rule`` is None, a rule, or a function that gives one.
    """

    __slots__ = ("__weakref__", "in_tree", "name", "out_tree", "partition", "rule", "statics")

    def __init__(
        self,
        name: str,
        partition: Callable[..., Any],
        rule: Any,
        statics: tuple[Any, ...],
        in_tree: PyTreeDef,
        out_tree: PyTreeDef,
    ) -> None:
        self.name = name
        self.partition = partition
        self.rule = rule
        self.statics = statics
        self.in_tree = in_tree
        self.out_tree = out_tree

    def __repr__(self) -> str:
        return self.name

    def rule_for(self, mesh: Mesh, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        """The rule for operands and results of these types (of MLIR), or None."""
        rule = self.rule
        if callable(rule):
            rule = rule(*self.statics, mesh, list(operands), list(results))
            options: dict[str, Any] = {}
            if isinstance(rule, list | tuple) and len(rule) == 2:
                rule, options = rule
            rule = parse_rule(rule, **options) if isinstance(rule, str) else rule
            if not isinstance(rule, SdyShardingRule):
                kind = type(rule).__name__
                msg = f"custom_partitioning({self.name}): sharding_rule returned {kind}"
                raise ArgumentTypeError(msg, expected="a text, or an SdyShardingRule")
        return rule


class _Splitting:
    """A call in a program over a mesh: answers XLA."""

    __slots__ = ("__weakref__", "function", "mesh", "number", "out_avals", "platform")

    def __init__(
        self,
        function: PartitionedFunction,
        mesh: Mesh,
        out_avals: Sequence[ShapedArray],
        platform: str,
    ) -> None:
        self.function = function
        self.mesh = mesh
        self.out_avals = out_avals
        self.platform = platform
        self.number = str(next(_NUMBERS))
        _CALLS[self.number] = self

    def split(
        self, shapes: Sequence[Any], shardings: Sequence[Any], results: Any, result_sharding: Any
    ) -> Any:
        """Bytecode of the program for one device, and the shardings of operands and results."""
        several = results.is_tuple()
        out_shapes = list(results.tuple_shapes()) if several else [results]
        out_shardings = result_sharding.tuple_elements() if several else [result_sharding]
        call = self.function
        given = call.in_tree.unflatten(self._structs(shapes, shardings))
        wanted = call.out_tree.unflatten(self._structs(out_shapes, out_shardings))
        scope = enter_scope(outside_of_traces)
        try:
            mesh, fun, outs, ins = call.partition(*call.statics, self.mesh, given, wanted)
            in_places = self._places("argument", call.in_tree, ins)
            out_places = self._places("result", call.out_tree, outs)
            avals = _parts(shapes, in_places)
            jaxpr = self._traced(mesh, fun, avals)
            expected = _parts(out_shapes, out_places)
            found = [(a.shape, a.dtype) for a in jaxpr.out_avals]
            if found != [(a.shape, a.dtype) for a in expected]:
                texts = [[a.str_short() for a in avals] for avals in (jaxpr.out_avals, expected)]
                msg = f"custom_partitioning({call.name}): Mismatch in result shapes"
                raise ShapeMismatchError(
                    msg,
                    got=f"{texts[0]} from the function for one device",
                    expected=f"{texts[1]}, which the shardings of results say",
                )
            lowered = lower_module(
                jaxpr,
                "part",
                self.platform,
                keep_unused=True,
                embed_constants=True,
                axis_env=mesh.shape_tuple,
                n_replicas=1,
                mesh=mesh,
                manual=True,
            )
        finally:
            leave_scope(scope)
        hlo_ins = [p.hlo(len(s.dimensions())) for p, s in zip(in_places, shapes, strict=True)]
        hlo_outs = [p.hlo(len(s.dimensions())) for p, s in zip(out_places, out_shapes, strict=True)]
        whole = HloSharding.tuple_sharding(results, hlo_outs) if several else hlo_outs[0]
        return mlir.module_to_bytecode(lowered.module), hlo_ins, whole

    def _traced(self, mesh: Mesh, fun: Callable[..., Any], avals: Sequence[ShapedArray]) -> Any:
        changes = [enter_scope(with_axis, name, size) for name, size in mesh.shape_tuple]
        try:
            return stage(lambda *xs: flatten(fun(*self.function.in_tree.unflatten(xs)))[0], avals)
        finally:
            for change in reversed(changes):
                leave_scope(change)

    def _structs(self, shapes: Sequence[Any], shardings: Sequence[Any]) -> list[ShapeDtypeStruct]:
        found: list[ShapeDtypeStruct] = []
        for shape, sharding in zip(shapes, shardings, strict=True):
            dims = tuple(shape.dimensions())
            place: Any = named_from_hlo(sharding, self.mesh, len(dims))
            if place is None:
                place = NamedSharding(self.mesh, PartitionSpec())
            spec = (*place.spec, *[None] * len(dims))[: len(dims)]
            place = NamedSharding(self.mesh, PartitionSpec(*spec))
            found.append(ShapeDtypeStruct(dims, shape.numpy_dtype(), sharding=place))
        return found

    def _places(self, what: str, tree: PyTreeDef, shardings: object) -> list[NamedSharding]:
        places: list[Any] = list(tree.flatten_up_to(shardings))
        for place in places:
            if not isinstance(place, NamedSharding):
                kind = type(place).__name__
                msg = f"custom_partitioning({self.function.name}): partition gave {kind} as the "
                raise ArgumentTypeError(f"{msg}sharding of a {what}", expected="a NamedSharding")
        return places


def _parts(shapes: Sequence[Any], places: Sequence[NamedSharding]) -> list[ShapedArray]:
    """Types of the parts that one device has."""
    return [
        ShapedArray(place.shard_shape(tuple(s.dimensions())), s.numpy_dtype())
        for s, place in zip(shapes, places, strict=True)
    ]


def _answer(shapes: Any, shardings: Any, results: Any, result_sharding: Any, text: bytes) -> Any:
    with borrowed():
        return _CALLS[text.decode()].split(shapes, shardings, results, result_sharding)


@final
class PartitionedCall(CallPrimitive):
    """Calls ``jaxpr``; ``function``, a PartitionedFunction, splits it over devices.

    Applications are not remembered: they hold functions of the user.
    """

    name = "custom_partitioning"
    inlinable = False
    holds_functions: ClassVar[bool] = True

    def bind(self, *args: Any, **params: Any) -> Any:
        values = [as_value(a) for a in args]
        app = self.application(tuple([v.aval for v in values]), params)
        return current_trace().process(app, values)

    def application(self, avals: tuple[ShapedArray, ...], params: Params) -> Application:
        return Application(self, avals, params)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        mesh: Any = ctx.mesh
        if mesh is None or mesh.size == 1 or len(ctx.manual) == len(mesh.axis_names):
            return super().lower(ctx, *operands, jaxpr=params["jaxpr"])
        register_partitioner(_answer)
        function: PartitionedFunction = params["function"]
        splitting = _Splitting(function, mesh, ctx.avals_out, ctx.platform)
        ctx.keepalives.append(splitting)
        types = [tensor_type(a) for a in ctx.avals_out]
        in_types = [tensor_type(a) for a in ctx.avals_in]
        attributes = {
            "call_target_name": string(TARGET),
            "has_side_effect": boolean(False),
            "api_version": i32(_API_VERSION),
            "backend_config": string(splitting.number),
        }
        rule = function.rule_for(mesh, in_types, types)
        if rule is not None:
            shapes = [[tuple(a.shape) for a in avals] for avals in (ctx.avals_in, ctx.avals_out)]
            attributes["sdy.sharding_rule"] = mlir.ir.Attribute.parse(rule_text(rule, *shapes))
        call = ctx.create(
            "stablehlo.custom_call", results=types, operands=list(operands), attributes=attributes
        )
        return list(call.results)

    # Derived programs are split by XLA: nobody says how else.

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return closed_call_p.jvp(primals, tangents, jaxpr=params["jaxpr"])

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        return closed_call_p.linearize(primals, tangents, jaxpr=params["jaxpr"])

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        return closed_call_p.transpose(ct, *args, jaxpr=params["jaxpr"])

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        return closed_call_p.batch(ctx, args, dims, jaxpr=params["jaxpr"])

    def split_by_known(
        self, unknown: tuple[bool, ...], args: Sequence[Value], **params: Any
    ) -> list[Any]:
        return closed_call_p.split_by_known(unknown, args, jaxpr=params["jaxpr"])

    def dce(
        self, used_outs: tuple[bool, ...], app: Application
    ) -> tuple[Any, list[bool], list[bool]]:
        """The call is one thing."""
        del used_outs
        return app, [True] * len(app.avals), [True] * len(app.outs)


partitioned_call_p = PartitionedCall()
