"""Exchange with NumPy."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import check_unmasked
from tracebridge.interop.adapter import TensorAdapter
from tracebridge.interop.devices import CPU, placement_of
from tracebridge.interop.dtypes import check_exchanged
from tracebridge.interop.layout import copy_of_read_only, refuse_copy
from tracebridge.interop.ownership import placed, take_host


@final
class NumpyAdapter(TensorAdapter):
    """ndarrays in, read-only ndarrays out. 64-bit dtypes are kept."""

    name = "NumPy"

    def accepts(self, cls: type) -> bool:
        return issubclass(cls, np.ndarray | np.generic)

    def import_(self, x: object, *, device: object = None, copy: bool | None = None) -> Array:
        check_unmasked(x)
        host = np.asarray(x)
        check_exchanged(host.dtype)
        if copy is False and isinstance(x, np.generic):
            raise refuse_copy("it is a scalar object", "the NumPy scalar")
        copy = copy if host.flags.writeable else copy_of_read_only("ndarray", copy)
        array = take_host(host, placement_of(CPU, 0), copy=copy, what="the ndarray")
        return placed(array, device, copy)

    def export(self, array: Array, *, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return array.__array__(copy=copy)


numpy_adapter = NumpyAdapter()
