"""What XLA says when a program or a transfer fails, as errors of this package."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.dtypes.dtypes import itemsize_bits
from tracebridge.core.errors.runtime_errors import ExecutionError, OutOfMemoryError
from tracebridge.core.runtime.arrays.array import living_arrays

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray
    from tracebridge.core.runtime.arrays.array import Array

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
_SHOWN = 3
# Nobody's disk stands in for more than this many times the memory.
_MOST_SWAP = 8


def raise_failure(name: str, error: BaseException) -> None:
    """Raise our error for one of XLA; return if it is ours already.

    Raises:
        OutOfMemoryError: there is no memory; the message says how much was asked for, and what
            arrays hold.
        ExecutionError: something else.
    """
    if type(error) is not XlaRuntimeError:
        return
    text = str(error)
    if _OUT_OF_MEMORY not in text:
        raise ExecutionError(f"{name}: XLA could not run the program: {text}") from error
    asked = re.search(r"(\d+) ?bytes", text)
    size = _readable(int(asked[1])) if asked else "more memory than there is"
    _raise_out_of_memory(name, size, error)


def raise_no_host_memory(name: str, error: MemoryError) -> None:
    """Raise our error for one of NumPy, where the host makes the numbers of an array.

    Raises:
        OutOfMemoryError: as for devices.
    """
    asked = re.search(r"allocate ([\d.]+ [KMGTPE]?i?B|\d+ bytes)", str(error))
    _raise_out_of_memory(name, asked[1] if asked else "more memory than there is", error)


def check_host_holds(name: str, avals: Sequence[ShapedArray]) -> None:
    """Raise if no host memory is large enough for arrays of these types.

    Raises:
        OutOfMemoryError: as for a program that was run.
    """
    size = sum([aval.size * itemsize_bits(aval.dtype) // 8 for aval in avals])
    if size > _MOST_SWAP * _host_memory():
        _raise_out_of_memory(name, _readable(size), None)


@cache
def _host_memory() -> float:
    """In bytes; infinite where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return math.inf


def _raise_out_of_memory(name: str, size: str, error: BaseException | None) -> None:
    arrays = sorted(living_arrays(), key=_bytes, reverse=True)
    held = f"{len(arrays)} arrays hold {_readable(sum(map(_bytes, arrays)))}"
    if arrays:
        largest = [f"{a.aval.str_short()} ({_readable(_bytes(a))})" for a in arrays[:_SHOWN]]
        held += f", the largest are {', '.join(largest)}"
    raise OutOfMemoryError(
        f"{name}: out of memory: {size} were asked for; {held}",
        hint="drop arrays that are not needed (live_arrays lists them), donate arguments, use "
        "checkpoint for gradients, or smaller batches (lax.map with batch_size)",
    ) from error


def _bytes(array: Array) -> int:
    return array.aval.size * array.aval.dtype.itemsize


def _readable(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
