"""Which host memory can be shared with XLA as it is, and why not."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core.errors.exchange_errors import LayoutError

ALIGNMENT = 64  # bytes; XLA's CPU programs read with instructions that need it


def is_aligned(address: int) -> bool:
    """Whether XLA takes memory at this address."""
    return address % ALIGNMENT == 0


def address_of(host: np.ndarray[Any, Any]) -> int:
    """The address of the first element."""
    return host.__array_interface__["data"][0]


def is_clean_bool(host: np.ndarray[Any, Any]) -> bool:
    """Whether all bytes of a bool array are 0 or 1: XLA computes with the bytes as they are."""
    return host.size == 0 or int(host.view(np.uint8).max()) <= 1


def why_not_shared(host: np.ndarray[Any, Any]) -> str:
    """Why XLA cannot use the memory of ``host``; empty if it can."""
    if not host.dtype.isnative:
        return f"its elements ({host.dtype}) are in foreign byte order"
    if not host.flags.c_contiguous:
        return f"it is not dense in row-major order (shape {host.shape}, strides {host.strides})"
    if host.size and not is_aligned(address_of(host)):
        return f"its memory is not aligned to {ALIGNMENT} bytes"
    if host.dtype.kind == "b" and not is_clean_bool(host):
        return "it has bool elements whose bytes are neither 0 nor 1"
    return ""


def refuse_copy(reason: str, what: str) -> LayoutError:
    """The error for ``copy=False`` where the memory cannot be shared."""
    return LayoutError(
        f"the memory of {what} cannot be shared, and copy=False forbids a copy: {reason}",
        hint="leave copy out to get a copy where one is needed",
    )


def copy_of_read_only(what: str, copy: bool | None) -> bool:
    """Whether to copy memory that may only be read: always.

    Exports of an Array to torch can be written to, and writing to a file that is mapped for
    reading ends the process.

    Raises:
        LayoutError: ``copy=False``.
    """
    if copy is False:
        raise refuse_copy("it is read-only, and exports of an Array can be written to", what)
    return True


def dense(host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """``host`` in this machine's byte order, dense, with clean bools; itself where it is so."""
    if not host.dtype.isnative:
        host = host.astype(host.dtype.newbyteorder("="))
    if host.dtype.kind == "b" and not is_clean_bool(np.ascontiguousarray(host)):
        return np.ascontiguousarray(host).view(np.uint8).reshape(host.shape) != 0
    return host
