"""Modules of torch, translated, as kernels whose memory is measured."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.benchmarks.kernels import Kernel
from tracebridge.torch import from_module, wrap


class Attends(nn.Module):
    """Attention of a sequence to itself, without its weights."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(size, heads, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class Decodes(nn.Module):
    """A layer of a decoder that attends to its own input as what an encoder gave, too."""

    def __init__(self, size: int, heads: int, width: int) -> None:
        super().__init__()
        self.inner = nn.TransformerDecoderLayer(size, heads, width, batch_first=True, dropout=0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x)


class Steps(nn.Module):
    """What a recurrent network gives at each step."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


class Classifies(nn.Module):
    """The loss of words predicted from words: labels are part of the module."""

    def __init__(self, words: int, size: int, n: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(words, size), nn.Linear(size, words)
        self.register_buffer("words", torch.randint(0, words, (n,)))
        self.register_buffer("labels", torch.randint(0, words, (n,)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(self.table(self.words) + x), self.labels)


class Experts(nn.Module):
    """A weighted mean of what several small networks give, all of which are asked."""

    def __init__(self, n: int, size: int, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(size, n)
        self.first = nn.Parameter(torch.randn(n, size, width) / size**0.5)
        self.second = nn.Parameter(torch.randn(n, width, size) / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.einsum("bi,eio->ebo", x, self.first).relu()
        given = torch.bmm(hidden, self.second)
        return torch.einsum("be,ebo->bo", self.gate(x).softmax(-1), given)


class Residual(nn.Module):
    """Two convolutions with norms of the batch, beside the way that goes round them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(size, size, 3, padding=1, bias=False),
            nn.BatchNorm2d(size, track_running_stats=False),
            nn.ReLU(),
            nn.Conv2d(size, size, 3, padding=1, bias=False),
            nn.BatchNorm2d(size, track_running_stats=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x + self.inner(x))


def _layers(*sizes: int, activation: type[nn.Module]) -> nn.Module:
    parts: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        parts += [nn.Linear(before, after), activation()]
    return nn.Sequential(*parts)


def _row(name: str, module: nn.Module, *shape: int) -> Kernel:
    module.eval()
    x = torch.randn(*shape, requires_grad=True)
    translated = from_module(module, (x,))
    named = dict(module.named_parameters())
    leaves = [p.detach().clone().requires_grad_() for p in named.values()]

    def ours(x: Any, *values: Any) -> Any:
        return translated(dict(zip(named, values, strict=True)), x)

    def theirs(x: Any, *values: Any) -> Any:
        return torch.func.functional_call(module, dict(zip(named, values, strict=True)), (x,))

    return Kernel(name, wrap(ours), theirs, (x, *leaves), compiles=False)


def modules() -> list[Kernel]:
    """Layers whose values take megabytes."""
    encoder = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True, dropout=0.0)
    convolution = nn.Conv2d(16, 32, 3, padding=1)
    return [
        _row("Linear and ReLU, four times, 4096x512", _layers(*[512] * 5, activation=nn.ReLU),
             4096, 512),
        _row("GELU, 4096x1000", nn.GELU(), 4096, 1000),
        _row("SiLU, 4096x1000", nn.SiLU(), 4096, 1000),
        _row("two Linear, GELU, 2048x512, 2048 wide",
             nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)), 2048, 512),
        _row("MultiheadAttention, 8x512x256, 8 heads", Attends(256, 8), 8, 512, 256),
        _row("TransformerEncoderLayer, 8x256x256", encoder, 8, 256, 256),
        _row("TransformerDecoderLayer, 8x256x256", Decodes(256, 8, 1024), 8, 256, 256),
        _row("LSTM module, 100x32x128", Steps(nn.LSTM(128, 256)), 100, 32, 128),
        _row("GRU module, 100x32x128", Steps(nn.GRU(128, 256)), 100, 32, 128),
        _row("Conv2d and ReLU, 16x16x64x64", nn.Sequential(convolution, nn.ReLU()), 16, 16, 64, 64),
        _row("Conv2d, ReLU, MaxPool2d, 16x16x64x64",
             nn.Sequential(convolution, nn.ReLU(), nn.MaxPool2d(2)), 16, 16, 64, 64),
        _row("residual block with batch norm, 16x32x32x32", Residual(32), 16, 32, 32, 32),
        _row("embedding, Linear, cross entropy, 512x5000", Classifies(5000, 128, 512), 512, 128),
        _row("mixture of 8 experts, 1024x128", Experts(8, 128, 256), 1024, 128),
    ]  # fmt: skip
