"""Functions on flat tensors of a framework, and what those derived from them have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core.control.callbacks.foreign import ForeignFunction

Indices = tuple[int, ...]


class FlatFunction(ForeignFunction):
    """A function of ``n_in`` tensors; ``inexact`` says which results have derivatives.

    Functions derived from it are made once, so that programs with them are compiled once.
    """

    def __init__(self, label: str, n_in: int, inexact: tuple[bool, ...]) -> None:
        self.label = label
        self.n_in = n_in
        self.inexact = inexact
        self._derived: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return self.label

    @property
    def is_vmappable(self) -> bool:
        """Whether one call for a batch may do what calls in turns do."""
        return True

    @abc.abstractmethod
    def tangents(self, wanted: Indices) -> ForeignFunction:
        """What ``jvp`` gives, made anew."""

    @abc.abstractmethod
    def pullback(self, wanted: Indices) -> ForeignFunction:
        """What ``vjp`` gives, made anew."""

    def jvp(self, wanted: Indices) -> Any:
        """Forward mode."""
        return self.once(("jvp", wanted), lambda: self.tangents(wanted))

    def vjp(self, wanted: Indices) -> Any:
        """Reverse mode."""
        return self.once(("vjp", wanted), lambda: self.pullback(wanted))

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` gave at its first call for this key."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    def inexact_of(self, outs: Sequence[Any]) -> tuple[Any, ...]:
        """The inexact ones of its results."""
        return tuple([y for y, inexact in zip(outs, self.inexact, strict=True) if inexact])


def replaced(args: Sequence[Any], places: Indices, values: Sequence[Any]) -> list[Any]:
    """The arguments with ``values`` at ``places``."""
    whole = list(args)
    for i, value in zip(places, values, strict=True):
        whole[i] = value
    return whole
