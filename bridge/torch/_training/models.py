"""What a step trains: the tensors of a module, and its function of them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from operator import is_not
from typing import Any, final

import torch
from torch.utils import _pytree as torch_trees

from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.interop.torch_adapter import torch_adapter
from tracebridge.interop.trees import export_tree
from tracebridge.random.keys import fold_in
from tracebridge.torch._translate.programs import Program, exported
from tracebridge.torch.module import Module
from tracebridge.torch.translating import TranslatedModule

Programs = Callable[[bool, Any, Any], Program]


class Model(abc.ABC):
    """A module as its tensors, each once, and a function of their values."""

    name: str

    @abc.abstractmethod
    def tensors(self) -> list[torch.Tensor]:
        """Parameters and buffers as they are now, always in the same order."""

    @abc.abstractmethod
    def mode(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, bool]:
        """What decides the function besides types of arguments; and whether it takes a key."""

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
        self._unique: list[torch.Tensor] = []
        # Which of them each leaf of the tree is.
        self._order: tuple[int, ...] = ()

    def tensors(self) -> list[torch.Tensor]:
        leaves = self._module.leaves()
        if len(leaves) != len(self._last) or any(map(is_not, leaves, self._last)):
            places: dict[int, int] = {}
            self._order = tuple([places.setdefault(id(x), len(places)) for x in leaves])
            self._unique = list({id(x): x for x in leaves}.values())
            self._last = leaves
        return self._unique

    def mode(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, bool]:
        del args
        drawing = [name for name, _ in self._module.function.more.drawing if name not in kwargs]
        return (self._order, self._module.training), bool(drawing)

    def call(
        self, mode: Any, values: Sequence[Any], args: Any, kwargs: dict[str, Any], key: Any
    ) -> tuple[Any, dict[int, Any]]:
        module = self._module
        order, training = mode
        named = dict(kwargs)
        if module.train_argname is not None:
            named.setdefault(module.train_argname, training)
        if key is not None:
            names = [name for name, _ in module.function.more.drawing if name not in named]
            for i, name in enumerate(names):
                named[name] = fold_in(key, i)
        outs, changed = module.changed_by([values[i] for i in order], args, named)
        return outs, {order[i]: new for i, new in changed.items()}


@final
class TorchModel(Model):
    """A module of torch, translated; ``programs`` gives its program in a mode for arguments."""

    def __init__(
        self, module: torch.nn.Module, names: Mapping[str, str], programs: Programs
    ) -> None:
        """``names``: of all tensors by name, the first name of the same tensor."""
        self.name = type(module).__name__
        self._module = module
        self._programs = programs
        self._firsts = list(dict.fromkeys(names.values()))
        self._places = {name: i for i, name in enumerate(self._firsts)}
        self._buffers = {name for name, _ in module.named_buffers()}
        self._owners: list[tuple[Any, str]] = []
        for name in self._firsts:
            path, _, last = name.rpartition(".")
            self._owners.append((module.get_submodule(path), last))

    def tensors(self) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for owner, name in self._owners:
            x = owner._parameters.get(name)
            found.append(owner._buffers[name] if x is None else x)
        return found

    def mode(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, bool]:
        program = self._programs(self._module.training, args, kwargs)
        return program, program.draws

    def call(
        self, mode: Any, values: Sequence[Any], args: Any, kwargs: dict[str, Any], key: Any
    ) -> tuple[Any, dict[int, Any]]:
        state = dict(zip(self._firsts, values, strict=True))
        buffers = {k: v for k, v in state.items() if k in self._buffers}
        params = {k: v for k, v in state.items() if k not in self._buffers}
        outputs, after = mode(params, buffers, key, args, kwargs)
        return outputs, {self._places[name]: after[name] for name in mode.mutated}


def model_of(module: Any) -> Model:
    """The model of what a user gives.

    Raises:
        ArgumentSpecError: it is no module whose function we know.
    """
    if isinstance(module, Module):
        nums, names = module.function.static
        positional = module.function.splitter.parameters
        known = {positional[i] if i < len(positional) else str(i) for i in nums}
        if (known | set(names)) - {module.train_argname}:
            msg = "train_step: the module has static arguments"
            raise ArgumentSpecError(msg, hint="bind them to its function by functools.partial")
        return OwnModel(module)
    if isinstance(module, TranslatedModule):
        source = module.source
        if isinstance(source, torch.nn.Module):
            return TorchModel(source, module.names, lambda train, *_: module.program(train=train))
        msg = "train_step: the model was made of an ExportedProgram, which no optimizer trains"
        raise ArgumentSpecError(msg, hint="give the module itself to from_module")
    if isinstance(module, torch.nn.Module):
        names = _first_names(module)
        return TorchModel(module, names, _translations(module, names))
    msg = f"train_step: module is of type {type(module).__name__}"
    raise ArgumentSpecError(msg, expected="a tracebridge.torch.Module or an nn.Module")


def _first_names(module: torch.nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    pairs = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    return {name: first.setdefault(id(x), name) for name, x in pairs}


def _translations(module: torch.nn.Module, names: Mapping[str, str]) -> Programs:
    """Programs for each mode and each kind of arguments, made at their first use."""
    known: dict[Any, Program] = {}

    def program(train: bool, args: Any, kwargs: Any) -> Program:
        leaves, spec = torch_trees.tree_flatten((tuple(args), dict(kwargs)))
        kinds = [(x.shape, x.dtype) if hasattr(x, "shape") else type(x) for x in leaves]
        key = (train, spec, tuple(kinds))
        translation = known.get(key)
        if translation is None:
            label = type(module).__name__
            values, named = export_tree((tuple(args), dict(kwargs)), torch_adapter)
            with torch.enable_grad():
                graph = exported(label, module, values, named, None)
            translation = known[key] = Program(label, graph, names)
        return translation

    return program
