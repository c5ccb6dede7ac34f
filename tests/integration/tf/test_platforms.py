"""Programs for several platforms: each runs the functions of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.export.portable import portable_program
from tracebridge.core.mlir.context import building
from tracebridge.extend.core import Primitive
from tracebridge.interpreters.mlir import lower_fun, register_lowering
from tracebridge.tf._xla_call_module import PLATFORMS, CallModule, stablehlo_target

pytestmark = pytest.mark.tf

X = np.float32([0.3, 0.7])
BY_PLATFORM = {"cpu": np.sin, "cuda": np.cos, "rocm": np.cos, "tpu": np.exp}


def chosen(x: Any) -> Any:
    """Another function for each kind of device."""
    return lax.platform_dependent(x, cpu=tnp.sin, gpu=tnp.cos, default=tnp.exp)


def _primitive() -> Primitive:
    found = Primitive("of_platform")
    found.def_abstract_eval(lambda x: x)
    for fun, platform in ((tnp.exp, None), (tnp.sin, "cpu"), (tnp.cos, "gpu")):
        register_lowering(found, lower_fun(fun, multiple_results=False), platform)
    return found


of_platform_p = _primitive()


def looped(x: Any) -> Any:
    """In functions, branches and loops of the program."""
    once = lambda _, y: tb.jit(chosen)(y)
    return lax.fori_loop(0, 1, once, lax.cond(x[0] > 0, lambda y: y, chosen, x))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "plain": chosen,
    "in a function": tb.jit(chosen),
    "in a loop": looped,
    "mapped": tb.vmap(chosen),
    "of a user's primitive": of_platform_p.bind,
    "nested": lambda x: lax.platform_dependent(
        x, cpu=chosen, default=lambda x: lax.platform_dependent(x, tpu=tnp.exp, default=chosen)
    ),
}


def run_on(program: Any, platform: str, x: Any) -> Any:
    """The results of a program as if the CPU were ``platform``."""
    others = [f"PLATFORM_{i}" for i in range(len(program.platforms))]
    others[program.platforms.index(platform)] = "CPU"
    program.platforms = tuple(others)
    return CallModule(program, ["x"])([tf.constant(x)])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_each_platform_runs_its_function(platform: str, name: str) -> None:
    """Whatever the function stands in."""
    jaxpr = tb.make_jaxpr(FUNCTIONS[name])(X).jaxpr
    program = portable_program(jaxpr, "f", target=stablehlo_target(), platforms=PLATFORMS)

    assert program.platforms == PLATFORMS
    (got,) = run_on(program, platform, X)
    np.testing.assert_allclose(got, BY_PLATFORM[platform](X), rtol=1e-6)


@pytest.mark.parametrize("options", [None, {}, {"jit_compile": True}])
@pytest.mark.parametrize("size", [2, None])
def test_calls_run_the_function_of_the_cpu(options: Any, size: int | None) -> None:
    """Values and gradients, eagerly and in graphs of known and unknown sizes."""
    fun = tb.tf.to_tf(chosen)
    spec = [tf.TensorSpec((size,))]
    call = fun if options is None else tf.function(fun, input_signature=spec, **options)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = call(x)

    np.testing.assert_allclose(y, np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(y, x), np.cos(X), rtol=1e-6)


def test_programs_are_for_the_platforms_that_have_a_function() -> None:
    """TensorFlow says on which ones it would run."""
    fun = lambda x: lax.platform_dependent(x, tpu=tnp.exp, cuda=tnp.cos)
    jaxpr = tb.make_jaxpr(fun)(X).jaxpr
    program = portable_program(jaxpr, "f", platforms=PLATFORMS)

    assert ("cuda", "tpu") == program.platforms
    with pytest.raises(tf.errors.OpError, match="platform CPU is not among the platforms"):
        tb.tf.to_tf(fun)(tf.constant(X))


def test_one_platform_needs_no_number() -> None:
    """The program takes its inputs alone."""
    jaxpr = tb.make_jaxpr(lambda x: lax.platform_dependent(x, cpu=tnp.exp))(X).jaxpr
    program = portable_program(jaxpr, "f", platforms=PLATFORMS)
    with building():
        text = str(mlir.deserialize_portable_artifact(program.data, mlir.ir.Context.current))

    assert ("cpu",) == program.platforms
    assert "@main(%arg0: tensor<2xf32>)" in text
    np.testing.assert_allclose(
        tb.tf.to_tf(lambda x: lax.platform_dependent(x, cpu=tnp.exp))(X), np.exp(X), rtol=1e-6
    )


def test_programs_for_no_platform() -> None:
    """Functions for platforms that exclude each other."""

    def fun(x: Any) -> Any:
        y = lax.platform_dependent(x, tpu=tnp.exp)
        return lax.platform_dependent(y, cpu=tnp.exp)

    with pytest.raises(tb.errors.ExportError, match="platform_dependent has no rule for tpu"):
        tb.tf.to_tf(fun)(X)
