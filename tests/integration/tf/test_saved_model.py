"""tracebridge.tf.save: models that load, run and differentiate without this package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.errors.transform_errors import ArgumentSpecError

pytestmark = pytest.mark.tf

# Runs in a process that can import neither the package nor what it is made of.
ALONE = """
import sys

for name in ("tracebridge", "jaxlib", "jax"):
    sys.modules[name] = None

import numpy as np
import tensorflow as tf

folder, data, out = sys.argv[1:]
x = tf.constant(np.load(data))
on_temporary = tf.saved_model.load(folder).serve(x)
model = tf.saved_model.load(folder)
variables = [model.params["b"], model.params["layers"][0]["w"]]
with tf.GradientTape() as outer:
    outer.watch(x)
    with tf.GradientTape() as inner:
        inner.watch(x)
        y = model.serve(x)
        loss = tf.reduce_sum(y**2)
    first = inner.gradient(loss, [*variables, x])
    norm = tf.add_n([tf.reduce_sum(g**2) for g in first])
second = outer.gradient(norm, [*variables, x])
served = model.signatures["serving_default"](x=x)["output_0"]
compiled = tf.function(model.serve, jit_compile=True)(x)
small = model.serve(x[:1])
arrays = [on_temporary, y, served, compiled, small, *first, *second]
np.savez(out, *[a.numpy() for a in arrays], names=[v.name for v in variables])
"""


def model(params: Any, x: Any) -> Any:
    """One layer with an operation that older consumers do not know."""
    return lax.erf(x @ params["layers"][0]["w"] + params["b"])


def model_params() -> Any:
    """Weights of ``model``."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 4)).astype(np.float32)
    return {"layers": [{"w": w}], "b": np.float32([0.1, 0.2, 0.3, 0.4])}


def test_runs_and_differentiates_without_this_package(tmp_path: Path) -> None:
    """Values, first and second derivatives by input and variables, at two batch sizes."""
    params, folder = model_params(), tmp_path / "model"
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    tb.tf.save(model, folder, [tf.TensorSpec((None, 3), name="x")], params=params)

    command = [sys.executable, "-c", ALONE, folder, tmp_path / "x.npy", tmp_path / "out.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    out = np.load(tmp_path / "out.npz")
    got = [out[name] for name in out.files if name != "names"]

    def loss(args: Any) -> Any:
        b, w, x = args
        return (model({"layers": [{"w": w}], "b": b}, x) ** 2).sum()

    def norm(args: Any) -> Any:
        return sum((g**2).sum() for g in tb.grad(loss)(args))

    args = [tnp.asarray(a) for a in (params["b"], params["layers"][0]["w"], x)]
    y = np.asarray(model(params, args[2]))
    expected = [y, y, y, y, y[:1], *tb.grad(loss)(args), *tb.grad(norm)(args)]
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5)
    assert out["names"].tolist() == ["b:0", "layers/0/w:0"]


def saved(tmp_path: Path, fun: Any, signature: Any, **options: Any) -> Any:
    """The loaded model of ``fun``."""
    tb.tf.save(fun, tmp_path / "model", signature, **options)
    return tf.saved_model.load(str(tmp_path / "model"))


def test_unknown_sizes_of_axis_0_are_one_batch(tmp_path: Path) -> None:
    """Other unknown sizes are sizes of their own."""
    specs = [tf.TensorSpec((None, 3)), {"a": tf.TensorSpec((None, None))}]
    loaded = saved(tmp_path, lambda x, y: {"sum": x.sum(1) + y["a"].sum(1), "x": x * 2}, specs)
    out = loaded.serve(tf.ones((2, 3)), {"a": tf.ones((2, 5))})
    default = loaded.signatures["serving_default"]

    assert sorted(out) == ["sum", "x"]
    assert out["sum"].numpy().tolist() == [8.0, 8.0]
    assert sorted(default.structured_outputs) == ["sum", "x"]
    assert len(default.structured_input_signature[1]) == 2
    with pytest.raises(tf.errors.InvalidArgumentError):
        loaded.serve(tf.ones((2, 3)), {"a": tf.ones((4, 5))})


def test_sizes_by_specification(tmp_path: Path) -> None:
    """Names of the caller replace the rule."""
    specs = [tf.TensorSpec((None,)), tf.TensorSpec((None,))]

    with pytest.raises(InconclusiveDimensionError, match="polymorphic_shapes"):
        saved(tmp_path, lambda x, y: x + y, specs, polymorphic_shapes=["a", "b"])
    loaded = saved(tmp_path, lambda x, y: tnp.outer(x, y), specs, polymorphic_shapes=["a", "b"])
    assert loaded.serve(tf.ones(2), tf.ones(3)).shape == (2, 3)


class Layer(NamedTuple):
    """Parameters with names."""

    w: Any
    n: Any


def test_parameters_of_all_kinds(tmp_path: Path) -> None:
    """Named tuples, integers, our arrays and existing variables; trees stay readable."""
    trained = tf.Variable([2.0], name="trained")
    params = {"layer": Layer(tnp.ones(1), np.int32(3)), "old": trained}
    loaded = saved(
        tmp_path, lambda p, x: x * p["layer"].w * p["layer"].n + p["old"],
        [tf.TensorSpec((None,))], params=params,
    )  # fmt: skip

    assert loaded.serve(tf.ones(2)).numpy().tolist() == [5.0, 5.0]
    loaded.params["layer/w"].assign([2.0])
    assert loaded.serve(tf.ones(2)).numpy().tolist() == [8.0, 8.0]
    assert not loaded.params["layer/n"].trainable


@pytest.mark.parametrize("order", [0, 1])
def test_grad_order(tmp_path: Path, order: int) -> None:
    """Derivatives up to that order are in the file, and no others."""
    loaded = saved(tmp_path, lambda x: tnp.sin(x), [tf.TensorSpec((None,))], grad_order=order)
    x = tf.constant([0.5])

    def derivative(k: int) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loaded.serve(x) if k == 1 else derivative(k - 1)
        return tape.gradient(y, x)

    np.testing.assert_allclose(loaded.serve(x), np.sin([0.5]), rtol=1e-6)
    if order:
        np.testing.assert_allclose(derivative(1), np.cos([0.5]), rtol=1e-6)
    with pytest.raises(LookupError):
        derivative(order + 1)


def test_64_bit_dtypes(tmp_path: Path) -> None:
    """They stay in the file."""
    loaded = saved(
        tmp_path, lambda p, x: x * p, [tf.TensorSpec((2,), tf.float64)], params=np.float64(1 / 3)
    )

    assert loaded.serve(tf.ones(2, tf.float64)).numpy().tolist() == [1 / 3, 1 / 3]


def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    """The message says what was expected."""
    with pytest.raises(ArgumentSpecError, match=r"save\(.*\): signature contains array"):
        tb.tf.save(lambda x: x, tmp_path, [np.ones(3)])
    with pytest.raises(ArgumentSpecError, match="signature is 3"):
        tb.tf.save(lambda x: x, tmp_path, 3)
    with pytest.raises(UnsupportedDtypeError, match="params contains 'text'"):
        tb.tf.save(lambda p, x: x, tmp_path, [tf.TensorSpec((3,))], params={"a": "text"})


def test_importing_the_package_does_not_import_tensorflow(
    subprocess_environment: dict[str, str],
) -> None:
    """Neither does the module; without TensorFlow the first use says what to install."""
    code = (
        "import sys, tracebridge as tb, tracebridge.tf\n"
        "assert 'tensorflow' not in sys.modules\n"
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "tb.tf.find_spec = lambda name: None if name == 'tensorflow' else find(name)\n"
        "try:\n    tb.tf.to_tf\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env=subprocess_environment, timeout=120,
    )  # fmt: skip

    assert "tracebridge.tf.to_tf needs TensorFlow, which is not installed" in done.stdout
