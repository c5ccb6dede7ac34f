"""A recurrent network in NumPy style as a layer of Keras: fitted, saved, loaded, served.

    python examples/keras_layer.py [--smoke] [--out FOLDER]

Reads the handwritten digits of scikit-learn row by row. The recurrence is written for one picture,
mapped over the batch, and trained by Keras inside a model of Keras' own layers.
"""

from __future__ import annotations

import numpy as np
import support
import tensorflow as tf
from sklearn.datasets import load_digits

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax, nn
from tracebridge.tf import Layer

UNITS = 48
register = tf.keras.utils.register_keras_serializable(package="examples")


@register
def read_rows(params, pictures):
    """The last state of a gated recurrence: ``pictures`` is (batch, 8, 8), the result (batch, n).

    A file of Keras names this function; whoever loads the file imports it.
    """

    def step(state, row):
        seen = tnp.concatenate([row, state])
        gate = nn.sigmoid(seen @ params["gate"] + params["openness"])
        return state + gate * (tnp.tanh(seen @ params["new"]) - state), None

    def read(picture):
        return lax.scan(step, tnp.zeros(UNITS), picture)[0]

    return tb.vmap(read)(pictures)


def network():
    """The recurrence between two layers of Keras, for batches of any size."""
    draw = np.random.default_rng(0).normal
    params = {
        "gate": draw(0, 0.15, (8 + UNITS, UNITS)).astype(np.float32),
        "new": draw(0, 0.15, (8 + UNITS, UNITS)).astype(np.float32),
        "openness": np.zeros(UNITS, np.float32),
    }
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8)),
            tf.keras.layers.Rescaling(1 / 16),
            Layer(read_rows, params, name="read_rows"),
            tf.keras.layers.Dense(10),
        ]
    )


def main() -> None:
    """Fit, save in both formats of Keras, load, compare."""
    chosen = support.options(__doc__)
    tf.keras.utils.set_random_seed(0)
    digits = load_digits()
    images, labels = digits.images.astype(np.float32), digits.target
    train, test = (images[:1400], labels[:1400]), (images[1400:], labels[1400:])

    model = network()
    model.compile(
        tf.keras.optimizers.Adam(0.01),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    epochs = 6 if chosen.smoke else 40
    fitted = model.fit(*train, batch_size=50, epochs=epochs, validation_data=test, verbose=0)
    print(f"the right digit for {fitted.history['val_accuracy'][-1]:.1%} of pictures not seen")

    file, folder = chosen.out / "keras_layer.keras", str(chosen.out / "keras_layer")
    model.save(file)
    loaded = tf.keras.models.load_model(file)
    model.export(folder, verbose=False)
    served = tf.keras.layers.TFSMLayer(folder, call_endpoint="serve")
    rows = []
    for batch in (1, 7):
        expected = model(test[0][:batch])
        found = [other(test[0][:batch]) - expected for other in (loaded, served)]
        rows.append((f"batch of {batch}", *[float(np.abs(d).max()) for d in found]))
        assert max(rows[-1][1:]) < 1e-5
    support.table(("difference to the model", "from .keras", "from SavedModel"), rows)

    axes = support.canvas("Digits, read row by row", "epoch", "share of right answers")
    axes.plot(fitted.history["accuracy"], label="seen in training")
    axes.plot(fitted.history["val_accuracy"], label="not seen")
    support.save(axes, chosen.out / "keras_layer.png")


if __name__ == "__main__":
    main()
