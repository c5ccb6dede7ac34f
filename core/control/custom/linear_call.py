"""linear_call: a linear function whose transpose is given by the user."""

from __future__ import annotations

import abc
import contextvars
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.bodies import (
    Body,
    closed_over_tracers,
    flatten_values,
    trace_body,
)
from tracebridge.core.control.calls.inline_rules import describe
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    ClosedOverValueError,
    CustomRuleError,
)
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import to_front
from tracebridge.core.tree.tree import PyTreeDef, flatten

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


# Transposes that are being traced: the code or the object of each.
_BEING_TRACED: contextvars.ContextVar[frozenset[Any]] = contextvars.ContextVar(
    "transposes being traced", default=frozenset()
)


@final
class LateTranspose:
    """The transpose of a call within the trace of the same transpose; traced when it is needed.

    ``jaxpr``: (residuals, cotangents of the results) -> cotangents of the linear arguments.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Jaxpr]) -> None:
        self._make = make
        self._made: Jaxpr | None = None

    @property
    def jaxpr(self) -> Jaxpr:
        """The transpose."""
        if self._made is None:
            self._made = self._make()
        return self._made


@final
class BatchedTranspose:
    """A late transpose of a batched call."""

    __slots__ = ("_base", "_batch")

    def __init__(self, base: Any, batch: Callable[[Jaxpr], Jaxpr]) -> None:
        self._base = base
        self._batch = batch

    @property
    def jaxpr(self) -> Jaxpr:
        """As ``LateTranspose.jaxpr``."""
        return self._batch(self._base.jaxpr)


class CallWithTranspose(HigherOrderPrimitive):
    """``jaxpr``: (residuals, linear arguments) -> results, linear in the latter.

    ``back``: (residuals, cotangents of the results) -> cotangents of the linear arguments, or an
    object with that ``jaxpr``.
    """

    holds_functions = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        return list(params["jaxpr"].out_avals)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.inline_jaxpr(params["jaxpr"], operands)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
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

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        n, jaxpr, back = params["num_res"], params["jaxpr"], params["back"]
        if any([is_linear_input(a) for a in args[:n]]):
            msg = "linear_call: transposed with respect to a residual"
            raise CustomRuleError(msg)
        cts = [zeros_of(a) if c is None else c for c, a in zip(ct, jaxpr.out_avals, strict=True)]
        back = back if isinstance(back, Jaxpr) else back.jaxpr
        results = self.call_back(jaxpr, back, n, [*args[:n], *cts])
        pairs = zip(args[n:], results, strict=True)
        return [*[None] * n, *[r if is_linear_input(a) else None for a, r in pairs]]

    @abc.abstractmethod
    def call_back(
        self, jaxpr: Jaxpr, back: Jaxpr, num_res: int, args: Sequence[Value]
    ) -> list[Any]:
        """Run the transpose on residuals and cotangents."""

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        n = params["num_res"]
        # All linear arguments are batched, so that the transpose gives batched ones.
        moved = [
            to_front(a, d, ctx.size) if i >= n or d is not None else a
            for i, (a, d) in enumerate(zip(args, dims, strict=True))
        ]
        res = tuple([None if d is None else 0 for d in dims[:n]])
        size, axis = ctx.size, ctx.axis
        n_linear, n_out = len(args) - n, len(params["jaxpr"].outs)
        jaxpr, _ = batch_jaxpr(params["jaxpr"], size, axis, (*res, *[0] * n_linear), True)

        def batch_back(back: Jaxpr) -> Jaxpr:
            return batch_jaxpr(back, size, axis, (*res, *[0] * n_out), True)[0]

        old = params["back"]
        back = batch_back(old) if isinstance(old, Jaxpr) else BatchedTranspose(old, batch_back)
        return self.bind(*moved, jaxpr=jaxpr, back=back, num_res=n), [0] * n_out


@final
class LinearCall(CallWithTranspose):
    """A call by ``linear_call``: the transpose of its transpose is the function again."""

    name = "linear_call"

    def call_back(self, jaxpr: Jaxpr, back: Jaxpr, num_res: int, args: Sequence[Any]) -> list[Any]:
        """Run the transpose."""
        return self.bind(*args, jaxpr=back, back=jaxpr, num_res=num_res)


@final
class CustomTransposeCall(CallWithTranspose):
    """A call of a custom_transpose function: its transpose is a function like any other."""

    name = "custom_transpose_call"

    def call_back(
        self, jaxpr: Jaxpr, back: Jaxpr, num_res: int, args: Sequence[Value]
    ) -> list[Any]:
        """Run the transpose, which may have a transpose of its own."""
        return eval_jaxpr(back, current_trace().process, args)


linear_call_p = LinearCall()
custom_transpose_call_p = CustomTransposeCall()


def linear_call(
    fun: Callable[..., object],
    fun_transpose: Callable[..., object],
    residual_args: object,
    linear_args: object,
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
    return call_with_transpose(linear_call_p, fun, fun_transpose, residual_args, linear_args)


def call_with_transpose(
    primitive: CallWithTranspose,
    fun: Callable[..., Any],
    fun_transpose: Callable[..., Any],
    residual_args: Any,
    linear_args: Any,
) -> Any:
    """``linear_call`` by a primitive."""
    res, res_tree = flatten_values("linear_call", "residual_args", residual_args)
    linear, linear_tree = flatten_values("linear_call", "linear_args", linear_args)
    res_avals = tuple([r.aval for r in res])
    linear_avals = tuple([a.aval for a in linear])

    def take_apart(result: object) -> tuple[list[Any], Any]:
        return flatten_values("linear_call", "the result", result)

    in_tree = flatten((residual_args, linear_args))[1]
    forward = trace_body(
        "linear_call", fun, in_tree, (*res_avals, *linear_avals), take_apart, "linear_call"
    )
    out_avals = tuple(forward.jaxpr.out_avals)
    example = res_tree.unflatten(res), forward.out.unflatten(out_avals)
    back_tree = flatten(example)[1]
    back_avals = (*res_avals, *[a.tangent for a in out_avals])

    def trace_back() -> Body:
        key = "linear_call transpose"
        body = trace_body("linear_call", fun_transpose, back_tree, back_avals, take_apart, key)
        _check_transpose(fun_transpose, body, linear_tree, linear_avals)
        return body

    n_forward = len(forward.hoisted)
    consts = list(forward.hoisted)
    mark = getattr(getattr(fun_transpose, "__wrapped__", fun_transpose), "__code__", fun_transpose)
    mark = mark if isinstance(mark, CodeType) else id(mark)
    if mark in _BEING_TRACED.get():
        back: Any = LateTranspose(lambda: _late(trace_back(), [c.aval for c in consts]))
    else:
        token = _BEING_TRACED.set(_BEING_TRACED.get() | {mark})
        try:
            backward = trace_back()
        finally:
            _BEING_TRACED.reset(token)
        consts = [*consts, *backward.hoisted]
        back = _with_consts(backward.jaxpr, consts, n_forward, len(consts))
    jaxpr = _with_consts(forward.jaxpr, consts, 0, n_forward)
    outs = primitive.bind(
        *consts, *res, *linear, jaxpr=jaxpr, back=back, num_res=len(consts) + len(res)
    )
    return forward.out.unflatten(outs)


def _check_transpose(
    fun_transpose: Callable[..., Any], body: Body, tree: PyTreeDef, avals: Sequence[ShapedArray]
) -> None:
    """Raise unless the transpose gives cotangents of the types of the linear arguments."""
    got = body.jaxpr.out_avals
    same = body.out == tree and [(a.shape, a.dtype) for a in got] == [
        (a.shape, a.dtype) for a in avals
    ]
    if not same:
        msg = (
            f"linear_call: fun_transpose {name_of(fun_transpose)} returned something of another "
            "type than linear_args"
        )
        raise CustomRuleError(
            msg, got=describe(body.out, got), expected=describe(tree, list(avals))
        )


def _late(body: Body, const_avals: Sequence[ShapedArray]) -> Jaxpr:
    """A transpose that was traced late, as a function of the constants of the call too."""
    values, n = body.hoisted, len(const_avals)
    if closed_over_tracers(values):
        msg = "linear_call: a transpose that calls itself closes over traced values"
        raise ClosedOverValueError(msg, hint="pass them as residual_args")

    def run(*args: Any) -> list[Any]:
        return eval_jaxpr(body.jaxpr, current_trace().process, [*values, *args[n:]])

    avals = [*const_avals, *body.jaxpr.in_avals[len(values) :]]
    return stage(run, avals, body.jaxpr.debug, locate=False)


def _with_consts(jaxpr: Jaxpr, consts: Sequence[Any], start: int, stop: int) -> Jaxpr:
    """``jaxpr``, whose leading inputs are ``consts[start:stop]``, as one that takes all."""
    if not consts:
        return jaxpr
    n = stop - start
    order: list[Any] = [c.aval for c in consts]
    order[start:stop] = range(n)
    return permute_jaxpr(jaxpr, [*order, *range(n, jaxpr.n_in)])
