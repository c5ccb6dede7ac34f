"""From PyTorch to TensorFlow Serving: a vision transformer as a SavedModel, with gradients.

    python examples/torch_to_tensorflow.py [--smoke] [--out FOLDER]

Trains a small transformer of torch.nn on the digits of scikit-learn, translates it with
``from_module``, saves it with a batch of any size, and loads it in a process that can import
neither torch nor tracebridge.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import support
import tensorflow as tf
import torch
from sklearn.datasets import load_digits

from tracebridge.tf import save
from tracebridge.torch import from_module

ELSEWHERE = """
import json, sys
sys.modules["torch"] = sys.modules["tracebridge"] = sys.modules["jaxlib"] = None  # not importable
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
x = tf.constant(json.loads(sys.argv[2]))
with tf.GradientTape() as tape:
    y = model.serve(x)
gradient = tape.gradient(y, model.params["head.weight"])
print(json.dumps([y.numpy().tolist(), tf.convert_to_tensor(gradient).numpy().tolist()]))
"""


class Transformer(torch.nn.Module):
    """Sixteen patches of a digit, one encoder layer, ten logits: ``x`` is (batch, 1, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(1, 32, 2, 2)
        self.places = torch.nn.Parameter(torch.zeros(16, 32))
        self.layer = torch.nn.TransformerEncoderLayer(
            32, 4, 64, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x):
        """Logits, of shape (batch, 10)."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layer(tokens).mean(1))


def main() -> None:
    """Train in torch, translate, serve elsewhere, compare."""
    chosen = support.options(__doc__)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    y = torch.tensor(labels)
    net = Transformer()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003)
    losses = []
    for _ in range(20 if chosen.smoke else 400):
        rows = torch.randint(0, len(x), (128,))
        loss = torch.nn.functional.cross_entropy(net(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    net.eval()

    model = from_module(net, (x[:3],), dynamic_shapes=({0: torch.export.Dim("batch")},))
    folder = str(chosen.out / "torch_to_tensorflow")
    spec = tf.TensorSpec((None, 1, 8, 8), tf.float32, name="x")
    save(model, folder, [spec], params=model.params, grad_order=1)

    rows = []
    for batch in (1, 7):
        command = [sys.executable, "-c", ELSEWHERE, folder, json.dumps(x[:batch].tolist())]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        served, gradient = [np.float32(part) for part in json.loads(answer)]
        here = net(x[:batch])
        (wanted,) = torch.autograd.grad(here.sum(), [net.head.weight])
        there = np.abs(gradient - wanted.numpy()).max()
        rows.append((f"batch of {batch}", np.abs(served - here.detach().numpy()).max(), there))
        assert max(rows[-1][1:]) < 1e-3
    support.table(("served without torch", "difference", "of gradients"), rows)
    axes = support.canvas("Digits: a transformer trained by torch", "step", "cross entropy")
    axes.plot(losses)
    support.save(axes, chosen.out / "torch_to_tensorflow.png")


if __name__ == "__main__":
    main()
