"""tracebridge.tf.to_tf: values, dtypes, trees, errors, shapes that are known when traced."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.experimental import sparse
from tracebridge.tf._xla_call_module import stablehlo_target
from tracebridge.tf.program import Program

pytestmark = pytest.mark.tf

MODES = ["eager", "function", "jit_compile"]
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def in_mode(fun: Any, mode: str) -> Any:
    """``fun`` called eagerly, or through ``tf.function``."""
    return fun if mode == "eager" else tf.function(fun, jit_compile=mode == "jit_compile")


def normal(*shape: int) -> Any:
    """A float32 tensor that is the same each time."""
    return tf.constant(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


class Pair(NamedTuple):
    """A tree with names."""

    left: Any
    right: Any


@pytest.mark.parametrize("mode", MODES)
def test_values_are_those_of_the_function(mode: str) -> None:
    """Any tree goes in and out, and the results are what tracebridge computes."""

    def fun(params: Any, x: Any, *, scale: float) -> Any:
        y = tnp.tanh(x @ params["w"][0]) * scale
        return {"pair": Pair(y, y.sum(0)), "list": [tnp.argmax(x, -1)]}

    params, x = {"w": [normal(3, 4)]}, normal(5, 3)
    got = in_mode(tb.tf.to_tf(fun), mode)(params, x, scale=2.0)
    expected = fun({"w": [params["w"][0].numpy()]}, tnp.asarray(x.numpy()), scale=2.0)

    assert isinstance(got["pair"], Pair)
    np.testing.assert_allclose(got["pair"].left, expected["pair"].left, rtol=1e-5)
    np.testing.assert_allclose(got["pair"].right, expected["pair"].right, rtol=1e-5)
    np.testing.assert_array_equal(got["list"][0], expected["list"][0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_are_kept(dtype: str, mode: str) -> None:
    """64-bit dtypes stay, as they do on TensorFlow's side."""
    x = tf.cast(tf.constant([[0, 1], [1, 2]]), dtype)
    got = in_mode(tb.tf.to_tf(lambda x: x.T), mode)(x)

    assert got.dtype == x.dtype
    assert tf.reduce_all(tf.equal(got, tf.transpose(x)))


@pytest.mark.parametrize("mode", MODES)
def test_unused_and_integer_arguments(mode: str) -> None:
    """They are arguments like others."""
    fun = tb.tf.to_tf(lambda x, n, unused: x[n])
    got = in_mode(fun, mode)(normal(4), tf.constant(2), tf.zeros((7,)))

    assert got == normal(4)[2]


@pytest.mark.parametrize("mode", MODES)
def test_function_without_results(mode: str) -> None:
    """An empty tree comes out as it is."""
    assert in_mode(tb.tf.to_tf(lambda x: ()), mode)(normal(3)) == ()


def test_arguments_of_other_kinds() -> None:
    """Variables, NumPy arrays, our arrays and numbers stand where tensors may."""
    fun = tb.tf.to_tf(lambda a, b, c, d: a + b + c * d)
    got = fun(tf.Variable([1.0]), np.float32([2.0]), tnp.asarray([3.0]), 4)

    assert got.dtype == tf.float32
    assert got.numpy().tolist() == [15.0]


def test_numbers_do_not_change_dtypes() -> None:
    """A Python number is weakly typed, as in the function itself."""
    fun = tb.tf.to_tf(lambda x, s: x * s)

    assert fun(tf.constant([1.0], tf.bfloat16), 2.0).dtype == tf.bfloat16
    assert fun(tf.constant([1.0], tf.float64), 2.0).dtype == tf.float64


def test_containers_of_tf_module_are_plain_trees() -> None:
    """Attributes of a ``tf.Module`` are dicts and lists for the function."""
    module = tf.Module()
    module.params = {"w": [normal(3, 4)], "pair": (normal(3), normal(3))}

    got = tb.tf.to_tf(lambda p: p["w"][0].sum() + p["pair"][1].sum())(module.params)

    np.testing.assert_allclose(
        got, tf.reduce_sum(module.params["w"][0]) + tf.reduce_sum(normal(3)), rtol=1e-6
    )


def test_large_closed_over_arrays() -> None:
    """They are passed beside the program, not in it."""
    w = tnp.asarray(normal(64, 64).numpy())
    fun = tb.tf.to_tf(lambda x: x @ w)

    np.testing.assert_allclose(fun(normal(2, 64)), normal(2, 64) @ normal(64, 64), rtol=1e-4)
    np.testing.assert_allclose(
        tf.function(fun)(normal(2, 64)), normal(2, 64) @ normal(64, 64), rtol=1e-4
    )


@pytest.mark.parametrize("fun", [lax.erf, lax.asin, lax.digamma], ids=lambda f: f.__name__)
def test_operations_newer_than_tensorflows_stablehlo(fun: Any) -> None:
    """Programs are written for the version that TensorFlow reads."""
    x = normal(8) / 4

    np.testing.assert_allclose(
        tb.tf.to_tf(fun)(x), np.asarray(fun(tnp.asarray(x.numpy()))), rtol=1e-5, atol=1e-6
    )


def test_target_is_the_older_of_both_versions() -> None:
    """TensorFlow says which StableHLO it has; jaxlib's may be newer."""
    target = tuple(map(int, stablehlo_target().split(".")))
    theirs = pytest.importorskip("tensorflow.compiler.mlir.stablehlo.stablehlo")

    assert target <= tuple(map(int, theirs.get_current_version().split(".")))


def test_traces_once_for_each_signature() -> None:
    """Calls with known shapes and dtypes do not run the Python function again."""
    calls: list[Any] = []

    def fun(x: Any) -> Any:
        calls.append(x.shape)
        return x * 2

    converted = tb.tf.to_tf(fun)
    for n in (2, 3, 2, 3):
        converted(normal(n))
    tf.function(converted)(normal(2))

    assert calls == [(2,), (3,)]


def test_metadata_of_the_function() -> None:
    """Name and docstring are kept."""

    def fun(x: Any) -> Any:
        """A docstring."""
        return x

    converted = tb.tf.to_tf(fun)

    assert (converted.__name__, converted.__doc__) == ("fun", "A docstring.")


@pytest.mark.parametrize("leaf", ["text", tf.ragged.constant([[1.0], [2.0, 3.0]]), object()])
def test_arguments_that_are_no_tensors(leaf: Any) -> None:
    """The message names the argument."""
    with pytest.raises(UnsupportedDtypeError, match=r"to_tf\(.*\): x\['a'\] is"):
        tb.tf.to_tf(lambda x: x["a"])({"a": leaf})


@pytest.mark.parametrize("number", [2**63, -(2**70)])
def test_integers_that_no_tensor_holds(number: int) -> None:
    with pytest.raises(OverflowError, match=r"to_tf\(.*\): x\['a'\] is -?\d+"):
        tb.tf.to_tf(lambda x: x["a"])({"a": number})


def test_strings_have_no_dtype_of_ours() -> None:
    """The message names the dtype."""
    with pytest.raises(TypeError, match="x is a tensor of dtype string"):
        tb.tf.to_tf(lambda x: x)(tf.constant("text"))


def test_module_checks_shapes_and_dtypes() -> None:
    """The operation trusts what it is told, so a wrong tensor must never reach it."""
    jaxpr = tb.make_jaxpr(lambda x: x * 2)(np.ones(3, np.float32)).jaxpr
    program = Program("double", jaxpr, ["x"])

    with pytest.raises(ShapeMismatchError, match=r"x is float64 of shape \(3,\)"):
        program.module([tf.zeros((3,), tf.float64)])
    with pytest.raises(ShapeMismatchError, match=r"expected: float32 of shape \(3,\)"):
        program.module([tf.zeros((4,))])


def test_not_a_function() -> None:
    """Said when converted, not when called."""
    with pytest.raises(TypeError, match="to_tf: got 3"):
        tb.tf.to_tf(3)  # pyright: ignore[reportArgumentType]  (the error under test)


def test_functions_run_what_they_need() -> None:
    """A call whose result nobody reads is left out, and calls do not wait for each other."""
    f = tb.tf.to_tf(lambda x: x * 2)

    @tf.function(autograph=False)
    def function(x: Any) -> Any:
        f(x + 1)
        return f(x), f(x)

    concrete = function.get_concrete_function(tf.ones(2))
    assert not concrete.function_def.control_ret
    calls = [o for o in concrete.graph.get_operations() if o.type == "XlaCallModule"]
    assert [list(o.control_inputs) for o in calls] == [[], [], []]
    assert function(tf.ones(2))[1].numpy().tolist() == [2.0, 2.0]


def test_sparse_matrices_of_a_closure() -> None:
    """They are constants of the program."""
    mat = sparse.BCOO.fromdense(np.float32([[0, 2, 0], [3, 0, 0]]))
    x = tf.ones(3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tb.tf.to_tf(lambda x: (mat @ x).sum())(x)

    assert tape.gradient(y, x).numpy().tolist() == [3.0, 2.0, 0.0]
