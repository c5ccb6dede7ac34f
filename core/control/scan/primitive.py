"""The scan primitive; its rules are in the files beside this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.control.scan.batching import batch_scan
from tracebridge.core.control.scan.blocks import by_blocks
from tracebridge.core.control.scan.linearize import (
    jvp_scan,
    linearize_scan,
    staged_linearize_of_scan,
)
from tracebridge.core.control.scan.lowering import lower_scan
from tracebridge.core.control.scan.params import groups
from tracebridge.core.control.scan.partial_eval import (
    dce_scan,
    split_scan_by_known,
    unknown_of_scan,
)
from tracebridge.core.control.scan.transpose import staged_transpose_of_scan, transpose_scan
from tracebridge.core.errors.base import InternalError
from tracebridge.core.interpreters.low import call_low
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.effects import Effects, check_effects
from tracebridge.core.ir.higher_order import HigherOrderPrimitive
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.user_type import is_user_type, low_avals
from tracebridge.core.runtime.arrays.transfer import put_numpy

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value


@final
class Scan(HigherOrderPrimitive):
    """``jaxpr``: (consts, carry, slices of xs) -> (carry, slices of ys).

    Arguments are ``num_consts`` constants of the loop, ``num_carry`` initial carries, and arrays
    with leading axis ``length``; results are the last carries and the stacked ys. ``reverse`` runs
    from the last slice to the first, ``unroll`` steps stand in one round of the compiled loop.
    ``split_transpose`` moves what the backward loop need not do in order into a loop of its own.
    """

    name = "scan"
    effect_place = "in_control_flow"
    stages_when_repeated = True
    runs_steps = True

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        jaxpr, length, n_carry = params["jaxpr"], params["length"], params["num_carry"]
        fixed = params["num_consts"] + n_carry
        inner = jaxpr.in_avals
        if avals[:fixed] != inner[:fixed]:
            _check_operands(avals[:fixed], inner[:fixed], ())
        if len(avals) > fixed or len(inner) > fixed:
            _check_operands(avals[fixed:], inner[fixed:], (length,))
        outs = jaxpr.out_avals
        if len(outs) == n_carry:
            return list(outs)
        return [*outs[:n_carry], *[batched_aval(a, length) for a in outs[n_carry:]]]

    def vary_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Sequence[frozenset[Any]]:
        """As what a step gives; carries also as they do at the start."""
        first, n = params["num_consts"], params["num_carry"]
        carry = [a.vma | o.vma for a, o in zip(avals[first : first + n], outs[:n], strict=True)]
        return [*carry, *[o.vma for o in outs[n:]]]

    def effects(self, *avals: ShapedArray, **params: Any) -> Effects:
        """Those of the body."""
        found = params["jaxpr"].effects
        if found:
            check_effects(found, self.effect_place, self.name)
        return found

    def place(
        self, avals: tuple[ShapedArray, ...], params: Params
    ) -> tuple[dict[Any, Any], tuple[Any, ...]]:
        """As for every primitive with programs inside; scan has one, where to look is known."""
        jaxpr = params["jaxpr"]
        if type(jaxpr) is not Jaxpr:
            return super().place(avals, params)
        return jaxpr.cache, (
            self,
            avals,
            params["length"],
            params["reverse"],
            params["unroll"],
            params["num_consts"],
            params["num_carry"],
            params["split_transpose"],
        )

    def low(self, args: Sequence[Any], outs: Sequence[Any], **params: Any) -> list[Any]:
        inner: Jaxpr = params["jaxpr"]
        n = params["num_consts"]
        n_consts = len(low_avals(inner.in_avals[:n]))
        n_carry = len(low_avals(inner.out_avals[: params["num_carry"]]))

        def bind(arrays: list[Any], jaxpr: Jaxpr) -> list[Any]:
            changed = {"jaxpr": jaxpr, "num_consts": n_consts, "num_carry": n_carry}
            return self.bind(*arrays, **{**params, **changed})

        return call_low(bind, inner, args, outs)

    def lower(self, ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
        return lower_scan(ctx, operands, params)

    def by_blocks(self, app: Application) -> Any:
        """Where its xs are, and how they are made for some steps at a time."""
        return by_blocks(app)

    def by_steps(self, walk: Callable[..., Any], arrays: Sequence[Any], **params: Any) -> None:
        """Give each step to ``walk(jaxpr, arrays) -> arrays``, which looks for a NaN."""
        consts, carry, xs = groups(params, arrays)
        rows = [x._to_numpy() for x in xs]
        order = range(params["length"])
        for i in reversed(order) if params["reverse"] else order:
            slices = [put_numpy(np.asarray(row[i])) for row in rows]
            carry = walk(params["jaxpr"], [*consts, *carry, *slices])[: len(carry)]

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        return jvp_scan(self, primals, tangents, params)

    def staged_linearize(self, app: Application, mask: int) -> Any:
        """A scan of the primals that also gives residuals, and a linear scan."""
        return staged_linearize_of_scan(self, app, mask)

    def linearize_unstaged(
        self, trace: Any, primals: Sequence[Value], tangents: Sequence[Any], params: Params
    ) -> tuple[list[Any], list[int | None]]:
        """The same two scans: one runs, the other one is recorded on the tape of ``trace``."""
        return linearize_scan(trace, self, primals, tangents, params)

    def transpose(self, ct: Any, *args: Any, **params: Any) -> Sequence[Any]:
        return transpose_scan(self, ct, args, params)

    def staged_transpose(self, app: Application, mask: int, ct_mask: int) -> Any:
        """One scan in the other direction; None if more is to be done, by ``transpose``."""
        return staged_transpose_of_scan(self, app, mask, ct_mask)

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        return batch_scan(self, ctx, args, dims, params)

    def varying(self, app: Application, ins: Sequence[Any], walk: Any) -> Sequence[Any]:
        consts, init, xs = groups(app.params, ins)
        jaxpr, n = app.params["jaxpr"], len(init)

        def step(carry: list[Any]) -> list[Any]:
            return walk.walk(jaxpr, [*consts, *carry, *xs])[:n]

        carry = walk.until_stable(step, init)
        return [*carry, *walk.walk(jaxpr, [*consts, *carry, *xs])[n:]]

    def dce(
        self, used_outs: tuple[bool, ...], app: Application
    ) -> tuple[Any, list[bool], list[bool]]:
        """The scan without ys and carries that nothing needs."""
        return dce_scan(self, used_outs, app)

    def unknown_outs(self, unknown: tuple[bool, ...], **params: Any) -> Sequence[bool]:
        """Which results depend on unknown arguments, through carries too."""
        return unknown_of_scan(unknown, params)

    def split_by_known(
        self, unknown: tuple[bool, ...], args: Sequence[Value], **params: Any
    ) -> list[Any]:
        """A scan of the known part that gives residuals, and a scan of the rest."""
        return split_scan_by_known(self, unknown, args, params)


def _check_operands(
    avals: tuple[ShapedArray, ...], inner: tuple[ShapedArray, ...], lead: tuple[object, ...]
) -> None:
    """Operands are what the body takes, with the axes ``lead`` before theirs."""
    for given, taken in zip(avals, inner, strict=True):
        if is_user_type(given):
            continue
        if given.shape != (*lead, *taken.shape) or given.dtype != taken.dtype:
            what = "as it is" if not lead else f"with a leading axis of {lead[0]}"
            msg = f"scan: an operand is {given}, its body takes {taken} {what}"
            raise InternalError(msg)


scan_p = Scan()
