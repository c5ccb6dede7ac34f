"""``Module``: a function with its parameters as an ``nn.Module``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from tracebridge._api.args.argnums import names as as_names
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import check_unmasked, put_numpy
from tracebridge.core.tree.tree import flatten, leaves_with_path
from tracebridge.core.util.public_path import public_path
from tracebridge.interop.torch_adapter import torch_adapter
from tracebridge.torch._crossing.structure import describe, rebuild
from tracebridge.torch._stateful import (
    Extra,
    Stateful,
    Words,
    snapshots,
    words_of_key,
    write_state,
)
from tracebridge.torch.wrapping import Wrapped, wrap

_AT_ROOT = {"params": "param", "buffers": "buffer", "state": "state_"}


@final
class Layout:
    """The structure of a tree of parameters; can be copied and pickled if its node types can."""

    __slots__ = ("n", "skeleton", "structure", "tree", "words")

    def __init__(self, skeleton: Any, words: Words) -> None:
        self.skeleton = skeleton
        self.words = words
        self.tree = flatten(skeleton)[1]
        self.n = self.tree.num_leaves  # which Dynamo cannot ask for
        try:
            self.structure: Any = describe(skeleton, [])
        except ExchangeError:
            self.structure = None  # has nodes that Dynamo cannot rebuild

    def __reduce__(self) -> Any:
        return Layout, (self.skeleton, self.words)

    def of(self, leaves: Sequence[Any]) -> Any:
        """The tree with these leaves; Dynamo reads these lines."""
        if torch.compiler.is_compiling() and self.structure is not None:
            return rebuild(self.structure, iter(leaves))
        return self.tree.unflatten(leaves)


@public_path("tracebridge.torch")
class Module(torch.nn.Module):
    """A function ``fun(params, *args, **kwargs)`` as a module that owns ``params``.

    Inexact leaves of ``params`` become parameters, leaves of integers and bools become buffers,
    named by their path: ``{'dense': {'w': ...}}`` gives ``dense.w``. Everything else is as with
    any module: ``state_dict``, ``to``, ``deepcopy``, pickling (where ``fun`` can be pickled),
    optimizers, DistributedDataParallel, ``torch.compile``, ``torch.func.functional_call``.

    With ``buffers`` and ``state`` the function is ``fun(params, buffers, state, *args)``, without
    those that are not given; with ``state`` it returns ``(outputs, new_state)``, and the new state
    is written to the module's buffers after each call, in every mode. It has no derivative.

    Args:
        fun: function of a tree of parameters and further arguments, made of tracebridge
            operations; or the result of ``wrap``.
        params: tree of Arrays, NumPy arrays, tensors and numbers. Values are copied into dense
            memory of torch; an ``nn.Parameter`` is taken as it is, so that it can be shared with
            other modules.
        buffers: tree like ``params`` of values that are not trained; leaves may be keys.
        state: tree like ``buffers`` of values that the function replaces at each call: running
            statistics, averages, caches, keys. Shapes stay the same.
        static_argnums: as for ``wrap``, counted with ``params`` as argument 0.
        static_argnames: as for ``wrap``.
        rng_argnames: as for ``wrap``.
        train_argname: name of an argument of ``fun`` that gets the mode of the module, as a
            constant: True after ``train()``, False after ``eval()``.
        cast_inputs: as for ``wrap``; parameters and arguments are cast, buffers and state are not.

    Raises:
        UnsupportedDtypeError: a leaf of a tree is no tensor, array or number.
        ArgumentSpecError: ``fun`` has no such argument, or a leaf of ``buffers`` or ``state`` is an
            ``nn.Parameter``.

    >>> import torch
    >>> import tracebridge.numpy as tnp
    >>> import tracebridge.torch
    >>> model = tracebridge.torch.Module(lambda p, x: p['scale'] * x, {'scale': tnp.ones(())})
    >>> [name for name, _ in model.named_parameters()]
    ['scale']
    >>> model(torch.ones(2))
    tensor([1., 1.], grad_fn=<tracebridge::<lambda>Backward>)
    """

    def __init__(
        self,
        fun: Any,
        params: Any,
        *,
        buffers: Any = None,
        state: Any = None,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
        rng_argnames: str | Sequence[str] = (),
        train_argname: str | None = None,
        cast_inputs: torch.dtype | str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(fun, Wrapped):
            names = as_names("Module", "static_argnames", static_argnames)
            names += () if train_argname is None else (train_argname,)
            fun = wrap(
                fun,
                static_argnums=static_argnums,
                static_argnames=names,
                rng_argnames=rng_argnames,
                cast_inputs=cast_inputs,
            )
        elif static_argnums != () or static_argnames != () or rng_argnames or cast_inputs:
            msg = f"Module: options about the arguments of {fun!r}, which is wrapped already"
            raise ArgumentSpecError(msg, hint="give them to wrap")
        elif train_argname is not None and train_argname not in fun.static[1]:
            msg = f"Module: train_argname={train_argname!r} is no static argument of {fun!r}"
            raise ArgumentSpecError(msg, hint="name it in static_argnames of wrap")
        self._function = fun
        self._train_argname = train_argname
        # Where each leaf is: path of the group, name in the group.
        self._places: list[tuple[tuple[str, ...], str]] = []
        self._layouts = [self._add(params, "params")]
        words: list[Words] = []
        for tree, name in ((buffers, "buffers"), (state, "state")):
            if tree is not None:
                self._layouts.append(self._add(tree, name))
                words.append(self._layouts[-1].words)
        self._has_state = state is not None
        self._is_plain = len(self._layouts) == 1 and train_argname is None
        # Of the words of keys, and with the changes of the state in the place of a new one.
        self._fun: Wrapped = fun
        if words:
            kept = tuple(range(1, len(words) + 1))
            self._fun = fun.of(Stateful(fun.fun, Extra(tuple(words), self._has_state)), kept)

    def _add(self, tree: Any, kind: str) -> Layout:
        """Own the leaves of a tree."""
        items = leaves_with_path(tree)
        structure = flatten(tree)[1]
        shared: dict[int, Any] = {}
        words: dict[int, str] = {}
        for i, (path, given) in enumerate(items):
            leaf, value = given, None
            if kind == "params":
                value = shared.get(id(leaf))
            else:
                key = words_of_key(leaf)
                if key is not None:
                    words[i], leaf = key
            if value is None:
                value = shared[id(leaf)] = _own(leaf, path, kind)
            self._places.append(self._place([_text(k) for k in path] or [_AT_ROOT[kind]], value))
        return Layout(structure.unflatten(list(range(len(items)))), words)

    def _place(self, names: list[str], value: torch.Tensor) -> tuple[tuple[str, ...], str]:
        """Register a tensor under its path of names; gives where it went."""
        group: torch.nn.Module = self
        path: list[str] = []
        for name in names[:-1]:
            free = _free_name(group, name, group._modules)
            if free not in group._modules:
                group.add_module(free, Group())
            path.append(free)
            group = group._modules[free]  # type: ignore[assignment]  # made above
        name = _free_name(group, names[-1], {})
        if isinstance(value, torch.nn.Parameter):
            group.register_parameter(name, value)
        else:
            group.register_buffer(name, value)
        return tuple(path), name

    @property
    def function(self) -> Wrapped:
        """The function of the trees and further arguments, which changes no module."""
        return self._function

    @property
    def n_trees(self) -> int:
        """How many trees its function gets before the inputs: parameters, buffers, state."""
        return len(self._layouts)

    @property
    def train_argname(self) -> str | None:
        """The argument that gets the mode of the module."""
        return self._train_argname

    def leaves(self) -> list[torch.Tensor]:
        """The leaves of the trees of parameters, buffers and state, one after the other."""
        leaves: list[torch.Tensor] = []
        for path, name in self._places:
            group: Any = self
            for part in path:
                group = group._modules[part]
            # Attributes are looked up in several tables in turn, which takes longer.
            found = group._parameters.get(name)
            leaves.append(getattr(group, name) if found is None else found)
        return leaves

    def trees_of(self, leaves: Sequence[Any]) -> list[Any]:
        """The trees with these leaves: parameters, buffers, state, as far as there are."""
        trees: list[Any] = []
        start = 0
        for layout in self._layouts:
            end = start + layout.n
            trees.append(layout.of(leaves[start:end]))
            start = end
        return trees

    def params(self) -> Any:
        """The tree of parameters as tensors."""
        return self.trees_of(self.leaves())[0]

    def state(self) -> Any:
        """The tree of the state as it is now: the buffers themselves; keys as words of int32."""
        return self.trees_of(self.leaves())[-1] if self._has_state else None

    def changed_by(
        self, leaves: Sequence[Any], args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[int, Any]]:
        """The function itself with these leaves: outputs, and new leaves by their positions."""
        outs = self._fun.body(*self.trees_of(leaves), *args, **kwargs)
        if not self._has_state:
            return outs, {}
        start = len(leaves) - self._layouts[-1].n
        return outs[0], {start + i: new for i, new in outs[1].items()}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._call(args, kwargs)
        try:
            if self._is_plain:
                params = self._layouts[0].tree.unflatten(self.leaves())
                return self._fun(params, *args, **kwargs)
            return self._call(args, kwargs)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def _call(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call; Dynamo reads these lines."""
        if self._train_argname is not None and self._train_argname not in kwargs:
            kwargs = {**kwargs, self._train_argname: self.training}
        leaves = self.leaves()
        if not self._has_state:
            return self._fun(*self.trees_of(leaves), *args, **kwargs)
        start = len(leaves) - self._layouts[-1].n
        state = leaves[start:]
        outs, changed = self._fun(
            *self.trees_of([*leaves[:start], *snapshots(state)]), *args, **kwargs
        )
        write_state(state, changed)
        return outs

    def extra_repr(self) -> str:
        return self._function.__name__


@final
class Group(torch.nn.Module):
    """A node of the tree of parameters."""


def _own(leaf: Any, path: Any, kind: str) -> torch.Tensor:
    """A parameter or buffer with the value of a leaf."""
    if isinstance(leaf, torch.nn.Parameter):
        if kind == "params":
            return leaf
        msg = f"Module: the leaf of {kind} at {_place_text(path)} is an nn.Parameter"
        raise ArgumentSpecError(msg, hint="put it into params, or give its value: p.detach()")
    if isinstance(leaf, torch.Tensor):
        source = leaf.detach()
    elif type(leaf) is Array:
        source = torch_adapter.export(leaf)
    elif isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic):
        check_unmasked(leaf)
        host = np.asarray(leaf)
        host = host.astype(canonicalize(host.dtype), copy=False)
        source = torch_adapter.export(put_numpy(host))
    else:
        msg = (
            f"Module: the leaf of {kind} at {_place_text(path)} is {leaf!r} "
            f"of type {type(leaf).__name__}"
        )
        raise UnsupportedDtypeError(msg, expected="an array, a tensor or a number")
    # Dense memory of torch, which begins where programs can read it in place: memory of NumPy
    # seldom does, and would be copied at every call.
    tensor = source.clone(memory_format=torch.contiguous_format)
    if kind == "params" and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        return torch.nn.Parameter(tensor)
    return tensor


def _place_text(path: Any) -> str:
    return "/".join(map(_text, path)) or "the root"


def _text(key: Any) -> str:
    """The name in one key of a path: ``.name``, ``['name']`` or ``[0]`` without the brackets."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _free_name(group: torch.nn.Module, name: str, known: Any) -> str:
    """``name`` in a form that torch takes and that hides no attribute of a module."""
    name = name.replace(".", "_") or "_"
    while name not in known and hasattr(group, name):
        name += "_"
    return name
