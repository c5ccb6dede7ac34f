"""The unions for annotations: `isinstance` takes them, and they hold what functions accept."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.array_like import SupportsDType
from tracebridge.typing import ArrayLike, DTypeLike

ARRAYS = [1, 1.0, True, 1j, np.zeros(2), np.float32(1), np.bool_(1), tnp.zeros(2)]


@pytest.mark.parametrize("value", ARRAYS, ids=lambda value: type(value).__name__)
def test_arrays_and_numbers_are_array_like(value: object) -> None:
    """Numbers, NumPy's arrays and scalars, and arrays are instances of the union."""
    assert isinstance(value, ArrayLike)


@pytest.mark.parametrize("value", ["a", [1], None, np.str_("a")], ids=repr)
def test_other_objects_are_not_array_like(value: object) -> None:
    """Strings, lists and None are no arrays."""
    assert not isinstance(value, ArrayLike)


def test_traced_values_are_array_like() -> None:
    """A tracer is an instance of the union."""
    seen: list[bool] = []
    tb.make_jaxpr(lambda x: seen.append(isinstance(x, ArrayLike)) or x)(1.0)

    assert seen == [True]


def test_the_union_holds_no_generic_array() -> None:
    """Checkers of types at run time meet bare classes, which need no parameters."""
    assert {np.ndarray, np.dtype} <= {*ArrayLike.__args__, *DTypeLike.__args__}


def test_objects_with_a_dtype_support_dtypes() -> None:
    """The protocol is checked at run time."""
    assert [isinstance(x, SupportsDType) for x in (np.zeros(1), tnp.zeros(1), 1)] == [
        True,
        True,
        False,
    ]
