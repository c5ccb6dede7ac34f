"""Keyword arguments of reductions: dtype=bool, where=, initial=, mean=, correction=, out=."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import errors


@pytest.mark.parametrize("name", ["sum", "prod", "nansum", "nanprod"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_sums_in_booleans_are_logical(name: str, dtype: Any) -> None:
    """``dtype=bool`` is "any" for sums and "all" for products, as in NumPy."""
    x = np.array([[0, 2, 0], [0, 1, 3]], dtype)
    expected = getattr(np, name)(x, axis=0, dtype=bool)
    actual = getattr(tnp, name)(tnp.array(x), axis=0, dtype=bool)

    assert np.bool_ == actual.dtype
    assert expected.tolist() == actual.tolist()


def test_integers_are_summed_as_they_are_on_request() -> None:
    """``promote_integers=False`` keeps narrow integers; booleans are counted in any case."""
    assert np.int8 == tnp.sum(tnp.ones(3, "int8"), promote_integers=False).dtype
    assert 3 == int(tnp.sum(tnp.ones(3, bool), promote_integers=False))
    assert np.float32 == tnp.sum(2.0, promote_integers=False).dtype


@pytest.mark.parametrize("name", ["var", "std"])
def test_a_known_mean_is_used(name: str) -> None:
    """``mean=`` replaces the mean of the array, with and without a mask, also differentiated."""
    x = np.array([[1.0, 2.0, 6.0], [0.0, 3.0, 5.0]], np.float32)
    mean = np.array([[1.0], [2.0]], np.float32)
    mask = np.array([True, False, True])
    numpy_function: Callable[..., Any] = getattr(np, name)
    ours: Callable[..., Any] = getattr(tnp, name)
    expected = numpy_function(x, axis=1, mean=mean, keepdims=True)
    masked = numpy_function(x, axis=1, mean=mean, where=mask)

    np.testing.assert_allclose(ours(tnp.array(x), 1, mean=mean, keepdims=True), expected, 1e-6)
    np.testing.assert_allclose(ours(tnp.array(x), 1, mean=mean, where=mask), masked, 1e-6)
    slope = tb.grad(lambda m: tnp.var(tnp.array(x), mean=m).sum())(1.0)
    np.testing.assert_allclose(slope, -2 * (x - 1).mean(), 1e-5)


def test_variance_of_integers_in_an_integer_dtype_is_a_float() -> None:
    """An integer ``dtype`` cannot hold a variance: the default float is used."""
    assert np.float32 == tnp.var(tnp.arange(3), dtype="int8").dtype


BAD: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "mask of floats": (
        lambda: tnp.sum(tnp.ones(3), where=tnp.ones(3)),
        errors.UnsupportedDtypeError,
        ("sum", "where=", "f32[3]", "boolean"),
    ),
    "mask of any": (
        lambda: tnp.any(tnp.ones(3), where=tnp.ones(3)),
        ValueError,
        ("any", "where="),
    ),
    "initial vector": (
        lambda: tnp.max(tnp.ones(3), initial=tnp.ones(2)),
        errors.RankError,
        ("max", "initial=", "f32[2]"),
    ),
    "two corrections": (
        lambda: tnp.var(tnp.ones(3), ddof=1, correction=1),
        ValueError,
        ("var", "ddof=1", "correction=1"),
    ),
    "ddof": (lambda: tnp.std(tnp.ones(3), ddof="a"), TypeError, ("std", "ddof")),
    "out": (
        lambda: tnp.sum(tnp.ones(3), out=tnp.ones(())),
        errors.UnsupportedArgumentError,
        ("sum", "out="),
    ),
    "out of a method": (lambda: tnp.ones(3).mean(out=3), NotImplementedError, ("mean", "out=")),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name: str) -> None:
    """Our classes, the function and the argument."""
    call, kind, words = BAD[name]
    with pytest.raises(kind) as caught:
        call()

    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_lists_are_no_arrays() -> None:
    """Functions of arrays refuse lists; ``asarray`` is the door."""
    for call in (tnp.copy, tnp.ix_, tnp.broadcast_arrays, tnp.sum, tnp.sin):
        with pytest.raises(TypeError, match=call.__name__.rstrip("_")):
            call([1, 2])


def test_shapes_may_be_ranges_and_positions_have_a_dtype() -> None:
    """Small arguments that NumPy's functions take too."""
    assert (2, 3) == tnp.ones(range(2, 4)).shape
    assert np.int8 == tnp.argsort(tnp.array([3, 1]), dtype="int8").dtype
    assert np.float32 == tnp.result_type(None)
    assert not tnp.iscomplexobj(None)
    assert tnp.iscomplexobj([1j])


def test_comparisons_of_whole_arrays_take_lists() -> None:
    """``array_equal`` and ``array_equiv``, as in NumPy; ragged pairs are different."""
    assert bool(tnp.array_equal([1, 2], (1, 2)))
    assert not bool(tnp.array_equal([1, 2], [1, 2, 3]))
    assert bool(tnp.array_equiv([1, 2], [[1, 2], [1, 2]]))


@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
@pytest.mark.parametrize("masked", [False, True])
def test_variances_are_complex_if_that_is_asked_for(name: str, masked: bool) -> None:
    """As in NumPy; without ``dtype`` the variance of complex numbers is real."""
    x = np.array([3.0, 1.0, 2.0], np.float32)
    more: dict[str, Any] = {"where": np.array([True, True, False])} if masked else {}
    plain = getattr(np, name.removeprefix("nan"))
    expected = plain(x, dtype=np.complex64, **more)
    actual = getattr(tnp, name)(x, dtype=np.complex64, **more)
    z = x.astype(np.complex64) * (1 + 1j)

    assert np.complex64 == actual.dtype
    np.testing.assert_allclose(expected, actual, rtol=1e-6)
    assert np.float32 == getattr(tnp, name)(z, **more).dtype
    np.testing.assert_allclose(plain(z, **more), getattr(tnp, name)(z, **more), rtol=1e-6)
