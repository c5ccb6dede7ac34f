"""Python integers outside the range of the other operands' dtype, in functions that accept them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import IntegerRangeError, ShapeMismatchError

U8 = np.array([1, 200, 255], np.uint8)
I8 = np.array([-3, 5, 7], np.int8)
U32 = np.array([1, 2, 3], np.uint32)
MASK = np.array([True, False, True])
FALLING = U8[::-1].copy()

# Functions of the module and an array, where NumPy's results are the reference.
CASES: list[tuple[str, Any, Any]] = [
    ("where y", lambda xp, x: xp.where(MASK, x, -1), U32),
    ("where x", lambda xp, x: xp.where(MASK, -1, x), U32),
    ("where scalar condition", lambda xp, x: xp.where(True, 300, x), U8),
    ("where signed", lambda xp, x: xp.where(MASK, x, 200), I8),
    ("where signed below", lambda xp, x: xp.where(MASK, x, -129), I8),
    ("select default", lambda xp, x: xp.select([MASK], [x], -1), U32),
    ("select two", lambda xp, x: xp.select([MASK, ~MASK], [x, x + x], 300), U8),
    ("choose", lambda xp, x: xp.choose(np.array([0, 1, 0]), [x, 300]), U8),
    ("choose first", lambda xp, x: xp.choose(np.array([0, 1, 0]), [-1, x]), U32),
    ("pad", lambda xp, x: xp.pad(x, 1, constant_values=-1), U32),
    ("pad pair", lambda xp, x: xp.pad(x, 1, constant_values=(-1, 300)), U8),
    ("pad by axis", lambda xp, x: xp.pad(x, 1, constant_values=((-1, 300),)), U8),
    ("clip both", lambda xp, x: xp.clip(x, -5, 300), U8),
    ("clip below", lambda xp, x: xp.clip(x, -5, 100), U8),
    ("clip above", lambda xp, x: xp.clip(x, 5, 300), U8),
    ("clip one side", lambda xp, x: xp.clip(x, None, 300), U8),
    ("clip far", lambda xp, x: xp.clip(x, -(2**40), 2**70), U8),
    ("clip signed", lambda xp, x: xp.clip(x, -200, 200), I8),
    ("clip array limit", lambda xp, x: xp.clip(x, x[::-1], 300), U8),
    ("clip method", lambda _, x: x.clip(-5, 300), U8),
    ("isin above", lambda xp, x: xp.isin(x, 300), U8),
    ("isin below", lambda xp, x: xp.isin(x, -1), U8),
    ("isin far", lambda xp, x: xp.isin(x, 2**70), U8),
    ("isin scalar", lambda xp, x: xp.isin(300, x), U8),
    ("isin invert", lambda xp, x: xp.isin(x, -1, invert=True), U8),
    *[
        (
            f"searchsorted {v} {side}",
            lambda xp, x, v=v, side=side: xp.searchsorted(x, v, side=side),
            U8,
        )
        for v in (300, -5, 2**70)
        for side in ("left", "right")
    ],
    ("searchsorted method", lambda _, x: x.searchsorted(300), U8),
    *[
        (
            f"digitize {v} {right} {order}",
            lambda xp, x, v=v, right=right: xp.digitize(v, x, right=right),
            edges,
        )
        for v in (300, -5, 2**70)
        for right in (False, True)
        for order, edges in (("rising", U8), ("falling", FALLING), ("lowest", U8 * 0))
    ],
]


@pytest.mark.parametrize(("f", "x"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_integers_out_of_range_give_what_numpy_gives(f: Any, x: Any, jitted: bool) -> None:
    """Values are NumPy's, eagerly and traced; the dtype is that of the array."""
    expected = np.asarray(f(np, x))

    def run(v: Any) -> Any:
        return f(tnp, v)

    actual = (tb.jit(run) if jitted else run)(tnp.asarray(x))
    assert expected.tolist() == actual.tolist()
    assert expected.dtype in {actual.dtype, np.dtype(np.int64)}


@pytest.mark.parametrize("f", [c[1] for c in CASES if c[2] is U8], ids=lambda f: "")
def test_integers_out_of_range_under_vmap(f: Any) -> None:
    """Each row of a batch has the result that it has alone."""
    rows = np.stack([U8, U8 // 2])
    expected = [np.asarray(f(np, row)).tolist() for row in rows]
    assert expected == tb.vmap(lambda x: f(tnp, x))(tnp.asarray(rows)).tolist()


def test_union1d_wraps() -> None:
    """Joining wraps, as in NumPy."""
    assert np.union1d(U8, 300).tolist() == tnp.union1d(tnp.asarray(U8), 300).tolist()


def test_derivatives_flow_beside_a_limited_integer() -> None:
    """A range error in the integer part leaves the derivative of the rest as it is."""

    def f(x: Any, k: Any) -> Any:
        return (x * tnp.clip(k, -5, 300).astype(x.dtype)).sum()

    actual = tb.grad(f)(tnp.ones(3), tnp.asarray(U8))
    assert [1.0, 200.0, 255.0] == actual.tolist()


@pytest.mark.parametrize(("low", "high"), [(300, 400), (300, None), (None, -5), (-9, -5)])
def test_limits_on_the_wrong_side_are_refused(low: Any, high: Any) -> None:
    """NumPy refuses a limit that no number of the dtype can meet, and so do we."""
    with pytest.raises(OverflowError):
        np.clip(U8, low, high)
    with pytest.raises(IntegerRangeError, match="does not fit uint8"):
        tnp.clip(tnp.asarray(U8), low, high)
    with pytest.raises(IntegerRangeError, match="does not fit uint8"):
        tb.jit(lambda x: tnp.clip(x, low, high))(U8)


def test_integers_beyond_the_default_dtype_are_not_wrapped() -> None:
    """A number that no default integer holds is a mistake, not a bit pattern."""
    x = tnp.asarray(U8)
    with pytest.raises(IntegerRangeError):
        tnp.where(MASK, x, 2**70)
    with pytest.raises(IntegerRangeError):
        tnp.pad(x, 1, constant_values=2**70)
    with pytest.raises(IntegerRangeError):
        tnp.isin(2**70, 2**70)


def test_padding_of_signed_integers_is_refused() -> None:
    """NumPy wraps the constants of a padding in unsigned dtypes alone."""
    with pytest.raises(OverflowError):
        np.pad(I8, 1, constant_values=200)
    with pytest.raises(IntegerRangeError):
        tnp.pad(tnp.asarray(I8), 1, constant_values=200)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint32"])
@pytest.mark.parametrize("number", [-2, 300, ~3])
def test_modular_arithmetic_takes_what_the_number_is_congruent_to(dtype: str, number: int) -> None:
    """Sums, products and bitwise operations are those of NumPy with the wrapped number."""
    x = np.array([1, 7, 100], dtype)
    wrapped = np.asarray(number).astype(dtype)

    def f(xp: Any, y: Any, n: Any) -> list[Any]:
        return [y + n, y - n, n - y, y * n, y & n, y | n, n ^ y, xp.full_like(y, n)]

    expected = f(np, x, wrapped)

    for actual in (f(tnp, tnp.asarray(x), number), tb.jit(lambda y: f(tnp, y, number))(x)):
        np.testing.assert_array_equal(expected, actual)
        assert actual[0].dtype == dtype
    np.testing.assert_array_equal(np.full(2, wrapped), tnp.full(2, number, dtype))


def test_numbers_that_mean_something_else_are_refused() -> None:
    """No wrapping where the result would not be congruent, or the number fits no integer."""
    x = tnp.asarray(U8)
    for call in (
        lambda: x + 2**40,
        lambda: tnp.maximum(x, -1),
        lambda: x // 300,
        lambda: tnp.full(3, 2**40, "uint8"),
        lambda: tnp.array(300, "uint8"),
    ):
        with pytest.raises(IntegerRangeError):
            call()


def test_other_errors_stay() -> None:
    """A sorted array of the wrong rank is reported as ever."""
    with pytest.raises(ShapeMismatchError):
        tnp.searchsorted(tnp.asarray(U8)[None], 300)


@pytest.mark.parametrize("right", [False, True])
def test_digitize_with_falling_edges_and_ties(right: bool) -> None:
    """Elements on an edge of falling bins go where NumPy puts them."""
    x = np.array([0, 1, 2, 200, 201, 255, 256])
    edges = np.array([255, 200, 1])
    expected = np.digitize(x, edges, right=right).tolist()
    assert expected == tnp.digitize(tnp.asarray(x), tnp.asarray(edges), right=right).tolist()
