"""DLPack: any producer in, capsules out.

On the CPU a foreign tensor comes in as a NumPy view: NumPy reads all versions of the protocol,
and jaxlib takes an ndarray ten times faster than a capsule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.errors.exchange_errors import (
    ExchangeError,
    LayoutError,
    UnsupportedExchangeDtypeError,
)
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.array import Array
from tracebridge.core.runtime.transfer import check_host_dtype
from tracebridge.interop.devices import CPU, placement_of
from tracebridge.interop.ownership import copied, exportable, placed, take_buffer, take_host


def import_dlpack(x: Any, *, device: Any = None, copy: bool | None = None) -> Array:
    """An Array of an object with ``__dlpack__`` and ``__dlpack_device__``."""
    kind, ordinal = x.__dlpack_device__()
    where = placement_of(int(kind), int(ordinal))
    if int(kind) == CPU:
        view = _host_view(x)
        if view is not None:
            check_host_dtype(view.dtype)
            what = f"the {type(x).__name__}"
            return placed(take_host(view, where, copy=copy, what=what), device)
    return placed(_import_capsule(x, where, copy), device)


def _host_view(x: Any) -> np.ndarray[Any, Any] | None:
    """A NumPy view of a tensor on the CPU; None for dtypes that NumPy does not import."""
    try:
        return np.from_dlpack(x)
    except RuntimeError:
        # NumPy's answer to bfloat16 and float8; jaxlib knows them.
        return None


def _import_capsule(x: Any, where: Any, copy: bool | None) -> Array:
    """Import through jaxlib: dtypes that NumPy has not, and memory of other devices."""
    stream = None
    if where.device.platform != "cpu":
        # The producer makes this stream wait for its writes.
        stream = where.device.get_stream_for_external_ready_events()
    capsule = x.__dlpack__() if stream is None else x.__dlpack__(stream=stream)
    return import_capsule(capsule, where, stream=stream, copy=copy, what=type(x).__name__)


def import_capsule(
    capsule: Any, where: Any, *, stream: int | None, copy: bool | None, what: str
) -> Array:
    """An Array over the memory of a capsule at the placement ``where``."""
    try:
        buf = door.from_capsule(
            capsule, where.device, stream, copy=False if copy is False else None
        )
    except XlaRuntimeError as error:
        raise _translated(error, what) from error
    aval = ShapedArray(buf.shape, buf.dtype)
    array = take_buffer(buf, where, aval)
    # jaxlib's own copy=True does not copy memory that is aligned.
    return copied(array) if copy else array


def _translated(error: XlaRuntimeError, what: str) -> Exception:
    text = str(error)
    if "aligned" in text or "strid" in text.lower() or "layout" in text:
        return LayoutError(
            f"the memory of a {what} cannot be shared: {text}",
            hint="make it contiguous in its own framework, or leave copy out",
        )
    if "type" in text:
        return UnsupportedExchangeDtypeError(f"a {what} cannot become an array: {text}")
    return ExchangeError(f"a {what} cannot become an array: {text}")


def export_capsule(array: Array, *, copy: bool | None = None) -> Any:
    """An unversioned DLPack capsule of an Array."""
    source = exportable(array, copy, "DLPack")
    return source.__dlpack__()
