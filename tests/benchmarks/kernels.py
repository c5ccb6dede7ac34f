"""The kernels that ``torch_kernels.py`` measures, ours and torch's, with their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.benchmarks import kernel_programs as programs
from tracebridge import nn
from tracebridge.torch import wrap


@dataclass(frozen=True)
class Kernel:
    """One row: two functions of the same tensors; those that require a gradient get one.

    ``compiles``: whether torch.compile is tried. It unrolls loops: the filter of 100 steps had not
    compiled after five minutes.
    """

    name: str
    ours: Callable[..., Any]
    torch: Callable[..., Any]
    arguments: tuple[torch.Tensor, ...]
    compiles: bool = True

    @property
    def leaves(self) -> list[torch.Tensor]:
        """The arguments that get a gradient; none where the kernel itself differentiates."""
        return [t for t in self.arguments if t.requires_grad]


def _leaf(*shape: int) -> torch.Tensor:
    return (torch.randn(*shape) / shape[0] ** 0.5).requires_grad_()


def _wide(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


def _row(name: str, ours: Any, theirs: Any, *arguments: Any, compiles: bool = True) -> Kernel:
    return Kernel(name, wrap(ours), theirs, arguments, compiles)


def _both(name: str, program: Any, *arguments: Any) -> Kernel:
    """A program that reads the same in both frameworks."""
    return _row(name, program(tnp), program(torch), *arguments)


def _loop(name: str, program: Any, *arguments: Any) -> Kernel:
    ours, theirs = program(tnp, programs.scanned), program(torch, programs.looped)
    return _row(name, ours, theirs, *arguments, compiles=False)


def _derivatives() -> list[Kernel]:
    small = (torch.randn(32, 64), torch.randn(64), torch.randn(256, 32), torch.randn(256))
    ours, theirs = (tb, tnp, "in_axes"), (torch.func, torch, "in_dims")
    return [
        _row(
            "Hessian, 20 variables",
            tb.hessian(programs.rosenbrock(tnp)),
            torch.func.hessian(programs.rosenbrock(torch)),
            torch.randn(20),
        ),
        _row(
            "Jacobians of three moments, 2000 rows of 16",
            programs.vmapped_jacobian(tb, tnp),
            programs.vmapped_jacobian(torch.func, torch),
            torch.randn(2000, 16),
        ),
        _row(
            "256 per-sample gradients",
            programs.per_sample(*ours),
            programs.per_sample(*theirs),
            *small,
        ),
        _row(
            "squared norms of 256 per-sample gradients",
            programs.clipped(*ours),
            programs.clipped(*theirs),
            *small,
        ),
    ]


def _loops() -> list[Kernel]:
    state = (_leaf(4, 4), _leaf(4))
    ode = (_leaf(8, 32), _leaf(32, 8), torch.randn(64, 8), torch.zeros(50))

    def recurrent(kind: str, program: Any, time: int, gates: int) -> Kernel:
        arguments = (_wide(time, 16, 32), _leaf(gates * 64, 32), _leaf(gates * 64, 64))
        name, theirs = f"{kind}, {time} steps", programs.torch_recurrent(kind)
        return _row(name, program, theirs, *arguments, _leaf(gates * 64), compiles=False)

    return [
        _loop("Kalman filter, 100 steps", programs.kalman, *state, torch.randn(100)),
        _loop("Kalman filter, 500 steps", programs.kalman, *state, torch.randn(500)),
        _loop("neural ODE, 50 steps of Runge-Kutta", programs.runge_kutta, *ode),
        _loop(
            "filter of two poles, 64 signals of 500 values",
            programs.iir_filter,
            torch.tensor([0.5, -0.3], requires_grad=True),
            torch.randn(500, 64),
        ),
        recurrent("LSTM", programs.lstm, 100, 4),
        recurrent("GRU", programs.gru, 100, 3),
        recurrent("RNN", programs.rnn, 200, 1),
        _row(
            "heat equation, 20 steps, 512x512",
            programs.heat(tnp, programs.repeated),
            programs.heat(torch, programs.unrolled),
            _wide(512, 512),
        ),
    ]


def _arrays() -> list[Kernel]:
    softmax = _wide(4096, 1000)
    labels = torch.randint(0, 1000, (4096,))
    heads = [_wide(8, 64, 32) for _ in range(3)]
    many = [_wide(8, 512, 64) for _ in range(3)]
    attend = programs.torch_attention
    return [
        _both("sine chain, 1e6", programs.sine_chain, _wide(1_000_000)),
        _both("tanh chain, 1e6", programs.tanh_chain, _wide(1_000_000)),
        _row("softmax, 4096x1000", nn.softmax, lambda x: x.softmax(-1), softmax),
        _row(
            "cross entropy, 4096x1000",
            programs.cross_entropy,
            functional.cross_entropy,
            softmax,
            labels,
        ),
        _row(
            "layer norm, 4096x256",
            programs.layer_norm,
            programs.torch_layer_norm,
            _wide(4096, 256),
            _leaf(256),
            _leaf(256),
        ),
        _row(
            "group norm, 16x64x32x32, 8 groups",
            programs.group_norm,
            programs.torch_group_norm,
            _wide(16, 64, 32, 32),
            _leaf(64),
            _leaf(64),
        ),
        _row("attention, 8 heads of 64x32", programs.attention, attend, *heads),
        _row("attention, 8 heads of 512x64", programs.attention, attend, *many),
        _row(
            "causal attention, 8 heads of 1024x64",
            programs.causal_attention,
            partial(attend, is_causal=True),
            *[_wide(8, 1024, 64) for _ in range(3)],
        ),
        _both("n-body energy, 1000 points", programs.n_body, _wide(1000, 3)),
        _both(
            "wide network (matrix products)",
            programs.network,
            _leaf(1024, 1024),
            _leaf(1024, 1024),
            torch.randn(256, 1024),
        ),
    ]


def _small_passes() -> list[Kernel]:
    """What needs little more than memory, and a softmax as NumPy has it."""
    arrays = _wide(1024, 512)
    return [
        _row("ReLU, 1024x512", nn.relu, functional.relu, arrays),
        _row(
            "squared error, 1e5",
            lambda x, y: ((x - y) ** 2).mean(),
            functional.mse_loss,
            _wide(100_000),
            torch.randn(100_000),
        ),
        _row(
            "softmax written out, 1024x512",
            programs.softmax,
            lambda x: x.softmax(-1),
            arrays,
        ),
    ]


def _images() -> list[Kernel]:
    """Reductions over channels, and other functions of large arrays."""
    images, logits = _wide(8, 64, 64, 64), _wide(8, 21, 128, 128)
    labels = torch.randint(0, 21, (8, 128, 128))
    return [
        _row(
            "softmax over channels, 8x64x64x64",
            lambda x: nn.softmax(x, axis=1),
            lambda x: x.softmax(1),
            images,
        ),
        _row(
            "cross entropy of images, 8x21x128x128",
            programs.cross_entropy_of_images,
            functional.cross_entropy,
            logits,
            labels,
        ),
        _row(
            "exact GELU, 4096x1000",
            lambda x: nn.gelu(x, approximate=False),
            functional.gelu,
            _wide(4096, 1000),
        ),
        _row("gated linear unit, 4096x1024", nn.glu, functional.glu, _wide(4096, 1024)),
        _row(
            "rotary embedding, 8x1024x8x64",
            programs.rotary(tnp.concatenate),
            programs.rotary(torch.cat),
            _wide(8, 1024, 8, 64),
            *[torch.randn(1024, 1, 32) for _ in range(2)],
        ),
        _row(
            "cumulative sum, 4096x1000",
            lambda x: tnp.cumsum(x, -1),
            lambda x: x.cumsum(-1),
            _wide(4096, 1000),
        ),
    ]


def kernels() -> list[Kernel]:
    """All rows: derivatives, loops, arrays, images."""
    torch.manual_seed(0)
    return [*_derivatives(), *_loops(), *_arrays(), *_images(), *_small_passes()]
