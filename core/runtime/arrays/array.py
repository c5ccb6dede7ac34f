"""The user's array: a jaxlib buffer with an interned signature."""

from __future__ import annotations

import gc
import importlib
import weakref
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core._jaxlib.xla import (
    XlaRuntimeError,
    buffer_to_numpy,
    collect_garbage,
    start_copy_to_host,
    view_on_cpu,
)
from tracebridge.core.config.state import state
from tracebridge.core.config.transfer_guards import guards_in_force
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.errors.argument_errors import (
    ArgumentTypeError,
    ArgumentValueError,
    no_truth_value,
)
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.runtime_errors import DeletedArrayError
from tracebridge.core.ir.array_protocol import NAMESPACE
from tracebridge.core.ir.aval import ShapedArray, stored
from tracebridge.core.ir.operators import ArrayOperators
from tracebridge.core.ir.typeof import identity, register_value_type
from tracebridge.core.lax.unsplit import with_whole_rows
from tracebridge.core.runtime.arrays.array_class import ArrayMeta, ArrayMethods
from tracebridge.core.runtime.arrays.dlpack_export import dlpack_device, export_capsule
from tracebridge.core.runtime.arrays.host_memory import HostMemory
from tracebridge.core.runtime.arrays.shards import (
    Shard,
    gather,
    is_readable,
    shard_aval,
    shard_buffers,
)
from tracebridge.core.runtime.arrays.signature import Signature, signature
from tracebridge.core.runtime.backends.guards import check_transfer
from tracebridge.core.sharding.layout import Format, row_major
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Iterator


@public_path("tracebridge")
@final
class Array(ArrayOperators, ArrayMethods, HostMemory, metaclass=ArrayMeta):
    """An immutable array on a device. Make one with ``tracebridge.numpy``, never by this class.

    >>> import tracebridge.numpy as tnp
    >>> x = tnp.arange(3.0)
    >>> x.shape, x.dtype
    ((3,), dtype('float32'))
    """

    __slots__ = ("__weakref__", "_buf", "_donated_to", "_host", "_sig")
    _trace = None
    _sig: Signature
    _buf: Any
    _committed = property(lambda self: self._sig.committed)  # the name that libraries read

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        msg = "Array cannot be made directly; use tracebridge.numpy.asarray"
        raise TypeError(msg)

    @property
    def aval(self) -> ShapedArray:
        """Shape, dtype and weak type."""
        return self._sig.aval

    # places --------------------------------------------------------------------------------------

    @property
    def sharding(self) -> Any:
        """Where the elements live."""
        return self._sig.sharding

    @property
    def format(self) -> Format:
        """Where the elements live, and in which order: arrays are row-major."""
        return row_major(self.aval.ndim, self._sig.sharding)

    @property
    def committed(self) -> bool:
        """Whether the user chose the device; computations follow committed arrays."""
        return self._sig.committed

    @property
    def device(self) -> Any:
        """The device of an array that lives on one, else its sharding."""
        sharding = self._sig.sharding
        if type(sharding) is SingleDeviceSharding:
            return sharding.device
        return sharding.device_tuple[0] if sharding.num_devices == 1 else sharding

    def devices(self) -> set[Any]:
        """The devices that hold parts of the array."""
        return self._sig.sharding.device_set

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can read all elements."""
        return self._sig.sharding.is_fully_addressable

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device holds all elements."""
        return self._sig.sharding.is_fully_replicated

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts of the array that this process holds, one for each device."""
        self._check_alive()
        sharding, shape = self._sig.sharding, self._sig.aval.shape
        mine = [d for d in sharding.device_tuple if d in sharding.addressable_devices]
        return [
            Shard(device, sharding, shape, data)
            for device, data in zip(mine, self._parts(), strict=True)
        ]

    @property
    def global_shards(self) -> list[Shard]:
        """The parts of the array on all devices; those of other processes have no data."""
        held = {shard.device: shard for shard in self.addressable_shards}
        sharding, shape = self._sig.sharding, self._sig.aval.shape
        return [held.get(d) or Shard(d, sharding, shape) for d in sharding.device_tuple]

    def addressable_data(self, index: int = 0) -> Array:
        """The part on the ``index``-th device of this process, as an array on that device."""
        self._check_alive()
        return self._parts()[index]

    def _parts(self) -> list[Array]:
        sharding, aval = self._sig.sharding, self._sig.aval
        if type(sharding) is SingleDeviceSharding:
            return [self]
        part, kind = shard_aval(aval, sharding), sharding.memory_kind
        mine = [d for d in sharding.device_tuple if d in sharding.addressable_devices]
        return [
            new_array(buf, signature(part, SingleDeviceSharding(d, memory_kind=kind), True))
            for buf, d in zip(shard_buffers(self._buf, aval, sharding), mine, strict=True)
        ]

    # life ----------------------------------------------------------------------------------------

    def is_deleted(self) -> bool:
        """Whether the memory is gone (after ``delete()`` or donation)."""
        return self._buf.is_deleted()

    def delete(self) -> None:
        """Free the memory now; borrowed memory and numbers that the engine shares stay."""
        if not is_shared(self):
            self._host = None
            self._buf.delete()
            collect_garbage()  # borrowed memory goes now, not with jaxlib's next call

    def is_ready(self) -> bool:
        """Whether the computation that makes the array has finished."""
        self._check_alive()
        return self._buf.is_ready()

    def block_until_ready(self) -> Array:
        """Wait for the computation that makes the array; gives the array."""
        try:
            self._buf.block_until_ready()
        except XlaRuntimeError:
            self._check_alive()
            raise
        return self

    def copy_to_host_async(self) -> None:
        """Start copying to the host, so that a later read finds the elements there."""
        self._check_alive()
        for buf in shard_buffers(self._buf, self._sig.aval, self._sig.sharding):
            start_copy_to_host(buf)

    def unsafe_buffer_pointer(self) -> int:
        """The address of the device memory. Valid only while the array lives."""
        self._check_alive()
        return self._buf.unsafe_buffer_pointer()

    def on_device_size_in_bytes(self) -> int:
        """Bytes of device memory."""
        self._check_alive()
        return self._buf.on_device_size_in_bytes()

    def _check_alive(self) -> None:
        """Raise DeletedArrayError if the memory is gone."""
        if self._buf.is_deleted():
            donated_to = getattr(self, "_donated_to", "")
            raise DeletedArrayError(self.aval.str_short(), donated_to=donated_to)

    # host ----------------------------------------------------------------------------------------

    def _to_numpy(self) -> np.ndarray[Any, Any]:
        """The elements as a read-only ndarray, on the CPU without a copy where possible."""
        host = getattr(self, "_host", None)
        if host is None or self._buf.is_deleted():  # donated perhaps: views outlive their array
            self._check_alive()
            if is_extended(self._sig.aval.dtype):
                raise no_numpy_elements(self._sig.aval)
            sharding = self._sig.sharding
            if guards_in_force[0]:
                self._check_read()
            try:
                if type(sharding) is SingleDeviceSharding:
                    numpys_own = self._sig.aval.dtype.isbuiltin == 1
                    if numpys_own and sharding.device.platform == "cpu":
                        host = view_on_cpu(self._buf)
                    else:
                        host, _ = buffer_to_numpy(self._buf)
                else:
                    host = gather(self._buf, self._sig.aval, sharding)
            except XlaRuntimeError:
                self._check_alive()
                raise
            self._host = host
        return host

    def _check_read(self) -> None:
        """The guard of reads; arrays of the CPU are on the host already."""
        device = next(iter(self._sig.sharding.device_set))
        if device.platform != "cpu":
            check_transfer("device_to_host", self.aval.str_short(), device)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        host = self._to_numpy()
        if dtype is None and not copy:
            return host
        if dtype is not None and np.dtype(dtype) != host.dtype:
            if copy is False:
                msg = f"cannot view {host.dtype} elements as {np.dtype(dtype)} without a copy"
                raise ValueError(msg)
            return host.astype(dtype)
        return host.copy() if copy else host

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return export_capsule(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack_device(self)

    def item(self, *index: Any) -> Any:
        """One element as a Python scalar."""
        try:
            host = self._to_numpy()
            if not index and host.size != 1:
                raise ArgumentValueError(
                    call="x.item()",
                    got=f"an array {self.aval.str_short()}",
                    expected="one element",
                    hint="give an index, or use x.tolist()",
                )
            return host.item(*index)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars."""
        return self._to_numpy().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """The elements as bytes."""
        return self._to_numpy().tobytes(order)

    def __bool__(self) -> bool:
        try:
            try:
                return bool(self._to_numpy())
            except ValueError:
                pass
            raise ArgumentValueError(
                no_truth_value(self.size),
                got=f"an array {self.aval.str_short()}",
                hint="use x.any() or x.all()",
            )
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __int__(self) -> int:
        try:
            try:
                return int(self._to_numpy())
            except TypeError:
                pass
            raise _no_number(self, "int(x)")
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __float__(self) -> float:
        try:
            try:
                return float(self._to_numpy())
            except TypeError:
                pass
            raise _no_number(self, "float(x)")
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __complex__(self) -> complex:
        try:
            try:
                return complex(self._to_numpy())
            except TypeError:
                pass
            raise _no_number(self, "complex(x)")
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __index__(self) -> int:
        try:
            try:
                return self._to_numpy().__index__()
            except TypeError:
                pass
            raise _no_number(self, "x.__index__(), as in range(x) or a_list[x]", _ONE_INTEGER)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __iter__(self) -> Iterator[Any]:
        try:
            return _rows(self)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __contains__(self, value: object) -> bool:
        return value in self._to_numpy()

    def __format__(self, spec: str) -> str:
        if self.ndim == 0 and not is_extended(self.aval.dtype):
            return format(self._to_numpy()[()], spec)
        if not spec:
            return str(self)
        # As of an ndarray: the specification of a string would cut its text, as in f"{x:.2}".
        raise ArgumentTypeError(
            call=f"format(x, {spec!r})",
            got=f"an array {self.aval.str_short()}",
            expected="an array without axes",
            hint="format the elements: [f'{v:.2f}' for v in x.tolist()], or use numpy.array2string",
        )

    def __repr__(self) -> str:
        return _shown(self)

    def __str__(self) -> str:
        special = self._buf.is_deleted() or is_extended(self.aval.dtype)
        return (
            repr(self) if special or not is_readable(self._sig.sharding) else str(self._to_numpy())
        )

    def __copy__(self) -> Any:
        """Memory of its own, so that donating or deleting one array leaves the other."""
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        del memo
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reduced(self)


def new_array(buf: object, sig: Signature) -> Array:
    """Wrap a buffer."""
    array = object.__new__(Array)
    array._sig = sig
    array._buf = buf
    return array


# Buffers of scalars that the engine keeps for all users of a number, by id.
_SHARED: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def share(array: Array) -> Array:
    """Mark an array that the engine keeps, and hands out: nobody may delete it."""
    _SHARED[id(array._buf)] = array._buf
    return array


def is_shared(array: Array) -> bool:
    """Whether the engine keeps the memory of an array for others."""
    return _SHARED.get(id(array._buf)) is array._buf


def living_arrays() -> list[Array]:
    """All arrays of users that have not been deleted."""
    return [
        x
        for x in gc.get_objects()
        if type(x) is Array and not x._buf.is_deleted() and not is_shared(x)
    ]


def _unpickle(host: np.ndarray[Any, Any], weak_type: bool) -> Array:
    # What makes arrays imports this module.
    transfer = importlib.import_module("tracebridge.core.runtime.arrays.transfer")
    return transfer.put_numpy(host, weak_type=weak_type)


def _shown(array: Array) -> str:
    """What repr gives."""
    if array._buf.is_deleted():
        return f"<deleted Array {array.aval.str_short()}>"
    if is_extended(array.aval.dtype):
        return f"Array({array.shape}, dtype={array.dtype}) overlaying:\n{as_stored(array)}"
    weak = ", weak_type=True" if array.aval.weak_type else ""
    prefix = "Array("
    if not is_readable(array._sig.sharding):
        return f"{prefix}shape={array.shape}, dtype={array.dtype.name}{weak}, in several processes)"
    host = array._to_numpy()
    if host.size == 0:
        text = f"[], shape={host.shape}"
    else:
        text = np.array2string(host, separator=", ", prefix=prefix)
    return f"{prefix}{text}, dtype={host.dtype.name}{weak})"


def _reduced(array: Array) -> tuple[Any, ...]:
    """What pickling keeps of an array."""
    if is_extended(array.aval.dtype):
        return _unpickle_extended, (np.asarray(as_stored(array)), array.aval.dtype)
    return _unpickle, (np.asarray(array._to_numpy()), array.aval.weak_type)


def as_stored(array: Array) -> Array:
    """An array of an extended dtype as the array that stores it: the same memory."""
    sig = array._sig
    kept = signature(stored(sig.aval), sig.sharding, sig.committed, sig.borrowed)
    return new_array(array._buf, kept)


def _unpickle_extended(host: np.ndarray[Any, Any], dtype: Any) -> Array:
    array = _unpickle(host, weak_type=False)
    aval = ShapedArray(host.shape[: host.ndim - len(dtype.element_shape)], dtype)
    return new_array(array._buf, signature(aval, array._sig.sharding, array._sig.committed))


def no_numpy_elements(aval: ShapedArray) -> ArgumentTypeError:
    """The error of a read on the host: NumPy has no such elements."""
    return ArgumentTypeError(
        got=f"an array {aval.str_short()}, whose elements NumPy does not have",
        expected="an array of numbers",
        hint="take its words first: tracebridge.random.key_data(keys)",
    )


register_value_type(Array, identity)


_ONE_NUMBER = "Only scalar arrays can be converted to Python scalars"
_ONE_INTEGER = "Only integer scalar arrays can be converted to a scalar index"


def _no_number(array: Array, call: str, rule: str = _ONE_NUMBER) -> ArgumentTypeError:
    """The error of a conversion to a Python number."""
    return ArgumentTypeError(
        f"{rule}: {call}",
        got=f"an array {array.aval.str_short()}",
        hint="take an element first: x[0], x.item(0)",
    )


def _rows(array: Array) -> Iterator[Any]:
    """The parts of an array along its first axis."""
    if array.ndim == 0:
        msg = f"iteration over {array.aval.str_short()}, an array without axes"
        raise ArgumentTypeError(msg)
    whole = with_whole_rows(array)
    if state() is None and type(whole._sig.sharding) is SingleDeviceSharding:
        return NAMESPACE.rows(whole)
    return (whole[i] for i in range(array.shape[0]))
