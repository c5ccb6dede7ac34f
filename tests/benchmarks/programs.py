"""Programs that the cases trace, lower and run; written once for both libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp


def floats(rng: onp.random.Generator, *shape: int) -> onp.ndarray[Any, Any]:
    """Small random float32 numbers."""
    return (0.1 * rng.standard_normal(shape)).astype(onp.float32)


def mlp(api: Any, layers: int = 20, width: int = 16) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The loss of a tanh network."""
    rng = onp.random.default_rng(0)
    params = [
        (api.np.asarray(floats(rng, width, width)), api.np.asarray(floats(rng, width)))
        for _ in range(layers)
    ]
    x = api.np.asarray(floats(rng, 8, width))

    def loss(params: Any, x: Any) -> Any:
        for w, b in params:
            x = api.np.tanh(x @ w + b)
        return (x * x).mean()

    return loss, (params, x)


def transformer(
    api: Any, blocks: int = 6, width: int = 32, heads: int = 4, length: int = 16
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The loss of a small pre-norm transformer."""
    np = api.np
    rng = onp.random.default_rng(0)

    def block_params() -> dict[str, Any]:
        shapes = {
            "q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width),
            "w1": (width, 4 * width), "b1": (4 * width,), "w2": (4 * width, width), "b2": (width,),
            "g1": (width,), "g2": (width,),
        }  # fmt: skip
        return {name: np.asarray(floats(rng, *shape)) for name, shape in shapes.items()}

    params = [block_params() for _ in range(blocks)]
    x = np.asarray(floats(rng, 2, length, width))

    def norm(x: Any, gain: Any) -> Any:
        centre = x - x.mean(-1, keepdims=True)
        return centre / np.sqrt((centre * centre).mean(-1, keepdims=True) + 1e-5) * gain

    def attention(p: Any, x: Any) -> Any:
        def split(y: Any) -> Any:
            return y.reshape(2, length, heads, width // heads).transpose(0, 2, 1, 3)

        q, k, v = (split(x @ p[n]) for n in "qkv")
        scores = q @ k.transpose(0, 1, 3, 2) / (width // heads) ** 0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
        mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(2, length, width)
        return mixed @ p["o"]

    def loss(params: Any, x: Any) -> Any:
        for p in params:
            x = x + attention(p, norm(x, p["g1"]))
            h = np.tanh(norm(x, p["g2"]) @ p["w1"] + p["b1"])
            x = x + h @ p["w2"] + p["b2"]
        return (x * x).mean()

    return loss, (params, x)


def chain(api: Any, n: int = 200) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """n elementwise operations, by operators."""
    x = api.np.asarray(floats(onp.random.default_rng(0), 8, 8))

    def run(x: Any) -> Any:
        y = x
        for _ in range(n // 4):
            y = y * x
            y = y + x
            y = y - 0.5
            y = api.np.sin(y)
        return y

    return run, (x,)


def quadratic(api: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A smooth scalar function of a vector, for second derivatives."""
    a = api.np.asarray(floats(onp.random.default_rng(0), 8, 8))
    x = api.np.asarray(floats(onp.random.default_rng(1), 8))

    def run(x: Any) -> Any:
        return (api.np.tanh(a @ x) * api.np.sin(x)).sum() + (x * x).sum() ** 2

    return run, (x,)


def scan_loss(api: Any, length: int = 100) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The loss of a recurrent network, by scan."""
    rng = onp.random.default_rng(0)
    w = api.np.asarray(floats(rng, 16, 16))
    xs = api.np.asarray(floats(rng, length, 16))

    def loss(w: Any, xs: Any) -> Any:
        def body(h: Any, x: Any) -> Any:
            h = api.np.tanh(h @ w + x)
            return h, (h * h).sum()

        _, ys = api.lax.scan(body, api.np.zeros(16), xs)
        return ys.sum()

    return loss, (w, xs)
