"""Wrapped functions that compute the same share what was compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.programs import compile_or_load


def layer(slope: float) -> Callable[..., Any]:
    """A function that is made anew for each layer of a network."""

    def leaky(x: Any, w: Any) -> Any:
        h = tnp.sin(x @ w)
        return tnp.where(h > 0, h, slope * h)

    return leaky


def train(wrapped: Callable[..., Any], x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One step of a layer, forward and backward: the gradient."""
    (gradient,) = torch.autograd.grad(wrapped(x, w).sum(), w)
    return gradient


def test_equal_layers_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    compile_and_load = compile_or_load.compile_and_load

    def counted(client: Any, module: Any, *args: Any) -> Any:
        compiled.append(module)
        return compile_and_load(client, module, *args)

    monkeypatch.setattr(compile_or_load, "compile_and_load", counted)
    x, w = torch.randn(5, 3), torch.randn(3, 4, requires_grad=True)
    first = tb.torch.wrap(layer(0.1))
    expected = train(first, x, w)
    assert compiled
    compiled.clear()

    equal = [tb.torch.wrap(layer(0.1)) for _ in range(3)]
    for wrapped in equal:
        torch.testing.assert_close(train(wrapped, x, w), expected)
    assert not compiled

    other = tb.torch.wrap(layer(0.2))
    assert not torch.equal(train(other, x, w), expected)
    assert compiled  # another constant, another program
