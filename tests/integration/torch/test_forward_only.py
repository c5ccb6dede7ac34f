"""Functions without gradients on tensors that require them: values, and an error at backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tracebridge.errors import CustomRuleError, EffectError, GradientTypeError
from tracebridge.torch import Module, wrap

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # inside torch's compiler
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of torch.export about itself
]


def loop(p: Any, x: Any) -> Any:
    """x * p ** 3, by a loop whose end is computed."""
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * p), (0, x))[1]


def calls_back(p: Any, x: Any) -> Any:
    shape = tb.ShapeDtypeStruct(x.shape, x.dtype)
    return tb.pure_callback(lambda p, x: np.asarray(x * p**3), shape, p, x)


@tb.custom_vjp
def badly_ruled(p: Any, x: Any) -> Any:
    return x * p**3


badly_ruled.defvjp(lambda p, x: (x * p**3, None), lambda res, g: (g,))


def ruled_and_loop(p: Any, x: Any) -> Any:
    @tb.custom_vjp
    def double(x: Any) -> Any:
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda res, g: (g * 2,))
    return loop(p, double(x)) / 2


FUNCTIONS: dict[str, tuple[Callable[..., Any], type[Exception]]] = {
    "while_loop": (loop, GradientTypeError),
    "pure_callback": (calls_back, EffectError),
    "a rule that is wrong": (badly_ruled, CustomRuleError),
    "a rule and a loop": (ruled_and_loop, GradientTypeError),
}


class Model(torch.nn.Module):
    def __init__(self, f: Any) -> None:
        super().__init__()
        self.p = torch.nn.Parameter(torch.tensor(2.0))
        self.f = f

    def forward(self, x: Any) -> Any:
        return self.f(self.p, x)


def compiled(model: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, backend="aot_eager", **options)


def exported(model: Any, **options: Any) -> Any:
    return torch.export.export(model, (torch.ones(2),), **options)


def stateless(model: Any) -> Any:
    return lambda x: torch.func.functional_call(model, dict(model.named_parameters()), (x,))


# What is done to a model before it is called.
WAYS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda model: model,
    "twice": lambda model: [model(torch.ones(2)), model][1],
    "vmap": lambda model: lambda x: torch.func.vmap(model)(x),
    "functional_call": stateless,
    "compile": compiled,
    "compile for all sizes": lambda model: compiled(model, dynamic=True),
    "export": lambda model: exported(model).module(),
    "strict export": lambda model: exported(model, strict=True).module(),
    "decomposed export": lambda model: exported(model).run_decompositions().module(),
}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *[("while_loop", way) for way in WAYS],
        *[(name, "eager") for name in FUNCTIONS if name != "while_loop"],
        ("pure_callback", "compile"),
        ("pure_callback", "export"),
        ("a rule and a loop", "vmap"),
    ],
)
def test_values_without_gradients(name: str, way: str) -> None:
    """The forward pass gives its value; the backward pass alone raises, each time it is tried."""
    fun, error = FUNCTIONS[name]
    model = Model(wrap(fun))
    use = WAYS[way](model)

    for _ in range(2):
        y = use(torch.ones(2))
        assert [8.0, 8.0] == y.tolist()
        with pytest.raises(error):
            y.sum().backward()
        with torch.no_grad():
            assert [16.0, 16.0] == use(torch.full((2,), 2.0)).tolist()


@pytest.mark.parametrize("grad_mode", [torch.no_grad, torch.inference_mode])
def test_compiled_without_gradients(grad_mode: Any) -> None:
    """Where gradients are off there is no backward pass to fail."""
    model = Module(loop, torch.tensor(2.0))

    with grad_mode():
        assert [8.0, 8.0] == compiled(model)(torch.ones(2)).tolist()


def test_gradients_that_are_asked_for_raise() -> None:
    """With torch.func, with create_graph, for some results only: what is missing is said."""
    f = wrap(lambda p, x: (loop(p, x), x * p))
    p, x = torch.tensor(2.0, requires_grad=True), torch.ones(2)

    with pytest.raises(GradientTypeError):
        torch.func.grad(lambda p: f(p, x)[0].sum())(p.detach())
    with pytest.raises(GradientTypeError):
        torch.autograd.grad(f(p, x)[0].sum(), p, create_graph=True)
    with pytest.raises(GradientTypeError):
        f(p, x)[1].sum().backward()


def test_forward_mode_works() -> None:
    """A loop has derivatives in forward mode, also where a parameter requires gradients."""
    f = wrap(loop)
    p, x = torch.tensor(2.0), torch.ones(2)

    results = torch.func.jvp(lambda p: f(p, x), (p,), (torch.tensor(1.0),))

    assert [[8.0, 8.0], [12.0, 12.0]] == [r.tolist() for r in results]


def test_loops_that_do_not_depend_on_parameters_have_gradients() -> None:
    """Only the way to a parameter counts."""
    f = wrap(lambda p, x: p * loop(tnp.float32(2.0), x))
    p = torch.tensor(3.0, requires_grad=True)

    f(p, torch.ones(2)).sum().backward()

    assert p.grad is not None
    assert 16.0 == p.grad.item()
