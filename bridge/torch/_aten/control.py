"""Calls, branches and loops: torch's operations on graphs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from torch import fx

from tracebridge.core.ir.aval import ShapedArray, stored
from tracebridge.core.lax.ad_util import stop_gradient_p, unchosen_p
from tracebridge.torch._aten.builder import Builder, aten, rule
from tracebridge.torch._aten.carriers import carrier
from tracebridge.torch._aten.derivatives import has_tangent

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr

hop = torch.ops.higher_order
_NUMBER = ShapedArray((), np.dtype("int64"))  # of a step
# Their results have no derivative.
_STILL = (stop_gradient_p, unchosen_p)


def _inlined(b: Builder, *xs: fx.Proxy, jaxpr: Jaxpr, **_: object) -> list[Any]:
    return b.inline(jaxpr, xs)


for _name in (
    "jit",
    "closed_call",
    "checkpoint",
    "composite",
    "custom_vmap_call",
    "custom_dce_call",
    "custom_partitioning",
    "remat_opt",
    "linear_call",
    "custom_transpose_call",
):
    rule(_name)(_inlined)


@rule("platform_dependent")
def _platform_dependent(
    b: Builder, *xs: fx.Proxy, branches: Any, platforms: Any, **_: object
) -> Any:
    """The branch for a platform that nobody named, or that for the CPU."""
    named = {p: branch for ps, branch in zip(platforms, branches, strict=False) for p in (ps or ())}
    chosen = branches[-1] if platforms[-1] is None else named.get("cpu")
    return NotImplemented if chosen is None else b.inline(chosen, xs[-chosen.n_in :])


# branches ----------------------------------------------------------------------------------------


@rule("cond")
def _cond(
    b: Builder, which: fx.Proxy, *xs: fx.Proxy, branches: Sequence[Jaxpr], **_: object
) -> list[Any]:
    return _chosen(b, which, xs, branches, 0)


def _chosen(
    b: Builder, which: fx.Proxy, xs: Sequence[Any], branches: Sequence[Jaxpr], first: int
) -> list[Any]:
    """A tree of choices between two; indices out of range take the end branches."""
    if len(branches) == 1:
        return b.inline(branches[0], xs)
    half = len(branches) // 2
    is_high = b.call(aten.ge.Scalar, which, first + half)

    def write(some: Sequence[Jaxpr], start: int) -> Any:
        def inside(inner: Builder, values: list[Any]) -> list[Any]:
            outs = _chosen(inner, values[0], values[1:], some, start)
            if not as_floats:
                return outs
            return [_held(inner, x, a) for x, a in zip(outs, out_avals, strict=True)]

        return inside

    # torch's branches give no gradients beside results that are integers.
    out_avals = [stored(a) for a in branches[0].out_avals]
    as_floats = any([has_tangent(a) for a in branches[0].in_avals])
    low = b.subgraph(write(branches[:half], first), len(xs) + 1, "branch")
    high = b.subgraph(write(branches[half:], first + half), len(xs) + 1, "branch")
    outs = b.call_all(hop.cond, len(out_avals), is_high, high, low, (which, *xs, *b.more))
    if not as_floats:
        return outs
    return [_free(b, x, a) for x, a in zip(outs, out_avals, strict=True)]


# loops -------------------------------------------------------------------------------------------


@rule("while")
def _while(
    b: Builder,
    *xs: fx.Proxy,
    cond_jaxpr: Jaxpr,
    body_jaxpr: Jaxpr,
    cond_nconsts: int,
    body_nconsts: int,
    **_: object,
) -> list[Any]:
    second = cond_nconsts + body_nconsts
    carry = xs[second:]
    n = len(carry)

    def condition(inner: Builder, values: list[Any]) -> list[Any]:
        return inner.inline(cond_jaxpr, [*values[n : n + cond_nconsts], *values[:n]])

    def body(inner: Builder, values: list[Any]) -> list[Any]:
        own = [*values[n + cond_nconsts : n + second], *values[:n]]
        return _connected(inner, body_jaxpr, own, inner.inline(body_jaxpr, own))

    test = b.subgraph(condition, len(xs), "condition", single=True)
    step = b.subgraph(body, len(xs), "body")
    first = _started(b, body_jaxpr, xs[cond_nconsts:], n)
    owned = tuple([b.own(x) for x in first])
    outs = b.call_all(hop.while_loop, n, test, step, owned, (*xs[:second], *b.more))
    # The backward pass of torch goes back one step where there was none.
    (any_step,) = b.inline(cond_jaxpr, [*xs[:cond_nconsts], *carry])
    return [
        b.call(aten.where.self, any_step, out, x) if has_tangent(a) else out
        for out, x, a in zip(outs, first, body_jaxpr.out_avals, strict=True)
    ]


def _started(b: Builder, body: Jaxpr, xs: Sequence[Any], n: int) -> list[Any]:
    """What the loop carries first, the last ``n`` of the operands of its body.

    torch passes gradients from step to step only through what wants some before the first one. So
    each float depends on all floats, as a choice never taken.
    """
    avals = body.in_avals
    floats = [(x, a) for x, a in zip(xs, avals, strict=True) if has_tangent(a) and 0 not in a.shape]
    first, own = list(xs[-n:]), avals[-n:]
    if len(floats) < 2:
        return first
    widest = functools.reduce(torch.promote_types, [carrier(a.dtype) for _, a in floats])
    ones = [b.convert(_one_of(b, x), widest) for x, _ in floats]
    total = functools.reduce(lambda x, y: b.call(aten.add.Tensor, x, y), ones)
    return [
        _unless_ever(b, total, x, a) if has_tangent(a) else x
        for x, a in zip(first, own, strict=True)
    ]


def _one_of(b: Builder, x: fx.Proxy) -> Any:
    return b.call(aten.select.int, b.call(aten.reshape.default, x, [-1]), 0, 0)


def _unless_ever(b: Builder, one: fx.Proxy, x: fx.Proxy, aval: Any) -> Any:
    """``x``, with ``one`` as a choice that is never taken."""
    to = carrier(aval.dtype) if has_tangent(aval) else torch.float64
    never = b.full([], value=False, dtype=torch.bool)
    return b.call(aten.where.self, never, b.convert(one, to), x)


@rule("scan")
def _scan(
    b: Builder,
    *xs: fx.Proxy,
    jaxpr: Jaxpr,
    length: Any,
    reverse: bool,
    num_consts: int,
    num_carry: int,
    **_: object,
) -> list[Any]:
    consts, carry = xs[:num_consts], xs[num_consts : num_consts + num_carry]
    rows = list(xs[num_consts + num_carry :])
    out_avals = [stored(a) for a in jaxpr.out_avals]
    n_outs = len(out_avals)
    stacked = out_avals[num_carry:]
    if isinstance(length, int) and length == 0:
        empty = [b.full([0, *b.shape(a)], 0, carrier(a.dtype)) for a in stacked]
        return [*carry, *empty]
    # torch's loop wants something to carry, and something to go along. Inductor wants two results.
    n_idle = int(not carry or n_outs == 1)
    steps = not rows
    if steps:
        rows = [b.arange(b.size(length))]
    if reverse:
        rows = [b.call(aten.flip.default, x, [0]) for x in rows]
    step = _Step(jaxpr, num_consts, num_carry, n_idle, inner=b.is_inner)
    rows = step.held_along(b, rows, first=num_consts)
    consts = step.held_along(b, consts)
    carry = step.held(b, carry)
    carry = [*[b.full([], 0.0, torch.float32)] * n_idle, *carry]

    combine = b.subgraph(step.write, len(carry) + len(rows) + len(consts), "step")
    carry = [b.own(x) for x in carry]
    rows = [b.own(x) for x in rows]
    outs = b.call_all(hop.scan, n_idle + n_outs, combine, list(carry), rows, (*consts, *b.more))
    results = step.freed(b, outs[n_idle:])
    ys = results[num_carry:]
    if reverse:
        ys = [b.call(aten.flip.default, y, [0]) for y in ys]
    return [*results[:num_carry], *ys]


@final
class _Step:
    """What a scan does at each step, and what holds its operands."""

    def __init__(
        self, jaxpr: Jaxpr, n_consts: int, n_carry: int, n_idle: int, *, inner: bool
    ) -> None:
        self.jaxpr = jaxpr
        self.n_consts, self.n_carry, self.n_idle = n_consts, n_carry, n_idle
        self.out_avals = [stored(a) for a in jaxpr.out_avals]
        avals = [stored(a) for a in jaxpr.in_avals]
        # Constants and rows; numbers of the steps where there are no rows.
        self.along = [*avals[:n_consts], *avals[n_consts + n_carry :]]
        self.n_own = len(self.along)
        if self.n_own == n_consts:
            self.along.append(_NUMBER)
        self.as_floats = any([has_tangent(a) for a in avals])
        # Inside of another loop the backward pass itself is differentiated, though nobody asks for
        # it: then what goes along must have gradients, too.
        self.whole = self.as_floats and inner

    def held_along(self, b: Builder, xs: Sequence[Any], first: int = 0) -> list[Any]:
        """Constants or rows, which start at ``first``, as torch's loop takes them."""
        if not self.whole:
            return list(xs)
        return [_held(b, x, a) for x, a in zip(xs, self.along[first:], strict=False)]

    def held(self, b: Builder, xs: Sequence[Any]) -> list[Any]:
        """What is carried, or all results."""
        if not self.as_floats:
            return list(xs)
        return [_held(b, x, a) for x, a in zip(xs, self.out_avals, strict=False)]

    def freed(self, b: Builder, xs: Sequence[Any]) -> list[Any]:
        """What ``held`` holds."""
        if not self.as_floats:
            return list(xs)
        return [_free(b, x, a) for x, a in zip(xs, self.out_avals, strict=False)]

    def write(self, b: Builder, values: list[Any]) -> list[Any]:
        """One step: what is idle and carried, rows, constants."""
        idle, carry = values[: self.n_idle], values[self.n_idle : self.n_idle + self.n_carry]
        n_rows = len(self.along) - self.n_consts
        rest = values[self.n_idle + self.n_carry :]
        along = [*rest[n_rows : n_rows + self.n_consts], *rest[:n_rows]]
        own = along
        if self.whole:
            own = [_free(b, x, a) for x, a in zip(along, self.along, strict=True)]
        n = self.n_consts
        own = [*own[:n], *self.freed(b, carry), *own[n : self.n_own]]
        outs = self.held(b, b.inline(self.jaxpr, own))
        if self.as_floats:
            outs = _connected(b, self.jaxpr, own, outs, every=True)
        if self.whole and outs:
            for x in _still(along, self.along):
                outs[0] = _unless_ever(b, _one_of(b, x), outs[0], self.out_avals[0])
        return [*idle, *outs]


def _still(held: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """What is held as floats, and has something in it."""
    return [x for x, a in zip(held, avals, strict=True) if not has_tangent(a) and 0 not in a.shape]


def _held(b: Builder, x: fx.Proxy, aval: Any) -> Any:
    """``x`` as a float: the backward pass of torch's scan knows no other results."""
    if has_tangent(aval):
        return x
    if carrier(aval.dtype) == torch.int64:
        return b.call(aten.view.dtype, x, torch.float64)  # the same bits
    return b.convert(x, torch.float64)


def _free(b: Builder, x: fx.Proxy, aval: Any) -> Any:
    """What ``_held`` holds."""
    if has_tangent(aval):
        return x
    x = b.call(aten.detach.default, x)
    if carrier(aval.dtype) == torch.int64:
        return b.call(aten.view.dtype, x, torch.int64)
    return b.convert(x, carrier(aval.dtype))


def _connected(
    b: Builder, jaxpr: Jaxpr, xs: Sequence[Any], outs: Sequence[Any], *, every: bool = False
) -> list[Any]:
    """Results of a step; floats that depend on no float get one as a choice never taken.

    The backward passes of torch's loops expect that every float has a gradient. With ``every``
    all results are floats.
    """
    floats = [
        x for x, a in zip(xs, jaxpr.in_avals, strict=True) if has_tangent(a) and 0 not in a.shape
    ]
    if not floats:
        return list(outs)
    moving = _moving(jaxpr)
    connected: list[Any] = []
    for result, a, moves in zip(outs, jaxpr.out_avals, moving, strict=True):
        if (every or has_tangent(a)) and not moves:
            connected.append(_unless_ever(b, _one_of(b, floats[0]), result, a))
        else:
            connected.append(result)
    return connected


def _moving(jaxpr: Jaxpr) -> list[bool]:
    """Which results depend on an input through floats alone."""
    env = [has_tangent(a) for a in jaxpr.in_avals] + [False] * len(jaxpr.consts)
    for app, idx in jaxpr.equations:
        moves = app.primitive not in _STILL and any([env[i] for i in idx])
        env.extend([moves and has_tangent(a) for a in app.outs])
    return [env[i] for i in jaxpr.outs]
