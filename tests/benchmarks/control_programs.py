"""Programs with control flow, custom rules and nested functions; written once for both libraries.

Functions that are jitted, checkpointed or have custom rules are made inside of the traced function,
so that nothing of them is remembered from one sample to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as onp
from programs import floats

_SAMPLES = itertools.count()

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def _layers(api: Any, wrap: Callable[[Callable[..., Any]], Callable[..., Any]], n: int) -> Program:
    """The loss of a network whose layer is the same wrapped function each time."""
    rng = onp.random.default_rng(0)
    params = [api.np.asarray(floats(rng, 16, 16)) for _ in range(n)]
    x = api.np.asarray(floats(rng, 8, 16))

    def loss(params: Any, x: Any) -> Any:
        layer = wrap(lambda w, x: api.np.tanh(x @ w) * 2.0 + x)
        for w in params:
            x = layer(w, x)
        return (x * x).sum()

    return loss, (params, x)


def nested_jit(api: Any) -> Program:
    """Twenty layers by one jitted function."""
    return _layers(api, api.jit, 20)


def checkpointed(api: Any) -> Program:
    """Twenty checkpointed layers."""
    return _layers(api, api.root.checkpoint, 20)


def nested_checkpoints(api: Any) -> Program:
    """Checkpoints within checkpoints, eight deep."""
    x = api.np.asarray(floats(onp.random.default_rng(0), 16))

    def deep(depth: int) -> Callable[..., Any]:
        if not depth:
            return lambda x: api.np.sin(x) * x
        inner = deep(depth - 1)
        return api.root.checkpoint(lambda x: api.np.sin(inner(x)))

    return lambda x: deep(8)(x).sum(), (x,)


def custom_vjp(api: Any) -> Program:
    """Ten layers with an activation that has its own derivative."""

    def wrap(layer: Callable[..., Any]) -> Callable[..., Any]:
        f = api.root.custom_vjp(layer)
        f.defvjp(
            lambda w, x: (layer(w, x), (w, x)),
            lambda kept, ct: (kept[1].T @ ct, ct @ kept[0].T + ct),
        )
        return f

    return _layers(api, wrap, 10)


def conds(api: Any) -> Program:
    """Ten conditionals in a row."""
    x = api.np.asarray(floats(onp.random.default_rng(0), 16))

    def loss(x: Any) -> Any:
        for _ in range(10):
            x = api.lax.cond(x[0] > 0, lambda x: api.np.sin(x) * 2.0, lambda x: x * x + 1.0, x)
        return x.sum()

    return loss, (x,)


def while_loop(api: Any) -> Program:
    """Newton's method for square roots until it stands still."""
    x = api.np.asarray(onp.arange(1.0, 17.0, dtype=onp.float32))

    def roots(x: Any) -> Any:
        def unfinished(carry: Any) -> Any:
            y, i = carry
            return (api.np.abs(y * y - x).max() > 1e-3) & (i < 50)

        def step(carry: Any) -> Any:
            y, i = carry
            return 0.5 * (y + x / y), i + 1

        return api.lax.while_loop(unfinished, step, (x, 0))[0]

    return roots, (x,)


def _new_cell(api: Any) -> Callable[..., Any]:
    """A gated recurrent unit with another constant in each sample: nothing was seen before."""
    k = 1.0 + next(_SAMPLES) * 1e-4

    def sigmoid(a: Any) -> Any:
        return 1 / (1 + api.np.exp(-a))

    def cell(params: Any, h: Any, x: Any) -> Any:
        wz, uz, wr, ur, wn, un, bz, br, bn = params
        z = sigmoid(x @ wz + h @ uz + bz)
        r = sigmoid(x @ wr + h @ ur + br)
        return (1 - z) * api.np.tanh(x @ wn + (r * h) @ un + bn) + z * h * k

    return cell


def _cell_params(api: Any) -> list[Any]:
    rng = onp.random.default_rng(0)
    return [api.np.asarray(floats(rng, *shape)) for shape in [(16, 16)] * 6 + [(16,)] * 3]


def new_scan(api: Any) -> Program:
    """A recurrent network over 100 steps, by scan, with a cell that is new in each sample."""
    xs = api.np.asarray(floats(onp.random.default_rng(1), 100, 16))

    def loss(params: Any, xs: Any) -> Any:
        cell = _new_cell(api)
        h, _ = api.lax.scan(lambda h, x: (cell(params, h, x), None), api.np.zeros(16), xs)
        return (h * h).sum()

    return loss, (_cell_params(api), xs)


def new_body(api: Any) -> Program:
    """One step of that network: what the gradient of ``new_scan`` is compared with."""
    x = api.np.asarray(floats(onp.random.default_rng(1), 16))

    def loss(params: Any, x: Any) -> Any:
        h = _new_cell(api)(params, api.np.ones(16), x)
        return (h * h).sum()

    return loss, (_cell_params(api), x)


def scan_body(api: Any) -> Program:
    """The body of the scan of ``programs.scan_loss``, once: what its gradient is compared with."""
    rng = onp.random.default_rng(0)
    w = api.np.asarray(floats(rng, 16, 16))
    x = api.np.asarray(floats(rng, 16))

    def loss(w: Any, x: Any) -> Any:
        h = api.np.tanh(api.np.zeros(16) @ w + x)
        return (h * h).sum()

    return loss, (w, x)
