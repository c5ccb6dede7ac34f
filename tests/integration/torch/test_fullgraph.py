"""What code that torch compiles as one graph, or exports, may do with wrapped functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tracebridge.numpy as tnp
from tracebridge import tree, tree_util
from tracebridge.torch import wrap

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # inside torch's compiler
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch.export about itself
]


def compiled(fun: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(fun, fullgraph=True, backend="aot_eager", **options)


class Calls(torch.nn.Module):
    def __init__(self, fun: Any) -> None:
        super().__init__()
        self.fun = fun

    def forward(self, x: Any) -> Any:
        return self.fun(x)


times = wrap(lambda x, n: x * n)
static = wrap(lambda x, n: x * n, static_argnums=1)
named = wrap(lambda x, *, n=1: x * n, static_argnames="n")
nested = wrap(lambda x, pair: x * pair[0] + 0 * pair[1][0], static_argnums=1)


# Numbers that change from call to call --------------------------------------------------------

NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "an argument": times,
    "a static argument": static,
    "a static keyword": lambda x, n: named(x, n=n),
    "in a static tuple": lambda x, n: nested(x, (n, (n,))),
    "a closure": lambda x, n: wrap(lambda y: y * n)(x),
    "a default": lambda x, n: wrap(lambda y, m=n: y * m)(x),
}


@pytest.mark.parametrize("numbers", [(2, 3, 4, 2), (2.5, 3.5, 4.5, 2.5)])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_at_their_second_value(name: str, numbers: tuple[Any, ...]) -> None:
    """A number that torch would make symbolic at its second value enters with each value."""
    f = compiled(NUMBERS[name])
    x = torch.ones(2)

    assert [[float(n)] * 2 for n in numbers] == [f(x, n).tolist() for n in numbers]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("f", [times, static], ids=["an argument", "a static argument"])
def test_sizes_as_numbers(f: Any, dynamic: bool | None) -> None:
    """A size of an argument beside it, as the sizes vary."""
    g = compiled(lambda x: f(x, x.shape[0]), dynamic=dynamic)

    assert [[float(n)] * n for n in (2, 3, 5)] == [g(torch.ones(n)).tolist() for n in (2, 3, 5)]


@pytest.mark.parametrize("strict", [False, True])
def test_exported_sizes_as_numbers(strict: bool) -> None:
    """The exported program is for all sizes: the number makes no condition on them."""
    program = torch.export.export(
        Calls(lambda x: times(x, x.shape[0])),
        (torch.ones(3),),
        dynamic_shapes={"x": {0: torch.export.Dim("n")}},
        strict=strict,
    )

    for n in (3, 5, 2):
        assert [float(n)] * n == program.module()(torch.ones(n)).tolist()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.bool])
@pytest.mark.parametrize("beside", [None, torch.float32], ids=["alone", "beside floats"])
def test_values_of_tensors_as_numbers(strict: bool, dtype: Any, beside: Any) -> None:
    """``t.item()`` is a number of any value in an exported program."""

    def fun(x: Any) -> Any:
        return times(x if beside is None else x.to(beside), x[0].item())

    first, second = torch.tensor([1, 1]).to(dtype), torch.tensor([3, 0]).to(dtype)
    program = torch.export.export(Calls(fun), (first,), strict=strict)

    for x in (first, second):
        expected = (x if beside is None else x.to(beside)) * x[0]
        torch.testing.assert_close(program.module()(x), expected)


def test_large_values_of_tensors_as_numbers() -> None:
    """An integer that 32 bits do not hold stays what it is."""
    program = torch.export.export(
        Calls(lambda x: times(x.double(), x[0].item())), (torch.tensor([1, 1]),)
    )

    assert [2.0**80] == program.module()(torch.tensor([2**40])[[0, 0]])[:1].tolist()


# Registered dataclasses -----------------------------------------------------------------------


@tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = tree.static(default="dense")


@tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pair:
    second: Any
    first: Any


@functools.partial(
    tree_util.register_dataclass, data_fields=["b", "a"], meta_fields=["n"], drop_fields=()
)
@dataclasses.dataclass
class Listed:
    n: int
    a: Any
    b: Any


@wrap
def apply(layer: Layer, x: Any) -> Layer:
    scale = 2.0 if layer.name == "dense" else 3.0
    return Layer(layer.weight * x * scale, layer.bias + x, layer.name + "!")


@wrap
def swap(pair: Pair) -> Pair:
    return Pair(pair.first, pair.second)


@wrap
def listed(x: Listed) -> Any:
    return {"sum": Listed(x.n + 1, x.a * x.n, x.b)}


X = torch.arange(3.0)
DATACLASSES: dict[str, Any] = {
    "made inside": lambda x: apply(Layer(x, x + 1), x).weight,
    "made inside, other meta field": lambda x: apply(Layer(x, x + 1, "conv"), x).weight,
    "result of a result": lambda x: apply(apply(Layer(x, x), x), x).bias,
    "frozen": lambda x: swap(Pair(first=x, second=x * 2)).first,
    "nested in containers": lambda x: listed(Listed(4, x, x * 2))["sum"].a,
    "order of the fields": lambda x: listed(Listed(4, x, x * 2))["sum"].b,
    "a number in a field": lambda x: listed(Listed(4, x, 5.0))["sum"].b,
}


@pytest.mark.parametrize("name", DATACLASSES)
def test_dataclasses(name: str) -> None:
    """Registered dataclasses as arguments and results are what they are outside of graphs."""
    use = DATACLASSES[name]

    expected = use(X)

    torch.testing.assert_close(compiled(use)(X), expected)
    if name in ("made inside", "frozen"):
        for strict in (False, True):
            program = torch.export.export(Calls(use), (X,), strict=strict)
            torch.testing.assert_close(program.module()(X), expected)


def test_dataclasses_from_and_to_outside() -> None:
    """An instance that comes from outside, and one that is returned."""
    layer = Layer(X, X * 2)

    made = compiled(lambda layer, x: apply(layer, x))(layer, X)

    assert type(made) is Layer
    assert "dense!" == made.name
    torch.testing.assert_close(made.weight, X * X * 2)
    torch.testing.assert_close(made.bias, X * 3)


def test_gradients_of_dataclasses() -> None:
    """Gradients flow through the fields."""
    w = X.clone().requires_grad_()

    compiled(lambda w: apply(Layer(w, w), X).weight.sum())(w).backward()

    torch.testing.assert_close(w.grad, 2 * X)


def test_local_dataclasses_of_one_path() -> None:
    """Classes of one import path are kept apart."""

    def make(sign: float) -> Any:
        @tree_util.register_dataclass
        @dataclasses.dataclass
        class Local:
            value: Any

            def signed(self) -> Any:
                return self.value * sign

        f = wrap(lambda x: Local(x))
        return compiled(lambda x: f(x).signed())

    functions = [make(1.0), make(-1.0)]

    assert [[3.0], [-3.0]] == [f(torch.full((1,), 3.0)).tolist() for f in functions]


def test_other_objects_are_refused_with_the_way_out() -> None:
    """What is no tree says what may be passed."""
    f = wrap(lambda x: x)

    with pytest.raises(Exception, match="registered dataclasses"):
        compiled(lambda x: f({x}))(X)


# wrap() in compiled code ----------------------------------------------------------------------


class Scale:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def method(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale


def triple(x: Any) -> Any:
    return x * 3.0


OBJECT = Scale(3.0)
INSIDE: dict[str, Any] = {
    "a function": lambda x: wrap(triple)(x),
    "a lambda": lambda x: wrap(lambda y: y * 3.0)(x),
    "twice": lambda x: wrap(triple)(x) + wrap(triple)(x) - wrap(triple)(x),
    "a method": lambda x: wrap(OBJECT.method)(x),
    "an object": lambda x: wrap(OBJECT)(x),
    "a partial": lambda x: wrap(functools.partial(lambda n, y: y * n, 3.0))(x),
    "static arguments": lambda x: wrap(lambda y, n: y * n, static_argnums=1)(x, 3),
    "static keywords": lambda x: wrap(lambda y, n: y * n, static_argnames=("n",))(x, n=3),
    "trees": lambda x: wrap(lambda d: (d["a"] * 3.0, 1))({"a": x})[0],
    "a wrapped function": lambda x: wrap(times)(x, 3.0),
}


@pytest.mark.parametrize("name", INSIDE)
def test_wrapping_inside_compiled_code(name: str) -> None:
    """``wrap`` is a constant of the graph: values and gradients."""
    x = X.clone().requires_grad_()

    y = compiled(INSIDE[name])(x)
    y.sum().backward()

    torch.testing.assert_close((y, x.grad), (X * 3, torch.full((3,), 3.0)))


def test_tensors_that_a_function_inside_closes_over() -> None:
    """They cannot be constants: the message says what to do."""
    with pytest.raises(Exception, match="pass it to the function as an argument"):
        compiled(lambda x, t: wrap(lambda y: tnp.sin(y) * t)(x))(X, X)
