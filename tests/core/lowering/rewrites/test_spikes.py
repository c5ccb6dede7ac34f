"""Sums of what picks put back, and of labels made of it: the plain numbers, nothing written."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in
from tracebridge.core.config.scopes import scope
from tracebridge.core.lowering.rewrites.programs import rewritten

_RNG = np.random.default_rng(0)
ROWS, COLUMNS = 24, 40
X, WEIGHTS = [
    _RNG.standard_normal(s).astype(np.float32) for s in ((ROWS, COLUMNS), (COLUMNS,))
]  # fmt: skip
LABELS = _RNG.integers(0, COLUMNS, ROWS).astype(np.int32)
# Out of bounds on both sides, negative.
LABELS[:5] = COLUMNS, -1, -COLUMNS - 3, 1 << 30, -COLUMNS


def pick(x: Any, y: Any, mode: str | None = "fill") -> Any:
    """One element of each row; no NaN where there is none."""
    taken = tnp.take_along_axis(x, y[:, None], -1, mode=mode)[:, 0]
    return tnp.where((y >= -COLUMNS) & (y < COLUMNS), taken, 0)


def smoothed(x: Any, y: Any) -> Any:
    """Labels that are 0.9 and a part of the rest."""
    labels = tb.nn.one_hot(y, COLUMNS) * 0.9 + 0.1 / COLUMNS
    return -(labels * tb.nn.log_softmax(x)).sum(-1).mean()


def beside_a_mean(x: Any, y: Any) -> Any:
    """The same, by a pick and by what all classes have."""
    p = tb.nn.log_softmax(x)
    return -0.1 * p.mean() - 0.9 * pick(p, y).mean()


# name -> loss of logits and labels
LOSSES: dict[str, Any] = {
    "mean": lambda x, y: -pick(tb.nn.log_softmax(x), y).mean(),
    "clipped": lambda x, y: pick(tb.nn.log_softmax(x), y, "clip").sum(),
    "weighted": lambda x, y: -(tnp.asarray(WEIGHTS)[y % 40] * pick(tb.nn.log_softmax(x), y)).sum(),
    "beside a mean": beside_a_mean,
    "logsumexp": lambda x, y: (tb.nn.logsumexp(x, -1) - pick(x, y)).mean(),
    "smoothed": smoothed,
    "mapped": lambda x, y: tb.vmap(lambda x, y: tb.nn.log_softmax(x)[y])(x, y % COLUMNS).mean(),
    "columns": lambda x, y: pick(tb.nn.log_softmax(x.T, axis=0).T, y).mean(),
    "focal": lambda x, y: tnp.expm1(pick(tb.nn.log_softmax(x), y) ** 2).mean(),
}


def plainly(f: Any, *args: Any) -> Any:
    """The result without rules for speed."""
    with scope("platform_rules", False):
        return tb.jit(f)(*args)


def test_gradients_are_those_of_the_plain_form() -> None:
    """Of all losses, in float32 and float64, of second order, mapped and in a loop."""

    def everything(x: Any, y: Any) -> Any:
        grads = [tb.grad(loss)(x, y) for loss in LOSSES.values()]
        second = [
            tb.jvp(lambda x, f=f: tb.grad(f)(x, y), (x,), (tnp.sin(x),))[1]
            for f in (LOSSES["mean"], LOSSES["smoothed"])
        ]
        mapped = tb.vmap(tb.grad(LOSSES["mean"]))(tnp.stack([x, -x]), tnp.stack([y, y[::-1]]))
        loop, _ = tb.lax.scan(
            lambda x, y: (x - tb.grad(smoothed)(x, y), None), x, tnp.stack([y, y])
        )
        return *grads, *second, mapped, loop

    for dtype, error in ((np.float32, 1e-6), (np.float64, 1e-14)):
        with scope("enable_x64", True):
            x = X.astype(dtype)
            fast, plain = tb.jit(everything)(x, LABELS), plainly(everything, x, LABELS)
            for a, b in zip(fast, plain, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_allclose(a, b, rtol=error, atol=error * float(abs(b).max()))


def test_no_array_of_labels_is_summed() -> None:
    """Row sums of cotangents are numbers for each row."""
    for name in ("mean", "clipped", "weighted", "beside a mean", "smoothed", "mapped"):
        jaxpr = tb.make_jaxpr(tb.grad(LOSSES[name]))(X, LABELS).jaxpr

        def sums(jaxpr: Any) -> int:
            apps = [app for app, _ in jaxpr.equations if app.primitive.name == "reduce_sum"]
            return sum(app.avals[0].size == ROWS * COLUMNS for app in apps)

        assert sums(jaxpr) == 1, name
        assert sums(rewritten(jaxpr)) == 0, name
        assert "scatter_add" not in primitives_in(rewritten(jaxpr)), name


def forms_of(xp: Any, hits: Any, at: Any, off: Any, factor: Any) -> tuple[Any, ...]:
    """Sums of arrays that are ``at`` where there is a hit, by NumPy or to be rewritten."""
    at, off, factor = at[:, None], off[:, None], factor[:, None]
    put = xp.where(hits, at, xp.zeros_like(at))
    one_hot = hits.astype(np.float32)
    return (
        put.sum(1), (put + off).sum(1), ((put + off) * factor).sum(1), (put / factor).sum(1),
        xp.where(hits, at, off).sum(1), xp.where(~hits & (factor > 0), off, put).sum(1),
        (one_hot * at - off).sum(1),
    )  # fmt: skip


def test_special_values_are_those_of_numpy() -> None:
    """NaN, infinities and zeros, as what is put back, as what is added to it, as its factor."""
    specials = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1e30], np.float32)
    at, off, factor = [v.ravel() for v in np.meshgrid(specials, specials, specials)]
    index = np.resize([0, 4, 5, -1], at.size).astype(np.int32)

    def fast(at: Any, off: Any, factor: Any, index: Any) -> Any:
        return [
            forms_of(tnp, tb.lax.broadcasted_iota(np.int32, (at.size, n), 1) == index[:, None],
                     at, off, factor)
            for n in (2, 5)
        ]  # fmt: skip

    for n, found in zip((2, 5), tb.jit(fast)(at, off, factor, index), strict=True):
        with np.errstate(all="ignore"):
            expected = forms_of(np, np.arange(n) == index[:, None], at, off, factor)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6)


def test_what_is_no_such_sum_is_left_alone() -> None:
    """Other axes, two indices, numbers along the axis, positions that wrap, integers."""

    def iota(dtype: Any, shape: Any, axis: int) -> Any:
        return tb.lax.broadcasted_iota(dtype, shape, axis)

    shape = ROWS, 300
    forms: list[Any] = [
        lambda y: tnp.where(iota(y.dtype, shape, 1) == y[:, None], 1.0, 0.0).sum(0),
        lambda y: (
            tnp.where(iota(y.dtype, shape, 1) == y[:, None], 1.0, 0.0)
            + tnp.where(iota(y.dtype, shape, 1) == -y[:, None], 1.0, 0.0)
        ).sum(1),
        lambda y: tnp.where(iota(y.dtype, shape, 1) == y[:, None], tnp.arange(300.0), 0).sum(1),
        lambda y: tnp.where(iota(np.int8, shape, 1) == y[:, None].astype(np.int8), 1.0, 0).sum(1),
        lambda y: (iota(y.dtype, shape, 1) == y[:, None]).astype(np.int32).sum(1),
    ]
    for f in forms:
        assert rewritten(jaxpr := tb.make_jaxpr(f)(LABELS).jaxpr) is jaxpr

    whole = tb.jit(
        lambda y: tnp.where(iota(y.dtype, shape, 1) == y[:, None], y[:, None], 0.0).sum()
    )
    assert float(whole(LABELS % 300)) == float((LABELS % 300).sum())
