"""What calls do with the dtypes and the memory formats of tensors, as torch's own operations do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch.utils import _pytree as torch_trees

import tracebridge.core.lax as lax
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree import tree as trees
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.caching import BoundedCache
from tracebridge.interop.torch_adapter import EXACT

AUTOCAST = "autocast"


class Cast(NamedTuple):
    """The dtype of ``cast_inputs``, and the positions of arguments that keep theirs."""

    dtype: torch.dtype | str
    kept: tuple[int, ...] = ()


def cast_of(call: str, dtype: Any) -> Cast | None:
    """The option, checked.

    Raises:
        ArgumentSpecError: it is no dtype of floats.
    """
    if dtype is None:
        return None
    is_float = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    if dtype != AUTOCAST and not is_float:
        msg = f"{call}: cast_inputs is {dtype!r}"
        raise ArgumentSpecError(msg, expected="a torch dtype of floats, 'autocast' or None")
    return Cast(dtype)


def cast(
    how: Cast, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments in the dtype that a region of autocast asks for.

    As ``torch.amp.custom_fwd``: floats but float64 are cast, where autocast is enabled. Dynamo
    reads these lines.
    """
    graph = torch.compiler.is_dynamo_compiling()
    leaves = torch_trees.tree_leaves((args, kwargs)) if graph else flatten((args, kwargs))[0]
    device = ""
    for x in leaves:
        if isinstance(x, torch.Tensor):
            device = x.device.type
            if x.ndim:
                break
    if not device or not torch.is_autocast_enabled(device):
        return args, kwargs
    dtype: Any = torch.get_autocast_dtype(device) if how.dtype == AUTOCAST else how.dtype

    def to(x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64:
            return x.to(dtype)
        return x

    over = torch_trees.tree_map if graph else trees.map
    given = tuple([x if i in how.kept else over(to, x) for i, x in enumerate(args)])
    return given, {k: over(to, x) for k, x in kwargs.items()}


# channels_last ---------------------------------------------------------------------------------

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def is_channels_last(x: Any) -> bool:
    """Whether the channels of an image are together in memory, and axes in another order."""
    return (
        type(x) in EXACT
        and x.ndim in _FORMATS
        and x.layout is torch.strided
        and not x.is_nested
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=_FORMATS[x.ndim])
    )


def _to_last(n: int) -> tuple[int, ...]:
    return (0, *range(2, n), 1)


def _to_first(n: int) -> tuple[int, ...]:
    return (0, n - 1, *range(1, n - 1))


@final
class LastProgram:
    """``fun`` of flat arguments, those ``places`` with their channels last, as are all results."""

    def __init__(self, fun: Callable[..., Any], tree: PyTreeDef, places: Sequence[int]) -> None:
        functools.update_wrapper(self, fun, updated=())
        self.__name__ = name_of(fun)
        self.fun = fun
        self.tree = tree
        self.places = places

    def __call__(self, *leaves: Any) -> Any:
        values = list(leaves)
        for i in self.places:
            x = as_value(values[i])
            values[i] = lax.transpose(x, _to_first(x.aval.ndim))
        args, kwargs = self.tree.unflatten(values)
        return trees.map(_last, self.fun(*args, **kwargs))


def _last(out: Any) -> Any:
    x = as_value(out)
    return lax.transpose(x, _to_last(x.aval.ndim)) if x.aval.ndim in _FORMATS else out


@final
class LastCalls:
    """The calls of one wrapped function with such images; results are such images too."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self.wrap = wrap
        self.programs: BoundedCache[Any] = BoundedCache("torch channels", 64, register=False)

    def call(
        self, owner: Any, args: Any, kwargs: Any, leaves: Sequence[Any], places: Sequence[int]
    ) -> Any:
        """The results, with axes in the order that everybody expects."""
        tree, statics = owner.key_of(args, kwargs)[1]
        key = (tree, statics, *places)
        run = self.programs.get(key)
        if run is None:
            run = self.wrap(LastProgram(owner.bound(args, kwargs)[0], tree, places))
            self.programs.set(key, run)
        values = list(leaves)
        for i in places:
            values[i] = values[i].permute(_to_last(values[i].ndim))
        return trees.map(
            lambda x: x.permute(_to_first(x.ndim)) if x.ndim in _FORMATS else x, run(*values)
        )
