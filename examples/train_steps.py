"""A whole step of training as one program, beside eager and compiled PyTorch, on three networks.

    python examples/train_steps.py [--smoke] [--out FOLDER]

``train_step`` compiles forward pass, loss, backward pass and the update by AdamW together. All
three ways train the same network on the digits of scikit-learn from the same start; their losses
must agree before their times are compared. PyTorch has one thread: its threads and those of XLA
would take the cores from one another. A short run does one network, and leaves out
``torch.compile``, which takes longer to compile than everything else to run.
"""

from __future__ import annotations

import copy
import shutil
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import support
import torch
from sklearn.datasets import load_digits
from torch import nn

from tracebridge.torch import train_step

OURS, EAGER, COMPILED = "train_step", "PyTorch, eager", "PyTorch, torch.compile"
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Tokens(nn.Module):
    """The rows of a digit as eight tokens of 64 numbers, two encoder layers, ten logits."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(8, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` is (batch, 64); logits of shape (batch, 10)."""
        return self.head(self.layers(self.into(x.unflatten(1, (8, 8)))).mean(1))


def perceptron(width: int) -> nn.Module:
    """Two hidden layers."""
    hidden = [nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*hidden, nn.Linear(width, 10))


def convolutions() -> nn.Module:
    """Two convolutions with batch norm, a linear layer."""
    first = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16)]
    second = [nn.ReLU(), nn.Conv2d(16, 32, 3, 2, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(512, 10))


# name -> the network, and how many digits a step sees
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "perceptron of 64, batch 32": (lambda: perceptron(64), 32),
    "perceptron of 512, batch 128": (lambda: perceptron(512), 128),
    "convolutions, batch 64": (convolutions, 64),
    "transformer, batch 32": (Tokens, 32),
}


def whole(net: nn.Module) -> Step:
    """Everything in one program."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    return train_step(net, nn.CrossEntropyLoss(), optimizer)


def eager(net: nn.Module) -> Step:
    """The plain loop, with the faster of torch's ways to update."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def compiled(net: nn.Module) -> Step:
    """Loss and gradients compiled together, the update in one kernel of torch."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    loss_of = torch.compile(lambda x, y: nn.functional.cross_entropy(net(x), y))

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = loss_of(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


WAYS: dict[str, Callable[[nn.Module], Step]] = {OURS: whole, EAGER: eager, COMPILED: compiled}


def compare(
    make: Callable[[], nn.Module], batch: int, ways: list[str], steps: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Losses and milliseconds of each step of each way; the ways take turns."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    start = make()
    functions = {way: WAYS[way](copy.deepcopy(start)) for way in ways}
    found: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in ways}
    for _ in range(steps):
        rows = torch.randint(0, len(x), (batch,))
        inputs = x[rows], y[rows]
        for way, step in functions.items():
            begin = time.perf_counter()
            loss = step(*inputs)
            found[way][1].append(1e3 * (time.perf_counter() - begin))
            found[way][0].append(float(loss))
    return found


def ways_here(smoke: bool) -> list[str]:
    """The ways that can be compared: ``torch.compile`` needs a C++ compiler."""
    has_compiler = shutil.which("g++") or shutil.which("clang++")
    return [way for way in WAYS if way != COMPILED or (has_compiler and not smoke)]


def main() -> None:
    """Train each network in all ways, compare losses, draw times."""
    chosen = support.options(__doc__)
    torch.set_num_threads(1)
    ways = ways_here(chosen.smoke)
    names = list(NETWORKS)[: 1 if chosen.smoke else None]
    rows: list[Any] = []
    axes = support.canvas(
        "A step of training: median of the later half", "", "milliseconds", yscale="log"
    )
    for i, name in enumerate(names):
        found = compare(*NETWORKS[name], ways, 60 if chosen.smoke else 300)
        curves = np.array([losses for losses, _ in found.values()])
        # Rounding grows with the steps: the first ones say whether the ways do the same.
        assert np.abs(curves[:, :20] - curves[0, :20]).max() < 1e-3
        typical = [statistics.median(times[len(times) // 2 :]) for _, times in found.values()]
        rows.append((name, *typical, typical[1] / typical[0]))
        for k, (way, ms) in enumerate(zip(ways, typical, strict=True)):
            label = way if i == 0 else None
            axes.bar(i + 0.27 * (k - 1), ms, 0.25, color=f"C{k}", label=label)
    support.table(("ms of a step", *ways, "eager / ours"), rows)
    print(f"losses of the first 20 steps agree in {len(ways)} ways")
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    support.save(axes, chosen.out / "train_steps.png")


if __name__ == "__main__":
    main()
