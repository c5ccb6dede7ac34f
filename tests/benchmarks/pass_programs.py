"""The programs of ``passes.py``: training steps and gradients as users write them, not run here.

Each is ``make() -> (function of k, arguments)``: ``function(k)`` is a new function object, in which
the number ``k`` stands somewhere. With another number it is a program that was never seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax, nn

Made = tuple[Callable[[float], Callable[..., Any]], tuple[Any, ...]]

_RNG = onp.random.default_rng(0)


def _array(*shape: int) -> Any:
    return tnp.asarray((0.1 * _RNG.standard_normal(shape)).astype(onp.float32))


def _norm(x: Any, gain: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return gain * centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def _layers(n: int, width: int) -> list[tuple[Any, Any]]:
    return [(_array(width, width), _array(width)) for _ in range(n)]


def _network(activation: Callable[[float], Callable[[Any], Any]], n: int = 8) -> Made:
    """Gradients of a network of ``n`` layers."""

    def of(k: float) -> Any:
        act = activation(k)

        def loss(layers: Any, x: Any) -> Any:
            for w, b in layers:
                x = act(x @ w + b)
            return (x * x).mean()

        return tb.grad(loss)

    return of, (_layers(n, 64), _array(32, 64))


def training_step() -> Made:
    """Cross entropy of a network, and a step of Adam."""
    layers = _layers(3, 256)
    state = [tb.tree_util.tree_map(tnp.zeros_like, layers) for _ in range(2)]
    labels = tnp.asarray(_RNG.integers(0, 256, 512))

    def of(k: float) -> Any:
        def loss(layers: Any, x: Any, labels: Any) -> Any:
            for w, b in layers:
                x = nn.relu(x @ w + b)
            log_p = nn.log_softmax(x * k)
            return -tnp.take_along_axis(log_p, labels[:, None], 1).mean()

        def step(layers: Any, means: Any, squares: Any, x: Any, labels: Any) -> Any:
            value, g = tb.value_and_grad(loss)(layers, x, labels)
            each = tb.tree_util.tree_map
            means = each(lambda m, g: 0.9 * m + 0.1 * g, means, g)
            squares = each(lambda v, g: 0.99 * v + 0.01 * g * g, squares, g)
            new = each(lambda p, m, v: p - 1e-3 * m / (tnp.sqrt(v) + 1e-8), layers, means, squares)
            return value, new, means, squares

        return step

    return of, (layers, *state, _array(512, 256), labels)


def transformer() -> Made:
    """Gradients of four blocks of a transformer."""
    shapes = {"q": (64, 64), "k": (64, 64), "v": (64, 64), "o": (64, 64)}
    shapes |= {"up": (64, 256), "down": (256, 64), "g": (64,), "h": (64,)}
    blocks = [{n: _array(*s) for n, s in shapes.items()} for _ in range(4)]

    def of(k: float) -> Any:
        def attention(p: Any, x: Any) -> Any:
            def heads(y: Any) -> Any:
                return y.reshape(8, 64, 4, 16).transpose(0, 2, 1, 3)

            q, keys, v = (heads(x @ p[n]) for n in "qkv")
            weights = nn.softmax(q @ keys.transpose(0, 1, 3, 2) * k)
            return (weights @ v).transpose(0, 2, 1, 3).reshape(8, 64, 64) @ p["o"]

        def loss(blocks: Any, x: Any) -> Any:
            for p in blocks:
                x = x + attention(p, _norm(x, p["g"]))
                x = x + nn.gelu(_norm(x, p["h"]) @ p["up"]) @ p["down"]
            return (x * x).mean()

        return tb.grad(loss)

    return of, (blocks, _array(8, 64, 64))


def layer_norm() -> Made:
    """Gradients of a norm of large rows."""

    def of(k: float) -> Any:
        return tb.grad(lambda x, g, w: (_norm(x, g) * w * k).sum(), (0, 1))

    return of, (_array(4096, 256), _array(256), _array(4096, 256))


def graph_network() -> Made:
    """Gradients of three rounds of messages along the edges of a graph."""
    senders, receivers = (tnp.asarray(_RNG.integers(0, 500, 4000)) for _ in range(2))
    rounds = [(_array(64, 32), _array(64, 32)) for _ in range(3)]

    def of(k: float) -> Any:
        def loss(rounds: Any, nodes: Any, senders: Any, receivers: Any) -> Any:
            for edge, node in rounds:
                pairs = tnp.concatenate([nodes[senders], nodes[receivers]], -1)
                messages = nn.relu(pairs @ edge * k)
                sums = tb.ops.segment_sum(messages, receivers, 500)
                nodes = nodes + tnp.tanh(tnp.concatenate([nodes, sums], -1) @ node)
            return (nodes * nodes).mean()

        return tb.grad(loss)

    return of, (rounds, _array(500, 32), senders, receivers)


def residual_network() -> Made:
    """Gradients of four blocks of convolutions with batch norms."""
    blocks = [
        (_array(3, 3, 16, 16), _array(16), _array(3, 3, 16, 16), _array(16)) for _ in range(4)
    ]
    dims = ("NHWC", "HWIO", "NHWC")

    def of(k: float) -> Any:
        def conv_norm(x: Any, w: Any, g: Any) -> Any:
            x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dims)
            centred = x - x.mean((0, 1, 2))
            return g * centred / tnp.sqrt((centred**2).mean((0, 1, 2)) + 1e-5)

        def loss(blocks: Any, x: Any) -> Any:
            for w1, g1, w2, g2 in blocks:
                x = nn.relu(x + conv_norm(nn.relu(conv_norm(x, w1, g1)), w2, g2) * k)
            return (x.mean((1, 2)) ** 2).mean()

        return tb.grad(loss)

    return of, (blocks, _array(8, 16, 16, 16))


def _loop(step: Callable[[float], Callable[..., Any]], state: Any, *args: Any, n: int) -> Made:
    """Gradients of the last state of a loop."""

    def of(k: float) -> Any:
        def loss(args: Any, xs: Any) -> Any:
            one = step(k)
            last, _ = lax.scan(lambda s, x: (one(s, x, *args), None), state, xs)
            return (last * last).sum()

        return tb.grad(loss)

    return of, (args, _array(n, 16, 32))


def ode() -> Made:
    """Steps of Runge and Kutta."""

    def step(k: float) -> Any:
        def one(y: Any, x: Any, w: Any, v: Any) -> Any:
            def field(y: Any) -> Any:
                return tnp.tanh(y @ w) @ v - k * y + x

            a = field(y)
            b = field(y + 0.05 * a)
            c = field(y + 0.05 * b)
            return y + 0.1 / 6 * (a + 2 * b + 2 * c + field(y + 0.1 * c))

        return one

    return _loop(step, tnp.zeros((16, 32)), _array(32, 64), _array(64, 32), n=50)


def gru() -> Made:
    """A recurrent network with gates."""

    def step(k: float) -> Any:
        def one(h: Any, x: Any, w: Any, u: Any) -> Any:
            z, r, n = tnp.split(x @ w, 3, -1)
            hz, hr, hn = tnp.split(h @ u, 3, -1)
            z, r = nn.sigmoid(z + hz), nn.sigmoid(r + hr)
            return (1 - z) * tnp.tanh(n + k * r * hn) + z * h

        return one

    return _loop(step, tnp.zeros((16, 32)), _array(32, 96), _array(32, 96), n=100)


def autoencoder() -> Made:
    """Gradients of a variational autoencoder, with random numbers."""

    def of(k: float) -> Any:
        def loss(ws: Any, key: Any, x: Any) -> Any:
            h = tnp.tanh(x @ ws[0])
            mean, log_scale = h @ ws[1], h @ ws[2]
            z = mean + tnp.exp(log_scale) * tb.random.normal(key, mean.shape)
            logits = tnp.tanh(z @ ws[3]) @ ws[4]
            likelihood = (x * logits - tnp.logaddexp(0.0, logits)).sum(-1)
            kl = 0.5 * (mean**2 + tnp.exp(2 * log_scale) - 2 * log_scale - 1).sum(-1)
            return (k * kl - likelihood).mean()

        return tb.grad(loss)

    shapes = ((128, 64), (64, 16), (64, 16), (16, 64), (64, 128))
    return of, ([_array(*s) for s in shapes], tb.random.key(0), _array(256, 128))


def clipped_gradients() -> Made:
    """Sums of gradients of each sample, none of them longer than ``k``."""

    def of(k: float) -> Any:
        def loss(ws: Any, x: Any) -> Any:
            return (tnp.tanh(tnp.tanh(x @ ws[0]) @ ws[1]) ** 2).sum()

        def clipped(ws: Any, xs: Any) -> Any:
            each = tb.vmap(tb.grad(loss), (None, 0))(ws, xs)
            norms = tnp.sqrt(sum([(g * g).sum((1, 2)) for g in each]))
            return [tnp.einsum("b,bij->ij", tnp.minimum(1.0, k / norms), g) for g in each]

        return clipped

    return of, ([_array(64, 64), _array(64, 64)], _array(256, 64))


def waves() -> Made:
    """Gradients of a field of sines, as for images of coordinates."""
    return _network(lambda k: lambda x: tnp.sin(30 * k * x))


def hessian() -> Made:
    """Second derivatives of a smooth function of a vector."""

    def of(k: float) -> Any:
        return tb.hessian(
            lambda x, a: (tnp.tanh(a @ x) * tnp.sin(k * x)).sum() + (x * x).sum() ** 2
        )

    return of, (_array(8), _array(8, 8))


def chain() -> Made:
    """Two hundred elementwise operations."""

    def of(k: float) -> Any:
        def run(x: Any) -> Any:
            y = x
            for _ in range(50):
                y = tnp.sin(y * x + x - k)
            return y

        return run

    return of, (_array(8, 8),)


def custom_jvp() -> Made:
    """A network whose activation has its own rule, made anew each time."""

    def activation(k: float) -> Any:
        @tb.custom_jvp
        def act(x: Any) -> Any:
            return k * tnp.tanh(x)

        act.defjvp(lambda p, t: (act(*p), k * t[0] * (1 - tnp.tanh(p[0]) ** 2)))
        return act

    return _network(activation)


@tb.custom_vjp
def _clipped(x: Any) -> Any:
    return tnp.tanh(x)


_clipped.defvjp(
    lambda x: (tnp.tanh(x), x), lambda x, ct: (tnp.clip(ct * (1 - tnp.tanh(x) ** 2), -1.0, 1.0),)
)


def custom_vjp() -> Made:
    """A network whose activation has its own rule, of a library."""
    return _network(lambda k: lambda x: k * _clipped(x))


def custom_rules_kept() -> Made:
    """The results of such a network: its rules stay in the program."""
    of, (layers, x) = _network(lambda k: lambda x: k * _clipped(x))
    del of

    def results(k: float) -> Any:
        def run(layers: Any, x: Any) -> Any:
            for w, b in layers:
                x = k * _clipped(x @ w + b)
            return x

        return run

    return results, (layers, x)


def constants() -> Made:
    """A network whose weights of the first layers stand in the program."""
    table, (layers, x) = _array(32, 64), _network(lambda k: lambda x: x)[1]
    mask = tnp.asarray(onp.triu(onp.ones((64, 64), onp.float32)))

    def of(k: float) -> Any:
        def loss(layers: Any, x: Any) -> Any:
            for w, b in layers:
                x = tnp.tanh(x @ (w * mask) + b) + k * table
            return (x * x).mean()

        return tb.grad(loss)

    return of, (layers, x)


PROGRAMS: dict[str, Callable[[], Made]] = {
    "training step of a network": training_step,
    "gradient of a transformer": transformer,
    "gradient of a layer norm": layer_norm,
    "gradient of a graph network": graph_network,
    "gradient of a residual network": residual_network,
    "gradient of an ODE": ode,
    "gradient of a GRU": gru,
    "gradient of an autoencoder": autoencoder,
    "clipped gradients of samples": clipped_gradients,
    "gradient of a network of sines": waves,
    "hessian": hessian,
    "chain of 200 operations": chain,
    "gradient with a custom_jvp": custom_jvp,
    "gradient with a custom_vjp": custom_vjp,
    "results with a custom_vjp": custom_rules_kept,
    "gradient with array constants": constants,
}
