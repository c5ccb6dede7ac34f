"""The programs of ``kernels.py``, each once for us and once for torch.

A program that reads the same in both frameworks takes the namespace ``xp``. Where torch ships a
kernel of its own (softmax, layer norm, attention, recurrent networks), its form calls that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

import tracebridge.numpy as tnp
from tracebridge import lax, nn

Program = Callable[..., Any]


def rosenbrock(xp: Any) -> Program:
    """The banana function of n variables."""
    return lambda x: xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def sine_chain(xp: Any) -> Program:
    """Elementwise functions, each read once."""
    return lambda x: xp.sin(x) * xp.cos(x) + xp.exp(-x * x)


def tanh_chain(xp: Any) -> Program:
    """Elementwise functions whose derivatives need their results."""

    def program(x: Any) -> Any:
        for _ in range(4):
            x = xp.tanh(1.1 * x + 0.1)
        return x

    return program


def moments(xp: Any) -> Program:
    """Three sums of one row, stacked: mean, second and third moment."""
    return lambda x: xp.stack([x.mean(), (x * x).mean(), (x * x * x).mean()])


def vmapped_jacobian(framework: Any, xp: Any) -> Program:
    """The Jacobian of ``moments`` for each row, in forward mode."""
    return framework.vmap(framework.jacfwd(moments(xp)))


def kalman(xp: Any, loop: Program) -> Program:
    """Negative log likelihood of a filter with four states, and one value each step."""

    def loss(transition: Any, observed: Any, values: Any) -> Any:
        def step(state: Any, value: Any) -> Any:
            mean, covariance = state
            mean = transition @ mean
            covariance = transition @ covariance @ transition.T + 0.1 * xp.eye(4)
            total = observed @ covariance @ observed + 1.0
            gain = covariance @ observed / total
            surprise = value - observed @ mean
            mean = mean + gain * surprise
            covariance = covariance - xp.outer(gain, observed @ covariance)
            return (mean, covariance), 0.5 * (xp.log(total) + surprise**2 / total)

        return loop(step, (xp.zeros(4), xp.eye(4)), values)

    return loss


def runge_kutta(xp: Any, loop: Program) -> Program:
    """Steps of a small neural field, and the distance from the origin after each."""

    def loss(w: Any, v: Any, x: Any, times: Any) -> Any:
        def field(y: Any) -> Any:
            return xp.tanh(y @ w) @ v

        def step(y: Any, _: Any) -> Any:
            a = field(y)
            b = field(y + 0.05 * a)
            c = field(y + 0.05 * b)
            y = y + 0.1 / 6 * (a + 2 * b + 2 * c + field(y + 0.1 * c))
            return y, (y * y).sum()

        return loop(step, x, times)

    return loss


def heat(xp: Any, repeat: Program) -> Program:
    """Explicit steps of the heat equation on a torus."""

    def step(u: Any) -> Any:
        around = xp.roll(u, 1, 0) + xp.roll(u, -1, 0) + xp.roll(u, 1, 1) + xp.roll(u, -1, 1)
        return u + 0.1 * (around - 4 * u)

    return lambda u: repeat(step, 20, u)


def n_body(xp: Any) -> Program:
    """Gravitational energy of points in space, each pair counted twice."""

    def energy(x: Any) -> Any:
        d = x[:, None] - x[None]
        return (1 / xp.sqrt((d * d).sum(-1) + 0.01)).sum()

    return energy


def sample_loss(xp: Any) -> Program:
    """Squared error of a small network for one sample."""
    return lambda w, v, x, y: (xp.tanh(x @ w) @ v - y) ** 2


def per_sample(framework: Any, xp: Any, key: str) -> Program:
    """Gradients of ``sample_loss`` for each sample."""
    return framework.vmap(framework.grad(sample_loss(xp), (0, 1)), **{key: (None, None, 0, 0)})


def clipped(framework: Any, xp: Any, key: str) -> Program:
    """Squared norms of the gradients of each sample, as private training asks for."""

    def norms(*arguments: Any) -> Any:
        dw, dv = per_sample(framework, xp, key)(*arguments)
        return (dw * dw).sum((1, 2)) + (dv * dv).sum(1)

    return norms


def network(xp: Any) -> Program:
    """A wide network: matrix products, little else."""
    return lambda w, v, x: xp.tanh(x @ w) @ v


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    """A normalised array, as anybody would write it."""
    centred = x - x.mean(-1, keepdims=True)
    return scale * centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) + bias


def torch_layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    """The same by the kernel of torch."""
    return functional.layer_norm(x, x.shape[-1:], scale, bias)


def group_norm(x: Any, scale: Any, bias: Any) -> Any:
    """Eight groups of the channels of images, as anybody would write it."""
    groups = x.reshape(x.shape[0], 8, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    normal = centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return normal.reshape(x.shape) * scale[:, None, None] + bias[:, None, None]


def torch_group_norm(x: Any, scale: Any, bias: Any) -> Any:
    """The same by the kernel of torch."""
    return functional.group_norm(x, 8, scale, bias)


def softmax(x: Any) -> Any:
    """Softmax of rows as anybody would write it."""
    e = tnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean cross entropy of rows of logits."""
    picked = tnp.take_along_axis(nn.log_softmax(logits), labels[:, None], axis=-1)
    return -picked.mean()


def cross_entropy_of_images(logits: Any, labels: Any) -> Any:
    """Mean cross entropy of images of logits, classes along the second axis."""
    picked = tnp.take_along_axis(nn.log_softmax(logits, axis=1), labels[:, None], axis=1)
    return -picked.mean()


def attention(q: Any, k: Any, v: Any) -> Any:
    """Heads of one sequence: (head, time, feature)."""
    scores = q @ tnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    return nn.softmax(scores) @ v


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    """Heads of one sequence whose queries see no later keys: (head, time, feature)."""
    q, k, v = [tnp.swapaxes(x, 0, 1) for x in (q, k, v)]
    return tnp.swapaxes(nn.dot_product_attention(q, k, v, is_causal=True), 0, 1)


def torch_attention(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    """The same by the kernel of torch, which it has for operands with a batch axis."""
    batches = [x[None] for x in (q, k, v)]
    return functional.scaled_dot_product_attention(*batches, is_causal=is_causal)[0]


def rotary(joined: Program) -> Program:
    """Both halves of features as pairs that are turned by the angles of their place."""

    def program(x: Any, cosine: Any, sine: Any) -> Any:
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        return joined([a * cosine - b * sine, b * cosine + a * sine], -1)

    return program


def iir_filter(xp: Any, loop: Program) -> Program:
    """A filter of two poles over a batch of signals: the power of what comes out."""

    def power(poles: Any, signals: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            y = x + poles[0] * state[0] + poles[1] * state[1]
            return (y, state[0]), (y * y).sum()

        zero = xp.zeros(signals.shape[1])
        return loop(step, (zero, zero), signals)

    return power


def rnn(x: Any, w: Any, u: Any, b: Any) -> Any:
    """A plain recurrent network over (time, batch, feature)."""

    def step(h: Any, x: Any) -> Any:
        h = tnp.tanh(x @ w.T + h @ u.T + b)
        return h, h

    return lax.scan(step, tnp.zeros((x.shape[1], u.shape[1])), x)[1]


def lstm(x: Any, w: Any, u: Any, b: Any) -> Any:
    """An LSTM over (time, batch, feature), gates in the order of torch: in, forget, cell, out."""

    def step(state: Any, x: Any) -> Any:
        h, c = state
        gates = tnp.split(x @ w.T + h @ u.T + b, 4, axis=-1)
        c = nn.sigmoid(gates[1]) * c + nn.sigmoid(gates[0]) * tnp.tanh(gates[2])
        h = nn.sigmoid(gates[3]) * tnp.tanh(c)
        return (h, c), h

    zero = tnp.zeros((x.shape[1], u.shape[1]))
    return lax.scan(step, (zero, zero), x)[1]


def gru(x: Any, w: Any, u: Any, b: Any) -> Any:
    """A GRU over (time, batch, feature), gates in the order of torch: reset, update, new."""

    def step(h: Any, x: Any) -> Any:
        a, c = tnp.split(x @ w.T + b, 3, axis=-1), tnp.split(h @ u.T, 3, axis=-1)
        update = nn.sigmoid(a[1] + c[1])
        new = tnp.tanh(a[2] + nn.sigmoid(a[0] + c[0]) * c[2])
        h = (1 - update) * new + update * h
        return h, h

    return lax.scan(step, tnp.zeros((x.shape[1], u.shape[1])), x)[1]


def torch_recurrent(kind: str) -> Program:
    """The fused network of torch of that kind, with the weights as arguments."""
    module = getattr(torch.nn, kind)(32, 64)

    def run(x: Any, w: Any, u: Any, b: Any) -> Any:
        values = {
            "weight_ih_l0": w, "weight_hh_l0": u, "bias_ih_l0": b, "bias_hh_l0": torch.zeros_like(b)
        }  # fmt: skip
        return torch.func.functional_call(module, values, (x,))[0]

    return run


def scanned(step: Any, state: Any, values: Any) -> Any:
    """The sum of the results of a scan."""
    return lax.scan(step, state, values)[1].sum()


def looped(step: Any, state: Any, values: Any) -> Any:
    """The same by a loop in Python."""
    results = []
    for value in values:
        state, result = step(state, value)
        results.append(result)
    return torch.stack(results).sum()


def repeated(step: Any, times: int, value: Any) -> Any:
    """``step`` so many times, as one loop that can be differentiated."""
    return lax.fori_loop(0, times, lambda _, u: step(u), value)


def unrolled(step: Any, times: int, value: Any) -> Any:
    """The same by a loop in Python."""
    for _ in range(times):
        value = step(value)
    return value
