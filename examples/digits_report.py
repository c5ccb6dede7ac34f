"""Pictures and the serving check of the digits example."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt  # the backend must be chosen first

SERVE = """
import sys
for name in ("tracebridge", "jaxlib"):
    sys.modules[name] = None  # importing either would fail
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
images = tf.constant(np.load(sys.argv[2]))
np.save(sys.argv[3], model.serve(images).numpy())
"""


def plot_losses(losses: list[float], private: list[float], path: Path) -> None:
    """Loss curves of both phases."""
    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(losses, lw=0.8, label="training (AdamW)")
    steps = range(len(losses), len(losses) + len(private))
    axes.plot(steps, private, label="private head (DP-SGD)")
    axes.set(xlabel="step", ylabel="cross entropy", yscale="log", title="Digits: loss per step")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_mistakes(images: Any, labels: Any, predicted: Any, path: Path) -> int:
    """A sheet of misclassified digits; gives their number."""
    wrong = np.flatnonzero(labels != predicted)
    rows = max(1, -(-len(wrong) // 8))
    figure, grid = plt.subplots(rows, 8, figsize=(9, 0.6 + 1.3 * rows))
    for axes, i in zip(grid.flat, [*wrong, *[None] * 8], strict=False):
        axes.axis("off")
        if i is not None:
            axes.imshow(images[i], cmap="gray_r")
            axes.set_title(f"{labels[i]} read as {predicted[i]}", fontsize=7)
    figure.suptitle(f"{len(wrong)} of {len(labels)} test digits misread")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return len(wrong)


def serve_elsewhere(model: Path, images: np.ndarray, folder: Path) -> np.ndarray:
    """Logits of the SavedModel, from a fresh process without tracebridge and jaxlib."""
    inputs, outputs = folder / "images.npy", folder / "logits.npy"
    np.save(inputs, images)
    command = [sys.executable, "-c", SERVE, str(model), str(inputs), str(outputs)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return np.load(outputs)
