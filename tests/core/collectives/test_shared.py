"""Marks of shared values: what they do to values, cotangents and other axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.collectives.shared import mark_shared, psum_shared, reduced_axes
from tracebridge.errors import UnboundAxisNameError

X = np.arange(3, dtype=np.float32)


def over_i(f: Any, *args: Any, in_axes: Any, out_axes: Any = 0) -> Any:
    return tb.vmap(f, in_axes, out_axes, axis_name="i")(*args)


def test_marks_change_no_value() -> None:
    """Inside and outside the map."""
    for axes in ((0, None), (0, 0), (None, 0)):
        args = [tb.numpy.asarray(X if d == 0 else X[1]) for d in axes]
        actual = over_i(lambda x, v: mark_shared(x, v, ("i",)), *args, in_axes=axes)
        np.testing.assert_array_equal(actual, np.broadcast_to(np.asarray(args[0]), (3,)))


def test_sums_of_shared_values() -> None:
    """The sum where the second operand is shared; equal elements count as often as they are."""

    def f(x: Any, v: Any) -> Any:
        return psum_shared(x, v, ("i",))

    x, v = tb.numpy.asarray(X), tb.numpy.asarray(X[2])

    assert 3.0 == float(over_i(f, x, v, in_axes=(0, None), out_axes=None))
    assert 6.0 == float(tb.vmap(f, None, None, axis_name="i", axis_size=3)(v, v))
    assert X.tolist() == over_i(f, x, x, in_axes=0).tolist()


def test_marks_pass_other_axes() -> None:
    """A map over another axis leaves them to the named one."""
    xs = tb.numpy.asarray(np.stack([X, X + 10]))

    def f(x: Any, v: Any) -> Any:
        return tb.vmap(lambda y: psum_shared(y, v, ("i",)))(x)

    np.testing.assert_array_equal(
        over_i(f, xs, tb.numpy.ones(()), in_axes=(0, None), out_axes=None), xs.sum(0)
    )


def test_derivatives() -> None:
    """Forward mode is linear in the first operand; the transposes are sums of what is shared."""
    w, x = tb.numpy.asarray(X[1]), tb.numpy.asarray(X)

    def f(w: Any, x: Any) -> Any:
        return tb.jvp(lambda u: psum_shared(u * x, w, ("i",)), (w,), (2.0,))

    primal, tangent = over_i(f, w, x, in_axes=(None, 0), out_axes=None)

    assert (3.0, 6.0) == (float(primal), float(tangent))


def test_names_must_be_bound() -> None:
    """One name stands for a tuple of one."""
    with pytest.raises(UnboundAxisNameError, match="grad"):
        reduced_axes("grad", "i")
    assert ((),) == (reduced_axes("grad", []),)
    over_i(lambda x: (reduced_axes("grad", "i") == ("i",)) * x, X, in_axes=0)
