"""map and associative_scan."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge.core.errors.shape_errors import AxisError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    AxisSizeError,
    TreeMismatchError,
)

associative_scan = tb.lax.associative_scan


@pytest.mark.parametrize("batch_size", [None, 0, 1, 2, 3, 7, 20])
def test_map_is_vmap(batch_size):
    """Same results and gradients, for any size of the batches."""
    xs = {"a": np.linspace(0, 1, 7).astype(np.float32), "b": np.ones((7, 2), np.float32)}
    f = lambda x: (tnp.sin(x["a"]) * x["b"], x["a"] * 2.0, 1.0)
    mapped = lambda xs: tb.lax.map(f, xs, batch_size=batch_size)
    total = lambda run: lambda xs: sum([tnp.sum(y * y) for y in run(xs)])

    for expected, actual in zip(tb.vmap(f)(xs), mapped(xs), strict=True):
        assert expected.shape == actual.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    expected, actual = tb.grad(total(tb.vmap(f)))(xs), tb.jit(tb.grad(total(mapped)))(xs)
    for key in xs:
        np.testing.assert_allclose(actual[key], expected[key], rtol=1e-5, atol=1e-6)


def test_map_of_nothing():
    """No slices give empty results."""
    for batch_size in (None, 0, 3):
        assert tb.lax.map(lambda x: x + 1, np.zeros((0, 2)), batch_size=batch_size).shape == (0, 2)


def test_map_wrong_arguments():
    """Sizes agree, the batch size is positive, f is a function."""
    with pytest.raises(AxisSizeError, match=r"map: .* disagree: xs\[0\] has 3, xs\[1\] has 4"):
        tb.lax.map(lambda x: x, (np.zeros(3), np.zeros(4)))
    with pytest.raises(ArgumentSpecError, match="batch_size is -1, expected an integer, not"):
        tb.lax.map(lambda x: x, np.zeros(3), batch_size=-1)
    for batch_size in (None, 2):
        with pytest.raises(ArgumentSpecError, match="f is 3 of type int, expected a function"):
            tb.lax.map(3, np.zeros(3), batch_size=batch_size)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_prefix_sums(n, reverse):
    """The sums of all prefixes, or suffixes, along any axis."""
    x = np.random.randint(0, 9, (3, n, 2)).astype(np.int32)
    flip = (lambda a: a[:, ::-1]) if reverse else lambda a: a
    expected = flip(np.cumsum(flip(x), axis=1, dtype=np.int32))

    actual = associative_scan(tb.lax.add, x, reverse=reverse, axis=-2)

    np.testing.assert_array_equal(np.asarray(actual), expected)


def test_order_of_the_operands():
    """The function need not commute: products of matrices."""
    m = np.random.randn(6, 2, 2).astype(np.float32)
    expected = [m[0]]
    for k in range(1, 6):
        expected.append(expected[-1] @ m[k])

    actual = associative_scan(lambda a, b: a @ b, m)

    np.testing.assert_allclose(np.asarray(actual), np.stack(expected), rtol=1e-4, atol=1e-5)


def test_linear_recurrence():
    """A tree of elements: x' = a x + b, with its gradient."""
    a = np.random.rand(9).astype(np.float32)
    b = np.random.randn(9).astype(np.float32)

    def combine(p, q):
        return p[0] * q[0], p[1] * q[0] + q[1]

    parallel = lambda a, b: associative_scan(combine, (a, b))[1]
    serial = lambda a, b: tb.lax.scan(lambda c, s: (c * s[0] + s[1],) * 2, 0.0, (a, b))[1]
    total = lambda f: lambda a, b: tnp.sum(tnp.sin(f(a, b)))

    np.testing.assert_allclose(parallel(a, b), serial(a, b), rtol=1e-5)
    for expected, actual in zip(
        tb.grad(total(serial), (0, 1))(a, b),
        tb.jit(tb.grad(total(parallel), (0, 1)))(a, b),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


class Pair(NamedTuple):
    """The factor and the term of a step."""

    a: Any
    b: Any


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_the_result_may_be_another_tree(size):
    """Of what the function returns the leaves count; the result is a tree like the elements."""
    a, b = np.random.rand(2, size).astype(np.float32)
    combine = lambda p, q: [p.a * q.a, p.b * q.a + q.b]
    expected = [b[0]]
    for k in range(1, size):
        expected.append(expected[-1] * a[k] + b[k])

    actual = tb.jit(lambda x: associative_scan(combine, x))(Pair(a, b))

    assert type(actual) is Pair
    np.testing.assert_allclose(actual.a, np.cumprod(a), rtol=1e-5)
    np.testing.assert_allclose(actual.b, np.stack(expected), rtol=1e-5)


def test_associative_scan_wrong_arguments():
    """Axis, sizes, function and its result are checked."""
    with pytest.raises(AxisError, match="associative_scan: axis 1 is out of bounds"):
        associative_scan(tb.lax.add, np.zeros(3), axis=1)
    with pytest.raises(AxisSizeError, match=r"disagree: elems\[0\] has 3, elems\[1\] has 4"):
        associative_scan(tb.lax.add, (np.zeros(3), np.zeros(4)))
    with pytest.raises(ArgumentSpecError, match="fn is 3 of type int"):
        associative_scan(3, np.zeros(3))
    with pytest.raises(TreeMismatchError, match="fn returned another structure"):
        associative_scan(lambda a, b: (a, b), np.zeros(3))
