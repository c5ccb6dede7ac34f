"""Callbacks in programs that XLA splits over several devices, and with arrays over several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.transform_errors import EffectError
from tracebridge.experimental import io_callback
from tracebridge.sharding import NamedSharding
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 4", reason="needs 4 devices (TRACEBRIDGE_NUM_CPU_DEVICES=4)"
)
P = tb.P
X = np.arange(8, dtype="f4").reshape(4, 2)
OUT = tb.ShapeDtypeStruct(X.shape, X.dtype)


def spread(n: int = 4) -> Any:
    return tb.device_put(X, NamedSharding(tb.make_mesh((n,), ("x",)), P("x")))


def noted(seen: list[Any]) -> Any:
    """A function that notes the shapes it is called with."""
    return lambda x: (seen.append(x.shape), np.sin(x))[1]


@pytest.mark.parametrize("call", [
    lambda f, x: (tb.debug.callback(lambda x: f(x), x), tb.numpy.sin(x))[1],
    lambda f, x: tb.pure_callback(f, OUT, x),
    lambda f, x: io_callback(f, OUT, x),
])  # fmt: skip
@pytest.mark.parametrize("devices", [1, 4])
def test_the_function_is_called_once_with_the_whole_array(call: Any, devices: int) -> None:
    """By the first device, also inside a loop, and in operations outside of programs."""
    seen: list[Any] = []
    f = noted(seen)
    x = spread(devices)

    assert_allclose(tb.jit(lambda x: call(f, x))(x), np.sin(X), rtol=1e-6)
    tb.effects_barrier()
    assert [(4, 2)] == seen
    twice = tb.jit(lambda x: tb.lax.scan(lambda c, _: (call(f, c), None), x, None, length=2)[0])
    assert_allclose(twice(x), np.sin(np.sin(X)), rtol=1e-6)
    tb.effects_barrier()
    assert [(4, 2)] * 3 == seen
    assert_allclose(call(f, x), np.sin(X), rtol=1e-6)
    tb.effects_barrier()
    assert [(4, 2)] * 4 == seen


def test_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """debug.print prints one line."""
    tb.jit(lambda x: tb.debug.print("sum {}", x.sum()))(spread())
    tb.effects_barrier()

    assert "sum 28.0\n" == capsys.readouterr().out


def test_ordered_effects_need_one_device() -> None:
    """A mesh of one device will do."""
    seen: list[Any] = []
    f = tb.jit(lambda x: io_callback(noted(seen), OUT, x, ordered=True))

    for _ in range(2):
        assert_allclose(f(spread(1)), np.sin(X), rtol=1e-6)
    assert [(4, 2)] * 2 == seen
    with pytest.raises(EffectError, match="OrderedIOEffect does not work in programs that XLA"):
        f(spread())


def test_failures_are_raised() -> None:
    """As in programs for one device."""

    def fail(x: Any) -> Any:
        raise ValueError("no luck")

    with pytest.raises(CallbackError, match="no luck"):
        tb.block_until_ready(tb.jit(lambda x: tb.pure_callback(fail, OUT, x))(spread()))


def test_failures_do_not_leave_other_devices_waiting() -> None:
    """Elements of pmap that wait for one that failed get zeros from it."""

    def f(x: Any) -> Any:
        return tb.lax.psum(
            tb.pure_callback(fail_at_two, tb.ShapeDtypeStruct((2,), "float32"), x), "i"
        )

    def fail_at_two(x: Any) -> Any:
        if x[0] == 2:
            raise ValueError("no luck")
        return x

    with pytest.raises(CallbackError, match="no luck"):
        tb.block_until_ready(tb.pmap(f, axis_name="i")(X))
    assert_allclose(tb.pmap(f, axis_name="i")(X + 3), np.stack([(X + 3).sum(0)] * 4))
