"""Values of updates that are not of the array's dtype: what fits is silent, what may not warns."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.testing import assert_allclose

# dtype of the array, values, whether promotion keeps the dtype of the array
CASES: list[tuple[str, Any, bool]] = [
    ("int32", 2, True),
    ("int8", 2, True),
    ("int32", True, True),
    ("float16", 1.5, True),
    ("float16", tnp.int32(2), True),
    ("float32", tnp.float16(2), True),
    ("complex64", 1.5, True),
    ("int32", 1.5, False),
    ("int32", tnp.float32(2), False),
    ("int32", 1 + 2j, False),
    ("float32", 1 + 2j, False),
    ("float16", tnp.float32(2), False),
    ("bfloat16", tnp.float16(2), False),
    ("int8", tnp.int32(2), False),
    ("uint8", tnp.int32(2), False),
    ("bool", 1, False),
]
METHODS = ("set", "add", "multiply", "min", "divide")
INDICES: dict[str, Any] = {"number": 0, "slice": slice(1, 2), "array": tnp.array([0, 1])}


@pytest.mark.parametrize(("dtype", "values", "fits"), CASES)
def test_updates_warn_of_values_that_may_not_fit(dtype: str, values: Any, fits: bool) -> None:
    """Eagerly and traced, whatever the method and the index; the line is the user's."""
    x = tnp.ones(3, dtype)
    for index in INDICES.values():
        for call in (
            lambda i=index: x.at[i].set(values),
            lambda i=index: tb.jit(lambda v: v.at[i].set(values))(x),
        ):
            if fits:
                assert x.dtype == call().dtype
            else:
                with pytest.warns(FutureWarning, match="may not hold them") as found:
                    assert x.dtype == call().dtype
                assert {__file__} == {warning.filename for warning in found}


@pytest.mark.parametrize("name", METHODS)
def test_each_method_warns(name: str) -> None:
    """Not only the one that replaces."""
    with pytest.warns(FutureWarning, match=rf"at\[\.\.\.\]\.{name}: values of float32"):
        getattr(tnp.arange(3).at[0], name)(1.5)


def test_masks_and_functions_on_updates_warn() -> None:
    """A traced mask of the whole array; functions that update."""
    x, add = tnp.arange(3), cast("Any", tnp.add)
    for call in (
        lambda: tb.jit(lambda v: v.at[v > 1].set(1.5))(x),
        lambda: tnp.put(x, 0, 1.5, inplace=False),
        lambda: tnp.put_along_axis(x, tnp.array([0]), 1.5, 0, inplace=False),
        lambda: tnp.place(x, x > 1, 1.5, inplace=False),
        lambda: tnp.fill_diagonal(tnp.ones((2, 2), int), 1.5, inplace=False),
        lambda: add.at(x, 0, 1.5, inplace=False),
    ):
        with pytest.warns(FutureWarning, match="may not hold them"):
            call()


def test_applied_functions_are_silent() -> None:
    """The function does not choose its dtype: the result is converted back."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tnp.array([4, 9]).at[1].apply(tnp.sqrt)

    assert_allclose(found, tnp.array([4, 3]))


@pytest.mark.parametrize("index", INDICES)
def test_values_of_wider_dtypes_combine_before_they_are_cut(index: str) -> None:
    """As NumPy computes ``a[i] op v``; only the result is of the array's dtype."""
    x, at = np.array([-2, 3, 5], np.int32), INDICES[index]
    for name, numpy_name, value in [
        ("add", "add", 1.5), ("multiply", "multiply", 2.5), ("subtract", "subtract", 0.5),
        ("min", "minimum", 3.5), ("max", "maximum", -1.5), ("add", "add", np.float16(2.5)),
    ]:  # fmt: skip
        expected = x.copy()
        expected[np.asarray(at) if index == "array" else at] = getattr(np, numpy_name)(
            x[np.asarray(at) if index == "array" else at], value
        ).astype(np.int32)
        with pytest.warns(FutureWarning, match="may not hold them"):
            found = getattr(tnp.asarray(x).at[at], name)(value)
        assert expected.tolist() == found.tolist(), (name, value)


def test_truth_values_add_and_multiply() -> None:
    """Sums are "or", products "and", with truth values and with numbers; repeats count."""
    x, i = np.array([True, False, False]), np.array([0, 1, 1])
    for at in (slice(1, 3), 1, i):
        for value in (True, False):
            for name, ufunc in (("add", np.logical_or), ("multiply", np.logical_and)):
                expected = x.copy()
                expected[at] = ufunc(x[at], value)
                assert expected.tolist() == getattr(tnp.asarray(x).at[at], name)(value).tolist()
    with pytest.warns(FutureWarning, match="may not hold them"):
        assert [True, True, False] == tnp.asarray(x).at[1].add(2).tolist()
    traced = tb.jit(lambda v: v.at[~v].add(True))(tnp.asarray(x))
    assert [True, True, True] == traced.tolist()


def test_updates_keep_the_type_of_the_array() -> None:
    """A weak array stays weak, whatever the values are."""
    for x in (tnp.asarray(2.0), tnp.full(3, 2.0), tnp.ones(3)):
        for index in (..., *([0, slice(None), tnp.array([0])] if x.ndim else [True])):
            for name in ("set", "multiply", "power"):
                found = getattr(x.at[index], name)(tnp.asarray(2, x.dtype))
                assert (x.dtype, x.weak_type) == (found.dtype, found.weak_type), (index, name)
            found = x.at[index].apply(tnp.sin)
            assert (x.dtype, x.weak_type) == (found.dtype, found.weak_type), index


def test_lists_are_values():
    """Of every update, as of ``set``."""
    x = tnp.ones(3)

    assert [2, 3, 4] == x.at[:].add([1, 2, 3]).tolist()
    assert [2, 3, 1] == x.at[tnp.array([0, 1])].multiply((2, 3)).tolist()


def test_chosen_elements_print_the_array_and_the_index() -> None:
    """What stands without a method, as in ``print(x.at[0])``, says what it would update."""
    x = tnp.arange(2)

    assert "at(Array([0, 1], dtype=int32))" == repr(x.at)
    assert "at(Array([0, 1], dtype=int32))[0]" == repr(x.at[0])
    assert "at(Array([0, 1], dtype=int32))[slice(None, 1, None)]" == repr(x.at[:1])
