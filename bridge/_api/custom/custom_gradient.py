"""custom_gradient: a function that returns its result together with its backward rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, final

import numpy as np

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.wraps import named_like
from tracebridge._api.custom.custom_vjp import custom_vjp
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.transform_errors import CustomRuleError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import DebugInfo, name_of, where_is
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value, typeof
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.tree.tree import PyTreeDef, flatten

P = ParamSpec("P")
R = TypeVar("R")


@final
class _TracedRule:
    """A backward rule as a tree of residuals: the values that it closed over, and its program."""

    __slots__ = ("jaxpr", "out_tree", "values")

    def __init__(self, values: Any, jaxpr: Jaxpr, out_tree: PyTreeDef) -> None:
        self.values = values
        self.jaxpr = jaxpr
        self.out_tree = out_tree


register_pytree_node(
    _TracedRule,
    lambda rule: (tuple(rule.values), (rule.jaxpr, rule.out_tree)),
    lambda aux, values: _TracedRule(tuple(values), *aux),
)


def custom_gradient(fun: Callable[P, tuple[R, Callable[..., Any]]]) -> Callable[P, R]:
    """Set up a function that says its own gradient, in the way of tf.custom_gradient.

    Args:
        fun: ``(*args)`` gives ``(result, rule)``, where ``rule(cotangent of the result)`` gives
            the cotangents of the arguments: a tuple, or one tree for a single argument. The rule
            may close over values of the call.

    Returns:
        The function of the result alone. Like ``custom_vjp`` functions it has no forward mode.

    >>> import tracebridge as tb
    >>> @tb.custom_gradient
    ... def f(x):
    ...     return x ** 2, lambda ct: ct * 100.0 * x
    >>> print(f(3.0), tb.grad(f)(3.0))
    9.0 300.0
    """
    check_callable("custom_gradient", fun)
    name = name_of(fun)

    def result_of(*args: Any, **kwargs: Any) -> Any:
        return _pair(name, fun(*args, **kwargs))[0]

    def fwd(*args: Any, **kwargs: Any) -> Any:
        result, rule = _pair(name, fun(*args, **kwargs))
        leaves, tree = flatten(result)
        trees: list[PyTreeDef] = []

        tangents = [typeof(leaf).tangent for leaf in leaves]
        avals = [aval for aval in tangents if aval.dtype != float0]

        def flat(*cotangents: Any) -> list[Any]:
            # Cotangents of integers take no part in programs: the rule sees zeros of float0.
            given = iter(cotangents)
            cts = [
                np.zeros(a.shape, float0) if a.dtype == float0 else next(given) for a in tangents
            ]
            outs, out_tree = flatten(rule(tree.unflatten(cts)))
            trees.append(out_tree)
            return [as_value(o) for o in outs]

        debug = DebugInfo(f"rule of {name}", where_is(rule))
        values: list[Any] = []
        jaxpr = stage(flat, avals, debug, hoisted=values)
        return result, _TracedRule(values, jaxpr, trees[0])

    def bwd(rule: _TracedRule, ct: Any) -> Any:
        leaves = flatten(ct)[0]
        cotangents = [as_value(c) for c in leaves if getattr(c, "dtype", None) != float0]
        outs = eval_jaxpr(rule.jaxpr, current_trace().process, [*rule.values, *cotangents])
        result = rule.out_tree.unflatten(outs)
        return result if isinstance(result, tuple) else (result,)

    wrapped = custom_vjp(named_like(fun)(result_of))
    wrapped.defvjp(named_like(fun)(fwd), bwd)
    return wrapped


def _pair(name: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2 or not callable(result[1]):
        msg = f"{name}: a custom_gradient function returned {kind_of(result)}"
        raise CustomRuleError(msg, expected="a pair (result, rule), where the rule is a function")
    return result[0], result[1]
