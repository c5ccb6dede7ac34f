"""Annotations that compute nothing: names of values, and the memory that a value lives in."""

from __future__ import annotations

__all__ = ["stage", "stage_p"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.mlir.attrs import boolean, dictionary, string
from tracebridge.core.mlir.frontend import attach
from tracebridge.core.tree import tree

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


class Annotation(Primitive):
    """The identity on one operand; its parameter says something about the value."""

    cost = Cost.OTHER

    def abstract_eval(self, *avals: ShapedArray, **params: object) -> ShapedArray:
        return avals[0]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: object) -> Any:
        return operands[0]

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        """The annotation is about the value; its tangent is another one."""
        return self.bind(primals[0], **params), tangents[0]

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [ct]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        return self.bind(args[0], **params), dims[0]


@final
class Name(Annotation):
    """Gives a value a name (parameter ``name``) that policies of ``checkpoint`` refer to."""

    name = "name"
    makes_nan = False

    def evaluate(self, arrays: Sequence[object], **params: object) -> Any:
        """Outside traces there is nothing to do."""
        return arrays[0]


name_p = Name()


@final
class ToMemory(Annotation):
    """Moves a value to the memory of parameter ``kind``: "device" or a memory of the host.

    The CPU has one memory only, so that nothing moves inside of programs there.
    """

    name = "to_memory"
    makes_nan = False

    def result_memory(self, params: Params) -> str | None:
        """Parameter ``kind``."""
        return params["kind"]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        if ctx.platform == "cpu":
            return operands[0]
        attributes = {
            "call_target_name": string("annotate_device_placement"),
            "has_side_effect": boolean(True),
            "mhlo.frontend_attributes": dictionary(
                {"_xla_buffer_placement": string(params["kind"])}
            ),
        }
        return ctx.op1("stablehlo.custom_call", operands, ctx.aval_out, attributes)


to_memory_p = ToMemory()


@final
class OpAttributes(Annotation):
    """Lets the operation that makes the value have frontend attributes: (name, text) pairs."""

    name = "xla_metadata_value"
    makes_nan = False

    def evaluate(self, arrays: Sequence[object], **params: object) -> Any:
        """Outside traces there is nothing to do."""
        return arrays[0]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        maker: Any = operands[0]
        owner = maker.owner
        # The owner of an argument of a function is its block.
        if hasattr(owner, "attributes"):
            attach(owner, dict(params["attributes"]))
        return operands[0]

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        return [self.bind(ct, **params)]


op_attributes_p = OpAttributes()


@final
class Stage(Annotation):
    """Makes a constant a value of the trace."""

    name = "stage"

    def evaluate(self, arrays: Sequence[object], **params: object) -> Any:
        """Outside traces there is nothing to do."""
        return arrays[0]

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Any], **params: object) -> Any:
        return self.bind(primals[0]), self.bind(tangents[0])


stage_p = Stage()


def stage(x: Operand, /) -> Any:
    """``x`` as a value of the trace that is running; outside of traces as an array.

    Args:
        x: array or number.

    >>> import tracebridge as tb
    >>> str(tb.make_jaxpr(lambda: tb.lax.stage(1.0))().eqns[0].primitive)
    'stage'
    """
    return stage_p.bind(as_value(x))


def checkpoint_name(x: object, name: str) -> Any:
    """``x`` with a name by which policies of ``checkpoint`` can save it.

    Args:
        x: array, number, or a tree of them; every leaf gets the name.
        name: the name; several values may have the same one.

    Returns:
        A tree like ``x`` with the same values.

    Raises:
        TypeError: the name is no string.

    >>> import tracebridge as tb
    >>> from tracebridge.ad_checkpoint import checkpoint_name
    >>> policy = tb.checkpoint_policies.save_only_these_names("first")
    >>> @tb.checkpoint(policy=policy)
    ... def f(x):
    ...     return tb.lax.sin(checkpoint_name(tb.lax.sin(x), "first"))
    >>> print(tb.grad(f)(0.0))
    1.0
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
        msg = f"checkpoint_name: name is {name!r} of type {type(name).__name__}, expected a string"
        raise TypeError(msg)
    leaves, treedef = tree.checked_flatten(x)
    return tree.unflatten(treedef, [name_p.bind(as_value(leaf), name=name) for leaf in leaves])
