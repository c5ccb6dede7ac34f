"""The largest elements of long rows: by blocks, as by a stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.quick_compiles import quick_jit
from tracebridge.core.config.scopes import scope

# Arrays of float32 of less than 16384 elements are not worth blocks.
SHAPES = [((5003,), 7), ((20_003,), 1), ((5, 4097), 20), ((2, 7, 1500), 2), ((40_000,), 100)]


def _expected(x: np.ndarray, k: int) -> np.ndarray:
    """Positions by value, NaN first and +0 before -0, then by place."""
    if x.dtype.kind != "f":
        # Python's integers: uint64 has no negative, the least int64 none of its own size.
        return np.argsort(-x.astype(object), axis=-1, kind="stable")[..., :k]
    rank = np.where(np.isnan(x), np.inf, x)
    minus = np.signbit(x) & ~np.isnan(x)
    return np.lexsort((minus, -rank, ~np.isnan(x)), axis=-1)[..., :k]


def _rows(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Many ties, all kinds of numbers, and the extremes."""
    rng = np.random.default_rng(3)
    if dtype[0] != "f":
        limits = np.iinfo(dtype)
        x = rng.integers(-3 if limits.min else 0, 30, shape).astype(dtype)
        x[..., 5], x[..., -2] = limits.min, limits.max
        return x
    x = np.round(rng.standard_normal(shape) * 2).astype(dtype)
    x[..., 3::701] = -0.0
    x[..., 11], x[..., 907] = -np.inf, np.inf
    x[..., -1] = np.copysign(np.nan, -1)
    x[..., 600] = np.nan
    return x


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize(("shape", "k"), SHAPES, ids=str)
def test_as_a_stable_sort(shape: tuple[int, ...], k: int, dtype: str) -> None:
    """The first of equal elements comes first, NaN of either sign before infinity."""
    with tb.enable_x64(True):
        x = _rows(shape, dtype)
        values, places = quick_jit(lambda x: tb.lax.top_k(x, k))(x)

        expected = _expected(x, k)
        np.testing.assert_array_equal(expected, places)
        np.testing.assert_array_equal(np.take_along_axis(x, expected, -1), values)
        assert x.dtype == values.dtype


def test_zeros_keep_their_signs() -> None:
    """+0 is larger than -0, in whichever block it is."""
    x = np.full(20_000, -0.0, "f4")
    x[[700, 19990]] = 0.0
    values, places = tb.lax.top_k(x, 4)

    assert [700, 19990, 0, 1] == places.tolist()
    assert [False, False, True, True] == np.signbit(values).tolist()


def test_all_equal() -> None:
    """Of equal elements the first ones."""
    for x in [np.full(17_100, value, "f4") for value in (1.0, np.nan, -np.inf)]:
        assert list(range(9)) == tb.lax.top_k(x, 9)[1].tolist()


def test_batched_and_differentiated() -> None:
    """The rules are those of top_k."""
    x = np.random.default_rng(0).standard_normal((5, 4000)).astype("f4")

    def total(x: Any) -> Any:
        return (tb.lax.top_k(x, 3)[0] * tb.numpy.array([1.0, 2.0, 3.0])).sum()

    found = quick_jit(tb.vmap(tb.grad(total)))(x)
    order = np.argsort(-x, -1)[:, :3]
    expected = np.zeros_like(x)
    np.put_along_axis(expected, order, np.array([[1, 2, 3]], "f4"), -1)
    np.testing.assert_array_equal(expected, found)


def test_option() -> None:
    """With ``platform_rules`` off the whole rows are searched."""

    def text() -> str:
        return searched(20_000)

    assert "stablehlo.gather" in text()
    with scope("platform_rules", False):
        assert "stablehlo.gather" not in text()


@pytest.mark.parametrize("call", ["top_k", "approx_max_k", "approx_min_k"])
def test_results_are_lists(call: str) -> None:
    """A tree of the results has lists, as of other operations with several results."""
    x = tb.numpy.array([1.0, 9.0, 5.0])
    run = getattr(tb.lax, call)

    assert type(run(x, 2)) is list
    assert type(tb.jit(lambda x: run(x, 2))(x)) is list


def searched(size: int) -> str:
    """The program that finds three."""
    return tb.jit(lambda x: tb.lax.top_k(x, 3)).lower(np.ones(size, "f4")).as_text()


def test_small_arrays_are_one_call() -> None:
    """Blocks take ten times as long to compile, and save microseconds; within blocks as well."""
    assert "stablehlo.gather" not in searched(9000)
    assert 2 == searched(1 << 16).count("chlo.top_k")
