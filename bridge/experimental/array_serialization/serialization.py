"""Managers of checkpoints: arrays are written to folders while the program goes on.

Each array is a folder of its own, as ``pytree_serialization`` writes it. The descriptions that
tell where an array is are dictionaries, ``get_tensorstore_spec(path)``; only their path counts.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from os import PathLike
from typing import TYPE_CHECKING, Any

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.experimental.array_serialization.pytree_serialization import (
    load,
    nonblocking_save,
)

__all__ = [
    "GlobalAsyncCheckpointManager",
    "GlobalAsyncCheckpointManagerBase",
    "get_tensorstore_spec",
]


def get_tensorstore_spec(
    ckpt_path: str | PathLike[str], ocdbt: bool = False, **_: object
) -> dict[str, Any]:
    """The description of an array in a folder.

    Args:
        ckpt_path: the folder.
        ocdbt: whether arrays may share a folder; they do not here.

    >>> from tracebridge.experimental.array_serialization import serialization
    >>> serialization.get_tensorstore_spec("checkpoints/weights")["kvstore"]["path"]
    'checkpoints/weights'
    """
    del ocdbt
    return {"driver": "folder", "kvstore": {"driver": "file", "path": str(ckpt_path)}}


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
    def serialize(
        self, arrays: Sequence[object], tensorstore_specs: Sequence[object], **kwargs: Any
    ) -> None:
        """Begin to write arrays."""

    @abc.abstractmethod
    def deserialize(
        self, shardings: Sequence[object], tensorstore_specs: Sequence[object], **kwargs: Any
    ) -> Any:
        """Read arrays."""


class GlobalAsyncCheckpointManager(GlobalAsyncCheckpointManagerBase):
    """Writes arrays to folders in the background.

    Args:
        timeout_secs: how long to wait for the arrays of one call.

    >>> import tempfile
    >>> import tracebridge as tb
    >>> from tracebridge.experimental.array_serialization import serialization
    >>> manager = serialization.GlobalAsyncCheckpointManager()
    >>> spec = serialization.get_tensorstore_spec(tempfile.mkdtemp())
    >>> manager.serialize([tb.numpy.arange(3)], [spec], on_commit_callback=lambda: None)
    >>> manager.wait_until_finished()
    >>> here = tb.sharding.SingleDeviceSharding(tb.devices()[0])
    >>> manager.deserialize([here], [spec])[0].tolist()
    [0, 1, 2]
    """

    def __init__(self, timeout_secs: float = 300) -> None:
        self._timeout = timeout_secs
        self._unfinished: Future[None] | None = None

    def check_for_errors(self) -> None:
        """Raise what went wrong in the background, if anything did."""
        if self._unfinished is not None and self._unfinished.done():
            self.wait_until_finished()

    def wait_until_finished(self) -> None:
        """Wait until everything is written.

        Raises:
            TimeoutError: it took longer than ``timeout_secs``; it goes on, and can be waited for
                again.
        """
        unfinished = self._unfinished
        if unfinished is None:
            return
        wait([unfinished], self._timeout)
        if unfinished.done():
            self._unfinished = None
        unfinished.result(0)

    def serialize(
        self,
        arrays: Sequence[Any],
        tensorstore_specs: Sequence[Any],
        *,
        on_commit_callback: Callable[[], object] | None = None,
        **_: object,
    ) -> None:
        """Begin to write arrays; they may be donated or deleted when this returns.

        Args:
            arrays: the arrays.
            tensorstore_specs: where each of them goes.
            on_commit_callback: called when all of them are written.
        """
        self.wait_until_finished()
        parts = [
            nonblocking_save(array, spec["kvstore"]["path"])
            for array, spec in zip(arrays, tensorstore_specs, strict=True)
        ]

        def commit() -> None:
            for part in parts:
                part.result(self._timeout)
            if on_commit_callback is not None:
                on_commit_callback()

        pool = ThreadPoolExecutor(1, "checkpoints")
        self._unfinished = pool.submit(commit)
        pool.shutdown(wait=False)

    def deserialize(
        self,
        shardings: Sequence[Any],
        tensorstore_specs: Sequence[Any],
        global_shapes: Sequence[Sequence[int]] | None = None,
        dtypes: Sequence[Any] | None = None,
        concurrent_gb: int = 32,
        **_: object,
    ) -> list[Any]:
        """Read arrays.

        Args:
            shardings: where each of them goes.
            tensorstore_specs: where each of them is.
            global_shapes: their shapes; None for those that were written.
            dtypes: what they are cast to; None for no cast.
            concurrent_gb: without effect, one array is read at a time.

        Raises:
            ArgumentValueError: an array has another shape.
            ExportError: there is no array.
        """
        del concurrent_gb
        self.wait_until_finished()
        arrays = [
            load(spec["kvstore"]["path"], sharding)
            for spec, sharding in zip(tensorstore_specs, shardings, strict=True)
        ]
        for array, shape in zip(arrays, global_shapes or (), strict=global_shapes is not None):
            if tuple(shape) != array.shape:
                msg = f"deserialize: an array of shape {array.shape}, expected {tuple(shape)}"
                raise ArgumentValueError(msg)
        if dtypes is None:
            return arrays
        pairs = zip(arrays, dtypes, strict=True)
        return [a if a.dtype == d else a.astype(d) for a, d in pairs]


_shield(globals(), __name__)

if not TYPE_CHECKING:  # a type checker knows the name above

    def __getattr__(name: str) -> Any:
        raise importlib.import_module("tracebridge._api.programs.missing").missing(__name__, name)
