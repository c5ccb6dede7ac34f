"""Graphs of ``native_ops``: one for every size, saved without this package."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.tf.native import (
    native,
    network,
    network_args,
    operations,
    same,
    tensors,
)
from tests.quick_compiles import quick_jit
from tracebridge import lax

pytestmark = pytest.mark.tf


def test_graphs_have_plain_operations_for_every_batch() -> None:
    """One graph serves all sizes; its gradients are ours; nothing of it needs XLA."""
    params, x = network_args(3)
    shapes = [tf.TensorSpec((None, 4, 4, 2))]
    step = tf.function(lambda x: native(network)(tensors(params), x), input_signature=shapes)

    @tf.function(input_signature=shapes)
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = native(network)(tensors(params), x)[:, 0]
        return tape.gradient(y, x)

    def ours(x: Any) -> Any:
        return network(params, x)[:, 0].sum()

    names = operations(step.get_concrete_function().graph)
    names |= operations(slope.get_concrete_function().graph)

    assert not [name for name in names if name.startswith("Xla")]
    assert {"Conv2D", "MatMul", "Exp"} <= names
    for batch in (3, 1):
        _, x = network_args(batch)
        same(step(x), quick_jit(network)(params, x), 1e-5)
        same(slope(x), quick_jit(tb.grad(ours))(x), 1e-5)


def pooled(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


OF_ANY_SIZE = {
    "running maximum": lambda x: lax.cummax(x, axis=0),
    "running sum": lambda x: tnp.cumsum(x, 0),
    "order": lambda x: (tnp.sort(x, 0), tnp.argsort(x, 0)),
    "scan": lambda x: lax.scan(lambda c, r: (c + r.sum(), x * r[0]), 0.0, x),
    "moments": lambda x: (x - x.mean(0)) / (1 + tnp.std(x, 0)),
    "places": lambda x: x.reshape(-1) + tnp.arange(3 * x.shape[0]),
    "products": lambda x: tnp.einsum("ij,kj->ik", x, x),
    "padded": lambda x: tnp.pad(x, ((1, 2), (0, 1))),
    "loop": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
    "rows": lambda x: tb.vmap(lambda r, i: r.at[i].set(r[0]))(x, tnp.arange(x.shape[0])),
    "segments": lambda x: tb.ops.segment_sum(x, tnp.arange(x.shape[0]) // 2, 3),
    "pooling": tb.grad(lambda x: (pooled(tnp.tile(x[:, :, None, None], (1, 1, 3, 1))) ** 2).sum()),
}


@pytest.mark.parametrize("name", OF_ANY_SIZE)
def test_sizes_that_are_not_known(name: str) -> None:
    """One graph gives our values at every size, 0 included."""
    fun = OF_ANY_SIZE[name]
    step = tf.function(native(fun), input_signature=[tf.TensorSpec((None, 3))])
    for n in (4, 1, 0):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        same(step(x), quick_jit(fun)(x), 1e-5)


ALONE = """
import sys

for name in ("tracebridge", "jaxlib", "jax"):
    sys.modules[name] = None

import numpy as np
import tensorflow as tf

folder, data, out = sys.argv[1:]
model = tf.saved_model.load(folder)
x = tf.constant(np.load(data))
variables = [model.params["k"], model.params["w"]]
with tf.GradientTape() as tape:
    y = model.serve(x)[:, 0]
first = tape.gradient(y, variables)
served = model.signatures["serving_default"](x=x)["output_0"]
np.savez(out, y=y, served=served[:, 0], k=first[0], w=first[1])
"""


def test_saved_without_this_package_and_for_tflite(tmp_path: Path) -> None:
    """A saved model runs and differentiates elsewhere, and converts to TFLite."""
    params, x = network_args(5)
    np.save(tmp_path / "x.npy", x)
    spec = tf.TensorSpec((None, 4, 4, 2), name="x")
    tb.tf.save(network, tmp_path / "model", [spec], params=params, native_ops=True, grad_order=1)
    command = [sys.executable, "-c", ALONE, tmp_path / "model", tmp_path / "x.npy"]
    done = subprocess.run(
        [*command, tmp_path / "out.npz"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    out = np.load(tmp_path / "out.npz")

    def ours(p: Any, x: Any) -> Any:
        return network(p, x)[:, 0].sum()

    slopes = quick_jit(tb.grad(ours))(params, x)
    expected = quick_jit(network)(params, x)
    same([out["y"], out["served"]], [expected[:, 0]] * 2, 1e-5)
    same([out["k"], out["w"]], [slopes["k"], slopes["w"]], 1e-4)

    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "model"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorFlow: it moves to a package of its own
        lite = tf.lite.Interpreter(model_content=converter.convert())
    (given,), (result,) = lite.get_input_details(), lite.get_output_details()
    lite.resize_tensor_input(given["index"], x.shape)
    lite.allocate_tensors()
    lite.set_tensor(given["index"], x)
    lite.invoke()
    same(lite.get_tensor(result["index"]), expected, 1e-5)


def test_batches_that_differ_are_refused(tmp_path: Path) -> None:
    """A graph checks sizes that were equal when it was written."""
    spec = tf.TensorSpec((None,))
    tb.tf.save(lambda x, y: x + y, tmp_path / "m", [spec, spec], native_ops=True, grad_order=0)
    loaded = tf.saved_model.load(str(tmp_path / "m"))

    assert loaded.serve(tf.ones(3), tf.ones(3)).numpy().tolist() == [2.0] * 3
    with pytest.raises(tf.errors.InvalidArgumentError):
        loaded.serve(tf.ones(1), tf.ones(4))
