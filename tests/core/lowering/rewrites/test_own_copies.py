"""Sums of chains that others read a part of get a copy of them: the same numbers, apart."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.rewrites.programs import rewritten

X, W = np.random.default_rng(0).standard_normal((2, 512, 300)).astype(np.float32)


def normed(x: Any) -> Any:
    """Read by its squares, and again."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / tnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


def softened(x: Any) -> Any:
    """The derivative of log_softmax, with labels."""
    return tb.grad(lambda x: (tb.nn.log_softmax(x)[:, 3] ** 2).mean())(x)


def over_axes(x: Any) -> Any:
    """Several axes, squares as powers, the maximum instead of the mean."""
    x = x.reshape(512, 10, 30)
    shifted = x - x.max((1, 2), keepdims=True)
    return shifted * (shifted**2).sum((1, 2), keepdims=True)


FORMS: list[Any] = [normed, softened, over_axes, tb.nn.log_softmax]


def plainly(f: Any, *args: Any) -> Any:
    """The result without rules for speed."""
    with scope("platform_rules", False):
        return tb.jit(f)(*args)


def test_copies_give_the_same_numbers() -> None:
    """Values and derivatives of two orders, mapped, in a loop."""

    def everything(x: Any) -> Any:
        values = [f(x) for f in FORMS]
        grads = [tb.grad(lambda x, f=f: (f(x).reshape(X.shape) * W).sum())(x) for f in FORMS]
        second = tb.jvp(tb.grad(lambda x: (normed(x) * W).sum()), (x,), (tnp.cos(x),))[1]
        mapped = tb.vmap(normed)(tnp.stack([x, 2 * x]))
        loop, _ = tb.lax.scan(lambda x, k: (x + normed(x), None), x, tnp.arange(2))
        return *values, *grads, second, mapped, loop

    for fast, plain in zip(tb.jit(everything)(X), plainly(everything, X), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=2e-6, atol=2e-6 * float(abs(plain).max()))


def test_special_values_stay_in_their_rows() -> None:
    """NaN, infinities, subnormal and very large numbers."""
    x = X.copy()
    x[0, 1], x[1, 2], x[2, 3], x[3, :2] = np.nan, np.inf, -np.inf, (np.inf, -np.inf)
    x[4] *= np.float32(1e-42)
    x[5], x[6] = 0, X[6] * np.float32(1e25)

    def all_forms(x: Any) -> Any:
        return [f(x) for f in FORMS]

    for fast, plain in zip(tb.jit(all_forms)(x), plainly(all_forms, x), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-6)


def test_which_sums_get_copies() -> None:
    """Rows of float32 of large arrays, whose chains others read; not with the option off."""

    def copied(f: Any, x: Any = X) -> int:
        names = primitives_in(rewritten(tb.make_jaxpr(f)(x).jaxpr))
        return "reduce_precision" in names

    assert copied(normed)
    assert copied(over_axes)
    text = tb.jit(normed).lower(X).as_text()
    assert text.count("stablehlo.reduce_precision") >= 2
    with scope("platform_rules", False):
        assert "reduce_precision" not in tb.jit(lambda x: normed(x)).lower(X).as_text()

    with scope("enable_x64", True):
        assert not copied(normed, X.astype(np.float64))
    for other in (few, alone, unspread, columns):
        assert not copied(other)


def few(x: Any) -> Any:
    """No array for the library."""
    return normed(x[:40])


def alone(x: Any) -> Any:
    """Nobody else reads the differences."""
    return ((x - x.mean(-1, keepdims=True)) ** 2).sum(-1)


def unspread(x: Any) -> Any:
    """Nothing tells a copy from the original."""
    y = x - 1
    return y / (y**2).sum(-1, keepdims=True)


def columns(x: Any) -> Any:
    """Sums of columns are another matter."""
    y = x - x.mean(0)
    return y / (y**2).sum(0)
