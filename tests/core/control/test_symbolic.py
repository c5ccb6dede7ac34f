"""Control flow traced once with symbolic dimensions, run at concrete sizes."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tests.core.lax.symbolic import run_symbolic
from tracebridge.core.errors.transform_errors import ArgumentSpecError

X = np.linspace(-1.0, 1.0, 12).astype(np.float32).reshape(3, 4)


def rows(x, reverse=False):
    """Running products of the rows: symbolic length, symbolic carry."""

    def body(c, row):
        c = tnp.sin(c + row)
        return c, c * 2.0

    return tb.lax.scan(body, x[0] * 0.0, x, reverse=reverse)


def flat(x):
    c, ys = rows(x)
    return [c, ys]


def gradient(x):
    return tb.grad(lambda x: tnp.sum(rows(x, reverse=True)[1] ** 2))(x)


def loop(x):
    return tb.lax.while_loop(lambda c: tnp.sum(c) < 50.0, lambda c: c * 2.0 + 1.0, x)


def choice(x):
    return tb.lax.cond(tnp.sum(x) > 100.0, lambda x: x, lambda x: x * 3.0, x)


def steps(x):
    return tb.lax.fori_loop(0, 3, lambda i, c: c + i, x)


def batched(x):
    return tb.vmap(lambda r: tb.lax.while_loop(lambda c: c[0] < 2, lambda c: c + 1.0, r))(x)


@pytest.mark.parametrize("shapes", ["n,4", "3,m", "n,m"])
@pytest.mark.parametrize("fun", [flat, gradient, loop, choice, steps, batched])
def test_symbolic(fun, shapes):
    """The program for all sizes gives what the program for this size gives."""
    expected = tb.jit(fun)(X)
    expected = expected if isinstance(expected, list | tuple) else [expected]

    actual = run_symbolic(fun, shapes, X)

    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, np.asarray(e), rtol=1e-5, atol=1e-6)


def test_unroll_needs_a_known_length():
    """Several steps per round need a length that is a number."""
    with pytest.raises(
        ArgumentSpecError, match="unroll is 2, expected a bool or a positive integer"
    ):
        run_symbolic(lambda x: tb.lax.scan(lambda c, r: (c, r), 0.0, x, unroll=2)[1], "n,4", X)
