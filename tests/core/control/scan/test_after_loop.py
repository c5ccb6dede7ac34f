"""Contractions after a backward loop: the same cotangents, and only where the memory allows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tracebridge import lax
from tracebridge.core.config.scopes import scope


def recurrent(x: Any, w: Any, u: Any, b: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = tnp.tanh(x @ w + h @ u.T + b)
        return h, h

    return lax.scan(step, tnp.zeros((x.shape[1], w.shape[1]), x.dtype), x)[1]


def used_twice(x: Any, w: Any, u: Any, b: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = tnp.sin((x @ w) @ u + (tnp.cos(x) @ w) + b * b)
        return h, h @ u

    return lax.scan(step, tnp.zeros((x.shape[1], w.shape[1]), x.dtype), x, reverse=True)[1]


def elementwise(x: Any, w: Any, u: Any, b: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = tnp.sin(h * w[0] + x @ w)
        return h, h

    return lax.scan(step, tnp.zeros((x.shape[1], w.shape[1]), x.dtype) + b, x)[1] + u[0]


def of_slices_only(x: Any, w: Any, u: Any, b: Any) -> Any:
    """The gradient of the slices alone: products with what no step changes."""

    def step(h: Any, x: Any) -> Any:
        h = tnp.tanh(h + lax.dot(lax.stop_gradient(w).T, x.T).T)
        return h, h

    return lax.scan(step, tnp.zeros((x.shape[1], w.shape[1]), x.dtype) + b, x)[1] + u[0]


PROGRAMS = [recurrent, used_twice, elementwise, of_slices_only]


def arguments(length: int, batch: int = 3, dtype: Any = np.float32) -> list[Any]:
    random = np.random.default_rng(0)
    shapes = ((length, batch, 4), (4, 5), (5, 5), (5,))
    return [random.standard_normal(s).astype(dtype) for s in shapes]


def gradient(program: Any, *, order: int = 1) -> Any:
    """The gradient of a number made of the program, or of a sum of squares of that."""

    def value(*args: Any) -> Any:
        return (program(*args) ** 2).sum()

    found = tb.grad(value, (0, 1, 2, 3))
    if order == 1:
        return found
    return tb.grad(lambda *args: sum((g**2).sum() for g in found(*args)), (0, 1, 2, 3))


def both(f: Any, *args: Any) -> tuple[Any, Any]:
    """Results with contractions after the loop, and with sums in the loop."""
    after = tb.jit(f)(*args)
    with scope("platform_rules", False):
        return after, tb.jit(lambda *args: f(*args))(*args)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_the_loop(program: Any, order: int) -> None:
    """First and second order, in float64."""
    with tb.enable_x64():
        after, inside = both(gradient(program, order=order), *arguments(4, dtype=np.float64))

    for a, b in zip(after, inside, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("length", [0, 1])
def test_of_no_steps_and_of_one(length: int) -> None:
    """In float32: small elements are sums of large ones, which are rounded in either program."""
    for program in PROGRAMS:
        after, inside = both(gradient(program), *arguments(length))
        for a, b in zip(after, inside, strict=True):
            largest = np.abs(np.asarray(b)).max(initial=1)
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * largest)


def test_mapped_over_each_argument() -> None:
    args = arguments(3)
    for position in range(4):
        axes = tuple([0 if i == position else None for i in range(4)])
        stacked = [np.stack([a, 2 * a]) if i == position else a for i, a in enumerate(args)]
        after, inside = both(tb.vmap(gradient(recurrent), in_axes=axes), *stacked)
        for a, b in zip(after, inside, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def carries(f: Any, *args: Any) -> int:
    """How many values the backward loop carries."""
    jaxpr = tb.make_jaxpr(f)(*args)
    loops = [e for e in equations_of(jaxpr, "scan") if e.params["reverse"]]
    return loops[-1].params["num_carry"]


def test_weights_and_biases_are_not_carried() -> None:
    """Only the cotangent of the state is; with the option off there are three sums more."""
    args = arguments(10)
    assert carries(gradient(recurrent), *args) == 1
    with scope("platform_rules", False):
        assert carries(lambda *a: gradient(recurrent)(*a), *args) == 4


def test_large_stacks_for_small_sums_stay_in_the_loop() -> None:
    """A batch so much larger than the weights: their cotangent is summed in the loop."""

    def f(x: Any, w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = tnp.sin(h + x[:, None] * w)
            return h, None

        return lax.scan(step, tnp.zeros((1000, 2)), x)[0].sum()

    x, w = np.ones((5, 1000), np.float32), np.ones(2, np.float32)
    assert carries(tb.grad(f, 1), x, w) == 2


def test_one_program_for_several_lengths() -> None:
    """The body is shared; what is done after the loop depends on the length."""
    for length in (3, 5, 3):
        after, inside = both(gradient(recurrent), *arguments(length))
        for a, b in zip(after, inside, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_split_transpose_keeps_its_two_loops() -> None:
    def f(w: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = tnp.tanh(h @ w + x)
            return h, h

        return lax.scan(step, x[0], x, _split_transpose=True)[1].sum()

    w, x = np.full((3, 3), 0.1, np.float32), np.ones((4, 3), np.float32)
    expected = tb.grad(lambda w: f(w, x))(w)
    np.testing.assert_allclose(tb.jit(tb.grad(f))(w, x), expected, rtol=1e-6)
    assert len(equations_of(tb.make_jaxpr(tb.grad(f))(w, x), "scan")) == 3


def test_nothing_is_stacked_in_vain() -> None:
    """A sum of a contraction and of something else: what only the contraction would need is not."""

    def f(w: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = tnp.sin(h + x @ w) + (w * tnp.cos(w)).sum()
            return h, None

        return lax.scan(step, tnp.zeros((3, 4)), x)[0].sum()

    w, x = np.full((4, 4), 0.1, np.float32), np.ones((5, 3, 4), np.float32)
    after, inside = both(tb.grad(f), w, x)
    np.testing.assert_allclose(after, inside, rtol=1e-5)
    backward = equations_of(tb.make_jaxpr(tb.grad(f))(w, x), "scan")[-1]
    read = len(backward.outs) - backward.params["num_carry"]
    assert read <= 1


def test_values_of_several_results_are_no_inputs() -> None:
    """What a call or a sort makes of constants in the step is not there after the loop."""
    xs, w, *_ = arguments(6)

    def transposed(w: Any, ct: Any) -> Any:
        def linear(xs: Any) -> Any:
            def step(c: Any, x: Any) -> Any:
                _, found = lax.sort([w, 2 * w], num_keys=1)
                return c, x @ found

            return lax.scan(step, 0.0, xs)[1]

        return tb.linear_transpose(linear, xs)(ct)[0]

    ct = np.ones((6, 3, 5), np.float32)
    np.testing.assert_allclose(
        transposed(w, ct), ct @ (2 * np.sort(w, axis=-1)).T, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("doubled", [False, True])
def test_cotangents_that_are_long_sums(doubled: bool) -> None:
    """Weights with 600 uses in a step, and weights that are doubled 40 times."""
    xs, _, u, _ = arguments(2)

    def f(u: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            v = u
            for _ in range(40 if doubled else 0):
                v = v + v
            for _ in range(1 if doubled else 600):
                h = tnp.tanh(h @ v)
            return h, None

        return lax.scan(step, tnp.ones((3, 5)), xs)[0].sum()

    loops = equations_of(tb.make_jaxpr(tb.grad(f))(u), "scan")
    # So many products are more to stack than the loop should leave behind.
    assert [e.params["num_carry"] for e in loops] == ([1, 1] if doubled else [1, 2])
