"""sort, sort_key_val, top_k: NumPy's order on every dtype, ties, rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core import lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError, ShapeMismatchError
from tracebridge.testing import check_rules
from tracebridge.testing.grads import array_of

DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u4", "u8", "?", "c8", "c16")


def sample(dtype: str, shape: tuple[int, ...] = (7, 9)) -> np.ndarray[Any, Any]:
    """Numbers with ties, NaNs and infinities where the dtype has them."""
    random = np.random.default_rng(0)
    kind = np.dtype(dtype).kind
    if kind == "u":
        top = np.iinfo(dtype).max
        return random.choice(np.array([0, 1, 5, top // 2, top], dtype), shape)
    x = random.standard_normal(shape).round(1) * 5
    if kind == "c":
        x = x.round() + 1j * random.standard_normal(shape)
    x = x.astype(dtype)
    if kind in "fc":
        x.flat[[3, 20]] = np.nan
        x.flat[[4, 21]] = -np.inf
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort_is_numpys(dtype: str, axis: int) -> None:
    """Values and the order of positions are those of NumPy's stable sort."""
    x = sample(dtype)
    positions = np.broadcast_to(np.indices(x.shape)[axis], x.shape).astype(np.int32)

    alone = lax.sort(array_of(x), axis)
    keys, order = lax.sort_key_val(array_of(x), array_of(positions), axis)

    np.testing.assert_array_equal(np.sort(x, axis), np.asarray(alone))
    np.testing.assert_array_equal(np.sort(x, axis), np.asarray(keys))
    np.testing.assert_array_equal(np.argsort(x, axis, kind="stable"), np.asarray(order))
    assert x.dtype == alone.dtype


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u4", "i8"])
def test_positions_in_a_compiled_program(dtype: str) -> None:
    """An iota that is sorted along is recognised; the result is the same."""
    x = sample(dtype)

    order = tb.jit(lambda v: lax.sort((v, lax.broadcasted_iota("int32", v.shape, 1)), 1)[1])

    np.testing.assert_array_equal(np.argsort(x, 1, kind="stable"), np.asarray(order(array_of(x))))


def test_zeros_tie_and_nans_are_last() -> None:
    """Signs of zeros and of NaNs do not count; stability keeps their order."""
    x = np.array([np.nan, 0.0, -0.0, 1.0, -0.0, -np.nan, -1.0], np.float32)

    keys, order = lax.sort_key_val(x, np.arange(7, dtype=np.int32))

    assert order.tolist() == [6, 1, 2, 4, 3, 0, 5]
    assert np.signbit(np.asarray(keys)[:5]).tolist() == [True, False, True, True, False]
    assert np.isnan(np.asarray(keys)[5:]).all()


def test_later_keys_decide_ties() -> None:
    """With two keys the order is lexicographic."""
    first, second = np.array([1, 0, 1, 0], np.int32), np.array([2.0, np.nan, 1.0, 3.0], np.float32)

    a, b, order = lax.sort((first, second, np.arange(4, dtype=np.int32)), num_keys=2)

    assert a.tolist() == [0, 0, 1, 1]
    assert order.tolist() == [3, 1, 2, 0]
    assert np.array_equal([3.0, np.nan, 1.0, 2.0], np.asarray(b), equal_nan=True)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (1,)])
def test_empty_and_single(shape: tuple[int, ...]) -> None:
    """Axes of size 0 and 1 sort to themselves."""
    x = np.zeros(shape, np.float32)

    assert shape == lax.sort(x).shape
    assert shape == lax.sort((x, x))[1].shape


def test_rules() -> None:
    """Derivatives, batches and compiled forms agree."""
    random = np.random.default_rng(1)
    x, y = random.standard_normal((3, 5)), random.standard_normal((3, 5))

    check_rules(lambda v: lax.sort(v, 0), x, reference=lambda v: np.sort(v, 0))
    check_rules(lambda v, w: lax.sort((v, w), 1), x, y)
    check_rules(lambda k, v: lax.sort((k, v), 1, num_keys=2), (3 * x).astype(np.int32), y)
    check_rules(lambda v: lax.sort(v, 1), x + 1j * y, order=1)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i4", "i8", "u4", "u8", "?"])
@pytest.mark.parametrize("size", [9, 700])
@pytest.mark.parametrize("k", [0, 1, 7, 9])
def test_top_k_takes_the_largest(dtype: str, size: int, k: int) -> None:
    """Largest first, the first of equal ones first, NaN before all numbers."""
    x = sample(dtype, (3, size))
    rank = np.argsort(x[:, ::-1], 1, kind="stable")[:, ::-1]
    expected = (size - 1 - rank)[:, :k]

    values, positions = lax.top_k(array_of(x), k)

    np.testing.assert_array_equal(expected, np.asarray(positions))
    np.testing.assert_array_equal(np.take_along_axis(x, expected, 1), np.asarray(values))


def test_top_k_along_any_axis() -> None:
    """The axis may be the first; all rules agree."""
    x = np.random.default_rng(2).standard_normal((5, 3))

    check_rules(lambda v: lax.top_k(v, 2, axis=0), x, order=1)
    values, _ = lax.top_k(x, 2, axis=0)
    np.testing.assert_allclose(np.sort(x, 0)[::-1][:2], np.asarray(values), rtol=1e-6)


def test_approximate_forms_are_exact() -> None:
    """The largest and smallest are found, whatever the recall asked for."""
    x = np.array([3.0, -1.0, 7.0, 5.0], np.float32)

    assert lax.approx_max_k(x, 2, recall_target=0.5)[1].tolist() == [2, 3]
    assert lax.approx_min_k(x, 2)[0].tolist() == [-1.0, 3.0]
    rows = np.array([[3.0, 9.0], [-1.0, 2.0], [7.0, 4.0]], np.float32)
    slopes = tb.vmap(tb.grad(lambda r: lax.approx_min_k(r, 2)[0] @ np.array([1.0, 5.0])), 1, 1)(
        rows
    )
    assert [[5.0, 0.0], [1.0, 1.0], [0.0, 5.0]] == slopes.tolist()
    with pytest.raises(ValueError, match="recall_target=2"):
        lax.approx_max_k(x, 2, recall_target=2)


@pytest.mark.parametrize(
    ("shape", "override", "count"),
    [((40,), -1, 40), ((400,), -1, 400), ((4000,), -1, 2048), ((3, 40000), -1, 256),
     ((4000,), 40000, 1024), ((2000,), -1, 2000), ((1500, 2), -1, 256)],
)  # fmt: skip
def test_candidates_that_are_not_aggregated(
    shape: tuple[int, ...], override: int, count: int
) -> None:
    """As many as XLA's search leaves, largest first; a batch has as many as a row alone."""
    x = np.random.default_rng(3).permutation(int(np.prod(shape))).astype(np.float32).reshape(shape)
    axis = 0 if len(shape) > 1 and shape[0] > shape[1] else -1

    def search(y: object) -> object:
        return lax.approx_max_k(y, 7, axis, 0.95, override, aggregate_to_topk=False)

    values, positions = search(x)

    expected = np.flip(np.sort(x, axis), axis).take(range(count), axis)
    np.testing.assert_array_equal(expected, np.asarray(values))
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(positions), axis), expected)
    np.testing.assert_array_equal(tb.vmap(search)(x[None])[0][0], expected)


def test_candidates_of_other_sizes() -> None:
    """Of no element, of more than there are, and of parts that are larger than the whole."""
    for k, override, text in ((0, -1, "k=0"), (5, -1, "k=5"), (2, 3, "override=3")):
        with pytest.raises(ValueError, match=text):
            lax.approx_max_k(np.ones(4, np.float32), k, -1, 0.95, override, aggregate_to_topk=False)


def test_errors() -> None:
    """Wrong axes, shapes, counts and dtypes are named."""
    x = np.zeros((2, 3), np.float32)

    with pytest.raises(AxisError, match="sort: axis 2 is out of bounds"):
        lax.sort(x, 2)
    with pytest.raises(ShapeMismatchError, match=r"same shape, got f32\[2,3\], f32\[3\]"):
        lax.sort((x, x[0]))
    with pytest.raises(TypeError, match="no operand"):
        lax.sort(())
    with pytest.raises(ValueError, match="num_keys=3"):
        lax.sort((x, x), num_keys=3)
    with pytest.raises(ShapeMismatchError, match="k=4, expected from 0 to the 3 elements"):
        lax.top_k(x, 4)
    with pytest.raises(UnsupportedDtypeError, match=r"c64\[2\]"):
        lax.top_k(np.zeros(2, np.complex64), 1)


@pytest.mark.parametrize("find", [lax.top_k, lax.approx_max_k, lax.approx_min_k])
def test_positions_that_do_not_fit_int32_are_refused(find):
    """An axis of 2**31 elements or more has positions that the indices could not hold."""
    with pytest.raises(ValueError, match="int32"):
        tb.eval_shape(lambda x: find(x, 5), tb.ShapeDtypeStruct((2**32,), "float32"))
    shape = tb.eval_shape(lambda x: find(x, 5), tb.ShapeDtypeStruct((2, 2**31 - 1), "float32"))
    assert ((2, 5), (2, 5)) == (shape[0].shape, shape[1].shape)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64])
def test_order_of_64_bits(dtype):
    """Both halves decide, equal elements keep their order, NaNs of either sign come last."""
    x = np.random.default_rng(0).integers(0, 40, (2, 300)).astype(dtype) * dtype(0x123456789A)
    x[0, ::3] += dtype(2**40)
    if dtype == np.float64:
        x[1, :6] = [np.nan, 0.0, -0.0, np.inf, -np.inf, -np.nan]
    else:
        x[1, :2] = np.iinfo(dtype).max, np.iinfo(dtype).min
    with tb.enable_x64():
        order = tb.numpy.argsort(x, 1)

    np.testing.assert_array_equal(np.argsort(x, 1, kind="stable"), order)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_with_a_sign_is_the_largest_too(dtype):
    with tb.enable_x64():
        x = np.array([1, -np.nan, np.inf, np.nan, -2], dtype)
        assert tb.jit(lambda x: lax.top_k(x, 3)[1])(x).tolist() == [1, 3, 2]
