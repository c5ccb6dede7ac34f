"""Sets and positions with a given size: what fills them, their dtypes, NaN, nothing at all."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

NAN = float("nan")


def test_sets_of_nothing_with_a_size() -> None:
    """Empty arrays are filled up like others."""
    nothing, some = tnp.array([]), tnp.array([1.0, 2.0])
    assert [0.0, 0.0] == tnp.setdiff1d(nothing, some, size=2).tolist()
    assert [9.0, 9.0] == tnp.setdiff1d(nothing, some, size=2, fill_value=9).tolist()
    assert [2.0, 2.0] == tnp.unique(nothing, size=2, fill_value=2).tolist()
    values, index, inverse, counts = tnp.unique(
        nothing, True, True, True, size=2, fill_value=2.5
    )  # fmt: skip
    assert ([2.5] * 2, [0, 0], [], [0, 0]) == tuple(
        [v.tolist() for v in (values, index, inverse, counts)]
    )


def test_unique_slices_with_nans() -> None:
    """NaNs are one number along an axis as without, eagerly as with a size."""
    rows = tnp.array([[1.0, NAN], [2.0, 1.0], [1.0, NAN]])
    options: dict[str, Any] = {"axis": 0, "return_inverse": True, "return_counts": True}

    values, inverse, counts = tnp.unique(rows, **options)
    sized = tnp.unique(rows, **options, size=2)

    np.testing.assert_array_equal([[1.0, NAN], [2.0, 1.0]], values)
    assert ([0, 1, 0], [2, 1]) == (inverse.reshape(-1).tolist(), counts.tolist())
    for mine, theirs in zip((values, inverse, counts), sized, strict=True):
        np.testing.assert_array_equal(np.ravel(mine), np.ravel(theirs))
    assert (3, 2) == tnp.unique(rows, axis=0, equal_nan=False).shape
    assert (2, 2) == tnp.unique(rows.T, axis=1).shape


@pytest.mark.parametrize("fill", [None, -7])
def test_a_size_of_nothing_gives_nothing(fill: int | None) -> None:
    """All functions with ``size`` take 0, at once and in a program."""
    x = np.array([3, 1, 2, 3, -1, 1])
    for name in ("nonzero", "flatnonzero", "argwhere", "unique", "compress", "extract"):
        arrays = (x > 1, x) if name in ("compress", "extract") else (x,)
        filled = {} if name in ("compress", "extract") else {"fill_value": fill}
        function = functools.partial(getattr(tnp, name), size=0, **filled)
        for found in (function(*arrays), tb.jit(function)(*arrays)):
            first = found[0] if isinstance(found, tuple) else found
            assert first.shape[0] == 0, name
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        function = functools.partial(getattr(tnp, name), size=0, fill_value=fill)
        assert (0,) == function(x, x + 1).shape == tb.jit(function)(x, x + 1).shape, name


@pytest.mark.parametrize("fill", [NAN, np.float16(7), True])
def test_what_fills_decides_the_dtype_of_positions(fill: Any) -> None:
    """It is that of ``where(missing, fill, positions)``: a NaN stays one."""
    x = np.array([[0, 3], [0, 4]])
    expected = tnp.where(tnp.array([False, False, True]), fill, tnp.array([1, 3, 0]))
    for found in (
        tnp.flatnonzero(x, size=3, fill_value=fill),
        tnp.nonzero(x.ravel(), size=3, fill_value=fill)[0],
        tb.jit(lambda x: tnp.where(x, size=3, fill_value=fill))(x.ravel())[0],
        tnp.argwhere(x.ravel(), size=3, fill_value=fill)[:, 0],
    ):
        assert (expected.dtype, expected.weak_type) == (found.dtype, found.weak_type)
        np.testing.assert_array_equal(expected, found)
    assert expected.dtype == tnp.nonzero(x, fill_value=fill)[1].dtype


def test_what_fills_decides_the_dtype_of_shared_elements() -> None:
    """Sets follow, but differences, whose elements are those of the first."""
    x = np.array([[0, 3], [0, 4]], np.int32)

    rows = tnp.argwhere(x, size=3, fill_value=(NAN, 1))
    np.testing.assert_array_equal([[0, 1], [1, 1], [NAN, 1]], rows)
    np.testing.assert_array_equal([4, NAN], tnp.intersect1d(x, x + 1, size=2, fill_value=NAN))
    np.testing.assert_array_equal([NAN], tnp.intersect1d(x[:0], x, size=1, fill_value=NAN))
    assert np.float32 == tnp.setxor1d(x, x + 1, size=5, fill_value=NAN).dtype
    assert np.int32 == tnp.setdiff1d(x, x, size=2, fill_value=0.5).dtype


@pytest.mark.parametrize("name", ["setdiff1d", "setxor1d"])
def test_nan_is_one_element_of_sets_of_a_size(name: str) -> None:
    """As without a size, where NumPy does it."""
    x, y = np.array([NAN, 1, NAN], np.float32), np.array([NAN, 3], np.float32)
    expected = getattr(np, name)(x, y)

    found = getattr(tnp, name)(x, y, size=len(expected) + 1, fill_value=9)

    np.testing.assert_array_equal([*expected, 9], found)
