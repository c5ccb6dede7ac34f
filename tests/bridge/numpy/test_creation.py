"""What asarray makes arrays of, and what it refuses."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

MAKERS: tuple[Callable[[Any], Any], ...] = (tnp.asarray, tnp.array, lambda x: tnp.array(x, float))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("given", [[None], [[1.0, None]], (None, tnp.ones(2)), [[], [None]]])
def test_none_is_no_number(make: Callable[[Any], Any], given: Any) -> None:
    """None in a sequence is refused, alone and beside numbers and arrays, never read as nan."""
    with pytest.raises(ValueError, match="None is no number"):
        make(given)


@pytest.mark.parametrize("make", [*MAKERS, tnp.sin, tb.device_put, tb.jit(lambda x: x)])
def test_masked_arrays_are_refused(make: Callable[[Any], Any]) -> None:
    """The elements under a mask never come to light."""
    with pytest.raises(ValueError, match=r"masked arrays are not supported, got .* \(2,\)"):
        make(np.ma.array([1.0, 2.0], mask=[False, True]))


@pytest.mark.parametrize(
    "given",
    [array.array("f", [1, 2]), memoryview(np.ones(2, np.float32)), bytearray(b"ab")],
    ids=["array", "memoryview", "bytearray"],
)
def test_objects_with_the_buffer_protocol_are_read(given: Any) -> None:
    """Elements and dtype are those that NumPy finds in the memory."""
    expected = np.asarray(memoryview(given))
    found = tnp.asarray(given)

    assert expected.dtype == found.dtype
    assert expected.tolist() == found.tolist()


@pytest.mark.parametrize(
    "make",
    [
        tnp.zeros,
        tnp.ones,
        tnp.empty,
        lambda s, d: tnp.full(s, 0, d),
        lambda s, d: tb.lax.full(s, 0, d),
    ],
)
def test_tangents_of_integers_are_made_on_the_host(make: Callable[..., Any]) -> None:
    """There is no float0 on devices."""
    found = make((2, 3), tb.float0)

    assert (tb.float0, (2, 3)) == (found.dtype, found.shape)


def test_scalars_of_programs_are_traced() -> None:
    """As arrays are: programs ask so whether they are being traced."""

    def traced(x: Any) -> list[bool]:
        made = tnp.ones(()), tnp.zeros((), int), tnp.empty(()), tnp.ones(3)
        return [isinstance(v, tb.core.Tracer) for v in made]

    kinds: list[Any] = []
    tb.make_jaxpr(lambda x: kinds.append(traced(x)))(1.0)
    assert [[True] * 4] == kinds
    assert [False] * 4 == traced(1.0)


def test_strings_are_numbers_where_a_dtype_is_given() -> None:
    """As in lists of them; without a dtype, and for what is no number, there is an error."""
    for given, dtype in (("3", "i4"), (" -7 ", "i4"), ("1.5", "f4"), ("nan", "f4"), ("2", "c8")):
        expected = np.asarray(given).astype(dtype)
        for found in (tnp.asarray(given, dtype), getattr(tnp, expected.dtype.name)(given)):
            assert (expected.dtype, ()) == (found.dtype, found.shape)
            np.testing.assert_array_equal(expected, found)
    with pytest.raises(TypeError, match="cannot convert '3' of type str"):
        tnp.asarray("3")
    with pytest.raises(ValueError, match="invalid literal"):
        tnp.int32("three")


@pytest.mark.parametrize("make", [tnp.zeros, tnp.ones, tnp.empty, lambda n: tnp.full(n, 1)])
def test_negative_sizes(make) -> None:
    """They are wrong shapes: a TypeError, as for all shapes, and a ValueError, as in NumPy."""
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match="a size of the shape is -1"):
            make((2, -1))


@pytest.mark.parametrize("x", [float("nan"), float("inf"), -1e20, [1.0, float("nan")]], ids=repr)
def test_floats_that_are_no_integers(x) -> None:
    """A Python float that has no whole part in the dtype is refused, as in NumPy."""
    for kind in (ValueError, OverflowError):
        with pytest.raises(kind, match="does not fit int32"):
            tnp.array(x, tnp.int32)
    assert tnp.array([2.5, -2.5], tnp.int32).tolist() == [2, -2]


@pytest.mark.parametrize(
    ("bounds", "dtype"),
    [
        ((70_000,), None),
        ((-5, 300_000, 3), np.int32),
        ((300_000, 5, -2), np.int16),
        ((1 << 17,), np.uint8),
        ((np.int32(7), 1 << 17), np.uint32),
        ((70_000.0,), None),
        ((-3.0, 70_000), np.float32),
        ((140_000, 0.5, -2.0), np.float32),
        ((70_000.5,), np.float32),
        ((70_000,), np.float32),
    ],
)
def test_long_ranges_are_operations_of_programs(bounds, dtype) -> None:
    """In a program a long range is no constant, and has NumPy's numbers, in its dtype."""

    def f():
        return tnp.arange(*bounds, dtype=dtype)

    expected = np.arange(*bounds)
    expected = expected.astype(dtype or {"i": np.int32, "f": np.float32}[expected.dtype.kind])

    assert "iota" in str(tb.make_jaxpr(f)())
    np.testing.assert_array_equal(expected, tb.jit(f)())
    for _ in range(2):  # the host makes those that were not asked for before
        made = f()
        np.testing.assert_array_equal(expected, made)
        assert (expected.dtype, False, False) == (made.dtype, made.weak_type, made.committed)


@pytest.mark.parametrize(
    "bounds", [(5000, -3, -1), (0.5, 6000), (2.0, 9000, 2), (2**31 - 5000, 2**31 - 1), (0, 9000, 1)]
)
@pytest.mark.parametrize("dtype", [None, np.int8, np.float32, np.complex64])
def test_ranges_of_thousands_have_the_numbers_of_numpy(bounds, dtype) -> None:
    """Whether NumPy made them in the dtype that was asked for or in its own."""
    expected = np.arange(*bounds)
    kind = dtype or {"i": np.int32, "f": np.float32}[expected.dtype.kind]

    np.testing.assert_array_equal(expected.astype(kind), tnp.arange(*bounds, dtype=dtype))


@pytest.mark.parametrize(
    "bounds",
    [
        (np.uint64(2**63), np.uint64(2**63 + 5)),
        (np.uint64(2**63 + 9), np.uint64(2**63), -3),
        (np.uint64(2**64 - 3), np.uint64(2**64 - 1), np.uint8(2)),
        (np.int64(-3), np.uint64(2)),
    ],
)
def test_ranges_of_large_unsigned_numbers_are_exact(bounds) -> None:
    """Mixed with signed numbers, where NumPy counts in float64, too."""
    with tb.enable_x64(True):
        assert list(range(*map(int, bounds))) == tnp.arange(*bounds).tolist()


def test_long_ranges_of_floats_are_rounded_once() -> None:
    """Beyond 2**24, where float32 has no odd numbers, they are the nearest ones to NumPy's."""
    n, tail = 2**24 + 9, 12
    found = tb.jit(lambda: tnp.arange(float(n))[-tail:])()
    np.testing.assert_array_equal(np.arange(n - tail, n).astype(np.float32), found)

    shifted = tb.jit(lambda: tnp.arange(2.0**24, 2.0**24 + 70_000, 3.0)[:tail])()
    np.testing.assert_array_equal(np.arange(2**24, 2**24 + 36, 3).astype(np.float32), shifted)


def test_shapes_of_ranges_need_no_memory() -> None:
    """A range that no machine has room for has a shape."""
    for size in (10**9, 1e9):
        shape = tb.eval_shape(lambda x, size=size: x + tnp.arange(size), 1).shape

        assert (10**9,) == shape


@pytest.mark.parametrize("copied", [tnp.array, tnp.copy, lambda x: x.copy()])
def test_copies_within_eager_derivatives_have_memory_of_their_own(copied: Any) -> None:
    """Who gives the operand away keeps the copy; programs have no copy: their results are."""
    x = tnp.arange(3.0)
    value, tangent = tb.jvp(copied, (x,), (x,))
    found = [value, tangent, tb.vjp(copied, x)[0], tb.vmap(copied)(x)]

    assert x.unsafe_buffer_pointer() not in {v.unsafe_buffer_pointer() for v in found}
    assert "copy" not in str(tb.make_jaxpr(tnp.array)(x))
    x.delete()
    assert [[0.0, 1.0, 2.0]] * 4 == [v.tolist() for v in found]


@pytest.mark.parametrize("like", [tnp.zeros_like, tnp.ones_like, lambda x: tnp.full_like(x, 2)])
def test_arrays_like_what_stands_for_an_array(like: Callable[[Any], Any]) -> None:
    """They are where that array is, if somebody has put it there."""
    put = tb.device_put(tnp.ones(2), tb.devices()[0])
    stand_in = type("StandIn", (), {"__jax_array__": lambda self: put, "shape": (2,)})()
    assert put.committed

    assert like(put).committed
    assert like(stand_in).committed
    assert like(stand_in).sharding == put.sharding
