"""The equations of operations that are objects: their application, and its linear part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.compat.ad import Zero
from tracebridge.core.compat.batching import AxisData
from tracebridge.core.compat.hijax.accumulators import GradAccum, NullAccum, ValAccum
from tracebridge.core.control.calls.inline_rules import (
    below,
    has_tangent,
    is_eager_trace,
    running_on,
    user_value,
)
from tracebridge.core.control.custom.custom_lin import forward_mode
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.interpreters.jvp import JvpTrace, JvpTracer
from tracebridge.core.interpreters.linearize import LinearizeTrace, TapeNode
from tracebridge.core.interpreters.tangents import TangentTrace, TangentTracer
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.trace import trace_for
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.prefix import broadcast_prefix
from tracebridge.core.tree.tree import flatten

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.effects import Effects
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext

Tree = Any


def is_zero(x: object) -> bool:
    """Whether a tangent or cotangent of a rule is a symbolic zero."""
    return x is None or type(x) is Zero


def _given(x: Any) -> Any:
    """A tangent or cotangent of a rule, as the engine has it: a value, or None."""
    if is_zero(x) or getattr(x, "dtype", None) == float0:
        return None
    return as_value(x)


def flat_like(tree: Any, x: Tree, what: str, op: object) -> list[Any]:
    """The parts of ``x`` at the leaves of a structure; a symbolic zero is a leaf."""
    try:
        return tree.flatten_up_to(x)
    except ValueError as error:
        msg = f"{type(op).__name__}: {what} has another structure than declared"
        raise ArgumentTypeError(msg, got=str(flatten(x)[1]), expected=str(tree)) from error


class _Rules:
    """The rules of one operation on flat values."""

    __slots__ = ("op",)

    def __init__(self, op: Any) -> None:
        self.op = op

    def expand(self, args: Sequence[Any]) -> list[Any]:
        """Results by other operations."""
        op = self.op
        out = op.expand(*op.in_tree.unflatten([user_value(a) for a in args]))
        return [as_value(o) for o in flat_like(op.out_tree, out, "the result of expand", op)]

    def _user(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Tree, Tree]:
        unflatten = self.op.in_tree.unflatten
        zeros = [
            Zero(p.aval.tangent) if t is None else user_value(t)
            for p, t in zip(primals, tangents, strict=True)
        ]
        return unflatten([user_value(p) for p in primals]), unflatten(zeros)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Results and tangents; None is a symbolic zero, both ways."""
        op = self.op
        out, tangent = op.jvp(*self._user(primals, tangents))
        outs = flat_like(op.out_tree, out, "the result of jvp", op)
        return [as_value(o) for o in outs], [
            _given(t) for t in flat_like(op.out_tree, tangent, "the tangent of jvp", op)
        ]

    def lin(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """As ``jvp``, by the rules ``lin`` and ``linearized``."""
        op = self.op
        args, dots = self._user(primals, tangents)
        nonzero = op.in_tree.unflatten([t is not None for t in tangents])
        out, residuals, *_ = op.lin(nonzero, *args)
        outs = flat_like(op.out_tree, out, "the result of lin", op)
        tangent = op.linearized(residuals, *dots)
        return [as_value(o) for o in outs], [
            _given(t) for t in flat_like(op.out_tree, tangent, "the result of linearized", op)
        ]

    def forward(
        self, primals: Sequence[Any], nonzero: Sequence[bool]
    ) -> tuple[list[Any], list[Any], Any, list[bool]]:
        """Results, flat residuals, their structure, and which results have tangents."""
        op = self.op
        args = op.in_tree.unflatten([user_value(p) for p in primals])
        out, residuals, *more = op.vjp_fwd(op.in_tree.unflatten(list(nonzero)), *args)
        outs = flat_like(op.out_tree, out, "the result of vjp_fwd", op)
        flags = broadcast_prefix(more[0], out) if more else [True] * len(outs)
        leaves, tree = flatten(residuals)
        return [as_value(o) for o in outs], [as_value(r) for r in leaves], tree, flags

    def backward(
        self, residuals: Tree, cts: Sequence[Any], in_avals: Sequence[Any], nonzero: Sequence[bool]
    ) -> list[Any]:
        """Cotangents of the arguments: of those that have tangents, None is a zero."""
        op = self.op
        zeros = [
            Zero(a.tangent) if ct is None else user_value(ct)
            for ct, a in zip(cts, op.out_avals_flat, strict=True)
        ]
        accums: list[GradAccum] = [
            ValAccum(a.to_ct_aval()) if nz else NullAccum(a.to_ct_aval())
            for a, nz in zip(in_avals, nonzero, strict=True)
        ]
        op.vjp_bwd(residuals, op.out_tree.unflatten(zeros), *op.in_tree.unflatten(accums))
        return [_given(a.freeze()) for a in accums]


@final
class HiCall(Primitive):
    """An operation that is an object with rules, parameter ``_prim``."""

    name = "call_hi_primitive"
    cost = Cost.OTHER
    multiple_results = True
    holds_functions = True
    has_rules_of_users = True

    def application(self, avals: tuple[Any, ...], params: Any) -> Application:
        """Not remembered here: operations may hold functions of users."""
        return Application(self, avals, params)

    def abstract_eval(self, *avals: Any, **params: Any) -> list[Any]:
        op = params["_prim"]
        expected = op.in_avals_flat
        same = len(avals) == len(expected) and all(map(_fits, avals, expected))
        if not same:
            raise ArgumentTypeError(
                f"{type(op).__name__}: the arguments are not those that it was made for",
                got=", ".join([a.str_short() for a in avals]),
                expected=", ".join([a.str_short() for a in expected]),
            )
        return list(op.out_avals_flat)

    def effects(self, *avals: Any, **params: Any) -> Effects:
        return frozenset(params["_prim"].effects)

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> Any:
        return _Rules(params["_prim"]).expand(arrays)

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> list[Any]:
        return _Rules(params["_prim"]).expand(args)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        rules = _Rules(params["_prim"])
        return ctx.lower_fun(lambda *args: rules.expand(args), *operands)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        return _Rules(params["_prim"]).jvp(primals, tangents)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        op = params["_prim"]
        if not op.defines("vjp_fwd"):
            return (_Rules(op).lin if op.defines("lin") else _Rules(op).jvp)(primals, tangents)
        nonzero = [t is not None for t in tangents]
        outs, app, residuals, flags = linear_part(op, primals, nonzero)
        given = [t for t in tangents if t is not None]
        operands = [*residuals, *given]
        results = hi_linear_p.bind(*operands, **app.params)
        return outs, spread_results(results, outs, flags)

    def transpose(self, ct: Sequence[Any], *args: Any, **params: Any) -> Sequence[Any]:
        op = params["_prim"]
        accums = [
            ValAccum(a.aval.to_ct_aval()) if is_linear_input(a) else user_value(a) for a in args
        ]
        cts = [
            Zero(a.tangent) if c is None else user_value(c)
            for c, a in zip(ct, op.out_avals_flat, strict=True)
        ]
        op.transpose(op.out_tree.unflatten(cts), *op.in_tree.unflatten(accums))
        return [_given(a.freeze()) if type(a) is ValAccum else None for a in accums]

    def batch(
        self, ctx: BatchContext, args: Sequence[Any], dims: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        op = params["_prim"]
        axis = AxisData(ctx.axis_name, ctx.size, ctx.spmd_name)
        unflatten = op.in_tree.unflatten
        out, out_dims = op.batch(axis, unflatten([user_value(a) for a in args]), unflatten(dims))
        outs = flat_like(op.out_tree, out, "the result of batch", op)
        flat_dims = broadcast_dims(op, out_dims, out)
        return [as_value(o) for o in outs], flat_dims

    def dce(self, used_outs: tuple[bool, ...], app: Application) -> tuple[Any, Any, Any]:
        op = app.params["_prim"]
        used_in, produced, smaller = op.dce(op.out_tree.unflatten(list(used_outs)))
        if smaller is None or smaller is op:
            return app, [True] * len(app.avals), [True] * len(app.outs)
        kept_in = broadcast_prefix(used_in, op.in_avals)
        kept_out = broadcast_prefix(produced, op.out_aval)
        avals = tuple([a for a, k in zip(app.avals, kept_in, strict=True) if k])
        return self.application(avals, {"_prim": smaller}), kept_in, kept_out


def _fits(got: Any, expected: Any) -> bool:
    """Whether types are the same, up to what does not matter."""
    if got is expected or got == expected:
        return True
    dtype = getattr(got, "dtype", None)
    same = dtype == getattr(expected, "dtype", None) and dtype is not None
    return same and got.shape == expected.shape


def broadcast_dims(op: Any, dims: Tree, out: Tree) -> list[Any]:
    """The axes of flat results; one may stand for a whole tree."""
    found = broadcast_prefix(dims, out, lambda x: x is None)
    if len(found) != len(op.out_avals_flat):
        msg = f"{type(op).__name__}: batch gave axes {dims!r} that do not fit the results"
        raise ArgumentTypeError(msg)
    return found


@final
class HiLinear(Primitive):
    """The linear part of an operation of which the backward rule is known.

    Arguments are residuals, the primals if ``jvp`` is known as well, and the tangents of the
    arguments ``nonzero``.
    """

    name = "call_hi_primitive_linearized"
    cost = Cost.OTHER
    holds_functions = True
    multiple_results = True
    transposes_inline = True
    has_rules_of_users = True

    def application(self, avals: tuple[Any, ...], params: Any) -> Application:
        return Application(self, avals, params)

    def abstract_eval(self, *avals: Any, **params: Any) -> list[Any]:
        return [a.tangent for a in params["_prim"].out_avals_flat if has_tangent(a)]

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> list[Any]:
        return _push(args, params)

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> Any:
        return _push(arrays, params)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return ctx.lower_fun(lambda *args: _push(args, params), *operands)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        n = params["n_residuals"] + params["n_primals"]
        if any([t is not None for t in tangents[:n]]):
            raise forward_mode(type(params["_prim"]).__name__)
        filled = [
            Zero(p.aval).instantiate() if t is None else t
            for p, t in zip(primals[n:], tangents[n:], strict=True)
        ]
        return self.bind(*primals, **params), self.bind(*primals[:n], *filled, **params)

    def batch(
        self, ctx: BatchContext, args: Sequence[Any], dims: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        raise forward_mode(type(params["_prim"]).__name__)

    def transpose(self, ct: Sequence[Any], *args: Any, **params: Any) -> Sequence[Any]:
        op, nonzero = params["_prim"], params["nonzero"]
        given = iter(ct)
        cts = [next(given) if has_tangent(a) else None for a in op.out_avals_flat]
        n = params["n_residuals"]
        n_known = n + params["n_primals"]
        residuals = params["residuals_tree"].unflatten([user_value(a) for a in args[:n]])
        found = _Rules(op).backward(residuals, cts, op.in_avals_flat, nonzero)
        return [*[None] * n_known, *[f for f, nz in zip(found, nonzero, strict=True) if nz]]


def _push(args: Sequence[Any], params: Any) -> list[Any]:
    """Tangents of the results for tangents of the arguments, by the rule for forward mode."""
    op, n, n_primals = params["_prim"], params["n_residuals"], params["n_primals"]
    if not n_primals:
        raise forward_mode(type(op).__name__)
    primals = args[n : n + n_primals]
    rest = iter(args[n + n_primals :])
    tangents = [next(rest) if nz else None for nz in params["nonzero"]]
    rules = _Rules(op)
    _, found = (rules.lin if op.defines("lin") else rules.jvp)(primals, tangents)
    pairs = zip(found, op.out_avals_flat, strict=True)
    return [Zero(a.tangent).instantiate() if t is None else t for t, a in pairs if has_tangent(a)]


hi_call_p = HiCall()
hi_linear_p = HiLinear()


def linear_part(
    op: Any, primals: Sequence[Any], nonzero: Sequence[bool]
) -> tuple[list[Any], Application, list[Any], list[bool]]:
    """Results; the linear application, its operands but the tangents; which results have some."""
    outs, residuals, tree, flags = _Rules(op).forward(primals, nonzero)
    n = len(residuals)
    both_ways = op.defines("lin") or op.defines("jvp")
    operands = [*residuals, *primals] if both_ways else residuals
    tangents = [p.aval.tangent for p, nz in zip(primals, nonzero, strict=True) if nz]
    params = {
        "_prim": op,
        "residuals_tree": tree,
        "nonzero": tuple(nonzero),
        "n_residuals": n,
        "n_primals": len(operands) - n,
    }
    app = hi_linear_p.application((*[o.aval for o in operands], *tangents), params)
    return outs, app, operands, flags


def spread_results(results: Sequence[Any], outs: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """One tangent for each result, None where there is none."""
    rest = iter(results)
    found = [next(rest) if has_tangent(o.aval) else None for o in outs]
    return [f if flag else None for f, flag in zip(found, flags, strict=True)]


# in place ----------------------------------------------------------------------------------------


def apply_operation(op: Any, args: Sequence[Any]) -> list[Any]:
    """Apply an operation to flat arguments under whatever traces are active.

    Under derivatives its rules run at once, so that they see numbers where there are numbers;
    elsewhere it is an equation.
    """
    values = [as_value(a) for a in args]
    return _apply(trace_for(values), op, values)


def _apply(trace: Any, op: Any, values: list[Any]) -> list[Any]:
    mine = [v._trace is trace for v in values]
    if isinstance(trace, JvpTrace | LinearizeTrace):
        if not any(mine):
            with below(trace, type(op).__name__):
                return _apply(trace.parent, op, values)
        return (_jvp if isinstance(trace, JvpTrace) else _linearize)(trace, op, values, mine)
    if isinstance(trace, TangentTrace) and not any(mine):
        with running_on(trace.owner.parent):
            return _apply(trace.owner.parent, op, values)
    if is_eager_trace(trace):
        hi_call_p.abstract_eval(*[v.aval for v in values], _prim=op)
        return _Rules(op).expand(values)
    return hi_call_p.bind(*values, _prim=op)


def _jvp(trace: Any, op: Any, values: list[Any], mine: list[bool]) -> list[Any]:
    primals = [v.primal if m else v for v, m in zip(values, mine, strict=True)]
    tangents = [v.tangent if m else None for v, m in zip(values, mine, strict=True)]
    with below(trace, type(op).__name__):
        outs, dots = _Rules(op).jvp(primals, tangents)
    pairs = zip(outs, dots, strict=True)
    return [o if t is None else JvpTracer(trace, o, t) for o, t in pairs]


def _linearize(trace: Any, op: Any, values: list[Any], mine: list[bool]) -> list[Any]:
    name = type(op).__name__
    primals = [v.primal if m else v for v, m in zip(values, mine, strict=True)]
    if op.defines("vjp_fwd"):
        with below(trace, name):
            outs, app, operands, flags = linear_part(op, primals, mine)
        nodes = [TapeNode(v.aval.tangent, v.node) for v, m in zip(values, mine, strict=True) if m]
        results = trace.record(hi_linear_p, [*operands, *nodes], app.params)
        found = spread_results(list(results), outs, flags)
        return [o if n is None else trace.dual(o, n) for o, n in zip(outs, found, strict=True)]
    inner = TangentTrace(trace)
    tangents = [
        TangentTracer(v.aval.tangent, inner, v.node) if m else None
        for v, m in zip(values, mine, strict=True)
    ]
    try:
        with below(trace, name, inner):
            rules = _Rules(op)
            outs, dots = (rules.lin if op.defines("lin") else rules.jvp)(primals, tangents)
    finally:
        inner.done = True
    return [
        trace.dual(o, t.node) if t is not None and t._trace is inner else o
        for o, t in zip(outs, dots, strict=True)
    ]
