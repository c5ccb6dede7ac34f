"""closure_convert: what a function closes over becomes arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracebridge.core.control.calls.bodies import flatten_values
from tracebridge.core.control.calls.carry import unchanged
from tracebridge.core.control.calls.inline_rules import has_tangent
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import DebugInfo, name_of, where_is
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import flatten


def closure_convert(
    fun: Callable[..., object], *example_args: object
) -> tuple[Callable[..., Any], list[Any]]:
    """Turn the differentiated values that a function closes over into arguments.

    Functions with rules of their own are not differentiated with respect to values that they close
    over. A function that takes another function as an argument converts it first, and passes the
    values on.

    Args:
        fun: the function; it is traced once.
        *example_args: arguments, of which structures, shapes and dtypes matter.

    Returns:
        A function ``(*args, *values)`` without closure, and the list of values.

    Raises:
        ArgumentSpecError: ``fun`` is no function.
        TreeMismatchError: at a call: the arguments differ in structure from the examples.

    >>> import tracebridge as tb
    >>> def slope(y):
    ...     converted, values = tb.closure_convert(lambda x: x * y, 2.0)
    ...     return converted(2.0, *[10.0 * v for v in values])
    >>> print(tb.grad(slope)(3.0))
    20.0
    """
    if not callable(fun):
        msg = f"closure_convert: fun is {fun!r} of type {type(fun).__name__}, expected a function"
        raise ArgumentSpecError(msg)
    values, in_tree = flatten_values("closure_convert", "example_args", example_args)
    trees: list[Any] = []

    def flat(*leaves: object) -> list[Any]:
        result = fun(*in_tree.unflatten(leaves))
        outs, out_tree = flatten_values("closure_convert", "the result", result)
        trees.append(out_tree)
        return outs

    debug = DebugInfo(name_of(fun), where_is(fun))
    jaxpr = stage(flat, [v.aval for v in values], debug)
    moved = [isinstance(c, Tracer) and has_tangent(c.aval) for c in jaxpr.consts]
    hoisted = [c for c, m in zip(jaxpr.consts, moved, strict=True) if m]
    n = len(example_args)

    def converted(*args: object) -> Any:
        user_args, closed_values = args[:n], list(args[n:])
        leaves, tree = flatten(user_args)
        if tree != in_tree or len(closed_values) != len(hoisted):
            msg = f"closure_convert({name_of(fun)}): the arguments differ from the examples"
            raise TreeMismatchError(
                msg,
                got=f"{tree} and {len(closed_values)} values",
                expected=f"{in_tree} and {len(hoisted)} values",
            )
        values = iter(closed_values)
        consts = [
            as_value(next(values)) if m else c for c, m in zip(jaxpr.consts, moved, strict=True)
        ]
        env: list[Any] = [*[as_value(leaf) for leaf in leaves], *consts]
        return trees[0].unflatten(_run(jaxpr, env))

    return converted, hoisted


def _run(jaxpr: Jaxpr, env: list[Any]) -> list[Any]:
    """The results of ``jaxpr``, where ``env`` holds its inputs and values for its constants."""
    process = current_trace().process
    for app, idx in jaxpr.equations:
        result = process(app, [env[i] for i in idx])
        if app.multiple:
            env.extend(result)
        else:
            env.append(result)
    return unchanged([env[s] for s in jaxpr.outs])
