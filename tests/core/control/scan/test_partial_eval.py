"""Scan without unused parts, and scan taken apart by what is known."""

from __future__ import annotations

import numpy as np

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace


def staged(fun, *args):
    return stage(fun, [tnp.asarray(a).aval for a in args])


def run(jaxpr, *args):
    return eval_jaxpr(jaxpr, current_trace().process, [tnp.asarray(a) for a in args])


def three_carries(a, b, xs):
    """``a`` alone, ``b`` fed by ``a``, ``n`` alone; ys of each."""

    def body(c, x):
        a, b, n = c
        return (a * x, b + a, n + 1), (a, b * 2.0, n)

    (a, b, n), ys = tb.lax.scan(body, (a, b, 0), xs)
    return [a, b, n, *ys]


ARGS = (np.float32(2.0), np.float32(3.0), np.arange(1, 4, dtype=np.float32))


def test_dce_drops_carries_that_nothing_needs():
    """A used y keeps the carries that feed it, and only those."""
    jaxpr = staged(three_carries, *ARGS)
    full = run(jaxpr, *ARGS)
    for position, n_carry in ((0, 1), (1, 2), (2, 1), (3, 1), (4, 2), (5, 1)):
        used = tuple([i == position for i in range(6)])
        smaller, used_in = dce_jaxpr(jaxpr, used)
        (app,) = equations_of(smaller, "scan")
        kept = [a for a, u in zip(ARGS, used_in, strict=True) if u]

        assert n_carry == app.params["num_carry"]
        np.testing.assert_array_equal(
            np.asarray(full[position]), np.asarray(run(smaller, *kept)[0])
        )


def test_dce_drops_unused_xs():
    """The counter needs no xs."""
    jaxpr = staged(three_carries, *ARGS)
    _, used_in = dce_jaxpr(jaxpr, (False, False, True, False, False, True))

    assert used_in == (False, False, False)


def test_known_carries_run_ahead():
    """With ``b`` unknown, what depends on ``a`` and the counter only is in the known part."""
    jaxpr = staged(three_carries, *ARGS)
    parts = partial_eval_jaxpr(jaxpr, (False, True, False))
    known = run(parts.known, ARGS[0], ARGS[2])
    n_known = len(known) - parts.n_residuals
    unknown = iter(run(parts.unknown, *known[n_known:], ARGS[1]))
    rest = iter(known[:n_known])

    assert parts.unknown_out == (False, True, False, False, True, False)
    joined = [next(unknown) if u else next(rest) for u in parts.unknown_out]
    for expected, actual in zip(run(jaxpr, *ARGS), joined, strict=True):
        np.testing.assert_array_equal(np.asarray(expected), np.asarray(actual))


def test_joint_loop_in_a_rule():
    """A loop that computes primals and tangents together still splits for reverse mode."""

    def f(x):
        return tb.lax.scan(lambda c, s: (tnp.sin(c * s), None), x, ARGS[2])[0]

    @tb.custom_jvp
    def g(x):
        return f(x)

    g.defjvp(lambda primals, tangents: tb.jvp(tb.jit(f), primals, tangents))

    np.testing.assert_allclose(tb.grad(f)(0.3), tb.grad(g)(0.3), rtol=1e-6)
    np.testing.assert_allclose(tb.grad(f)(0.3), tb.jit(tb.grad(g))(0.3), rtol=1e-6)
    np.testing.assert_allclose(tb.grad(f)(0.3), tb.grad(tb.jit(g))(0.3), rtol=1e-6)
