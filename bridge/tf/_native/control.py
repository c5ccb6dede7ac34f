"""Calls, branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tracebridge.core.ir.aval import stored
from tracebridge.tf._native.builder import Builder, Tensor, rule
from tracebridge.tf._xla_call_module import tf_dtype, tf_shape

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.ir.jaxpr import Jaxpr


@rule(
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
)
def _inlined(b: Builder, *xs: Tensor, jaxpr: Jaxpr, **_: object) -> list[Tensor]:
    return b.inline(jaxpr, xs)


# The derivatives are those of programs of ours, in which these rules are applied already.
@rule("custom_jvp_call", "custom_vjp_call")
def _custom_rule(b: Builder, *xs: Tensor, call_jaxpr: Jaxpr, **_: object) -> list[Tensor]:
    return b.inline(call_jaxpr, xs)


@rule("custom_linear_solve")
def _custom_linear_solve(
    b: Builder, *xs: Tensor, const_counts: Sequence[int], solve: Jaxpr, **_: object
) -> list[Tensor]:
    counts = list(const_counts)
    of_solve = xs[sum(counts[:2]) : sum(counts[:3])]
    return b.inline(solve, [*of_solve, *xs[sum(counts) :]])


@rule("platform_dependent")
def _platform_dependent(
    b: Builder,
    *xs: Tensor,
    branches: Sequence[Jaxpr],
    platforms: Sequence[Sequence[str] | None],
    **_: object,
) -> Any:
    """The branch for a platform that nobody named, or that for the CPU."""
    named = {p: branch for ps, branch in zip(platforms, branches, strict=False) for p in (ps or ())}
    chosen = branches[-1] if platforms[-1] is None else named.get("cpu")
    return NotImplemented if chosen is None else b.inline(chosen, xs[-chosen.n_in :])


# branches ----------------------------------------------------------------------------------------


def _typed(xs: Sequence[Tensor], avals: Sequence[ShapedArray]) -> list[Tensor]:
    """Results of a branch or a step, with the same static shapes everywhere."""
    return [tf.ensure_shape(x, tf_shape(stored(a).shape)) for x, a in zip(xs, avals, strict=True)]


@rule("cond")
def _cond(
    b: Builder, which: Tensor, *xs: Tensor, branches: Sequence[Jaxpr], **_: object
) -> list[Tensor]:
    avals = branches[0].out_avals
    if not avals:
        return []
    if len(branches) == 1:
        return b.inline(branches[0], xs)

    def call(branch: Jaxpr) -> Callable[[], list[Tensor]]:
        return lambda: _typed(b.inline(branch, xs), avals)

    if which.dtype == tf.bool:
        which = tf.cast(which, tf.int32)
    if len(branches) == 2:
        found = tf.cond(which >= 1, call(branches[1]), call(branches[0]))
    else:
        # Indices out of range take the end branches.
        high = tf.constant(len(branches) - 1, which.dtype)
        place = tf.cast(tf.clip_by_value(which, tf.zeros_like(high), high), tf.int32)
        found = tf.switch_case(place, [call(branch) for branch in branches])
    return tf.nest.flatten(found)


# loops -------------------------------------------------------------------------------------------


@rule("while")
def _while(
    b: Builder,
    *xs: Tensor,
    cond_jaxpr: Jaxpr,
    body_jaxpr: Jaxpr,
    cond_nconsts: int,
    body_nconsts: int,
    **_: object,
) -> list[Tensor]:
    second = cond_nconsts + body_nconsts
    of_cond, of_body, carry = xs[:cond_nconsts], xs[cond_nconsts:second], xs[second:]
    if not carry:
        return []

    def condition(*values: Tensor) -> Tensor:
        return b.inline(cond_jaxpr, [*of_cond, *values])[0]

    def body(*values: Tensor) -> list[Tensor]:
        return _typed(b.inline(body_jaxpr, [*of_body, *values]), body_jaxpr.out_avals)

    shapes = [tf.TensorShape(tf_shape(stored(a).shape)) for a in body_jaxpr.out_avals]
    return list(tf.while_loop(condition, body, list(carry), shapes))


@rule("scan")
def _scan(
    b: Builder,
    *xs: Tensor,
    jaxpr: Jaxpr,
    length: object,
    reverse: bool,
    num_consts: int,
    num_carry: int,
    **_: object,
) -> list[Tensor]:
    consts, carry = xs[:num_consts], xs[num_consts : num_consts + num_carry]
    rows = xs[num_consts + num_carry :]
    out_avals = [stored(a) for a in jaxpr.out_avals]
    stacked = out_avals[num_carry:]
    n = b.size(length)
    shapes = [tf.stack(b.shape(a)) if a.ndim else tf.zeros([0], tf.int32) for a in stacked]
    # Lists of tensors, which hold the results of the steps, are written in place.
    lists = [
        tf.raw_ops.TensorListReserve(
            element_shape=shape, num_elements=n, element_dtype=tf_dtype(a.dtype)
        )
        for shape, a in zip(shapes, stacked, strict=True)
    ]

    def body(i: Tensor, *values: Tensor) -> list[Tensor]:
        at = n - 1 - i if reverse else i
        slices = [tf.gather(row, at) for row in rows]
        outs = _typed(b.inline(jaxpr, [*consts, *values[:num_carry], *slices]), jaxpr.out_avals)
        filled = [
            tf.raw_ops.TensorListSetItem(input_handle=held, index=at, item=out)
            for held, out in zip(values[num_carry:], outs[num_carry:], strict=True)
        ]
        return [i + 1, *outs[:num_carry], *filled]

    invariants = [tf.TensorShape(tf_shape(a.shape)) for a in out_avals[:num_carry]]
    invariants = [tf.TensorShape([]), *invariants, *[tf.TensorShape([])] * len(lists)]
    start = [tf.constant(0), *carry, *lists]
    found = tf.while_loop(lambda i, *_: i < n, body, start, invariants)
    ys = [
        tf.raw_ops.TensorListStack(
            input_handle=held, element_shape=shape, element_dtype=tf_dtype(a.dtype)
        )
        for held, shape, a in zip(found[1 + num_carry :], shapes, stacked, strict=True)
    ]
    return [*found[1 : 1 + num_carry], *ys]
