"""in_shardings and out_shardings of jit: prefixes of the arguments and of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.errors import ArgumentSpecError, DevicePlacementError, TreeMismatchError
from tracebridge.sharding import SingleDeviceSharding

X = np.arange(3, dtype=np.float32)


def here() -> Any:
    return SingleDeviceSharding(tb.devices("cpu")[0])


class TwoDevices:
    """A sharding over several devices."""

    device_set = frozenset({1, 2})


def pair(t: Any, y: Any) -> Any:
    return {"sum": t["a"] + y, "rest": [t["b"], y]}


def test_prefixes_of_arguments_and_results() -> None:
    """One entry for a subtree; None leaves the choice."""
    for ins in (here(), (here(), None), [None, here()], ({"a": here(), "b": None}, here())):
        for outs in (here(), {"sum": here(), "rest": None}, {"sum": None, "rest": [None, here()]}):
            f = tb.jit(pair, in_shardings=ins, out_shardings=outs)
            assert (2 * X).tolist() == f({"a": X, "b": X}, X)["sum"].tolist()
            assert f({"a": X, "b": X}, X)["sum"].committed


@pytest.mark.parametrize(
    "options",
    [
        lambda s: {"in_shardings": (s,)},
        lambda s: {"in_shardings": ({"a": s}, s)},
        lambda s: {"in_shardings": (s, (s, s))},
    ],
)
def test_in_shardings_must_be_a_prefix(options: Any) -> None:
    """The message names the option and the place, in calls, under traces and in stages."""
    f = tb.jit(pair, **options(here()))
    args = {"a": X, "b": X}, X

    for call in (f, tb.jit(f), f.lower):
        with pytest.raises(TreeMismatchError, match=r"jit\(pair\).*in_shardings"):
            call(*args)


def test_out_shardings_must_be_a_prefix() -> None:
    """Checked once the result is known."""
    f = tb.jit(pair, out_shardings={"sum": here()})
    args = {"a": X, "b": X}, X

    for call in (f, tb.jit(f), f.lower):
        with pytest.raises(TreeMismatchError, match=r"jit\(pair\).*out_shardings.*Dict key"):
            call(*args)


def test_in_shardings_are_about_positional_arguments() -> None:
    """Keyword arguments have no place in the tuple."""
    f = tb.jit(lambda x, y: x + y, in_shardings=(here(), here()))

    with pytest.raises(
        ArgumentSpecError, match=r"in_shardings is given, and the keyword arg.* 'y'"
    ):
        f(X, y=X)


def test_static_arguments_have_no_sharding() -> None:
    """The prefix is one of the other arguments."""
    f = tb.jit(lambda n, x: n * x, static_argnums=0, in_shardings=(here(),))

    assert (2 * X).tolist() == f(2, X).tolist()


def test_several_devices_are_refused() -> None:
    """The message says what to use."""
    for option in ("in_shardings", "out_shardings"):
        with pytest.raises(
            DevicePlacementError, match=rf"(?s){option}: .* has 2 devices.*shard_map"
        ):
            tb.jit(pair, **{option: TwoDevices()})


@pytest.mark.parametrize("device", ["cpu", 0])
def test_devices_are_devices(device: Any) -> None:
    """A name is no device."""
    with pytest.raises(DevicePlacementError, match="device: got"):
        tb.jit(pair, device=device)


ELSEWHERE = """
import tracebridge as tb
import tracebridge.numpy as tnp

tb.config.update("num_cpu_devices", 2)
first, second = tb.devices("cpu")
x = tb.device_put(tnp.ones(3), second)
for spec in (first, (first,), tb.sharding.SingleDeviceSharding(first)):
    try:
        tb.jit(lambda v: v + 1, in_shardings=spec)(x)
    except tb.errors.DevicePlacementError as error:
        assert "argument v is committed to" in str(error), error
        assert "device_put" in str(error), error
    else:
        raise AssertionError(spec)
y = tb.jit(lambda v: v + 1, in_shardings=second, out_shardings=second)(x)
assert {second} == y.devices(), y.devices()
assert {second} == tb.jit(lambda v: v + 1, in_shardings=second)(tnp.ones(3)).devices()
assert {first} == tb.jit(lambda v: v + 1, out_shardings=first)(tnp.ones(3)).devices()
try:
    tb.jit(lambda v: v, in_shardings=first, out_shardings=second)
except tb.errors.DevicePlacementError as error:
    assert "several places" in str(error), error
else:
    raise AssertionError
"""


def test_arguments_committed_elsewhere(run_alone: Callable[[str], str]) -> None:
    """With two devices: in_shardings moves free arguments, and refuses committed ones."""
    run_alone(ELSEWHERE)


def test_shardings_of_no_arrays() -> None:
    """A sharding for all arguments holds where none of them is an array."""
    over = tb.NamedSharding(tb.make_mesh((1,), ("x",)), tb.P("x"))
    assert 6 == tb.jit(lambda n: 2 * n, in_shardings=over, static_argnums=0)(3)
    assert 3 == tb.jit(lambda: 3, in_shardings=over)()
