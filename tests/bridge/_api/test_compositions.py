"""Transformations of transformations, against derivatives known in closed form."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax

X = np.array([0.3, -0.7, 1.1], np.float32)


def f(x: Any) -> Any:
    """sin(x) x^2, of numbers and arrays."""
    return tnp.sin(x) * x * x


def df(x: Any) -> Any:
    """Its derivative."""
    return np.cos(x) * x * x + 2 * x * np.sin(x)


def ddf(x: Any) -> Any:
    """Its second derivative."""
    return -np.sin(x) * x * x + 4 * x * np.cos(x) + 2 * np.sin(x)


FIRST: dict[str, Callable[[Any], Any]] = {
    "grad": tb.grad,
    "value_and_grad": lambda g: lambda x: tb.value_and_grad(g)(x)[1],
    "jacrev": tb.jacrev,
    "jacfwd": tb.jacfwd,
    "jvp": lambda g: lambda x: tb.jvp(g, (x,), (tnp.ones_like(x),))[1],
    "vjp": lambda g: lambda x: tb.vjp(g, x)[1](tnp.ones_like(g(x)))[0],
    "linearize": lambda g: lambda x: tb.linearize(g, x)[1](tnp.ones_like(x)),
    "transposed linearize": lambda g: (
        lambda x: tb.linear_transpose(tb.linearize(g, x)[1], x)(tnp.ones_like(g(x)))[0]
    ),
}


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("compile_", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_first_derivatives(name: str, compile_: bool, batched: bool) -> None:
    """Each way to a derivative, of a number or mapped, eager or compiled inside and outside."""
    g = FIRST[name](tb.jit(f) if compile_ else f)
    if batched:
        g = tb.vmap(g)
    if compile_:
        g = tb.jit(g)
    x = X if batched else np.float32(0.3)

    np.testing.assert_allclose(g(x), df(x), rtol=1e-5)


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(FIRST, FIRST)))
def test_second_derivatives(outer: str, inner: str) -> None:
    """Every mode over every mode, eager and compiled."""
    g = FIRST[outer](FIRST[inner](f))

    x = np.float32(0.3)
    np.testing.assert_allclose(g(x), ddf(x), rtol=1e-5)
    np.testing.assert_allclose(tb.jit(g)(x), ddf(x), rtol=1e-5)


def test_high_orders() -> None:
    """The sixth derivative of sin is -sin."""
    g: Any = tnp.sin
    for _ in range(6):
        g = tb.grad(g)

    assert float(tb.jit(g)(0.3)) == pytest.approx(-np.sin(0.3), rel=1e-6)


@pytest.mark.parametrize("compile_", [False, True])
def test_perturbations_are_not_confused(compile_: bool) -> None:
    """Inner derivatives treat outer variables as constants, in all mixtures of modes."""
    maybe: Any = tb.jit if compile_ else lambda g: g

    def forward(g: Any, x: Any, t: Any = 1.0) -> Any:
        return tb.jvp(maybe(g), (x,), (t,))[1]

    cases = [
        (1.0, lambda x: x * tb.grad(maybe(lambda y: x + y))(1.0)),
        (10.0, lambda x: forward(lambda y: y * x, 3.0, 10.0)),
        (2.0, lambda x: x * tb.grad(maybe(lambda y: x * y))(2.0)),
        (1.0, lambda x: x * forward(lambda y: x + y, 1.0)),
        (0.0, lambda x: tb.grad(maybe(lambda y: y * y))(3.0)),
    ]
    for expected, g in cases:
        assert expected == float(tb.grad(maybe(g))(1.0))
        assert expected == float(forward(g, 1.0))


def test_closed_over_tracers_of_several_levels() -> None:
    """A compiled function that uses values of two enclosing traces."""

    def outer(a: Any) -> Any:
        def middle(b: Any) -> Any:
            inner = tb.jit(lambda c: a * b * c)
            return tb.grad(inner)(5.0) * b

        return tb.grad(middle)(2.0)

    # d/db (a b b) = 2ab at b=2, d/da of that = 4.
    assert 4.0 == float(tb.grad(outer)(3.0)) == float(tb.jit(tb.grad(outer))(3.0))


def test_mapped_and_unmapped_arguments_of_derivatives() -> None:
    """vmap over parameters, data and both of a compiled gradient."""
    w = np.stack([X, 2 * X])
    x = np.stack([X, X + 1, X - 1])
    g = tb.jit(tb.grad(lambda w, x: tnp.tanh(tnp.dot(w, x))))

    both = tb.vmap(tb.vmap(g, (None, 0)), (0, None))(w, x)

    expected = (1 - np.tanh(w @ x.T) ** 2)[..., None] * x[None]
    np.testing.assert_allclose(both, expected, rtol=1e-4, atol=1e-6)


def test_control_flow_inside_transformations() -> None:
    """Derivatives and maps of scans and conditionals, compiled."""

    def g(x: Any) -> Any:
        total, _ = lax.scan(lambda c, k: (c + lax.cond(k > 1, tnp.sin, tnp.cos, x * k), None),
                            0.0, tnp.arange(4.0))  # fmt: skip
        return total

    def dg(x: Any) -> Any:
        return -np.sin(x) + 2 * np.cos(2 * x) + 3 * np.cos(3 * x)

    np.testing.assert_allclose(tb.jit(tb.vmap(tb.grad(g)))(X), dg(X), rtol=1e-4)
    np.testing.assert_allclose(tb.vmap(tb.jacfwd(tb.jit(g)))(X), dg(X), rtol=1e-4)


def test_pytrees_pass_through_all_transformations() -> None:
    """A registered class goes through jit, grad and vmap."""

    @tb.tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

        def tree_flatten(self) -> Any:
            return (self.a, self.b), None

        @classmethod
        def tree_unflatten(cls, _: Any, children: Any) -> Any:
            return cls(*children)

    g = tb.jit(tb.vmap(tb.grad(lambda p: p.a * tnp.sin(p.b))))
    result = g(Pair(X, 2 * X))

    assert isinstance(result, Pair)
    np.testing.assert_allclose(result.a, np.sin(2 * X), rtol=1e-6)
    np.testing.assert_allclose(result.b, X * np.cos(2 * X), rtol=1e-5)


def test_threads_trace_independently() -> None:
    """A trace belongs to its thread: others stay eager or trace for themselves."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work(k: int) -> None:
        try:

            def g(x: Any) -> Any:
                barrier.wait(timeout=60)
                assert isinstance(tnp.sin(1.0), tb.Array) is True
                return tnp.sin(x) * k

            value = tb.jit(tb.grad(g))(0.5)
            assert float(value) == pytest.approx(k * np.cos(0.5), rel=1e-6)
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == errors


def _both(x: Any, y: Any) -> Any:
    return tnp.sum(x * y)


@pytest.mark.parametrize(
    "gradient",
    [
        tb.grad(_both),
        tb.jit(tb.grad(_both)),
        tb.grad(tb.jit(_both)),
        tb.grad(tb.checkpoint(_both)),
        tb.jacrev(_both),
        lambda x, y: tb.value_and_grad(_both)(x, y)[1],
        lambda x, y: tb.vjp(_both, x, y)[1](np.float32(1.0))[0],
        lambda x, y: tb.linear_transpose(lambda x: _both(x, y), x)(np.float32(1.0))[0],
        lambda x, y: tb.grad(lambda p: _both(*p))((x, y))[0],
        lambda x, y: tb.grad(lambda x: lax.cond(y[0] > 0, lambda z: _both(z, y), tnp.sin, x))(x),
        lambda x, y: tb.grad(lambda x: lax.scan(lambda c, a: (c * a, c), x, y)[1].sum())(x),
        lambda x, y: lax.scan(lambda c, a: (tb.grad(_both)(c, y), a), x, y)[0],
        lambda x, y: tb.vmap(tb.grad(lambda x, y: x * y), (None, 0))(x, y)[0:],
    ],
)
def test_derivatives_by_python_numbers_are_weakly_typed(gradient: Any) -> None:
    """A gradient has the weak type of the argument, whatever arrays took part."""
    y = tnp.ones(3, "float32")

    weak = gradient(2.0, y)
    strong = gradient(tnp.float32(2.0), y)

    assert (True, tnp.float32) == (weak.weak_type, weak.dtype)
    assert (False, tnp.float32) == (strong.weak_type, strong.dtype)
    assert weak.tolist() == strong.tolist()


def test_derivatives_by_unused_python_numbers_are_weakly_typed() -> None:
    """So are zeros, and blocks of matrices of second derivatives."""
    y = tnp.ones(3, "float32")

    rows = tb.jacrev(lambda x, y: 2 * y, (0, 1))(2.0, y)
    blocks = tb.hessian(lambda x, y: tnp.sum(x * x * y), (0, 1))(2.0, y)

    assert [True, False] == [r.weak_type for r in rows]
    assert [[True, True], [False, False]] == [[b.weak_type for b in row] for row in blocks]


def test_weak_gradients_keep_programs_in_use() -> None:
    """A step of gradient descent on Python numbers is compiled once."""
    step = tb.jit(lambda w, x: w - 0.1 * tb.grad(_both)(w, x))
    w = 2.0 * tnp.asarray(1.0)
    for _ in range(3):
        w = step(w, tnp.ones(3, "float32"))

    assert w.weak_type is True
    assert step._cache_size() == 1
