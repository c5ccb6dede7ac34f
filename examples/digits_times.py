"""The times of the digits example: each job beside plain PyTorch, eager and compiled."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any

import torch
from digits_model import (
    DigitNet,
    TorchAttention,
    attention,
    calibration_loss,
    empty_head,
    private_gradient,
)
from torch import nn

import tracebridge as tb
import tracebridge.torch

COMPILED = "PyTorch, torch.compile"


def torch_private_gradient(
    head: dict[str, Any], features: Any, labels: Any, noise: dict[str, Any], clip: float
) -> dict[str, Any]:
    """``private_gradient`` in plain PyTorch, by ``torch.func``."""

    def loss(head: dict[str, Any], x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(x @ head["w"] + head["b"], label)

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    grads = per_sample(head, features, labels)
    norms = sum([g.flatten(1).square().sum(1) for g in grads.values()]).sqrt()
    scale = (clip / (norms + 1e-6)).clamp_max(1.0)
    return {
        n: (torch.tensordot(scale, g, 1) + clip * noise[n]) / len(labels) for n, g in grads.items()
    }


def torch_calibration_loss(theta: Any, logits: Any, labels: Any) -> Any:
    """``calibration_loss`` in plain PyTorch."""
    scaled = logits * torch.exp(theta[0]) + theta[1:]
    return nn.functional.cross_entropy(scaled, labels) + 1e-3 * (theta**2).sum()


def tables(net: DigitNet, weights: Any, batch: Any, clip: float, seconds: float) -> str:
    """All tables: what the bridge is best at first, what torch is best at last."""
    images, labels = batch
    with torch.no_grad():
        features = net.features(images)
        logits, head = net.head(features), empty_head(net)
        noise = {name: torch.randn_like(p) for name, p in head.items()}
    theta = torch.zeros(1 + logits.shape[1])
    hessians = {
        "tracebridge": tb.torch.wrap(tb.hessian(calibration_loss)),
        "PyTorch, torch.func": torch.func.hessian(torch_calibration_loss),
        COMPILED: torch.compile(torch.func.hessian(torch_calibration_loss)),
    }
    gradients = {
        "tracebridge": tb.torch.wrap(private_gradient),
        "PyTorch, torch.func": torch_private_gradient,
        COMPILED: torch.compile(torch_private_gradient),
    }
    steps = {
        "tracebridge kernel": _step(DigitNet(tb.torch.Module(attention, weights))),
        "PyTorch, eager": _step(DigitNet(TorchAttention(weights))),
        COMPILED: _step(torch.compile(DigitNet(TorchAttention(weights)))),
    }
    n = len(labels)
    return "\n".join(
        [
            _table(f"Hessian of calibration, {n}", hessians, (theta, logits, labels), seconds),
            _table(
                f"{n} private gradients", gradients, (head, features, labels, noise, clip), seconds
            ),
            _table(f"training step, batch {n}", steps, batch, seconds),
        ]
    )


def _step(net: Callable[..., Any]) -> Callable[..., None]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()

    return step


def _table(title: str, functions: dict[str, Any], arguments: Any, seconds: float) -> str:
    """Milliseconds of one call of each, of the first call, and who is the fastest."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    rows: list[tuple[str, float, float]] = []
    for name, function in functions.items():
        if compiler or name != COMPILED:
            rows.append((name, *_times(lambda f=function: f(*arguments), seconds)))
    ours = rows[0][1]
    lines = [f"{title:<30}{'ms':>9}{'vs ours':>10}{'first call, ms':>16}"]
    lines += [
        f"{name:<30}{1e3 * best:>9.3f}{best / ours:>9.2f}x{1e3 * first:>16.0f}"
        for name, best, first in rows
    ]
    return "\n".join([*lines, f"fastest: {min(rows, key=lambda row: row[1])[0]}", ""])


def _times(run: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """The best of many calls, with one thread of PyTorch and with all, and the first call.

    The threads of PyTorch and of XLA share the cores: which number is better depends on the job.
    """
    start = time.perf_counter()
    run()
    first, best = time.perf_counter() - start, float("inf")
    threads = torch.get_num_threads()
    for n in {1, threads}:
        torch.set_num_threads(n)
        run()
        end = time.perf_counter() + seconds / 2
        while time.perf_counter() < end:
            start = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - start)
    torch.set_num_threads(threads)
    return best, first
