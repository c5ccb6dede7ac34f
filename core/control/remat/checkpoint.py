"""checkpoint: calls that compute their intermediate values again on the way back.

Differentiation leaves the call of the function as it is and adds a second, linear call, which
takes the arguments (and whatever the policy keeps) and starts over. Its transpose is what runs in
the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.closed_call import CallPrimitive
from tracebridge.core.control.calls.permute import permute_jaxpr
from tracebridge.core.control.remat.lowering import lower_with_barrier, lower_with_choice
from tracebridge.core.control.remat.policies import (
    Decision,
    Decisions,
    Offloadable,
    Policy,
    save_by_cost,
)
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.known_graph import KnownGraph
from tracebridge.core.interpreters.linearize import linearize_flat
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.residual_notes import note_plan
from tracebridge.core.interpreters.residual_plan import Prices, plan_residuals
from tracebridge.core.interpreters.split_by_known import split_by_known
from tracebridge.core.interpreters.staging import StagingTrace, stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.effects import check_effects
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr, jaxprs_in_params
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.name_scopes import entered
from tracebridge.core.ir.name_stack import NamedSource
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.user_type import low_avals
from tracebridge.core.lax.annotations import to_memory_p
from tracebridge.core.lowering.context import register_platform_lowering

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.rule_contexts import LoweringContext
    from tracebridge.core.ir.trace import Process
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]

# What keeping one value costs beside its elements, in milliseconds.
_PER_VALUE = 0.004


@final
class Checkpoint(CallPrimitive):
    """A call of ``jaxpr`` that keeps what ``policy`` allows when it is differentiated.

    ``differentiated``: this is the part that computes again. There, arguments marked in
    ``prevent_cse`` (one flag per argument) pass a barrier, so that the compiler does not find the
    values of the forward pass and keeps them after all.
    """

    name = "checkpoint"
    inlinable = False
    inlinable_at_last = True

    def with_jaxpr(self, params: Params, jaxpr: Jaxpr, suffix: str) -> dict[str, Any]:
        """Further arguments are tangents, cotangents or residuals: all pass the barrier."""
        flags = params["prevent_cse"]
        more = (any(flags),) * (jaxpr.n_in - len(flags))
        again = params["differentiated"] or suffix in ("lin", "transpose", "unknown")
        changed = {"jaxpr": jaxpr, "prevent_cse": (*flags, *more), "differentiated": again}
        return {**params, **changed}

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> list[Any]:
        pairs = zip(params["prevent_cse"], args, strict=True)
        flags = tuple([flag for flag, a in pairs for _ in low_avals([a.aval])])
        return super().low(args, outs, **{**params, "prevent_cse": flags})

    def called_at_last(self, **params: Any) -> Any:
        """Its Jaxpr, unless that must not be merged with what the forward program computes."""
        is_apart = params["differentiated"] and any(params["prevent_cse"])
        return None if is_apart or params["jaxpr"].effects else params["jaxpr"]

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return lower_with_barrier(ctx, *operands, **params)

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> Any:
        """Step by step, if a primitive of the user is inside that cannot be lowered."""
        jaxpr: Jaxpr = params["jaxpr"]
        if not _is_only_evaluated(jaxpr):
            return NotImplemented
        return eval_jaxpr(jaxpr, current_trace().process, arrays)

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """The call, with what is kept as further results; a linear call that starts over."""
        check_effects(params["jaxpr"].effects, "in_checkpoint", "derivative of checkpoint")
        nonzero = tuple([t is not None for t in tangents])
        split = split_for(params["jaxpr"], nonzero, Decisions(params["policy"]))
        results = self.bind(*primals, **{**params, "jaxpr": split.primal})
        n = len(split.nonzero_out)
        kept = [
            r if where is None else to_memory_p.bind(r, kind=where.dst)
            for r, where in zip(results[n:], split.memories, strict=True)
        ]
        again = [primals[i] for i in split.forwarded]
        nonzero_tangents = [t for t in tangents if t is not None]
        flags = _chosen(params["prevent_cse"], split.forwarded)
        linear = self.with_jaxpr({**params, "prevent_cse": flags}, split.linear, "lin")
        out = iter(
            self.bind(*again, *kept, *nonzero_tangents, **linear) if any(split.nonzero_out) else ()
        )
        return results[:n], [next(out) if nz else None for nz in split.nonzero_out]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        linear = tuple([is_linear_input(a) for a in args])
        ct_in = tuple([c is not None for c in ct])
        jaxpr, present = transpose_jaxpr(params["jaxpr"], linear, ct_in, instantiate=False)
        if not any(present):
            return [None] * len(args)
        values = [i for i, is_linear in enumerate(linear) if not is_linear]
        cts = [c for c in ct if c is not None]
        flags = _chosen(params["prevent_cse"], values) or (any(params["prevent_cse"]),)
        changed = self.with_jaxpr({**params, "prevent_cse": flags}, jaxpr, "transpose")
        results = iter(self.bind(*[args[i] for i in values], *cts, **changed))
        given = iter([next(results) if p else None for p in present])
        return [next(given) if is_linear else None for is_linear in linear]

    def split_by_known(self, unknown: Flags, args: Sequence[Value], **params: Any) -> list[Any]:
        """A call of the known part, and one that starts over from known arguments."""
        flags = params["prevent_cse"]
        allowed = Decisions(params["policy"])
        parts = partial_eval_jaxpr(params["jaxpr"], unknown, saveable=allowed)
        known_args = [i for i, u in enumerate(unknown) if not u]
        known, forwarded, order = _without_passed_on(parts.known, parts.n_residuals)
        known_params = {**params, "prevent_cse": _chosen(flags, known_args)}
        results = self.bind(
            *[args[i] for i in known_args], **self.with_jaxpr(known_params, known, "known")
        )
        n_known = len(parts.known.outs) - parts.n_residuals
        again = [known_args[i] for i in forwarded]
        residuals = [*[args[i] for i in again], *results[n_known:]]
        kept_residuals = [residuals[i] for i in order]
        kept_residuals += [a for a, u in zip(args, unknown, strict=True) if u]
        late = self.with_jaxpr({**params, "prevent_cse": ()}, parts.unknown, "unknown")
        late["prevent_cse"] = (any(flags),) * len(kept_residuals)
        others = iter(self.bind(*kept_residuals, **late))
        remaining_results = iter(results[:n_known])
        return [next(others) if u else next(remaining_results) for u in parts.unknown_out]

    def dce(self, used_outs: Flags, app: Application) -> tuple[Any, list[bool], list[bool]]:
        jaxpr, used_in = dce_jaxpr(app.params["jaxpr"], used_outs)
        avals = tuple([a for a, u in zip(app.avals, used_in, strict=True) if u])
        flags = tuple([f for f, u in zip(app.params["prevent_cse"], used_in, strict=True) if u])
        params = {**app.params, "jaxpr": jaxpr, "prevent_cse": flags}
        return self.application(avals, params), list(used_in), list(used_outs)


def _is_only_evaluated(jaxpr: Jaxpr) -> bool:
    of_users = jaxpr.cache.get("primitives_of_users")
    if of_users is None:
        of_users = jaxpr.cache["primitives_of_users"] = tuple(_primitives_of_users(jaxpr))
    # A lowering may be registered at any time.
    return any([primitive.is_only_evaluated for primitive in of_users])


def _primitives_of_users(jaxpr: Jaxpr) -> set[Primitive]:
    """Primitives whose rules are functions of the user, at any depth."""
    found = {app.primitive for app, _ in jaxpr.equations if app.primitive.has_rules_of_users}
    for app, _ in jaxpr.equations:
        for inner in jaxprs_in_params(app.params) if app.multiple else ():
            found |= _primitives_of_users(inner)
    return found


checkpoint_p = Checkpoint()
register_platform_lowering(checkpoint_p, "cpu", lower_with_choice)


def checkpoint_call(
    jaxpr: Jaxpr, operands: Sequence[Any], prevent_cse: Flags, policy: Policy | None
) -> list[Any]:
    """Call ``jaxpr`` as one equation; ``prevent_cse`` has one flag per operand."""
    return checkpoint_p.bind(
        *operands, jaxpr=jaxpr, prevent_cse=prevent_cse, policy=policy, differentiated=False
    )


def _chosen(flags: Flags, positions: Sequence[int]) -> Flags:
    return tuple([flags[i] for i in positions])


# linearization -----------------------------------------------------------------------------------


@final
class Split:
    """A checkpointed Jaxpr for tangents at some inputs.

    ``primal``: inputs -> (results, kept values). ``linear``: (inputs at ``forwarded``, kept
    values, tangents) -> tangents of the results in ``nonzero_out``. ``memories``: per kept value
    where it waits, or None.
    """

    __slots__ = ("forwarded", "linear", "memories", "nonzero_out", "primal")

    def __init__(
        self,
        primal: Jaxpr,
        linear: Jaxpr,
        forwarded: Sequence[int],
        memories: Sequence[Offloadable | None],
        nonzero_out: Flags,
    ) -> None:
        self.primal = primal
        self.linear = linear
        self.forwarded = tuple(forwarded)
        self.memories = tuple(memories)
        self.nonzero_out = nonzero_out


def split_for(jaxpr: Jaxpr, nonzero: Flags, decisions: Decisions) -> Split:
    """The split for tangents at ``nonzero``, remembered on the Jaxpr."""
    key = ("checkpoint", nonzero, decisions)
    found = jaxpr.cache.get(key)
    if found is None:
        make = _keep_nothing if decisions.policy is None else _keep_some
        if decisions.policy is save_by_cost:
            make = _keep_cheapest
        found = jaxpr.cache[key] = make(jaxpr, nonzero, decisions)
    return found


def _keep_nothing(jaxpr: Jaxpr, nonzero: Flags, decisions: Decisions) -> Split:
    """The primal is the Jaxpr itself: it is neither traced nor compiled in a second form."""
    del decisions
    whole, nonzero_out = _with_tangents(jaxpr, nonzero, None)
    n, n_out = jaxpr.n_in, len(jaxpr.outs)
    wanted = (*[False] * n_out, *[True] * sum(nonzero_out))
    linear, used = dce_jaxpr(whole, wanted, keep_in=True)
    forwarded = [i for i in range(n) if used[i]]
    linear = permute_jaxpr(linear, [*forwarded, *range(n, linear.n_in)])
    return Split(jaxpr, linear, forwarded, (), nonzero_out)


def _keep_cheapest(jaxpr: Jaxpr, nonzero: Flags, decisions: Decisions) -> Split:
    """What a cheapest cut of the program keeps; loops choose for their own steps."""
    whole, nonzero_out = _with_tangents(jaxpr, nonzero, decisions.policy)
    n, n_out = jaxpr.n_in, len(jaxpr.outs)
    unknown = (*[False] * n, *[True] * (whole.n_in - n))
    known = KnownGraph(split_by_known(whole, unknown), n)
    graph, outs, tangents = known.graph, known.outs[:n_out], known.outs[n_out:]
    prices = Prices(graph, outs, _PER_VALUE)
    needed = known.needed(tangents)
    plan = plan_residuals(graph, graph.equations, lambda number: number < n, needed, prices)
    forwarded = [k for k in plan.kept if k < n]
    kept = [k for k in plan.kept if k >= n]
    primal = graph.program(range(n), [*outs, *kept], jaxpr.debug)
    note_plan(primal, {n_out + i: k for i, k in enumerate(kept)}, graph, plan, prices)
    inputs = [*forwarded, *kept, *known.unknown_inputs]
    equations = [*plan.redone, *known.unknown]
    linear = graph.program(inputs, tangents, jaxpr.debug, equations)
    return Split(primal, linear, forwarded, (None,) * len(kept), nonzero_out)


def _keep_some(jaxpr: Jaxpr, nonzero: Flags, decisions: Decisions) -> Split:
    whole, nonzero_out = _with_tangents(jaxpr, nonzero, decisions.policy)
    n, n_out = jaxpr.n_in, len(jaxpr.outs)
    unknown = (*[False] * n, *[True] * (whole.n_in - n))
    parts = partial_eval_jaxpr(whole, unknown, saveable=decisions)
    primal, forwarded, order = _without_passed_on(parts.known, parts.n_residuals)
    n_kept = len(primal.outs) - n_out
    n_res = parts.n_residuals
    # Of the linear part: where each of (forwarded, kept) stood among the residuals.
    old = [0] * n_res
    for position, i in enumerate(order):
        old[i] = position
    linear = permute_jaxpr(parts.unknown, [*old, *range(n_res, parts.unknown.n_in)])
    decisions_of_results: list[Decision] = decisions.of_results(primal)[n_out:]
    memories = [d if isinstance(d, Offloadable) else None for d in decisions_of_results]
    if any(memories):
        linear = _brought_back(linear, len(forwarded), memories)
    assert len(memories) == n_kept
    return Split(primal, linear, forwarded, memories, nonzero_out)


def _without_passed_on(known: Jaxpr, n_residuals: int) -> tuple[Jaxpr, list[int], list[int]]:
    """``known`` without residuals that are its inputs.

    Also the numbers of these inputs, and for each residual its place among (inputs, others).
    """
    n_out = len(known.outs) - n_residuals
    variables = known.outs[n_out:]
    forwarded = [s for s in variables if s < known.n_in]
    computed = [s for s in variables if s >= known.n_in]
    order: list[int] = []
    n_forwarded = n_computed = 0
    for s in variables:
        if s < known.n_in:
            order.append(n_forwarded)
            n_forwarded += 1
        else:
            order.append(len(forwarded) + n_computed)
            n_computed += 1
    return permute_jaxpr(known, None, [*known.outs[:n_out], *computed]), forwarded, order


def _brought_back(linear: Jaxpr, first: int, memories: Sequence[Offloadable | None]) -> Jaxpr:
    """``linear`` that moves the kept values, its inputs from ``first`` on, back to the device."""

    def run(*args: Any) -> list[Any]:
        values = list(args)
        for i, where in enumerate(memories):
            if where is not None:
                values[first + i] = to_memory_p.bind(values[first + i], kind=where.src)
        return eval_jaxpr(linear, current_trace().process, values)

    return stage(run, linear.in_avals, linear.debug, locate=False)


def _with_tangents(jaxpr: Jaxpr, nonzero: Flags, policy: Policy | None) -> tuple[Jaxpr, Flags]:
    """(inputs, tangents) -> (results, tangents), in which no equation mixes the two.

    Unlike ``jvp_jaxpr`` it contains rules that work in reverse mode only. With a policy calls are
    inlined, so that it sees the equations, which keep their lines.
    """
    n = jaxpr.n_in
    nonzero_out: list[bool] = []

    def run(*args: Any) -> list[Any]:
        staging = current_trace()

        def body(*xs: Any) -> list[Any]:
            process = current_trace().process
            if policy is not None and isinstance(staging, StagingTrace):
                of_steps = None if policy is save_by_cost else policy
                return eval_in_place(jaxpr, process, xs, staging, of_steps)
            return eval_jaxpr(jaxpr, process, xs)

        outs, linear = linearize_flat(body, args[:n], nonzero)
        tangents = linear.forward(staging.process, args[n:])
        nonzero_out.extend([t is not None for t in tangents])
        return [*outs, *[t for t in tangents if t is not None]]

    avals = [a.tangent for a, nz in zip(jaxpr.in_avals, nonzero, strict=True) if nz]
    locate = policy is not None
    whole = stage(run, [*jaxpr.in_avals, *avals], jaxpr.debug, locate=locate)
    return whole, tuple(nonzero_out)


def eval_in_place(
    jaxpr: Jaxpr,
    process: Process,
    args: Sequence[Value],
    staging: StagingTrace,
    policy: Policy | None = None,
) -> list[Any]:
    """Run ``jaxpr`` with calls inlined; what is staged gets the lines of its equations.

    Bodies of ``scan`` and branches of ``cond`` become checkpoints with ``policy``.
    """
    env: list[Any] = [*args, *jaxpr.consts]
    for k, (app, idx) in enumerate(jaxpr.equations):
        values = [env[i] for i in idx]
        if app.primitive.inlinable:
            inner = app.params["jaxpr"]
            env.extend(eval_in_place(inner, process, values, staging, policy))
            continue
        start = len(staging.equations)
        if policy is not None and (app.primitive.runs_steps or app.primitive.runs_one):
            app = _with_checkpoints_inside(app, policy)  # noqa: PLW2901 - the same equation
        if jaxpr.sources is None:
            result = process(app, values)
        else:
            source = jaxpr.sources[k]
            with entered(source.names if type(source) is NamedSource else ()):
                result = process(app, values)
            _locate(staging.equations, start, source)
        if app.multiple:
            env.extend(result)
        else:
            env.append(result)
    return [env[i] for i in jaxpr.outs]


def _with_checkpoints_inside(app: Application, policy: Policy) -> Any:
    """A scan that keeps of each step what the policy allows, and the carry that enters it.

    Or a choice, which keeps that of the branch that is taken.
    """
    params = app.params
    if app.primitive.runs_one:
        changed: dict[str, Any] = {
            "branches": tuple([_as_checkpoint(b, policy) for b in params["branches"]])
        }
    else:
        changed = {"jaxpr": _as_checkpoint(params["jaxpr"], policy)}
    return app.primitive.application(app.avals, {**params, **changed})


def _as_checkpoint(body: Jaxpr, policy: Policy) -> Jaxpr:
    """A program that only calls ``body``, as a checkpoint; the same one each time."""
    key = ("as_checkpoint", policy)
    found = body.cache.get(key)
    if found is None:
        n = body.n_in
        free = (False,) * n
        params = {"jaxpr": body, "prevent_cse": free, "policy": policy, "differentiated": False}
        inner = checkpoint_p.application(body.in_avals, params)
        outs = range(n, n + len(body.outs))
        equation = (inner, tuple(range(n)))
        found = Jaxpr(body.in_avals, (), (equation,), outs, body.out_avals, None, body.debug)
        body.cache[key] = found
    return found


def _locate(equations: list[tuple[Any, ...]], start: int, source: object) -> None:
    for k in range(start, len(equations)):
        app, args, outs, _ = equations[k]
        equations[k] = (app, args, outs, source)
        for out in outs if app.multiple else (outs,):
            out.source = source
