"""Ways to call a function from outside of programs for a batch: option ``vmap_method``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tracebridge.core.lax as lax
from tracebridge.core.config.values import mesh_in_force
from tracebridge.core.control.callbacks.base import in_sequence
from tracebridge.core.errors.transform_errors import EffectError
from tracebridge.core.ir.aval import batched_aval
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.lax.batch_util import broadcast_batch, move_batch_axis

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext
    from tracebridge.core.ir.value import Value

VMAP_METHODS = (
    "sequential",
    "sequential_unrolled",
    "expand_dims",
    "broadcast_all",
    "legacy_vectorized",
)


def is_over_devices(ctx: BatchContext) -> bool:
    """Whether the elements of the batch are the blocks of devices, of a ``shard_map``.

    Each device calls a function with its own block, whatever ``vmap`` would do.
    """
    mesh: Any = mesh_in_force()
    return mesh is not None and ctx.axis_name in mesh.manual_axes


def batch_by_method(
    primitive: Primitive,
    problem: str,
    ctx: BatchContext,
    args: Sequence[Value],
    dims: Sequence[int | None],
    params: Params,
    for_batch: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """The batching rule: one call for each element in turn, or one with the batch in front.

    ``for_batch`` are parameters of the one call; ``problem`` begins the error of no method.

    Raises:
        EffectError: ``vmap_method`` is None.
    """
    method, n_out = params["vmap_method"], len(params["result_avals"])
    if is_over_devices(ctx):
        return in_sequence(primitive, ctx.size, args, dims, params), [0] * n_out
    if method is None:
        hint = f"pass vmap_method, one of {', '.join(map(repr, VMAP_METHODS))}"
        raise EffectError(problem, hint=hint)
    if method.startswith("sequential"):
        unroll = method == "sequential_unrolled"
        return in_sequence(primitive, ctx.size, args, dims, params, unroll=unroll), [0] * n_out
    in_front: list[Any] = []
    for a, d in zip(args, dims, strict=True):
        if d is not None:
            in_front.append(move_batch_axis(a, d, 0))
        elif method == "legacy_vectorized":
            in_front.append(a)
        elif method == "expand_dims":
            in_front.append(lax.expand_dims(a, (0,)))
        else:
            in_front.append(broadcast_batch(a, ctx.size, 0))
    avals = tuple([batched_aval(a, ctx.size) for a in params["result_avals"]])
    whole = {**params, **(for_batch or {}), "result_avals": avals}
    return primitive.bind(*in_front, **whole), [0] * n_out
