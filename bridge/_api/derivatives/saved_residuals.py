"""What differentiation of a function keeps from the forward pass, for people to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.derivatives.checkpoint import leaf_values
from tracebridge.core.config.state import enter_scope, leave_scope, with_trace
from tracebridge.core.control.calls.traced_call import Arguments, trace_call
from tracebridge.core.control.remat.checkpoint import eval_in_place
from tracebridge.core.dtypes.dtypes import float0
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.interpreters.linearize import Linearized, linearize_flat
from tracebridge.core.interpreters.residual_notes import Redone, notes_of
from tracebridge.core.interpreters.staging import StagingTrace
from tracebridge.core.ir.application import Application
from tracebridge.core.ir.debug_info import name_of, parameter_names
from tracebridge.core.ir.jaxpr import Jaxpr, jaxprs_in_params
from tracebridge.core.ir.source_info import describe_line
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.annotations import name_p, to_memory_p
from tracebridge.core.tree.tree import flatten


@api_boundary
def saved_residuals(
    f: Callable[..., object], *args: object, **kwargs: object
) -> list[tuple[Any, str]]:
    """The values that differentiation of ``f`` keeps from the forward to the backward pass.

    Args:
        f: function of arrays and trees of arrays.
        *args: its arguments, of which structures, shapes and dtypes matter.
        **kwargs: its arguments by keyword, likewise.

    Returns:
        A list of pairs: the aval of a value, and where the value comes from.

    >>> import tracebridge as tb
    >>> from tracebridge.ad_checkpoint import saved_residuals
    >>> saved_residuals(tb.checkpoint(lambda x: tb.lax.sin(tb.lax.sin(x))), 2.0)
    [(ShapedArray(float32[], weak_type=True), 'from the argument x')]
    """
    residuals, _ = _kept_and_redone(f, args, kwargs)
    return [(aval, origin) for aval, origin, _ in residuals]


@api_boundary
def print_saved_residuals(f: Callable[..., object], *args: object, **kwargs: object) -> None:
    """Print what ``saved_residuals`` gives, one line per value.

    Where the policy ``save_by_cost`` chose, the lines say why a value is kept. More lines say
    what is computed again instead, and why.

    >>> import tracebridge as tb
    >>> from tracebridge.ad_checkpoint import print_saved_residuals
    >>> print_saved_residuals(lambda d: d["w"] * d["x"], {"w": 2.0, "x": 3.0})
    f32[] from the argument d['w']
    f32[] from the argument d['x']
    """
    residuals, redone = _kept_and_redone(f, args, kwargs)
    for aval, origin, reason in residuals:
        because = f", {reason}" if reason else ""
        print(f"{aval.str_short()} {origin}{because}")  # noqa: T201 - it is what the function is for
    for aval, name, source, reason in redone:
        place = _from_line(source)
        print(f"{aval.str_short()} output of {name}{place}, {reason}")  # noqa: T201 - as above


def _kept_and_redone(
    f: Callable[..., object], args: Any, kwargs: Any
) -> tuple[list[tuple[Any, str, str]], list[Redone]]:
    """Avals of the residuals, where they come from and why they are kept; what is redone."""
    check_callable("saved_residuals", f)
    leaves, tree = flatten((args, kwargs))
    call = Arguments(f, leaves, tree, parameters=parameter_names(f))
    values = leaf_values(f"saved_residuals({name_of(f)})", call)
    jaxpr = trace_call(f, call, tuple([v.aval for v in values]), f).whole
    staging = StagingTrace(jaxpr.debug, locate=True)
    inputs = [staging.input(a, i) for i, a in enumerate(jaxpr.in_avals)]
    scope = enter_scope(with_trace, staging)
    try:

        def body(*xs: Any) -> list[Any]:
            return eval_in_place(jaxpr, current_trace().process, xs, staging)

        active = [a.tangent.dtype != float0 for a in jaxpr.in_avals]
        _, linear = linearize_flat(body, inputs, active)
        residuals = _residuals(linear)
        order = {id(t): i for i, t in enumerate(inputs)}
        for app, _, outs, _ in staging.equations:
            for out in outs if app.multiple else (outs,):
                order[id(out)] = len(order)
        residuals.sort(key=lambda v: order.get(id(v), -1) if v._trace is staging else len(order))
        redone = [
            each
            for app, _, _, _ in staging.equations
            for inner in jaxprs_in_params(app.params)
            for each in _redone_in(inner)
        ]
        return [(v.aval, *_origin(v, staging)) for v in residuals], redone
    finally:
        leave_scope(scope)
        staging.done = True


def _redone_in(jaxpr: Jaxpr) -> list[Redone]:
    """What the plans of a forward program and of those inside of it compute again."""
    notes = notes_of(jaxpr)
    found = [] if notes is None else list(notes.redone)
    for app, _ in jaxpr.equations:
        for inner in jaxprs_in_params(app.params):
            found.extend(_redone_in(inner))
    return found


def _residuals(linear: Linearized) -> list[Any]:
    """Values, other than scalar constants, that the live part of the tape uses; each once."""
    live = [False] * linear.size
    for node in linear.out_nodes:
        if node is not None:
            live[node] = True
    residuals: dict[int, Any] = {}
    for app, mask, args, node in reversed(linear.tape):
        if not any(live[node : node + len(app.outs)]):
            continue
        for i, a in enumerate(args):
            if mask >> i & 1:
                live[a] = True
            elif type(a) is not Literal:
                residuals.setdefault(id(a), a)
    return list(residuals.values())


def _origin(value: Any, staging: StagingTrace) -> tuple[str, str]:
    """Where a residual comes from, and why it is kept if that was a choice."""
    if value._trace is not staging:
        return "from a constant", ""
    if isinstance(value.source, int):
        return f"from the argument {staging.debug.argument(value.source)}", ""
    for app, args, outs, source in staging.equations:
        for k, out in enumerate(outs if app.multiple else (outs,)):
            if out is value and app.primitive is to_memory_p:
                return f"{_origin(args[0], staging)[0]}, moved to {app.params['kind']}", ""
            if out is value:
                return _result_of(app, k, source)
    return "from a constant", ""


def _result_of(app: Application, k: int, source: Any) -> tuple[str, str]:
    """Where result ``k`` of an equation comes from, seen from inside of calls and loops."""
    for jaxpr in jaxprs_in_params(app.params):
        if len(jaxpr.outs) == len(app.outs):
            inner = _producer(jaxpr, jaxpr.outs[k])
            if inner is not None:
                notes = notes_of(jaxpr)
                inner_app, inner_k, inner_source = inner
                origin, why = _result_of(inner_app, inner_k, inner_source or source)
                return origin, why or ("" if notes is None else notes.kept.get(k, ""))
    if app.primitive is name_p:
        return f"named {app.params['name']!r}{_from_line(source)}", ""
    return f"output of {app.primitive.name}{_from_line(source)}", ""


def _from_line(source: Any) -> str:
    line = "" if source is None else describe_line(source)
    return f" from {line}" if line else ""


def _producer(jaxpr: Jaxpr, variable: int) -> tuple[Application, int, Any] | None:
    """The equation that makes a variable, and which of its results that is."""
    start = jaxpr.n_in + len(jaxpr.consts)
    for k, (app, _) in enumerate(jaxpr.equations):
        if start <= variable < start + len(app.outs):
            return app, variable - start, jaxpr.sources[k] if jaxpr.sources else None
        start += len(app.outs)
    return None
