"""Iteration over arrays gives their rows, whatever their number, dtype and place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1,), (5, 2), (16,), (17, 2), (50,), (3, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_])
def test_rows_are_those_of_numpy(shape: tuple[int, ...], dtype: Any) -> None:
    """Within one block, and where the last block overlaps the one before."""
    host = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    found = list(tnp.asarray(host))

    assert len(host) == len(found)
    for expected, row in zip(host, found, strict=True):
        assert expected.dtype == row.dtype
        np.testing.assert_array_equal(expected, row)


def test_keys_can_be_unpacked() -> None:
    """Rows of an array of random keys are keys."""
    a, b = tb.random.split(tb.random.key(3))
    both = tb.random.split(tb.random.key(3))

    assert tb.random.key_data(both[0]).tolist() == tb.random.key_data(a).tolist()
    assert tb.random.key_data(both[1]).tolist() == tb.random.key_data(b).tolist()


def test_rows_keep_weak_types_and_places() -> None:
    """As indexing does."""
    weak = tnp.asarray(2.0).reshape(1)
    assert [weak[0].aval] == [row.aval for row in weak]
    committed = tb.device_put(tnp.ones(3), tb.devices()[0])
    assert all(row.committed for row in committed)


def test_rows_are_made_when_they_are_asked_for() -> None:
    """A loop may end early, or go on under a trace."""
    rows = iter(tnp.arange(100.0))
    assert 0.0 == next(rows)

    def f(x: Any) -> Any:
        return x + sum(next(rows) for _ in range(20))

    assert sum(range(1, 21)) + 1.0 == tb.jit(f)(1.0)


def test_iteration_is_refused_without_axes_and_after_deletion() -> None:
    """Both say why."""
    with pytest.raises(TypeError, match="without axes"):
        iter(tnp.asarray(1.0))
    x = tnp.ones(3) + 1
    x.delete()
    with pytest.raises(tb.errors.DeletedArrayError):
        list(x)
