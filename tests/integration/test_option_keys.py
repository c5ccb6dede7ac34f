"""Keys: a program is traced again when an option that affects tracing has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.options import TRACING_OPTIONS
from tracebridge.core.config.scopes import scope

OTHER_VALUES: dict[str, Any] = {
    "enable_x64": True,
    "explicit_x64_dtypes": "allow",
    "numpy_dtype_promotion": "strict",
    "numpy_rank_promotion": "raise",
    "default_matmul_precision": "highest",
    "default_device": "cpu",
    "disable_jit": True,
    "debug_key_reuse": True,
    "enable_custom_prng": True,
    "legacy_prng_key": "error",
    "threefry_partitionable": False,
    "default_prng_impl": "rbg",
    "platform_rules": False,
    "disable_most_optimizations": True,
}


def test_every_option_is_here() -> None:
    """The table names each option that affects tracing."""
    assert sorted(TRACING_OPTIONS) == sorted(OTHER_VALUES)


def body(name: str) -> Callable[[Any], Any]:
    """A function that computes something else under the other value of an option."""
    usual = tb.config.read(name)
    return lambda x: x * (2.0 if tb.config.read(name) == usual else 3.0)


def by_call(transform: Callable[[Any], Any], *args: Any) -> Callable[[Any], Callable[[], float]]:
    """The way of calling ``transform(f)``, made once."""

    def way(f: Any) -> Callable[[], float]:
        made = transform(f)
        return lambda: float(tnp.sum(made(*args)))

    return way


def by_torch(f: Any) -> Callable[[], float]:
    import torch

    wrapped = tb.torch.wrap(f)
    return lambda: wrapped(torch.ones(())).item()


def by_torch_gradient(f: Any) -> Callable[[], float]:
    import torch

    wrapped = tb.torch.wrap(f)

    def run() -> float:
        x = torch.ones((), requires_grad=True)
        wrapped(x).backward()
        return x.grad.item()  # type: ignore[union-attr]  # backward has filled it

    return run


def by_torch_vmap(f: Any) -> Callable[[], float]:
    import torch

    wrapped = torch.func.vmap(tb.torch.wrap(f))
    return lambda: wrapped(torch.ones(1)).item()


def by_torch_number(f: Any) -> Callable[[], float]:
    wrapped = tb.torch.wrap(lambda x: f(x))
    return lambda: wrapped(1.0).item()


def by_tensorflow(f: Any) -> Callable[[], float]:
    import tensorflow as tf

    converted = tb.tf.to_tf(f)
    return lambda: float(converted(tf.ones(())))


def by_tensorflow_gradient(f: Any) -> Callable[[], float]:
    import tensorflow as tf

    converted = tb.tf.to_tf(f)

    def run() -> float:
        x = tf.ones(())
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = converted(x)
        return float(tape.gradient(y, x))

    return run


def by_custom_vjp(f: Any) -> Callable[[], float]:
    g = tb.custom_vjp(lambda x: x)
    g.defvjp(lambda x: (x, None), lambda _, ct: (f(ct),))
    gradient = tb.jit(tb.grad(g))
    return lambda: float(gradient(1.0))


def by_loop(f: Any) -> Callable[[], float]:
    def step(_: Any, c: Any) -> Any:
        return f(c)

    return lambda: float(lax.fori_loop(0, 1, step, tnp.ones(())))


def by_linear(f: Any) -> Callable[[], float]:
    return lambda: float(tb.linearize(jitted_once(f), 1.0)[1](1.0))


def jitted_once(f: Any) -> Any:
    """One compiled function for all calls."""
    found = getattr(f, "jitted", None)
    if found is None:
        found = f.jitted = tb.jit(f)
    return found


WAYS: dict[str, Any] = {
    "jit": by_call(tb.jit, 1.0),
    "jit of an array": by_call(tb.jit, np.ones(2, np.float32) / 2),
    "jit in jit": lambda f: by_call(lambda g: lambda x: tb.jit(lambda y: g(y))(x), 1.0)(tb.jit(f)),
    "grad of jit": by_call(lambda f: tb.grad(tb.jit(f)), 1.0),
    "vmap of jit": by_call(lambda f: tb.vmap(tb.jit(f)), np.ones(1, np.float32)),
    "linearize": by_linear,
    "pmap": by_call(tb.pmap, np.ones((1, 1), np.float32)),
    "checkpoint": by_call(lambda f: tb.grad(tb.checkpoint(f)), 1.0),
    "custom_vjp": by_custom_vjp,
    "loop": by_loop,
    "torch": pytest.param(by_torch, marks=pytest.mark.torch),
    "torch gradient": pytest.param(by_torch_gradient, marks=pytest.mark.torch),
    "torch vmap": pytest.param(by_torch_vmap, marks=pytest.mark.torch),
    "torch number": pytest.param(by_torch_number, marks=pytest.mark.torch),
    "tensorflow": pytest.param(by_tensorflow, marks=pytest.mark.tf),
    "tensorflow gradient": pytest.param(by_tensorflow_gradient, marks=pytest.mark.tf),
}


@pytest.mark.parametrize("way", list(WAYS.values()), ids=list(WAYS))
@pytest.mark.parametrize("name", OTHER_VALUES)
def test_the_second_call_sees_the_option(name: str, way: Any) -> None:
    """Calls before, inside and after a block of another value each see the value in force."""
    call = way(body(name))

    before = call()
    with scope(name, OTHER_VALUES[name]):
        inside = [call(), call()]
    after = call()

    assert (2.0, [3.0, 3.0], 2.0) == (before, inside, after)


@pytest.mark.parametrize("way", list(WAYS.values()), ids=list(WAYS))
def test_the_second_call_sees_the_option_of_the_process(way: Any) -> None:
    """The same where the option is changed for all threads."""
    call = way(body("default_matmul_precision"))

    before = call()
    tb.config.update("default_matmul_precision", "highest")
    try:
        inside = [call(), call()]
    finally:
        tb.config.update("default_matmul_precision", None)

    assert (2.0, [3.0, 3.0], 2.0) == (before, inside, call())


@pytest.mark.torch
def test_backward_passes_are_of_the_forward_pass() -> None:
    """Derivatives of every order belong to the trace, whatever is in force when they are asked."""
    import torch

    def f(x: Any) -> Any:
        return x**3 * (2.0 if tb.config.default_matmul_precision is None else 3.0)

    wrapped = tb.torch.wrap(f)
    x = torch.ones((), requires_grad=True)
    with scope("default_matmul_precision", "highest"):
        y = wrapped(x)

    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)

    assert (3.0, 9.0, 18.0) == (y.item(), first.item(), second.item())


@pytest.mark.torch
# torch itself uses what it deprecates inside its compiler.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_graphs_are_of_the_options_that_they_were_made_under(backend: str) -> None:
    """Dtypes of results are built into a graph, so a block of another option leaves it alone.

    An option of the process makes it anew.
    """
    import torch

    wrapped = tb.torch.wrap(lambda x: x * (tnp.ones(2) / 2))
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: wrapped(x) * 4 + 1, backend=backend, fullgraph=True)
    x = torch.ones(2, requires_grad=True)

    def call() -> tuple[Any, ...]:
        result = compiled(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        return result.tolist(), result.dtype, gradient.tolist()

    expected = ([3.0, 3.0], torch.float32, [2.0, 2.0])
    assert expected == call()
    with scope("enable_x64", True):
        assert expected == call()
    tb.config.update("enable_x64", True)
    try:
        assert ([3.0, 3.0], torch.float64, [2.0, 2.0]) == call()
    finally:
        tb.config.update("enable_x64", False)
    assert expected == call()


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_exported_graphs_keep_their_options() -> None:
    """torch.export writes down a program: it stays that one."""
    import torch

    exported = torch.export.export(halved_module(), (torch.ones(2),)).module()

    with scope("enable_x64", True):
        result = exported(torch.ones(2, requires_grad=True))

    assert (torch.float32, [0.5, 0.5]) == (result.dtype, result.tolist())


def halved_module() -> Any:
    import torch

    wrapped = tb.torch.wrap(_halved)

    class Halved(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return wrapped(x)

    return Halved()


def _halved(x: Any) -> Any:
    return x * (tnp.ones(2) / 2)
