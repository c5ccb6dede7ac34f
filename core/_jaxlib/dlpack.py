"""DLPack capsules in and out of jaxlib buffers.

jaxlib before 0.12 knows the unversioned `dltensor` capsule only, in both directions; later ones
take and give versioned capsules too. `SUPPORTS_VERSIONED` says which is installed.

Exporting pins the buffer object: deleting an `ArrayImpl` while a capsule that was made from that
same object is alive aborts the process. Callers export a re-wrapped object
(`xla.rewrap`) and drop it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any, NamedTuple, final

import numpy as np
from jaxlib import _jax, xla_client

SUPPORTS_VERSIONED: bool = hasattr(_jax, "dlpack_version")
"""Whether this jaxlib reads and writes versioned DLPack capsules."""

DLPACK_VERSION: tuple[int, int] = getattr(_jax, "dlpack_version", (0, 8))
"""The newest DLPack version of the installed jaxlib; (0, 8) is the last unversioned one."""


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


@final
class Managed(NamedTuple):
    """Addresses in the structure that a capsule points to."""

    tensor: int  # of the DLTensor
    flags: int | None  # of the flags, which versioned capsules have


def managed(capsule: Any) -> Managed | None:
    """Where a capsule that nobody has used has its parts; None for other objects."""
    if _is_valid(capsule, b"dltensor"):
        return Managed(_get_pointer(capsule, b"dltensor"), None)
    if _is_valid(capsule, b"dltensor_versioned"):
        # Version, context, deleter and flags stand before the tensor.
        start = _get_pointer(capsule, b"dltensor_versioned")
        return Managed(start + 32, start + 24)
    return None


def is_read_only(capsule: Any) -> bool:
    """Whether an unused capsule says that its memory must not be written to; old ones do not."""
    places = managed(capsule)
    if places is None or places.flags is None:
        return False
    return bool(ctypes.c_uint64.from_address(places.flags).value & 1)


_TENSOR_BYTES = 48


def carried(capsule: Any, owner: Any, flags: int | None = None) -> Any:
    """A capsule over the memory of an unused one; ``owner`` dies when the memory is given back.

    With ``flags`` it is a versioned capsule that has these, where NumPy makes such.

    ``owner`` is an object of ctypes, and holds the first capsule. The second one is NumPy's, of an
    empty array over ``owner``, with another tensor in it: NumPy gives up the array whoever drops
    the capsule or the tensor, also while an error is on its way (where a callback of ctypes ends
    the process), and does nothing once the interpreter is gone.
    """
    source = managed(capsule)
    if source is None:
        msg = f"{capsule!r} is no capsule that can be used"
        raise TypeError(msg)
    empty: np.ndarray[Any, Any] = np.ndarray((0,), np.uint8, owner)
    if flags is None and source.flags is not None:
        flags = ctypes.c_uint64.from_address(source.flags).value
    # NumPy before 2.1 has no versioned capsules. Each consumer takes both.
    versioned = flags is not None and _NUMPY_GIVES_VERSIONED
    result = empty.__dlpack__(max_version=(1, 0)) if versioned else empty.__dlpack__()
    target = managed(result)
    assert target is not None
    ctypes.memmove(target.tensor, source.tensor, _TENSOR_BYTES)
    if flags is not None and target.flags is not None:
        ctypes.c_uint64.from_address(target.flags).value = flags
    return result


@final
class _Holder(ctypes.c_char * 1):
    """Holds a capsule for another one over the same memory."""

    def __init__(self, capsule: Any) -> None:
        super().__init__()
        self.capsule = capsule


_IS_COPIED = 2
_NUMPY_GIVES_VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


def to_capsule(
    buf: Any,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    *,
    copied: bool = False,
) -> Any:
    """Return a DLPack capsule over the memory of a single-device `ArrayImpl`.

    `max_version` is what the consumer understands. Without support in jaxlib the capsule is the
    unversioned one, which every consumer must accept, but for copies. `copied` sets the flag of a
    versioned capsule that says that the memory belongs to the consumer alone.
    """
    if not SUPPORTS_VERSIONED or max_version is None:
        capsule = _jax.buffer_to_dlpack_managed_tensor(buf, stream=stream)
        if copied and max_version is not None and max_version >= (1, 0):
            # NumPy takes what an unversioned capsule holds for read-only.
            return carried(capsule, _Holder(capsule), _IS_COPIED)
        return capsule
    return _jax.buffer_to_dlpack_managed_tensor(
        buf, stream=stream, max_version=max_version, copied=copied
    )


_PEER = "jax"


@final
class _NotNow:
    """Answers the import of another library by which jaxlib would describe an imported buffer.

    We describe it ourselves. Without this the library would be loaded where it is installed, and
    searched for at each call where it is not: that takes several times as long as the call.
    Imports by others, in other threads too, are left alone.
    """

    def __init__(self) -> None:
        self._importing = threading.local()

    def __enter__(self) -> None:
        # A buffer may be imported while another one is: a tensor that dies runs code of others.
        self._importing.depth = getattr(self._importing, "depth", 0) + 1

    def __exit__(self, *error: object) -> None:
        self._importing.depth -= 1

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Say that there is no such module while a buffer is imported."""
        del path, target
        if name == _PEER and getattr(self._importing, "depth", 0):
            msg = f"No module named {name!r}"
            raise ModuleNotFoundError(msg, name=name)


_not_now = _NotNow()


def from_capsule(
    capsule: Any,
    device: Any,
    stream: int | None = None,
    *,
    copy: bool | None = None,
    dl_device_type: int | None = None,
) -> Any:
    """Return an `ArrayImpl` over the memory of a DLPack capsule; its aval is None, re-wrap it.

    `copy=None` copies when the memory is not aligned to 64 bytes, `copy=False` raises then.
    `copy=True` does not promise a copy of aligned memory in jaxlib: copy yourself.
    """
    if _PEER in sys.modules:
        return _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream, copy, dl_device_type)
    if _not_now not in sys.meta_path:
        sys.meta_path.insert(0, _not_now)
    with _not_now:
        return _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream, copy, dl_device_type)


# Plain aliases for paths on which a Python wrapper would cost a tenth of the whole.
unversioned_capsule = _jax.buffer_to_dlpack_managed_tensor
"""`unversioned_capsule(buf)`: as `to_capsule` without a stream; waits until the buffer is ready."""

put_view = xla_client.batched_device_put
"""`put_view(aval, sharding, [ndarray], [device], committed, force_copy, semantics, True)`.

As `xla.batched_device_put`, all arguments by position. The last one must be True: None would read
a process-wide configuration object.
"""
