"""Wrong arguments of library functions: which error is raised, and the words users look for."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.option_scopes import numpy_dtype_promotion, numpy_rank_promotion

X = np.ones((3, 2, 2), np.float32)
Y = np.ones(2, np.float32)
XP = np.arange(3, dtype=np.float32)
MATRIX = np.arange(6).reshape(3, 2)

# what is called, the error, words of its message
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "axes of tensordot": (
        lambda: tnp.tensordot(X, Y, 2), TypeError, "Number of tensordot axes, 2, exceeds input",
    ),
    "unlike axes of tensordot": (
        lambda: tnp.tensordot(X, Y, ([0], [0, 1])), TypeError, "axes lists to have equal length",
    ),
    "one string for axes of tensordot": (
        lambda: tnp.tensordot(X, Y, "badaxes"), TypeError, "axes argument must be an int, a pair",
    ),
    "strings as axes of tensordot": (
        lambda: tnp.tensordot(X, Y, ("bad", "axes")), TypeError, "an axis is 'bad' of type str",
    ),
    "order of complex numbers": (
        lambda: tnp.clip(1j * Y), ValueError, "Complex values have no ordering",
    ),
    "option of another mode": (
        lambda: tnp.pad(Y, 1, "wrap", end_values=0), ValueError,
        "unsupported keyword arguments for mode 'wrap': end_values",
    ),
    "several periods": (
        lambda: tnp.interp(0.0, XP, XP, period=np.ones(1)), ValueError, "period must be a scalar",
    ),
    "an axis counted twice": (lambda: tnp.size(X, (0, -3)), ValueError, "repeated axis"),
    "an extremum of nothing": (
        lambda: tnp.nanargmax(np.zeros((2, 0)), axis=1), ValueError,
        "attempt to get argmax of an empty sequence: axis 1",
    ),
    "an unknown directive": (
        lambda: tnp.r_["asdf", [1, 2]], ValueError, "could not understand directive 'asdf'",
    ),
    "a masked array": (
        lambda: tnp.asarray(np.ma.array([1, 2], mask=[True, False])), ValueError,
        "numpy masked arrays are not supported",
    ),
    "an index that is a float": (
        lambda: tnp.asarray(Y)[0.0], TypeError, "must have integer or boolean type, got f32",
    ),
    "a list of indices": (
        lambda: tnp.asarray(MATRIX)[[0, 1]], TypeError,
        r"non-tuple sequence[\s\S]*numpy.array\(sequence\)",
    ),
    "a list of indices of several axes": (
        lambda: tnp.asarray(MATRIX).at[[0, slice(None)]].set(1), TypeError,
        r"non-tuple sequence[\s\S]*x\[tuple\(sequence\)\]",
    ),
    "a mask of another size": (
        lambda: tnp.arange(4)[tnp.array([True, False])], IndexError,
        "boolean index did not match shape",
    ),
    "two dtypes": (lambda: lax.add(0, 0.0), TypeError, "arguments to have the same dtypes"),
    "a dtype that an operation lacks": (
        lambda: lax.population_count(True), TypeError, "does not accept dtype bool",
    ),
    "no argument to exclude": (
        lambda: tnp.vectorize(lambda x: x, excluded={1})(1.0), ValueError,
        r"excluded=\{1\} is invalid for 1 argument",
    ),
    "sizes of core axes": (
        lambda: tnp.vectorize(tnp.dot, signature="(n,m),(m,k)->(n,k)")(MATRIX, MATRIX), ValueError,
        "inconsistent size for core dimension 'm': input 1 has 3, expected 2",
    ),
    "one result of two": (
        lambda: tnp.vectorize(tnp.dot, signature="(n),(n)->(),()")(Y, Y), TypeError,
        "got 1, where an output must be a tuple, expected 2",
    ),
    "several keys": (
        lambda: tb.random.gamma(tb.random.split(tb.random.key(0)), 1.0), ValueError,
        r"gamma accepts a single key, but was given a key array of shape \(2,\)",
    ),
    "more samples than categories": (
        lambda: tb.random.categorical(
            tb.random.key(0), XP, shape=(4,), replace=False
        ), ValueError, "Number of samples without replacement, 4",
    ),
    "windows of nothing": (
        lambda: lax.reduce_window(Y, 0.0, lax.add, (0,), (1,), "VALID"), TypeError,
        "must have every element be at least 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_messages(name: str) -> None:
    """The error has the class that NumPy's users expect, and says what was wrong."""
    call, error, message = WRONG[name]

    with pytest.raises(error, match=message):
        call()


def test_axes_of_tensordot_may_be_an_array() -> None:
    """Two numbers of an array are a pair of axes."""
    actual = tnp.tensordot(X, Y, np.array([2, 0]))

    np.testing.assert_array_equal(np.tensordot(X, Y, (2, 0)), actual)


def test_size_along_several_axes() -> None:
    """Axes may be counted from the end, in any order."""
    assert (tnp.size(X, (-1, 0)), tnp.size(X, ())) == (6, 1)


def test_broken_grids_under_strict_promotion() -> None:
    """A grid of whole and broken numbers is asked for: no option forbids it."""
    with numpy_dtype_promotion("strict"):
        dense, sparse = tnp.mgrid[1:6:8j, 2:4], tnp.ogrid[1:6:8j, 2:4]

    np.testing.assert_allclose(np.mgrid[1:6:8j, 2:4], dense, rtol=1e-6)
    assert [g.dtype for g in sparse] == [np.float32, np.float32]


def test_warning_of_ranks_names_function_and_shapes() -> None:
    """Programs filter this warning by its beginning."""
    start = r"Following NumPy automatic rank promotion for add on shapes \(2,\) \(1, 2\)"
    with numpy_rank_promotion("warn"), pytest.warns(UserWarning, match=start):
        tnp.ones(2) + tnp.ones((1, 2))
    with numpy_rank_promotion("warn"), warnings.catch_warnings():
        warnings.simplefilter("error")
        tnp.ones(2) + 3


def test_arrays_say_whether_they_are_committed() -> None:
    """Also under the private name that libraries read."""
    x = tnp.arange(3)
    y = tb.device_put(x, tb.devices()[0])

    assert (x._committed, y._committed) == (x.committed, y.committed) == (False, True)


class Scaled(NamedTuple):
    """A tuple that says what its products with arrays are."""

    array: Any

    def __mul__(self, other: Any) -> Any:
        return Scaled(self.array * other)

    def __rmul__(self, other: Any) -> Any:
        return Scaled(other * self.array)


def test_tuples_with_products_of_their_own() -> None:
    """They decide, also from the right and while tracing; other tuples are not repeated."""
    x, y = tnp.arange(3), Scaled(tnp.arange(3))

    for product in (x * y, y * x, tb.jit(operator.mul)(x, y), tb.jit(operator.mul)(y, x)):
        assert isinstance(product, Scaled)
        assert product.array.tolist() == [0, 1, 4]
    with pytest.raises(TypeError, match="expected an array or a Python number"):
        x * (1, 2, 3)
