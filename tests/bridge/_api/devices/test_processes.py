"""Exchanges between processes, of which there is one: values stay, and become NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.errors.transform_errors import AxisSpecError, TreeMismatchError
from tracebridge.experimental import multihost_utils as mhu
from tracebridge.testing import assert_allclose

P = tb.P
X = np.arange(8, dtype="f4").reshape(4, 2)


def mesh() -> tb.sharding.Mesh:
    n = 4 if tb.local_device_count() >= 4 else 1
    return tb.make_mesh((n,), ("x",))


def test_gathering_and_broadcasting() -> None:
    """One process stands for all; arrays over several devices become whole."""
    spread = tb.device_put(X, tb.NamedSharding(mesh(), P("x")))
    tree = {"a": spread, "b": 3}

    stacked = mhu.process_allgather(tree)
    assert ((1, 4, 2), (1,)) == (stacked["a"].shape, stacked["b"].shape)
    for same in (mhu.process_allgather(tree, tiled=True), mhu.broadcast_one_to_all(tree)):
        assert np.ndarray is type(same["a"])
        assert_allclose(same, {"a": X, "b": np.asarray(3)})
    assert_allclose(mhu.broadcast_one_to_all(tree, is_source=False)["a"], X)
    mhu.sync_global_devices("here")
    mhu.assert_equal(tree, "different")
    assert mhu.reached_preemption_sync_point(3) is False


def test_global_arrays() -> None:
    """Spread over the mesh, and back; also in compiled functions."""
    there = mhu.host_local_array_to_global_array({"a": X, "b": X}, mesh(), {"a": P("x"), "b": P()})
    assert [P("x"), P()] == [there[k].sharding.spec for k in "ab"]
    back = mhu.global_array_to_host_local_array(there, mesh(), P("x"))
    assert_allclose(back, {"a": X, "b": X})
    f = tb.jit(lambda x: mhu.host_local_array_to_global_array(2 * x, mesh(), P("x")))
    assert_allclose(f(X), 2 * X)


def test_refused() -> None:
    """What is no specification."""
    with pytest.raises(
        AxisSpecError, match="host_local_array_to_global_array: pspecs contains None"
    ):
        mhu.host_local_array_to_global_array(X, mesh(), None)
    with pytest.raises(TreeMismatchError, match="pspecs"):
        mhu.global_array_to_host_local_array({"a": X}, mesh(), {"b": P()})
