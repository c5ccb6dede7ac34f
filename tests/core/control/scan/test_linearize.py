"""Residuals of scan: what the forward loop keeps for the backward loop."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tests.equations import equations_of, primitives_in

W = np.ones((8, 8), np.float32)
XS = np.ones((10, 8), np.float32)


def scans(fun, *args):
    """The scan applications in the program of ``fun``, in order."""
    return equations_of(tb.make_jaxpr(fun)(*args), "scan")


def stacked_floats(app):
    """Number of elements of the arrays that a scan stacks."""
    return sum([a.size for a in app.outs[app.params["num_carry"] :]])


def test_constants_are_not_stacked():
    """What depends on constants only is computed once and kept once."""

    def loss(w):
        def body(c, x):
            return tnp.tanh(tnp.exp(w) @ c + x), None

        return scan_sum(body)

    forward, backward = scans(tb.grad(loss), W)

    # One residual of 8 numbers per step: tanh's derivative needs the result, the product the
    # carry; exp(w) is made before the loop.
    assert forward.params["num_consts"] == 1
    assert stacked_floats(forward) <= 2 * XS.size
    assert "exp" not in primitives_in(forward.params["jaxpr"])
    assert "exp" not in primitives_in(backward.params["jaxpr"])


def scan_sum(body):
    return tnp.sum(tb.lax.scan(body, tnp.zeros(8), XS)[0])


def test_xs_are_not_copied():
    """A residual that is one of the xs is that array itself."""

    def loss(c):
        return tb.lax.scan(lambda c, x: (c * x, None), c, tnp.arange(1.0, 11.0))[0]

    forward, backward = scans(tb.value_and_grad(loss), 2.0)

    assert stacked_floats(forward) == 0
    assert (10,) in [a.shape for a in backward.avals]


def test_ys_serve_as_residuals():
    """A result that is stacked anyway is not stacked twice."""

    def loss(c):
        def body(c, x):
            c = tnp.exp(c * x)
            return c, c

        return tnp.sum(tb.lax.scan(body, c, tnp.arange(1.0, 11.0))[1])

    forward, _ = scans(tb.grad(loss), 0.1)

    # exp's derivative is its result, which is the y.
    assert len(forward.outs) - forward.params["num_carry"] == 1


def test_unchanged_carries_are_constants():
    """A carry that the body returns as it was is not carried."""

    def loss(w):
        def body(c, x):
            w, s = c
            return (w, s + w @ x), None

        return tnp.sum(tb.lax.scan(body, (w, tnp.zeros(8)), XS)[0][1])

    forward, _ = scans(tb.value_and_grad(loss), W)

    assert forward.params["num_carry"] == 1
    np.testing.assert_allclose(np.full((8, 8), 10.0), np.asarray(tb.grad(loss)(W)))


def test_effect_of_unused_tangents():
    """Tangents of results that nothing differentiable reaches cost nothing."""

    def loss(c):
        def body(c, x):
            return (c[0] * x, c[1] + 1), c[1]

        (c, n), _ = tb.lax.scan(body, (c, 0), tnp.arange(1.0, 4.0))
        return c * n

    _, backward = scans(tb.grad(loss), 2.0)

    assert backward.params["num_carry"] == 1
    assert float(tb.grad(loss)(2.0)) == 18.0


def test_gradient_is_traced_once():
    """Body, linearization and transposition are remembered on the body."""
    calls = []

    def body(c, x):
        calls.append(1)
        return tnp.sin(c) * x, None

    def loss(c):
        return tb.lax.scan(body, c, tnp.arange(1.0, 4.0))[0]

    tb.grad(loss)(tnp.asarray(0.5))
    tb.jit(tb.grad(loss))(tnp.asarray(0.5))

    assert len(calls) == 1


def test_effects_of_constants_stay_in_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    """What prints a constant of the loop, as the last equation, prints it in each step."""

    def total(w: tb.Array, xs: tb.Array) -> tb.Array:
        def body(carry: tb.Array, x: tb.Array) -> tuple[tb.Array, None]:
            carry = tnp.sin(carry * w) + x
            tb.debug.print("w={}", w)
            return carry, None

        return tb.lax.scan(body, tnp.ones(()), xs)[0]

    tb.grad(total)(tnp.asarray(2.0), tnp.arange(3.0))
    tb.effects_barrier()
    assert ["w=2.0"] * 3 == capsys.readouterr().out.split()


def test_a_second_linearization_is_the_first():
    """The first one runs the rules of scan, the second one replays them staged."""

    def body(c, x):
        return tnp.sin(c) * x, c + x

    def loss(c, xs):
        last, ys = tb.lax.scan(body, c, xs)
        return tnp.sum(last) + tnp.sum(ys)

    xs = np.linspace(0.1, 0.9, 8, dtype=np.float32)
    results = [tb.grad(loss, (0, 1))(1.0, xs) for _ in range(3)]

    assert [g.tolist() for g in results[0]] == [g.tolist() for g in results[1]]
    assert [g.tolist() for g in results[0]] == [g.tolist() for g in results[2]]


@pytest.mark.parametrize("transform", [lambda f: f, tb.grad, lambda f: tb.grad(tb.grad(f))])
def test_programs_that_are_used_once_die_at_once(transform):
    """Nothing waits for the garbage collector: the body is freed with the program."""
    tb.clear_caches()

    def loss(c):
        return tb.lax.scan(lambda c, x: (tnp.sin(c) * x, None), c, XS[0])[0]

    jaxpr = tb.make_jaxpr(transform(loss))(2.0)
    bodies = [weakref.ref(app.params["jaxpr"]) for app, _ in jaxpr.jaxpr.equations if app.multiple]
    assert bodies
    assert all([body() is not None for body in bodies])
    gc.disable()
    try:
        del jaxpr, loss
        tb.clear_caches()
        assert [body() for body in bodies] == [None] * len(bodies)
    finally:
        gc.enable()


def test_an_eager_loop_keeps_its_executable():
    """The application of a loop that has run is not made, nor compiled, again."""

    def step(c, x):
        return c * x, None

    compiled = []

    def listen(name, *_, **__):
        if "compile" in name:
            compiled.append(name)

    tb.lax.scan(step, 2.0, XS[0])
    gc.collect()
    tb.monitoring.register_event_duration_secs_listener(listen)
    try:
        tb.lax.scan(step, 3.0, XS[0])
        assert compiled == []
        tb.lax.scan(lambda c, x: (c - x, None), 3.0, XS[0])
        assert compiled
    finally:
        tb.monitoring.unregister_event_duration_listener(listen)
