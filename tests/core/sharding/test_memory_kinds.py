"""Kinds of memory of devices, in shardings and of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.runtime_errors import DeletedArrayError
from tracebridge.memory import Space
from tracebridge.sharding import AbstractMesh, Mesh, NamedSharding, SingleDeviceSharding
from tracebridge.testing import assert_allclose

DEVICE = tb.devices("cpu")[0]
DEFAULT = DEVICE.default_memory().kind
OTHERS = sorted({m.kind for m in DEVICE.addressable_memories()} - {DEFAULT})
X = np.arange(4, dtype="f4")


def places(kind: str | None) -> list[Any]:
    """A sharding of each class."""
    mesh = Mesh([DEVICE], ("x",))
    return [
        SingleDeviceSharding(DEVICE, memory_kind=kind),
        NamedSharding(mesh, tb.P("x"), memory_kind=kind),
    ]


def test_the_default_kind_has_a_name() -> None:
    """It makes no difference whether it is given."""
    for plain, named in zip(places(None), places(DEFAULT), strict=True):
        assert plain is named
        assert DEFAULT == plain.memory_kind
        assert plain is plain.with_memory_kind(DEFAULT)
        assert DEFAULT == tb.device_put(X, plain).sharding.memory_kind
    assert DEFAULT == tnp.ones(3).sharding.memory_kind
    assert NamedSharding(AbstractMesh((1,), ("x",)), tb.P("x")).memory_kind is None


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds(kind: str) -> None:
    """Arrays are put there and come back; shards are there too."""
    for plain, place in zip(places(None), places(kind), strict=True):
        assert place is not plain
        assert place is plain.with_memory_kind(kind)
        assert kind == place.memory_kind
        assert f"memory_kind={kind}" in repr(place)
        there = tb.device_put(X, place)
        assert place is there.sharding
        assert kind == there.addressable_shards[0].data.sharding.memory_kind
        assert_allclose(there, X)
        back = tb.device_put(there, plain)
        assert DEFAULT == back.sharding.memory_kind
        assert_allclose(back, X)


@pytest.mark.skipif("pinned_host" not in OTHERS, reason="the device has no memory of the host")
def test_spaces() -> None:
    """Memories by their role: of arrays, ndarrays, numbers, trees and traced values."""
    host = tb.device_put({"a": tb.device_put(X, DEVICE), "b": X, "c": 1.0}, Space.Host)

    assert {"pinned_host"} == {leaf.sharding.memory_kind for leaf in host.values()}
    assert_allclose(host["a"], X)
    back = tb.device_put(host["a"], Space.Device)
    assert SingleDeviceSharding(DEVICE) is back.sharding
    assert host["a"].sharding is tb.device_put(host["a"], Space.Any).sharding
    spread = places("pinned_host")[1]
    assert places(None)[1] is tb.device_put(tb.device_put(X, spread), Space.Device).sharding
    for space in Space:
        f = tb.jit(lambda x, space=space: tb.device_put(2 * x, space) + 1)
        assert_allclose(f(X), 2 * X + 1)
        assert_allclose(tb.grad(lambda x, f=f: f(x).sum())(X), np.full(4, 2.0, "f4"))
    assert "Space.Host" == repr(Space.Host)


def test_unknown_kinds() -> None:
    """The message lists the kinds that the device has."""
    with pytest.raises(ArgumentValueError, match=f"SingleDeviceSharding: .*'foo'(.|\n)*{DEFAULT}"):
        SingleDeviceSharding(DEVICE, memory_kind="foo")
    with pytest.raises(
        ArgumentValueError,
        match=r"NamedSharding: memory_kind is 'foo'\..*can address the following memory kinds",
    ):
        NamedSharding(Mesh([DEVICE], ("x",)), tb.P(), memory_kind="foo")


def test_parts_that_were_deleted() -> None:
    """They make no array."""
    part = tb.device_put(X, DEVICE)
    part.delete()

    with pytest.raises(DeletedArrayError):
        tb.make_array_from_single_device_arrays((4,), SingleDeviceSharding(DEVICE), [part])


@pytest.mark.skipif("pinned_host" not in OTHERS, reason="the device has no memory of the host")
def test_memories_that_jit_is_asked_for() -> None:
    """Shardings of one device say in which memory results are, and arguments have to be."""
    host = SingleDeviceSharding(DEVICE, memory_kind="pinned_host")
    f = tb.jit(lambda x: (x * 2.0, x), out_shardings=(host, None))

    doubled, same = f(X)
    assert "pinned_host" == doubled.sharding.memory_kind
    assert DEFAULT == same.sharding.memory_kind
    assert host is doubled.sharding
    assert places(None)[0] is same.sharding
    assert np.array_equal(2 * np.asarray(X), doubled)
    back = tb.jit(lambda x: x + 1.0, in_shardings=host)(tb.device_put(X, host))
    assert np.array_equal(np.asarray(X) + 1, back)


@pytest.mark.parametrize("kind", OTHERS[:1])
def test_results_are_where_programs_put_them(kind: str) -> None:
    """A memory that an operation names is that of its result, and of what is computed from it."""
    host = places(kind)[0]
    x = tb.device_put(X, host)
    cases: list[tuple[Any, Any, list[str]]] = [
        (lambda x: (tb.device_put(2 * x, host), x + 1), X, [kind, DEFAULT]),
        (lambda x: (tb.jit(lambda y: tb.device_put(y, host))(x), 0.0), X, [kind, DEFAULT]),
        (lambda x: (2 * tb.device_put(x, Space.Device), x), x, [DEFAULT, kind]),
        (lambda x: (tb.device_put(x, places(None)[0]), 3 * x), x, [DEFAULT, kind]),
    ]

    for f, arg, kinds in cases:
        jitted = tb.jit(f)
        for g in (jitted, jitted, jitted.lower(arg).compile()):
            assert kinds == [r.sharding.memory_kind for r in g(arg)]
        assert_allclose(jitted(arg), f(X))
