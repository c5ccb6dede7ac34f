"""Calls of functions with rules of their own where both are functions of flat values.

That is how interpreters that users write hand such calls on: the primitive is bound to the
functions themselves (objects with a method ``call_wrapped``) instead of to a traced call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tracebridge.core.control.custom.custom_vjp_call import VjpCall
from tracebridge.core.errors.argument_errors import ArgumentTypeError, kind_of
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.tree.tree import PyTreeDef, flatten

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.value import Value


def split_functions(
    name: str, count: int, args: Sequence[Value], params: Params
) -> tuple[list[Any], list[Any]]:
    """The functions, first among the arguments or the parameter ``subfuns``, and the values."""
    given = params.get("subfuns")
    every = list(args) if given is None else [*given, *args]
    functions, values = every[:count], every[count:]
    if len(functions) != count or not all([hasattr(f, "call_wrapped") for f in functions]):
        _raise_not_functions(name, count, functions)
    return functions, values


def _raise_not_functions(name: str, count: int, functions: Sequence[object]) -> NoReturn:
    raise ArgumentTypeError(
        f"{name}.bind: there is no call_jaxpr among the parameters",
        got=", ".join([kind_of(f) for f in functions]),
        expected=f"{count} functions that extend.linear_util.wrap_init gives, then the values",
    )


def flat_structure(count: int) -> PyTreeDef:
    """The structure of ``count`` arguments without structure."""
    return flatten(tuple(range(count)))[1]


def flat_function(fun: Any) -> Callable[..., list[Any]]:
    """The function that a wrapped function is; its results become a list."""
    return lambda *args: list(fun.call_wrapped(*args))


def flat_jvp_rule(jvp: Any) -> Callable[..., Any]:
    """The rule of two tuples for a function of arguments and tangents in one row."""

    def rule(
        primals: Sequence[Value], tangents: Sequence[Value | None]
    ) -> tuple[list[Any], list[Any]]:
        outs = list(jvp.call_wrapped(*primals, *tangents))
        half = len(outs) // 2
        return outs[:half], outs[half:]

    return rule


def flat_vjp_call(
    functions: Sequence[Any], count: int, out_trees: Any, symbolic_zeros: bool
) -> VjpCall:
    """The call for functions in one row.

    ``fwd`` maps arguments, each followed by a flag, to residuals and results; ``bwd`` maps
    residuals and cotangents to cotangents; ``out_trees()[0]`` is the structure of the results.
    """
    fun, fwd, bwd = functions

    def forward(*args: Any) -> tuple[list[Any], list[Any]]:
        pairs = [(a.value, a.perturbed) if symbolic_zeros else (a, True) for a in args]
        residuals_and_results = list(fwd.call_wrapped(*[x for pair in pairs for x in pair]))
        split = len(residuals_and_results) - out_trees()[0].num_leaves
        return residuals_and_results[split:], residuals_and_results[:split]

    def backward(residuals: Sequence[Any], cts: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(bwd.call_wrapped(*residuals, *cts))

    names = name_of(fun), name_of(fwd), name_of(bwd)
    tree = flat_structure(count)
    return VjpCall(flat_function(fun), forward, backward, tree, names, symbolic_zeros, fun, None)
