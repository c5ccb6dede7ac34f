"""DLPack: any producer in, any consumer out, with NumPy as the other side."""

from __future__ import annotations

import ctypes
import enum
import gc
import weakref

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core._jaxlib import dlpack as door
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.dlpack import from_dlpack, to_dlpack
from tracebridge.errors import (
    ArgumentTypeError,
    DeletedArrayError,
    ExchangeError,
    LayoutError,
    OwnershipError,
    UnsupportedDtypeError,
    UnsupportedExchangeDtypeError,
)

PLAIN = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
SHAPES = [(), (0,), (0, 3), (5,), (1, 1), (2, 3, 4)]


class Producer:
    """A tensor of some library that is neither NumPy nor ours."""

    def __init__(self, host, device=(1, 0)):
        self.host = host
        self.device = device

    def __dlpack__(self, **options):
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


class OldProducer(Producer):
    """One that knows the first version of the protocol only."""

    def __dlpack__(self, stream=None):
        return self.host.__dlpack__(stream=stream)


class CodedProducer(Producer):
    """Says something else of its tensor than NumPy does."""

    def __init__(self, host, device=(1, 0), *, data=None, dtype=None, major=1):
        super().__init__(host, device)
        self.data = data
        self.dtype = dtype
        self.major = major

    def __dlpack__(self, **options):
        given = {**options, "dl_device": None}
        if self.major > 1:
            given["max_version"] = (1, 0)
        capsule = self.host.__dlpack__(**given)
        places = door.managed(capsule)
        assert places is not None
        if self.data is not None:
            ctypes.c_void_p.from_address(places.tensor).value = self.data
        ctypes.c_int32.from_address(places.tensor + 8).value = self.device[0]
        if self.dtype is not None:
            ctypes.c_uint8.from_address(places.tensor + 20).value = self.dtype
        if self.major > 1:
            ctypes.c_uint32.from_address(places.tensor - 32).value = self.major
        return capsule


CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12, "float8_e8m0fnu": 14}


class BitsProducer(CodedProducer):
    """A tensor of a dtype that NumPy cannot export."""

    def __init__(self, host, versioned):
        super().__init__(host.view(f"u{host.itemsize}"), dtype=CODES[str(host.dtype)])
        self.versioned = versioned

    def __dlpack__(self, **options):
        return super().__dlpack__(**{**options, "max_version": (1, 0) if self.versioned else None})


def aligned(shape, dtype="float32", offset=0):
    """An ndarray whose memory begins ``offset`` bytes after a multiple of 64."""
    dtype = np.dtype(dtype)
    n = int(np.prod(shape)) * dtype.itemsize
    raw = np.zeros(n + 192, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    host = raw[start : start + n].view(dtype).reshape(shape)
    host[...] = np.arange(host.size).reshape(shape) % 2
    return host


def address(array: Array) -> int:
    return array.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("producer", [lambda x: x, Producer, OldProducer])
def test_aligned_memory_is_shared(dtype, shape, producer):
    """In and out again without a copy, 64-bit dtypes kept."""
    host = aligned(shape, dtype)

    array = from_dlpack(producer(host))
    back = np.from_dlpack(array)

    assert (host.shape, host.dtype) == (array.shape, array.dtype)
    assert (host.shape, host.dtype) == (back.shape, back.dtype)
    assert np.array_equal(host, back)
    if host.size:
        assert host.ctypes.data == address(array)
        assert array._sig.borrowed
    if host.size and host.ndim:
        assert host.ctypes.data == back.ctypes.data


@pytest.mark.parametrize("offset", [1, 4, 16, 32])
def test_misaligned_memory_is_copied(offset):
    """XLA needs 64 bytes; the copy belongs to the Array."""
    host = aligned((4, 4), "uint8", offset)

    array = from_dlpack(host)
    expected = host.copy()
    host[...] = 9

    assert np.array_equal(expected, array)
    assert not array._sig.borrowed
    with pytest.raises(LayoutError, match="not aligned to 64 bytes"):
        from_dlpack(host, copy=False)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[:, ::2],
        lambda x: x[::-1],
        lambda x: x[:, ::-1],
        lambda x: np.broadcast_to(x[:1], (4, 6)),
        lambda x: x.astype(x.dtype.newbyteorder(">")),
        lambda x: np.asfortranarray(x),
    ],
    ids=[
        "transposed",
        "strided",
        "rows reversed",
        "reversed",
        "broadcast",
        "big-endian",
        "fortran",
    ],
)
def test_other_layouts_are_copied(view):
    """Never wrong values, whatever the strides and the byte order."""
    host = view(aligned((4, 6), "int32"))

    assert np.array_equal(host, from_dlpack(host))
    with pytest.raises(LayoutError, match="copy=False"):
        from_dlpack(host, copy=False)


def test_bool_bytes_are_normalised():
    """A bool that is not 0 or 1 in memory is true, and is not handed to XLA as it is."""
    host = aligned((4,), "uint8")
    host[...] = [0, 1, 2, 255]

    array = from_dlpack(host.view(np.bool_))

    assert [False, True, True, True] == array.tolist()
    assert 3 == int(tnp.sum(array.astype("int32")))
    with pytest.raises(LayoutError, match="neither 0 nor 1"):
        from_dlpack(host.view(np.bool_), copy=False)


def test_copy_true_copies():
    """Both ways: a later write is not seen on the other side."""
    host = aligned((8,))

    array = from_dlpack(host, copy=True)
    out = np.from_dlpack(array, copy=True)
    host[...] = 7

    assert 7 not in array.tolist()
    assert host.ctypes.data != address(array)
    assert out.ctypes.data != address(array)


def test_writes_through_shared_memory_are_seen():
    """What sharing means: docs/explanation/aliasing.md says so."""
    host = aligned((8,))
    array = from_dlpack(host)

    host[...] = 7

    assert [7.0] * 8 == array.tolist()


def test_views_for_numpy_are_read_only():
    """NumPy cannot write into an Array."""
    view = np.from_dlpack(put_numpy(np.arange(3.0)))

    with pytest.raises(ValueError, match="read-only"):
        view[0] = 5.0


def test_ml_dtypes_through_the_adapter():
    """bfloat16 and float8 have no NumPy capsules; ndarrays of them are taken directly."""
    import ml_dtypes

    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        host = aligned((4,), "uint8" if np.dtype(dtype).itemsize == 1 else "uint16").view(dtype)

        assert np.dtype(dtype) == from_dlpack(host).dtype
        assert host.ctypes.data == address(from_dlpack(host))


def test_an_array_is_given_back():
    """from_dlpack of an Array is that Array, or a copy of it."""
    array = put_numpy(np.arange(3.0))

    for take in from_dlpack, tnp.from_dlpack:
        assert take(array) is array
        assert address(take(array, copy=True)) != address(array)


@pytest.mark.parametrize(
    "host", [np.array(["a"]), np.array([object()]), np.array(["2020"], "M8[D]")]
)
def test_dtypes_that_no_device_has(host):
    """Strings, objects and dates."""
    with pytest.raises(UnsupportedDtypeError):
        from_dlpack(host)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "float4_e2m1fn"])
def test_narrow_dtypes_cannot_leave(dtype):
    """DLPack, as jaxlib speaks it, has no elements below 8 bits."""
    import ml_dtypes

    array = put_numpy(np.zeros(4, getattr(ml_dtypes, dtype)))

    with pytest.raises(UnsupportedExchangeDtypeError, match=dtype):
        to_dlpack(array)


def test_what_cannot_leave_is_a_buffer_error():
    """That is the error of the protocol: consumers ask for it."""
    with pytest.raises(BufferError, match="key_data"):
        tb.random.key(0).__dlpack__()
    with pytest.raises(BufferError, match="not at"):
        tnp.ones(2).__dlpack__(dl_device=(2, 0))


def test_objects_that_are_no_tensors():
    """The message says what is expected."""
    with pytest.raises(ExchangeError, match="got an object of type str"):
        from_dlpack("not a tensor")
    with pytest.raises(ExchangeError, match="type list"):
        from_dlpack([1, 2])


def test_devices_that_do_not_exist_here():
    """A tensor on a kind of device that the engine has not, and what is no device."""
    with pytest.raises(TypeError, match="expected a device or a sharding"):
        from_dlpack(np.ones(2), device="cpu")
    with pytest.raises(ExchangeError, match="DLPack device type 7"):
        from_dlpack(Producer(np.ones(2), device=(7, 0)))


def test_deleted_arrays():
    """They raise, they do not give garbage."""
    array = put_numpy(np.arange(3.0))
    array.delete()

    for use in (np.asarray, np.from_dlpack, to_dlpack, lambda a: a.__dlpack__()):
        with pytest.raises(DeletedArrayError):
            use(array)


def test_scalars_that_the_engine_shares_are_copied():
    """The buffer of a Python number serves all arrays made of it: nobody may write to it."""
    number = to_array(as_value(1.5))
    assert number._sig.borrowed

    assert np.from_dlpack(number).ctypes.data != address(number)
    with pytest.raises(OwnershipError, match="used by other arrays"):
        number.__dlpack__(copy=False)
    with pytest.raises(OwnershipError, match="used by other arrays"):
        to_dlpack(1.5, copy=False)


def test_producer_protocol():
    """Stream, device and version are checked as the standard says."""
    array = put_numpy(np.arange(3.0))

    assert (1, 0) == array.__dlpack_device__()
    array.__dlpack__(stream=-1, max_version=(1, 0), dl_device=(1, 0), copy=False)
    with pytest.raises(ExchangeError, match="stream=1"):
        array.__dlpack__(stream=1)
    with pytest.raises(LayoutError, match="not at"):
        array.__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_version", 1, "two integers"),
        ("max_version", (1,), "two integers"),
        ("max_version", (1, "a"), "two integers"),
        ("max_version", [1, 0], "two integers"),
        ("dl_device", 1, "two integers"),
        ("dl_device", "cpu", "two integers"),
        ("dl_device", (1, 0, 0), "two integers"),
        ("copy", 2, "True, False or None"),
        ("copy", "yes", "True, False or None"),
    ],
)
def test_producer_refuses(name: str, value: object, expected: str):
    """Arguments of other types than those of the standard are named."""
    with pytest.raises(ArgumentTypeError, match=rf"(?s)__dlpack__: {name} is .*{expected}"):
        put_numpy(np.arange(3.0)).__dlpack__(**{name: value})


def test_producer_takes_integers_of_any_kind():
    """Of NumPy, and members of enumerations."""
    array = put_numpy(np.arange(3.0))
    kind = enum.IntEnum("kind", {"CPU": 1})

    array.__dlpack__(max_version=(np.int64(1), True), dl_device=(kind.CPU, 0), copy=np.bool_(True))


def test_arrays_over_a_mesh_of_one_device():
    """They are arrays of that device: their memory goes out as it is."""
    mesh = tb.make_mesh((1,), ("x",), devices=tb.devices()[-1:])
    array = tb.device_put(tnp.arange(64.0), tb.NamedSharding(mesh, tb.P("x")))

    assert tb.devices()[-1] == array.device
    assert (1, 0) == array.__dlpack_device__()
    assert address(array) == np.from_dlpack(array).ctypes.data
    assert address(array) != np.from_dlpack(array, copy=True).ctypes.data
    assert address(array) == address(from_dlpack(array))
    first = tb.make_mesh((1,), ("x",), devices=tb.devices()[:1])
    number = tb.device_put(to_array(as_value(1.5)), tb.NamedSharding(first, tb.P()))
    assert number._sig.borrowed
    assert address(number) != np.from_dlpack(number).ctypes.data


def test_lifetimes():
    """Either side may go first."""
    array = from_dlpack(aligned((1000,)))
    view = np.from_dlpack(from_dlpack(aligned((1000,))))

    assert 500.0 == float(np.asarray(array).sum())
    assert 500.0 == float(view.sum())


def test_placement():
    """A tensor stays where it is; a named device commits it."""
    import tracebridge as tb

    array = from_dlpack(aligned((4,)))
    placed = from_dlpack(aligned((4,)), device=tb.devices()[0])

    assert array.device == tb.devices()[0]
    assert not array.committed
    assert placed.committed


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
@pytest.mark.parametrize("versioned", [False, True])
def test_dtypes_that_numpy_lacks(dtype: str, versioned: bool):
    """They come in from any producer, with any strides and address, as other dtypes do."""
    whole = aligned((4, 6), dtype)
    whole[...] = np.arange(1, 25).reshape(4, 6)
    strided = whole.T, whole[::2, 1:5:3], whole[::-1]
    for view in (whole, *strided, whole[1:], whole[0, 0, ...], whole[:0]):
        array = from_dlpack(BitsProducer(view, versioned))

        assert (str(array.dtype), array.shape) == (dtype, view.shape)
        np.testing.assert_array_equal(np.asarray(array), view)
    assert address(from_dlpack(BitsProducer(whole, versioned))) == whole.ctypes.data
    with pytest.raises(LayoutError, match="copy=False forbids a copy"):
        from_dlpack(BitsProducer(whole.T, versioned), copy=False)


def test_memory_of_the_host_that_a_gpu_reads():
    """Pinned memory is memory of the host."""
    host = aligned((300,))
    for kind in (3, 11):
        assert address(from_dlpack(CodedProducer(host, device=(kind, 0)))) == host.ctypes.data


def test_producers_that_answer_nonsense():
    """One error, whatever is wrong with the answer; a refusal of the producer stays as it is."""
    host = aligned((300,))
    with pytest.raises(ExchangeError, match="__dlpack_device__ of a Producer gave 5"):
        from_dlpack(Producer(host, device=5))
    with pytest.raises(ExchangeError, match="gave a tensor without memory"):
        from_dlpack(CodedProducer(host, data=0))
    with pytest.raises(ExchangeError, match="no capsule that can be used"):
        from_dlpack(CodedProducer(host, major=2))

    class Refuses(Producer):
        def __dlpack__(self, **options):
            raise BufferError("not today")

    with pytest.raises(BufferError, match=r"^not today$"):
        from_dlpack(Refuses(host))


def test_borrowed_memory_comes_back():
    """Who lends memory to an Array that is gone has it back when Python collects garbage."""
    host = aligned((5000,))
    lent = weakref.ref(host)
    array = from_dlpack(Producer(host))
    assert address(array) == host.ctypes.data

    del array, host
    gc.collect()

    assert lent() is None


def test_copies_may_be_written_to():
    """A consumer that asks for a copy owns it."""
    array = tnp.arange(6.0).reshape(2, 3)

    view = np.from_dlpack(array, copy=True)
    view[0] = 7.0

    assert [0.0, 1.0, 2.0] == array[0].tolist()
    assert [7.0, 7.0, 7.0, 3.0, 4.0, 5.0] == view.ravel().tolist()
    del array
    gc.collect()
    assert 7.0 == view[0, 0]
