"""What a step trains: the tensors of a module, and its function of them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from operator import is_not
from typing import Any, ClassVar, final

import torch
from torch.utils import _pytree as torch_trees

from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.util.caching import BoundedCache
from tracebridge.interop.torch_adapter import torch_adapter
from tracebridge.interop.trees import export_tree
from tracebridge.random.keys import fold_in
from tracebridge.torch._drawing import Drawing, words_of_given
from tracebridge.torch._training.structure import Structure
from tracebridge.torch._translate.programs import Program, exported
from tracebridge.torch.module import Module
from tracebridge.torch.translating import TranslatedModule

MOST_PROGRAMS = 64  # of one module: for sizes of arguments and states of the module


class Model(abc.ABC):
    """A module as its tensors, each once, and a function of their values."""

    name: str
    bakes_numbers: ClassVar[bool] = False  # whether its programs are for given Python numbers

    @abc.abstractmethod
    def tensors(self) -> list[torch.Tensor]:
        """Parameters and buffers as they are now, always in the same order."""

    def given(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs as a program takes them: words in the place of keys and generators."""
        return args, kwargs

    @abc.abstractmethod
    def mode(self, args: Any, kwargs: dict[str, Any], context: Any) -> tuple[Any, bool]:
        """What decides the function besides types of arguments; and whether it takes a key.

        ``context``: the settings of torch that translations depend on.
        """

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

    def given(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return words_of_given(self._drawing(), args, kwargs)

    def mode(self, args: Any, kwargs: dict[str, Any], context: Any) -> tuple[Any, bool]:
        del context
        return (self._order, self._module.training), bool(self._missing(args, kwargs))

    def _drawing(self) -> Drawing:
        """The inputs that are keys, by their positions behind the trees of the module."""
        drawing, n = self._module.function.more.drawing, self._module.n_trees
        return tuple([(name, place - n) for name, place in drawing])

    def _missing(self, args: Any, kwargs: dict[str, Any]) -> list[str]:
        """The keys that the caller does not give."""
        places = self._drawing()
        return [k for k, place in places if place >= len(args) and kwargs.get(k) is None]

    def call(
        self, mode: Any, values: Sequence[Any], args: Any, kwargs: dict[str, Any], key: Any
    ) -> tuple[Any, dict[int, Any]]:
        module = self._module
        order, training = mode
        named = dict(kwargs)
        if module.train_argname is not None:
            named.setdefault(module.train_argname, training)
        if key is not None:
            for i, name in enumerate(self._missing(args, named)):
                named[name] = fold_in(key, i)
        outs, changed = module.changed_by([values[i] for i in order], args, named)
        return outs, {order[i]: new for i, new in changed.items()}


@final
class TorchModel(Model):
    """A module of torch, translated; ``programs`` gives its program as it is, for arguments."""

    bakes_numbers = True

    def __init__(self, module: torch.nn.Module, programs: Programs) -> None:
        self.name = type(module).__name__
        self._module = module
        self._programs = programs
        self._structure = Structure(module)

    def tensors(self) -> list[torch.Tensor]:
        if not self._structure.is_current:
            structure = Structure(self._module)
            if not structure.fits(self._structure):
                self._programs.forget(structure)
            self._structure = structure
        return self._structure.tensors()

    def mode(self, args: Any, kwargs: dict[str, Any], context: Any) -> tuple[Any, bool]:
        program = self._programs.of(self._structure, args, kwargs, context)
        return program, program.draws

    def call(
        self, mode: Any, values: Sequence[Any], args: Any, kwargs: dict[str, Any], key: Any
    ) -> tuple[Any, dict[int, Any]]:
        firsts, names = self._structure.firsts, self._structure.buffers
        state = dict(zip(firsts, values, strict=True))
        buffers = {k: v for k, v in state.items() if k in names}
        params = {k: v for k, v in state.items() if k not in names}
        outputs, after = mode(params, buffers, key, args, kwargs)
        return outputs, {firsts.index(name): after[name] for name in mode.mutated}


class Programs(abc.ABC):
    """The programs of a module of torch."""

    @abc.abstractmethod
    def of(self, structure: Structure, args: Any, kwargs: dict[str, Any], context: Any) -> Program:
        """The program for arguments; ``context``: what else translations depend on."""

    @abc.abstractmethod
    def forget(self, structure: Structure) -> None:
        """The module has another structure now."""


@final
class _Given(Programs):
    """Those of a model of ``from_module``."""

    def __init__(self, model: TranslatedModule) -> None:
        self._model = model

    def of(self, structure: Structure, args: Any, kwargs: dict[str, Any], context: Any) -> Program:
        del structure, args, kwargs, context
        source: Any = self._model.source
        return self._model.program(train=source.training)

    def forget(self, structure: Structure) -> None:
        del structure
        raise ArgumentSpecError(
            f"train_step: the module of {self._model!r} has other modules or names than before",
            hint="call from_module and train_step again, or give train_step the module itself",
        )


@final
class _Translations(Programs):
    """Programs for each state of the module and each kind of arguments, made at first use."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._known: BoundedCache[Program] = self._none()

    @staticmethod
    def _none() -> BoundedCache[Program]:
        return BoundedCache("programs of a module", MOST_PROGRAMS, register=False)

    def of(self, structure: Structure, args: Any, kwargs: dict[str, Any], context: Any) -> Program:
        leaves: Sequence[Any] = args
        spec: Any = len(args)
        if kwargs or not all([type(x) is torch.Tensor for x in args]):
            leaves, spec = torch_trees.tree_flatten((tuple(args), dict(kwargs)))
        kinds = [
            (x.shape, x.dtype) if hasattr(x, "shape") else (type(x), x if is_plain(x) else None)
            for x in leaves
        ]
        key = (structure.settings, spec, tuple(kinds), context)
        translation = self._known.get(key)
        if translation is None:
            module = self._module
            label = type(module).__name__
            values, named = export_tree((tuple(args), dict(kwargs)), torch_adapter)
            with torch.enable_grad():
                graph = exported(label, module, values, named, None)
            translation = Program(label, graph, structure.names)
            self._known.set(key, translation)
        return translation

    def forget(self, structure: Structure) -> None:
        del structure
        self._known = self._none()


def is_plain(x: object) -> bool:
    """Whether exported programs are made for this value: a number of Python, or a string."""
    return type(x) in {bool, int, float, complex, str}


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
            return TorchModel(source, _Given(module))
        msg = "train_step: the model was made of an ExportedProgram, which no optimizer trains"
        raise ArgumentSpecError(msg, hint="give the module itself to from_module")
    if isinstance(module, torch.nn.Module):
        return TorchModel(module, _Translations(module))
    msg = f"train_step: module is of type {type(module).__name__}"
    raise ArgumentSpecError(msg, expected="a tracebridge.torch.Module or an nn.Module")
