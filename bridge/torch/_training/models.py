"""What a step trains: the tensors of a module, and its function of them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from operator import is_not
from typing import Any, final

import torch

from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.torch.module import Module


class Model(abc.ABC):
    """A module as its tensors, each once, and a function of their values."""

    name: str

    @abc.abstractmethod
    def read(self) -> tuple[list[torch.Tensor], Any]:
        """Parameters and buffers as they are now, each once and always in the same order.

        With what decides the function besides types of arguments, such as the mode of training.
        """

    @property
    def draws(self) -> bool:
        """Whether the function takes a key."""
        return False

    @abc.abstractmethod
    def call(
        self, mode: Any, values: Sequence[Any], args: Any, kwargs: dict[str, Any], key: Any
    ) -> tuple[Any, dict[int, Any]]:
        """The outputs with ``values`` for the tensors, in the ``mode`` that was read.

        With new values of tensors by their position.
        """


@final
class OwnModel(Model):
    """A ``tracebridge.torch.Module``."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.name = f"{type(module).__name__}({module.function.__name__})"

        self._last: list[torch.Tensor] = []
        self._read: tuple[list[torch.Tensor], Any] = ([], ())

    def read(self) -> tuple[list[torch.Tensor], Any]:
        leaves = self._module.leaves()
        if len(leaves) != len(self._last) or any(map(is_not, leaves, self._last)):
            places: dict[int, int] = {}
            order = tuple([places.setdefault(id(x), len(places)) for x in leaves])
            unique = list({id(x): x for x in leaves}.values())
            # The mode says which leaves of the tree are one tensor.
            self._last, self._read = leaves, (unique, order)
        return self._read

    def call(
        self, mode: Any, values: Sequence[Any], args: Any, kwargs: dict[str, Any], key: Any
    ) -> tuple[Any, dict[int, Any]]:
        del key
        params = self._module.tree_of([values[i] for i in mode])
        return self._module.function.fun(params, *args, **kwargs), {}


def model_of(module: Any) -> Model:
    """The model of what a user gives.

    Raises:
        ArgumentSpecError: it is no module whose function we know.
    """
    if isinstance(module, Module):
        if any(module.function.static):
            msg = "train_step: the module has static arguments"
            raise ArgumentSpecError(msg, hint="bind them to its function by functools.partial")
        return OwnModel(module)
    msg = f"train_step: module is of type {type(module).__name__}"
    hint = "translate an nn.Module by tracebridge.torch.from_module first"
    raise ArgumentSpecError(msg, expected="a tracebridge.torch.Module", hint=hint)
