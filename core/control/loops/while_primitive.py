"""The primitive behind while_loop and fori_loop, and its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, final

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.permute import permute_jaxpr, used_inputs
from tracebridge.core.errors.transform_errors import (
    EffectError,
    GradientTypeError,
)
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.low import low_jaxpr
from tracebridge.core.interpreters.split_by_known import unknown_outs
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import check_effects, ordered_effects
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.user_type import high_values, low_avals, low_values
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis
from tracebridge.core.lowering import tokens

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


T = TypeVar("T")
Flags = tuple[bool, ...]


def groups(params: Params, args: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
    """Consts of the condition, consts of the body, carries."""
    first = params["cond_nconsts"]
    second = first + params["body_nconsts"]
    return list(args[:first]), list(args[first:second]), list(args[second:])


def _first(state: Sequence[object]) -> Any:
    return state[0]


def _chosen(flags: Sequence[bool], xs: Sequence[T]) -> list[T]:
    return [x for x, flag in zip(xs, flags, strict=True) if flag]


@final
class While(HigherOrderPrimitive):
    """``body_jaxpr``: (consts, carry) -> carry; ``cond_jaxpr``: (consts, carry) -> bool.

    Arguments are ``cond_nconsts`` and ``body_nconsts`` constants, then the carries.
    """

    name = "while"
    effect_place = "in_control_flow"

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        del avals
        return list(params["body_jaxpr"].out_avals)

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[frozenset[Any]]:
        """As the carries do at the start and after a step, and as the end of the loop does."""
        end = params["cond_jaxpr"].out_avals[0].vma
        pairs = zip(groups(params, avals)[2], outs, strict=True)
        return [end | a.vma | o.vma for a, o in pairs]

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> list[Any]:
        cond_consts, body_consts, _ = groups(params, [a.aval for a in args])
        changed = {
            "cond_jaxpr": low_jaxpr(params["cond_jaxpr"]),
            "body_jaxpr": low_jaxpr(params["body_jaxpr"]),
            "cond_nconsts": len(low_avals(cond_consts)),
            "body_nconsts": len(low_avals(body_consts)),
        }

        arrays = low_values(args, [a.aval for a in args])
        return high_values(self.bind(*arrays, **{**params, **changed}), outs)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        cond_consts, body_consts, carry = groups(params, operands)
        avals = groups(params, ctx.avals_in)[2]
        effects = self.effects(**params)

        def condition(state: Sequence[Any]) -> Any:
            return ctx.inline_jaxpr(params["cond_jaxpr"], [*cond_consts, *state], "cond")[0]

        def body(state: Sequence[Any]) -> Sequence[Any]:
            return ctx.inline_jaxpr(params["body_jaxpr"], [*body_consts, *state], "body")

        if not ordered_effects(params["cond_jaxpr"].effects):
            return tokens.while_loop(ctx, effects, carry, avals, condition, body)

        # The region of a condition gives no token, so that the loop carries what it found.
        def step(state: Sequence[object]) -> Sequence[Any]:
            new = body(state[1:])
            return [condition(new), *new]

        going = params["cond_jaxpr"].out_avals[0]
        state = [condition(carry), *carry]
        return tokens.while_loop(ctx, effects, state, [going, *avals], _first, step)[1:]

    def by_steps(self, walk: Callable[..., Any], arrays: Sequence[object], **params: Any) -> None:
        """Give each step to ``walk(jaxpr, arrays) -> arrays``, which looks for a NaN."""
        cond_consts, body_consts, carry = groups(params, arrays)
        while bool(walk(params["cond_jaxpr"], [*cond_consts, *carry])[0]):
            carry = walk(params["body_jaxpr"], [*body_consts, *carry])

    # differentiation: forward mode only ----------------------------------------------------------

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return self._joint(primals, tangents, params)

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """The loop of the primals, and a loop of primals and tangents together.

        The number of steps is not known, so the first loop can keep nothing for the second one.
        """
        # The first loop has the effects.
        silent = _silent(params, "linearize")
        _, out_tangents = self._joint(primals, tangents, silent)
        return self.bind(*primals, **params), out_tangents

    def _joint(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], params: Params
    ) -> tuple[list[Any], list[Any]]:
        cond_consts, body_consts, init = groups(params, primals)
        _, consts_t, init_t = groups(params, tangents)
        body, nonzero = _joint_body(
            params["body_jaxpr"],
            tuple([t is not None for t in consts_t]),
            tuple([t is not None for t in init_t]),
        )
        started = [
            zeros_of(p.aval.tangent) if t is None else t
            for p, t, nz in zip(init, init_t, nonzero, strict=True)
            if nz
        ]
        nonzero_consts_t = [t for t in consts_t if t is not None]
        cond: Jaxpr = params["cond_jaxpr"]
        cond = permute_jaxpr(cond, [*range(cond.n_in), *[t.aval for t in started]])
        results = self.bind(
            *cond_consts,
            *body_consts,
            *nonzero_consts_t,
            *init,
            *started,
            body_jaxpr=body,
            cond_jaxpr=cond,
            cond_nconsts=len(cond_consts),
            body_nconsts=len(body_consts) + len(nonzero_consts_t),
        )
        remaining_results = iter(results[len(init) :])
        return results[: len(init)], [next(remaining_results) if nz else None for nz in nonzero]

    def transpose(
        self, ct: Sequence[Value | None], *args: Value, **params: object
    ) -> Sequence[Any]:
        msg = (
            "Reverse-mode differentiation does not work for lax.while_loop, nor for a fori_loop "
            "whose number of steps is computed: it would keep values of unknown many steps"
        )
        raise GradientTypeError(
            msg,
            hint="loop with scan, or with fori_loop between Python integers; or use forward mode",
        )

    # batching ------------------------------------------------------------------------------------

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        flags = [tuple([d is not None for d in g]) for g in groups(params, dims)]
        body, cond, carry = _batched(params, ctx.size, ctx.axis, *flags)
        moved = [
            a if d is None else move_batch_axis(a, d, 0) for a, d in zip(args, dims, strict=True)
        ]
        cond_consts, body_consts, init = groups(params, moved)
        init = [
            broadcast_batch(a, ctx.size, 0) if b and not was else a
            for a, b, was in zip(init, carry, flags[2], strict=True)
        ]
        # A batched condition makes the body look at it too: elements that are done stay.
        n_more = body.n_in - len(body_consts) - len(init)
        body_consts = [*(cond_consts if n_more else ()), *body_consts]
        results = self.bind(
            *cond_consts,
            *body_consts,
            *init,
            body_jaxpr=body,
            cond_jaxpr=cond,
            cond_nconsts=len(cond_consts),
            body_nconsts=len(body_consts),
        )
        return results, [0 if b else None for b in carry]

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        params = app.params
        cond_consts, body_consts, init = groups(params, ins)
        going: Any = frozenset()

        def step(carry: list[Any]) -> list[Any]:
            nonlocal going
            (going,) = walk.walk(params["cond_jaxpr"], [*cond_consts, *carry])
            # Where devices stop at different times, they differ.
            return [n | going for n in walk.walk(params["body_jaxpr"], [*body_consts, *carry])]

        carry = walk.until_stable(step, init)
        walk.agree("while_loop", going, [params["cond_jaxpr"], params["body_jaxpr"]])
        return carry

    # parts ---------------------------------------------------------------------------------------

    def dce(self, used_outs: Flags, app: Application) -> tuple[Any, list[bool], list[bool]]:
        """The loop without carries that neither results nor the condition need."""
        params = app.params
        cond: Jaxpr = params["cond_jaxpr"]
        n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
        carry = tuple([a or b for a, b in zip(used_outs, used_inputs(cond)[n_cond:], strict=True)])
        while True:
            body, used_in = dce_jaxpr(params["body_jaxpr"], carry, keep_in=True)
            wider = tuple([a or b for a, b in zip(carry, used_in[n_body:], strict=True)])
            if wider == carry:
                break
            carry = wider
        body_kept = used_inputs(body)[:n_body]
        body = permute_jaxpr(body, [i for i, k in enumerate((*body_kept, *carry)) if k])
        cond = permute_jaxpr(
            cond, [*range(n_cond), *[n_cond + i for i, k in enumerate(carry) if k]]
        )
        kept = [*[True] * n_cond, *body_kept, *carry]
        smaller = {
            "body_jaxpr": body,
            "cond_jaxpr": cond,
            "cond_nconsts": n_cond,
            "body_nconsts": sum(body_kept),
        }
        return self.application(tuple(_chosen(kept, app.avals)), smaller), kept, list(carry)

    def unknown_outs(self, unknown: Flags, **params: Any) -> Sequence[bool]:
        """Which results depend on unknown arguments; all, if the condition does."""
        cond_consts, body_consts, init = groups(params, unknown)
        carry = tuple(init)
        while True:
            outs = unknown_outs(params["body_jaxpr"], (*body_consts, *carry))
            wider = tuple([a or b for a, b in zip(carry, outs, strict=True)])
            if wider == carry:
                break
            carry = wider
        if any(unknown_outs(params["cond_jaxpr"], (*cond_consts, *carry))):
            return (True,) * len(carry)
        return carry

    def split_by_known(self, unknown: Flags, args: Sequence[Value], **params: Any) -> list[Any]:
        """A loop of the known carries, and the whole loop again for the others."""
        flags = self.unknown_outs(unknown, **params)
        whole = self.application(tuple([a.aval for a in args]), params)
        wanted = tuple([not u for u in flags])
        smaller, kept, carry = self.dce(wanted, whole)
        if whole.effects:
            # They stay in one of the loops: in the first one, if they do not need unknown values.
            silent = self.application(whole.avals, _silent(params, "partial evaluation"))
            if any([k and u for k, u in zip(kept, unknown, strict=True)]):
                smaller, kept, carry = self.dce(wanted, silent)
            else:
                whole = silent
        process = current_trace().process
        known = iter(process(smaller, _chosen(kept, args)))
        known_of = [next(known) if here else None for here in carry]
        results = process(whole, args)
        return [r if u else k for r, k, u in zip(results, known_of, flags, strict=True)]


while_p = While()


def _silent(params: Params, call: str) -> dict[str, Any]:
    """The parameters of the loop without its effects, for a loop that repeats another one."""
    found = dict(params)
    for name in ("body_jaxpr", "cond_jaxpr"):
        jaxpr: Jaxpr = params[name]
        if jaxpr.effects:
            used = (True,) * len(jaxpr.outs)
            found[name] = dce_jaxpr(jaxpr, used, keep_in=True, keep_effects=False)[0]
            if found[name].effects:
                msg = (
                    f"{call} of while_loop: it would run twice, and its steps need results of "
                    "callbacks with side effects"
                )
                raise EffectError(msg, hint="use jvp, which runs it once")
    return found


def _joint_body(body: Jaxpr, consts: Flags, carry: Flags) -> tuple[Jaxpr, Flags]:
    """The jvp of the body, (consts, tangents, carry, tangents) -> (carry, tangents)."""
    key = ("while_jvp", consts, carry)
    cached = body.cache.get(key)
    if cached is not None:
        return cached
    while True:
        joint, nonzero = jvp_jaxpr(body, (*consts, *carry), carry)
        wider = tuple([a or b for a, b in zip(carry, nonzero, strict=True)])
        if wider == carry:
            break
        carry = wider
    n, n_consts, n_t = body.n_in, len(consts), sum(consts)
    order = [
        *range(n_consts),
        *range(n, n + n_t),
        *range(n_consts, n),
        *range(n + n_t, joint.n_in),
    ]
    cached = body.cache[key] = (permute_jaxpr(joint, order), carry)
    return cached


def _batched(
    params: Params,
    size: object,
    axis: object,
    cond_consts: Flags,
    body_consts: Flags,
    carry: Flags,
) -> tuple[Jaxpr, Jaxpr, Flags]:
    """Body and condition of the batched loop, and which carries are batched."""
    body: Jaxpr = params["body_jaxpr"]
    cond: Jaxpr = params["cond_jaxpr"]
    key = ("while_batch", cond, size, axis, cond_consts, body_consts, carry)
    cached = body.cache.get(key)
    if cached is not None:
        return cached

    def dims(flags: Sequence[bool]) -> tuple[int | None, ...]:
        return tuple([0 if b else None for b in flags])

    while True:
        new_body, out_dims = batch_jaxpr(body, size, axis, dims((*body_consts, *carry)), carry)
        wider = tuple([a or d is not None for a, d in zip(carry, out_dims, strict=True)])
        new_cond, (test_dim,) = batch_jaxpr(cond, size, axis, dims((*cond_consts, *carry)))
        if test_dim is not None:
            wider = (True,) * len(carry)
        if wider == carry:
            break
        carry = wider
    if test_dim is not None:
        effects = body.effects | cond.effects
        check_effects(effects, "in_batched_choice", "vmap of while_loop")
        new_body, new_cond = _guarded(new_body, new_cond, len(body_consts), len(cond_consts))
    cached = body.cache[key] = (new_body, new_cond, carry)
    return cached


def _guarded(body: Jaxpr, test: Jaxpr, n_body: int, n_cond: int) -> tuple[Jaxpr, Jaxpr]:
    """A body (consts of the condition, consts, carry) that changes elements that go on only."""

    def step(*args: Any) -> list[Any]:
        process = current_trace().process
        carry = args[n_cond + n_body :]
        (going,) = eval_jaxpr(test, process, [*args[:n_cond], *carry])
        new = eval_jaxpr(body, process, args[n_cond:])
        return [_select(going, n, old) for n, old in zip(new, carry, strict=True)]

    def any_going(*args: Any) -> list[Any]:
        (going,) = eval_jaxpr(test, current_trace().process, args)
        return [lax.reduce_or(going, (0,))]

    avals = [*test.in_avals[:n_cond], *body.in_avals]
    return (
        stage(step, avals, body.debug, locate=False),
        stage(any_going, test.in_avals, test.debug, locate=False),
    )


def _select(going: Any, new: Any, old: Any) -> Any:
    """Rows of ``new`` where ``going``, of ``old`` elsewhere."""
    shape = new.aval.shape
    return lax.select_n(lax.broadcast_in_dim(going, shape, (0,)), old, new)
