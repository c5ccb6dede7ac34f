"""Options of to_tf and save: platforms, checks, PolyShape, specs of other kinds, decorators."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import (
    ArgumentSpecError,
    ShapeMismatchError,
    UnsupportedDtypeError,
    UnsupportedExchangeDtypeError,
)
from tracebridge.tf import PolyShape, eval_polymorphic_shape

pytestmark = pytest.mark.tf

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def platforms_of(function: Any) -> set[tuple[str, ...]]:
    """The platforms of the programs in a graph."""
    graph = tf.function(function).get_concrete_function(tf.constant(X)).graph
    calls = [op for op in graph.get_operations() if op.type == "XlaCallModule"]
    return {tuple([p.decode() for p in op.get_attr("platforms")]) for op in calls}


def test_platforms_of_programs() -> None:
    """One, several and all; also of the derivatives."""

    def with_gradient(**options: Any) -> Any:
        f = tb.tf.to_tf(lambda x: tnp.sin(x).sum(), **options)

        def run(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.gradient(y, x)

        return run

    assert {("CPU", "CUDA", "ROCM", "TPU")} == platforms_of(with_gradient())
    assert {("CPU",)} == platforms_of(with_gradient(platforms=["cpu"]))
    assert {("CPU",)} == platforms_of(with_gradient(platforms="cpu"))
    several = with_gradient(platforms=["tpu", "gpu"], disabled_checks=["platform"])
    assert {("CUDA", "ROCM", "TPU")} == platforms_of(several)
    run = tf.function(with_gradient(platforms=["cpu"]))
    np.testing.assert_allclose(run(tf.constant(X)), np.cos(X), rtol=1e-5)


def test_programs_for_other_platforms_are_refused() -> None:
    """TensorFlow says which platforms it would run on, unless the check is off."""
    f = tb.tf.to_tf(lambda x: x + 1, platforms=["tpu"])
    with pytest.raises(tf.errors.NotFoundError, match="platform CPU"):
        f(tf.constant(X))

    free = tb.tf.to_tf(lambda x: x + 1, platforms=["tpu"], disabled_checks=["platform"])
    np.testing.assert_array_equal(free(tf.constant(X)), X + 1)


def test_saved_platforms(tmp_path: Path) -> None:
    """A SavedModel for one platform."""
    tb.tf.save(lambda x: x * 2, tmp_path, [tf.TensorSpec((None, 3))], platforms=["cpu"])
    np.testing.assert_array_equal(tf.saved_model.load(str(tmp_path)).serve(X), X * 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"platforms": ["metal"]}, "platforms contains 'metal'"),
        ({"platforms": []}, "platforms is empty"),
        ({"disabled_checks": ["shapes"]}, "disabled_checks contains 'shapes'"),
        ({"platforms": ["cpu"], "native_ops": True}, "native_ops with platforms"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Names that are none, and options that exclude each other."""
    with pytest.raises(ArgumentSpecError, match=message):
        tb.tf.to_tf(lambda x: x, **options)
    with pytest.raises(ArgumentSpecError, match=message):
        tb.tf.save(lambda x: x, tmp_path, [tf.TensorSpec((2,))], **options)


def test_decorator() -> None:
    """Options without a function make a decorator."""

    @tb.tf.to_tf(polymorphic_shapes="b, _", static_argnames="times")
    def scaled(x: Any, times: int = 2) -> Any:
        return x * times

    assert "scaled" == scaled.__name__
    np.testing.assert_array_equal(scaled(X), X * 2)
    np.testing.assert_array_equal(scaled(X, times=3), X * 3)


def test_poly_shapes() -> None:
    """The same as strings: for all arguments, in trees, with relations of sizes."""
    pair = [{"a": PolyShape("b", None)}, PolyShape("2*b", ...)]
    f = tb.tf.to_tf(lambda x, y: tnp.concatenate([x["a"], x["a"]]) + y, polymorphic_shapes=pair)
    np.testing.assert_array_equal(f({"a": X}, np.ones((4, 3), "f4")), np.vstack([X, X]) + 1)
    with pytest.raises(ShapeMismatchError):
        f({"a": X}, np.ones((5, 3), "f4"))
    assert "b, _, ..." == str(PolyShape("b", None, ...))
    assert "PolyShape('b', None, Ellipsis)" == repr(PolyShape("b", None, ...))
    for copied in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert repr(pair) == repr(copied)


def test_shapes_of_results() -> None:
    """In the form that polymorphic_shapes takes, for arrays, specs and trees."""

    def f(x: Any, y: Any) -> Any:
        return {"long": tnp.concatenate([x, y]), "flat": x.reshape(-1), "sum": x.sum()}

    shapes = eval_polymorphic_shape(f, polymorphic_shapes=["a, _", "b, _"])(
        X, tf.TensorSpec((None, 3), tf.float32)
    )
    assert {"long": "a + b, 3", "flat": "3*a,", "sum": ""} == {
        k: v.replace("b + a", "a + b") for k, v in shapes.items()
    }
    known = eval_polymorphic_shape(lambda x: x.T)(tb.ShapeDtypeStruct((2, 3), np.float32))
    assert "3, 2" == known
    twice = tb.tf.to_tf(lambda x: x + 1, polymorphic_shapes=shapes["flat"])
    np.testing.assert_array_equal(twice(np.ones(6, "f4")), np.full(6, 2))


def test_specs_of_other_kinds(tmp_path: Path) -> None:
    """A ShapeDtypeStruct, arrays, and tensors say what the inputs are."""
    specs = [
        tb.ShapeDtypeStruct((2, 3), np.float32),
        {"a": np.ones(3, np.int32), "b": tnp.ones((), "float32")},
        tf.ones((2, 1)),
    ]
    tb.tf.save(lambda x, t, y: x * t["a"] + t["b"] * y, tmp_path, specs)
    served = tf.saved_model.load(str(tmp_path))
    got = served.serve(X, {"a": tf.constant([1, 2, 3]), "b": tf.constant(1.0)}, tf.ones((2, 1)))
    np.testing.assert_array_equal(got, X * [1, 2, 3] + 1)

    with pytest.raises(ArgumentSpecError, match="signature contains 3 of type int"):
        tb.tf.save(lambda x: x, tmp_path, [3])


@pytest.mark.parametrize(
    "spec",
    [
        tf.RaggedTensorSpec((2, None)),
        tf.SparseTensorSpec((2, 2)),
        tf.ragged.constant([[1.0]]),
        tf.sparse.from_dense([1.0]),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_specs_that_are_not_dense(spec: Any, tmp_path: Path) -> None:
    """They have shapes and dtypes, which say less than all."""
    with pytest.raises(ArgumentSpecError, match=f"of type {type(spec).__name__}"):
        tb.tf.save(lambda x: x["a"], tmp_path, [{"a": spec}])
    with pytest.raises(ArgumentSpecError, match=rf"x\['a'\] is .* of type {type(spec).__name__}"):
        tb.tf.eval_polymorphic_shape(lambda x: x["a"])({"a": spec})


def test_tensors_that_programs_cannot_have_are_named() -> None:
    """Strings by their argument, variables by the reason why they are arguments."""
    f = tb.tf.to_tf(lambda x, words: x)
    with pytest.raises(UnsupportedExchangeDtypeError, match="words is a tensor of dtype string"):
        f(X, tf.constant("some"))
    with pytest.raises(UnsupportedExchangeDtypeError, match="dtype string"):
        tb.tf.save(lambda x: x, "unused", [tf.TensorSpec((), tf.string)])
    with pytest.raises(UnsupportedExchangeDtypeError, match="x is a tensor of dtype string"):
        tb.tf.eval_polymorphic_shape(lambda x: x)(tf.TensorSpec((), tf.string))

    scale = tf.Variable(2.0)
    with pytest.raises(UnsupportedDtypeError, match="would keep its values of today"):
        tb.tf.to_tf(lambda x: x * scale)(X)
