"""Who owns memory: Arrays over borrowed memory, and exports that outlive their Array.

Borrowed memory has ``Signature.borrowed``: it is never donated, and deleting the Array only ends
the Array. An export goes through a buffer object of its own: deleting a buffer object that has
been exported aborts the process, deleting another object over the same memory does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core._jaxlib.xla import rewrap
from tracebridge.core.errors.exchange_errors import ExchangeError, OwnershipError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.arrays import transfer
from tracebridge.core.runtime.arrays.array import Array, new_array
from tracebridge.core.runtime.arrays.signature import signature
from tracebridge.core.runtime.arrays.transfer import move, put_numpy
from tracebridge.core.runtime.backends.clients import default_placement
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.interop.devices import wanted_placement
from tracebridge.interop.layout import dense, refuse_copy, why_not_shared


def take_host(
    host: np.ndarray[Any, Any], where: SingleDeviceSharding, *, copy: bool | None, what: str
) -> Array:
    """An Array of host memory at the CPU placement ``where``; ``what`` names it in messages.

    With ``copy=None`` or ``False`` the Array reads that memory; who writes to it later changes
    the Array.

    Raises:
        LayoutError: ``copy=False`` and the memory cannot be shared.
    """
    committed = is_chosen(where)
    if copy is not True:
        reason = why_not_shared(host)
        if not reason:
            return put_numpy(host, where, committed=committed, borrow=True)
        if copy is False:
            raise refuse_copy(reason, what)
    return put_numpy(dense(host), where, committed=committed)


def take_buffer(buf: Any, where: SingleDeviceSharding, aval: ShapedArray) -> Array:
    """An Array of a buffer that jaxlib imported over foreign memory."""
    committed = is_chosen(where)
    return new_array(
        rewrap(buf, aval, where.backend_sharding), signature(aval, where, committed, True)
    )


def is_chosen(where: SingleDeviceSharding) -> bool:
    """Whether an Array at ``where`` is committed: computations then stay with the tensor."""
    return where is not default_placement()


def placed(array: Array, device: object, copy: bool | None = None) -> Array:
    """``array`` committed to a device or sharding; itself for None.

    Raises:
        LayoutError: ``copy=False``, and it is somewhere else.
    """
    wanted = wanted_placement(device)
    if wanted is None:
        return array
    if copy is False and not wanted.is_equivalent_to(array.sharding, array.ndim):
        raise refuse_copy(f"it is at {array.sharding}, and is to go to {wanted}", "the tensor")
    return move(array, wanted, committed=True)


def on_its_device(array: Array) -> Array:
    """``array`` under the sharding of its device, if it is over a mesh of one; the same memory."""
    sharding = array.sharding
    if isinstance(sharding, SingleDeviceSharding) or sharding.num_devices != 1:
        return array
    (device,) = sharding.device_tuple
    place = SingleDeviceSharding(device, memory_kind=sharding.memory_kind)
    return move(array, place, committed=array._sig.committed)


def exportable(array: Array, copy: bool | None, framework: str) -> Array:
    """``array`` in a form whose memory may be handed out: alive, on one device, not shared.

    Raises:
        DeletedArrayError: the memory is gone.
        ExchangeError: the array is spread over several devices.
        OwnershipError: ``copy=False`` for a scalar that other parts of the engine use too.
    """
    array._check_alive()
    array = on_its_device(array)
    if not isinstance(array.sharding, SingleDeviceSharding):
        msg = f"an array that is spread over devices ({array.sharding}) cannot go to {framework}"
        raise ExchangeError(msg, hint="gather it first: device_put(x, device)")
    if copy is True:
        return copied(array)
    if array._sig.borrowed and array.ndim == 0:
        # The engine keeps scalars of Python numbers and uses them again: a write by the other
        # framework would change that number everywhere.
        if copy is False:
            msg = "the memory of this scalar is used by other arrays, and copy=False forbids a copy"
            raise OwnershipError(msg, hint="leave copy out")
        return copied(array)
    return array


def copied(array: Array) -> Array:
    """An Array with the same elements and memory of its own, at the same place."""
    return transfer.copied(array, committed=array._sig.committed)


def export_buffer(array: Array) -> Any:
    """A new buffer object over the memory of ``array``, to be exported and dropped."""
    return rewrap(array._buf, array.aval, array.sharding.backend_sharding)
