"""Forward mode of scan, and its linearization into a primal scan and a linear scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.control.rewire import rewire
from tracebridge.core.control.scan.params import derived, groups
from tracebridge.core.control.scan.residuals import ResidualScan
from tracebridge.core.interpreters.jvp import jvp_jaxpr
from tracebridge.core.interpreters.linearize import LinearizedJaxpr, linearize_jaxpr
from tracebridge.core.interpreters.plans import linear_plan
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lax.ad_util import zeros_of

Flags = tuple[bool, ...]


def tangent_outs(jaxpr: Jaxpr, nonzero_in: Sequence[bool]) -> list[bool]:
    """Which results have tangents, by the plans of the equations alone (nothing is traced)."""
    nonzero = [*nonzero_in, *[False] * len(jaxpr.consts)]
    for app, idx in jaxpr.steps:
        mask = sum([1 << k for k, i in enumerate(idx) if nonzero[i]])
        if mask:
            nonzero.extend([t is not None for _, t in linear_plan(app, mask).outs])
        else:
            nonzero.extend([False] * len(app.outs))
    return [nonzero[s] for s in jaxpr.outs]


def nonzero_carries(jaxpr: Jaxpr, consts: Flags, init: Flags, xs: Flags) -> Flags:
    """The carries that have a tangent in some step."""
    carry = init
    while True:
        outs = tangent_outs(jaxpr, (*consts, *carry, *xs))
        wider = tuple([a or b for a, b in zip(carry, outs, strict=False)])
        if wider == carry:
            return carry
        carry = wider


def nonzero_groups(params: dict[str, Any], tangents: Sequence[Any]) -> tuple[Flags, Flags, Flags]:
    """Which consts, carries (in any step) and xs have tangents."""
    flags = groups(params, [t is not None for t in tangents])
    consts, init, xs = tuple(flags[0]), tuple(flags[1]), tuple(flags[2])
    key = ("scan_nonzero", consts, init, xs)
    jaxpr: Jaxpr = params["jaxpr"]
    carry = jaxpr.cache.get(key)
    if carry is None:
        carry = jaxpr.cache[key] = nonzero_carries(jaxpr, consts, init, xs)
    return consts, carry, xs


def tangent_args(
    params: dict[str, Any], tangents: Sequence[Any], carry: Flags
) -> tuple[list[Any], list[Any], list[Any]]:
    """The tangents of consts, carries and xs; zeros where only a later step has one."""
    consts, init, xs = groups(params, tangents)
    inner = groups(params, params["jaxpr"].in_avals)[1]
    started = [
        zeros_of(a.tangent) if t is None else t
        for t, a, nz in zip(init, inner, carry, strict=True)
        if nz
    ]
    return [t for t in consts if t is not None], started, [t for t in xs if t is not None]


# forward mode ------------------------------------------------------------------------------------


def jvp_scan(
    primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """One scan of primals and tangents together."""
    consts_nz, carry_nz, xs_nz = nonzero_groups(params, tangents)
    body, ys_nz = _joint_body(params, consts_nz, carry_nz, xs_nz)
    consts, init, xs = groups(params, primals)
    consts_t, init_t, xs_t = tangent_args(params, tangents, carry_nz)
    n_consts = len(consts) + len(consts_t)
    n_carry = len(init) + len(init_t)
    results = iter(
        primitive.bind(
            *consts, *consts_t, *init, *init_t, *xs, *xs_t,
            **derived(params, body, n_consts, n_carry),
        )
    )  # fmt: skip
    carry = [next(results) for _ in init]
    carry_t = [next(results) if nz else None for nz in carry_nz]
    ys = [next(results) for _ in ys_nz]
    ys_t = [next(results) if nz else None for nz in ys_nz]
    return [*carry, *ys], [*carry_t, *ys_t]


def _joint_body(
    params: dict[str, Any], consts_nz: Flags, carry_nz: Flags, xs_nz: Flags
) -> tuple[Jaxpr, Flags]:
    """The jvp of the body with inputs and results in scan's order; which ys have tangents."""
    jaxpr: Jaxpr = params["jaxpr"]
    n_consts, n_carry, n_in = len(consts_nz), len(carry_nz), jaxpr.n_in
    n_ys = len(jaxpr.outs) - n_carry
    nonzero = (*consts_nz, *carry_nz, *xs_nz)
    key = ("scan_jvp", n_consts, n_carry, nonzero)
    found = jaxpr.cache.get(key)
    if found is not None:
        return found
    joint, nonzero_out = jvp_jaxpr(jaxpr, nonzero, (*carry_nz, *[False] * n_ys))
    tangents = iter(range(n_in, joint.n_in))
    tangent_of = [next(tangents) if nz else None for nz in nonzero]
    order: list[int] = []
    for start, stop in ((0, n_consts), (n_consts, n_consts + n_carry), (n_consts + n_carry, n_in)):
        order.extend(range(start, stop))
        order.extend([p for p in tangent_of[start:stop] if p is not None])
    n_out = len(jaxpr.outs)
    given = iter(joint.outs[n_out:])
    tangent_outs_at = [next(given) if nz else None for nz in nonzero_out]
    results = [
        *joint.outs[:n_carry],
        *[s for s, nz in zip(tangent_outs_at, carry_nz, strict=False) if nz and s is not None],
        *joint.outs[n_carry:n_out],
        *[s for s in tangent_outs_at[n_carry:] if s is not None],
    ]
    found = rewire(joint, order, results), tuple(nonzero_out[n_carry:])
    jaxpr.cache[key] = found
    return found


# linearization -----------------------------------------------------------------------------------


@final
class ScanSplit:
    """A linearized body, prepared for two scans.

    ``primal``: the primal body with residuals. ``linear``: (residuals and tangents, in the order
    of scan's arguments) -> tangents of the carries and of the ys in ``ys_nz``.
    """

    __slots__ = ("linear", "primal", "ys_nz")

    def __init__(
        self, n_out: int, body: LinearizedJaxpr, consts_nz: Flags, carry_nz: Flags
    ) -> None:
        # Residuals are results of the primal body here, also those that are its inputs.
        outs = body.primal.outs
        primal = rewire(body.primal, None, [*outs[:n_out], *body.forwarded, *outs[n_out:]])
        self.primal = ResidualScan(primal, len(consts_nz), len(carry_nz), n_out)
        self.linear = self.primal.in_scan_order(body.linear, sum(consts_nz) + sum(carry_nz))
        self.ys_nz = body.nonzero_out[len(carry_nz) :]


def split_scan(
    params: dict[str, Any], consts_nz: Flags, carry_nz: Flags, xs_nz: Flags
) -> ScanSplit:
    """The linearized body, remembered on the body."""
    jaxpr: Jaxpr = params["jaxpr"]
    nonzero = (*consts_nz, *carry_nz, *xs_nz)
    key = ("scan_linearize", params["num_consts"], params["num_carry"], nonzero)
    found = jaxpr.cache.get(key)
    if found is None:
        n_out = len(jaxpr.outs)
        wanted = (*carry_nz, *[False] * (n_out - len(carry_nz)))
        body = linearize_jaxpr(jaxpr, nonzero, wanted)
        found = jaxpr.cache[key] = ScanSplit(n_out, body, consts_nz, carry_nz)
    return found


def linearize_scan(
    primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Bind the primal scan and the linear scan."""
    consts_nz, carry_nz, xs_nz = nonzero_groups(params, tangents)
    split = split_scan(params, consts_nz, carry_nz, xs_nz)
    consts, init, xs = groups(params, primals)
    results, constant, stacked = split.primal.bind(primitive, params, consts, init, xs)
    out_nz = (*carry_nz, *split.ys_nz)
    if not any(out_nz):
        return results, [None] * len(results)
    consts_t, init_t, xs_t = tangent_args(params, tangents, carry_nz)
    n_consts = len(constant) + len(consts_t)
    linear = derived(params, split.linear, n_consts, len(init_t))
    out_t = iter(primitive.bind(*constant, *consts_t, *init_t, *stacked, *xs_t, **linear))
    return results, [next(out_t) if nz else None for nz in out_nz]
