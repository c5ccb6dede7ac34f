"""Arrays for Python's own ways to look at memory: ``bytes(x)``, ``memoryview(x)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class HostMemory:
    """The methods that Python calls for the memory of an array."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _to_numpy(self) -> np.ndarray[Any, Any]: ...

    def __bytes__(self) -> bytes:
        # Without it bytes(x) would be x zeros, or one byte for each element.
        return self._to_numpy().tobytes()

    def __buffer__(self, flags: int) -> memoryview:
        """Read-only memory, which Python asks for from 3.12 on."""
        del flags  # memoryview looks at them
        host = self._to_numpy()
        try:
            return host.data
        except ValueError as error:
            msg = f"elements of type {host.dtype} have no letter in the buffer protocol"
            raise BufferError(msg) from error
