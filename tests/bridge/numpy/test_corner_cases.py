"""Corners of the documented API: traced offsets, modes, empty inputs, dtypes, methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod"])
def test_running_sums_of_a_number(name: str, axis: int | None) -> None:
    """A number is one element along an axis of its own, as in NumPy; the array API has none."""
    assert getattr(np, name)(2.5, axis=axis).tolist() == getattr(tnp, name)(2.5, axis).tolist()
    with pytest.raises(tb.errors.AxisError, match=r"cumsum: axis 1"):
        tnp.cumsum(2.5, 1)
    with pytest.raises(tb.errors.AxisError, match=r"cumulative_sum: axis 0 .* dimension 0"):
        tnp.cumulative_sum(2.5, axis=0)


@pytest.mark.parametrize("name", ["eye", "tri"])
def test_offsets_of_diagonals_may_be_traced(name: str) -> None:
    """Under jit and vmap the matrix is that of the plain integer."""
    function = getattr(tnp, name)
    offsets = np.array([-4, -1, 0, 2, 5], np.int8)
    expected = np.stack([getattr(np, name)(3, 4, k, np.int32) for k in offsets.tolist()])

    mapped = tb.vmap(lambda k: function(3, 4, k, int))(tnp.asarray(offsets))
    traced = tb.jit(lambda k: function(3, 4, k=k, dtype=int))(2)

    np.testing.assert_array_equal(expected, mapped)
    np.testing.assert_array_equal(expected[3], traced)
    with pytest.raises(TypeError, match="expected one integer"):
        tb.jit(lambda k: function(3, 4, k))(1.5)


@pytest.mark.parametrize("dtype", ["int8", "bool", "int16", "uint32", "float16", "float32"])
def test_byteswap_is_that_of_numpy(dtype: str) -> None:
    """The bytes of each element in reverse, of vectors, scalars and nothing."""
    for values in ([1, 0, 3], 1, []):
        x = np.array(values, dtype)
        swapped = tnp.asarray(x).byteswap()
        assert x.byteswap().tobytes() == np.asarray(swapped).tobytes()
    z = np.array([1 + 2j], np.complex64)
    assert z.byteswap().tobytes() == np.asarray(tb.jit(lambda v: v.byteswap())(z)).tobytes()
    with pytest.raises(ValueError, match="immutable"):
        tnp.ones(2).byteswap(inplace=True)


def test_take_along_axis_as_by_one_hot_vectors() -> None:
    """The mode one_hot gives zeros out of bounds, and counts from the end for negative indices."""
    x = tnp.arange(6.0).reshape(2, 3)
    found = tnp.take_along_axis(x, tnp.array([[2, -1], [0, 5]]), 1, mode="one_hot")
    np.testing.assert_array_equal([[2.0, 2.0], [3.0, 0.0]], found)


def test_take_along_axis_counts_from_the_end_unless_told_not_to() -> None:
    """``wrap_negative_indices=None`` is the default."""
    x, i = tnp.arange(6.0).reshape(2, 3), tnp.array([[-1], [0]])
    for wrap, expected in [(None, 2.0), (True, 2.0), (False, NAN)]:
        found = tnp.take_along_axis(x, i, 1, mode="fill", wrap_negative_indices=wrap)
        np.testing.assert_array_equal([[expected], [3.0]], found)


def test_ravel_multi_index_without_checks() -> None:
    """The mode ignore calculates with what is given, traced too."""
    ravel = tb.jit(lambda i, j: tnp.ravel_multi_index((i, j), (2, 3), mode="ignore"))
    assert [5, 14] == ravel(tnp.array([1, 5]), tnp.array([2, -1])).tolist()
    with pytest.raises(ValueError, match="mode="):
        tnp.ravel_multi_index((1, 1), (2, 3), mode="fill")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
def test_unravel_index_keeps_the_dtype(dtype: str) -> None:
    """Positions have the dtype of the indices, a Python int stays weak."""
    rows, columns = tnp.unravel_index(tnp.array([5, 1], dtype), (200, 3))
    assert (dtype, dtype) == (rows.dtype.name, columns.dtype.name)
    assert ([1, 0], [2, 1]) == (rows.tolist(), columns.tolist())
    assert tnp.unravel_index(5, (2, 3))[0].weak_type
    assert not tnp.choose(1, (10, 20)).weak_type


def test_the_last_of_a_linspace_is_its_end() -> None:
    """Also beside infinities and NaN; truth values are not rounded down."""
    for start, stop in ((-INF, INF), (NAN, 1.0), (0.1, 0.7)):
        with np.errstate(all="ignore"):
            expected = np.linspace(start, stop, 3, dtype=np.float32)
        np.testing.assert_allclose(tnp.linspace(start, stop, 3), expected, rtol=1e-6)
        assert np.float32(stop) == tnp.linspace(start, stop, 7)[-1]
    assert [False, True, True] == tnp.linspace(0, 1, 3, dtype=bool).tolist()
    assert [-3, -1, 1, 3] == tnp.linspace(-3, 3, 4, dtype="int8").tolist()


def test_spreads_with_few_degrees_of_freedom_and_other_dtypes() -> None:
    """No estimate without degrees of freedom; whole dtypes mean floats; complex stays whole."""
    x = tnp.array([1.0, 2.0])
    for name in ("var", "std", "nanvar", "nanstd"):
        function = getattr(tnp, name)
        assert np.isnan([function(x, ddof=2), function(x, ddof=3)]).all()
        assert function(x, dtype="int32").dtype == tnp.float32
        complexes = np.array([1, 2j], np.complex64)
        expected = getattr(np, name)(complexes)
        np.testing.assert_allclose(function(complexes, dtype="float32"), expected, rtol=1e-6)
    assert 0.5 == float(tnp.var(x, ddof=tnp.array(1)))
    everywhere = tnp.ones(2, bool)
    assert 1 == int(tnp.mean(x, dtype="int32", where=everywhere))
    assert 1 == int(tnp.nanmean(x, dtype="int32"))
    assert np.isnan(tnp.cov(tnp.zeros((3, 0)))).all()
    rows, less = tnp.array([[1.0, 2, 3], [3.0, 1, 2]]), tnp.array([1, -2, 1])
    np.testing.assert_allclose(
        tnp.cov(rows, fweights=less), np.cov(np.asarray(rows), fweights=[1, 2, 1]), rtol=1e-6
    )
    with pytest.raises(TypeError, match="fweights"):
        tnp.cov(rows, fweights=tnp.array([1.0, 2.0, 1.0]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_averages_of_half_precision(dtype: str) -> None:
    """Sums above the largest number of the dtype, of equal weights or given ones."""
    ones = tnp.ones(70000, dtype)
    assert 1.0 == float(tnp.average(ones)) == float(tnp.average(ones, weights=ones))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_exponents_of_subnormal_numbers(dtype: str) -> None:
    """Spacing and frexp are NumPy's where arithmetic of XLA sees zeros."""
    with tb.enable_x64(True):
        info = np.finfo(dtype)
        tiny, least = float(info.tiny), float(info.smallest_subnormal)
        values = [0.0, least, 3 * least, tiny / 2, tiny, 1.5 * tiny, 1.0, 2.5, float(info.max)]
        x = np.array([*values, *[-v for v in values[1:]], INF, -INF, NAN], dtype)
        with np.errstate(all="ignore"):
            spacing, (mantissa, exponent) = np.spacing(x), np.frexp(x)
        finite = np.isfinite(x)

        mine = tnp.frexp(tnp.asarray(x))

        # NumPy takes the spacing of negative halves on their other side.
        kept = (x >= 0) | (dtype != "float16")
        np.testing.assert_array_equal(spacing[kept], np.asarray(tnp.spacing(tnp.asarray(x)))[kept])
        np.testing.assert_array_equal(mantissa, mine[0])
        np.testing.assert_array_equal(exponent[finite], np.asarray(mine[1])[finite])


def test_the_mantissa_has_a_derivative() -> None:
    """That of multiplying by a power of two, in both modes."""
    for x in (3.0, -3.0, 0.1, 6e5):
        expected = float(np.frexp(x)[0] / x)
        np.testing.assert_allclose(tb.grad(lambda v: tnp.frexp(v)[0])(x), expected, rtol=1e-6)
        np.testing.assert_allclose(
            tb.jvp(lambda v: tnp.frexp(v)[0], (x,), (1.0,))[1], expected, rtol=1e-6
        )


def test_masks_without_elements_select_nothing() -> None:
    """Whatever the shape of the array."""
    x = tnp.arange(6.0).reshape(2, 3)
    assert (0, 3) == x[np.zeros(0, bool)].shape
    assert (0,) == x[np.zeros((0, 3), bool)].shape == x[tnp.zeros((2, 0), bool)].shape
    assert (0, 3) == tnp.zeros((0, 3))[np.zeros(0, bool)].shape


def test_logical_reductions_begin_with_what_is_given() -> None:
    """The value initial counts like an element."""
    x = tnp.array([[0.0, 1.0], [2.0, 3.0]])
    assert [False, False] == tnp.logical_and.reduce(x, initial=False).tolist()
    assert [False, True] == tnp.logical_and.reduce(x, initial=1.5).tolist()
    assert [True, True] == tnp.logical_or.reduce(x, initial=True).tolist()
    assert tnp.logical_or.reduce(x, axis=None, initial=0)
    assert [[False], [True]] == tnp.logical_and.reduce(x, 1, keepdims=True).tolist()
    none = tnp.zeros(x.shape, bool)
    assert [True, True] == tnp.logical_and.reduce(x, where=none, initial=True).tolist()


def test_numbers_without_a_result_are_errors() -> None:
    """A negative power of Python integers is refused, as that of arrays; counts of nothing are."""
    with pytest.raises(TypeError, match="negative powers"):
        tnp.power(2, -1)
    assert 8 == int(tnp.power(2, 3))
    assert [] == tnp.bincount(tnp.array([], int)).tolist()
    assert [0, 0] == tnp.bincount(tnp.array([], int), minlength=2).tolist()


def test_universal_functions_are_values() -> None:
    """Made of the same parts they are equal and hash alike; their attributes cannot be set."""

    def add(x: Any, y: Any) -> Any:
        return x + y

    one, same = (tnp.frompyfunc(add, 2, 1) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != tnp.frompyfunc(add, 2, 1, identity=0)
    assert one != tnp.frompyfunc(lambda x, y: x + y, 2, 1)
    for name in ("nin", "nout", "nargs", "identity"):
        with pytest.raises(AttributeError):
            setattr(one, name, 3)
    assert (2, 1, 2, None) == (one.nin, one.nout, one.nargs, one.identity)


@pytest.mark.parametrize("exponents", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_ldexp_takes_every_exponent_of_its_dtype(dtype: str, exponents: str) -> None:
    """The least and the greatest number of each integer dtype is an exponent like any other."""
    ends = [np.iinfo(exponents).min, np.iinfo(exponents).max, 100, 200]
    n = np.array([e for e in ends if e <= np.iinfo(exponents).max], exponents)
    for x in np.array([1.5, -255.0], dtype):
        with np.errstate(all="ignore"):
            expected = np.ldexp(x, np.clip(n.astype("i8"), -9999, 9999).astype("i4"))
        expected[abs(expected) < np.finfo(dtype).tiny] = 0  # XLA takes subnormal numbers for zero
        actual = np.array(tnp.ldexp(x, n))
        actual[abs(actual) < np.finfo(dtype).tiny] = 0

        assert expected.tolist() == actual.tolist()


class Parts:
    """A sequence of arrays that is neither a list nor an array, though it has shapes."""

    shape = ((2,), (3,))

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, i: int) -> Any:
        return self.parts[i]


@pytest.mark.parametrize(
    "name", ["concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"]
)
def test_sequences_of_users_are_joined(name: str) -> None:
    """Their elements are what is joined."""
    parts = np.ones(2, np.float32), np.zeros(2, np.float32)

    np.testing.assert_array_equal(getattr(np, name)(parts), getattr(tnp, name)(Parts(*parts)))


def test_slopes_over_complex_spacings() -> None:
    """The imaginary part of spacings counts, for real numbers too."""
    f, z = np.array([0.0, 1.0, 4.0], np.float32), np.array([0.5j, 1.0, 1 + 2j], np.complex64)

    assert np.array_equal([-1j, -2j, -3j], tnp.gradient(f, 1j))
    expected = np.gradient(f.astype(np.complex64), z)
    np.testing.assert_allclose(np.asarray(tnp.gradient(f, z)), expected, rtol=1e-6)


@pytest.mark.parametrize("function", [tnp.rint, tnp.angle])
def test_small_integers_become_floats_of_the_default_size(function: Any) -> None:
    """As in NumPy, with 64 bits on."""
    with tb.enable_x64():
        assert np.float64 == function(np.ones(2, np.int32)).dtype
    assert np.float32 == function(np.ones(2, np.int32)).dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_rounding_to_more_digits_than_there_are_changes_nothing(dtype: str) -> None:
    """And to fewer than none gives zeros, whatever powers of ten the dtype can hold."""
    x = tnp.asarray(np.array([1.25, -7.5, INF, NAN]), dtype=dtype)

    for decimals in (38, 100, 1000):
        np.testing.assert_array_equal(*(v.astype("complex64") for v in (x, tnp.round(x, decimals))))
    for decimals in (-38, -1000):
        rounded = tnp.round(x, decimals).real.astype("float32")
        np.testing.assert_array_equal([0, 0, INF, NAN], rounded)
    assert tnp.asarray(10.5, dtype="float16") == tnp.round(tnp.asarray(10.5, dtype="float16"), 4)


@pytest.mark.parametrize("decimals", [1, 2, 3, -1, -2])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_of_narrow_numbers_are_those_of_numpy(dtype: str, decimals: int) -> None:
    """What is rounded has the digits of the dtype: 0.85 times 10 is 8.5, and 8 the even neighbour.

    Where the product overflows in NumPy, the number has no digits to round.
    """
    x = np.arange(2**16, dtype=np.uint16).view(tnp.dtype(dtype))
    with np.errstate(all="ignore"):
        x = x[np.isfinite(x)]
        expected = np.round(x, decimals)
        if decimals > 0:
            expected = np.where(np.isfinite(expected), expected, x)

    np.testing.assert_array_equal(expected, np.asarray(tnp.round(x, decimals)))


def test_thousands_are_whole() -> None:
    """No float is 1/1000, by which one might divide."""
    x = np.arange(5000, dtype=np.float32) * 1000

    np.testing.assert_array_equal(x, np.asarray(tnp.round(x + 123, -3)))


def test_grids_of_whole_and_broken_numbers() -> None:
    """They are promoted as arrays are, without a word about 64 bits; no range gives no numbers."""
    grid = tnp.mgrid[0:1:3j, 2:4]

    assert np.float32 == grid.dtype
    assert [[[0, 0], [0.5, 0.5], [1, 1]], [[2, 3]] * 3] == grid.tolist()
    assert (0,) == tnp.mgrid[()].shape
    assert [] == tnp.ogrid[()]


def test_offsets_of_any_size_have_a_matrix() -> None:
    """Of zeros, beyond the corners."""
    for k in (2**100, -(2**100), 5, -5):
        assert not np.asarray(tnp.eye(4, 3, k=k)).any()
    assert [[0, 1], [0, 0]] == tnp.eye(2, k=1).tolist()


def test_whole_numbers_that_are_differentiated_cut_arrays() -> None:
    """As the integers that they stand for; others are an error that says so."""
    x = np.arange(6.0, dtype=np.float32)
    for split in (lambda i: tnp.split(x, i)[0], lambda i: tnp.split(x, [1, i + 1])[1]):
        primal, tangent = tb.jvp(split, (2.0,), (1.0,))
        assert (primal.size, not tangent.any()) in ((3, True), (2, True))
    with pytest.raises(TypeError, match="expected an int"):
        tb.jvp(lambda i: tnp.split(x, i)[0], (2.5,), (1.0,))


def test_lists_take_the_dtype_of_the_numpy_numbers_in_them() -> None:
    """Numbers of Python in them are weakly typed, as in arithmetic."""
    assert np.int16 == tnp.array([0, np.int16(1)]).dtype
    assert np.float16 == tnp.array([[0.0], [np.float16(1)]]).dtype
    assert np.float32 == tnp.array([np.int32(1), np.float32(2)]).dtype


def test_arrays_are_read_as_numbers_of_four_bits() -> None:
    """Two of each byte, the low one first, and back."""
    x = np.array([1.5, -2.0], np.float32)
    halves = tnp.asarray(x).view("uint4")
    octets = x.view(np.uint8)

    assert np.stack([octets & 15, octets >> 4], 1).ravel().tolist() == halves.tolist()
    assert x.tolist() == halves.view("float32").tolist()


def test_positions_have_the_dtype_of_their_indices() -> None:
    """If it holds all of them."""
    i = np.array([1, 2], np.int8)

    assert np.int8 == tnp.ravel_multi_index((i, i), (3, 5), mode="wrap").dtype
    large = tnp.ravel_multi_index((i, i), (30, 50), mode="wrap")
    assert ("int32", [51, 102]) == (large.dtype, large.tolist())


def test_a_given_length_decides_how_much_is_counted() -> None:
    """Whatever the least size."""
    assert [1, 2, 0] == tnp.bincount(np.array([0, 1, 1, 7]), minlength=9, length=3).tolist()


@pytest.mark.parametrize(("num", "endpoint"), [(0, True), (1, True), (0, False)])
def test_no_step_is_a_single_nan(num: int, endpoint: bool) -> None:
    """As in NumPy, however many ranges there are."""
    ends = np.zeros(2, np.float32), np.ones(2, np.float32)
    _, expected = np.linspace(*ends, num, endpoint=endpoint, retstep=True)
    _, step = tnp.linspace(*ends, num, endpoint=endpoint, retstep=True)

    assert np.shape(expected) == step.shape
    assert np.isnan(step)


def test_keys_are_close_to_themselves_only() -> None:
    """Typed keys have no distances."""
    keys = tb.random.split(tb.random.key(0))

    assert [True, False] == tnp.isclose(keys, keys[0]).tolist()


def test_divisors_of_the_least_integer_are_positive() -> None:
    """Its absolute value overflows; what divides it and another number does not."""
    least = np.array([-128, 127], np.int8)

    assert np.gcd(least, least[::-1]).tolist() == tnp.gcd(least, least[::-1]).tolist()
    assert 4 == int(tnp.gcd(np.int8(-128), 12))


@pytest.mark.parametrize("name", ["argmax", "argmin", "nanargmax", "nanargmin"])
def test_positions_of_complex_extremes(name: str) -> None:
    """Complex numbers are ordered by their real parts first; NaN as of floats."""
    x = np.array([[1 + 2j, 3 - 1j, 3 + 1j, 1 + 1j], [2, complex(NAN, 1), 3, 1]], np.complex64)

    for axis in (None, 0, 1):
        expected = getattr(np, name)(x, axis=axis)
        np.testing.assert_array_equal(expected, getattr(tnp, name)(x, axis=axis))


def test_complex_numbers_where_real_results_are_asked_for() -> None:
    """A start that the result cannot hold is refused; a number loses its imaginary part."""
    with pytest.raises(TypeError, match="sum: initial= is complex"):
        tnp.sum(tnp.ones(3), initial=1j)
    assert tnp.sum(1.5 + 2j, dtype="float32") == 1.5
    assert tnp.bool_(1j)


def test_powers_that_are_whole_are_so_as_integers() -> None:
    """Rounding errors of the exponential do not take the next lower integer."""
    assert [2**i for i in range(9)] == tnp.geomspace(1, 256, 9, dtype=int).tolist()
    assert [10**i for i in range(7)] == tnp.logspace(0, 6, 7, dtype=int).tolist()
    assert [1, 2, 5, 11, 25] == tnp.geomspace(1, 25, 5, dtype=int).tolist()


def test_vectorized_functions_take_lists() -> None:
    """As NumPy's do."""
    assert [2, 3] == tnp.vectorize(lambda x: x + 1)([1, 2]).tolist()


@pytest.mark.parametrize(
    "sort", [tnp.argsort, lambda x: tnp.lexsort((x,)), tnp.argmax, tnp.argmin, tnp.nanargmax]
)
def test_positions_of_long_axes(sort: Any) -> None:
    """Positions that int32 cannot count have 64 bits, or are refused."""
    long = tb.ShapeDtypeStruct((2**31 + 1,), np.int8)

    with pytest.raises(ValueError, match="do not fit int32"):
        tb.eval_shape(sort, long)
    with tb.enable_x64(True):
        assert "i32" not in str(tb.make_jaxpr(sort)(long))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("spacing", [None, 2.0, "coordinates"])
def test_gradient_of_second_order_at_the_ends(spacing: Any, axis: int) -> None:
    """As in NumPy, and exact for a parabola."""
    rng = np.random.default_rng(0)
    f = rng.normal(size=(3, 5)).astype("f4")
    coordinates = np.cumsum(rng.uniform(0.5, 1.5, f.shape[axis])).astype("f4")
    more = {"None": (), "2.0": (2.0,), "coordinates": (coordinates,)}[str(spacing)]

    actual = tnp.gradient(f, *more, axis=axis, edge_order=2)

    np.testing.assert_allclose(
        np.gradient(f, *more, axis=axis, edge_order=2), actual, rtol=1e-4, atol=1e-5
    )
    parabola = tnp.gradient(coordinates**2, coordinates, edge_order=2)
    np.testing.assert_allclose(2 * coordinates, parabola, rtol=1e-4)
    with pytest.raises(ValueError, match="fewer than three"):
        tnp.gradient(f[:, :2], axis=1, edge_order=2)
