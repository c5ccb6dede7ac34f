"""Interpreters that repeat equations, over programs of every higher-order primitive."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge import lax
from tracebridge.extend import core

X = np.float32(0.7)


def evaluate(jaxpr: Any, consts: Sequence[Any], *args: Any) -> list[Any]:
    """Each equation is bound again with ``get_bind_params``."""
    env: dict[Any, Any] = {}

    def read(var: Any) -> Any:
        return var.val if type(var) is core.Literal else env[var]

    env.update(zip(jaxpr.invars, args, strict=True))
    env.update(zip(jaxpr.constvars, consts, strict=True))
    for eqn in jaxpr.eqns:
        params = eqn.primitive.get_bind_params(eqn.params)
        outs = eqn.primitive.bind(*map(read, eqn.invars), **params)
        env.update(
            zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True)
        )
    return [read(v) for v in jaxpr.outvars]


@tb.custom_jvp
def tripled(x: Any) -> Any:
    """Its derivative is three, whatever it computes."""
    return tnp.sin(x)


tripled.defjvps(lambda t, ans, x: 3 * t)


@tb.custom_vjp
def scaled(x: Any, y: Any) -> Any:
    """Its cotangents are 10 and 20."""
    return x * y


scaled.defvjp(lambda x, y: (x * y, None), lambda _, g: (10 * g, 20 * g))


@functools.partial(tb.custom_vjp, nondiff_argnums=(0,))
def applied(f: Any, x: Any) -> Any:
    """Its cotangent is 7."""
    return f(x)


applied.defvjp(lambda f, x: (f(x), None), lambda f, _, g: (7 * g,))


@tb.custom_batching.custom_vmap
def batched(x: Any) -> Any:
    """Maps to something else."""
    return tnp.cos(x)


@batched.def_vmap
def _(size: int, marks: Any, x: Any) -> Any:
    return tnp.cos(x) + size, True


def root(x: Any) -> Any:
    """The square root by Newton's method."""

    def solve(f: Any, guess: Any) -> Any:
        return lax.fori_loop(0, 20, lambda _, z: z - f(z) / (2 * z), guess)

    return lax.custom_root(lambda y: y * y - x, x, solve, lambda g, y: y / g(1.0))


def halved(b: Any) -> Any:
    """The solution of 2 x = b."""
    return lax.custom_linear_solve(lambda v: 2.0 * v, b, lambda _, b: b / 2.0, lambda _, b: b / 2.0)


def looped(x: Any) -> Any:
    """A while loop around a custom rule."""
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * tripled(c[1])), (0, x))[1]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "custom_jvp": tripled,
    "custom_vjp": lambda x: scaled(x, x + 1),
    "custom_vjp with a function": lambda x: applied(tnp.sin, x),
    "custom_vmap": batched,
    "custom_gradient": tb.custom_gradient(lambda x: (x**2, lambda g: (5 * g,))),
    "custom_root": root,
    "custom_linear_solve": halved,
    "linear_call": lambda x: tb.custom_derivatives.linear_call(
        lambda r, t: r * t, lambda r, t: r * t, 2.0, x
    ),
    "checkpoint": tb.checkpoint(lambda x: tnp.sin(tnp.cos(x))),
    "jit": tb.jit(lambda x: 2 * x + 1),
    "nested": tb.jit(tb.checkpoint(lambda x: tripled(scaled(x, x)))),
    "scan": lambda x: lax.scan(lambda c, y: (c * tripled(c) * y, c), x, np.ones(3, "f4"))[0],
    "cond": lambda x: lax.cond(x > 0, tripled, lambda x: -x, x),
    "switch": lambda x: lax.switch(np.int32(1), [tripled, tnp.cos, lambda x: -x], x),
    "while": looped,
    "fori": lambda x: lax.fori_loop(0, 3, lambda _, c: c * x, x),
    "map": lambda x: tnp.sum(lax.map(tripled, x + np.arange(3.0, dtype="f4"))),
    "associative_scan": lambda x: tnp.sum(lax.associative_scan(tnp.add, x + np.ones(4, "f4"))),
    "platform_dependent": lambda x: lax.platform_dependent(
        x, cpu=lambda v: 2 * v, default=lambda v: 3 * v
    ),
    "derivative of custom_jvp": tb.grad(lambda x: tripled(x) ** 2),
    "derivative of checkpoint": tb.grad(tb.checkpoint(lambda x: tnp.sin(tnp.sin(x)))),
    "derivative of scan": tb.grad(lambda x: lax.scan(lambda c, _: (tnp.sin(c), c), x, None, 3)[0]),
    "mapped while": lambda x: tnp.sum(
        tb.vmap(lambda y: lax.while_loop(lambda c: c < 10, lambda c: 2 * c, y))(
            x + np.arange(1.0, 4.0, dtype="f4")
        )
    ),
}
FORWARD = frozenset(("custom_jvp", "checkpoint", "jit", "scan", "cond", "switch", "while"))
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "none": lambda f: f(X),
    "jit": lambda f: tb.jit(f)(X),
    "grad": lambda f: tb.grad(f)(X),
    "grad of jit": lambda f: tb.grad(tb.jit(f))(X),
    "vmap": lambda f: tb.vmap(f)(X + np.arange(2.0, dtype="f4")),
    "grad of vmap": lambda f: tb.grad(lambda x: tnp.sum(tb.vmap(f)(x)))(X * np.ones(2, "f4")),
    "scan": lambda f: lax.scan(lambda c, x: (c, f(x)), 0, np.float32([X, 1.0]))[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_repeated_equations_are_the_function(name: str) -> None:
    """Under every transformation: custom rules, saved residuals and loops survive."""
    f = PROGRAMS[name]
    closed = tb.make_jaxpr(f)(X)

    def run(x: Any) -> Any:
        return evaluate(closed.jaxpr, closed.consts, x)[0]

    for around, transform in TRANSFORMS.items():
        if name in ("while", "mapped while") and "grad" in around:
            continue  # loops of unknown length have no reverse mode
        assert np.allclose(transform(f), transform(run), rtol=1e-5), around
    again = tb.make_jaxpr(run)(X)
    names = [primitives_in(c) for c in (closed, again)]
    assert names[0] == names[1]
    if name in FORWARD:
        expected, got = (tb.jvp(g, (X,), (X,)) for g in (f, run))
        assert np.allclose(expected, got, rtol=1e-5)


def test_names_of_calls_and_constraints() -> None:
    """Tables by primitive can have entries for calls and for sharding constraints."""
    place = tb.sharding.NamedSharding(tb.make_mesh((1,), ("x",), tb.sharding.AxisType.Auto), tb.P())
    constrained = tb.make_jaxpr(lambda x: lax.with_sharding_constraint(x, place))(X)

    assert core.primitives.call_p is core.primitives.closed_call_p
    assert [core.primitives.sharding_constraint_p] == [e.primitive for e in constrained.jaxpr.eqns]
