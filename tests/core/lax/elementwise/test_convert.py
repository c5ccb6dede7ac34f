"""Conversions: 64-bit requests, warnings, literals, bit patterns, precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tracebridge.core import lax
from tracebridge.core.dtypes import dtypes as d
from tracebridge.core.errors.dtype_errors import ExplicitX64Warning
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal, literal
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.testing import check_rules


def test_explicit_64_bit_requests_warn_and_give_32_bits() -> None:
    """The public function follows the 64-bit rule; the engine's own does not."""
    x = as_value(np.arange(3))
    with pytest.warns(ExplicitX64Warning, match="dtype float64 is not available in convert"):
        assert lax.convert_element_type(x, np.float64).dtype == np.float32
    with pytest.warns(ExplicitX64Warning, match="bitcast_convert_type"):
        assert lax.bitcast_convert_type(x, np.uint64).dtype == np.uint32

    assert lax.convert_dtype(x, d.float64).dtype == np.float64


def test_python_scalar_classes_mean_the_default_dtypes() -> None:
    """float and int do not warn, and the result is strongly typed."""
    x = lax.convert_element_type(1, float)

    assert (x.dtype, x.weak_type) == (np.float32, False)
    assert lax.convert_element_type(1.5, int).dtype == np.int32


def test_complex_to_real_warns() -> None:
    """The imaginary part is lost, also on the way to bool."""
    z = as_value(np.array([1j, 2 + 1j], np.complex64))
    with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part"):
        x = lax.convert_element_type(z, np.float32)
    with pytest.warns(np.exceptions.ComplexWarning):
        flags = lax.convert_element_type(z, bool)

    assert x.tolist() == [0.0, 2.0]
    assert flags.tolist() == [False, True]


def test_the_same_dtype_is_the_same_array() -> None:
    """Nothing is copied."""
    x = as_value(np.arange(3))

    assert lax.convert_element_type(x, np.int32) is x


@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        (0.1, d.float32, d.float64),
        (0.1, d.float64, d.bfloat16),
        (3.9, d.float32, d.int32),
        (-3.9, d.float32, d.int8),
        (1e10, d.float32, d.int32),
        (-1e10, d.float32, d.int8),
        (float("nan"), d.float32, d.int32),
        (float("inf"), d.float32, d.uint8),
        (-1.0, d.float32, d.uint8),
        (300, d.int32, d.uint8),
        (-1, d.int32, d.uint32),
        (2.0, d.float32, d.bool_),
        (0.0, d.float32, d.bool_),
        (True, d.bool_, d.complex64),
        (1 + 2j, d.complex64, d.float32),
        (0.3, d.float32, d.float8_e4m3fn),
        (5, d.int32, d.float16),
    ],
)
def test_literals_fold_to_what_the_device_gives(value: Any, old: Any, new: Any) -> None:
    """Converting a Literal gives the Literal that a compiled conversion would give."""
    x = literal(value, old)
    folded = lax.convert_dtype(x, new)
    on_device = lax.convert_element_type_p.bind(x, new_dtype=new, weak_type=False)

    assert type(folded) is Literal
    assert folded.aval == on_device.aval
    np.testing.assert_array_equal(np.asarray(on_device), np.asarray(folded.value).astype(new))


def test_weak_types_are_kept_on_request() -> None:
    """convert_dtype says which weak type the result has."""
    x = as_value(1)
    weak = lax.convert_dtype(put_numpy(np.ones(2, np.int32)), d.float32, weak_type=True)

    assert lax.convert_dtype(x, d.float32, weak_type=True).aval.weak_type
    assert weak.aval.weak_type
    assert stage(lambda x: [lax.convert_dtype(x, d.float32)], [weak.aval]).out_avals == (
        ShapedArray((2,), np.float32),
    )


def test_conversions_between_narrow_dtypes() -> None:
    """float8, int4 and bfloat16 convert as ml_dtypes does."""
    x = np.linspace(-3, 3, 13).astype(np.float32)
    for dtype in (d.bfloat16, d.float16, d.float8_e4m3fn, d.float8_e5m2, d.int4):
        actual = np.asarray(lax.convert_element_type(x, dtype))

        assert dtype == actual.dtype
        np.testing.assert_array_equal(x.astype(dtype).astype(np.float32), actual.astype(np.float32))


def test_derivatives_of_conversions() -> None:
    """Between inexact dtypes conversions are linear; others cut the derivative."""
    x = np.array([1.25, -2.5])
    check_rules(lambda x: lax.convert_dtype(x, d.complex128), x)
    check_rules(lambda x: lax.convert_dtype(x, d.float64), x + 1j)
    check_rules(lambda x: lax.mul(x, lax.convert_dtype(lax.convert_dtype(x, d.int32), x.dtype)), x)


@pytest.mark.parametrize(
    ("old", "new", "shape"),
    [
        (np.float32, np.int32, (3, 4)),
        (np.float32, np.int8, (3, 4, 4)),
        (np.int8, np.int32, (3,)),
        (np.uint16, ml_dtypes.bfloat16, (3, 4)),
        (np.float64, np.uint32, (3, 4, 2)),
        (np.uint8, ml_dtypes.float8_e4m3fn, (3, 4)),
    ],
)
def test_bit_patterns_are_those_of_numpy_views(old: Any, new: Any, shape: Any) -> None:
    """A last axis appears or disappears where the widths differ."""
    host = np.arange(12).reshape(3, 4).astype(old)
    x = put_numpy(host)
    expected = host.view(new).reshape(shape)

    actual = np.asarray(lax.bitcast_convert_type(x, new))

    assert expected.dtype == actual.dtype
    np.testing.assert_array_equal(expected.view(np.uint8), actual.view(np.uint8))
    check_rules(
        lambda x: lax.bitcast_convert_type_p.bind(x, new_dtype=np.dtype(new)), host, widen=False
    )


def test_bit_patterns_that_do_not_fit() -> None:
    """The last axis must hold the ratio of the widths; bool and complex have no patterns."""
    with pytest.raises(ShapeMismatchError, match="takes 4 elements of int8"):
        lax.bitcast_convert_type(np.zeros((4, 3), np.int8), np.int32)
    with pytest.raises(ShapeMismatchError, match="last axis must have that size, got \\(\\)"):
        lax.bitcast_convert_type(np.int8(1), np.int32)
    for old, new in ((np.float32, bool), (np.complex64, np.float32), (np.uint32, np.complex64)):
        with pytest.raises(TypeError, match="bool and complex have no bit patterns"):
            lax.bitcast_convert_type(np.zeros(2, old), new)

    assert lax.bitcast_convert_type(np.zeros(2, bool), bool).dtype == bool


def test_reduce_precision_rounds_to_the_format() -> None:
    """5 and 10 bits are float16; the derivative is rounded too."""
    x = np.linspace(-2, 2, 17).astype(np.float32) * np.float32(1.1)

    actual = np.asarray(lax.reduce_precision(x, exponent_bits=5, mantissa_bits=10))

    np.testing.assert_array_equal(x.astype(np.float16).astype(np.float32), actual)
    check_rules(lambda x: lax.reduce_precision(x, 11, 52), x, order=2)


@pytest.mark.parametrize("bits", [(0, 2), (5, -1)])
def test_reduce_precision_refuses_impossible_formats(bits: tuple[int, int]) -> None:
    """A format has at least one exponent bit and no negative number of mantissa bits."""
    with pytest.raises(ValueError, match="exponent_bits must be at least 1"):
        lax.reduce_precision(1.0, *bits)


def test_copies_have_their_own_memory() -> None:
    """An eager copy can be deleted without harm to the original."""
    x = as_value(np.arange(1000.0))
    y = lax.copy(x)
    assert y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    y.delete()

    assert float(np.asarray(x)[1]) == 1.0


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (2**32 + 7, "int32", 7),
        (2**32 - 1, "uint32", 2**32 - 1),
        (2**31 + 1, "int32", 1 - 2**31),
        (-(2**40) - 3, "int8", -3),
        (2**70, "float32", 2.0**70),
        (2**70, "bool", True),
        (2**40, "complex64", 2.0**40),
    ],
)
def test_python_integers_of_any_size(number: int, dtype: str, expected: complex) -> None:
    """Integers keep their lowest bits, others the value, whatever the default integer holds."""
    x = lax.convert_element_type(number, dtype)

    assert isinstance(x, Array)
    assert (x.dtype, x.weak_type, x.item()) == (dtype, False, expected)


def test_numpy_scalars_become_arrays() -> None:
    """A scalar that has the dtype already is no array yet."""
    assert isinstance(lax.convert_element_type(np.float32(1), "float32"), Array)
