"""Transposition of scan: a scan in the other direction that carries cotangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import tracebridge.core.lax as lax
from tracebridge.core.control.rewire import reached, rewire
from tracebridge.core.control.scan.params import chosen, derived, groups
from tracebridge.core.control.scan.partial_eval import split_known, unknown_of_scan
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.primitive import is_linear_input
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.lax.ad_util import zeros_of

Flags = tuple[bool, ...]


def transpose_scan(
    primitive: Any, ct: Sequence[Any], args: Sequence[Any], params: dict[str, Any]
) -> list[Any]:
    """Cotangents of the linear arguments."""
    linear = tuple([is_linear_input(a) for a in args])
    carry_linear, _ = unknown_of_scan(linear, params)
    if all(carry_linear):
        return _transpose_linear(primitive, ct, args, params)
    # Some carries do not depend on linear arguments: run them forwards, then go back.
    split = split_known(params, linear)
    _, operands, given = split.bind_known(primitive, args, params)
    unknown_ct = chosen(split.unknown_out, ct)
    results = _transpose_linear(primitive, unknown_ct, operands, given)
    # The unknown scan takes the unknown arguments in their order, between and after residuals.
    consts, carry, xs = groups(params, split.unknown)
    n_consts, n_xs = sum(consts), sum(xs)
    first = given["num_consts"] - n_consts
    moved = results[first : given["num_consts"] + given["num_carry"]]
    moved += results[len(results) - n_xs :] if n_xs else []
    rest = iter(moved)
    return [next(rest) if u else None for u in (*consts, *carry, *xs)]


def _transpose_linear(
    primitive: Any, ct: Sequence[Any], args: Sequence[Any], params: dict[str, Any]
) -> list[Any]:
    """Every carry is linear. One that starts at a value (a zero) gets no cotangent."""
    jaxpr: Jaxpr = params["jaxpr"]
    consts, init, xs = groups(params, args)
    linear_consts = [a for a in consts if is_linear_input(a)]
    linear = (
        *[is_linear_input(a) for a in consts],
        *[True] * len(init),
        *[is_linear_input(a) for a in xs],
    )
    given = tuple([c is not None for c in ct])
    key = ("scan_transpose", len(consts), len(init), linear, given)
    back = jaxpr.cache.get(key)
    if back is None:
        back = jaxpr.cache[key] = Backward(jaxpr, len(consts), len(init), linear, given)
    if back.body is None:
        return [None] * len(args)
    carry_avals = groups(params, jaxpr.in_avals)[1]
    ct_carry = [
        zeros_of(a) if c is None else c
        for c, a, nz in zip(ct, carry_avals, back.carry, strict=False)
        if nz
    ]
    sums = [zeros_of(a.aval) for a in chosen(back.consts, linear_consts)]
    fixed = [a for a in consts if not is_linear_input(a)]
    sliced = [a for a in xs if not is_linear_input(a)]
    sliced += [c for c in ct[len(init) :] if c is not None]
    back_params = derived(params, back.body, len(fixed), len(ct_carry) + len(sums))
    back_params["reverse"] = not params["reverse"]
    bind = _bind_apart if params["split_transpose"] else _bind_together
    results = iter(bind(primitive, back_params, fixed, ct_carry, sums, sliced))
    init_ct = [next(results) if nz else None for nz in back.carry]
    consts_ct = iter([next(results) if nz else None for nz in back.consts])
    xs_ct = iter([next(results) if nz else None for nz in back.xs])
    return [
        *[next(consts_ct) if is_linear_input(a) else None for a in consts],
        *[c if is_linear_input(a) else None for a, c in zip(init, init_ct, strict=True)],
        *[next(xs_ct) if is_linear_input(a) else None for a in xs],
    ]


def _bind_together(
    primitive: Any,
    params: dict[str, Any],
    fixed: Sequence[Any],
    ct_carry: Sequence[Any],
    sums: Sequence[Any],
    sliced: Sequence[Any],
) -> list[Any]:
    return primitive.bind(*fixed, *ct_carry, *sums, *sliced, **params)


def _bind_apart(
    primitive: Any,
    params: dict[str, Any],
    fixed: Sequence[Any],
    ct_carry: Sequence[Any],
    sums: Sequence[Any],
    sliced: Sequence[Any],
) -> list[Any]:
    """Two loops: only the cotangents of carries need the order of the steps.

    The first one stacks them; the second one computes the rest from them.
    """
    body: Jaxpr = params["jaxpr"]
    n_fixed, n_ct, n_sums = len(fixed), len(ct_carry), len(sums)
    n_rest = len(body.outs) - n_ct
    cts = range(n_fixed, n_fixed + n_ct)
    after = range(n_fixed + n_ct, n_fixed + n_ct + n_sums)
    slices = range(n_fixed + n_ct + n_sums, body.n_in)
    ordered, _ = dce_jaxpr(body, (*[True] * n_ct, *[False] * n_rest), keep_in=True)
    ordered = rewire(ordered, None, [*ordered.outs, *cts])
    ordered = rewire(ordered, [*range(n_fixed), *cts, *slices])
    first = primitive.bind(*fixed, *ct_carry, *sliced, **derived(params, ordered, n_fixed, n_ct))
    rest, _ = dce_jaxpr(body, (*[False] * n_ct, *[True] * n_rest), keep_in=True)
    rest = rewire(rest, [*range(n_fixed), *after, *cts, *slices])
    second = primitive.bind(
        *fixed, *sums, *first[n_ct:], *sliced, **derived(params, rest, n_fixed, n_sums)
    )
    return [*first[:n_ct], *second]


@final
class Backward:
    """The body of a backward scan; which carries, linear consts and linear xs have cotangents.

    ``body``: (nonlinear consts; cotangents of carries, sums for linear consts; nonlinear xs,
    cotangents of ys) -> (cotangents of carries, sums; cotangents of linear xs). It is None if
    there are none.
    """

    __slots__ = ("body", "carry", "consts", "xs")

    def __init__(
        self, jaxpr: Jaxpr, n_consts: int, n_carry: int, linear: Flags, given: Flags
    ) -> None:
        n_linear = sum(linear[:n_consts])
        carry, ys = _reached_carries(jaxpr, n_consts, given[:n_carry], given[n_carry:])
        while True:
            back, present = transpose_jaxpr(jaxpr, linear, (*carry, *ys), instantiate=False)
            arrived = present[n_linear : n_linear + n_carry]
            wider = tuple([a or b for a, b in zip(carry, arrived, strict=True)])
            if wider == carry:
                break
            carry = wider
        self.carry = carry
        self.consts = present[:n_linear]
        self.xs = present[n_linear + n_carry :]
        self.body: Jaxpr | None = None
        if any(present):
            avals = [a for a, here in zip(jaxpr.in_avals, linear, strict=True) if here]
            n_fixed = n_consts - n_linear
            self.body = self._make(back, arrived, avals, n_fixed, sum(ys))

    def _make(
        self,
        back: Jaxpr,
        arrived: Flags,
        avals: list[ShapedArray],
        n_fixed: int,
        n_ys: int,
    ) -> Jaxpr:
        """``back``: (consts, xs, cotangents of carries, of ys); ``avals``: of linear inputs."""
        n_linear, n_ct = len(self.consts), sum(self.carry)
        const_avals, carry_avals = avals[:n_linear], avals[n_linear:]
        split = back.n_in - n_ct - n_ys
        first, last = split, split + n_ct

        def run(*values: Any) -> list[Any]:
            fixed, cts, rest = (
                values[:n_fixed],
                values[n_fixed : n_fixed + n_ct],
                values[n_fixed + n_ct :],
            )
            sums, rest = rest[: sum(self.consts)], rest[sum(self.consts) :]
            sliced, ct_ys = rest[: split - n_fixed], rest[split - n_fixed :]
            process = current_trace().process
            out = iter(eval_jaxpr(back, process, [*fixed, *sliced, *cts, *ct_ys]))
            of_consts = [next(out) if here else None for here in self.consts]
            of_carry = [next(out) if here else None for here in arrived]
            carry = [
                zeros_of(a) if c is None else c
                for c, a, nz in zip(of_carry, carry_avals, self.carry, strict=False)
                if nz
            ]
            added = [
                lax.add(s, c) for s, c in zip(sums, chosen(self.consts, of_consts), strict=True)
            ]
            return [*carry, *added, *out]

        ins = back.in_avals
        in_avals = [
            *ins[:n_fixed],
            *ins[first:last],
            *chosen(self.consts, const_avals),
            *ins[n_fixed:split],
            *ins[last:],
        ]
        return stage(run, in_avals, back.debug, locate=False)


def _reached_carries(jaxpr: Jaxpr, n_consts: int, carry: Flags, ys: Flags) -> tuple[Flags, Flags]:
    """Carries that cotangents may reach, so that the backward body is traced once as a rule."""
    n_carry = len(carry)
    while True:
        into = reached(jaxpr, (*carry, *ys))[n_consts : n_consts + n_carry]
        wider = tuple([a or b for a, b in zip(carry, into, strict=True)])
        if wider == carry:
            return carry, ys
        carry = wider
