"""Buffers of jaxlib: what is copied, what is borrowed, and capsules."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.core._jaxlib.programs import Aval, aligned, numpy, put
from tracebridge.core._jaxlib import dlpack, xla


def test_zero_copy_aliases_aligned_memory(client: xla.Client) -> None:
    """64-byte aligned memory is borrowed: same address, and writes show."""
    x = aligned(16)
    buf = put(client, x, xla.HostBufferSemantics.ZERO_COPY)

    assert buf.unsafe_buffer_pointer() == x.ctypes.data
    x[0] = 42
    assert numpy(buf)[0] == 42


def test_borrowed_memory_is_kept_alive_and_released(client: xla.Client) -> None:
    """The buffer holds the array that it borrows from; `collect_garbage` lets it go."""

    class Owner(np.ndarray):
        pass

    x = aligned(1024).view(Owner)
    ref = weakref.ref(x)
    buf = put(client, x, xla.HostBufferSemantics.ZERO_COPY)
    del x
    gc.collect()
    held = ref() is not None
    assert numpy(buf)[-1] == 1023

    del buf
    for _ in range(2):  # jaxlib 0.11 frees the NumPy view in the first round, its base in the next
        xla.collect_garbage()
    assert held
    assert ref() is None


def test_unaligned_memory_is_copied(client: xla.Client) -> None:
    """Zero-copy is a permission: 16 bytes off, jaxlib copies."""
    x = aligned(16, offset=16)
    buf = put(client, x, xla.HostBufferSemantics.ZERO_COPY)

    x[0] = 42
    assert numpy(buf)[0] == 0


def test_default_semantics_copy(client: xla.Client) -> None:
    """Later writes to the source do not show."""
    x = aligned(16)
    buf = put(client, x)

    x[0] = 42
    assert numpy(buf)[0] == 0


@pytest.mark.parametrize(
    "dtype",
    [
        np.float64,
        np.int64,
        np.complex128,
        np.bool_,
        np.uint8,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.int4,
    ],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_dtypes_survive_the_round_trip(client: xla.Client, dtype: Any) -> None:
    """64-bit and narrow types come back as they went, without a global 64-bit switch."""
    x = np.array([0, 1, 1, 0]).astype(dtype)
    back = numpy(put(client, x))

    assert x.dtype == back.dtype
    np.testing.assert_array_equal(x.astype(np.complex128), back.astype(np.complex128))


def test_numpy_view_is_read_only_and_aliases(client: xla.Client) -> None:
    """`buffer_to_numpy` copies nothing on the CPU and outlives the buffer's deletion."""
    buf = put(client, np.arange(16, dtype=np.float32))
    view, copied = xla.buffer_to_numpy(buf)

    assert not copied
    assert not view.flags.writeable
    assert view.ctypes.data == buf.unsafe_buffer_pointer()
    buf.delete()
    np.testing.assert_array_equal(np.arange(16, dtype=np.float32), view)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_views_of_the_protocol_are_those_of_jaxlib(
    client: xla.Client, dtype: str, shape: tuple[int, ...]
) -> None:
    """Read-only, without a copy, and they outlive the buffer's deletion."""
    buf = put(client, (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype))
    view, (other, _) = xla.view_on_cpu(buf), xla.buffer_to_numpy(buf)

    assert (other.dtype, other.shape) == (view.dtype, view.shape)
    assert view.ctypes.data == buf.unsafe_buffer_pointer()
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True
    buf.delete()
    np.testing.assert_array_equal(other, view)
    with pytest.raises(RuntimeError, match="deleted"):
        xla.view_on_cpu(buf)


def test_deleted_buffer_raises(client: xla.Client) -> None:
    """Reading a deleted buffer is an error, not an empty array."""
    buf = put(client, np.ones(3, np.float32))
    buf.delete()

    assert buf.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        xla.buffer_to_numpy(buf)


def test_rewrap_shares_the_memory(client: xla.Client) -> None:
    """A second object over the same buffer, with its own aval; deleting one leaves the other."""
    buf = put(client, np.arange(4, dtype=np.float32))
    aval = Aval((4,))
    other = xla.rewrap(buf, aval, buf._sharding)

    assert other.aval is aval
    assert other.unsafe_buffer_pointer() == buf.unsafe_buffer_pointer()
    assert other is not buf


def test_copy_to_another_device(client: xla.Client) -> None:
    """Device to device, with the values and on the right device."""
    buf = put(client, np.arange(4, dtype=np.float32))
    second = client.devices()[1]
    (moved,) = xla.copy_to_devices(
        [buf], [xla.DeviceList((second,))], [xla.single_device_sharding(second)]
    )

    assert list(moved._sharding._devices) == [second]
    np.testing.assert_array_equal(numpy(buf), numpy(moved))


def test_batched_block_until_ready(client: xla.Client) -> None:
    """Waits for several buffers in one call."""
    bufs = [put(client, np.ones(3, np.float32)) for _ in range(3)]
    xla.batched_block_until_ready(bufs)

    assert all(buf.is_ready() for buf in bufs)


def test_capsule_round_trip_shares_memory(client: xla.Client) -> None:
    """Out and in again: same address; the import has no aval, re-wrapping gives it one."""
    device = client.devices()[0]
    buf = put(client, np.arange(16, dtype=np.float32))
    exported = xla.rewrap(buf, buf.aval, buf._sharding)
    back = dlpack.from_capsule(dlpack.to_capsule(exported), device)
    wrapped = xla.rewrap(back, Aval((16,)), xla.single_device_sharding(device))

    assert wrapped.unsafe_buffer_pointer() == buf.unsafe_buffer_pointer()
    np.testing.assert_array_equal(numpy(buf), numpy(wrapped))


def test_capsule_version_follows_support(client: xla.Client) -> None:
    """A consumer that takes versions gets one where jaxlib can; otherwise the plain capsule."""
    buf = put(client, np.ones(16, np.float32))
    plain = dlpack.to_capsule(xla.rewrap(buf, buf.aval, buf._sharding))
    asked = dlpack.to_capsule(xla.rewrap(buf, buf.aval, buf._sharding), max_version=(1, 0))

    assert '"dltensor"' in repr(plain)
    wanted = '"dltensor_versioned"' if dlpack.SUPPORTS_VERSIONED else '"dltensor"'
    assert wanted in repr(asked)
    assert (dlpack.DLPACK_VERSION >= (1, 0)) == dlpack.SUPPORTS_VERSIONED


def test_importing_a_capsule_loads_no_other_library(
    tmp_path: Path, run_alone: Callable[[str], str]
) -> None:
    """It is neither loaded where it is installed, nor hidden from who wants it."""
    (tmp_path / "jax.py").write_text("LOADED = True\n")
    out = run_alone(f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import tracebridge.numpy as tnp
from tracebridge.core._jaxlib import dlpack
x = tnp.ones(3)
dlpack.from_capsule(dlpack.to_capsule(x._buf), x.device)
print("jax" in sys.modules)
import jax
print(jax.LOADED)
""")
    assert out.split() == ["False", "True"]
