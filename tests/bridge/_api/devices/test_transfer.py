"""device_put, device_get, block_until_ready and kin."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    BackendNotFoundError,
    DeletedArrayError,
    DevicePlacementError,
    TreeMismatchError,
    UnsupportedDtypeError,
)

X = np.arange(3, dtype=np.float32)
CPU = tb.devices("cpu")[0]


def test_trees_become_arrays() -> None:
    """Every leaf is an array of its canonical dtype; numbers are weakly typed."""
    result = tb.device_put({"a": X, "b": (1.0, np.arange(2)), "c": None})

    assert all(isinstance(leaf, tb.Array) for leaf in tb.tree.leaves(result))
    assert result["a"].tolist() == X.tolist()
    assert result["b"][0].weak_type
    assert np.int32 == result["b"][1].dtype
    assert not result["a"].committed


@pytest.mark.parametrize("place", [CPU, tb.sharding.SingleDeviceSharding(CPU)])
def test_places_commit(place: Any) -> None:
    """With a device or sharding the result is committed to it."""
    result = tb.device_put([X, 1.0], place)

    assert all(leaf.committed and CPU == leaf.device for leaf in result)


def test_places_may_be_a_prefix() -> None:
    """One place per part of the tree; None leaves the choice open."""
    result = tb.device_put({"a": [X, X], "b": X}, {"a": CPU, "b": None})

    assert [True, True, False] == [leaf.committed for leaf in tb.tree.leaves(result)]
    with pytest.raises(TreeMismatchError, match=r"device\b.*x\b"):
        tb.device_put({"a": X}, {"b": CPU})


def test_ndarrays_are_copied() -> None:
    """A later write to the ndarray does not reach the array."""
    host = X.copy()
    array = tb.device_put(host)
    host[0] = 100.0

    assert 0.0 == float(array[0])


def test_arrays_are_not_copied_without_need() -> None:
    """Unless may_alias is False."""
    x = tb.device_put(X)

    assert x is tb.device_put(x)
    assert x.unsafe_buffer_pointer() == tb.device_put(x, CPU).unsafe_buffer_pointer()
    copy = tb.device_put(x, may_alias=False)
    assert x.unsafe_buffer_pointer() != copy.unsafe_buffer_pointer()
    assert x.tolist() == copy.tolist()


def test_copies_of_keys() -> None:
    """A copy that is asked for has memory of its own, of arrays of keys too."""
    keys = tb.random.split(tb.random.key(0))
    copy = tb.device_put(keys, may_alias=False)

    assert bool((keys == copy).all())
    keys.delete()
    assert (2,) == tb.random.uniform(copy[0], (2,)).shape


def test_donation_frees_what_was_copied() -> None:
    """The argument ends if the result has memory of its own."""
    x, y = tb.device_put(X), tb.device_put(X)

    tb.device_put({"x": x, "y": y}, may_alias=False, donate={"x": True, "y": False})

    assert [True, False] == [x.is_deleted(), y.is_deleted()]
    with pytest.raises(ValueError, match="donate and may_alias are both True"):
        tb.device_put(y, donate=True, may_alias=True)


def test_scalars_have_memory_of_their_own() -> None:
    """Deleting one array leaves equal ones alone."""
    tb.device_put(7.0).delete()

    assert 7.0 == float(tb.device_put(7.0)) == float(tnp.float32(7.0))


def test_transformations() -> None:
    """device_put is linear, maps, and compiles to nothing."""

    def f(x: Any) -> Any:
        return tb.device_put(x * x, CPU)

    assert 6.0 == float(tb.grad(f)(3.0)) == float(tb.jit(tb.grad(f))(3.0))
    assert [0.0, 1.0, 4.0] == tb.vmap(f)(X).tolist()
    assert 12.0 == float(tb.jvp(f, (3.0,), (2.0,))[1])
    assert "device_put" in str(tb.make_jaxpr(f)(1.0))
    assert "custom_call" not in tb.jit(f).lower(1.0).as_text()


def test_derivatives_go_back_to_the_source() -> None:
    """The cotangent is put to src, by default to where the array is."""
    _, pullback = tb.vjp(lambda x: tb.device_put(x, CPU, src=CPU), 1.0)
    assert tb.grad(lambda x: tb.device_put(x, CPU))(tnp.float32(1.0)).committed

    (x_bar,) = pullback(1.0)
    assert x_bar.committed


def test_device_get_gives_ndarrays() -> None:
    """Arrays become NumPy arrays; other leaves and traced values stay."""
    result = tb.device_get({"a": tnp.arange(3), "b": "text", "c": 1})

    assert isinstance(result["a"], np.ndarray)
    assert ("text", 1) == (result["b"], result["c"])
    assert 2.0 == tb.jit(lambda x: tb.device_get(x) + 1.0)(1.0)


def test_waiting() -> None:
    """block_until_ready gives its argument; deleted arrays are an error."""
    tree = {"a": tnp.ones(3) + 1, "b": "text"}

    assert tree is tb.block_until_ready(tree)
    assert tree is tb.copy_to_host_async(tree)
    assert 2.0 == float(tb.jit(tb.block_until_ready)(2.0))
    tree["a"].delete()
    with pytest.raises(DeletedArrayError):
        tb.block_until_ready(tree)


def test_live_arrays() -> None:
    """Arrays are listed while they live."""
    x = tnp.ones(3)

    assert any(x is y for y in tb.live_arrays())
    assert any(x is y for y in tb.live_arrays("cpu"))
    x.delete()
    assert not any(x is y for y in tb.live_arrays())


@pytest.mark.parametrize("place", ["cpu", 3, [CPU]])
def test_wrong_places(place: Any) -> None:
    """Names are no devices."""
    with pytest.raises((DevicePlacementError, TreeMismatchError), match="device"):
        tb.device_put(X, place)


def test_leaves_must_be_arrays() -> None:
    """The leaf is named."""
    with pytest.raises(UnsupportedDtypeError, match=r"device_put: x\['a'\]\[1\] is 's'"):
        tb.device_put({"a": (1, "s")})


SEVERAL = """
import numpy as np, tracebridge as tb, tracebridge.dlpack, tracebridge.numpy as tnp
first, second = tb.devices()
assert tb.local_devices() == [first, second] and tb.device_count() == 2
x = tb.device_put(np.arange(3.0), second)
assert x.device == second and (x + 1).device == second and tb.jit(tnp.sin)(x).device == second
y = tb.device_put(np.arange(3.0))
assert y.device == first and (x + y).device == second
try:
    x + tb.device_put(y, first)
except tb.errors.DevicePlacementError as error:
    assert "different devices" in str(error)
else:
    raise AssertionError
assert tb.jit(lambda x: x, device=second)(1.0).device == second
assert tb.jit(lambda x, y: x + y, device=second)(x, tb.device_put(y, first)).device == second
full = tb.lax.full_like(x, 2.0)
assert full.device == second and full.committed and full.tolist() == [2.0] * 3
with tb.default_device(second):
    assert tnp.ones(3).device == second
compiled = tb.jit(tnp.sin, device=second).lower(1.0).compile()
assert compiled(y[0]).device == second
g = tb.grad(lambda x: tnp.sum(tb.device_put(x, second, src=first) ** 2))(tb.device_put(y, first))
assert g.device == first and g.tolist() == [0.0, 2.0, 4.0]
g = tb.grad(lambda x: tb.device_put(x, first).sum())(x)
assert g.device == second and g.committed
for keys in tb.random.key(0), tb.random.split(tb.random.key(0, impl="rbg"), 3):
    there = tb.device_put(keys, second)
    assert there.device == second and (there == tb.device_put(keys, second)).all()
    assert tb.random.key_data(there).tolist() == tb.random.key_data(keys).tolist()
    assert tb.device_put(there, first).device == first
try:
    tb.dlpack.from_dlpack(y, device=second, copy=False)
except ValueError as error:
    assert "copy=False forbids" in str(error)
else:
    raise AssertionError
"""


def test_several_devices(subprocess_environment: dict[str, str]) -> None:
    """Committed arrays decide where computations run; conflicts are errors."""
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL],
        env={**subprocess_environment, "TRACEBRIDGE_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert 0 == done.returncode, done.stderr


def test_device_get_asks_objects_for_their_array() -> None:
    """Objects with ``__array__`` come as ndarrays, other leaves as they are."""

    class Lazy:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.arange(2)

    found = tb.device_get({"lazy": Lazy(), "host": np.ones(1), "number": 3, "text": "t"})
    np.testing.assert_array_equal([0, 1], found["lazy"])
    assert (np.ndarray, 3, "t") == (type(found["lazy"]), found["number"], found["text"])


def test_live_arrays_of_an_unknown_platform() -> None:
    """A name that no platform has is a mistake, not an empty list."""
    with pytest.raises(BackendNotFoundError, match="nowhere"):
        tb.live_arrays("nowhere")


def test_masked_arrays_are_refused() -> None:
    """Their mask would be lost."""
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    for call in (tb.jit(lambda x: x), tb.device_put, tb.lax.sin):
        with pytest.raises(ValueError, match="masked array"):
            call(masked)


@pytest.mark.skipif(
    "tb.local_device_count() < 4", reason="needs 4 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)
def test_donated_arrays_over_devices_end_unless_memory_is_shared() -> None:
    """Parts that stay where they are keep the array alive."""
    devices = tb.devices()[:4]
    x = np.arange(16.0).reshape(4, 4)
    there, back = (
        tb.sharding.NamedSharding(tb.sharding.Mesh(np.array(order), "x"), tb.P("x"))
        for order in (devices, devices[::-1])
    )
    moved, kept, stays = (tb.device_put(x, there) for _ in range(3))
    outs = tb.device_put((moved, kept), back, donate=(True, False))
    same = tb.device_put(stays, there, donate=True)

    assert [True, False] == [moved.is_deleted(), kept.is_deleted()]
    for out in (*outs, kept, same):
        np.testing.assert_array_equal(x, out)
