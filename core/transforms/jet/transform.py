"""The transformation: programs applied to power series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core.control.branches.cond import Choice
from tracebridge.core.control.calls.closed_call import CallPrimitive
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.custom.custom_vjp import custom_vjp_call_p
from tracebridge.core.control.loops.while_primitive import groups, while_p
from tracebridge.core.control.scan.primitive import scan_p
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.staged_rules import staged_jvp
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.transforms.jet.rules import rule_of
from tracebridge.core.transforms.jet.series import Series, constant, filled, is_constant, scaled
from tracebridge.core.transforms.jet.user_rules import user_rule

Flags = tuple[bool, ...]


def run_jet(jaxpr: Jaxpr, args: Sequence[Series], order: int) -> list[Series]:
    """``jaxpr`` applied to series with ``order`` coefficients besides the value."""
    env: list[Series] = [*args, *[constant(c, order) for c in jaxpr.consts]]
    for app, idx in jaxpr.equations:
        env.extend(_step(app, [env[i] for i in idx], order))
    return [env[i] for i in jaxpr.outs]


def _step(app: Application, args: list[Series], order: int) -> list[Series]:
    """The results of one equation."""
    primitive = app.primitive
    if order == 0 or all([is_constant(x) for x in args]):
        result = current_trace().process(app, [x[0] for x in args])
        return [constant(r, order) for r in (result if app.multiple else [result])]
    own = user_rule(primitive)
    if own is not None:
        return own(app, args, order)
    rule = rule_of(primitive)
    if rule is not None:
        return [rule(app, args)]
    if isinstance(primitive, CallPrimitive):
        return _call(app, args, order)
    if isinstance(primitive, Choice):
        return _choice(app, args, order)
    other = _HIGHER_ORDER.get(primitive)
    return by_derivative(app, args, order) if other is None else other(app, args, order)


def by_derivative(app: Application, args: list[Series], order: int) -> list[Series]:
    """Any operation, by its jvp rule: the derivative along the curve is a series of one order less.

    With ``y = f(x)``, ``y'`` is the tangent that the rule gives for ``x'``.
    """
    moving = [i for i, x in enumerate(args) if not is_constant(x)]
    staged = staged_jvp(app, sum([1 << i for i in moving]))
    result = current_trace().process(app, [x[0] for x in args])
    outs = [constant(r, order) for r in (result if app.multiple else [result])]
    n = len(outs)
    present: Flags = staged.extra[0]
    if not any(present[n:]):
        return outs
    slope, _ = dce_jaxpr(staged.jaxpr, (*[False] * n, *[True] * sum(present[n:])), True)
    slope_series = run_jet(
        slope,
        [*[x[:order] for x in args], *[derivative(args[i]) for i in moving]],
        order - 1,
    )
    remaining_found = iter(slope_series)
    for out, here in zip(outs, present[n:], strict=True):
        if here:
            coefficients = next(remaining_found)
            out[1:] = [scaled(c, 1.0 / k) for k, c in enumerate(coefficients, 1)]
    return outs


def derivative(x: Series) -> Series:
    """The series of ``x'``; its value is no symbolic zero."""
    found = [scaled(c, float(k)) for k, c in enumerate(x[1:], 1)]
    if found[0] is None:
        found[0] = filled(x)[1]
    return found


# programs ----------------------------------------------------------------------------------------


def jet_jaxpr(
    jaxpr: Jaxpr, order: int, moving: Flags, wanted: Flags | bool = False
) -> tuple[Jaxpr, Flags]:
    """The Jaxpr (inputs, coefficients of those marked by ``moving``) -> (results, coefficients).

    The second result says which results have coefficients, at least those marked by ``wanted``.
    """
    instantiate = (wanted,) * len(jaxpr.outs) if isinstance(wanted, bool) else wanted
    key = ("jet", order, moving, instantiate)
    found = jaxpr.cache.get(key)
    if found is None:
        found = jaxpr.cache[key] = _stage_jet(jaxpr, order, moving, instantiate)
    return found


def _stage_jet(jaxpr: Jaxpr, order: int, moving: Flags, wanted: Flags) -> tuple[Jaxpr, Flags]:
    n = jaxpr.n_in
    seen: list[Flags] = []

    def run(*values: object) -> list[Any]:
        outs = run_jet(jaxpr, joined(values[:n], values[n:], moving, order), order)
        flags = tuple([w or not is_constant(o) for w, o in zip(wanted, outs, strict=True)])
        seen.append(flags)
        return [*[o[0] for o in outs], *coefficients(outs, flags)]

    more = [
        a.tangent for a, m in zip(jaxpr.in_avals, moving, strict=True) if m for _ in range(order)
    ]
    return stage(run, [*jaxpr.in_avals, *more], jaxpr.debug, locate=False), seen[0]


def joined(
    values: Sequence[object], coefficients: Sequence[object], moving: Sequence[bool], order: int
) -> list[Series]:
    """Series from values, and the coefficients of those that are marked."""
    remaining_coefficients = iter(coefficients)
    return [
        [v, *[next(remaining_coefficients) for _ in range(order)]] if m else constant(v, order)
        for v, m in zip(values, moving, strict=True)
    ]


def coefficients(series: Sequence[Series], flags: Sequence[bool]) -> list[Any]:
    """All coefficients but the first of the series that are marked, one after the other."""
    return [c for x, here in zip(series, flags, strict=True) if here for c in filled(x)[1:]]


def _moving(args: Sequence[Series]) -> Flags:
    return tuple([not is_constant(x) for x in args])


def _call(app: Application, args: list[Series], order: int) -> list[Series]:
    flags = _moving(args)
    primitive: Any = app.primitive
    jaxpr, given = jet_jaxpr(app.params["jaxpr"], order, flags)
    params = primitive.with_jaxpr(app.params, jaxpr, "jet")
    outs = primitive.bind(*[x[0] for x in args], *coefficients(args, flags), **params)
    n = len(given)
    return joined(outs[:n], outs[n:], given, order)


def _choice(app: Application, args: list[Series], order: int) -> list[Series]:
    n_lead: int = app.primitive.n_lead  # pyright: ignore[reportAttributeAccessIssue] - of Choice
    lead, operands = args[:n_lead], args[n_lead:]
    flags = _moving(operands)
    branches = app.params["branches"]
    found = [jet_jaxpr(b, order, flags)[1] for b in branches]
    wanted = tuple([any(row) for row in zip(*found, strict=True)])
    new = tuple([jet_jaxpr(b, order, flags, wanted)[0] for b in branches])
    outs = app.primitive.bind(
        *[x[0] for x in (*lead, *operands)],
        *coefficients(operands, flags),
        **{**app.params, "branches": new},
    )
    n = len(wanted)
    return joined(outs[:n], outs[n:], wanted, order)


def _carried(body: Jaxpr, order: int, before: Flags, carry: Flags, after: Flags) -> Flags:
    """Which carries have coefficients in some step of a loop."""
    while True:
        found = jet_jaxpr(body, order, (*before, *carry, *after))[1][: len(carry)]
        wider = tuple([a or b for a, b in zip(carry, found, strict=True)])
        if wider == carry:
            return carry
        carry = wider


def _scan(app: Application, args: list[Series], order: int) -> list[Series]:
    params = app.params
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    consts, init = args[:n_consts], args[n_consts : n_consts + n_carry]
    xs = args[n_consts + n_carry :]
    body: Jaxpr = params["jaxpr"]
    c_flags, x_flags = _moving(consts), _moving(xs)
    carry = _carried(body, order, c_flags, _moving(init), x_flags)
    n_ys = len(body.outs) - n_carry
    flags = (*c_flags, *carry, *x_flags)
    jaxpr, has_series = jet_jaxpr(body, order, flags, (*carry, *[False] * n_ys))
    jaxpr = _grouped(jaxpr, body.n_in, (n_consts, n_carry, len(xs)), flags, order)
    jaxpr = _grouped_outs(jaxpr, len(body.outs), n_carry, has_series, order)
    outs = scan_p.bind(
        *[x[0] for x in consts],
        *coefficients(consts, c_flags),
        *[x[0] for x in init],
        *coefficients(init, carry),
        *[x[0] for x in xs],
        *coefficients(xs, x_flags),
        **{
            **params,
            "jaxpr": jaxpr,
            "num_consts": n_consts + order * sum(c_flags),
            "num_carry": n_carry + order * sum(carry),
        },
    )
    first = n_carry + order * sum(carry)
    ys = outs[first:]
    return [
        *joined(outs[:n_carry], outs[n_carry:first], carry, order),
        *joined(ys[:n_ys], ys[n_ys:], has_series[n_carry:], order),
    ]


def _grouped(jaxpr: Jaxpr, n_in: int, sizes: Sequence[int], flags: Flags, order: int) -> Jaxpr:
    """The inputs of each group followed by their coefficients."""
    position = n_in
    chosen: list[int] = []
    start = 0
    for size in sizes:
        more = order * sum(flags[start : start + size])
        chosen += [*range(start, start + size), *range(position, position + more)]
        position += more
        start += size
    return permute_jaxpr(jaxpr, chosen)


def _grouped_outs(jaxpr: Jaxpr, n_out: int, n_carry: int, has_series: Flags, order: int) -> Jaxpr:
    """The carries among the results followed by their coefficients, then the others."""
    more = n_out + order * sum(has_series[:n_carry])
    outs = jaxpr.outs
    return permute_jaxpr(
        jaxpr, None, [*outs[:n_carry], *outs[n_out:more], *outs[n_carry:n_out], *outs[more:]]
    )


def _while(app: Application, args: list[Series], order: int) -> list[Series]:
    params = app.params
    cond_consts, body_consts, init = groups(params, args)
    body, test = params["body_jaxpr"], params["cond_jaxpr"]
    flags = _moving(body_consts)
    carry = _carried(body, order, flags, _moving(init), ())
    jaxpr, _ = jet_jaxpr(body, order, (*flags, *carry), carry)
    sizes = (len(body_consts), len(init))
    jaxpr = _grouped(jaxpr, body.n_in, sizes, (*flags, *carry), order)
    more = coefficients(init, carry)
    outs = while_p.bind(
        *[x[0] for x in cond_consts],
        *[x[0] for x in body_consts],
        *coefficients(body_consts, flags),
        *[x[0] for x in init],
        *more,
        cond_jaxpr=permute_jaxpr(test, [*range(test.n_in), *[c.aval for c in more]]),
        body_jaxpr=jaxpr,
        cond_nconsts=len(cond_consts),
        body_nconsts=len(body_consts) + order * sum(flags),
    )
    n = len(init)
    return joined(outs[:n], outs[n:], carry, order)


def _plain_function(app: Application, args: list[Series], order: int) -> list[Series]:
    """A function that only has a rule for reverse mode: its own program counts."""
    return run_jet(app.params["call_jaxpr"], args, order)


_HIGHER_ORDER: dict[Primitive, Callable[[Application, list[Series], int], list[Series]]] = {
    scan_p: _scan,
    while_p: _while,
    custom_vjp_call_p: _plain_function,
}
