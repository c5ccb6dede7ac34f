"""The engine on a GPU: placement, transfers, memory, transformations, callbacks, exports."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu() -> Any:
    """The first GPU."""
    return tb.devices("gpu")[0]


def test_it_is_the_default() -> None:
    """Where a plugin is installed, arrays go to its device."""
    assert tb.default_backend() == "gpu"
    assert tnp.ones(3).device.platform == "gpu"
    assert tb.devices("cuda") == tb.devices("gpu") == tb.devices()


def test_transfers(gpu: Any) -> None:
    """Between devices and the host, of every dtype."""
    cpu = tb.devices("cpu")[0]
    with tb.enable_x64(True):
        for name in ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16",
                     "float32", "float64", "complex64", "complex128", "float8_e4m3fn"):  # fmt: skip
            host = (np.arange(6) % 3).reshape(2, 3).astype(tnp.dtype(name))
            there = tb.device_put(host, gpu)
            back = tb.device_put(there, cpu)
            assert there.devices() == {gpu}
            assert back.devices() == {cpu}
            assert np.asarray(there).tobytes() == host.tobytes() == np.asarray(back).tobytes()


def test_a_copy_of_one_is_one_of_its_own(gpu: Any) -> None:
    """Copies on the device do not share memory."""
    x = tb.device_put(np.arange(4.0), gpu)
    y = x.copy()
    assert x.unsafe_buffer_pointer() != y.unsafe_buffer_pointer()


def test_empty_and_scalar(gpu: Any) -> None:
    """Size 0 and rank 0."""
    assert tnp.sum(tb.device_put(np.zeros((0, 3)), gpu)) == 0
    assert tb.jit(tnp.linalg.inv)(tnp.zeros((0, 3, 3))).shape == (0, 3, 3)
    assert float(tnp.asarray(2.0) + 1) == 3


def test_transformations_agree_with_numpy() -> None:
    """A small network: values, gradients, vmap, second order, scan."""
    random = np.random.default_rng(0)
    w, x = random.normal(size=(5, 5)).astype("f4"), random.normal(size=(7, 5)).astype("f4")

    def loss(w: Any, x: Any) -> Any:
        return tnp.sum(tnp.tanh(x @ w) ** 2)

    results = {}
    for platform in ("cpu", "gpu"):
        with tb.default_device(platform), tb.default_matmul_precision("highest"):
            results[platform] = [
                tb.jit(loss)(w, x),
                tb.jit(tb.grad(loss))(w, x),
                tb.jit(tb.vmap(tb.grad(loss), (None, 0)))(w, x),
                tb.hessian(loss)(w, x),
                tb.jit(lambda w, x: lax.scan(lambda c, t: (tnp.tanh(c @ w + t), c), x[0], x))(w, x)[
                    1
                ],
            ]
    for a, b in zip(results["cpu"], results["gpu"], strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=2e-4, atol=2e-4)


def test_products_are_as_precise_as_float32() -> None:
    """TF32 has ten bits: it must be asked for."""
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 256, 256)).astype("f4")
    exact = a.astype("f8") @ b.astype("f8")

    error = np.abs(np.asarray(tnp.matmul(a, b, precision="highest")) - exact).max()

    assert error < 1e-4


def test_donated_memory_is_used_again(gpu: Any) -> None:
    """A donated array is gone, and its memory holds the result."""
    step = tb.jit(lambda x: x + 1, donate_argnums=0)
    x = tb.device_put(np.zeros(1 << 20, "f4"), gpu)
    pointer = x.unsafe_buffer_pointer()
    y = step(x)
    assert x.is_deleted()
    assert y.unsafe_buffer_pointer() == pointer


def test_memory_is_freed(gpu: Any) -> None:
    """What nobody holds is given back at once."""
    x = tb.device_put(np.ones((1 << 24,), "f4"), gpu)
    x.block_until_ready()
    gc.collect()
    before = gpu.memory_stats()["bytes_in_use"]
    for _ in range(5):
        y = tb.jit(lambda x: x * 2)(x)
    y.block_until_ready()
    del y
    gc.collect()
    assert gpu.memory_stats()["bytes_in_use"] <= before + (1 << 20)


def test_too_much_memory_is_an_error_that_says_so(gpu: Any) -> None:
    """Asking for more than there is."""
    with pytest.raises(Exception, match=r"(?i)out of memory|RESOURCE_EXHAUSTED"):
        tb.jit(lambda: tnp.ones((1 << 20, 1 << 20), "f4") * 2)().block_until_ready()


def test_callbacks() -> None:
    """Python functions in programs."""
    seen: list[Any] = []

    @tb.jit
    def f(x: Any) -> Any:
        tb.debug.callback(lambda v: seen.append(np.asarray(v)), x)
        y = tb.pure_callback(lambda v: np.sin(v), tb.ShapeDtypeStruct(x.shape, x.dtype), x)
        return tb.experimental.io_callback(lambda v: v + 1, y, y, ordered=True)

    x = np.linspace(0, 1, 4).astype("f4")
    np.testing.assert_allclose(np.asarray(f(x)), np.sin(x) + 1, rtol=1e-6)
    tb.effects_barrier()
    np.testing.assert_array_equal(seen[0], x)


def test_random_streams_are_those_of_the_cpu() -> None:
    """Threefry is the same everywhere."""
    draws = []
    for platform in ("cpu", "gpu"):
        with tb.default_device(platform):
            key = tb.random.key(3)
            draws.append([
                np.asarray(tb.random.bits(key, (1001,))),
                np.asarray(tb.random.uniform(key, (1001,))),
                np.asarray(tb.random.permutation(key, 1001)),
                np.asarray(tb.random.key_data(tb.random.split(key, 7))),
            ])  # fmt: skip
    for a, b in zip(*draws, strict=True):
        np.testing.assert_array_equal(a, b)


def test_arguments_on_two_devices_are_refused(gpu: Any) -> None:
    """Committed arrays of the CPU and of the GPU do not mix."""
    cpu = tb.devices("cpu")[0]
    with pytest.raises(tb.errors.TracebridgeError, match="device"):
        tb.jit(lambda x, y: x + y)(tb.device_put(1.0, gpu), tb.device_put(np.ones(2), cpu))


def test_an_export_for_both_runs_on_both(gpu: Any) -> None:
    """One program for several platforms."""
    made = tb.export.export(tb.jit(lambda x: tnp.sin(x) @ x), platforms=["cpu", "cuda"])(
        tb.ShapeDtypeStruct((4, 4), np.float32)
    )
    again = tb.export.deserialize(made.serialize())
    x = np.random.default_rng(0).normal(size=(4, 4)).astype("f4")
    for device in (gpu, tb.devices("cpu")[0]):
        out = again.call(tb.device_put(x, device))
        assert out.devices() == {device}
        np.testing.assert_allclose(np.asarray(out), np.sin(x) @ x, rtol=1e-2, atol=1e-2)


def test_the_compilation_cache(tmp_path: Path, run_alone: Any) -> None:
    """A second process reads the program of the first one."""
    program = f"""
import tracebridge as tb, tracebridge.numpy as tnp
tb.config.update("compilation_cache_dir", {str(tmp_path)!r})
tb.config.update("persistent_cache_min_compile_time_secs", 0.0)
x = tb.jit(lambda x: tnp.sin(x) * 2)(tnp.ones(3))
assert x.device.platform in ("cuda", "gpu")
print(float(x.sum()))
"""
    first = run_alone(program)
    files = len(list(tmp_path.iterdir()))
    assert run_alone(program) == first
    assert len(list(tmp_path.iterdir())) == files > 0


def test_costs_are_estimated() -> None:
    """The plugin does not count operations; the CPU's client does."""
    lowered = tb.jit(lambda x: x @ x).lower(tnp.ones((8, 8)))
    assert lowered.cost_analysis()["flops"] == 2 * 8**3


def test_one_device_of_a_mesh() -> None:
    """pmap and shard_map with one device."""
    out = tb.pmap(lambda x: lax.psum(x, "i"), axis_name="i")(tnp.ones((1, 3)))
    np.testing.assert_array_equal(np.asarray(out), np.ones((1, 3)))
