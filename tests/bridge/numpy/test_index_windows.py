"""Windows in indices: parts of axes whose starts only the running program knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ConcretizationTypeError,
    IndexingError,
    UnsupportedDtypeError,
)

X = np.arange(4 * 6 * 5, dtype=np.float32).reshape(4, 6, 5)
MASK = np.array([True, False, True, False])

# The index as a function of what makes a part of an axis: ds, or a slice.
INDICES = [
    lambda w: w(1, 3),
    lambda w: (slice(None), w(2, 2)),
    lambda w: (w(1, 2), w(0, 3, 2)),
    lambda w: (..., w(1, 2, 3)),
    lambda w: (0, w(3, 3), None, w(1, 4)),
    lambda w: (np.array([3, 0]), w(1, 2), np.array([[2], [4]])),
    lambda w: (MASK, w(4, 2)),
    lambda w: (None, w(2, 1), ..., -1),
    lambda w: (w(1, 0), w(0, 6)),
    lambda w: (slice(3, 0, -1), w(1, 4), slice(None, None, 2)),
    lambda w: ([1, 2], ..., w(0, 2)),
]


def known(start: int, size: int, stride: int = 1) -> slice:
    return slice(start, start + size * stride, stride)


@pytest.mark.parametrize("index", INDICES)
def test_windows_are_slices_whose_start_may_be_traced(index: Any) -> None:
    """Reads and updates are those of the slice, for starts of any integer dtype."""
    expected = X[index(known)]
    new = np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    changed = X.copy()
    changed[index(known)] = new

    @tb.jit
    def traced(x: Any, zero: Any) -> Any:
        where = index(lambda start, *rest: tb.ds(zero + start, *rest))
        place = x.at[where]
        return x[where], place.get(), place.set(new), place.add(new), place.divide(2.0)

    np.testing.assert_array_equal(expected, tnp.asarray(X)[index(tb.ds)])
    for zero in (0, np.uint8(0), np.int8(0)):
        read, got, put, added, halved = traced(X, zero)
        np.testing.assert_array_equal(expected, read)
        np.testing.assert_array_equal(expected, got)
        np.testing.assert_array_equal(changed, put)
        np.testing.assert_array_equal(expected + new, added[index(known)])
        np.testing.assert_array_equal(expected / 2, halved[index(known)])
        np.testing.assert_array_equal(X.sum() + new.sum(), added.sum())


def test_windows_over_an_end() -> None:
    """Reads move them inside, updates leave them out, and modes say otherwise."""
    x = tnp.arange(5)
    for start in (4, tnp.int32(4)):
        window = tb.ds(start, 2)
        assert [3, 4] == x[window].tolist()
        assert [3, 4] == x.at[window].get(mode="clip").tolist()
        assert [-1, -1] == x.at[window].get(mode="fill", fill_value=-1).tolist()
        assert x.tolist() == x.at[window].set(9).tolist()
        assert x.tolist() == x.at[window].multiply(9, mode="drop").tolist()
        assert [0, 1, 2, 9, 9] == x.at[window].set(9, mode="clip").tolist()
    assert [3, 4] == x[tb.ds(-2, 2)].tolist()
    assert [0, 1, 2, 9, 9] == x.at[tb.ds(-2, 2)].set(9).tolist()
    assert [0, 1] == x.at[tb.ds(-2, 2)].get(wrap_negative_indices=False).tolist()
    assert x.tolist() == x.at[tb.ds(-2, 2)].set(9, wrap_negative_indices=False).tolist()
    assert np.isnan(tnp.ones(3).at[tb.ds(2, 2)].get(mode="fill")).all()
    assert [0, -1, -2, 3, 4] == x.at[tb.ds(1, 2)].apply(tnp.negative).tolist()


def test_windows_are_transformed() -> None:
    """Derivatives of both orders and vmap over starts; windows are trees; references have them."""
    x = np.linspace(0.1, 2.0, 6)

    def f(x: Any, v: Any, i: Any) -> Any:
        return tnp.sin(x[tb.ds(i, 3)]) * v + tnp.cumprod(x.at[tb.ds(i, 3)].multiply(v))[-3:]

    with tb.enable_x64():
        check_grads(lambda x, v: f(x, v, 2), (x, np.array([0.5, 2.0, -1.0])), order=2)
    starts = np.array([0, 3, 5])
    rows = tb.vmap(lambda i: tnp.asarray(x)[tb.ds(i, 2)])
    np.testing.assert_allclose([x[0:2], x[3:5], x[4:6]], rows(starts), 1e-6)
    puts = tb.vmap(lambda i, v: tnp.zeros(6).at[tb.ds(i, 2)].set(v))(starts, starts + 1.0)
    np.testing.assert_array_equal([[1, 1, 0, 0, 0, 0], [0, 0, 0, 4, 4, 0], [0] * 6], puts)
    window = tb.jit(lambda w: w)(tb.ds(tnp.int32(2), 3, 1))
    assert [2, 3, 4] == tnp.arange(6)[window].tolist()
    ref = tb.new_ref(tnp.zeros(6))
    tb.jit(lambda r, i: r.__setitem__(tb.ds(i, 2), r[tb.ds(i, 2)] + 1))(ref, 3)
    assert [0, 0, 0, 1, 1, 0] == ref[...].tolist()


def test_windows_are_checked() -> None:
    """The size is known and fits, the start is one integer, strides go forward."""
    x = tnp.zeros((3, 4))

    assert slice(None) == tb.ds(None)
    assert (2, 4) == x[tb.ds(2)].shape
    assert "ds(1, 2, 3)" == repr(tb.ds(1, 2, 3))
    with pytest.raises(IndexingError, match=r"ds\(0, 5\) spans 5 positions, axis 1 of .* has 4"):
        x[:, tb.ds(0, 5)]
    with pytest.raises(IndexingError, match="too many indices"):
        x[0, 0, tb.ds(0, 1)]
    with pytest.raises(ArgumentValueError, match="ds"):
        tb.ds(0, -1)
    with pytest.raises(ArgumentValueError, match="ds"):
        tb.ds(0, 2, -1)
    with pytest.raises(ArgumentTypeError, match="ds: the size"):
        tb.ds(0, 1.5)
    with pytest.raises(ConcretizationTypeError, match="ds"):
        tb.jit(lambda n: x[tb.ds(0, n)])(2)
    for start in (0.5, np.array([1, 2]), "a"):
        with pytest.raises(UnsupportedDtypeError):
            tb.ds(start, 2)
