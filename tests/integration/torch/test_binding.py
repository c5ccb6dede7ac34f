"""Wrapped functions as methods, and as attributes of modules that torch compiles."""

from __future__ import annotations

import functools

import torch

import tracebridge.numpy as tnp
from tracebridge.torch import wrap

double = wrap(lambda x: x * 2)


class Scaled(torch.nn.Module):
    """One wrapped function in the class, one in the instance."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 3.0
        self.double = double

    @functools.partial(wrap, static_argnums=0)
    def scaled(self, x):
        """A method: the instance is a compile-time constant."""
        return tnp.sin(x) * self.scale

    def forward(self, x):
        """The attribute of the instance."""
        return self.double(x) + 1


def test_functions_in_classes_bind_to_instances():
    """As functions do; the class itself has the wrapped function."""
    x = torch.ones(3)

    torch.testing.assert_close(Scaled().scaled(x), x.sin() * 3)
    assert Scaled.scaled.traces >= 1


def test_attributes_of_instances_do_not_bind():
    """Neither eagerly nor in compiled code, whatever the version of torch."""
    module, x = Scaled(), torch.ones(3)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")

    torch.testing.assert_close(module(x), 2 * x + 1)
    torch.testing.assert_close(compiled(x), 2 * x + 1)
