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
    return tb.device_put(
        X, NamedSharding(tb.make_mesh((n,), ("x",), tb.sharding.AxisType.Auto), P("x"))
    )


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


def log(seen: list[Any], tag: str, x: Any) -> None:
    """Note the sum of ``x``, after the notes before."""
    io_callback(lambda v: seen.append((tag, float(v.sum()))), None, x, ordered=True)


@pytest.mark.parametrize("devices", [1, 4])
def test_ordered_callbacks_keep_their_order(devices: int) -> None:
    """Through loops and branches, and between programs for one and for several devices."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        log(seen, "first", x)
        x, _ = tb.lax.scan(lambda c, _: (log(seen, "scan", c), (c * 2, None))[1], x, None, length=2)
        x = tb.lax.cond(x.sum() > 0, lambda x: (log(seen, "cond", x), x)[1], lambda x: x, x)
        x = tb.lax.while_loop(
            lambda x: x.sum() < 300, lambda x: (log(seen, "while", x), x * 2)[1], x
        )
        log(seen, "last", x)
        return x

    many = tb.jit(f)
    one = tb.jit(lambda x: (log(seen, "one", x), x + 1)[1])
    for _ in range(3):
        one(1.0)
        assert_allclose(many(spread(devices)), 16 * X)
        one(2.0)
    tb.effects_barrier()

    call = [("one", 1.0), ("first", 28.0), ("scan", 28.0), ("scan", 56.0), ("cond", 112.0)]
    call += [("while", 112.0), ("while", 224.0), ("last", 448.0), ("one", 2.0)]
    assert 3 * call == seen


def test_ordered_results_over_a_mesh() -> None:
    """Results of ordered callbacks are values of the program."""
    seen: list[Any] = []
    f = tb.jit(lambda x: io_callback(noted(seen), OUT, x, ordered=True) * 2)

    for n in (1, 2, 4):
        assert_allclose(f(spread(n)), 2 * np.sin(X), rtol=1e-6)
        assert_allclose(f.lower(spread(n)).compile()(spread(n)), 2 * np.sin(X), rtol=1e-6)
    assert [(4, 2)] * 6 == seen


@pytest.mark.parametrize("n", [1, 4])
def test_ordered_callbacks_in_pmap(n: int) -> None:
    """Each element has an order of its own; programs before and after keep theirs."""
    seen: list[Any] = []

    def f(x: Any) -> Any:
        log(seen, "a", x)
        log(seen, "b", x)
        return 2 * x

    one = tb.jit(lambda: log(seen, "one", tb.numpy.ones(1)))
    mapped = tb.pmap(f)
    for _ in range(2):
        one()
        assert_allclose(mapped(X[:n]), 2 * X[:n])
        call, seen[:] = list(seen), []
        assert ("one", 1.0) == call[0]
        sums = [float(row.sum()) for row in X[:n]]
        for s in sums:
            assert [("a", s), ("b", s)] == [pair for pair in call[1:] if pair[1] == s]
        assert 1 + 2 * n == len(call)


def test_ordered_prints_need_one_device(capsys: pytest.CaptureFixture[str]) -> None:
    """One order for all devices is what nobody can give; a map over one element has it."""

    def f(x: Any) -> Any:
        tb.debug.print("{}", x, ordered=True)
        return x

    with pytest.raises(EffectError, match="OrderedDebugEffect does not work in programs that XLA"):
        tb.jit(f)(spread())
    with pytest.raises(EffectError, match=r"pmap\(f\): OrderedDebugEffect does not work in"):
        tb.pmap(f)(X)
    with pytest.raises(EffectError, match="OrderedDebugEffect does not work"):
        tb.lax.scan(lambda c, _: (f(c), None), spread(), None, length=2)
    tb.pmap(f)(X[:1])
    tb.effects_barrier()
    assert "[0. 1.]\n" == capsys.readouterr().out


def test_ordered_failures_are_raised_and_forgotten() -> None:
    """The next calls run again."""
    broken = [True]

    def fail(x: Any) -> None:
        if broken[0]:
            raise ValueError("no luck")

    def f(x: Any) -> Any:
        io_callback(fail, None, x, ordered=True)
        return 2 * x

    many, mapped = tb.jit(f), tb.pmap(f)
    for call, x in ((many, spread()), (mapped, X)):
        broken[0] = True
        with pytest.raises(CallbackError, match="no luck"):
            call(x)
        broken[0] = False
        assert_allclose(call(x), 2 * X)


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
