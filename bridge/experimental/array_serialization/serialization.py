"""The interface of managers of checkpoints, which libraries derive their own from."""

from __future__ import annotations

import abc
import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["GlobalAsyncCheckpointManagerBase"]


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """Something that writes arrays to files while the program goes on, and reads them.

    >>> from tracebridge.experimental.array_serialization import serialization
    >>> class InMemory(serialization.GlobalAsyncCheckpointManagerBase):
    ...     def check_for_errors(self): ...
    ...     def wait_until_finished(self): ...
    ...     def serialize(self, arrays, tensorstore_specs, *, on_commit_callback):
    ...         self.arrays = dict(zip(tensorstore_specs, arrays))
    ...     def deserialize(self, shardings, tensorstore_specs, **kwargs):
    ...         return [self.arrays[spec] for spec in tensorstore_specs]
    >>> manager = InMemory()
    >>> manager.serialize([1.5], ["x"], on_commit_callback=None)
    >>> manager.deserialize([None], ["x"])
    [1.5]
    """

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raise what went wrong in the background, if anything did."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Wait until everything is written."""

    @abc.abstractmethod
    def serialize(self, arrays: Any, tensorstore_specs: Any, **kwargs: Any) -> None:
        """Begin to write arrays."""

    @abc.abstractmethod
    def deserialize(self, shardings: Any, tensorstore_specs: Any, **kwargs: Any) -> Any:
        """Read arrays."""


if not TYPE_CHECKING:  # a type checker knows the name above

    def __getattr__(name: str) -> Any:
        raise importlib.import_module("tracebridge._api.programs.missing").missing(__name__, name)
