"""Rewrites look before they write, and what they emit is remembered by all that it depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import nn
from tracebridge.core import lax
from tracebridge.core.interpreters.graph import Graph
from tracebridge.core.lowering import platforms
from tracebridge.core.lowering.rewrites import batches, one_pass, programs

X = np.random.default_rng(0).standard_normal((64, 1024)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 1024, (64, 1))


def test_a_program_that_stays_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is added to a graph where no rewrite changes anything."""
    jaxpr = tb.make_jaxpr(lambda x: tnp.sin(x).sum() + tnp.cos(x).sum())(X[0]).jaxpr
    monkeypatch.setattr(Graph, "add", None)

    assert one_pass.Pass(jaxpr, programs._REWRITES).result() is None


def test_a_program_that_changes_is_looked_at_once() -> None:
    """The walk goes on from where it has found something, and lets go of what it has found out."""

    def f(x: Any, y: Any) -> Any:
        return (x[:, None] * y[None]).sum() + tnp.exp(x).sum() + (x[:, None] * y[None]).sum(0)

    jaxpr = tb.make_jaxpr(f)(X[0], X[1]).jaxpr
    sums = [app for app, _ in jaxpr.equations if app.primitive is lax.reduce_sum_p]
    seen: list[Any] = []

    def rewrite(here: one_pass.Pass, app: Any, args: Any, source: object) -> int | None:
        seen.append(app)
        return programs._REWRITES[lax.reduce_sum_p](here, app, args, source)

    assert one_pass.Pass(jaxpr, {lax.reduce_sum_p: rewrite}).result() is not None
    assert sums == seen
    assert len(sums) == 3

    platforms._cpu_form(jaxpr)

    assert "facts" not in jaxpr.cache


@pytest.mark.parametrize("scale", [1.0, 2.0, -0.0])
def test_picks_of_other_chains_are_others(scale: float) -> None:
    """Programs of the same arrays whose chains differ in an equation or a number."""

    def picked(f: Any) -> Any:
        def run(x: Any) -> Any:
            y = f(x - x.max(1, keepdims=True))
            return tnp.take_along_axis(y, LABELS, 1), y.sum(1)

        return tb.jit(run)(X)

    centred = X - X.max(1, keepdims=True)
    for f, reference in (
        (lambda x: x * scale, lambda x: x * scale),
        (lambda x: x + scale, lambda x: x + scale),
        (lambda x: scale - x * x, lambda x: scale - x * x),
        (lambda x: x * x - scale, lambda x: x * x - scale),
        (nn.relu, lambda x: np.maximum(x, 0)),
    ):
        y = reference(centred)
        found, sums = picked(f)
        np.testing.assert_allclose(found, np.take_along_axis(y, LABELS, 1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(sums, y.sum(1), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("order", ["ab,ac->bc", "ab,ac->cb", "ab,ac->b", "ab,ac->ac"])
def test_sums_of_products_of_other_axes_are_others(order: str) -> None:
    """The same factors, summed along other axes or with another sign."""
    a, b = X[:, :40], X[:, 40:100]
    expected = np.einsum(order, a, b)
    left, out = order.split("->")
    x, y = left.split(",")

    def run(a: Any, b: Any, sign: int) -> Any:
        product = sign * a[:, :, None] * b[:, None, :]
        axes = tuple(i for i, name in enumerate("abc") if name not in out)
        summed = product.sum(axes)
        return summed if out == "".join(sorted(out)) else summed.T

    assert (x, y) == ("ab", "ac")
    for sign in (1, -1):
        out_sum = tb.jit(run, static_argnums=2)(a, b, sign)
        np.testing.assert_allclose(out_sum, sign * expected, rtol=1e-4, atol=1e-4)


def test_kernels_of_equal_layers_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention of several layers is planned for one of them; another scale is another plan."""
    pytest.importorskip("llvmlite")
    planned: list[object] = []
    plan = batches._BatchKernel._planned
    monkeypatch.setattr(
        batches._BatchKernel, "_planned", lambda self: planned.append(self) or plan(self)
    )

    def layer(x: Any, scale: float) -> Any:
        scores = tnp.einsum("hqd,hkd->hqk", x, x) * scale
        return tnp.einsum("hqk,hkd->hqd", nn.softmax(scores), x)

    def run(x: Any, scales: tuple[float, ...]) -> Any:
        for scale in scales:
            x = layer(x, scale)
        return x

    x = X[:, :512].reshape(8, 64, 64) / 8

    for scales in ((0.125, 0.125, 0.125), (0.125, 0.25, 0.125)):
        planned.clear()
        out = tb.jit(run, static_argnums=1)(x, scales)
        expected = x.astype(np.float64)
        for scale in scales:
            scores = np.einsum("hqd,hkd->hqk", expected, expected) * scale
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            expected = np.einsum("hqk,hkd->hqd", weights, expected)
        assert len(planned) == len(set(scales)) or not planned
        np.testing.assert_allclose(out, expected, rtol=2e-4, atol=1e-5)
