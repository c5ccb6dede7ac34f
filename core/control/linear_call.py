"""linear_call: a linear function whose transpose is given by the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from tracebridge.core.control.bodies import flatten_values, trace_body
from tracebridge.core.control.inline_rules import describe
from tracebridge.core.control.rewire import rewire
from tracebridge.core.errors.transform_errors import ArgumentSpecError, CustomRuleError
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import HigherOrderPrimitive, is_linear_input
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import to_front
from tracebridge.core.tree.tree import flatten


@final
class LinearCall(HigherOrderPrimitive):
    """``jaxpr``: (residuals, linear arguments) -> results, linear in the latter.

    ``back``: (residuals, cotangents of the results) -> cotangents of the linear arguments.
    """

    name = "linear_call"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        return list(params["jaxpr"].out_avals)

    def lower(self, ctx: Any, *operands: Any, **params: Any) -> Any:
        return ctx.inline_jaxpr(params["jaxpr"], operands)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        n = params["num_res"]
        if any([t is not None for t in tangents[:n]]):
            msg = "linear_call: a residual is differentiated; only linear arguments can be"
            raise CustomRuleError(msg, hint="pass residuals through lax.stop_gradient")
        given = [
            zeros_of(p.aval.tangent) if t is None else t
            for p, t in zip(primals[n:], tangents[n:], strict=True)
        ]
        outs = self.bind(*primals, **params)
        return outs, self.bind(*primals[:n], *given, **params)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        n, jaxpr, back = params["num_res"], params["jaxpr"], params["back"]
        if any([is_linear_input(a) for a in args[:n]]):
            msg = "linear_call: transposed with respect to a residual"
            raise CustomRuleError(msg)
        cts = [zeros_of(a) if c is None else c for c, a in zip(ct, jaxpr.out_avals, strict=True)]
        results = self.bind(*args[:n], *cts, jaxpr=back, back=jaxpr, num_res=n)
        pairs = zip(args[n:], results, strict=True)
        return [*[None] * n, *[r if is_linear_input(a) else None for a, r in pairs]]

    def batch(
        self, ctx: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        n = params["num_res"]
        # All linear arguments are batched, so that the transpose gives batched ones.
        moved = [
            to_front(a, d, ctx.size) if i >= n or d is not None else a
            for i, (a, d) in enumerate(zip(args, dims, strict=True))
        ]
        res = tuple([None if d is None else 0 for d in dims[:n]])
        size, axis = ctx.size, ctx.axis_name
        n_linear, n_out = len(args) - n, len(params["jaxpr"].outs)
        jaxpr, _ = batch_jaxpr(params["jaxpr"], size, axis, (*res, *[0] * n_linear), True)
        back, _ = batch_jaxpr(params["back"], size, axis, (*res, *[0] * n_out), True)
        return self.bind(*moved, jaxpr=jaxpr, back=back, num_res=n), [0] * n_out


linear_call_p = LinearCall()


def linear_call(
    fun: Callable[..., Any], fun_transpose: Callable[..., Any], residual_args: Any, linear_args: Any
) -> Any:
    """Call a linear function and say what its transpose is.

    Args:
        fun: ``(residual_args, linear_args) -> result``, linear in the second argument.
        fun_transpose: ``(residual_args, cotangent of the result) -> cotangent of linear_args``.
        residual_args: tree of arrays that are not differentiated.
        linear_args: tree of arrays.

    Returns:
        What ``fun`` returns.

    Raises:
        CustomRuleError: the transpose returns something of another type than ``linear_args``.
        ArgumentSpecError: ``fun`` or ``fun_transpose`` is no function.

    >>> import tracebridge as tb
    >>> def scale(k, x):
    ...     return tb.custom_derivatives.linear_call(
    ...         lambda k, x: x * k, lambda k, ct: ct * k * 10.0, k, x)
    >>> print(scale(3.0, 2.0), tb.vjp(lambda x: scale(3.0, x), 2.0)[1](1.0)[0])
    6.0 30.0
    """
    for role, f in (("fun", fun), ("fun_transpose", fun_transpose)):
        if not callable(f):
            msg = f"linear_call: {role} is {f!r} of type {type(f).__name__}, expected a function"
            raise ArgumentSpecError(msg)
    res, res_tree = flatten_values("linear_call", "residual_args", residual_args)
    linear, linear_tree = flatten_values("linear_call", "linear_args", linear_args)
    res_avals = tuple([r.aval for r in res])
    linear_avals = tuple([a.aval for a in linear])

    def take_apart(result: Any) -> tuple[list[Any], Any]:
        return flatten_values("linear_call", "the result", result)

    in_tree = flatten((residual_args, linear_args))[1]
    forward = trace_body(
        "linear_call", fun, in_tree, (*res_avals, *linear_avals), take_apart, "linear_call"
    )
    out_avals = tuple(forward.jaxpr.out_avals)
    example = res_tree.unflatten(res), forward.out.unflatten(out_avals)
    backward = trace_body(
        "linear_call",
        fun_transpose,
        flatten(example)[1],
        (*res_avals, *[a.tangent for a in out_avals]),
        take_apart,
        "linear_call transpose",
    )
    got = backward.jaxpr.out_avals
    same = backward.out == linear_tree and [(a.shape, a.dtype) for a in got] == [
        (a.shape, a.dtype) for a in linear_avals
    ]
    if not same:
        msg = (
            f"linear_call: fun_transpose {name_of(fun_transpose)} returned something of another "
            "type than linear_args"
        )
        raise CustomRuleError(
            msg, got=describe(backward.out, got), expected=describe(linear_tree, linear_avals)
        )
    consts = [*forward.hoisted, *backward.hoisted]
    n_forward = len(forward.hoisted)
    jaxpr = _with_consts(forward.jaxpr, consts, 0, n_forward)
    back = _with_consts(backward.jaxpr, consts, n_forward, len(consts))
    outs = linear_call_p.bind(
        *consts, *res, *linear, jaxpr=jaxpr, back=back, num_res=len(consts) + len(res)
    )
    return forward.out.unflatten(outs)


def _with_consts(jaxpr: Jaxpr, consts: Sequence[Any], start: int, stop: int) -> Jaxpr:
    """``jaxpr``, whose leading inputs are ``consts[start:stop]``, as one that takes all."""
    if not consts:
        return jaxpr
    n = stop - start
    order: list[Any] = [c.aval for c in consts]
    order[start:stop] = range(n)
    return rewire(jaxpr, [*order, *range(n, jaxpr.n_in)])
