"""Attributes of arrays and tracers that are not there, or not yet.

Both kinds are descriptors. A ``__getattr__`` would do the same, but a class that has one pays for
it at each read of an attribute that it does have, since the interpreter cannot specialise these
reads; and protocols that ask an array for what it lacks, as ``numpy.asarray`` does, would call it
each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from tracebridge.core.errors.filtering import hide_internal_frames


@final
class LateAttribute:
    """What the NumPy layer gives arrays as ``name``; ``adopt()`` loads it and takes this place."""

    __slots__ = ("_adopt", "_name")

    def __init__(self, name: str, adopt: Callable[[], None]) -> None:
        self._name, self._adopt = name, adopt

    def __get__(self, instance: object, owner: type) -> Any:
        self._adopt()
        return getattr(owner if instance is None else instance, self._name)


@final
class MissingAttribute:
    """An attribute that tensors of other libraries have: ``hasattr`` is False, the error helps."""

    __slots__ = ("_name", "_way_out")

    def __init__(self, name: str, way_out: str) -> None:
        self._name, self._way_out = name, way_out

    def __get__(self, instance: object, owner: type) -> Any:
        try:
            kind = f"type object {owner.__name__!r}"
            who = kind if instance is None else f"{owner.__name__!r} object"
            msg = f"{who} has no attribute {self._name!r}"
            raise AttributeError(f"{msg}\n    way out: {self._way_out}")
        except AttributeError as error:
            hide_internal_frames(error)
            raise


def set_missing(cls: type, ways_out: Mapping[str, str]) -> None:
    """Let the class say what to use instead of these attributes."""
    for name, way_out in ways_out.items():
        setattr(cls, name, MissingAttribute(name, way_out))


def present(cls: type, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that are no missing attributes of the class, as ``dir`` gives them."""
    missing = {n for c in cls.__mro__ for n, v in vars(c).items() if type(v) is MissingAttribute}
    return sorted(set(names) - missing)
