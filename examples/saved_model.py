"""From NumPy style to TensorFlow Serving: a kernel as a SavedModel, with gradients.

    python examples/saved_model.py [--smoke] [--out FOLDER]

Fits a radial basis function model to the diabetes data of scikit-learn with a Keras optimizer,
saves it with a batch of any size, and loads it in a process that cannot import tracebridge.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import support
import tensorflow as tf
from sklearn.datasets import load_diabetes

import tracebridge.numpy as tnp
from tracebridge.tf import save, to_tf

ELSEWHERE = """
import json, sys
sys.modules["tracebridge"] = sys.modules["jaxlib"] = None  # importing either would fail
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
x = tf.constant(json.loads(sys.argv[2]))
with tf.GradientTape() as tape:
    tape.watch(x)
    y = model.serve(x)
print(json.dumps([y.numpy().tolist(), tape.gradient(y, x).numpy().tolist()]))
"""


def predict(params, x):
    """Weighted sum of Gaussian bumps: ``x`` is (batch, 10), the result (batch,)."""
    squares = ((x[:, None, :] - params["centres"]) ** 2).sum(-1)
    return tnp.exp(-squares / tnp.exp(params["width"])) @ params["weights"] + params["bias"]


def main() -> None:
    """Fit in TensorFlow, save, serve elsewhere, compare."""
    chosen = support.options(__doc__)
    x, y = load_diabetes(return_X_y=True, scaled=True)
    x, y = (20 * x).astype(np.float32), ((y - y.mean()) / y.std()).astype(np.float32)
    zeros = np.zeros((), np.float32)
    values = {
        "centres": x[::9],
        "weights": np.zeros(len(x[::9]), np.float32),
        "width": zeros + 3,
        "bias": zeros,
    }
    params = {name: tf.Variable(value, name=name) for name, value in values.items()}
    model, optimizer = to_tf(predict), tf.keras.optimizers.Adam(0.01)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(params, x) - y) ** 2)
        variables = list(params.values())
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    losses = [step().numpy() for _ in range(20 if chosen.smoke else 400)]
    folder = str(chosen.out / "saved_model")
    trained = {name: variable.numpy() for name, variable in params.items()}
    save(predict, folder, [tf.TensorSpec((None, 10), tf.float32, name="x")], params=trained)

    rows = []
    for batch in (1, 7):
        argument = x[:batch].tolist()
        command = [sys.executable, "-c", ELSEWHERE, folder, json.dumps(argument)]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        served, gradient = [np.float32(part) for part in json.loads(answer)]
        inputs = tf.constant(x[:batch])
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            here = model(trained, inputs)
        there = np.abs(gradient - tape.gradient(here, inputs)).max()
        rows.append((f"batch of {batch}", np.abs(served - here).max(), there))
        assert max(rows[-1][1:]) < 1e-5
    support.table(("served without tracebridge", "difference", "of gradients"), rows)
    axes = support.canvas("Diabetes: fit by a Keras optimizer", "step", "mean squared error")
    axes.plot(losses)
    support.save(axes, chosen.out / "saved_model.png")


if __name__ == "__main__":
    main()
