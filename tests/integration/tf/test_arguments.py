"""Arguments that are no tensors: defaults, static ones, traced values; results of dtype float0."""

from __future__ import annotations

import functools
import gc
import inspect
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.tracer_errors import (
    NonHashableStaticArgumentError,
    TracerBoolConversionError,
)
from tracebridge.core.errors.transform_errors import ArgumentSpecError

pytestmark = pytest.mark.tf

X = tf.constant([1.0, 2.0, 3.0])


def power(x: Any, *, n: Any = 3) -> Any:
    """A Python number and an array do different things."""
    return x**n if type(n) is int else x * 0


def flags(x: Any, training: Any = False, mode: Any = "up", scale: Any = None) -> Any:
    """Branches on Python values."""
    y = x * 2 if training else x
    y = y + 1 if mode == "up" else y - 1
    return y if scale is None else y * scale


def only_positional(x: Any, n: Any = 2, /, *, deep: Any = (1, {"a": 2})) -> Any:
    """A tree as a default."""
    return x * n + deep[1]["a"] if type(deep[0]) is int and type(n) is int else x * 0


WEIGHTS = np.float32([1, 2, 3])


def weighted(x: Any, w: Any = WEIGHTS) -> Any:
    """An array as a default."""
    return x * w


class Scaled:
    """A method with defaults."""

    def scaled(self, x: Any, by: Any = 3) -> Any:
        """A Python number, or not."""
        return x * by if type(by) is int else x * 0


CALLS: dict[str, Any] = {
    "keyword only": (power, (X,), {}),
    "flags": (flags, (X,), {}),
    "one given by keyword": (flags, (X,), {"scale": tf.constant(2.0)}),
    "all by keyword": (flags, (), {"x": X, "scale": X}),
    "positional only": (only_positional, (X,), {}),
    "method": (Scaled().scaled, (X,), {}),
    "partial": (functools.partial(flags, training=True), (X,), {}),
    "NumPy": (weighted, (X,), {}),
}


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}, {"reduce_retracing": True}])
@pytest.mark.parametrize("name", CALLS)
def test_defaults_stay_what_they_are(name: str, options: Any) -> None:
    """In ``tf.function`` as eagerly: what the caller leaves out is the function's own."""
    fun, args, kwargs = CALLS[name]
    expected = fun(*[a.numpy() for a in args], **{k: v.numpy() for k, v in kwargs.items()})
    converted = tb.tf.to_tf(fun)
    inside = tf.function(lambda *a, **k: converted(*a, **k), autograph=False)

    for call in (converted, tf.function(converted, **options), inside):
        np.testing.assert_allclose(call(*args, **kwargs), np.asarray(expected), rtol=1e-6)


def test_signatures_show_defaults() -> None:
    """As those of the function itself."""
    assert str(inspect.signature(flags)) == str(inspect.signature(tb.tf.to_tf(flags)))


def test_saved_functions_have_defaults(tmp_path: Path) -> None:
    """A ``tf.function`` of a converted function goes through a SavedModel."""
    module = tf.Module()
    module.f = tf.function(tb.tf.to_tf(flags), input_signature=[tf.TensorSpec((None,))])
    module.g = tf.function(tb.tf.to_tf(power))
    module.g.get_concrete_function(tf.TensorSpec((3,)))
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)

    assert [2.0, 3.0, 4.0] == loaded.f(X).numpy().tolist()
    assert [1.0, 8.0, 27.0] == loaded.g(X).numpy().tolist()


@pytest.mark.parametrize("options", [None, {}, {"jit_compile": True}])
def test_static_arguments(options: Any) -> None:
    """Any hashable objects, by position, by keyword and by default."""
    fun = tb.tf.to_tf(flags, static_argnums=(1, 2))
    fun = fun if options is None else tf.function(fun, **options)

    assert [2.0, 3.0, 4.0] == fun(X).numpy().tolist()
    assert [3.0, 5.0, 7.0] == fun(X, True).numpy().tolist()
    assert [1.0, 3.0, 5.0] == fun(X, True, "down").numpy().tolist()
    assert [1.0, 3.0, 5.0] == fun(X, mode="down", training=True).numpy().tolist()
    assert [4.0, 6.0, 8.0] == fun(X, scale=tf.constant(2.0)).numpy().tolist()


def test_static_arguments_tell_equal_values_apart() -> None:
    """1, 1.0 and True are different constants."""
    fun = tb.tf.to_tf(lambda x, n: x * 0 + len(str(n)), static_argnames="n")

    assert [1, 3, 4] == [int(fun(X, n)[0]) for n in (1, 1.0, True)]
    with pytest.raises(NonHashableStaticArgumentError, match="to_tf"):
        fun(X, [1])
    with pytest.raises(ArgumentSpecError, match="static_argnames"):
        tb.tf.to_tf(power, static_argnames="m")


def test_flags_as_arguments_say_what_to_do() -> None:
    """A flag that the caller passes is traced unless it is static."""
    with pytest.raises(TracerBoolConversionError, match="static_argnums"):
        tb.tf.to_tf(flags)(X, training=True)


def square(x: Any) -> Any:
    """A function to be nested."""
    return x * x


def test_traced_values_are_inlined() -> None:
    """Under transformations and in other converted functions it is the function itself."""
    fun = tb.tf.to_tf(square)

    assert 6.0 == tb.grad(fun)(3.0)
    assert 2.0 == tb.grad(tb.grad(tb.jit(fun)))(3.0)
    assert [1.0, 4.0] == tb.vmap(fun)(tnp.asarray([1.0, 2.0])).tolist()
    for call in (tb.tf.to_tf(lambda x: fun(x) + 1), tf.function(tb.tf.to_tf(tb.tf.to_tf(fun)))):
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = call(X)
        np.testing.assert_allclose(tape.gradient(y, X), 2 * X)


def test_tensors_beside_traced_values_are_constants() -> None:
    """Those of a graph have no values, and are refused."""
    fun = tb.tf.to_tf(lambda x, y: x * y)

    assert [4.0, 8.0, 12.0] == tb.jit(lambda y: fun(X, y))(4.0).tolist()
    assert [3.0] * 3 == tb.jit(lambda y: tb.tf.to_tf(lambda x: x * 0 + y)(X))(3.0).tolist()
    graph = tf.function(lambda x: tb.jit(lambda y: fun(x, y))(2.0), autograph=False)
    with pytest.raises(ExchangeError, match="symbolic"):
        graph(X)


def test_saving_a_converted_function(tmp_path: Path) -> None:
    """The function itself is saved."""
    tb.tf.save(tb.tf.to_tf(square), tmp_path, [tf.TensorSpec((None,))])

    assert [1.0, 4.0, 9.0] == tf.saved_model.load(tmp_path).serve(X).numpy().tolist()


def test_graphs_inside_of_traces() -> None:
    """A ``tf.function`` that is built meanwhile runs the program on its own tensors."""
    seen: list[Any] = []

    def fun(x: Any) -> Any:
        seen.append(tf.function(tb.tf.to_tf(square))(X))
        return x

    tb.jit(fun)(1.0)
    assert [1.0, 4.0, 9.0] == seen[0].numpy().tolist()


@pytest.mark.parametrize("options", [None, {}, {"jit_compile": True}])
@pytest.mark.parametrize("size", [2, None])
def test_results_of_dtype_float0(size: int | None, options: Any) -> None:
    """What has no tangent is False, at known and unknown sizes; the rest is differentiable."""
    picked = tb.grad(lambda x, i: (x[i] ** 2).sum(), argnums=(0, 1), allow_int=True)
    fun = tb.tf.to_tf(picked)
    specs = [tf.TensorSpec((3,)), tf.TensorSpec((size,), tf.int32)]
    call = fun if options is None else tf.function(fun, input_signature=specs, **options)
    with tf.GradientTape() as tape:
        tape.watch(X)
        x_bar, i_bar = call(X, tf.constant([0, 1]))

    assert [2.0, 4.0, 0.0] == x_bar.numpy().tolist()
    assert (tf.bool, [False, False]) == (i_bar.dtype, i_bar.numpy().tolist())
    assert [2.0, 2.0, 0.0] == tape.gradient(x_bar, X).numpy().tolist()


def test_saved_results_of_dtype_float0(tmp_path: Path) -> None:
    """A SavedModel gives the same."""
    picked = tb.grad(lambda x, i: (x[i] ** 2).sum(), argnums=(0, 1), allow_int=True)
    specs = [tf.TensorSpec((3,)), tf.TensorSpec((None,), tf.int32)]
    tb.tf.save(picked, tmp_path, specs)
    x_bar, i_bar = tf.saved_model.load(tmp_path).serve(X, tf.constant([0, 1]))

    assert [2.0, 4.0, 0.0] == x_bar.numpy().tolist()
    assert [False, False] == i_bar.numpy().tolist()


@pytest.mark.parametrize(
    ("x", "way_out"),
    [
        (tf.ragged.constant([[1.0], [1.0, 2.0]]), r"x\.to_tensor\(\)"),
        (tf.sparse.from_dense([[1.0, 0.0]]), r"tf\.sparse\.to_dense\(x\)"),
        (tf.IndexedSlices(X, tf.range(3), (5,)), r"tf\.convert_to_tensor\(x\)"),
        (tf.TensorArray(tf.float32, 1), r"x\.stack\(\)"),
        ({1.0}, "(?s)^(?!.*in place of x)"),
    ],
)
def test_tensors_of_other_kinds(x: Any, way_out: str) -> None:
    """The error says how they become dense."""
    with pytest.raises(UnsupportedDtypeError, match=way_out):
        tb.tf.to_tf(lambda x: x)(x)


MASKED = np.ma.array(np.ones(3, np.float32), mask=[False, True, False])


def _scaled(params: Any, x: Any) -> Any:
    return params * x


MASKED_PLACES: dict[str, Any] = {
    "argument": lambda _: tb.tf.to_tf(_scaled)(MASKED, X),
    "parameter of save": lambda folder: tb.tf.save(
        _scaled, folder, [tf.TensorSpec((3,))], params=MASKED
    ),
    "weight of a layer": lambda _: tb.tf.Layer(_scaled, MASKED),
}


@pytest.mark.parametrize("place", MASKED_PLACES)
def test_masks_are_not_dropped(place: str, tmp_path: Path) -> None:
    """The elements that a mask hides would come to light."""
    with pytest.raises(ArgumentValueError, match="masked array"):
        MASKED_PLACES[place](tmp_path)


@pytest.mark.parametrize("options", [{}, {"with_gradient": False}, {"static_argnames": "training"}])
def test_a_function_of_to_tf_is_an_argument_of_a_tf_function(options: dict[str, Any]):
    """A ``tf.function`` gets what it is given, not the function of arrays in it."""
    given = tb.tf.to_tf(lambda x, training=False: tnp.cumsum(x) if not training else x, **options)

    @tf.function
    def both(x: Any, functions: Any) -> Any:
        return tf.cond(x[0] > 0, lambda: functions["f"](x), lambda: functions["f"](-x))

    assert [1.0, 3.0, 6.0] == both(X, {"f": given}).numpy().tolist()
    other = tb.tf.to_tf(tnp.cumprod, **{k: v for k, v in options.items() if "static" not in k})
    assert [1.0, 2.0, 6.0] == both(X, {"f": other}).numpy().tolist()
    both(X, {"f": given})
    assert 2 == both.experimental_get_tracing_count()


def test_a_tf_function_does_not_keep_the_functions_that_it_got():
    """What was an argument ends with its last reference of somebody else."""
    given = tb.tf.to_tf(lambda x: x + 1.0)
    tf.function(lambda x, f: f(x), autograph=False)(X, given)
    ref = weakref.ref(given)
    del given
    gc.collect()
    assert ref() is None
