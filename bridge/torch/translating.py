"""``from_module``: a torch module as a function of arrays, with its parameters apart."""

from __future__ import annotations

import copy
import inspect
import io
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, final

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as torch_trees

from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.interop.torch_adapter import torch_adapter
from tracebridge.interop.trees import export_tree
from tracebridge.torch._translate.programs import Program, exported


@final
class TranslatedModule:
    """A torch module as a function of its parameters and inputs: what ``from_module`` gives.

    ``model(params, *inputs)`` gives the outputs in evaluation mode with the stored buffers;
    ``model.apply(params, buffers, *inputs)`` gives outputs and new buffers. ``model.params`` and
    ``model.buffers`` are dicts by the names of ``state_dict``.
    """

    def __init__(
        self, source: Any, example_args: tuple[Any, ...], kwargs: Any, dynamic_shapes: Any
    ) -> None:
        self._source = source
        self._example = example_args, kwargs, dynamic_shapes
        self._programs: dict[bool | None, Program] = {}
        if isinstance(source, ExportedProgram):
            self.__name__ = type(source.graph_module).__name__
            pairs = list(source.named_parameters())
            buffers = list(source.named_buffers())
        else:
            self.__name__ = type(source).__name__
            pairs = list(source.named_parameters(remove_duplicate=False))
            buffers = list(source.named_buffers(remove_duplicate=False))
        self._names: dict[str, str] = {}
        self.params = self._imported(pairs)
        self.buffers = self._imported(buffers)
        # The arrays over tensors of the source, as long as ``params`` and ``buffers`` have them.
        self._shared = {**self.params, **self.buffers}
        self.__signature__ = _signature(source)

    @property
    def source(self) -> torch.nn.Module | ExportedProgram:
        """What was translated."""
        return self._source

    @property
    def names(self) -> Mapping[str, str]:
        """The first name of each parameter and buffer, by each of its names."""
        return self._names

    def _imported(self, pairs: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Any]:
        """Tensors as arrays under their first names; where memory allows, without a copy."""
        first: dict[int, str] = {}
        arrays: dict[str, Any] = {}
        for name, tensor in pairs:
            self._names[name] = first.setdefault(id(tensor), name)
            if self._names[name] == name:
                arrays[name] = torch_adapter.import_(tensor.detach())
        return arrays

    def program(self, *, train: bool) -> Program:
        """The program of a mode, made at its first use."""
        source = self._source
        mode = None if isinstance(source, ExportedProgram) else train
        program = self._programs.get(mode)
        if program is None:
            if isinstance(source, ExportedProgram):
                graph = source
            else:
                modes = [(m, m.training) for m in source.modules()]
                try:
                    source.train(train)
                    graph = exported(self.__name__, source, *self._example)
                finally:
                    for module, training in modes:
                        module.training = training
            program = self._programs[mode] = Program(self.__name__, graph, self._names)
        return program

    @api_boundary
    def __call__(self, params: Mapping[str, Any], /, *inputs: Any, **kwargs: Any) -> Any:
        """The outputs in evaluation mode, with the stored buffers."""
        return self.program(train=False)(params, self.buffers, None, inputs, kwargs)[0]

    @api_boundary
    def apply(
        self,
        params: Mapping[str, Any],
        buffers: Mapping[str, Any],
        /,
        *inputs: Any,
        train: bool = False,
        key: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """Outputs and new buffers.

        Args:
            params: parameters, by their names.
            buffers: buffers, by their names.
            *inputs: arrays, like the example arguments.
            train: whether the module is in training mode. An ``ExportedProgram`` has one mode.
            key: key of ``tracebridge.random`` for dropout and other random numbers.
            **kwargs: further arguments, likewise.

        Raises:
            ArgumentSpecError: an argument does not fit the program, or there is no ``key``.
        """
        if train and isinstance(self._source, ExportedProgram):
            raise ArgumentSpecError(
                f"apply({self.__name__}): an ExportedProgram has the mode that it was exported in",
                hint="leave train out, or give the module to from_module",
            )
        return self.program(train=train)(params, buffers, key, inputs, kwargs)

    def __repr__(self) -> str:
        return f"from_module({self.__name__})"

    def __deepcopy__(self, memo: dict[int, Any]) -> TranslatedModule:
        """A model of a copy of the module, with the same programs."""
        with warnings.catch_warnings():
            # Of the way in which torch copies its own trees.
            warnings.simplefilter("ignore", FutureWarning)
            source, example = copy.deepcopy((self._source, self._example), memo)
        model = _again(source, example, *self._written_down())
        model._programs.update(self._programs)
        return model

    def __reduce__(self) -> Any:
        """A model of a copy of the module, which is exported again."""
        source = self._source
        if isinstance(source, ExportedProgram):
            file = io.BytesIO()
            torch.export.save(source, file)
            source = _Saved(file.getvalue())
        return _again, (source, self._example, *self._written_down())

    def _written_down(self) -> tuple[Any, Any]:
        """Names, and parameters and buffers without arrays that are the tensors of the source."""
        shared = {id(x): _Shared(name) for name, x in self._shared.items()}
        values = [
            {name: shared.get(id(x), x) for name, x in given.items()}
            for given in (self.params, self.buffers)
        ]
        return self._names, values

    def restore(self, names: Mapping[str, str], values: Any) -> None:
        """Take what ``_written_down`` gave: files of programs forget which tensors are the same."""
        self._names.update(names)
        self.params, self.buffers = [
            {name: self._shared[x.name] if type(x) is _Shared else x for name, x in given.items()}
            for given in values
        ]


class _Saved(NamedTuple):
    """An ``ExportedProgram`` as a file."""

    content: bytes


class _Shared:
    """In the place of an array that is a tensor of the module."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def _again(source: Any, example: Any, names: Any, values: Any) -> TranslatedModule:
    if type(source) is _Saved:
        source = torch.export.load(io.BytesIO(source.content))
    model = TranslatedModule(source, *example)
    model.restore(names, values)
    return model


def _signature(source: Any) -> inspect.Signature:
    """``params``, then the inputs of the module."""
    first = inspect.Parameter("params", inspect.Parameter.POSITIONAL_ONLY)
    rest: list[inspect.Parameter] = []
    if not isinstance(source, ExportedProgram):
        rest = [
            p.replace(annotation=inspect.Parameter.empty)
            for p in inspect.signature(source.forward).parameters.values()
        ]
    else:
        rest = [inspect.Parameter("inputs", inspect.Parameter.VAR_POSITIONAL)]
    return inspect.Signature([first, *rest])


@api_boundary
def from_module(
    module: torch.nn.Module | ExportedProgram,
    example_args: tuple[Any, ...] = (),
    dynamic_shapes: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
) -> TranslatedModule:
    """A torch module as a function of arrays, translated operator by operator.

    The module is exported by ``torch.export``, for evaluation at once, for training at the first
    use of it, and its graph becomes operations of this package: they are compiled, differentiated
    and mapped like any others, and exported without torch. Values and derivatives are those of
    torch, up to rounding; random numbers come from keys and are others.

    Parameters and buffers share the memory of the module where that is aligned: training the
    module in place changes them.

    Args:
        module: module, or the result of ``torch.export.export``.
        example_args: tuple of tensors or arrays to export the module at; not used for an
            exported program.
        dynamic_shapes: sizes that may change, as ``torch.export`` takes them:
            ``({0: torch.export.Dim("batch")},)`` for axis 0 of one input.
        example_kwargs: further arguments by name, likewise.

    Returns:
        ``model`` with ``model(params, *inputs)``, ``model.apply(params, buffers, *inputs, train=,
        key=)``, and the dicts ``model.params`` and ``model.buffers``. A parameter with several
        names (tied weights) is there once, under its first name.

    Raises:
        ArgumentSpecError: ``module`` is something else, or ``example_args`` no tuple.
        ExportError: torch cannot export the module: control flow or shapes depend on values, or
            the example arguments do not fit; or it writes to its inputs.
        MissingRuleError: an operator has no translation.

    >>> import torch
    >>> import tracebridge as tb
    >>> from tracebridge.torch import from_module
    >>> model = from_module(torch.nn.Linear(3, 2), (torch.ones(1, 3),))
    >>> {name: p.shape for name, p in model.params.items()}
    {'weight': (2, 3), 'bias': (2,)}
    >>> grads = tb.grad(lambda p, x: model(p, x).sum())(model.params, tb.numpy.ones((1, 3)))
    >>> grads["bias"]
    Array([1., 1.], dtype=float32)
    """
    source: Any = module
    examples: Any = example_args
    if not isinstance(source, torch.nn.Module | ExportedProgram):
        raise ArgumentSpecError(
            f"from_module: module is {source!r} of type {type(source).__name__}",
            expected="an nn.Module or a torch.export.ExportedProgram",
            hint="call_torch calls torch functions; from_torch converts tensors",
        )
    if not isinstance(examples, tuple | list):
        raise ArgumentSpecError(
            f"from_module: example_args is of type {type(examples).__name__}",
            expected="a tuple with one example for each argument",
        )
    args = tuple(export_tree(tuple(examples), torch_adapter))
    kwargs = export_tree(dict(example_kwargs or {}), torch_adapter)
    args, kwargs = _apart((args, kwargs))
    model = TranslatedModule(source, args, kwargs, dynamic_shapes)
    model.program(train=False)  # errors of the translation are those of this call
    return model


def _apart(examples: Any) -> Any:
    """The examples with a copy for each tensor that comes again: torch takes one for the other."""
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        again = id(leaf) in seen
        seen.add(id(leaf))
        return leaf.detach().clone() if again else leaf

    return torch_trees.tree_map(own, examples)
