"""Corners of compiled and exported code: calls of nothing, local classes, devices, files."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tracebridge.numpy as tnp
from tests.integration.torch.test_fullgraph import Calls, compiled
from tracebridge.torch import wrap

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # inside torch's compiler
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch.export about itself
]
X = torch.arange(3.0)

# Functions without tensors --------------------------------------------------------------------

twos = wrap(lambda: tnp.full(3, 2.0))
filled = wrap(lambda n: {"a": tnp.full(3, n)}, static_argnums=0)
nothing = wrap(lambda x: tnp.full(3, 2.0))

OF_NOTHING: dict[str, Callable[[Any], Any]] = {
    "no arguments": lambda x: twos() * x,
    "only static ones": lambda x: filled(2.0)["a"] * x,
    "None": lambda x: nothing(None) * x,
    "wrapped inside": lambda x: wrap(lambda: tnp.full(3, 2.0))() * x,
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_calls_without_tensors(name: str) -> None:
    """torch has no tensor to choose a kernel by: values and gradients are right all the same."""
    x = X.clone().requires_grad_()

    y = compiled(OF_NOTHING[name])(x)
    y.sum().backward()

    torch.testing.assert_close((y, x.grad), (2 * X, torch.full((3,), 2.0)))


CAPTURES: dict[str, Callable[[Any], Any]] = {
    "export": lambda f: torch.export.export(Calls(f), (X,)).module()(X),
    "strict export": lambda f: torch.export.export(Calls(f), (X,), strict=True).module()(X),
    "make_fx": lambda f: make_fx(f)(X)(X),
    "fake make_fx": lambda f: make_fx(f, tracing_mode="fake")(X)(X),
    "vmap": lambda f: torch.func.vmap(f)(X[None])[0],
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum())(X) * X,
    "jvp": lambda f: torch.func.jvp(f, (X,), (X,))[1],
}


@pytest.mark.parametrize("name", CAPTURES)
def test_captures_without_tensors(name: str) -> None:
    """The same wherever torch peels tensors."""
    torch.testing.assert_close(CAPTURES[name](lambda x: twos() * x), 2 * X)


def test_fake_results_of_nothing() -> None:
    """Under fake tensors there are shapes and dtypes."""
    with FakeTensorMode():
        assert (3,) == tuple(twos().shape)


# Local classes of named tuples ----------------------------------------------------------------


def test_local_named_tuples() -> None:
    """Classes of one path are kept apart, as arguments and results."""

    def make(sign: float) -> Any:
        class Pair(NamedTuple):
            a: Any
            b: Any

            def total(self) -> Any:
                return self.a + sign * self.b

        swap, total = wrap(lambda p: Pair(p.b, p.a)), wrap(lambda p: p.total())
        return [
            lambda x: swap(Pair(x, x + 1)).a,
            lambda x: total(Pair(x, x + 1)),
            lambda x: swap(swap(Pair(x, x + 1))).total(),
        ]

    for sign in (1.0, -1.0):
        expected = [X + 1, X + sign * (X + 1), X + sign * (X + 1)]
        for f, value in zip(make(sign), expected, strict=True):
            torch.testing.assert_close(compiled(f)(X), value)


# Default devices ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_default_devices_in_graphs(device: str) -> None:
    """Numbers and results are beside the tensors, whatever device torch makes tensors on."""

    def fun(x: Any) -> Any:
        return scaled(x, 2.0, n=3) + wrap(tnp.sin)(x)

    scaled = wrap(lambda x, s, *, n: x * s + n)
    with torch.device(device):
        found = compiled(fun)(X)
        exported = torch.export.export(Calls(fun), (X,)).module()(X)

    torch.testing.assert_close((found, exported), (X * 2 + 3 + X.sin(),) * 2)


# Functions that have been called before ---------------------------------------------------------


used_before: Any = wrap(lambda x: tnp.sum(x**3))


def _decorated(x: Any) -> Any:
    @functools.wraps(used_before)
    def call(x: Any) -> Any:
        return used_before(x)

    return call(x)


AFTER_CALLS: dict[str, Callable[[Any], Any]] = {
    "hessian": lambda x: torch.func.hessian(used_before)(x),
    "jacfwd": lambda x: torch.func.jacfwd(used_before)(x),
    "jacrev": lambda x: torch.func.jacrev(used_before)(x),
    "functools.wraps": _decorated,
}


@pytest.mark.parametrize("name", AFTER_CALLS)
def test_decorators_in_compiled_code_after_calls(name: str) -> None:
    """Decorators copy what a function carries: calls that it has seen are not part of it."""
    expected = AFTER_CALLS[name](X)  # on its own, before anything is compiled

    torch.testing.assert_close(compiled(AFTER_CALLS[name])(X), expected)


# Ahead of time --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a compiler of C++")
def test_aot_inductor(tmp_path: Any) -> None:
    """A package of AOTInductor calls the function, also at other sizes."""

    def fun(x: Any) -> Any:
        return power(x, 2).sin() + twos().sum()

    program = torch.export.export(
        Calls(fun), (torch.ones(4, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n", min=2)}}
    )
    path = str(tmp_path / "model.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    loaded = torch._inductor.aoti_load_package(path)

    for n in (4, 7):
        x = torch.rand(n, 3)
        torch.testing.assert_close(loaded(x), (x**2).sin() + 6)


power = wrap(lambda x, n: x**n, static_argnums=1)
