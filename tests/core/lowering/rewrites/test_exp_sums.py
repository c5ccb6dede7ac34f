"""Sums of exp(x - max(x)) by sums of exp(x): the same numbers, and the written form if need be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge import nn
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.rewrites.programs import rewritten

X = np.random.default_rng(0).standard_normal((512, 300)).astype(np.float32) * 4
LABELS = np.random.default_rng(1).integers(0, 300, 512)


def cross_entropy(x: Any) -> Any:
    """Rows of logits, one label each."""
    return -tnp.take_along_axis(nn.log_softmax(x), LABELS[:, None], axis=-1).mean()


def log_sums(x: Any) -> Any:
    """Of rows."""
    return nn.logsumexp(x, -1)


def results(f: Any, x: Any) -> Sequence[Any]:
    """Values, derivatives of two orders, mapped, in a loop."""
    first = tb.grad(lambda x: (f(x) * tnp.cos(f(x))).sum())
    mapped = tb.vmap(f)(tnp.stack([x, 2 * x]))
    _, loop = tb.lax.scan(lambda x, k: (x + k, f(x)), x, tnp.arange(2, dtype=x.dtype))
    return f(x), first(x), tb.jvp(first, (x,), (tnp.sin(x),))[1], mapped, loop


def plainly(f: Any, *args: Any) -> Any:
    """The result without rules for speed."""
    with scope("platform_rules", False):
        return tb.jit(f)(*args)


def agree(expected: Any, actual: Any, tolerance: float = 1e-6) -> None:
    """To a part of the largest number that is not extreme."""
    for written, fast in zip(expected, actual, strict=True):
        plain = np.asarray(written)
        largest = float(np.abs(plain[np.abs(plain) < 1e3]).max(initial=0))
        np.testing.assert_allclose(fast, plain, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("f", [cross_entropy, log_sums])
def test_the_numbers_stay(f: Any) -> None:
    """Values and derivatives are those of the written form."""
    everything = tb.jit(lambda x: results(f, x))
    agree(plainly(lambda x: results(f, x), X), everything(X))


def test_sums_without_limits_are_computed_as_written() -> None:
    """Rows of large or small numbers, infinities, NaN: each keeps its row, and its digits."""
    run = tb.jit(lambda x: (log_sums(x), cross_entropy(x[:, ::-1])))
    special = [np.nan, np.inf, -np.inf, 3e38, -3e38, 90.0, -90.0, 1e-42, 1e4, -1e4]
    for number in special:
        one, row = X.copy(), X.copy()
        one[3, 7] = number
        row[5] = number + X[5]
        for x in (one, row):
            agree(plainly(lambda x: (log_sums(x), cross_entropy(x[:, ::-1])), x), run(x))
    for offset in (-40, 38):  # just within the limits
        moved = X + np.float32(offset)
        exact = np.log(np.exp(moved.astype(np.float64)).sum(-1))
        np.testing.assert_allclose(run(moved)[0], exact, rtol=2e-7)


def test_no_probability_is_larger_than_one() -> None:
    """Where one element is all of the sum, its logarithm is 0, and no rounding shows."""
    x = X.copy()
    x[:, 0] = np.linspace(44, 55, 512)
    largest, probable = x.max(1), tb.jit(nn.log_softmax)(x)
    written = tb.jit(lambda x: tnp.log(tnp.exp(x - x.max(1, keepdims=True)).sum(1)))(x)
    assert (probable <= 0).all()
    assert (written >= 0).all()
    np.testing.assert_allclose(probable[:, 0], 0, atol=3e-7)
    np.testing.assert_allclose(tb.jit(log_sums)(x), largest, rtol=2e-7)


def test_which_sums_are_planned_again() -> None:
    """Large ones of float32 over the last axes, read by nobody else; not with the option off."""

    def guarded(f: Any, x: Any = X) -> bool:
        return "guarded" in primitives_in(rewritten(tb.make_jaxpr(f)(x).jaxpr))

    assert guarded(log_sums)
    assert guarded(lambda x: nn.logsumexp(x.reshape(512, 10, 30), (1, 2)))
    assert not guarded(log_sums, X[:64])
    assert not guarded(lambda x: nn.logsumexp(x, 0))
    assert not guarded(lambda x: nn.logsumexp(x.reshape(-1, 10), 1))
    assert not guarded(log_sums, X.astype(np.float16))
    assert not guarded(nn.softmax)
    assert guarded(lambda x: tnp.exp(x - x.max(1, keepdims=True)).sum(1))
    assert not guarded(lambda x: tnp.exp(x - x.mean(1, keepdims=True)).sum(1))
    assert not guarded(lambda x: tnp.exp(x - tnp.maximum(x.max(1, keepdims=True), 9)).sum(1))
    assert not guarded(lambda x: tnp.exp(x - x.max()).sum(1))
    assert not guarded(lambda x: tnp.exp(2 * x - x.max(1, keepdims=True)).sum(1))
    lowered = tb.jit(log_sums).lower(X).as_text()
    with scope("platform_rules", False):
        assert "stablehlo.if" in lowered
        assert "stablehlo.if" not in tb.jit(log_sums).lower(X).as_text()
