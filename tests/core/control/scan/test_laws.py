"""The laws of scan: under every transformation it is the loop written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.control.scan.loops import LOOPS, Loop, total
from tracebridge import tree

CASES = pytest.mark.parametrize("loop", LOOPS, ids=str)


def assert_same(expected: Any, actual: Any, rtol: float = 2e-5) -> None:
    """Trees of equal structure, dtypes and shapes with nearly equal numbers."""
    assert tree.structure(expected) == tree.structure(actual)
    for e, a in zip(tree.leaves(expected), tree.leaves(actual), strict=True):
        assert (e.shape, e.dtype) == (a.shape, a.dtype)
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), rtol=rtol, atol=1e-5)


@CASES
def test_value(loop: Loop) -> None:
    """scan gives what the loop gives, compiled or not."""
    expected = loop.unrolled(loop.params)

    assert_same(expected, loop.scanned(loop.params))
    assert_same(expected, tb.jit(loop.scanned)(loop.params))


@CASES
def test_gradient(loop: Loop) -> None:
    """Reverse mode agrees, outside and inside of jit and around it."""
    expected = tb.grad(lambda p: total(loop.unrolled(p)))(loop.params)
    scanned = tb.grad(lambda p: total(loop.scanned(p)))

    assert_same(expected, scanned(loop.params))
    assert_same(expected, tb.jit(scanned)(loop.params))
    assert_same(expected, tb.grad(lambda p: total(tb.jit(loop.scanned)(p)))(loop.params))


@CASES
def test_jvp(loop: Loop) -> None:
    """Forward mode agrees."""
    direction = tree.map(lambda x: tnp.cos(x) * 0.5, loop.params)
    expected = tb.jvp(lambda p: total(loop.unrolled(p)), (loop.params,), (direction,))

    assert_same(expected, tb.jvp(lambda p: total(loop.scanned(p)), (loop.params,), (direction,)))
    assert_same(
        expected,
        tb.jit(lambda p, t: tb.jvp(lambda q: total(loop.scanned(q)), (p,), (t,)))(
            loop.params, direction
        ),
    )


@CASES
def test_linearize(loop: Loop) -> None:
    """The linear function of linearize is the jvp at that point."""
    direction = tree.map(lambda x: tnp.cos(x) * 0.5, loop.params)
    expected = tb.jvp(lambda p: total(loop.unrolled(p)), (loop.params,), (direction,))[1]

    _, push = tb.linearize(lambda p: total(loop.scanned(p)), loop.params)

    assert_same(expected, push(direction))


@CASES
def test_second_order(loop: Loop) -> None:
    """Reverse over reverse and forward over reverse agree."""
    direction = tree.map(lambda x: tnp.cos(x) * 0.5, loop.params)

    def along(run: Any) -> Any:
        def slope(p: Any) -> Any:
            g = tb.grad(lambda q: total(run(q)))(p)
            pairs = zip(tree.leaves(g), tree.leaves(direction), strict=True)
            return sum([tnp.sum(a * b) for a, b in pairs])

        return slope

    expected = tb.grad(along(loop.unrolled))(loop.params)
    twice = tb.jit(tb.grad(along(loop.scanned)))(loop.params)
    gradient = tb.grad(lambda p: total(loop.scanned(p)))
    forward = tb.jvp(gradient, (loop.params,), (direction,))[1]

    assert_same(expected, twice, rtol=2e-4)
    assert_same(expected, forward, rtol=2e-4)


def stack3(params: Any) -> Any:
    """Three variants of each parameter along a new first axis."""
    return tree.map(lambda x: tnp.stack([x, x * 0.9 + 0.1, x * -0.5]), params)


@CASES
def test_vmap(loop: Loop) -> None:
    """A batch gives the stacked results of its elements, also of gradients."""
    batch = stack3(loop.params)
    rows = [tree.map(lambda x, i=i: x[i], batch) for i in range(3)]

    def stacked(f: Any) -> Any:
        return tree.map(lambda *xs: tnp.stack(xs), *[f(r) for r in rows])

    def gradient(p: Any) -> Any:
        return tb.grad(lambda q: total(loop.scanned(q)))(p)

    actual = tb.vmap(loop.scanned)(batch)
    summed = tb.grad(lambda b: tnp.sum(tb.vmap(lambda p: total(loop.scanned(p)))(b)))(batch)

    assert_same(stacked(loop.unrolled), actual)
    assert_same(stacked(gradient), tb.jit(tb.vmap(gradient))(batch))
    assert_same(stacked(gradient), summed)


@CASES
@pytest.mark.parametrize("axis", [0, 1])
def test_vmap_of_some_arguments(loop: Loop, axis: int) -> None:
    """Only one parameter is batched, along either axis of its array."""
    key = max(loop.params)
    x = loop.params[key]
    if x.ndim < axis:
        axis = 0
    batch = {**loop.params, key: tnp.stack([x, x * 0.9, x * -0.5], axis)}
    axes = {k: axis if k == key else None for k in loop.params}
    rows = [loop.params | {key: x * f} for f in (1.0, 0.9, -0.5)]
    expected = tree.map(lambda *xs: tnp.stack(xs), *[loop.unrolled(r) for r in rows])

    # Results that do not depend on the batched parameter are repeated.
    assert_same(expected, tb.vmap(loop.scanned, in_axes=(axes,))(batch))


@CASES
def test_vmap_in_vmap(loop: Loop) -> None:
    """Two batch axes."""
    batch = stack3(stack3(loop.params))
    inner = tree.map(lambda x: x[1, 2], batch)

    actual = tb.vmap(tb.vmap(loop.scanned))(batch)

    assert_same(loop.unrolled(inner), tree.map(lambda x: x[1, 2], actual))
