"""Reductions agree with NumPy over dtypes and axes, and all their rules agree."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import AxisError
from tracebridge.testing import assert_allclose, check_rules

BF16 = np.dtype(ml_dtypes.bfloat16)
AXES = [(0,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]
ARITHMETIC = {
    "sum": (lax.reduce_sum, np.sum),
    "prod": (lax.reduce_prod, np.prod),
    "max": (lax.reduce_max, np.max),
    "min": (lax.reduce_min, np.min),
}
BITWISE = {
    "and": (lax.reduce_and, np.bitwise_and),
    "or": (lax.reduce_or, np.bitwise_or),
    "xor": (lax.reduce_xor, np.bitwise_xor),
}


def sample(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    """Small numbers, so that integer products do not overflow; booleans of both kinds."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return random.integers(0 if dtype.kind == "u" else -2, 3, shape).astype(dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    x = random.uniform(0.5, 1.5, shape) * random.choice([-1, 1], shape)
    if dtype.kind == "c":
        return (x + 1j * random.uniform(-1, 1, shape)).astype(dtype)
    return x.astype(dtype)


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_all_rules_agree(name: str, axes: tuple[int, ...]) -> None:
    """Value, staging, jit, first and second derivatives, and batching."""
    ours, numpys = ARITHMETIC[name]

    check_rules(
        lambda x: ours(x, axes),
        sample(2, 3, 4),
        reference=lambda x: numpys(x.astype(np.float64), axis=axes),
        atol=1e-5,
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_integers(name: str, dtype: str) -> None:
    """Integers keep their dtype and wrap around, as in NumPy with that dtype."""
    ours, numpys = ARITHMETIC[name]
    extra = {"dtype": dtype} if name in ("sum", "prod") else {}
    x = sample(3, 40, dtype=dtype) if name != "sum" else np.full((3, 40), 100, dtype)

    with enable_x64():
        check_rules(
            lambda x: ours(x, (1,)), x, reference=lambda x: numpys(x, axis=1, **extra), order=0
        )


@pytest.mark.parametrize("axes", [(1,), (0, 1), (0,)], ids=str)
@pytest.mark.parametrize("columns", [10_000, 9_999, 10_004])
@pytest.mark.parametrize("name", ["max", "min"])
def test_long_rows_of_integers(name: str, columns: int, axes: tuple[int, ...]) -> None:
    """Rows that are reduced in lanes, and rows whose length does not allow it."""
    ours, numpys = ARITHMETIC[name]
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (4, columns)).astype(np.int32)

    assert_allclose(ours(x, axes), numpys(x, axis=axes), check_dtype=True)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_complex(name: str, dtype: str) -> None:
    """Complex numbers are ordered by their real part, then by the imaginary part."""
    ours, numpys = ARITHMETIC[name]
    x = sample(3, 4, dtype=dtype)
    check_rules(
        lambda x: ours(x, (1,)), x, reference=lambda x: numpys(x, axis=1), atol=1e-5, order=1
    )

    x[1, 2] = x[1, 1].real + 5j
    x[2, 0] = complex(x[2, 1].real, -7)
    assert_allclose(ours(x, (1,)), numpys(x, axis=1), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=str)
def test_narrow_floats_are_summed_in_float32(dtype: Any) -> None:
    """The sum of many equal numbers is that of a wide accumulator, rounded once."""
    x = np.full(10_000, 1.25, dtype)

    assert float(np.float64(12_500).astype(dtype)) == float(lax.reduce_sum(x, (0,)))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("name", BITWISE)
def test_bitwise(name: str, dtype: str) -> None:
    """Bits are combined as by NumPy's ufuncs, also over no elements."""
    ours, ufunc = BITWISE[name]
    random = np.random.default_rng(0)
    x = random.integers(0, 100, (3, 5)).astype(dtype)

    check_rules(lambda x: ours(x, (1,)), x, reference=lambda x: ufunc.reduce(x, axis=1), order=0)
    empty = np.zeros((2, 0), dtype)
    assert_allclose(ours(empty, (1,)), ufunc.reduce(empty, axis=1), check_dtype=True)


@pytest.mark.parametrize("name", ["max", "min"])
def test_booleans_have_extremes(name: str) -> None:
    """The largest boolean is the "or", the smallest the "and"."""
    ours, numpys = ARITHMETIC[name]

    check_rules(
        lambda x: ours(x, (0,)), sample(4, 5, dtype=bool), reference=lambda x: numpys(x, axis=0)
    )


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("sum", "float32", 0.0),
        ("prod", "int32", 1),
        ("max", "float32", -np.inf),
        ("min", "float16", np.inf),
        ("max", "int8", -128),
        ("min", "uint8", 255),
        ("max", "bool", False),
        ("min", "bool", True),
        ("max", BF16, -np.inf),
        ("max", ml_dtypes.float8_e4m3fn, -448.0),
    ],
)
def test_no_elements_give_the_identity(name: str, dtype: Any, expected: Any) -> None:
    """Without elements the result is what changes nothing."""
    ours, _ = ARITHMETIC[name]
    result = np.asarray(ours(np.zeros((0, 2), dtype), (0,)))

    assert [expected, expected] == result.astype(type(expected)).tolist()
    assert np.dtype(dtype) == result.dtype


@pytest.mark.parametrize("dtype", ["float32", "float64", BF16, "complex64"], ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_wins(name: str, dtype: Any) -> None:
    """One NaN makes the extreme NaN, wherever it is."""
    for position in range(5):
        x = np.arange(5).astype(dtype)
        x[position] = np.nan
        result = np.asarray(ARITHMETIC[name][0](x, (0,)))

        assert bool(np.isnan(result.astype(np.complex64)))
        if dtype == "complex64":
            x[position] = complex(2, np.nan)

            assert bool(np.isnan(np.asarray(ARITHMETIC[name][0](x, (0,)))))


# Every way in which extremes are lowered: lanes with and without remainder, short rows, columns.
LARGE = [
    ((40_000,), (0,)),
    ((40, 1000), (1,)),
    ((1000, 40), (0,)),
    ((300, 127), (1,)),
    ((3000, 10), (1,)),
    ((20, 30, 50), (0, 2)),
    ((20, 30, 50), (1, 2)),
    ((5, 6, 7, 20), (1, 2)),
    ((5, 6, 7, 4, 3, 10), (0, 2, 3, 4)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", BF16], ids=str)
@pytest.mark.parametrize(("shape", "axes"), LARGE, ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_wins_in_large_arrays(
    name: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any
) -> None:
    """Large arrays are reduced by other code, which must not lose NaNs of either sign."""
    ours, numpys = ARITHMETIC[name]
    random = np.random.default_rng(0)
    for nan in (np.nan, -np.nan):
        x = random.integers(-100, 100, shape).astype(np.float64)
        x.reshape(-1)[random.integers(0, x.size, 3)] = nan

        assert_allclose(ours(x.astype(dtype), axes), numpys(x, axis=axes))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("max", "f4"), ("min", "i4"), ("prod", "f4"), ("sum", "i4"), ("sum", "c8"), ("and", "?")],
)
def test_reductions_of_axes_before_the_last_take_one_loop_each(name: str, dtype: str) -> None:
    """Neighbours are joined and others follow each other: loops in loops are no vector code."""
    x = np.random.default_rng(0).integers(0, 3, (8, 12, 7, 5, 8)).astype(dtype)
    ours, numpys = {**ARITHMETIC, "and": (lax.reduce_and, np.logical_and.reduce)}[name]

    for axes in ((1, 2), (0, 2), (0, 1, 3)):
        reduced = tb.jit(lambda x, axes=axes: ours(x, axes))

        assert_allclose(reduced(x), numpys(x, axis=axes).astype(dtype))
        text = reduced.lower(x).as_text()
        found = [dims.split(",") for dims in re.findall(r"across dimensions = \[(.*?)\]", text)]
        assert {1} == {len(dims) for dims in found}


@pytest.mark.parametrize("zeros", [(), (2,), (1, 3)], ids=str)
def test_product_has_the_right_derivative_at_zeros(zeros: tuple[int, ...]) -> None:
    """Gradient and Hessian of a product are products of the others, with any number of zeros."""
    x = np.array([2.0, -3.0, 5.0, 0.5, 4.0])
    x[list(zeros)] = 0.0

    def others(*left_out: int) -> float:
        return float(np.prod([v for i, v in enumerate(x) if i not in left_out]))

    def f(x: Any) -> Any:
        return lax.reduce_prod(x, (0,))

    with enable_x64():
        gradient = tb.grad(f)(x)
        hessian = [tb.jvp(tb.grad(f), (x,), (np.eye(5)[i],))[1].tolist() for i in range(5)]

    assert_allclose(gradient, np.array([others(i) for i in range(5)]))
    expected = [[0.0 if i == j else others(i, j) for j in range(5)] for i in range(5)]
    assert_allclose(np.array(hessian), np.array(expected))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 13])
def test_product_derivative_at_every_length(n: int) -> None:
    """The tree of pairs has odd remainders at different levels."""
    x = sample(2, n, seed=n)

    check_rules(lambda x: lax.reduce_prod(x, (1,)), x, order=2, vmap=False)


def test_product_of_nothing_has_no_derivative() -> None:
    """The derivative with respect to no elements has no elements."""
    gradient = tb.grad(lambda x: lax.reduce_sum(lax.reduce_prod(x, (1,)), (0,)))(
        np.zeros((3, 0), np.float32)
    )

    assert (3, 0) == gradient.shape


@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_share_the_derivative(name: str) -> None:
    """Equal extremes get equal parts of the derivative."""
    x = np.array([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0]], np.float32)
    if name == "min":
        x = -x

    gradient = tb.grad(lambda x: lax.reduce_sum(ARITHMETIC[name][0](x, (1,)), (0,)))(x)

    assert [[0.0, 0.5, 0.5, 0.0], [0.25, 0.25, 0.25, 0.25]] == gradient.tolist()


def test_tangents_of_losers_do_not_matter() -> None:
    """An infinite tangent of an element that is not the largest changes nothing."""
    x = np.array([1.0, 2.0], np.float32)
    t = np.array([np.inf, 3.0], np.float32)

    _, tangent = tb.jvp(lambda x: lax.reduce_max(x, (0,)), (x,), (t,))

    assert 3.0 == float(tangent)


def test_no_axes_is_the_identity() -> None:
    """Reducing no axes returns the operand."""
    x = tb.device_put(np.ones((2, 3), np.float32))

    assert lax.reduce_sum(x, ()) is x


def test_negative_axes_count_from_the_end() -> None:
    """Axis -1 is the last one."""
    x = sample(2, 3)

    assert_allclose(lax.reduce_sum(x, (-1,)), x.sum(-1))


def test_errors_name_the_operation() -> None:
    """Wrong dtypes and axes are refused with the name of the function."""
    x = np.ones((2, 3), np.float32)
    with pytest.raises(UnsupportedDtypeError, match="reduce_sum does not accept dtype bool"):
        lax.reduce_sum(x > 0, (0,))
    with pytest.raises(UnsupportedDtypeError, match="it works on booleans and integers"):
        lax.reduce_and(x, (0,))
    with pytest.raises(AxisError, match="reduce_max: axis 2 is out of bounds"):
        lax.reduce_max(x, (2,))
    with pytest.raises(AxisError, match="name an axis twice"):
        lax.reduce_max(x, (1, -1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1 << 14, 20000, 10**5, 1 << 17, 10**6, 131101])
def test_extremes_of_a_long_row(n: int, dtype: type) -> None:
    """In parts for threads or not, a NaN wins and nothing is left out."""
    x = np.random.default_rng(n).standard_normal(n).astype(dtype)
    broken = x.copy()
    broken[n // 3] = np.nan

    with enable_x64(True):
        assert lax.reduce_max(x, (0,)).item() == x.max()
        assert lax.reduce_min(x, (0,)).item() == x.min()
        assert np.isnan(lax.reduce_max(broken, (0,)).item())
        assert np.isnan(lax.reduce_min(broken, (0,)).item())
