"""Scan without what is not needed (dce), and scan split by what is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core.control.calls.permute import permute_jaxpr, used_inputs
from tracebridge.core.control.scan.params import chosen, derived, groups
from tracebridge.core.control.scan.residuals import residual_scan
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.split_by_known import unknown_outs
from tracebridge.core.ir.jaxpr import Jaxpr

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Application, Params
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.value import Value


Flags = tuple[bool, ...]


def dce_scan(
    primitive: Primitive, used_outs: Flags, app: Application
) -> tuple[Any, list[bool], list[bool]]:
    """A smaller application, and which arguments and results it keeps."""
    params = app.params
    jaxpr: Jaxpr = params["jaxpr"]
    n_consts, n_carry = params["num_consts"], params["num_carry"]
    carry, ys = used_outs[:n_carry], used_outs[n_carry:]
    while True:
        body, used_in = dce_jaxpr(jaxpr, (*carry, *ys), keep_in=True)
        wider = tuple(
            [a or b for a, b in zip(carry, used_in[n_consts : n_consts + n_carry], strict=True)]
        )
        if wider == carry:
            break
        carry = wider
    used = used_inputs(body)
    kept = [*used[:n_consts], *carry, *used[n_consts + n_carry :]]
    smaller = permute_jaxpr(body, [i for i, keep in enumerate(kept) if keep])
    avals = tuple(chosen(kept, app.avals))
    smaller_params = derived(params, smaller, sum(kept[:n_consts]), sum(carry))
    return primitive.application(avals, smaller_params), kept, [*carry, *ys]


def unknown_carries(unknown: Flags, params: Params) -> Flags:
    """Which carries depend on unknown arguments in some step."""
    jaxpr: Jaxpr = params["jaxpr"]
    consts, init, xs = groups(params, unknown)
    carry = tuple(init)
    while not all(carry):
        outs = unknown_outs(jaxpr, (*consts, *carry, *xs))
        wider = tuple([a or b for a, b in zip(carry, outs, strict=False)])
        if wider == carry:
            break
        carry = wider
    return carry


def unknown_of_scan(unknown: Flags, params: Params) -> Flags:
    """Which results depend on unknown arguments in some step."""
    carry = unknown_carries(unknown, params)
    consts, _, xs = groups(params, unknown)
    outs = unknown_outs(params["jaxpr"], (*consts, *carry, *xs))
    return (*carry, *outs[len(carry) :])


@final
class KnownSplit:
    """A scan as two: the known part, which gives residuals, and the unknown part."""

    __slots__ = ("_known", "_unknown_body", "carry", "unknown", "unknown_out")

    def __init__(self, params: Params, unknown: Flags) -> None:
        jaxpr: Jaxpr = params["jaxpr"]
        consts, _, xs = groups(params, unknown)
        self.carry = unknown_carries(unknown, params)
        # Arguments of the unknown scan: also known starts of carries that become unknown.
        self.unknown = (*consts, *self.carry, *xs)
        n_carry = len(self.carry)
        n_ys = len(jaxpr.outs) - n_carry
        parts = partial_eval_jaxpr(jaxpr, self.unknown, (*self.carry, *[False] * n_ys))
        self.unknown_out = parts.unknown_out
        n_known_out = len(parts.known.outs) - parts.n_residuals
        n_known_consts = list(consts).count(False)
        n_known_carry = self.carry.count(False)
        self._known = residual_scan(parts.known, n_known_consts, n_known_carry, n_known_out)
        n_fixed = sum(consts) + sum(self.carry)
        n_res = parts.n_residuals
        others = range(n_res, parts.unknown.n_in)
        order = self._known.in_scan_order(range(n_res), others, n_fixed)
        self._unknown_body = permute_jaxpr(parts.unknown, order)

    def bind_known(
        self, primitive: Primitive, args: Sequence[Value], params: Params
    ) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """Known results, and arguments and parameters of the unknown scan.

        Unknown arguments are passed on as they are, be they values or markers.
        """
        consts, init, xs = groups(params, args)
        consts_u, _, xs_u = groups(params, self.unknown)
        known_out, constant, stacked = self._known.bind(
            primitive,
            params,
            [a for a, u in zip(consts, consts_u, strict=True) if not u],
            [a for a, u in zip(init, self.carry, strict=True) if not u],
            [a for a, u in zip(xs, xs_u, strict=True) if not u],
        )
        fixed = [*constant, *chosen(consts_u, consts)]
        carries = chosen(self.carry, init)
        operands = [*fixed, *carries, *stacked, *chosen(xs_u, xs)]
        unknown_params = derived(params, self._unknown_body, len(fixed), len(carries))
        return known_out, operands, unknown_params


def split_known(params: Params, unknown: Flags) -> KnownSplit:
    """The split for unknown arguments, remembered on the body."""
    jaxpr: Jaxpr = params["jaxpr"]
    key = ("scan_known", params["num_consts"], params["num_carry"], unknown)
    found = jaxpr.cache.get(key)
    if found is None:
        found = jaxpr.cache[key] = KnownSplit(params, unknown)
    return found


def split_scan_by_known(
    primitive: Primitive, unknown: Flags, args: Sequence[Value], params: Params
) -> list[Any]:
    """Two scans: of the known part, and of the rest."""
    split = split_known(params, unknown)
    known_out, operands, given = split.bind_known(primitive, args, params)
    others = iter(primitive.bind(*operands, **given))
    known = iter(known_out)
    return [next(others) if u else next(known) for u in split.unknown_out]
