"""partition and argpartition: the k-th element is where it belongs, smaller ones before it."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import AxisError, IndexingError


@pytest.mark.parametrize("kth", [0, 2, -1])
@pytest.mark.parametrize(("shape", "axis"), [((7,), -1), ((3, 5), 0), ((3, 5), 1)])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_partition_is_one(shape, axis, kth, dtype):
    """The smaller part, the k-th element and the larger part hold what sorting says."""
    x = (np.random.standard_normal(shape) * 9).astype(dtype)
    expected = np.moveaxis(np.sort(x, axis), axis, -1)
    position = kth % x.shape[axis]

    found = np.moveaxis(np.asarray(tb.jit(lambda v: tnp.partition(v, kth, axis))(x)), axis, -1)
    order = tnp.argpartition(x, kth, axis)
    by_order = np.moveaxis(np.take_along_axis(x, np.asarray(order), axis), axis, -1)

    for result in (found, by_order):
        np.testing.assert_array_equal(expected[..., position], result[..., position])
        np.testing.assert_array_equal(expected[..., :position], np.sort(result[..., :position]))
        np.testing.assert_array_equal(expected[..., position:], np.sort(result[..., position:]))


def test_partition_under_vmap_and_grad():
    """One row at a time; the gradient of all elements is one."""
    x = np.random.standard_normal((3, 5)).astype(np.float32)

    np.testing.assert_array_equal(
        tnp.partition(x, 2), tb.vmap(lambda row: tnp.partition(row, 2))(x)
    )
    np.testing.assert_array_equal(np.ones((3, 5)), tb.grad(lambda v: tnp.partition(v, 2).sum())(x))


def test_bad_partitions():
    """The messages name the function."""
    with pytest.raises(AxisError, match="partition"):
        tnp.partition(np.ones(3), 0, axis=2)
    with pytest.raises(IndexingError, match="partition: kth=5"):
        tnp.partition(np.ones(3), 5)
