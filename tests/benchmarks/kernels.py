"""Kernels in two forms, ours and torch's, for ``torch_kernels.py``.

Each form takes tensors and gives tensors; what is differentiated is in the form itself, because
that is what a user would write in each framework.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.torch import wrap


@dataclass(frozen=True)
class Kernel:
    """One row: two functions of the same arguments, and whether torch.compile is tried."""

    name: str
    ours: Callable[..., Any]
    torch: Callable[..., Any]
    arguments: tuple[torch.Tensor, ...]
    compiles: bool = True


def value_and_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Value and gradient by the autograd of torch, on both sides: the way of a training step."""

    def both(*tensors: torch.Tensor) -> Any:
        leaves = [t for t in tensors if t.requires_grad]
        value = fun(*tensors)
        return value, torch.autograd.grad(value, leaves)

    return both


def rosenbrock(xp: Any) -> Callable[[Any], Any]:
    """The banana function of n variables."""
    return lambda x: xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def kalman(xp: Any, loop: Callable[..., Any]) -> Callable[..., Any]:
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


def sample_loss(xp: Any) -> Callable[..., Any]:
    """Squared error of a small network for one sample."""
    return lambda w, v, x, y: (xp.tanh(x @ w) @ v - y) ** 2


def per_sample(framework: Any, xp: Any, key: str) -> Callable[..., Any]:
    """Gradients of ``sample_loss`` for each sample."""
    return framework.vmap(framework.grad(sample_loss(xp), (0, 1)), **{key: (None, None, 0, 0)})


def runge_kutta(xp: Any, loop: Callable[..., Any]) -> Callable[..., Any]:
    """Fifty steps of a small neural field, and the distance from the origin after each."""

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


def network(xp: Any) -> Callable[..., Any]:
    """A wide network: matrix products, little else."""
    return lambda w, v, x: (xp.tanh(x @ w) @ v).sum()


def layer_norm(x: Any, scale: Any) -> Any:
    """Squares of a normalised array, as anybody would write it."""
    centred = x - x.mean(-1, keepdims=True)
    return (scale * centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).sum()


def torch_layer_norm(x: Any, scale: Any) -> Any:
    """The same by the kernel of torch."""
    return functional.layer_norm(x, x.shape[-1:], scale).sum()


def kernels() -> list[Kernel]:
    """All rows, the best of ours first."""
    torch.manual_seed(0)

    def leaf(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape) / shape[0] ** 0.5).requires_grad_()

    def row(name: str, ours: Any, theirs: Any, *arguments: Any, compiles: bool = True) -> Kernel:
        both = value_and_gradient
        return Kernel(name, both(wrap(ours)), both(theirs), arguments, compiles)

    def loop(name: str, ours: Any, theirs: Any, *arguments: Any) -> Kernel:
        # torch.compile unrolls: the filter of 100 steps had not compiled after five minutes.
        return row(name, ours, theirs, *arguments, compiles=False)

    filters = kalman(tnp, scanned), kalman(torch, looped)
    state = (leaf(4, 4), leaf(4))
    small = (torch.randn(32, 64), torch.randn(64), torch.randn(256, 32), torch.randn(256))
    fields = runge_kutta(tnp, scanned), runge_kutta(torch, looped)
    ode = (leaf(8, 32), leaf(32, 8), torch.randn(64, 8), torch.zeros(50))
    wide = (leaf(1024, 1024), leaf(1024, 1024), torch.randn(256, 1024))
    return [
        Kernel(
            "Hessian, 20 variables",
            wrap(tb.hessian(rosenbrock(tnp))),
            torch.func.hessian(rosenbrock(torch)),
            (torch.randn(20),),
        ),
        loop("Kalman filter, 100 steps, value and gradient", *filters, *state, torch.randn(100)),
        loop("the same, 500 steps", *filters, *state, torch.randn(500)),
        loop("neural ODE, 50 steps of Runge-Kutta, value and gradient", *fields, *ode),
        Kernel(
            "256 per-sample gradients of a small network",
            wrap(per_sample(tb, tnp, "in_axes")),
            per_sample(torch.func, torch, "in_dims"),
            small,
        ),
        row(
            "wide network (matrix products), value and gradient",
            network(tnp),
            network(torch),
            *wide,
        ),
        row(
            "layer norm, 4096x512, value and gradient",
            layer_norm,
            torch_layer_norm,
            leaf(4096, 512),
            leaf(512),
        ),
    ]
