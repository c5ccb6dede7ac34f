"""composite: a part of a program that compilers may know by a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib import mlir
from tracebridge.core.control.calls.bodies import flatten_values, trace_body
from tracebridge.core.control.calls.closed_call import CallPrimitive, closed_call_p
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.mlir.attrs import array, boolean, dictionary, i32, i64, string
from tracebridge.core.mlir.constants import dense_attr
from tracebridge.core.mlir.types import element_type, is_static, tensor_type
from tracebridge.core.runtime.arrays.array import Array

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.value import Value


_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*([.][a-zA-Z0-9_$]+)+")


@final
class Composite(CallPrimitive):
    """Calls its Jaxpr, and says what it computes.

    What is derived from it (derivatives) computes something else: that is a plain call.
    """

    name = "composite"

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        jaxpr: Jaxpr = params["jaxpr"]
        name = params["name"]
        static = all(map(is_static, (*jaxpr.in_avals, *jaxpr.out_avals)))
        if jaxpr.effects or ctx.dims_by_name() or not static:
            # The function takes tokens, sizes or the number of the platform besides the operands.
            return ctx.call_jaxpr(jaxpr, operands, name)
        attributes = {key: _attribute(value) for key, value in params["attributes"]}
        operation = ctx.create(
            "stablehlo.composite",
            results=[tensor_type(a) for a in jaxpr.out_avals],
            operands=operands,
            attributes={
                "name": string(name),
                "decomposition": mlir.ir.FlatSymbolRefAttr.get(ctx.function_of(jaxpr, name)),
                "version": i32(params["version"]),
                "composite_attributes": dictionary(attributes),
            },
        )
        return list(operation.results)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return closed_call_p.jvp(primals, tangents, jaxpr=params["jaxpr"])

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """As the call of its Jaxpr."""
        return closed_call_p.linearize(primals, tangents, jaxpr=params["jaxpr"])

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        return closed_call_p.transpose(ct, *args, jaxpr=params["jaxpr"])

    def split_by_known(
        self, unknown: tuple[bool, ...], args: Sequence[Value], **params: Any
    ) -> list[Any]:
        """As the call of its Jaxpr."""
        return closed_call_p.split_by_known(unknown, args, jaxpr=params["jaxpr"])

    def unknown_outs(self, unknown: tuple[bool, ...], **params: Any) -> Sequence[bool]:
        """All of them: a composite is not split."""
        return (any(unknown),) * len(params["jaxpr"].outs)

    def dce(
        self, used_outs: tuple[bool, ...], app: Application
    ) -> tuple[Any, list[bool], list[bool]]:
        """All or nothing: a composite has the results that its name promises."""
        return app, [True] * len(app.avals), [True] * len(used_outs)


composite_p = Composite()


def composite(
    decomposition: Callable[..., object], name: str, version: int = 0
) -> Callable[..., Any]:
    """A function that compilers may replace by an operation of their own that has this name.

    Those that do not know the name compile the decomposition. Derivatives are those of the
    decomposition. Programs of unknown sizes or for several platforms call the decomposition.

    Args:
        decomposition: function of arrays and trees of arrays that says what the result is.
        name: a name with a dot, such as ``"my.tangent"``.
        version: to be raised when the meaning changes.

    Returns:
        A function of the positional arguments of ``decomposition``. Its keyword arguments are
        attributes of the operation (numbers, strings, arrays of numbers, and sequences and dicts
        of them), which the decomposition gets as well; those that are None are left out.

    Raises:
        ArgumentTypeError: ``decomposition`` is no function.
        ArgumentValueError: the name has no dot, or other characters than letters, digits and
            underscores.

    >>> import tracebridge as tb
    >>> tangent = tb.lax.composite(lambda x: tb.lax.sin(x) / tb.lax.cos(x), "my.tangent")
    >>> print(tangent(0.0))
    0.0
    >>> 'stablehlo.composite "my.tangent"' in tb.jit(tangent).lower(0.0).as_text()
    True
    """
    if not callable(decomposition):
        msg = f"composite: decomposition is {decomposition!r}, expected a function"
        raise ArgumentTypeError(msg)
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
        msg = f"composite: name is {name!r}, expected a name with a dot, such as 'my.tangent'"
        raise ArgumentValueError(msg)

    @api_boundary
    def apply(*args: Any, **kwargs: Any) -> Any:
        attributes = tuple([(k, _frozen(v)) for k, v in sorted(kwargs.items()) if v is not None])
        values, in_tree = flatten_values(f"composite {name}", "the arguments", args)

        def take_apart(result: object) -> tuple[list[Any], Any]:
            leaves, tree = flatten_values(f"composite {name}", "the result", result)
            return leaves, tree

        body = trace_body(
            f"composite {name}",
            decomposition,
            in_tree,
            tuple([v.aval for v in values]),
            take_apart,
            ("composite", name, attributes, tuple(sorted(kwargs))),
            lambda fun, *xs: fun(*xs, **kwargs),
        )
        outs = composite_p.bind(
            *body.hoisted,
            *values,
            jaxpr=body.jaxpr,
            name=name,
            attributes=attributes,
            version=version,
        )
        return body.out.unflatten(outs)

    return apply


@final
class ArrayAttribute:
    """An array of numbers as a parameter: compared by its contents."""

    __slots__ = ("_key", "value")

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        self.value = value
        self._key = (value.shape, value.dtype, value.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayAttribute) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.value.tolist())


def _frozen(value: object) -> Any:
    """An attribute as a key that tells 1, 1.0 and True apart."""
    if isinstance(value, dict):
        return ("dict", tuple([(str(k), _frozen(v)) for k, v in value.items()]))
    if isinstance(value, list | tuple):
        return ("list", tuple([_frozen(v) for v in value]))
    if type(value) is Array:
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        return ("array", ArrayAttribute(value))
    if isinstance(value, bool | int | float | str | np.generic | np.dtype):
        return (type(value).__name__, value)
    msg = f"composite: got the attribute {value!r} of type {type(value).__name__}"
    raise ArgumentTypeError(
        msg, expected="numbers, strings, dtypes, arrays, and sequences and dicts of them"
    )


def _attribute(frozen: tuple[str, Any]) -> Any:
    kind, value = frozen
    ir = mlir.ir
    if kind == "dict":
        return dictionary({k: _attribute(v) for k, v in value})
    if kind == "list":
        return array([_attribute(v) for v in value])
    if kind == "array":
        return dense_attr(value.value)
    if isinstance(value, bool | np.bool_):
        return boolean(bool(value))
    if isinstance(value, str):
        return string(value)
    if isinstance(value, np.dtype):
        return ir.TypeAttr.get(element_type(value))
    if isinstance(value, np.integer):
        return ir.IntegerAttr.get(element_type(value.dtype), int(value))
    if isinstance(value, np.generic):
        return ir.FloatAttr.get(element_type(value.dtype), float(value))
    return i64(value) if isinstance(value, int) else ir.FloatAttr.get(ir.F64Type.get(), value)
