"""Losses of torch as functions of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import torch

from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import flatten
from tracebridge.interop.torch_adapter import TORCH_DTYPES, torch_adapter
from tracebridge.torch._translate.programs import Program, exported


@final
class _Called(torch.nn.Module):
    """A function of torch as a module, which torch can export."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        super().__init__()
        self.fun = fun

    def forward(self, outputs: Any, target: Any) -> Any:
        return self.fun(outputs, target)


def is_of_torch(loss: Any) -> bool:
    """Whether a loss is a module or function of torch itself, or a ``partial`` of one."""
    while isinstance(loss, functools.partial):
        loss = loss.func
    module = str(getattr(loss, "__module__", ""))
    return isinstance(loss, torch.nn.Module) or module.partition(".")[0] == "torch"


def translated(loss: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A loss of torch as a function of arrays: translated for each kind of arguments.

    Buffers, such as weights of classes, are constants.
    """

    def call(outputs: Any, target: Any) -> Any:
        leaves, tree = flatten((outputs, target))
        examples = tree.unflatten([_example(x) for x in leaves])
        module = _Called(loss)
        label = type(loss).__name__ if isinstance(loss, torch.nn.Module) else name_of(loss)
        program = Program(label, exported(label, module, examples, {}, None), {})
        state = {name: _array(x) for name, x in module.state_dict().items()}
        return program(state, state, None, (outputs, target), {})[0]

    return call


def _example(x: Any) -> torch.Tensor:
    aval = as_value(x).aval
    return torch.zeros(aval.shape, dtype=TORCH_DTYPES[aval.dtype])


def _array(x: torch.Tensor) -> Any:
    return as_value(torch_adapter.import_(x.detach(), copy=True))
