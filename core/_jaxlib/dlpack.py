"""DLPack capsules in and out of jaxlib buffers.

jaxlib before 0.12 knows the unversioned `dltensor` capsule only, in both directions; later ones
take and give versioned capsules too. `SUPPORTS_VERSIONED` says which is installed.

Exporting pins the buffer object: deleting an `ArrayImpl` while a capsule that was made from that
same object is alive aborts the process. Callers export a re-wrapped object
(`xla.rewrap`) and drop it.
"""

from __future__ import annotations

from typing import Any

from jaxlib import _jax

SUPPORTS_VERSIONED: bool = hasattr(_jax, "dlpack_version")
"""Whether this jaxlib reads and writes versioned DLPack capsules."""

DLPACK_VERSION: tuple[int, int] = getattr(_jax, "dlpack_version", (0, 8))
"""The newest DLPack version of the installed jaxlib; (0, 8) is the last unversioned one."""


def to_capsule(
    buf: Any,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    *,
    copied: bool = False,
) -> Any:
    """Return a DLPack capsule over the memory of a single-device `ArrayImpl`.

    `max_version` is what the consumer understands. Without support in jaxlib the capsule is the
    unversioned one, which every consumer must accept. `copied` sets the flag of a versioned
    capsule that says that the memory belongs to the consumer alone.
    """
    if not SUPPORTS_VERSIONED or max_version is None:
        return _jax.buffer_to_dlpack_managed_tensor(buf, stream=stream)
    return _jax.buffer_to_dlpack_managed_tensor(
        buf, stream=stream, max_version=max_version, copied=copied
    )


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
    return _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream, copy, dl_device_type)
