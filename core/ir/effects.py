"""Effects: what an equation does besides computing its results.

A Jaxpr has the effects of its equations. Equations with effects are kept by dead code elimination;
ordered effects are chained by tokens when a program is lowered (lowering/tokens.py) and between
calls (runtime/effects/tokens.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from tracebridge.core.errors.transform_errors import EffectError
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.extend.core")
class Effect:
    """Base of effects; two effects of one class are equal.

    ``ordered`` effects happen in program order, also between two calls. The other attributes say
    where equations with the effect may stand: in bodies of cond, while and scan; in functions
    with custom derivative rules; in a checkpoint that is differentiated, which runs them again;
    and under vmap in a cond or while whose predicate differs between the elements, where
    branches run that were not chosen; and, for ordered ones, in programs over several devices,
    where each device has an order of its own.
    """

    __slots__ = ()
    ordered: ClassVar[bool] = False
    in_control_flow: ClassVar[bool] = True
    in_custom_rules: ClassVar[bool] = True
    in_checkpoint: ClassVar[bool] = False
    in_batched_choice: ClassVar[bool] = False
    over_devices: ClassVar[bool] = False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return type(self).__name__


class IOEffect(Effect):
    """A callback that reads or changes the world: it runs exactly once for each time it is due."""

    __slots__ = ()


class OrderedIOEffect(IOEffect):
    """The same, in the order of the program."""

    __slots__ = ()
    ordered = True
    over_devices = True


@public_path("tracebridge.debug")
class DebugEffect(Effect):
    """A callback that only looks on: it follows what transformations do to its equation."""

    __slots__ = ()
    in_checkpoint = True
    in_batched_choice = True


@public_path("tracebridge.debug")
class OrderedDebugEffect(DebugEffect):
    """The same, in the order of the program."""

    __slots__ = ()
    ordered = True


Effects = frozenset[Effect]
no_effects: Effects = frozenset()


def ordered_effects(effects: Effects) -> list[Effect]:
    """The ordered ones of ``effects``, in a fixed order."""
    if not effects:
        return []
    return sorted([e for e in effects if e.ordered], key=repr)


def check_over_devices(effects: Effects, call: str, place: str) -> None:
    """Raise unless all ordered ``effects`` may stand in a program over several devices.

    Raises:
        EffectError: names the effects.
    """
    refused = [repr(e) for e in ordered_effects(effects) if not e.over_devices]
    if refused:
        raise EffectError(
            f"{call}: {', '.join(refused)} does not work in {place}",
            hint="use ordered=False, an ordered io_callback, or arrays on one device",
        )


_PLACES = {
    "in_control_flow": "the body of a loop or a branch",
    "in_custom_rules": "a function with custom derivative rules",
    "in_checkpoint": "a checkpoint that is differentiated, which runs its equations again",
    "in_batched_choice": (
        "a cond or while_loop under vmap whose predicate differs between the elements"
    ),
}


def check_effects(effects: Iterable[Effect], place: str, call: str) -> None:
    """Raise unless all ``effects`` may stand at ``place``, the name of an attribute of Effect.

    Raises:
        EffectError: names the effects.
    """
    refused = sorted({repr(e) for e in effects if not getattr(e, place)})
    if refused:
        msg = f"{call}: {', '.join(refused)} cannot stand in {_PLACES[place]}"
        raise EffectError(msg, hint=_HINTS[place])


_HINTS = {
    "in_control_flow": "move the equation with the effect out of it",
    "in_custom_rules": "move the equation with the effect out of it",
    "in_checkpoint": "move the callback out of the checkpoint, or use debug.callback",
    "in_batched_choice": "move the callback out of the branch, or use debug.callback",
}
