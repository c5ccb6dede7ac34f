"""What a module of torch is made of at a step: its modules, tensors and settings."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not
from typing import Any, final

import torch


@final
class Structure:
    """The modules of a net and their tensors, each under its first name."""

    def __init__(self, root: torch.nn.Module) -> None:
        self._root = root
        self._modules = _modules_of(root)
        self._tensors = _tensors_of(self._modules)
        self.names = _first_names(root)
        self.firsts = list(dict.fromkeys(self.names.values()))
        self.buffers = {name for name, _ in root.named_buffers()}
        self._owners: list[tuple[dict[str, Any], str]] = []
        for name in self.firsts:
            path, _, last = name.rpartition(".")
            owner: Any = root.get_submodule(path)
            table = owner._buffers if name in self.buffers else owner._parameters
            self._owners.append((table, last))
        # Of modules of torch itself all numbers decide what they compute.
        self._numbers = [
            (vars(m), name)
            for m in self._modules
            if type(m).__module__.startswith("torch.nn.")
            for name, value in vars(m).items()
            if name[0] != "_" and (value is None or type(value) in {bool, float})
        ]

    @property
    def is_current(self) -> bool:
        """Whether the module still has these modules and these tensors."""
        modules = _modules_of(self._root)
        return _same(modules, self._modules) and _same(_tensors_of(modules), self._tensors)

    def fits(self, other: Structure) -> bool:
        """Whether programs made for one are programs for the other, with other tensors."""
        return (
            _same(self._modules, other._modules)
            and self.names == other.names
            and self.buffers == other.buffers
        )

    def tensors(self) -> list[torch.Tensor]:
        """Each tensor once, in the order of ``firsts``."""
        return [table[name] for table, name in self._owners]

    @property
    def settings(self) -> Any:
        """What decides the function besides tensors and types, as far as it can be seen."""
        hooks: list[Any] = []
        for m in self._modules:
            hooks += m._forward_hooks
            hooks += m._forward_pre_hooks
        return (
            tuple([m.training for m in self._modules]),
            tuple([table.get(name) for table, name in self._numbers]),
            tuple(hooks),
        )


def _modules_of(root: torch.nn.Module) -> list[Any]:
    """The module and those inside: ``modules()`` takes several times as long."""
    found: list[Any] = [root]
    seen = {id(root)}
    for module in found:
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


def _tensors_of(modules: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for module in modules:
        found += module._parameters.values()
        found += module._buffers.values()
    return found


def _same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and not any(map(is_not, left, right))


def _first_names(module: torch.nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    pairs = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return {name: first.setdefault(id(x), name) for name, x in pairs}
