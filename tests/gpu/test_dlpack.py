"""Exchange of memory of a GPU with CuPy, by DLPack alone."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy")


def test_both_ways() -> None:
    """The same memory."""
    x = cupy.arange(12, dtype="float32").reshape(3, 4)
    a = tnp.from_dlpack(x)
    assert a.unsafe_buffer_pointer() == x.data.ptr
    np.testing.assert_array_equal(np.asarray(a), x.get())
    y = tb.jit(lambda x: x * 2)(a)
    back = cupy.from_dlpack(y)
    assert back.data.ptr == y.unsafe_buffer_pointer()
    np.testing.assert_array_equal(back.get(), 2 * x.get())


def test_a_stream_of_its_own() -> None:
    """Kernels of another stream have written before we read."""
    with cupy.cuda.Stream(non_blocking=True):
        x = cupy.ones((2048, 2048), dtype="float32")
        for _ in range(50):
            x = x @ x / 2048
        a = tnp.from_dlpack(x)
        out = tb.jit(lambda x: x.sum())(a)
    np.testing.assert_allclose(float(out), float(x.sum()), rtol=1e-4)


def test_numpy_gets_a_copy_only_when_asked() -> None:
    """NumPy cannot read memory of a GPU."""
    a = tnp.ones(3)
    assert np.asarray(a).sum() == 3
    with pytest.raises((BufferError, RuntimeError, ValueError, tb.errors.TracebridgeError)):
        np.from_dlpack(a)
