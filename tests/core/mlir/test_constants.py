"""Constants of every dtype keep their elements through a compiled program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge.core.lax as lax
from tracebridge.core.control.jit.cached_call import make_jit
from tracebridge.core.control.jit.jit import JitOptions
from tracebridge.core.dtypes import dtypes
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.transfer import put_numpy

# XLA:CPU has no kernels for these formats; they only travel in programs for other devices.
NOT_ON_CPU = {dtypes.float6_e2m3fn, dtypes.float6_e3m2fn, dtypes.int1, dtypes.uint1}
TESTED = sorted(dtypes.all_dtypes - NOT_ON_CPU, key=str)


def through_program(host: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A constant as a compiled program returns it."""
    constant = put_numpy(host)

    def fun(x: Any) -> Any:
        return constant, x

    return np.asarray(make_jit(fun, JitOptions())[0](as_value(1.0))[0])


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 5), (0,), (2, 0)], ids=str)
@pytest.mark.parametrize("dtype", TESTED, ids=str)
def test_dense_constants_keep_their_elements(dtype: Any, shape: tuple[int, ...]) -> None:
    """A dense attribute holds the elements of the array it was made of."""
    elements = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2
    host = elements.astype(np.float32).astype(dtype)

    actual = through_program(host)

    assert host.dtype == actual.dtype
    np.testing.assert_array_equal(host.astype(np.complex128), actual.astype(np.complex128))


@pytest.mark.parametrize("dtype", TESTED, ids=str)
def test_splat_constants_hold_one_value(dtype: Any) -> None:
    """A rank-0 literal repeated to a shape gives that value everywhere."""
    x = put_numpy(np.zeros((3,), np.float32).astype(dtype))
    one = np.ones((), np.float32).astype(dtype)[()]

    def fun(x: Any) -> Any:
        return lax.select_n(np.bool_(True), x, put_numpy(np.asarray(one)))

    actual = np.asarray(make_jit(fun, JitOptions())[0](x))

    np.testing.assert_array_equal(np.ones(3), actual.astype(np.complex128))
