"""Exchange of arrays with other libraries by DLPack, without a copy where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.interop.dlpack import export_capsule
from tracebridge.interop.dtypes import is_exchanged
from tracebridge.interop.ownership import copied, placed
from tracebridge.interop.registry import import_tensor

__all__ = ["from_dlpack", "is_supported_dtype", "to_dlpack"]


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of a dtype can be exchanged.

    Args:
        dtype: a dtype, or its name.

    >>> import tracebridge as tb
    >>> import tracebridge.dlpack
    >>> tb.dlpack.is_supported_dtype("float32"), tb.dlpack.is_supported_dtype(tb.numpy.int4)
    (True, False)
    """
    return is_exchanged(np.dtype(dtype))


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Array:
    """An Array of a tensor of another library, sharing its memory where that is possible.

    Whoever writes to the tensor later changes the Array: see docs/explanation/aliasing.md.

    Args:
        external_array: an object with ``__dlpack__`` and ``__dlpack_device__``: a NumPy array, a
            torch or TensorFlow tensor, an array of any other library. Any shape; dtypes bool,
            integers of 8 to 64 bits, floating and complex, which are kept (64 bits too).
        device: device or sharding to put the Array on (default: where the tensor lives).
        copy: None shares where dtype, strides and alignment (64 bytes) allow and copies
            otherwise; False raises where a copy would be needed; True always copies.

    Raises:
        ExchangeError: the object is no tensor, or has no values (fake, meta, traced).
        ArgumentValueError: a masked array, whose hidden elements would come to light.
        UnsupportedExchangeDtypeError: the engine has no such dtype.
        LayoutError: ``copy=False`` and the memory cannot be shared.

    >>> import numpy as np
    >>> import tracebridge as tb
    >>> import tracebridge.dlpack
    >>> tb.dlpack.from_dlpack(np.arange(3.0)).dtype
    dtype('float64')
    """
    if type(external_array) is Array:
        array = placed(external_array, device, copy)
        return copied(array) if copy else array
    array = import_tensor(external_array, device=device, copy=copy)
    if array is None:
        msg = f"from_dlpack: got an object of type {type(external_array).__name__}"
        raise ExchangeError(
            msg,
            expected="a tensor with the methods __dlpack__ and __dlpack_device__",
            hint="use tracebridge.numpy.asarray for numbers and lists",
        )
    return array


def to_dlpack(x: Any, *, copy: bool | None = None) -> Any:
    """A DLPack capsule over the memory of an Array, for libraries that take capsules.

    Most take the Array itself: ``torch.from_dlpack(x)``, ``numpy.from_dlpack(x)``. A capsule can
    be consumed once. A consumer that writes into it changes the Array.

    Args:
        x: Array or number. Any shape; dtypes bool, integers of 8 to 64 bits, floating, complex.
        copy: True gives the consumer memory of its own; False raises for arrays whose memory is
            shared inside the engine (scalars made of Python numbers).

    Raises:
        ExchangeError: the array is spread over several devices.
        UnsupportedExchangeDtypeError: DLPack has no such dtype (int4 and narrower, float4).
        OwnershipError: ``copy=False`` and the memory may not be handed out.

    >>> import tracebridge as tb
    >>> import tracebridge.dlpack
    >>> import tracebridge.numpy as tnp
    >>> type(tb.dlpack.to_dlpack(tnp.ones(3))).__name__
    'PyCapsule'
    """
    return export_capsule(to_array(as_value(x)), copy=copy)


_shield(globals(), __name__)
