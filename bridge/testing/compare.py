"""Comparison of arrays and trees with tolerances that fit their dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracebridge.core.dtypes import dtypes
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.tree.tree import flatten

Tolerance = float | Mapping[Any, float] | None
"""One number, numbers by dtype, or None for what fits the dtype."""

# Units in the last place that a few roundings and the functions of two libraries may differ by.
ULPS = 8


def default_tolerance(dtype: Any) -> float:
    """The relative and absolute error that ``assert_allclose`` forgives in results of a dtype.

    Args:
        dtype: any dtype. Integers and booleans must be equal.

    >>> from tracebridge.testing import default_tolerance
    >>> default_tolerance("int32"), default_tolerance("float32") < 1e-5
    (0.0, True)
    """
    found = dtypes.as_dtype(dtype)
    if not dtypes.is_inexact(found):
        return 0.0
    return ULPS * float(finfo(found).eps)


def to_host(x: object) -> np.ndarray[Any, Any]:
    """The elements of an array, scalar or engine array as an ndarray."""
    return np.asarray(x)


def _wide(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Elements in a dtype that NumPy can compare: narrow floats and integers are widened."""
    if x.dtype.kind == "V" and dtypes.is_supported(x.dtype):
        return x.astype(np.int32 if dtypes.is_integer(x.dtype) else np.float64)
    return x.astype(np.float64) if dtypes.is_float(x.dtype) and x.dtype.itemsize < 4 else x


def assert_allclose(
    actual: object,
    expected: object,
    *,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    check_dtype: bool = False,
    err_msg: str = "",
) -> None:
    """Fail unless two trees of arrays have the same structure, shapes and nearly equal elements.

    Args:
        actual: what was computed: an array or a tree of arrays.
        expected: what it should be, of the same structure. NaN equals NaN.
        rtol: relative tolerance, or a dict ``{dtype: tolerance}``, of which the larger of those
            of the two dtypes counts; by default that of the coarser of the two dtypes.
        atol: absolute tolerance, likewise; by default ``rtol``'s default.
        check_dtype: require equal dtypes too.
        err_msg: added to the message.

    Raises:
        AssertionError: they differ.

    >>> import numpy as np
    >>> from tracebridge.testing import assert_allclose
    >>> assert_allclose(np.float32(0.1), 0.1)
    >>> assert_allclose([1, 2], [1, 3])
    Traceback (most recent call last):
    AssertionError: ...
    """
    got, got_tree = flatten(actual)
    want, want_tree = flatten(expected)
    if got_tree != want_tree:
        msg = f"the structures differ: got {got_tree}, expected {want_tree}. {err_msg}"
        raise AssertionError(msg)
    for i, (a, e) in enumerate(zip(got, want, strict=True)):
        where = f"leaf {i}: " if len(got) > 1 else ""
        _assert_leaf(to_host(a), to_host(e), rtol, atol, check_dtype, f"{where}{err_msg}")


def _assert_leaf(
    a: np.ndarray[Any, Any],
    e: np.ndarray[Any, Any],
    rtol: Tolerance,
    atol: Tolerance,
    check_dtype: bool,
    text: str,
) -> None:
    if a.shape != e.shape:
        msg = f"the shapes differ: got {a.shape}, expected {e.shape}. {text}"
        raise AssertionError(msg)
    if check_dtype and a.dtype != e.dtype:
        msg = f"the dtypes differ: got {a.dtype}, expected {e.dtype}. {text}"
        raise AssertionError(msg)
    default = max(default_tolerance(a.dtype), default_tolerance(e.dtype))
    if dtypes.is_inexact(a.dtype) and not dtypes.is_inexact(e.dtype):
        default = default_tolerance(a.dtype)
    np.testing.assert_allclose(
        _wide(a),
        _wide(e),
        rtol=_tolerance_of(rtol, (a.dtype, e.dtype), default),
        atol=_tolerance_of(atol, (a.dtype, e.dtype), default),
        err_msg=text,
    )


def _tolerance_of(given: Tolerance, found: tuple[Any, ...], default: float) -> float:
    """The number for a pair of dtypes; one that a dict does not have forgives what fits it."""
    if given is None:
        return default
    if not isinstance(given, Mapping):
        return given
    by_dtype = {dtypes.as_dtype(key): tolerance for key, tolerance in given.items()}
    known = [by_dtype[dtype] for dtype in found if dtype in by_dtype]
    return max(known) if known else default
