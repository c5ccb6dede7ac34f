"""transfer_guard, no_tracing, no_execution: what they allow, log and refuse."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.config.guard_levels import DIRECTIONS, guard_levels, normal_guard
from tracebridge.core.config.transfer_guards import guards_in_force
from tracebridge.core.runtime.backends.guards import check_transfer, explicit_transfers
from tracebridge.errors import GuardError, OptionValueError

X = np.arange(3, dtype=np.float32)
IMPLICIT: dict[str, Callable[[], Any]] = {
    "compiled call": lambda: tb.jit(lambda x: x + 1)(X),
    "operation": lambda: tnp.sin(X),
    "operator": lambda: tnp.ones(3) + X,
    "conversion": lambda: tnp.asarray(X),
}


@pytest.mark.parametrize("call", IMPLICIT.values(), ids=IMPLICIT)
def test_levels(call: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    """Implicit transfers are logged or refused by every level but allow."""
    call()
    for level in ("allow", "log", "log_explicit"):
        caplog.clear()
        with tb.transfer_guard(level), caplog.at_level(logging.WARNING):
            call()
        found = [m for m in caplog.messages if "implicit host-to-device transfer of f32[3]" in m]
        assert (0 if level == "allow" else 1) == len(found)
    for level in ("disallow", "disallow_explicit"):
        with tb.transfer_guard(level), pytest.raises(GuardError, match="device_put"):
            call()


def test_explicit_transfers(caplog: pytest.LogCaptureFixture) -> None:
    """device_put is refused and logged by the levels that say so."""
    for level in ("allow", "log", "disallow"):
        with tb.transfer_guard(level), caplog.at_level(logging.WARNING):
            tb.device_put(X)
    assert [] == caplog.messages
    with tb.transfer_guard("log_explicit"), caplog.at_level(logging.WARNING):
        tb.device_put(X)
    assert "explicit host-to-device transfer of f32[3]" in caplog.text
    with tb.transfer_guard("disallow_explicit"), pytest.raises(GuardError, match="leave the block"):
        tb.device_put({"a": X})


def test_calls_without_transfers() -> None:
    """Arrays on the device, Python numbers and reads of host memory are no transfers."""
    x, f = tnp.asarray(X), tb.jit(lambda x, k: x * k)
    with tb.transfer_guard("disallow_explicit"):
        assert [0.0, 2.0, 4.0] == f(x, 2.0).tolist()
        assert 1.0 == float((x + 1)[0])
        assert [0.0, 1.0, 2.0] == tb.device_get(x).tolist()


def test_directions_are_set_one_by_one() -> None:
    """Inner blocks change their direction only, and take it back."""
    with tb.transfer_guard("log"):
        with (
            tb.transfer_guard_host_to_device("disallow"),
            tb.transfer_guard_device_to_host("allow"),
        ):
            assert {
                "host_to_device": "disallow",
                "device_to_device": "log",
                "device_to_host": "allow",
            } == guard_levels(tb.config.transfer_guard)
        assert "log" == tb.config.transfer_guard
    with tb.transfer_guard("disallow"), tb.transfer_guard_host_to_device("allow"):
        tnp.sin(X)
        check_transfer("host_to_device", "x", "here")
        with pytest.raises(GuardError, match="implicit device-to-device"):
            check_transfer("device_to_device", "x", "here")
        with explicit_transfers():
            check_transfer("device_to_device", "x", "here")
    both = tb.transfer_guard_device_to_device("disallow"), tb.transfer_guard_device_to_host("log")
    with both[0], both[1], pytest.raises(GuardError, match="device-to-device"):
        check_transfer("device_to_device", "x", "here")
    with both[0], tb.transfer_guard_device_to_host("disallow"), pytest.raises(GuardError):
        check_transfer("device_to_host", "x", "here")
    assert 0 == guards_in_force[0]


def test_global_guard() -> None:
    """The option works for all threads, also for calls that were cached before."""
    f = tb.jit(lambda x: x + 2)
    f(X)
    tb.config.update("transfer_guard", "host_to_device=disallow")
    try:
        for _ in range(2):
            with pytest.raises(GuardError):
                f(X)
        assert [2.0, 3.0, 4.0] == f(tb.device_put(X)).tolist()
    finally:
        tb.config.update("transfer_guard", "allow")
    assert (2.0, 0) == (float(f(X)[0]), guards_in_force[0])


def test_values() -> None:
    """One level, or one for each direction; equal ones have one form."""
    assert "log" == normal_guard(",".join([f"{d}=log" for d in DIRECTIONS]))
    for wrong in ("loud", "host_to_device=loud", "sideways=log", ""):
        with pytest.raises(OptionValueError):
            tb.config.update("transfer_guard", wrong)
    for scope in (tb.transfer_guard, tb.transfer_guard_host_to_device):
        with pytest.raises(OptionValueError, match="'loud'"):
            scope("loud")


TWO_DEVICES = """
import tracebridge as tb
import tracebridge.numpy as tnp

tb.config.update("num_cpu_devices", 2)
first, second = tb.devices("cpu")
x, y = tnp.ones(3), tb.device_put(tnp.ones(3), second)
add = tb.jit(lambda x, y: x + y)
add(x, y)
with tb.transfer_guard_device_to_device("disallow"):
    tb.device_put(x, second)
    for f in (add, tnp.add):
        try:
            f(x, y)
        except tb.errors.GuardError as error:
            assert "implicit device-to-device transfer of f32[3]" in str(error), error
        else:
            raise AssertionError(f)
with tb.transfer_guard_device_to_device("disallow_explicit"):
    try:
        tb.device_put(x, second)
    except tb.errors.GuardError as error:
        assert "explicit device-to-device" in str(error), error
    else:
        raise AssertionError
"""


def test_transfers_between_devices(run_alone: Callable[[str], str]) -> None:
    """Arguments that follow a committed one move implicitly."""
    run_alone(TWO_DEVICES)


def test_no_tracing() -> None:
    """Cached calls work; the message names the function and its place."""

    def f(x: Any) -> Any:
        return x * 3

    g, x = tb.jit(f), tnp.ones(3)
    g(x)
    with tb.no_tracing():
        assert 3.0 == float(g(x)[0])
        with pytest.raises(GuardError, match=r"jit\(f\) \(.*test_guards.py:\d+\) was to be traced"):
            g(tnp.ones(4))
        with pytest.raises(GuardError):
            g.lower(tnp.ones(4))
    assert (4,) == g(tnp.ones(4)).shape


def test_no_execution() -> None:
    """Tracing, lowering and compiling are no executions."""
    x, f = tnp.ones(3), tb.jit(lambda x: x + 4)
    f(x)
    with tb.no_execution():
        compiled = f.lower(x).compile()
        for call in (f, compiled, tnp.sin, lambda x: x + 1, tb.vmap(lambda x: x * x)):
            with pytest.raises(GuardError, match="was to be executed"):
                call(x)
    assert 5.0 == float(compiled(x)[0])


def test_no_execution_everywhere() -> None:
    """As a global option too, also for calls that were cached before."""
    x, f = tnp.ones(3), tb.jit(lambda x: x + 5)
    f(x), tnp.sin(x), x + 1
    tb.config.update("no_execution", True)
    try:
        for call in (f, tnp.sin, lambda x: x + 1):
            for _ in range(2):
                with pytest.raises(GuardError):
                    call(x)
    finally:
        tb.config.update("no_execution", False)
    assert 6.0 == float(f(x)[0])


MADE: dict[str, Callable[[], Any]] = {
    "zeros": lambda: tnp.zeros(3),
    "full": lambda: tnp.full(3, 2.0),
    "arange": lambda: tnp.arange(3),
    "arange of floats": lambda: tnp.arange(0.0, 1.0, 0.25),
    "arange of a dtype": lambda: tnp.arange(3, dtype="uint8"),
    "linspace": lambda: tnp.linspace(0, 1, 5),
    "eye": lambda: tnp.eye(3, 4, 1),
    "tri": lambda: tnp.tri(3),
    "indices": lambda: tnp.indices((2, 3)),
    "diag_indices": lambda: tnp.diag_indices(3),
    "tril_indices": lambda: tnp.tril_indices(3),
    "fromfunction": lambda: tnp.fromfunction(lambda i, j: i + j, (2, 2)),
    "hanning": lambda: tnp.hanning(4),
    "iota": lambda: tb.lax.iota("int32", 4),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_arrays_made_by_formula_are_no_transfers(make: Callable[[], Any]) -> None:
    """What the library computes from numbers is not the user's data, wherever it computes it."""
    expected = tb.tree.map(np.asarray, make())
    with tb.transfer_guard("disallow"):
        made = make()
    for a, b in zip(tb.tree.leaves(expected), tb.tree.leaves(made), strict=True):
        assert (a.dtype, a.tolist()) == (b.dtype, b.tolist())
