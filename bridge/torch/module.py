"""``Module``: a function with its parameters as an ``nn.Module``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.tree.tree import flatten, leaves_with_path
from tracebridge.core.util.public_path import public_path
from tracebridge.interop.torch_adapter import torch_adapter
from tracebridge.torch._crossing.structure import describe, rebuild
from tracebridge.torch.wrapping import Wrapped, wrap


@final
class Layout:
    """The structure of a tree of parameters; can be copied and pickled if its node types can."""

    __slots__ = ("skeleton", "structure", "tree")

    def __init__(self, skeleton: Any) -> None:
        self.skeleton = skeleton
        self.tree = flatten(skeleton)[1]
        try:
            self.structure: Any = describe(skeleton, [])
        except ExchangeError:
            self.structure = None  # has nodes that Dynamo cannot rebuild

    def __reduce__(self) -> Any:
        return Layout, (self.skeleton,)


@public_path("tracebridge.torch")
class Module(torch.nn.Module):
    """A function ``fun(params, *args, **kwargs)`` as a module that owns ``params``.

    Inexact leaves of ``params`` become parameters, leaves of integers and bools become buffers,
    named by their path: ``{'dense': {'w': ...}}`` gives ``dense.w``. Everything else is as with
    any module: ``state_dict``, ``to``, ``deepcopy``, pickling (where ``fun`` can be pickled),
    optimizers, DistributedDataParallel, ``torch.compile``, ``torch.func.functional_call``.

    Args:
        fun: function of a tree of parameters and further arguments, made of tracebridge
            operations; or the result of ``wrap``.
        params: tree of Arrays, NumPy arrays, tensors and numbers. Values are copied into dense
            memory of torch; an ``nn.Parameter`` is taken as it is, so that it can be shared with
            other modules.
        static_argnums: as for ``wrap``, counted with ``params`` as argument 0.
        static_argnames: as for ``wrap``.

    Raises:
        UnsupportedDtypeError: a leaf of ``params`` is no tensor, array or number.

    >>> import torch
    >>> import tracebridge.numpy as tnp
    >>> import tracebridge.torch
    >>> model = tracebridge.torch.Module(lambda p, x: p['scale'] * x, {'scale': tnp.ones(())})
    >>> [name for name, _ in model.named_parameters()]
    ['scale']
    >>> model(torch.ones(2))
    tensor([1., 1.], grad_fn=<CallBackward>)
    """

    def __init__(
        self,
        fun: Any,
        params: Any,
        *,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Sequence[str] = (),
    ) -> None:
        super().__init__()
        if not isinstance(fun, Wrapped):
            fun = wrap(fun, static_argnums=static_argnums, static_argnames=static_argnames)
        self._fun = fun
        items = leaves_with_path(params)
        self._layout = Layout(flatten(params)[1].unflatten(list(range(len(items)))))
        shared: dict[int, Any] = {}
        # Where each leaf is: path of the group, name in the group.
        self._places: list[tuple[tuple[str, ...], str]] = []
        for path, leaf in items:
            value = shared.get(id(leaf))
            if value is None:
                value = shared[id(leaf)] = _own(leaf, path)
            self._places.append(self._place([_text(key) for key in path] or ["param"], value))

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
        """The function of the tree of parameters and further arguments."""
        return self._fun

    def leaves(self) -> list[torch.Tensor]:
        """The leaves of the tree of parameters and buffers."""
        leaves: list[torch.Tensor] = []
        for path, name in self._places:
            group: Any = self
            for part in path:
                group = group._modules[part]
            # Attributes are looked up in several tables in turn, which takes longer.
            found = group._parameters.get(name)
            leaves.append(getattr(group, name) if found is None else found)
        return leaves

    def tree_of(self, leaves: Sequence[Any]) -> Any:
        """The tree of parameters with other leaves."""
        return self._layout.tree.unflatten(leaves)

    def params(self) -> Any:
        """The tree of parameters and buffers as tensors."""
        leaves = self.leaves()
        if torch.compiler.is_compiling() and self._layout.structure is not None:
            return rebuild(self._layout.structure, iter(leaves))
        return self.tree_of(leaves)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._fun(self.params(), *args, **kwargs)
        try:
            return self._fun(self.params(), *args, **kwargs)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def extra_repr(self) -> str:
        return self._fun.__name__


@final
class Group(torch.nn.Module):
    """A node of the tree of parameters."""


def _own(leaf: Any, path: Any) -> torch.Tensor:
    """A parameter or buffer with the value of a leaf."""
    if isinstance(leaf, torch.nn.Parameter):
        return leaf
    if isinstance(leaf, torch.Tensor):
        source = leaf.detach()
    elif type(leaf) is Array:
        source = torch_adapter.export(leaf)
    elif isinstance(leaf, bool | int | float | complex | np.ndarray | np.generic):
        host = np.asarray(leaf)
        host = host.astype(canonicalize(host.dtype), copy=False)
        source = torch_adapter.export(put_numpy(host))
    else:
        msg = (
            f"Module: the leaf of params at {'/'.join(map(_text, path)) or 'the root'} is {leaf!r} "
            f"of type {type(leaf).__name__}"
        )
        raise UnsupportedDtypeError(msg, expected="an array, a tensor or a number")
    # Dense memory of torch, which begins where programs can read it in place: memory of NumPy
    # seldom does, and would be copied at every call.
    tensor = source.clone(memory_format=torch.contiguous_format)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return torch.nn.Parameter(tensor)
    return tensor


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
