"""What types say of values along the axes of a shard_map: joined where operands differ.

``ShapedArray.vma`` names the axes along which devices may have different values. An operation takes
operands of one such type: those that vary along fewer axes come through an equation ``pcast``,
whose transpose sums the cotangents of the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracebridge.core.config.state import State, settled_state, with_value
from tracebridge.core.ir.aval import NOWHERE, ShapedArray
from tracebridge.core.ir.values import Literal

if TYPE_CHECKING:
    from tracebridge.core.ir.values import Value

Names = frozenset[Any]

_KEY = "axes that types know"


class _Cast:
    """The slot of the operation that lets values vary (collectives/casts.py fills it)."""

    bind: Callable[[Value, tuple[Any, ...]], Value]


CAST = _Cast()


def typed_axes() -> Names:
    """The axes along which types say what varies: those of the shard_maps around, if checked."""
    current = settled_state()
    return NOWHERE if current is None else current.values.get(_KEY, NOWHERE)


def with_typed_axes(current: State | None, names: Names) -> State | None:
    """The state in which types know ``names``, and no other axes."""
    if current is None and not names:
        return None
    if current is not None and current.values.get(_KEY, NOWHERE) == names:
        return current
    return with_value(current, _KEY, names)


def joined(avals: Sequence[ShapedArray]) -> Names:
    """The axes along which the result of an operation on ``avals`` varies."""
    found = NOWHERE
    for aval in avals:
        if aval.vma:
            found |= aval.vma
    return found


def differ(avals: Sequence[ShapedArray]) -> bool:
    """Whether the types say different things of axes."""
    return len(avals) > 1 and any([a.vma != avals[0].vma for a in avals])


def together(args: Sequence[Any]) -> tuple[Any, ...]:
    """The operands of one operation, all of which vary along the same axes."""
    vma = joined([a.aval for a in args])
    return tuple([varied(a, vma) for a in args])


def varied(value: Any, names: Names) -> Any:
    """``value``, which varies along ``names`` too."""
    aval = value.aval
    missing = names - aval.vma
    if not missing:
        return value
    if type(value) is Literal:
        return Literal(value.value, aval.with_vma(aval.vma | missing))
    return CAST.bind(value, tuple(sorted(missing, key=repr)))
