"""Residuals of pullbacks: which arguments are needed, taking them out, and putting them back."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge._api.derivatives.pullback import NotNeeded
from tracebridge.errors import ArgumentTypeError, ArgumentValueError

X = np.arange(3, dtype="f4")
W = {"a": np.arange(9, dtype="f4").reshape(3, 3) / 10, "b": np.ones(3, "f4")}
ONES = np.ones(3, "f4")


def layer(w: Any, x: Any) -> Any:
    """Needs the matrix and the input, not the bias."""
    return tnp.sin(x @ w["a"] + w["b"])


def arrays() -> tuple[Any, Any]:
    """Arguments as arrays."""
    return tb.tree.map(tnp.asarray, W), tnp.asarray(X)


def same(first: Any, second: Any) -> bool:
    """Whether trees have equal elements."""
    return tb.tree.all(tb.tree.map(lambda a, b: bool(np.allclose(a, b)), first, second))


def test_args_res_are_the_arguments() -> None:
    """One tree for each, ``NotNeeded`` for other leaves; what is no argument is opaque."""
    w, x = arrays()
    out, pullback = tb.vjp(layer, w, x)

    assert w["a"] is pullback.args_res[0]["a"]
    assert x is pullback.args_res[1]
    assert "NotNeeded()" == repr(pullback.args_res[0]["b"])
    (cosine,) = pullback.opaque_residuals
    assert np.allclose(np.cos(np.arcsin(out)), np.abs(cosine), atol=1e-5)
    assert tb.tree.structure((w, x)) == pullback.in_tree
    assert tb.tree.structure(out) == pullback.out_tree
    assert 3 == len(tb.tree.leaves(pullback))


def test_arguments_can_be_taken_out_and_put_back() -> None:
    """Without them the pullback keeps nothing of them, and cannot be called."""
    w, x = arrays()
    _, pullback = tb.vjp(layer, w, x)
    expected = pullback(ONES)
    assert same(expected, tb.vjp(layer, w, x)[1](ONES))

    pullback.args_res[0] = None
    assert 2 == len(tb.tree.leaves(pullback))
    with pytest.raises(ArgumentValueError, match=r"args\[0\]\['a'\] is needed, but was taken out"):
        pullback(ONES)
    pullback.args_res[0] = w
    assert same(expected, pullback(ONES))
    pullback.args_res = [w, NotNeeded()]
    with pytest.raises(ArgumentValueError, match=r"args\[1\] is needed"):
        pullback(ONES)
    assert same(expected, pullback.replace(args_res=[w, x])(ONES))
    with pytest.raises(ArgumentValueError, match=r"args\[1\] is needed"):
        pullback(ONES)


def test_memory_of_arguments_is_given_back() -> None:
    """The pullback holds no reference to an argument that was taken out."""
    x = tnp.asarray(X) + 1
    _, pullback = tb.vjp(lambda x: x * x, x)
    before = len(gc.get_referrers(x))
    pullback.args_res[0] = None

    assert len(gc.get_referrers(x)) < before


def test_through_jitted_functions() -> None:
    """Forward passes give pullbacks without the weights, which backward passes get again."""
    w, x = arrays()

    @tb.jit
    def forward(w: Any, x: Any) -> Any:
        out, pullback = tb.vjp(layer, w, x)
        pullback.args_res[0] = None
        return out, pullback

    @tb.jit
    def backward(pullback: Any, w: Any, cotangent: Any) -> Any:
        pullback.args_res[0] = w
        return pullback(cotangent)

    _, light = forward(w, x)
    assert 2 == len(tb.tree.leaves(light))
    expected = tb.vjp(layer, w, x)[1](ONES)
    assert same(expected, backward(light, w, ONES))
    _, whole = tb.jit(lambda w, x: tb.vjp(layer, w, x))(w, x)
    assert same(W["a"], whole.args_res[0]["a"])
    assert same(expected, whole(ONES))
    doubled = tb.tree.map(lambda v: 2 * v, whole)
    assert same(2 * X, doubled.args_res[1])


@pytest.mark.parametrize("around", ["vmap", "grad", "scan"])
def test_inside_of_transformations(around: str) -> None:
    """Residuals are traced values there, and are taken out and put back all the same."""

    def derivative(x: Any) -> Any:
        _, pullback = tb.vjp(lambda x: x**3, x)
        (given,) = pullback.args_res
        pullback.args_res[0] = None
        pullback.args_res = [given]
        return pullback(tnp.ones_like(x))[0]

    x = X + 1
    if around == "vmap":
        assert same(3 * x**2, tb.vmap(derivative)(x))
    elif around == "grad":
        assert same(6 * x[1], tb.grad(derivative)(x[1]))
    else:
        assert same(3 * x**2, tb.lax.scan(lambda c, v: (c, derivative(v)), 0, x)[1])


def test_what_does_not_fit_is_refused() -> None:
    """Wrong numbers, structures and types, and fields that do not exist."""
    w, x = arrays()
    _, pullback = tb.vjp(layer, w, x)

    cases: list[tuple[list[Any], str]] = [
        ([w], r"args_res has 1 entries, but there are 2 arguments"),
        ([x, x], r"args_res\[0\] has another structure than argument 0"),
        ([w, x[:2]], r"(?s)another type for args\[1\].*got: f32\[2\].*expected: f32\[3\]"),
    ]
    for values, message in cases:
        with pytest.raises(ArgumentValueError, match=message):
            pullback.replace(args_res=values)(ONES)
    with pytest.raises(ArgumentValueError, match=r"(?s)got 0 opaque residuals.*expected: 1"):
        pullback.opaque_residuals = []
    with pytest.raises(ArgumentTypeError, match="got residuals"):
        pullback.replace(residuals=[])
    assert not tb.tree.leaves(NotNeeded())
    pullback.opaque_residuals = [2 * r for r in pullback.opaque_residuals]
    assert same(2 * tb.vjp(layer, w, x)[1](ONES)[1], pullback(ONES)[1])
