"""Residuals of a scan: what one scan computes for another one, stacked only where it must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.control.rewire import rewire
from tracebridge.core.control.scan.params import derived
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace

# Computed again in each step rather than made once before the loop and kept: they cost nothing,
# and their results may be large.
_CHEAP = frozenset({"broadcast_in_dim", "iota", "reshape", "convert_element_type"})

_CONSTANT, _STACKED, _SLICED = 0, 1, 2


@final
class ResidualScan:
    """A body whose last results are residuals, prepared for a scan that gives them.

    A residual that depends on consts only is computed once before the loop. One that is an input
    of the step is not copied: the xs themselves serve. The others become further ys, each once.
    """

    __slots__ = ("_before", "_body", "_kinds", "_n_held", "_n_out", "_stacked", "_xs_kept")

    def __init__(self, jaxpr: Jaxpr, n_consts: int, n_carry: int, n_out: int) -> None:
        n_residuals = len(jaxpr.outs) - n_out
        parts = partial_eval_jaxpr(
            jaxpr,
            tuple([i >= n_consts for i in range(jaxpr.n_in)]),
            (*[True] * n_out, *[False] * n_residuals),
            _worth_holding,
            keep_effects=True,
        )
        known, n_held = parts.known, parts.n_residuals
        n_constant = len(known.outs) - n_held
        # consts -> what the steps need of them, then the constant residuals
        self._before = rewire(known, None, [*known.outs[n_constant:], *known.outs[:n_constant]])
        self._n_held = n_held
        self._n_out = n_out
        self._xs_kept: list[int] = []
        self._stacked: list[int] = []
        self._kinds: list[int] = []
        step = parts.unknown
        results = list(step.outs[:n_out])
        # A residual that is among the ys is stacked already. Carries are not stacked.
        at = {slot: i for i, slot in enumerate(results) if i >= n_carry}
        variable = iter(step.outs[n_out:])
        for varies in parts.unknown_out[n_out:]:
            if not varies:
                self._kinds.append(_CONSTANT)
                continue
            slot = next(variable)
            if n_held + n_carry <= slot < step.n_in:
                self._kinds.append(_SLICED)
                self._xs_kept.append(slot - n_held - n_carry)
                continue
            if slot not in at:
                at[slot] = len(results)
                results.append(slot)
            self._kinds.append(_STACKED)
            self._stacked.append(at[slot])
        self._body = rewire(step, None, results)

    def bind(
        self,
        primitive: Any,
        params: dict[str, Any],
        consts: Sequence[Any],
        init: Sequence[Any],
        xs: Sequence[Any],
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Bind the scan: its results, the constant residuals, the stacked ones."""
        made = eval_jaxpr(self._before, current_trace().process, consts)
        held, constant = made[: self._n_held], made[self._n_held :]
        given = derived(params, self._body, len(held), len(init))
        results = primitive.bind(*held, *init, *xs, **given)
        stacked = [results[i] for i in self._stacked] + [xs[i] for i in self._xs_kept]
        return results[: self._n_out], constant, stacked

    def in_scan_order(self, jaxpr: Jaxpr, n_fixed: int) -> Jaxpr:
        """A body that takes (residuals, ``n_fixed`` consts and carries, xs), ready for scan.

        Its inputs become (constant residuals, consts, carries; stacked residuals, xs).
        """
        kinds = self._kinds
        others = list(range(len(kinds), jaxpr.n_in))
        constant = [i for i, kind in enumerate(kinds) if kind == _CONSTANT]
        stacked = [i for i, kind in enumerate(kinds) if kind == _STACKED]
        sliced = [i for i, kind in enumerate(kinds) if kind == _SLICED]
        order = [*constant, *others[:n_fixed], *stacked, *sliced, *others[n_fixed:]]
        return rewire(jaxpr, order)


def _worth_holding(app: Any) -> bool:
    return app.primitive.name not in _CHEAP
