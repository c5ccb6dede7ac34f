"""Primitives of which one of several branches runs; cond, where a value chooses it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, final

import tracebridge.core.lax as lax
from tracebridge.core.control.branches.agreement import (
    BranchSplit,
    join_residuals,
    jvp_branches,
    transpose_branches,
)
from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.control.calls.permute import permute_jaxpr, used_inputs
from tracebridge.core.dtypes.dtypes import is_inexact
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.interpreters.low import low_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.split_by_known import unknown_outs
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.effects import check_effects
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.owners import largest_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.varied import joined
from tracebridge.core.lax.ad_util import full_of, unchosen_p
from tracebridge.core.lax.batch_util import move_batch_axis
from tracebridge.core.lowering import tokens

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value
from tracebridge.core.ir.user_type import high_values, low_values

Flags = tuple[bool, ...]

# Elements of an operand without batch axis that is still copied for each element of a batch.
_FEW = 4096


class Choice(HigherOrderPrimitive):
    """One of ``branches`` runs on the operands. Subclasses say how it is chosen.

    ``n_lead`` arguments before the operands take part in the choice and have no tangents.
    """

    n_lead: ClassVar[int]
    decides_varying = True
    effect_place = "in_control_flow"
    runs_one = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        # Branches agree in shapes and dtypes; the first one says what is weakly typed. So a branch
        # that only raises, or asks the host, leaves the type of the value as it is.
        del avals
        return list(params["branches"][0].out_avals)

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[frozenset[Any]]:
        """As the results of any branch, and as the choice does."""
        columns = zip(*[b.out_avals for b in params["branches"]], strict=True)
        return [joined([*avals[: self.n_lead], *column]) for column in columns]

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> list[Any]:
        branches = tuple([low_jaxpr(b) for b in params["branches"]])
        arrays = low_values(args, [a.aval for a in args])
        return high_values(self.bind(*arrays, **{**params, "branches": branches}), outs)

    # differentiation -----------------------------------------------------------------------------

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        nonzero = tuple([t is not None for t in tangents[self.n_lead :]])
        branches, nonzero_out = jvp_branches(params["branches"], nonzero)
        given = [t for t in tangents if t is not None]
        results = self.bind(*primals, *given, **{**params, "branches": branches})
        n = len(nonzero_out)
        rest = iter(results[n:])
        return results[:n], [next(rest) if nz else None for nz in nonzero_out]

    def linearize(
        self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any
    ) -> Any:
        """The primal branches with residuals, and linear branches chosen by the same index."""
        branches: tuple[Jaxpr, ...] = params["branches"]
        n_lead = self.n_lead
        nonzero = tuple([t is not None for t in tangents[n_lead:]])
        key = ("cond_linearize", branches, nonzero)
        cache = largest_jaxpr(branches).cache
        cached = cache.get(key)
        if cached is None:
            cached = cache[key] = _linearized(branches, nonzero)
        split, nonzero_out = cached
        lead, operands = primals[:n_lead], primals[n_lead:]
        results = self.bind(*primals, **{**params, "branches": split.first})
        n = len(nonzero_out)
        residuals = [*results[n:], *[operands[i] for i in split.forwarded]]
        nonzero_tangents = [t for t in tangents if t is not None]
        linear = {**params, "branches": split.second}
        remaining_tangents = iter(
            self.bind(*lead, *residuals, *nonzero_tangents, **linear) if any(nonzero_out) else ()
        )
        return results[:n], [next(remaining_tangents) if nz else None for nz in nonzero_out]

    def transpose(self, ct: Sequence[Value | None], *args: Value, **params: Any) -> Sequence[Any]:
        lead, operands = args[: self.n_lead], args[self.n_lead :]
        linear = tuple([is_linear_input(a) for a in operands])
        given = tuple([c is not None for c in ct])
        branches, present = transpose_branches(params["branches"], linear, given)
        if not any(present):
            return [None] * len(args)
        values = [a for a in operands if not is_linear_input(a)]
        cts = [c for c in ct if c is not None]
        back = {**params, "branches": branches}
        results = iter(self.bind(*lead, *values, *cts, **back))
        found = iter([next(results) if here else None for here in present])
        return [*[None] * len(lead), *[next(found) if is_linear else None for is_linear in linear]]

    # batching ------------------------------------------------------------------------------------

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """All elements take the same branch."""
        branches: tuple[Jaxpr, ...] = params["branches"]
        moved, in_dims = _in_front(args, dims)
        in_dims = in_dims[self.n_lead :]
        found = [batch_jaxpr(b, ctx.size, ctx.axis, in_dims)[1] for b in branches]
        wanted = tuple([any([d is not None for d in ds]) for ds in zip(*found, strict=True)])
        batched = [batch_jaxpr(b, ctx.size, ctx.axis, in_dims, wanted)[0] for b in branches]
        results = self.bind(*moved, **{**params, "branches": tuple(batched)})
        return results, [0 if w else None for w in wanted]

    # parts ---------------------------------------------------------------------------------------

    def dce(self, used_outs: Flags, app: Application) -> tuple[Any, list[bool], list[bool]]:
        """Branches without unused results, and without operands that only they need."""
        smaller = [dce_jaxpr(b, used_outs, keep_in=True)[0] for b in app.params["branches"]]
        used = [any(flags) for flags in zip(*[used_inputs(b) for b in smaller], strict=True)]
        order = [i for i, u in enumerate(used) if u]
        branches = tuple([permute_jaxpr(b, order) for b in smaller])
        kept = [*[True] * self.n_lead, *used]
        avals = tuple([a for a, k in zip(app.avals, kept, strict=True) if k])
        smaller_app = self.application(avals, {**app.params, "branches": branches})
        return smaller_app, kept, list(used_outs)

    def unknown_outs(self, unknown: Flags, **params: Any) -> Sequence[bool]:
        """Which results depend on unknown operands; all, if the choice is unknown."""
        branches = params["branches"]
        n_lead = self.n_lead
        if any(unknown[:n_lead]):
            return (True,) * len(branches[0].outs)
        found = [unknown_outs(b, tuple(unknown[n_lead:])) for b in branches]
        return tuple([any(flags) for flags in zip(*found, strict=True)])

    def split_by_known(self, unknown: Flags, args: Sequence[Value], **params: Any) -> list[Any]:
        """The known part of the branches with residuals, and the rest of the branches."""
        branches: tuple[Jaxpr, ...] = params["branches"]
        flags = tuple(self.unknown_outs(unknown, **params))
        key = ("cond_split_by_known", branches, unknown)
        cache = largest_jaxpr(branches).cache
        split = cache.get(key)
        if split is None:
            inner = tuple(unknown[self.n_lead :])
            parts = [partial_eval_jaxpr(b, inner, flags) for b in branches]
            n_known = flags.count(False)
            known = [(p.known, p.known.outs[n_known:], n_known) for p in parts]
            split = join_residuals(known, [p.unknown for p in parts], [() for _ in parts])
            cache[key] = split
        lead, operands = args[: self.n_lead], args[self.n_lead :]
        pairs = list(zip(operands, unknown[self.n_lead :], strict=True))
        known_args = [a for a, u in pairs if not u]
        results = self.bind(*lead, *known_args, **{**params, "branches": split.first})
        n = flags.count(False)
        residuals_and_unknown = [*results[n:], *[a for a, u in pairs if u]]
        others = iter(
            self.bind(*lead, *residuals_and_unknown, **{**params, "branches": split.second})
        )
        known_out = iter(results[:n])
        return [next(others) if u else next(known_out) for u in flags]


def _in_front(
    args: Sequence[Value], dims: Sequence[int | None]
) -> tuple[list[Any], tuple[int | None, ...]]:
    """Arguments with their batch axes in front."""
    moved = [a if d is None else move_batch_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    return moved, tuple([None if d is None else 0 for d in dims])


@final
class Cond(Choice):
    """``branches[index](*operands)``; ``index`` is an int32 between 0 and the last branch."""

    name = "cond"
    n_lead = 1

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        index, *args = operands
        emit = [
            functools.partial(ctx.inline_jaxpr, b, args, f"branch_{i}_fun")
            for i, b in enumerate(params["branches"])
        ]
        return tokens.case(ctx, self.effects(**params), index, ctx.avals_out, emit)

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        branches = app.params["branches"]
        walk.agree("cond", ins[0], branches)
        rows = [walk.walk(branch, ins[1:]) for branch in branches]
        return [ins[0].union(*sets) for sets in zip(*rows, strict=True)]

    def by_steps(self, walk: Callable[..., Any], arrays: Sequence[Any], **params: Any) -> None:
        """Give the chosen branch to ``walk(jaxpr, arrays)``, which looks for a NaN."""
        walk(params["branches"][int(arrays[0])], arrays[1:])

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        if dims[0] is None:
            return super().batch(ctx, args, dims, **params)
        # Each element chooses for itself: all branches run.
        check_effects(self.effects(**params), "in_batched_choice", "vmap of cond")
        moved, in_dims = _in_front(args, dims)
        index, *operands = moved
        process = current_trace().process
        dims = in_dims[1:]
        handed_on = _handed_on(params["branches"])
        rows: list[list[Any]] = []
        for k, branch in enumerate(params["branches"]):
            chosen = lax.eq(index, full_of(index.aval, k))
            used = used_inputs(branch)
            pairs = [
                _shielded(x, d, chosen) if u else (x, d)
                for x, d, u in zip(operands, dims, used, strict=True)
            ]
            in_dims = tuple([d for _, d in pairs])
            batched = batch_jaxpr(branch, ctx.size, ctx.axis, in_dims, True)[0]
            values = [x for x, _ in pairs]
            if any(
                [isinstance(app.primitive, HigherOrderPrimitive) for app, _ in branch.equations]
            ):
                # Written out at each level, nested choices would be staged again and again.
                rows.append(closed_call_p.bind(*values, jaxpr=batched))
            else:
                rows.append(eval_jaxpr(batched, process, values))
        results = [
            _pick(index, row) if k is None else operands[k]
            for row, k in zip(zip(*rows, strict=True), handed_on, strict=True)
        ]
        return results, [0 if k is None else dims[k] for k in handed_on]


cond_p = Cond()


def _linearized(branches: tuple[Jaxpr, ...], nonzero: Flags) -> tuple[BranchSplit, Flags]:
    first = [linearize_jaxpr(b, nonzero) for b in branches]
    nonzero_out = tuple([any(nz) for nz in zip(*[f.nonzero_out for f in first], strict=True)])
    parts = [linearize_jaxpr(b, nonzero, nonzero_out) for b in branches]
    n = len(nonzero_out)
    primal = [(p.primal, p.primal.outs[n:], n) for p in parts]
    split = join_residuals(primal, [p.linear for p in parts], [p.forwarded for p in parts])
    return split, nonzero_out


def _handed_on(branches: Sequence[Jaxpr]) -> list[int | None]:
    """For each result the operand that it is in every branch; None for the others."""
    outs_of_branches = zip(*[b.outs for b in branches], strict=True)
    return [
        s[0] if s[0] < branches[0].n_in and len(set(s)) == 1 else None for s in outs_of_branches
    ]


def _shielded(x: Value, dim: int | None, chosen: Any) -> tuple[Any, int | None]:
    """``x`` for a branch that some elements of a batch take, and its batch axis.

    The branch runs for the others too, with values that it is not made for: a derivative there may
    be infinite, and 0 times that is NaN. So no derivative leaves the branch for these elements.
    """
    aval = x.aval
    if not is_inexact(aval.dtype):
        return x, dim
    if dim is None:
        if any([type(d) is not int for d in aval.shape]) or aval.size > _FEW:
            return x, dim
        x = lax.broadcast_in_dim(
            x, (*chosen.aval.shape, *aval.shape), tuple(range(1, aval.ndim + 1))
        )
    mask = lax.broadcast_in_dim(chosen, x.aval.shape, (0,))
    return lax.select_n(mask, unchosen_p.bind(x), x), 0


def _pick(index: Operand, rows: Sequence[Any]) -> Any:
    """Elements of ``rows[index]``, for a batched index."""
    aval = rows[0].aval
    which = lax.broadcast_in_dim(index, aval.shape, (0,))
    if len(rows) == 2:
        return lax.select_n(lax.ne(which, 0), *rows)
    return lax.select_n(which, *rows)
