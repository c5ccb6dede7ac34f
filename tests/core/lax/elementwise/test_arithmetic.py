"""Arithmetic: ties, remainders, promotion of scalars, integer edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge.core import lax
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.testing import check_rules
from tracebridge.testing.grads import vjp_of


def gradient(f: Any, *args: float) -> list[float]:
    """Cotangents of all arguments of a scalar function."""
    run = vjp_of(lambda *xs: [f(*xs)], [True] * len(args))
    values = [put_numpy(np.asarray(a)) for a in args]
    return [float(np.asarray(g)) for g in run(*values, put_numpy(np.asarray(1.0)))]


@pytest.mark.parametrize(
    ("f", "args", "expected"),
    [
        (lax.max, (1.0, 1.0), [0.5, 0.5]),
        (lax.min, (1.0, 1.0), [0.5, 0.5]),
        (lax.max, (1.0, 2.0), [0.0, 1.0]),
        (lax.abs, (0.0,), [1.0]),
        (lax.abs, (-2.0,), [-1.0]),
        (lax.sign, (2.0,), [0.0]),
        (lax.rem, (7.0, 3.0), [1.0, -2.0]),
        (lax.rem, (-7.0, 3.0), [1.0, 2.0]),
        (lax.rem, (0.7, 0.1), [1.0, -6.0]),
        (lax.atan2, (1.0, 2.0), [0.4, -0.2]),
        (lax.nextafter, (1.0, 2.0), [1.0, 0.0]),
    ],
)
def test_derivatives_at_edges(f: Any, args: tuple[float, ...], expected: list[float]) -> None:
    """Ties are shared; abs rises at 0; rem counts whole quotients."""
    np.testing.assert_allclose(gradient(f, *args), expected)


def test_division_of_integers_truncates() -> None:
    """The quotient goes towards zero, the remainder has the sign of the dividend."""
    x, y = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)

    assert lax.div(x, y).tolist() == [3, -3, -3, 3]
    assert lax.rem(x, y).tolist() == [1, -1, 1, -1]


def test_integer_division_by_zero_does_not_trap() -> None:
    """All bits are set, the remainder is the dividend; the smallest int stays."""
    lowest = -(2**31)
    x, y = np.array([5, lowest], np.int32), np.array([0, -1], np.int32)

    assert [-1, lowest] == lax.div(x, y).tolist()
    assert lax.rem(x, y).tolist() == [5, 0]


def test_python_scalars_take_the_dtype_of_arrays() -> None:
    """A scalar never widens an array, and weak arrays stay weak."""
    for dtype in (np.int8, np.float16, np.float64, np.complex64):
        assert lax.add(put_numpy(np.ones(2, dtype)), 1).dtype == dtype
        assert lax.add(1, put_numpy(np.ones(2, dtype))).dtype == dtype
    weak = put_numpy(np.ones(2, np.float16), weak_type=True)

    assert lax.mul(weak, 2.0).weak_type
    assert not lax.mul(put_numpy(np.ones(2, np.float16)), 2.0).weak_type


@pytest.mark.parametrize(
    ("dtype", "scalar", "error"),
    [
        (np.int32, 1.5, DtypeMismatchError),
        (np.float32, 1j, DtypeMismatchError),
        (np.int8, 300, OverflowError),
        (np.uint8, -1, OverflowError),
        (np.float32, True, DtypeMismatchError),
    ],
)
def test_python_scalars_that_do_not_fit(dtype: Any, scalar: Any, error: type[Exception]) -> None:
    """A fraction beside integers, or a number out of range, is an error."""
    with pytest.raises(error):
        lax.add(put_numpy(np.ones(2, dtype)), scalar)


def test_products_in_another_dtype() -> None:
    """out_dtype widens before multiplying and narrows afterwards."""
    x = np.array([100, -100], np.int8)

    assert lax.mul(x, x, out_dtype=np.int32).tolist() == [10000, 10000]
    assert lax.mul(as_value(2.0), 3.0, out_dtype="bfloat16").dtype.name == "bfloat16"


def test_complex_extrema_compare_real_parts_first() -> None:
    """Equal real parts are decided by the imaginary ones."""
    x, y = np.array([1 + 2j, 1 + 2j, 2 + 0j]), np.array([1 + 3j, 0 + 9j, 2 + 0j])
    for fun, reference in ((lax.max, np.maximum), (lax.min, np.minimum)):
        check_rules(fun, x, y, reference=reference, order=0)
        check_rules(fun, x[1:2], y[1:2])  # equal real parts are no place for differences
    holes = np.array([complex(-3, np.nan), complex(np.nan, 0), complex(3, np.nan)])
    for fun in (lax.max, lax.min):
        assert np.isnan(np.asarray(fun(x, holes))).all()
        assert np.isnan(np.asarray(fun(holes, x))).all()


def test_signs_of_unsigned_integers() -> None:
    """StableHLO has no such operation: 0 or 1."""
    assert lax.sign(np.array([0, 3, 255], np.uint8)).tolist() == [0, 1, 1]


def test_derivatives_of_third_order() -> None:
    """Quotients, products and remainders can be differentiated again and again."""
    x, y = np.array([0.7, -1.3]), np.array([2.1, 0.4])
    check_grads(lax.div, (x, y), order=3, rtol=1e-4)
    check_grads(lax.rem, (x, y), order=3)
    check_grads(lax.atan2, (x, y), order=3, rtol=1e-4, atol=1e-4)


def test_quotients_of_tiny_numbers_have_derivatives_in_programs() -> None:
    """XLA would divide by the square of the denominator, which underflows to 0."""
    y = np.float32([1e-20, 1e-30])
    value, slope = tb.jit(
        lambda x, y: tb.jvp(lambda y: lax.div(x, y), (y,), (y,)),
    )(2 * y, y)
    steep = tb.jit(tb.grad(lambda y: lax.div(2 * y[0], y[1])))(np.float32([1e-20, 1e-20]))

    np.testing.assert_allclose(value, [2.0, 2.0])
    np.testing.assert_allclose(slope, [-2.0, -2.0], rtol=1e-6)
    np.testing.assert_allclose(steep, [2e20, -2e20], rtol=1e-6)


def test_slopes_of_the_size_of_infinite_numbers() -> None:
    """The direction is that of the infinite parts."""
    inf, root = np.inf, np.sqrt(0.5)
    for a, b, expected in (
        (inf, 0.0, (1, 0)), (inf, -inf, (root, -root)), (3.0, -inf, (0, -1)), (0.0, 0.0, (0, 0)),
        (3.0, 4.0, (0.6, 0.8)), (1e30, 1e30, (root, root)),
    ):  # fmt: skip
        slopes = tb.grad(lambda a, b: lax.abs(lax.complex(a, b)), (0, 1))(a, b)

        np.testing.assert_allclose(slopes, expected, rtol=1e-6)
