"""Comparisons: NaN, signed zeros, complex numbers, the total order."""

from __future__ import annotations

import numpy as np
import pytest

from tracebridge.core import lax
from tracebridge.core.runtime.arrays.transfer import put_numpy

NAN, INF = np.nan, np.inf
ORDERED = [-NAN, -INF, -1.0, -0.0, 0.0, 1.0, INF, NAN]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_total_order_of_floats(dtype: type) -> None:
    """-NaN, -inf, negative numbers, -0, 0, positive numbers, inf, NaN."""
    values = put_numpy(np.array(ORDERED, dtype))
    i = np.arange(len(ORDERED))
    for k in range(len(ORDERED)):
        one = put_numpy(np.array(ORDERED[k], dtype))

        assert (i < k).tolist() == lax.lt_to(values, one).tolist()
        assert (i <= k).tolist() == lax.le_to(values, one).tolist()
        assert (i == k).tolist() == lax.eq_to(values, one).tolist()


def test_unsigned_integers_are_compared_unsigned() -> None:
    """The highest bit is no sign."""
    big = np.uint32(2**31 + 1)

    assert bool(lax.gt(big, np.uint32(1)))
    assert bool(lax.lt(np.int32(-1), np.int32(1)))


def test_complex_numbers_are_only_equal_or_not() -> None:
    """Both parts count; there is no order."""
    x, y = np.array([1 + 2j, 1 + 2j, NAN + 0j]), np.array([1 + 2j, 1 + 3j, NAN + 0j])

    assert lax.eq(x, y).tolist() == [True, False, False]
    assert lax.ne(x, y).tolist() == [False, True, True]
    with pytest.raises(TypeError, match="lt does not accept dtype complex64, it works on booleans"):
        lax.lt(x, y)


def test_results_are_booleans_as_weak_as_their_operands() -> None:
    """Weak where Python scalars alone are compared."""
    flag = lax.lt(1.0, 2.0)

    assert (flag.dtype, flag.weak_type) == (np.bool_, True)
    assert not lax.lt(np.float32(1.0), 2.0).weak_type
