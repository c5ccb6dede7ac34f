"""The model of the digits example: kernels written once in NumPy style, and the PyTorch model.

``attention``, ``private_gradient`` and ``calibration_loss`` are tracebridge functions. The PyTorch
model calls them like any other module; ``predict`` composes the first into the function that
TensorFlow serves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

import tracebridge as tb
import tracebridge.numpy as tnp

TOKENS, PATCH, WIDTH, HEADS, CLASSES = 16, 4, 32, 4, 10


def patches(images: Any) -> Any:
    """(batch, 8, 8) images as (batch, 16, 4): the 2x2 patches in reading order."""
    return images.reshape(-1, 4, 2, 4, 2).swapaxes(2, 3).reshape(-1, TOKENS, PATCH)


def attention(params: dict[str, Any], x: Any) -> Any:
    """Self-attention over tokens with a residual: (batch, tokens, width) to the same."""
    batch, tokens, width = x.shape
    qkv = (x @ params["qkv"]).reshape(batch, tokens, 3, HEADS, width // HEADS)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = q @ k.swapaxes(-1, -2) / (width // HEADS) ** 0.5
    weights = tnp.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(batch, tokens, width)
    x = x + mixed @ params["out"]
    return x + tnp.tanh(x @ params["up"]) @ params["down"]


def attention_params(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Initial weights of ``attention``."""
    shapes = {
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
    }
    return {
        name: (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }


def head_loss(head: dict[str, Any], features: Any, label: Any) -> Any:
    """Cross entropy of one sample: ``features`` (n,), ``label`` a class number."""
    logits = features @ head["w"] + head["b"]
    peak = logits.max()
    return peak + tnp.log(tnp.exp(logits - peak).sum()) - logits[label]


def private_gradient(
    head: dict[str, Any], features: Any, labels: Any, noise: dict[str, Any], clip: float
) -> dict[str, Any]:
    """The gradient of DP-SGD: each sample's gradient clipped to norm ``clip``, summed, plus noise.

    Per-sample gradients are one ``vmap(grad(...))``; PyTorch would run a backward pass each.
    """
    grads = tb.vmap(tb.grad(head_loss), in_axes=(None, 0, 0))(head, features, labels)
    squares = [(g.reshape(len(labels), -1) ** 2).sum(1) for g in tb.tree.leaves(grads)]
    scale = tnp.minimum(1.0, clip / (tnp.sqrt(sum(squares)) + 1e-6))
    return tb.tree.map(
        lambda g, n: (tnp.tensordot(scale, g, 1) + clip * n) / len(labels), grads, noise
    )


def calibration_loss(theta: Any, logits: Any, labels: Any) -> Any:
    """Mean cross entropy after a change of temperature, ``theta[0]``, and bias, ``theta[1:]``."""
    scaled = logits * tnp.exp(theta[0]) + theta[1:]
    peak = scaled.max(1)
    norm = peak + tnp.log(tnp.exp(scaled - peak[:, None]).sum(1))
    right = tnp.take_along_axis(scaled, labels[:, None], axis=1)[:, 0]
    return (norm - right).mean() + 1e-3 * (theta**2).sum()


class DigitNet(nn.Module):
    """Patches, a linear embedding, attention over the patches, a linear head."""

    def __init__(self, kernel: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH, WIDTH)
        self.position = nn.Parameter(0.1 * torch.randn(TOKENS, WIDTH))
        self.kernel = kernel
        self.head = nn.Linear(TOKENS * WIDTH, CLASSES)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 8, 8) images to (batch, tokens * width)."""
        return self.kernel(self.embed(patches(images)) + self.position).flatten(1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 8, 8) images to (batch, 10) logits."""
        return self.head(self.features(images))


class TorchAttention(nn.Module):
    """``attention`` in plain PyTorch, for the comparison of step times."""

    def __init__(self, params: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.weights = nn.ParameterDict({n: torch.tensor(p) for n, p in params.items()})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) to the same."""
        batch, tokens, width = x.shape
        p = self.weights
        qkv = (x @ p["qkv"]).reshape(batch, tokens, 3, HEADS, width // HEADS)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        scores = q @ k.transpose(-1, -2) / (width // HEADS) ** 0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + mixed @ p["out"]
        return x + torch.tanh(x @ p["up"]) @ p["down"]


def empty_head(net: DigitNet) -> dict[str, torch.Tensor]:
    """Weights of a head that has learnt nothing, in the form that ``private_gradient`` takes."""
    return {"w": torch.zeros_like(net.head.weight).T, "b": torch.zeros_like(net.head.bias)}


def predict(params: dict[str, Any], images: Any) -> Any:
    """The whole model as one tracebridge function: (batch, 8, 8) images to (batch, 10) logits."""
    x = patches(images) @ params["embed_w"] + params["embed_b"] + params["position"]
    features = attention(params["kernel"], x).reshape(-1, TOKENS * WIDTH)
    return features @ params["head_w"] + params["head_b"]


def exported_params(net: DigitNet) -> dict[str, Any]:
    """The weights of a trained ``DigitNet`` in the form that ``predict`` takes."""
    state = {name: t.detach().numpy() for name, t in net.state_dict().items()}
    kernel = {n: t.detach().numpy() for n, t in net.kernel.params().items()}
    return {
        "embed_w": state["embed.weight"].T.copy(),
        "embed_b": state["embed.bias"],
        "position": state["position"],
        "kernel": kernel,
        "head_w": state["head.weight"].T.copy(),
        "head_b": state["head.bias"],
    }
