"""Arrays from and to files, buffers and text."""

from __future__ import annotations

__all__ = [
    "array_repr", "array_str", "from_dlpack", "frombuffer", "fromfile", "fromiter",
    "fromstring", "get_printoptions", "load", "printoptions", "save", "savez",
    "set_printoptions",
]  # fmt: skip

import os
from collections.abc import Iterable
from typing import IO, Any

import numpy as np

from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import bfloat16
from tracebridge.core.errors.argument_errors import kind_of
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.ir.operators import ArrayOperators
from tracebridge.core.runtime.arrays.argument_types import DeviceLike
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike, DTypeLike
from tracebridge.core.runtime.arrays.transfer import check_unmasked, put_numpy
from tracebridge.interop.dlpack import import_dlpack
from tracebridge.interop.ownership import copied, placed
from tracebridge.numpy._staging import concrete
from tracebridge.numpy.conversion import asarray, on_device

_TWO_BYTES = np.dtype("V2")

File = IO[bytes] | str | os.PathLike[str]


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """An array of the bytes of a buffer, which are copied.

    Args:
        buffer: an object with the buffer protocol, such as ``bytes``.
        dtype: how to read the bytes.
        count: how many elements; -1 for all.
        offset: where to begin, in bytes.

    >>> import tracebridge.numpy as tnp
    >>> tnp.frombuffer(bytes([1, 2]), dtype="uint8").tolist()
    [1, 2]
    """
    host = np.frombuffer(buffer, dtype=dtype, count=count, offset=offset)
    return put_numpy(host.astype(canonicalize_explicit(dtype, "frombuffer")))


def fromiter(iter: Iterable[Any], dtype: DTypeLike, count: int = -1) -> Array:
    """An array of the numbers that an iterable gives.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fromiter((k * k for k in range(3)), dtype=int).tolist()
    [0, 1, 4]
    """
    host = np.fromiter(iter, dtype, count)
    return put_numpy(host.astype(canonicalize_explicit(dtype, "fromiter")))


def fromfile(
    file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0
) -> Array:
    """An array of the numbers in a file, binary or (with ``sep``) as text.

    >>> import tempfile, numpy, tracebridge.numpy as tnp
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     numpy.arange(3, dtype="int32").tofile(file.name)
    ...     tnp.fromfile(file.name, dtype="int32").tolist()
    [0, 1, 2]
    """
    host = np.fromfile(file, dtype, count, sep, offset)
    return put_numpy(host.astype(canonicalize_explicit(dtype, "fromfile")))


def fromstring(string: str, dtype: DTypeLike = float, count: int = -1, *, sep: str) -> Array:
    """An array of the numbers in a text.

    >>> import tracebridge.numpy as tnp
    >>> tnp.fromstring("1, 2", sep=",").tolist()
    [1.0, 2.0]
    """
    host = np.fromstring(string, dtype, count, sep=sep)
    return put_numpy(host.astype(canonicalize_explicit(dtype, "fromstring")))


def from_dlpack(
    x: object, /, *, device: DeviceLike | None = None, copy: bool | None = None
) -> Array:
    """An array of a tensor of another library, without a copy where that is possible.

    Args:
        x: an object with ``__dlpack__`` and ``__dlpack_device__``.
        device: where to put the array (default: where the tensor is).
        copy: ``True`` copies, ``False`` raises where a copy would be needed.

    Raises:
        ExchangeError: ``x`` does not speak DLPack.
        ArgumentValueError: a masked array, whose hidden elements would come to light.
        UnsupportedExchangeDtypeError: it is of a dtype that DLPack lacks, such as longdouble.
        LayoutError: ``copy=False``, and the memory cannot be shared.

    >>> import numpy, tracebridge.numpy as tnp
    >>> tnp.from_dlpack(numpy.array([1, 2], dtype="int32")).tolist()
    [1, 2]
    """
    if type(x) is Array:
        array = placed(x, device, copy)
        return copied(array) if copy else array
    if isinstance(x, ArrayOperators):
        return on_device(x, device)
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        msg = f"from_dlpack: got {kind_of(x)}, expected a tensor with the methods of DLPack"
        raise ExchangeError(msg, hint="use tracebridge.numpy.asarray for numbers and lists")
    if isinstance(x, np.ndarray):
        check_unmasked(x)
    return import_dlpack(x, device=device, copy=copy)


def load(file: File, *args: Any, **kwargs: object) -> Any:
    """The array in a ``.npy`` file, or the arrays in a ``.npz`` file.

    Args:
        file: name, path or binary file.
        *args: passed on to ``numpy.load``.
        **kwargs: passed on to ``numpy.load``.

    Files do not know the dtypes that NumPy lacks: elements of two bytes are taken for
    ``bfloat16``, and arrays of other sizes are left to NumPy (``view`` gives them their dtype).

    >>> import io, tracebridge.numpy as tnp
    >>> file = io.BytesIO()
    >>> tnp.save(file, tnp.arange(3))
    >>> _ = file.seek(0)
    >>> tnp.load(file).tolist()
    [0, 1, 2]
    """
    loaded = np.load(file, *args, **kwargs)
    if not isinstance(loaded, np.ndarray):
        return loaded
    if loaded.dtype == _TWO_BYTES:
        loaded = loaded.view(bfloat16)
    return loaded if loaded.dtype.kind == "V" and loaded.dtype.type is np.void else asarray(loaded)


def save(file: File, arr: ArrayLike, allow_pickle: bool = True) -> None:
    """Write an array to a ``.npy`` file.

    >>> import io, tracebridge.numpy as tnp
    >>> tnp.save(io.BytesIO(), tnp.arange(3))
    """
    np.save(file, concrete(arr, "Its elements are written"), allow_pickle=allow_pickle)


def savez(file: File, *args: ArrayLike, allow_pickle: bool = True, **kwds: object) -> None:
    """Write arrays to a ``.npz`` file, by position (``arr_0``, ...) or by name.

    >>> import io, tracebridge.numpy as tnp
    >>> tnp.savez(io.BytesIO(), tnp.arange(3), weights=tnp.ones(2))
    """
    why = "Its elements are written"
    named = {name: concrete(a, why) for name, a in kwds.items()}
    np.savez(file, *[concrete(a, why) for a in args], allow_pickle=allow_pickle, **named)


def array_repr(
    arr: ArrayLike,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The text of an array with its type; the options are those of NumPy.

    >>> import tracebridge.numpy as tnp
    >>> tnp.array_repr(tnp.array([1.0, 2.0]), precision=1)
    'array([1., 2.], dtype=float32)'
    """
    host = concrete(arr, "Its elements are printed")
    return np.array_repr(host, max_line_width, precision, suppress_small)


def array_str(
    a: ArrayLike,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
) -> str:
    """The text of the elements of an array; the options are those of NumPy.

    >>> import tracebridge.numpy as tnp
    >>> tnp.array_str(tnp.array([1.0, 2.0]))
    '[1. 2.]'
    """
    host = concrete(a, "Its elements are printed")
    return np.array_str(host, max_line_width, precision, suppress_small)


# Arrays print through NumPy, with its options.
set_printoptions = np.set_printoptions
get_printoptions = np.get_printoptions
printoptions = np.printoptions
