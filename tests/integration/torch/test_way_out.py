"""Where tensors and traced values meet by mistake, the message says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.ir.operators import OF_TENSORS
from tracebridge.torch import wrap

T = torch.ones(3)
G = torch.ones(3, requires_grad=True)
X = tnp.ones(3)

# torch's functions on traced values, and what to use.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sin": (torch.sin, "tracebridge.numpy.sin"),
    "stack": (lambda x: torch.stack([x, x]), "tracebridge.numpy.stack"),
    "cat": (lambda x: torch.cat([x, x]), "tracebridge.numpy.concatenate"),
    "relu": (torch.nn.functional.relu, r"tracebridge.numpy.maximum\(x, 0\)"),
    "Linear": (torch.nn.Linear(3, 3), "pass it as an argument"),
    "as_tensor": (torch.as_tensor, "tracebridge.numpy"),
    "from_dlpack": (torch.from_dlpack, "tracebridge.numpy"),
}
# Tensors where arrays are expected.
TENSORS: dict[str, Callable[[], Any]] = {
    "jit": lambda: tb.jit(lambda x: x)(T),
    "grad": lambda: tb.grad(lambda x: x.sum())(G),
    "vmap": lambda: tb.vmap(lambda x: x)(G),
    "jvp": lambda: tb.jvp(lambda x: x, (T,), (T,)),
    "vjp": lambda: tb.vjp(lambda x: x, T),
    "eval_shape": lambda: tb.eval_shape(lambda x: x, "a"),
    "checkpoint": lambda: tb.checkpoint(lambda x: x)(T),
    "scan": lambda: lax.scan(lambda c, x: (c, x), 0.0, T),
    "sin": lambda: tnp.sin(T),
    "stack": lambda: tnp.stack([T, T]),
    "lax": lambda: lax.neg(T),
    "index": lambda: X[torch.tensor([0])],
    "operator": lambda: X + T,
    "reflected operator": lambda: T @ X,
    "closed over": lambda: tb.jit(lambda x: x * G)(X),
    "closed over, reflected": lambda: tb.jit(lambda x: G * x)(X),
    "closed over in wrap": lambda: wrap(lambda x: T - x)(T),
    "closed over in a function": lambda: wrap(lambda x: tnp.maximum(x, T))(T),
    "returned": lambda: tb.jit(lambda x: T)(X),
}
del TENSORS["eval_shape"]  # takes whatever has a shape and a dtype


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("transform", [tb.jit, tb.make_jaxpr, lambda f: lambda _: wrap(f)(T)])
def test_functions_of_torch_on_traced_values(name: str, transform: Any) -> None:
    """The error names the function that does it here."""
    function, here = FUNCTIONS[name]
    with pytest.raises(tb.errors.TracerArrayConversionError, match=here) as caught:
        transform(function)(X)

    assert "a traced value of type f32[3]" in str(caught.value)
    assert "PyTorch" in str(caught.value)


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_where_arrays_are_expected(name: str) -> None:
    """The error names both ways over the border."""
    with pytest.raises(tb.errors.UnsupportedDtypeError) as caught:
        TENSORS[name]()

    for word in ("tracebridge.torch.wrap", "tracebridge.torch.from_torch", "as an argument"):
        assert word in str(caught.value).replace("\n", " ")


def test_methods_of_tensors_have_an_equivalent() -> None:
    """Attributes that tensors have and arrays do not."""
    with pytest.raises(AttributeError, match=r"tracebridge.numpy.expand_dims"):
        wrap(lambda x: x.unsqueeze(0))(T)
    with pytest.raises(AttributeError, match=r"stop_gradient"):
        X.detach()


@pytest.mark.parametrize("name", sorted(OF_TENSORS))
def test_every_equivalent_is_told(name: str) -> None:
    """What only tensors have says what arrays have, also while they are traced."""
    assert hasattr(T, name)

    def check(x: Any) -> Any:
        assert not hasattr(x, name)
        with pytest.raises(AttributeError) as caught:
            getattr(x, name)
        assert OF_TENSORS[name] in str(caught.value)
        return x

    check(X)
    tb.make_jaxpr(check)(X)


def test_comparison_with_a_tensor_is_no_error() -> None:
    """``in`` and ``==`` of containers compare whatever they hold."""
    assert (X == T) is False
    assert (X != T) is True


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch announces its refusal
def test_tensors_that_refuse_operations() -> None:
    """A subclass that knows torch's own operations alone is named, with what to pass."""

    class Refusing(torch.Tensor):
        """Takes no operation."""

        @classmethod
        def __torch_dispatch__(cls, *call: Any) -> Any:
            return NotImplemented

    mask = torch.tensor([True, False, True])
    refused = torch.Tensor._make_subclass(Refusing, torch.ones(3))  # type: ignore[attr-defined]  # the stubs lack it
    masked = torch.masked.masked_tensor(torch.ones(3), mask)
    for x, words in ((masked, r"x\.to_tensor\(0\.0\)"), (refused, "plain tensors")):
        with pytest.raises(tb.errors.ExchangeError, match=words) as caught:
            wrap(lambda x: x * 2)(x)
        assert f"got a {type(x).__name__}" in str(caught.value)
