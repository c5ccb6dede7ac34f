"""Names of wrapped functions: what graphs of torch hold of them, and guard on."""

from __future__ import annotations

import functools
import gc
import pickle
import threading
from copy import deepcopy
from typing import Any

import pytest
import torch

import tracebridge.numpy as tnp
from tracebridge._derived import names
from tracebridge.torch import Module, wrap

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # inside torch's compiler
]


def compiled(fun: Any, **options: Any) -> Any:
    return torch.compile(fun, fullgraph=True, backend="aot_eager", **options)


class Scaler:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def method(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale


def multiply(scale: float, x: Any) -> Any:
    return x * scale


# Each makes a callable x -> scale * x; all of one kind have the same import path.
KINDS = {
    "lambda": lambda scale: lambda x: x * scale,
    "local function": lambda scale: _local(scale),
    "bound method": lambda scale: Scaler(scale).method,
    "partial": lambda scale: functools.partial(multiply, scale),
    "callable object": Scaler,
    "vectorized lambda": lambda scale: tnp.vectorize(lambda x: x * scale),
}


def _local(scale: float) -> Any:
    def scaled(x: Any) -> Any:
        return x * scale

    return scaled


@pytest.mark.parametrize(
    ("kind", "dynamic"), [*[(kind, None) for kind in KINDS], ("lambda", False), ("lambda", True)]
)
def test_compiled_functions_that_died_are_not_called(kind: str, dynamic: bool | None) -> None:
    """A function in a loop, compiled each time, computes itself: values and gradients."""
    torch._dynamo.reset()
    results = []
    for scale in (1.0, 10.0, 100.0):
        f = wrap(KINDS[kind](scale))
        x = torch.ones(3, requires_grad=True)
        y = compiled(lambda x, f=f: f(x), dynamic=dynamic)(x)
        y.sum().backward()
        assert x.grad is not None
        results.append((y[0].item(), x.grad[0].item()))
        del f, y
        gc.collect()

    assert [(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)] == results


@pytest.mark.parametrize("reset", [False, True])
def test_compiled_modules_that_died_are_not_called(reset: bool) -> None:
    """The same of modules, with and without resets of torch's compiler."""
    torch._dynamo.reset()
    results = []
    for scale in (1.0, 10.0, 100.0):
        model = Module(lambda p, x, scale=scale: p["w"] * x * scale, {"w": torch.ones(3)})
        y = compiled(model)(torch.ones(3))
        y.sum().backward()
        grad = model.get_parameter("w").grad
        assert grad is not None
        results.append((y[0].item(), grad[0].item()))
        del model, y, grad
        gc.collect()
        if reset:
            torch._dynamo.reset()

    assert [(1.0, 1.0), (10.0, 10.0), (100.0, 100.0)] == results


def test_two_functions_of_one_name_in_one_graph() -> None:
    """Equal names are kept apart inside a graph, too."""
    torch._dynamo.reset()
    f, g = (wrap(lambda x, k=k: x * k) for k in (2.0, 3.0))

    h = compiled(lambda x: f(x) + 100 * g(x), dynamic=True)

    for n in (2, 5):
        assert [302.0] * n == h(torch.ones(n)).tolist()


def test_exported_functions_that_died_are_not_called() -> None:
    """Exported programs keep their own function when others of that name come and go."""
    programs = []
    for scale in (1.0, 10.0):
        f = wrap(lambda x, scale=scale: x * scale)

        class Calls(torch.nn.Module):
            def forward(self, x: Any, f: Any = f) -> Any:
                return f(x)

        programs.append(torch.export.export(Calls(), (torch.ones(2),)))
        del f, Calls
        gc.collect()

    assert [1.0, 10.0] == [p.module()(torch.ones(2))[0].item() for p in programs]


def test_names_are_never_used_twice() -> None:
    """Names of collected functions are not handed out again, by no number of threads."""
    seen: list[str] = []

    def make() -> None:
        for _ in range(50):
            seen.append(wrap(lambda x: x).root)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 200 == len(set(seen))


def test_names_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither functions of one path nor ever new paths make the table of names grow for ever."""
    monkeypatch.setattr(names, "_GIVEN", {})
    monkeypatch.setattr(names, "_GENERATION", [10**6])
    monkeypatch.setattr(names, "_MAX_GIVEN", 5)
    seen = []
    for i in range(40):

        def fun(x: Any) -> Any:
            return x

        fun.__qualname__ = f"fun{i % 20}"
        seen.append(wrap(fun).root)

    assert 40 == len(set(seen))
    assert len(names._GIVEN) <= names._MAX_GIVEN


def test_names_hold_no_separators() -> None:
    """What separates the parts of a handle is not in a name."""

    def fun(x: Any) -> Any:
        return x

    fun.__qualname__ = "a|b::c:::d#2@e"
    root = wrap(fun).root

    assert f"{__name__}:a/b:c:d_2_e" == root


@wrap
def decorated(x: Any) -> Any:
    """A function that can be imported."""
    return x * 3


def test_the_importable_function_is_found_by_path() -> None:
    """Pickles go by import path, whatever name the function has got."""
    again = wrap(decorated.fun)

    assert decorated is pickle.loads(pickle.dumps(decorated))
    assert decorated is deepcopy(decorated)
    assert again.root != decorated.root


@pytest.mark.parametrize("kind", ["bound method", "partial", "callable object"])
def test_copies_of_other_callables(kind: str) -> None:
    """A pickled function computes the same, compiled too; a deepcopy is the function itself."""
    torch._dynamo.reset()
    f = wrap(KINDS[kind](3.0))
    g = pickle.loads(pickle.dumps(f))

    assert f is deepcopy(f)
    assert [3.0, 3.0] == g(torch.ones(2)).tolist()
    assert [3.0, 3.0] == compiled(lambda x: g(x))(torch.ones(2)).tolist()
