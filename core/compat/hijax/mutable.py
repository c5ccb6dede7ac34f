"""Objects of users that change: their types, and what is known of their contents.

As mutable references do, an object that changes stays a Python object where a function is traced:
its operations happen at once, on traced values. What a compiled function is given and gives back
are the arrays of its content (core/control/jit/contents.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, final

from tracebridge.core.compat.hijax.types import HiType
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.ir.effects import Effect
from tracebridge.core.util.public_path import public_path

_PATH = "tracebridge.experimental.hijax"


class QuasiDynamicData:
    """What the type of an object that changes does not say: the type of its present content."""


@public_path(_PATH)
class MutableHiType(HiType):
    """Base of types of objects that change.

    The content of an object has a type of its own, which ``object.cur_qdd()`` gives, a hashable
    object (below: state). A subclass defines ``lo_ty_qdd(state)``, the types of the arrays of a
    content; ``read_loval(state, object)``, these arrays; ``new_from_loval(state, *arrays)``, a new
    object; and ``update_from_loval(state, object, *arrays)``, which replaces a content.
    """

    has_qdd: Any = True
    is_writer: ClassVar[bool] = False

    def lo_ty(self) -> list[Any]:
        """Raise: it is the content that has types."""
        msg = f"{type(self).__name__} is the type of objects that change"
        raise ArgumentTypeError(msg, hint="ask lo_ty_qdd(object.cur_qdd())")

    def lo_ty_qdd(self, state: object, /) -> list[Any]:
        """The types of the arrays of a content."""
        raise self._missing("lo_ty_qdd")

    def new_from_loval(self, state: object, /, *vals: object) -> Any:
        """A new object with the content that consists of these arrays."""
        raise self._missing("new_from_loval")

    def read_loval(self, state: object, val: object, /) -> list[Any]:
        """The arrays of the content of an object."""
        raise self._missing("read_loval")

    def update_from_loval(self, state: object, val: object, /, *lo_vals: object) -> None:
        """Replace the content of an object."""
        raise self._missing("update_from_loval")

    def _missing(self, name: str) -> MissingRuleError:
        kind = type(self).__name__
        return MissingRuleError(kind, name, message=f"{kind} does not define `{name}`")


@public_path(_PATH)
@final
@dataclasses.dataclass(frozen=True, slots=True)
class AvalQDD:
    """The type of an object that changes, with that of its content."""

    aval: Any
    qdd: Any

    def lo_ty(self) -> list[Any]:
        """The types of the arrays of the content."""
        return self.aval.lo_ty_qdd(self.qdd)

    def to_tangent_aval(self) -> AvalQDD:
        """The type of tangents, with that of their contents."""
        qdd = None if self.qdd is None else self.qdd.to_tangent_qdd()
        return AvalQDD(self.aval.to_tangent_aval(), qdd)


@public_path(_PATH)
@final
@dataclasses.dataclass(frozen=True, slots=True)
class AvalMutableQDD:
    """The type of an object that changes, and where the type of its content is kept."""

    aval: Any
    mutable_qdd: Any


def cur_qdd(x: Any) -> Any:
    """The type of the present content of an object that changes.

    Args:
        x: the object.

    Raises:
        ArgumentTypeError: it has none.

    >>> import tracebridge as tb
    >>> tb.experimental.cur_qdd(1.0)
    Traceback (most recent call last):
    tracebridge.errors.ArgumentTypeError: cur_qdd: got 1.0 of type float...
    """
    if not hasattr(x, "cur_qdd"):
        msg = f"cur_qdd: got {x!r} of type {type(x).__name__}, expected an object that changes"
        raise ArgumentTypeError(msg, hint="objects that change have a method cur_qdd")
    return x.cur_qdd()


@final
class EffectTypes:
    """The classes of effects that may stand somewhere; an attribute of each class says it."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def add_type(self, effect_type: type[Effect]) -> None:
        """Let effects of a class stand there."""
        setattr(effect_type, self._place, True)

    def contains(self, eff: object) -> bool:
        """Whether an effect may stand there."""
        return bool(getattr(eff, self._place, False))

    def filter_in(self, effects: Iterable[Effect]) -> Sequence[Effect]:
        """Those of the effects that may."""
        return [e for e in effects if self.contains(e)]

    def filter_not_in(self, effects: Iterable[Effect]) -> Sequence[Effect]:
        """Those of the effects that may not."""
        return [e for e in effects if not self.contains(e)]


control_flow_allowed_effects = EffectTypes("in_control_flow")
"""Effects that may stand in bodies of loops and branches."""
