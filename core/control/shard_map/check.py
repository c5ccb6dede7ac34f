"""What a shard_map refuses: results that differ where their specification says they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.transform_errors import AxisSpecError, EffectError
from tracebridge.core.interpreters.varying import Varying
from tracebridge.core.ir.aval import NOWHERE
from tracebridge.core.ir.effects import ordered_effects

if TYPE_CHECKING:
    from tracebridge.core.control.shard_map.places import Place
    from tracebridge.core.ir.jaxpr import Jaxpr


def check_results(
    call: str,
    jaxpr: Jaxpr,
    names: Sequence[Any],
    ins: Sequence[Place],
    outs: Sequence[Place],
    name_of_result: Callable[[int], str],
) -> None:
    """Raise unless results are the same along all axes that their places do not name.

    Raises:
        AxisSpecError: says which result, which axes, and what to do.
    """
    found = Varying(frozenset(names), call).walk(jaxpr, [place.names for place in ins])
    for i, (varies, place) in enumerate(zip(found, outs, strict=True)):
        extra = [name for name in names if name in varies and name not in place.names]
        if not extra:
            continue
        axes = repr(extra[0]) if len(extra) == 1 else repr(tuple(extra))
        block = jaxpr.out_avals[i].with_vma(NOWHERE).str_short()
        raise AxisSpecError(
            f"{call}: {name_of_result(i)} ({block} on each device) varies "
            f"over the axis {axes} of the mesh, as is statically inferred, but out_specs has "
            f"{place.spec!r} for it, which require replication: the same on all devices of that "
            "axis",
            hint=f"name {axes} in out_specs, combine the values of the devices with lax.psum, "
            f"lax.pmean, lax.pmax or lax.all_gather over {axes}, or, if they are equal for another "
            "reason, give check_vma=False",
        )


def check_effects_in_body(call: str, jaxpr: Jaxpr, n_devices: int) -> None:
    """Raise if ``jaxpr`` has effects that need one order for all of several devices.

    Raises:
        EffectError: names them.
    """
    ordered = ordered_effects(jaxpr.effects)
    if ordered and n_devices > 1:
        raise EffectError(
            f"{call}: {', '.join(map(repr, ordered))} does not work inside: the devices have no "
            "common order",
            hint="use ordered=False, or call it outside of shard_map",
        )
