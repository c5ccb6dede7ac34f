"""pmap: its arguments, what it refuses, where its results are, and its cached call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.runtime_errors import (
    ArgumentMismatchError,
    DeletedArrayError,
    DevicePlacementError,
    NonFiniteError,
)
from tracebridge.core.errors.tracer_errors import (
    NonHashableStaticArgumentError,
    UnexpectedTracerError,
)
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    AxisSizeError,
    AxisSpecError,
    TreeMismatchError,
)
from tracebridge.testing import assert_allclose

pytestmark = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
X = np.arange(8, dtype="f4").reshape(4, 2)


def test_each_element_has_its_device() -> None:
    """Element i of the result is on device i."""
    out = tb.pmap(lambda x: x + 1, axis_name="i")(X)

    assert [0, 1, 2, 3] == [s.device.id for s in out.addressable_shards]
    for i, shard in enumerate(out.addressable_shards):
        assert np.array_equal(X[i : i + 1] + 1, shard.data)
    assert out.committed
    assert {d.id for d in out.devices()} == {0, 1, 2, 3}


def test_devices() -> None:
    """The devices that are given, in their order; arrays from elsewhere are moved there."""
    devices = [tb.devices()[i] for i in (6, 2, 7, 0)]
    f = tb.pmap(lambda x: x - lax.psum(x, "i"), axis_name="i", devices=devices)
    out = f(X)

    assert devices == [s.device for s in out.addressable_shards]
    assert_allclose(out, X - X.sum(0))
    assert_allclose(tb.pmap(lambda x: 2 * x)(out), 2 * (X - X.sum(0)))
    assert_allclose(f(tb.pmap(lambda x: x)(X)), X - X.sum(0))
    assert_allclose(tb.grad(lambda x: (f(x) ** 2).sum())(X), _gradient(X), rtol=1e-5)


def _gradient(x: Any) -> Any:
    return tb.grad(lambda x: ((x - x.sum(0)) ** 2).sum())(x)


def test_static_arguments() -> None:
    """Each value is compiled in; results follow the value, also on the fast path."""
    traces: list[int] = []

    def f(x: Any, n: int, y: Any) -> Any:
        traces.append(n)
        return x * n + y

    mapped = tb.pmap(f, in_axes=(0, None, None), static_broadcasted_argnums=1)
    y = tnp.float32(1)
    spread = tb.pmap(lambda x: x)(X)
    for n in (2, 3, 2, 2, 3):
        assert_allclose(mapped(spread, n, y), X * n + 1)
    assert [2, 3] == traces
    with pytest.raises(NonHashableStaticArgumentError):
        mapped(X, [2], y)


def test_keywords() -> None:
    """Keyword arguments are mapped over their first axis."""
    mapped = tb.pmap(lambda x, *, y: x + y["a"])
    y = tb.pmap(lambda x: {"a": 2 * x})(X)

    for _ in range(3):
        assert_allclose(mapped(X, y=y), 3 * X)
        assert_allclose(mapped(tb.pmap(lambda x: x)(X), y=y), 3 * X)


def test_axis_size() -> None:
    """Needed only if no argument is mapped."""
    f = tb.pmap(lambda x: x * lax.axis_index("i"), axis_name="i", in_axes=None, axis_size=3)

    assert [0.0, 2.0, 4.0] == f(2.0).tolist()
    assert [0, 1] == tb.pmap(lambda: lax.axis_index("i"), axis_name="i", axis_size=2)().tolist()


def test_donation() -> None:
    """Donated arrays are gone after the call, in the first and in cached calls."""
    f = tb.pmap(lambda x, y: x + y, donate_argnums=0)
    for _ in range(3):
        x, y = tb.pmap(lambda x: (x, x))(X)
        assert_allclose(f(x, y), 2 * X)
        assert x.is_deleted()
        assert not y.is_deleted()
    with pytest.raises(DeletedArrayError):
        f(x, y)


def test_cached_calls_do_not_trace() -> None:
    """One trace for each kind of arguments, from devices and from the host."""
    traces: list[Any] = []

    def f(x: Any) -> Any:
        traces.append(x)
        return {"y": x + 1}

    mapped = tb.pmap(f)
    spread = tb.pmap(lambda x: x)(X)
    for _ in range(3):
        assert_allclose(mapped(X)["y"], X + 1)
        assert_allclose(mapped(spread)["y"], X + 1)
        assert_allclose(mapped(tnp.asarray(X))["y"], X + 1)
    assert 1 == len(traces)
    mapped(X[:2])
    assert 2 == len(traces)


def test_numbers_lists_and_wide_ndarrays() -> None:
    """Arguments that are no arrays follow the 64-bit rule; scalars go to all devices."""
    mapped = tb.pmap(lambda x, k: x * k, in_axes=(0, None))

    assert np.dtype("f4") == mapped(X.astype("f8"), 2).dtype
    assert_allclose(mapped(X.astype("f8"), 2), 2 * X)
    assert_allclose(mapped(X, 2.5), 2.5 * X)


def test_options_of_debugging() -> None:
    """disable_jit runs step by step, debug_nans finds the map."""
    with tb.disable_jit():
        f = tb.pmap(lambda x, n: x if n > 2 else -x, static_broadcasted_argnums=1)
        assert_allclose(f(X, 3), X)
    with tb.debug_nans(), pytest.raises(NonFiniteError, match="contains NaN"):
        tb.pmap(lambda x: x / 0 * 0)(X)


def test_weak_types_and_names() -> None:
    """The function keeps its name; weak types go through."""

    def scaled(x: Any) -> Any:
        """Twice."""
        return 2 * x

    mapped = tb.pmap(scaled)
    assert "scaled" == mapped.__name__
    assert "Twice." == mapped.__doc__
    assert tb.pmap(lambda: 1.0, axis_size=2)().aval.weak_type


REFUSED: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (TypeError, "pmap: got 3 of type int", lambda: tb.pmap(3)),  # type: ignore[arg-type]  # wrong on purpose
    (AxisSpecError, "in_axes must be an int.*'a'", lambda: tb.pmap(abs, in_axes="a")),
    (AxisSpecError, "in_axes must be an int.*True", lambda: tb.pmap(abs, in_axes=True)),
    (AxisSpecError, "in_axes must be an int.*{'x': 0}", lambda: tb.pmap(abs, in_axes={"x": 0})),  # type: ignore[arg-type]  # wrong on purpose
    (AxisSpecError, "out_axes must be an int.*0.5", lambda: tb.pmap(abs, out_axes=0.5)),
    (AxisSpecError, "out_axes is 3 for the result", lambda: tb.pmap(lambda x: x, out_axes=3)(X)),
    (AxisSpecError, "in_axes has 1 entries, but the call has 2 positional",
     lambda: tb.pmap(lambda x, y: x, in_axes=(0,))(X, X)),
    (AxisSpecError, "axis 2 of argument x is to be mapped", lambda: tb.pmap(lambda x: x, 2 * "i",
                                                                            in_axes=2)(X)),
    (TreeMismatchError, "in_axes", lambda: tb.pmap(lambda x: x, in_axes=({"a": 0},))({"b": X})),
    (AxisSizeError, r"argument y\['a'\] has size 3 at axis 0",
     lambda: tb.pmap(lambda x, y: x)(X, {"a": X[:3]})),
    (AxisSizeError, "axis_size=3", lambda: tb.pmap(lambda x: x, axis_size=3)(X)),
    (AxisSizeError, "the mapped axis has size 0", lambda: tb.pmap(lambda x: x)(X[:0])),
    (AxisSizeError, "no argument is mapped", lambda: tb.pmap(lambda x: x, in_axes=None)(X)),
    (AxisSizeError, "the call has no array argument", lambda: tb.pmap(lambda: 1)()),
    (ArgumentSpecError, "static_broadcasted_argnums contains 1, but the call has 1 positional",
     lambda: tb.pmap(lambda x, n=1: x, static_broadcasted_argnums=1)(X)),
    (ArgumentSpecError, "donate_argnums contains 1, but the call has 1 positional",
     lambda: tb.pmap(lambda x, y=1: x, donate_argnums=1)(X)),
    (ArgumentSpecError, "argument 0 is both static and donated",
     lambda: tb.pmap(abs, static_broadcasted_argnums=0, donate_argnums=(0,))),
    (ArgumentSpecError, "global_arg_shapes is 3", lambda: tb.pmap(abs, global_arg_shapes=3)),
    (UnsupportedDtypeError, "argument x is 'a' of type str", lambda: tb.pmap(lambda x: x)("a")),
    (UnsupportedDtypeError, "the result is 'a' of type str", lambda: tb.pmap(lambda x: "a")(X)),
    (DevicePlacementError, "devices is empty", lambda: tb.pmap(abs, devices=[])),
    (DevicePlacementError, "devices contains 0 of type int", lambda: tb.pmap(abs, devices=[0])),
    (DevicePlacementError, "a device appears twice",
     lambda: tb.pmap(abs, devices=tb.devices()[:1] * 2)),
    (DevicePlacementError, "backend='tpu'",
     lambda: tb.pmap(abs, devices=tb.devices("cpu")[:1], backend="tpu")),
    (DevicePlacementError, r"pmap\(<lambda>\): the mapped axis has size 4, but devices has 3",
     lambda: tb.pmap(lambda x: x, devices=tb.devices()[:3])(X)),
]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "call"), REFUSED, ids=[m for _, m, _ in REFUSED])
def test_refused(error: type[Exception], message: str, call: Callable[[], Any]) -> None:
    """What does not fit, and the message."""
    with pytest.raises(error, match=message):
        call()


def test_stages() -> None:
    """A mapped function can be lowered for arguments or stand-ins, compiled and called."""
    weight = tnp.arange(2.0)

    @partial(tb.pmap, axis_name="i", in_axes=(0, None), donate_argnums=0)
    def f(x: Any, scale: Any) -> Any:
        return {"y": scale * x * weight, "n": tb.lax.psum(x.sum(), "i")}

    lowered = f.lower(tb.ShapeDtypeStruct(X.shape, X.dtype), 2.0)
    assert "all_reduce" in lowered.as_text()
    assert "HloModule" in lowered.as_text("hlo")
    assert "psum" in lowered.as_text("jaxpr")
    assert lowered.cost_analysis()["flops"] > 0
    assert {"y": X.shape, "n": (4,)} == {k: v.shape for k, v in lowered.out_info.items()}
    assert (0,) == lowered.donate_argnums
    compiled = lowered.compile()
    for _ in range(2):
        out = compiled(X, 2.0)
        assert_allclose(out, {"y": 2 * X * np.arange(2, dtype="f4"), "n": np.full(4, X.sum())})
    assert 4 == len(out["y"].devices())
    assert (X.shape, ()) == tuple([a.shape for a in tb.tree.leaves(compiled.in_avals)])
    assert compiled.input_shardings[0][1].is_fully_replicated
    assert "all-reduce" in compiled.as_text()
    with pytest.raises(ArgumentMismatchError, match=r"argument x is f32\[4,1\], but the program"):
        compiled(X[:, :1], 2.0)
    with pytest.raises(UnexpectedTracerError, match="uses values of an enclosing trace"):
        tb.jit(lambda y: tb.pmap(lambda x: x + y).lower(X))(1.0)


def test_global_arg_shapes_change_nothing() -> None:
    """With one process the shapes of all processes are those of the arguments."""
    mapped = tb.pmap(lambda x, y: x + y, in_axes=(0, None), global_arg_shapes=((4, 2), None))

    assert_allclose(mapped(X, 1.0), X + 1)
