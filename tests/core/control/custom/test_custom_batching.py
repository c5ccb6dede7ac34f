"""custom_vmap and sequential_vmap: mapped functions follow the rule of the user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.transform_errors import ArgumentSpecError, CustomRuleError
from tracebridge.custom_batching import custom_vmap, sequential_vmap


def make() -> tuple[Any, list[Any]]:
    """``sin(x) * y`` and ``x``, ten times as much when mapped; what the rule was called with."""
    seen: list[Any] = []

    @custom_vmap
    def f(x: Any, y: Any) -> Any:
        return {"a": tnp.sin(x) * y, "b": x}

    @f.def_vmap
    def rule(axis_size: Any, in_batched: Any, x: Any, y: Any) -> Any:
        seen.append((axis_size, in_batched))
        out = {"a": 10.0 * tnp.sin(x) * y, "b": x}
        return out, {"a": in_batched[0] or in_batched[1], "b": in_batched[0]}

    return f, seen


def honest() -> Any:
    """A function of two results whose rule computes the same."""

    @custom_vmap
    def f(x: Any, y: Any) -> Any:
        return tnp.sin(x) * y, x * y * y

    @f.def_vmap
    def rule(axis_size: Any, in_batched: Any, x: Any, y: Any) -> Any:
        either = in_batched[0] or in_batched[1]
        return (tnp.sin(x) * y, x * y * y), (either, either)

    return f


X = tnp.asarray([0.5, 1.0, 1.5])


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_the_rule_is_used(wrap: Callable[..., Any]) -> None:
    """Under vmap the rule runs, with the axis size and what is batched; else the function does."""
    f, seen = make()

    np.testing.assert_allclose(wrap(f)(0.5, 2.0)["a"], np.sin(0.5) * 2.0, rtol=1e-6)
    assert seen == []
    out = wrap(tb.vmap(f, (0, None)))(X, 2.0)
    np.testing.assert_allclose(out["a"], 20.0 * np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(out["b"], X)
    assert seen == [(3, [True, False])]
    out = tb.vmap(wrap(f), (None, 0))(0.5, X)
    assert seen[-1] == (3, [False, True])
    assert out["b"].shape == (3,)


def test_axes_are_moved_in_front() -> None:
    """Wherever the mapped axis is, the rule gets it first."""
    shapes: list[Any] = []

    @custom_vmap
    def f(x: Any) -> Any:
        return x

    @f.def_vmap
    def rule(axis_size: Any, in_batched: Any, x: Any) -> Any:
        shapes.append(x.shape)
        return x, True

    for wrap in (lambda g: g, tb.jit):
        assert tb.vmap(wrap(f), 1, 1)(tnp.ones((2, 5))).shape == (2, 5)
    assert shapes == [(5, 2), (5, 2)]


def test_trees_of_arguments_and_keywords() -> None:
    """in_batched has the structure of the arguments; keywords are put in their places."""
    seen: list[Any] = []

    @custom_vmap
    def f(d: Any, y: Any = 2.0) -> Any:
        return d["u"] * y + d["v"]

    @f.def_vmap
    def rule(axis_size: Any, in_batched: Any, d: Any, y: Any) -> Any:
        seen.append(in_batched)
        return d["u"] * y + d["v"], True

    out = tb.vmap(lambda u: f(y=3.0, d={"u": u, "v": 1.0}))(X)
    np.testing.assert_allclose(out, X * 3.0 + 1.0)
    assert seen == [[{"u": True, "v": False}, False]]
    assert float(f({"u": 1.0, "v": 2.0})) == 4.0


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_nested_vmap(wrap: Callable[..., Any]) -> None:
    """The rule's program is mapped again; a rule may call its own function."""
    f, seen = make()
    grid = tnp.arange(6.0).reshape(2, 3)

    out = wrap(tb.vmap(tb.vmap(f, (0, None)), (0, None)))(grid, 2.0)["a"]
    np.testing.assert_allclose(out, 20.0 * np.sin(grid), rtol=1e-5)
    assert seen == [(3, [True, False])]

    @custom_vmap
    def g(x: Any) -> Any:
        return 2.0 * x

    g.def_vmap(lambda n, b, x: (g(x) + 1.0, True))
    np.testing.assert_allclose(wrap(tb.vmap(tb.vmap(g)))(grid), 2.0 * grid + 2.0)


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_derivatives_use_the_rule(wrap: Callable[..., Any]) -> None:
    """Derivatives of mapped calls and mapped derivatives are those of the rule."""
    f, _ = make()
    first = lambda x, y: f(x, y)["a"]

    np.testing.assert_allclose(wrap(tb.grad(first))(0.5, 2.0), 2.0 * np.cos(0.5), rtol=1e-6)
    mapped = wrap(tb.grad(lambda x: tb.vmap(first, (0, None))(x, 2.0).sum()))(X)
    np.testing.assert_allclose(mapped, 20.0 * np.cos(X), rtol=1e-5)
    each = wrap(tb.vmap(tb.grad(first), (0, None)))(X, 2.0)
    np.testing.assert_allclose(each, 20.0 * np.cos(X), rtol=1e-5)
    pushed = wrap(tb.vmap(lambda x: tb.jvp(lambda x: first(x, 2.0), (x,), (1.0,))[1]))(X)
    np.testing.assert_allclose(pushed, 20.0 * np.cos(X), rtol=1e-5)
    of_tangents = wrap(tb.vmap(lambda t: tb.jvp(lambda x: first(x, 2.0), (0.5,), (t,))))(X)
    np.testing.assert_allclose(of_tangents[0], np.full(3, 20.0 * np.sin(0.5)), rtol=1e-5)
    np.testing.assert_allclose(of_tangents[1], 20.0 * np.cos(0.5) * X, rtol=1e-5)
    other = wrap(tb.vmap(tb.grad(first, 1), (None, 0)))(0.5, X)
    np.testing.assert_allclose(other, np.full(3, 10.0 * np.sin(0.5)), rtol=1e-5)
    shared = wrap(tb.grad(lambda y: tb.vmap(first, (0, None))(X, y).sum()))(2.0)
    np.testing.assert_allclose(shared, 10.0 * np.sin(X).sum(), rtol=1e-5)


@pytest.mark.parametrize(
    "derive",
    [
        tb.grad,
        tb.jacfwd,
        tb.jacrev,
        lambda g: tb.grad(g, (0, 1)),
        lambda g: tb.grad(tb.grad(g)),
        lambda g: tb.jacfwd(tb.grad(g, 1)),
        lambda g: lambda x, y: tb.vmap(tb.grad(g, (0, 1)), (0, None))(x * X, y),
    ],
)
@pytest.mark.parametrize("k", [0, 1])
def test_agrees_with_the_plain_function(derive: Callable[..., Any], k: int) -> None:
    """With an honest rule every pair of transformations gives what it gives without."""
    f = honest()
    ours, theirs = lambda x, y: f(x, y)[k], lambda x, y: f.fun(x, y)[k]
    expected = tb.vmap(derive(theirs), (0, None))(X, 2.0)

    for wrap in (lambda g: g, tb.jit):
        got = wrap(tb.vmap(derive(ours), (0, None)))(X, 2.0)
        for a, b in zip(tb.tree.leaves(got), tb.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_in_loops_and_checkpoints() -> None:
    """scan and checkpoint keep the rule."""
    f, _ = make()
    step = lambda c, _: (f(c, 1.0)["a"], None)
    loop = lambda x: tb.lax.scan(step, x, None, length=2)[0]
    np.testing.assert_allclose(
        tb.vmap(loop)(X), 10.0 * np.sin(10.0 * np.sin(np.asarray(X))), rtol=1e-5
    )
    kept = tb.checkpoint(lambda x: f(x, 1.0)["a"])
    np.testing.assert_allclose(tb.vmap(tb.grad(kept))(X), 10.0 * np.cos(X), rtol=1e-5)
    np.testing.assert_allclose(tb.jit(tb.grad(loop))(0.5), np.cos(np.sin(0.5)) * np.cos(0.5), 1e-5)


def test_unused_results() -> None:
    """A result that is not used is left out of the call, and the rule still works."""
    f, _ = make()
    jaxpr = tb.make_jaxpr(tb.grad(lambda x: f(x, 2.0)["a"]))(0.5)

    assert "custom_vmap_call" in str(jaxpr)
    linear = lambda y: tb.linear_transpose(lambda y: f(0.5, y)["a"], 1.0)(y)[0]
    np.testing.assert_allclose(linear(3.0), 3.0 * np.sin(0.5), rtol=1e-6)
    np.testing.assert_allclose(tb.vmap(linear)(X), 10.0 * np.sin(0.5) * X, rtol=1e-5)


def test_closures() -> None:
    """Function and rule may close over values that are not mapped, traced ones too."""

    def h(x: Any, ys: Any) -> Any:
        @custom_vmap
        def g(y: Any) -> Any:
            return x * y

        g.def_vmap(lambda n, b, y: (100.0 * x * y, True))
        return tb.vmap(g)(ys)

    np.testing.assert_allclose(tb.jit(h)(2.0, X), 200.0 * X)
    np.testing.assert_allclose(h(2.0, X), 200.0 * X)
    np.testing.assert_allclose(tb.grad(lambda x: h(x, X).sum())(2.0), 300.0, rtol=1e-5)

    def over_mapped(x: Any) -> Any:
        @custom_vmap
        def g(y: Any) -> Any:
            return x * y

        g.def_vmap(lambda n, b, y: (x * y, True))
        return tb.jit(g)(x)

    with pytest.raises(CustomRuleError, match="closes over"):
        tb.vmap(over_mapped)(X)


def test_sequential_vmap() -> None:
    """One example after the other: a loop, also under two vmaps, with derivatives."""
    plain = lambda x, y: {"s": tnp.sin(x) * y}
    f = sequential_vmap(plain)
    assert float(f(1.0, 2.0)["s"]) == float(plain(1.0, 2.0)["s"])
    both = lambda f: tb.vmap(tb.vmap(f, (0, None)), (None, 0))

    for wrap in (lambda g: g, tb.jit):
        for axes in ((0, None), (None, 0), (0, 0)):
            args = tuple(X if a == 0 else 2.0 for a in axes)
            got = wrap(tb.vmap(f, axes))(*args)["s"]
            np.testing.assert_allclose(got, tb.vmap(plain, axes)(*args)["s"], rtol=1e-6)
        np.testing.assert_allclose(wrap(both(f))(X, X)["s"], both(plain)(X, X)["s"], rtol=1e-6)
        grads = wrap(tb.vmap(tb.grad(lambda x: f(x, 2.0)["s"])))(X)
        np.testing.assert_allclose(grads, 2.0 * np.cos(X), rtol=1e-5)
        total = wrap(tb.grad(lambda x: tb.vmap(f, (0, None))(x, 2.0)["s"].sum()))(X)
        np.testing.assert_allclose(total, 2.0 * np.cos(X), rtol=1e-5)
    assert "scan" in str(tb.make_jaxpr(tb.vmap(f, (0, None)))(X, 2.0))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda x: x, "expected a pair"),
        (lambda x: (x, [True]), "different structures"),
        (lambda x: (x, 1), "expected a boolean"),
        (lambda x: (x[:2], True), "without the batch axis"),
    ],
)
def test_wrong_rules(result: Any, text: str) -> None:
    """What the rule returns is checked, with and without a trace around."""
    f = custom_vmap(lambda x: x)
    f.def_vmap(lambda n, b, x: result(x))

    for wrap in (lambda g: g, tb.jit):
        with pytest.raises(CustomRuleError, match=text):
            tb.vmap(wrap(f))(X)


@pytest.mark.parametrize(
    "result", [lambda x: (x, False), lambda x: ((x, x), (True, True)), lambda x: (x > 0, True)]
)
def test_results_of_another_type(result: Any) -> None:
    """The result is that of the function with a batch axis."""
    f = custom_vmap(lambda x: x)
    f.def_vmap(lambda n, b, x: result(x))

    with pytest.raises(CustomRuleError, match="is not that of <lambda> with a batch axis"):
        tb.vmap(tb.jit(f))(X)


def test_bad_input() -> None:
    """No rule, a rule that is no function, no function."""
    with pytest.raises(CustomRuleError, match="No batching rule defined"):
        custom_vmap(tnp.sin)(1.0)
    with pytest.raises(ArgumentSpecError, match="expected a function"):
        custom_vmap(tnp.sin).def_vmap(3)
    with pytest.raises(TypeError, match="expected a function"):
        custom_vmap(3)
    f, _ = make()
    with pytest.raises(ArgumentSpecError, match="does not fit"):
        f(1.0)
    assert (f.__name__, callable(f.vmap_rule), repr(f)) == ("f", True, "<custom_vmap f>")
