"""Derivatives that are not those of what is computed: rules of users, and of whole primitives.

An operation of torch cannot be given a derivative inside a graph. So the result is written as

    f(x') + L(m) (x - x')        where x' is x without its gradient, and m = (x + x') / 2

with the rule's linear map L. The second term is 0, its derivative is L(x), and the derivative of
that is L'(x), as L is taken half way: first and second derivatives are those of the rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from tracebridge._api.derivatives.vjp import linear_transpose, vjp
from tracebridge.core.dtypes.dtypes import is_extended, is_inexact
from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.errors.transform_errors import CustomRuleError
from tracebridge.core.interpreters.jvp import jvp_flat
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.traverse import all_jaxprs
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.torch._aten.builder import Builder, aten, rule

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.core.ir.value import Value

Evaluate = Callable[[Sequence[Any]], Any]


def has_tangent(aval: Any) -> bool:
    """Whether values have derivatives."""
    return not is_extended(aval.dtype) and is_inexact(aval.dtype)


def with_rule(
    b: Builder,
    app: Application,
    xs: Sequence[Any],
    evaluate: Evaluate,
    tangents: Any = None,
    fixed: int = 0,
) -> list[Any]:
    """The results of ``app`` at ``xs`` by ``evaluate``, with the derivative of its own rule.

    The first ``fixed`` operands have none: a rule of the user closed over them.
    """
    smooth = [i >= fixed and has_tangent(a) for i, a in enumerate(app.avals)]
    if b.in_tangents or not any(smooth):
        return list(evaluate(xs))
    still = [b.call(aten.detach.default, x) if s else x for x, s in zip(xs, smooth, strict=True)]
    moves = [_move(b, x, y) for x, y, s in zip(xs, still, smooth, strict=True) if s]
    outs = list(evaluate(still))
    jaxpr = (tangents or _forward)(app, smooth)
    steps = iter(_steady(b, app, jaxpr, smooth, still, moves))
    middle = [
        b.call(aten.add.Tensor, y, next(steps), alpha=0.5) if s else y
        for y, s in zip(still, smooth, strict=True)
    ]
    b.in_tangents = True
    try:
        changes = iter(b.inline(jaxpr, [*middle, *moves]))
    finally:
        b.in_tangents = False
    return [
        _moved(b, out, next(changes)) if has_tangent(a) else out
        for out, a in zip(outs, app.outs, strict=True)
    ]


def _steady(
    b: Builder,
    app: Application,
    jaxpr: Jaxpr,
    smooth: Sequence[bool],
    still: Sequence[Any],
    moves: Sequence[Any],
) -> Sequence[Any]:
    """The moves on which ``m`` depends: not those by which ``L(m)`` has no finite derivative.

    A rule that guards a place, as ``where(x == 0, 0, f(x))``, gives finite first derivatives where
    those of the guarded part are NaN, and NaN times the zero ``x - x'`` would reach them. There
    second derivatives are 0.
    """
    n = len(app.avals)
    guards = {"select_n", "custom_jvp_call", "custom_vjp_call"}
    if not guards & {eqn[0].primitive.name for j in all_jaxprs(jaxpr) for eqn in j.equations}:
        return moves

    def fun(*values: Any) -> list[Any]:
        def run(*points: Any) -> list[Any]:
            given = iter(points)
            xs = [next(given) if s else v for v, s in zip(values[:n], smooth, strict=True)]
            return eval_jaxpr(jaxpr, current_trace().process, [*map(as_value, xs), *values[n:]])

        outs, pull = vjp(run, *_of(values[:n], smooth))
        return list(pull([full_of(o.aval, 1) for o in outs]))

    try:
        slopes_of = stage(fun, [*app.avals, *_of(app.avals, smooth)], locate=False)
    except TracebridgeError:  # the rule has no derivative at all
        return moves
    b.in_tangents = True
    try:
        zeros = [b.call(aten.detach.default, m) for m in moves]
        slopes = b.inline(slopes_of, [*still, *zeros])
    finally:
        b.in_tangents = False
    return [
        b.call(aten.where.ScalarOther, b.call(aten.eq.Scalar, slope, 0), move, 0.0)
        for slope, move in zip(slopes, moves, strict=True)
    ]


def _move(b: Builder, x: fx.Proxy, still: fx.Proxy) -> Any:
    """The zero ``x - still``; of infinities, too, which would reach all that depends on them."""
    is_finite = b.call(aten.lt.Scalar, b.call(aten.abs.default, still), math.inf)
    return b.call(aten.where.ScalarOther, is_finite, b.call(aten.sub.Tensor, x, still), 0.0)


def _moved(b: Builder, out: fx.Proxy, change: fx.Proxy) -> Any:
    """``out + change``, where the change is the zero that it should be; an infinity is none."""
    is_zero = b.call(aten.eq.Scalar, change, 0)
    moved = b.call(aten.add.Tensor, out, change)
    return b.call(aten.where.self, is_zero, moved, out)


def _forward(app: Application, smooth: Sequence[bool]) -> Jaxpr:
    """Operands and their tangents -> tangents of the results, by the jvp rule."""
    n = len(app.avals)

    def run(*xs: Value) -> list[Any]:
        out = app.primitive.bind(*xs, **app.params)
        return list(out) if app.multiple else [out]

    def fun(*values: Any) -> list[Any]:
        moving = iter(values[n:])
        tangents = [next(moving) if s else None for s in smooth]
        outs, changes = jvp_flat(run, list(values[:n]), tangents)
        return [
            zeros_of(o.aval) if t is None else t
            for o, t in zip(outs, changes, strict=True)
            if has_tangent(o.aval)
        ]

    return stage(fun, [*app.avals, *_of(app.avals, smooth)], locate=False)


def _of(avals: Sequence[Any], smooth: Sequence[bool]) -> list[Any]:
    return [a for a, s in zip(avals, smooth, strict=True) if s]


def _backward(app: Application, smooth: Sequence[bool]) -> Jaxpr:
    """The same of a vjp rule: the backward rule is linear in cotangents, and is transposed."""
    n = len(app.avals)

    def fun(*values: Any) -> list[Any]:
        def run(*moving: Any) -> list[Any]:
            given = iter(moving)
            xs = [next(given) if s else v for v, s in zip(values[:n], smooth, strict=True)]
            outs = app.primitive.bind(*map(as_value, xs), **app.params)
            return [o for o, a in zip(outs, app.outs, strict=True) if has_tangent(a)]

        outs, pull = vjp(run, *_of(values[:n], smooth))
        return linear_transpose(pull, outs)(tuple(values[n:]))[0]

    return stage(fun, [*app.avals, *_of(app.avals, smooth)], locate=False)


def _linear_backward(app: Application, smooth: Sequence[bool]) -> Jaxpr:
    try:
        return _backward(app, smooth)
    except TracebridgeError as error:
        name = app.params["call_jaxpr"].debug.name
        msg = (
            f"to_graph_module: the backward rule of {name} is not linear in the cotangents, or "
            "has no transpose: torch's graphs have no place for it"
        )
        raise CustomRuleError(
            msg,
            hint="use tracebridge.torch.wrap, which keeps any rule; or write the function without "
            "custom_vjp, to be differentiated by torch",
        ) from error


@rule("custom_jvp_call")
def _custom_jvp(
    b: Builder, *xs: fx.Proxy, call_jaxpr: Jaxpr, num_consts: int = 0, **_: object
) -> list[Any]:
    def run(values: Sequence[Any]) -> list[Any]:
        return b.inline(call_jaxpr, values)

    if call_jaxpr.debug.name in _AS_COMPUTED:
        return run(xs)
    return with_rule(b, b.app, xs, run, fixed=num_consts)


@rule("custom_vjp_call")
def _custom_vjp(
    b: Builder, *xs: fx.Proxy, call_jaxpr: Jaxpr, num_consts: int = 0, **_: object
) -> Any:
    def run(values: Sequence[Any]) -> list[Any]:
        return b.inline(call_jaxpr, values)

    return with_rule(b, b.app, xs, run, _linear_backward, fixed=num_consts)


# Functions of ours whose rules only make the derivative cheaper: torch's is the same.
_AS_COMPUTED = ("_softmax", "_log_softmax", "softmax", "log_softmax")


@rule("custom_linear_solve")
def _custom_linear_solve(
    b: Builder, *xs: fx.Proxy, const_counts: Any, matvec: Jaxpr, solve: Jaxpr, **_: object
) -> list[Any]:
    """Two steps of refinement from the solution: they have its first and second derivatives.

    The residuals are zero, up to rounding, and their derivatives are those of the system.
    """
    counts = list(const_counts)
    of_matvec = xs[: counts[0]]
    of_solve = xs[sum(counts[:2]) : sum(counts[:3])]
    right = xs[sum(counts) :]
    solution = b.inline(solve, [*of_solve, *right])
    if b.in_tangents:
        return solution
    n = len(right)
    # Behind the solution there may be what else the solver tells.
    roots, more = [b.call(aten.detach.default, x) for x in solution[:n]], solution[n:]
    for _step in range(2):
        product = b.inline(matvec, [*of_matvec, *roots])
        rests = [b.call(aten.sub.Tensor, p, r) for p, r in zip(product, right, strict=True)]
        changes = b.inline(solve, [*of_solve, *rests])[:n]
        roots = [b.call(aten.sub.Tensor, x, c) for x, c in zip(roots, changes, strict=True)]
    return [*roots, *more]
