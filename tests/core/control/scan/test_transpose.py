"""Backward loops: linear functions, nonlinear carries, symbolic zeros."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tests.equations import equations_of, primitives_in
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.interpreters.transpose import transpose_jaxpr
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace


def transposed(fun, *args, linear):
    """The transpose of the program of ``fun``, as a function of (nonlinear values, cotangents)."""
    values = [tnp.asarray(a) for a in args]
    jaxpr = stage(fun, [v.aval for v in values])
    back, present = transpose_jaxpr(jaxpr, linear)
    assert all(present)
    return lambda *xs: eval_jaxpr(back, current_trace().process, [tnp.asarray(x) for x in xs])


def test_carry_that_is_no_linear_function():
    """A counter beside a linear carry runs forwards first; the rest is transposed."""

    def f(x):
        def body(c, _):
            i, y = c
            return (i + 1.0, y * tnp.sin(i)), y * i

        (_, y), ys = tb.lax.scan(body, (0.5, x), None, length=3)
        return [y, ys]

    back = transposed(f, 1.0, linear=(True,))
    i = np.array([0.5, 1.5, 2.5])
    powers = np.cumprod([1.0, *np.sin(i)])
    expected = 2.0 * powers[3] + np.dot([1.0, 10.0, 100.0], powers[:3] * i)

    (actual,) = back(np.float32(2.0), np.array([1.0, 10.0, 100.0], np.float32))

    np.testing.assert_allclose(expected, float(actual), rtol=1e-5)


def test_linear_xs_and_constants():
    """Cotangents of xs come per slice, those of constants are summed over the steps."""

    def f(w, xs, k):
        def body(c, x):
            return c * k + x + w, c

        c, ys = tb.lax.scan(body, 0.0, xs)
        return [c, ys]

    back = transposed(f, 1.0, np.ones(3, np.float32), 2.0, linear=(True, True, False))
    # c3 = 4 (x0 + w) + 2 (x1 + w) + (x2 + w), ys = [0, c1, c2]
    w_bar, xs_bar = back(np.float32(2.0), np.float32(1.0), np.array([5.0, 7.0, 9.0], np.float32))

    assert xs_bar.tolist() == [4.0 + 7.0 + 2 * 9.0, 2.0 + 9.0, 1.0]
    assert float(np.sum(xs_bar)) == float(w_bar)


def test_zero_cotangents_are_not_computed():
    """A result without cotangent takes no part in the backward loop."""

    def f(x):
        def body(c, s):
            a, b = c
            return (a * s, b + tnp.sin(a)), b * x

        (a, _), _ = tb.lax.scan(body, (x, 0.0), tnp.arange(1.0, 4.0))
        return a

    jaxpr = tb.make_jaxpr(tb.grad(f))(1.0).jaxpr
    backward = equations_of(jaxpr, "scan")[-1]

    assert float(tb.grad(f)(1.0)) == 6.0
    assert primitives_in(backward.params["jaxpr"]) == ["mul"]


def test_split_transpose_makes_two_loops():
    """Only what carries cotangents is in the first backward loop; the numbers stay the same."""

    def loss(w, split):
        def body(c, x):
            return tnp.tanh(w @ c + x), None

        return tnp.sum(tb.lax.scan(body, tnp.zeros(3), xs, _split_transpose=split)[0])

    xs = tnp.asarray(np.random.randn(4, 3).astype(np.float32))
    w = tnp.asarray(np.random.randn(3, 3).astype(np.float32))
    jaxpr = tb.make_jaxpr(tb.grad(lambda w: loss(w, True)))(w).jaxpr
    loops = equations_of(jaxpr, "scan")

    assert len(loops) == 3
    assert (loops[1].params["num_carry"], loops[2].params["num_carry"]) == (1, 1)
    np.testing.assert_allclose(
        np.asarray(tb.grad(lambda w: loss(w, False))(w)),
        np.asarray(tb.grad(lambda w: loss(w, True))(w)),
        rtol=1e-6,
    )
