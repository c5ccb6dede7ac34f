"""Batching of scan: the body is batched, carries where some step makes them so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.control.scan.params import derived, groups
from tracebridge.core.interpreters.batching import batch_jaxpr
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.primitive import Primitive
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value


def batch_scan(
    primitive: Primitive,
    ctx: BatchContext,
    args: Sequence[Value],
    dims: Sequence[int | None],
    params: Params,
) -> tuple[list[Any], list[int | None]]:
    """The batch axis is the first one of consts and carries, the second one of xs and ys."""
    flags = groups(params, [d is not None for d in dims])
    body, carry, ys = _batched_body(params["jaxpr"], ctx.size, ctx.axis, *[tuple(f) for f in flags])
    consts, init, xs = groups(params, args)
    consts_d, init_d, xs_d = groups(params, dims)
    consts = [_moved(a, d, 0) for a, d in zip(consts, consts_d, strict=True)]
    init = [
        broadcast_batch(a, ctx.size, 0) if d is None and b else _moved(a, d, 0)
        for a, d, b in zip(init, init_d, carry, strict=True)
    ]
    xs = [_moved(a, d, 1) for a, d in zip(xs, xs_d, strict=True)]
    batched_params = derived(params, body, len(consts), len(init))
    results = primitive.bind(*consts, *init, *xs, **batched_params)
    return results, [*[0 if b else None for b in carry], *[1 if b else None for b in ys]]


def _moved(x: Value, dim: int | None, target: int) -> Any:
    return x if dim is None else move_batch_axis(x, dim, target)


def _batched_body(
    jaxpr: Jaxpr,
    size: object,
    axis: object,
    consts: tuple[bool, ...],
    init: tuple[bool, ...],
    xs: tuple[bool, ...],
) -> tuple[Jaxpr, tuple[bool, ...], tuple[bool, ...]]:
    """The batched body; which carries and which ys are batched."""
    key = ("scan_batch", size, axis, consts, init, xs)
    cached = jaxpr.cache.get(key)
    if cached is not None:
        return cached
    carry, n_ys = init, len(jaxpr.outs) - len(init)
    while True:
        in_dims = tuple([0 if b else None for b in (*consts, *carry, *xs)])
        wanted = (*carry, *[False] * n_ys)
        body, out_dims = batch_jaxpr(jaxpr, size, axis, in_dims, wanted)
        batched = tuple([d is not None for d in out_dims])
        wider = tuple([a or b for a, b in zip(carry, batched, strict=False)])
        if wider == carry:
            break
        carry = wider
    cached = jaxpr.cache[key] = (body, carry, batched[len(carry) :])
    return cached
