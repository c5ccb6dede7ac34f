"""Functions that compiled code wraps, and what they refer to as it changes between calls."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.integration.torch.test_fullgraph import compiled
from tracebridge.torch import wrap

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # inside torch's compiler
]
X = torch.arange(3.0)
NUMBER: Any = 0.0
LIST: Any = [0.0]
TABLE: Any = {"a": [0.0]}
ARRAY: Any = np.zeros((), np.float32)
MODULE = types.ModuleType("settings")


class Mode(enum.Enum):
    TWO = 2.0
    FIVE = 5.0


class Settings:
    scale = 0.0


@dataclasses.dataclass
class Data:
    scale: Any

    def times(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale

    def wrapped(self, x: Any) -> Any:
        return wrap(lambda y: y * self.scale)(x)


DATA = Data(0.0)


def by_number(y: Any) -> Any:
    return y * NUMBER


def by_helper(y: Any) -> Any:
    return by_number(y)


def by_list(y: Any) -> Any:
    return y * LIST[0]


def by_table(y: Any) -> Any:
    return y * TABLE["a"][0]


def by_array(y: Any) -> Any:
    return y * ARRAY


def by_module(y: Any) -> Any:
    return y * MODULE.scale


def by_class(y: Any) -> Any:
    return y * Settings.scale


def by_default(y: Any, *, scale: Any = LIST) -> Any:
    return y * scale[0]


def set_global(name: str) -> Callable[[float], None]:
    return lambda n: globals().__setitem__(name, n)


def fill(n: float) -> None:
    ARRAY[...] = n


# What compiled code does, and how what it refers to is changed.
CHANGES: dict[str, tuple[Callable[[Any], Any], Callable[[float], None]]] = {
    "a global number": (lambda x: wrap(by_number)(x), set_global("NUMBER")),
    "of a helper": (lambda x: wrap(by_helper)(x), set_global("NUMBER")),
    "of a lambda made inside": (lambda x: wrap(lambda y: y * NUMBER)(x), set_global("NUMBER")),
    "of a partial": (
        lambda x: wrap(functools.partial(lambda n, y: y * NUMBER * n, 1.0))(x),
        set_global("NUMBER"),
    ),
    "of a gradient": (
        lambda x: wrap(tb.grad(lambda y: tnp.sum(y**2) * NUMBER / 2))(x),
        set_global("NUMBER"),
    ),
    "a list": (lambda x: wrap(by_list)(x), lambda n: LIST.__setitem__(0, n)),
    "a nested list": (lambda x: wrap(by_table)(x), lambda n: TABLE["a"].__setitem__(0, n)),
    "an array in place": (lambda x: wrap(by_array)(x), fill),
    "a default": (lambda x: wrap(by_default)(x), lambda n: LIST.__setitem__(0, n)),
    "an attribute of a module": (
        lambda x: wrap(by_module)(x),
        lambda n: setattr(MODULE, "scale", n),
    ),
    "a class attribute": (lambda x: wrap(by_class)(x), lambda n: setattr(Settings, "scale", n)),
    "an object": (lambda x: wrap(DATA)(x), lambda n: setattr(DATA, "scale", n)),
    "a method": (lambda x: wrap(DATA.times)(x), lambda n: setattr(DATA, "scale", n)),
    "self": (lambda x: DATA.wrapped(x), lambda n: setattr(DATA, "scale", n)),
    "another object": (lambda x: wrap(DATA.times)(x), lambda n: set_global("DATA")(Data(n))),  # type: ignore[arg-type]  # it sets anything
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_between_calls(name: str) -> None:
    """A graph computes with what is there when it is called, as code does that is not compiled."""
    use, change = CHANGES[name]
    f = compiled(use)
    x = X.clone().requires_grad_()

    for n in (2.0, 5.0, -0.0, 2.0):
        change(n)
        torch.testing.assert_close(f(x), use(x))
        torch.testing.assert_close(f(x), X * n)


def test_nothing_is_compiled_again_without_a_change() -> None:
    """Guards hold while contents are equal."""
    graphs: list[Any] = []

    def keep(graph: Any, example_inputs: Any) -> Any:
        del example_inputs
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    for use, change in CHANGES.values():
        change(3.0)
        f = torch.compile(use, fullgraph=True, backend=keep)
        del graphs[:]
        for _ in range(3):
            f(X)
        change(3.0)
        f(X)
        assert 1 == len(graphs)


def test_functions_that_count_their_traces() -> None:
    """A function that changes what it refers to while it is traced is traced once."""
    seen: list[Any] = []

    def counting(y: Any) -> Any:
        seen.append(1)
        return y * 2.0

    f = compiled(lambda x: wrap(counting)(x))
    for _ in range(12):
        torch.testing.assert_close(f(X), X * 2)

    assert 1 == len(seen)


# What is closed over --------------------------------------------------------------------------


def closing(what: Any, use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda x: wrap(lambda y: use(y, what))(x)


def scaled(y: Any, n: Any) -> Any:
    return y * n


CONTENTS: dict[str, Any] = {
    "a tuple": lambda n: closing((1, (n,)), lambda y, t: y * t[1][0]),
    "a list": lambda n: closing([n], lambda y, t: y * t[0]),
    "a dict": lambda n: closing({"a": {1: n}}, lambda y, t: y * t["a"][1]),
    "a NumPy array": lambda n: closing(np.array([n] * 3, np.float32), scaled),
    "a NumPy scalar": lambda n: closing(np.float32(n), scaled),
    "an array of ours": lambda n: closing(tnp.full(3, n), scaled),
    "a function": lambda n: closing(lambda y: y * n, lambda y, t: t(y)),
    "a partial": lambda n: closing(functools.partial(scaled, n=n), lambda y, t: t(y)),
    "an object": lambda n: closing(Data(n), lambda y, t: t(y)),
    "a method": lambda n: closing(Data(n).times, lambda y, t: t(y)),
    "a member": lambda n: closing(Mode(n), lambda y, t: y * t.value),
    "a namespace": lambda n: closing(types.SimpleNamespace(a=n), lambda y, t: y * t.a),
    "a wrapped function": lambda n: closing(wrap(lambda y: y * n), lambda y, t: t(y)),
    "a jitted function": lambda n: closing(tb.jit(lambda y: y * n), lambda y, t: t(y)),
    "jit inside": lambda n: lambda x: wrap(tb.jit(lambda y: y * n))(x),
    "vmap inside": lambda n: lambda x: wrap(tb.vmap(lambda y: y * n))(x),
    "grad inside": lambda n: lambda x: wrap(tb.grad(lambda y: tnp.sum(y * y) * n / 2))(x),
    "checkpoint inside": lambda n: lambda x: wrap(tb.checkpoint(lambda y: y * n))(x),
    "options": lambda n: lambda x: wrap(tb.vmap(scaled, in_axes=(0, None)))(x, n),
    "itself": lambda n: lambda x: wrap(recursive(n))(x),
}


def recursive(n: float) -> Any:
    def fun(y: Any, depth: int = 1) -> Any:
        return fun(y, depth - 1) if depth else y * n

    return fun


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_closed_over(name: str) -> None:
    """Values and gradients for one content, then for another in the same compiled function."""
    functions = {n: CONTENTS[name](n) for n in (2.0, 5.0)}
    f = compiled(lambda x, use: use(x))

    for n in (2.0, 5.0, 2.0):
        x = X.clone().requires_grad_()
        y = f(x, functions[n])
        y.sum().backward()
        torch.testing.assert_close((y, x.grad), (X * n, torch.full((3,), n)))


def changed_inside(x: Any) -> Any:
    data = DATA
    data.scale = 2.0
    return data.wrapped(x)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a tensor": (lambda x: wrap(lambda y: tnp.sin(y) * x)(x), "closes over x, a tensor"),
    "in a tuple": (
        lambda x: closing((1, x), lambda y, t: y * t[1])(x),
        r"over what\[1\], a tensor",
    ),
    "in a dict": (lambda x: closing({"a": x}, lambda y, t: y)(x), r"over what\['a'\], a tensor"),
    "of an object": (lambda x: closing(Data(x), lambda y, t: y)(x), "an object of Data"),
    "a NumPy array": (
        lambda x: closing(x.numpy() + 1, scaled)(x),
        "a NumPy array that is computed",
    ),
    "a changed object": (changed_inside, "that the compiled code changes"),
    "a default": (lambda x: wrap(lambda y, t=x: y * t)(x), "over a default of <lambda>, a tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_the_run_knows(name: str) -> None:
    """The message names what it is, and the way out."""
    use, message = REFUSED[name]

    with pytest.raises(Exception, match=message) as caught:
        compiled(use)(X)
    assert "pass it to the function as an argument" in str(caught.value)
