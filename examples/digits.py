"""Handwritten digits: a PyTorch model with tracebridge kernels, served by TensorFlow.

    python examples/digits.py [--smoke] [--out FOLDER]

Trains a small attention model (PyTorch modules, optimizer and DataLoader; the attention block is a
tracebridge function), learns a new head on its features with differentially private steps
(per-sample gradients by ``vmap(grad(...))``), calibrates it by Newton's method (``hessian``),
compares the times of all three with PyTorch, eager and compiled, and exports the model to a
SavedModel that a fresh process serves without tracebridge.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import digits_report as report
import digits_times as times
import numpy as np
import tensorflow as tf
import torch
from digits_model import (
    DigitNet,
    attention,
    attention_params,
    calibration_loss,
    empty_head,
    exported_params,
    predict,
    private_gradient,
)
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

import tracebridge as tb
import tracebridge.tf
import tracebridge.torch

# Of the private steps: norm of a gradient, noise in units of it, learning rate.
CLIP, NOISE, RATE = 1.0, 0.3, 0.5


def data() -> list[torch.Tensor]:
    """Train images, test images, train labels, test labels; images in [0, 1]."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int64)
    parts = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    return [torch.from_numpy(p) for p in parts]


def train(net: DigitNet, images: torch.Tensor, labels: torch.Tensor, epochs: int) -> list[float]:
    """AdamW with a one-cycle schedule; gives the loss of each step."""
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, drop_last=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    losses: list[float] = []
    with tqdm(total=steps, desc="training", unit="step", disable=None) as bar:
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                loss = cross_entropy(net(x), y)
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
                bar.set_postfix(loss=f"{losses[-1]:.3f}")
                bar.update()
    return losses


def private_steps(
    net: DigitNet, images: torch.Tensor, labels: torch.Tensor, steps: int
) -> list[float]:
    """DP-SGD: a new head from zero, by clipped per-sample gradients and Gaussian noise."""
    gradient = tb.torch.wrap(private_gradient)
    with torch.no_grad():
        features = net.features(images)
        head = empty_head(net)
        losses: list[float] = []
        for _ in tqdm(range(steps), desc="private steps", unit="step", disable=None):
            batch = torch.randint(len(labels), (256,))
            noise = {name: NOISE * torch.randn_like(p) for name, p in head.items()}
            grads = gradient(head, features[batch], labels[batch], noise, CLIP)
            head = {name: head[name] - RATE * grads[name] for name in head}
            losses.append(cross_entropy(features @ head["w"] + head["b"], labels).item())
        net.head.weight.copy_(head["w"].T)
        net.head.bias.copy_(head["b"])
    return losses


def calibrate(
    net: DigitNet, train: tuple[torch.Tensor, ...], test: tuple[torch.Tensor, ...]
) -> tuple[float, float]:
    """Temperature and bias by Newton's method; gives the test cross entropy before and after."""
    gradient, hessian = tb.grad(calibration_loss), tb.hessian(calibration_loss)
    newton = tb.torch.wrap(lambda *arguments: (gradient(*arguments), hessian(*arguments)))
    with torch.no_grad():
        before = cross_entropy(net(test[0]), test[1]).item()
        logits, theta = net(train[0]), torch.zeros(1 + net.head.out_features)
        for _ in range(6):
            slope, curvature = newton(theta, logits, train[1])
            theta = theta - torch.linalg.solve(curvature, slope)
        scale = theta[0].exp()
        net.head.weight.mul_(scale)
        net.head.bias.mul_(scale).add_(theta[1:])
        return before, cross_entropy(net(test[0]), test[1]).item()


def accuracy(net: DigitNet, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right predictions."""
    with torch.no_grad():
        return (net(images).argmax(1) == labels).float().mean().item()


def export(net: DigitNet, images: np.ndarray, folder: Path) -> float:
    """Save, serve in a fresh process; gives the largest difference of predicted probabilities."""
    model = folder / "saved_model"
    signature = [tf.TensorSpec((None, 8, 8), tf.float32, name="images")]
    tb.tf.save(predict, str(model), signature, params=exported_params(net))
    with torch.no_grad():
        ours = net(torch.from_numpy(images)).softmax(1)
    served = torch.from_numpy(report.serve_elsewhere(model, images, folder)).softmax(1)
    return (served - ours).abs().max().item()


def main(argv: list[str]) -> int:
    """Run the example; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a short run without the timing table")
    parser.add_argument("--out", type=Path, default=Path("build/digits"))
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    torch.manual_seed(0)
    weights = attention_params(np.random.default_rng(0))
    train_x, test_x, train_y, test_y = data()

    net = DigitNet(tb.torch.Module(attention, weights))
    losses = train(net, train_x, train_y, epochs=4 if options.smoke else 40)
    trained = accuracy(net, test_x, test_y)
    private = private_steps(net, train_x, train_y, steps=30 if options.smoke else 200)
    score = accuracy(net, test_x, test_y)
    print(
        f"{time.perf_counter() - start:.0f} s of training; right of the {len(test_y)} test digits:"
    )
    print(f"  {trained:.2%} after training, {score:.2%} with the head that was learnt privately")

    before, after = calibrate(net, (train_x, train_y), (test_x, test_y))
    print(f"  cross entropy {before:.3f}, after calibration by Newton's method {after:.3f}")
    if not options.smoke:
        print(times.tables(net, weights, (train_x[:256], train_y[:256]), CLIP, seconds=3.0))
    with torch.no_grad():
        predicted = net(test_x).argmax(1).numpy()
    report.plot_losses(losses, private, options.out / "losses.png")
    report.plot_mistakes(test_x.numpy(), test_y.numpy(), predicted, options.out / "mistakes.png")
    difference = export(net, test_x.numpy(), options.out)
    print(f"SavedModel served without tracebridge: largest difference {difference:.1e}")
    print(f"pictures and model are in {options.out}")
    good = difference <= 1e-5 and trained >= (0.8 if options.smoke else 0.96) and score >= 0.8
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
