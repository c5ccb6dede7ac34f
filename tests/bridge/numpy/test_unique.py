"""unique with a size, and NaNs along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

X = np.array([1, 2, 1, 3, 2, 2])


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_counts_of_values_that_are_left_out(
    size: int, dtype: str, wrap: Callable[[Any], Any]
) -> None:
    """The last value counts its own elements alone, however many values follow."""
    expected, counts = np.unique(X, return_counts=True)
    padding = max(0, size - expected.size)

    def unique(x: Any) -> Any:
        return tnp.unique(x, return_counts=True, size=size, fill_value=-1)

    values, found = wrap(unique)(X.astype(dtype))
    assert [*expected[:size], *[-1] * padding] == values.tolist()
    assert [*counts[:size], *[0] * padding] == found.tolist()


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize(("equal_nan", "counts"), [(True, [1, 2]), (False, [1, 1, 1])])
def test_nans_of_a_vector(axis: int | None, equal_nan: bool, counts: list[int]) -> None:
    """They are one value or not, also where the axis is given."""
    x = tnp.array([np.nan, 2.0, np.nan])

    assert counts == tnp.unique(x, return_counts=True, axis=axis, equal_nan=equal_nan)[1].tolist()


NOTHING: dict[str, Callable[[Any], Any]] = {
    "intersect1d": lambda x: tnp.intersect1d(x, x, size=2, fill_value=7),
    "intersect1d with an array": lambda x: tnp.intersect1d(x, tnp.ones(3), size=2, fill_value=7),
    "setdiff1d": lambda x: tnp.setdiff1d(x, x, size=2, fill_value=7),
    "setxor1d": lambda x: tnp.setxor1d(x, x, size=2, fill_value=7),
    "union1d": lambda x: tnp.union1d(x, x, size=2, fill_value=7),
    "unique": lambda x: tnp.unique(x, size=2, fill_value=7),
    "unique of a matrix": lambda x: tnp.unique(x.reshape(0, 3), size=2, fill_value=7),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_filled(name: str) -> None:
    """Functions of sets of no elements give as many filling values as are asked for."""
    call = NOTHING[name]

    for found in (call(tnp.zeros(0)), tb.jit(call)(tnp.zeros(0))):
        assert [7.0, 7.0] == found.tolist()


@pytest.mark.parametrize(
    ("shape", "axis", "slices", "values"),
    [
        ((0, 3), 0, 0, (2, 3)),
        ((3, 0), 1, 0, (3, 2)),
        ((3, 0), 0, 3, (2, 0)),
        ((0, 3), -1, 3, (0, 2)),
    ],
)
def test_slices_without_elements(
    shape: tuple[int, int], axis: int, slices: int, values: tuple[int, int]
) -> None:
    """There are none, or they are all equal; the results have the sizes of any other call."""
    names = ("return_index", "return_inverse", "return_counts")
    options: dict[str, Any] = dict.fromkeys(names, True)
    found = tnp.unique(tnp.zeros(shape), axis=axis, size=2, fill_value=5, **options)

    assert [values, (2,), (slices,), (2,)] == [v.shape for v in found]
    assert [slices, 0] == found[3].tolist()
    assert bool((found[0] == 5).all())
    without = tnp.unique(tnp.zeros(shape), axis=axis, size=0)
    assert [0 if d == 2 else d for d in values] == list(without.shape)


def test_positions_of_nothing_in_common() -> None:
    """They point behind the last elements, as those that fill up."""
    _, first, second = tnp.intersect1d(
        tnp.zeros(0), tnp.ones(3), size=2, return_indices=True, fill_value=0
    )

    assert ([0, 0], [3, 3]) == (first.tolist(), second.tolist())
