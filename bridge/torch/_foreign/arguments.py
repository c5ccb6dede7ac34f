"""The arguments of a call: arrays that become tensors, and what is given as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch.func import functional_call

from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.tree import flatten, leaves_with_path
from tracebridge.torch._foreign.turns import of_module

_ARRAYS = (EngineValue, np.ndarray, np.generic)


@final
class Arguments:
    """What a call of ``fun`` is given, without the arrays among it, which come later."""

    __slots__ = ("_places", "_statics", "_tree", "fun", "label")

    def __init__(
        self,
        fun: Any,
        args: tuple[Any, ...],
        params: Mapping[str, Any] | None,
        kwargs: dict[str, Any],
        values: list[Any],
    ) -> None:
        """The arrays are appended to ``values``: programs keep this object, not what is traced."""
        if not callable(fun):
            msg = f"call_torch: fun is {fun!r} of type {type(fun).__name__}"
            raise ArgumentSpecError(msg, expected="a torch function or an nn.Module")
        self.fun: Callable[..., Any] = fun
        self.label = type(fun).__name__ if isinstance(fun, torch.nn.Module) else name_of(fun)
        everything = (args, kwargs, _checked_params(fun, params))
        leaves, self._tree = flatten(everything)
        self._places: list[int] = []
        self._statics: list[Any] = list(leaves)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, _ARRAYS):
                self._places.append(i)
                self._statics[i] = None
                values.append(as_value(leaf))
            elif isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                where = keystr(leaves_with_path(everything)[i][0][1:])
                msg = f"call_torch({self.label}): argument {where} is a tensor that requires grad"
                hint = "its gradient would be lost: pass from_torch(x.detach()), or x.detach()"
                raise ArgumentSpecError(msg, hint=hint)

    @property
    def key(self) -> Any:
        """What decides the types of results besides those of arrays; may not be hashable."""
        statics = tuple([(type(s), s) for s in self._statics])
        modes: Any = None
        if isinstance(self.fun, torch.nn.Module):
            # A rate of zero draws nothing.
            modes = (
                tuple([(m.training, vars(m).get("p")) for m in self.fun.modules()]),
                tuple([t.dtype for t in _state(self.fun).values()]),
            )
        return self._tree, statics, modes

    @property
    def content(self) -> Any:
        """What the call computes with, besides the arrays."""
        return self.fun, self._tree, self._places, self._statics

    def call(self, tensors: Sequence[torch.Tensor], state: Mapping[str, Any]) -> Any:
        """Call with tensors in the place of arrays; ``state``: of a module, beside ``params``."""
        leaves = list(self._statics)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs, params = self._tree.unflatten(leaves)
        if not isinstance(self.fun, torch.nn.Module):
            return self.fun(*args, **kwargs)
        own = {**state, **(params or {})}
        if isinstance(self.fun, torch.jit.ScriptModule):
            return self.fun(*args, **kwargs)
        with of_module(self.fun).taken():
            return (
                functional_call(self.fun, own, args, kwargs) if own else self.fun(*args, **kwargs)
            )

    def other_state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers of a module that ``params`` does not give."""
        if not isinstance(self.fun, torch.nn.Module):
            return {}
        params = self._tree.unflatten(self._statics_as_leaves())[2] or {}
        return {k: v for k, v in _state(self.fun).items() if k not in params}

    def _statics_as_leaves(self) -> list[Any]:
        return [0 if s is None else s for s in self._statics]


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _checked_params(fun: object, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """``params`` as a dict; those of a module that require gradients must be among them."""
    if not isinstance(fun, torch.nn.Module):
        if params is not None:
            msg = f"call_torch({name_of(fun)}): got params for a function"
            raise ArgumentSpecError(msg, hint="params are of an nn.Module; pass them as arguments")
        return None
    name = type(fun).__name__
    # Shared parameters have several names, of which any will do.
    known = {
        **dict(fun.named_parameters(remove_duplicate=False)),
        **dict(fun.named_buffers(remove_duplicate=False)),
    }
    chosen = dict(params or {})
    if chosen and isinstance(fun, torch.jit.ScriptModule):
        msg = f"call_torch({name}): a scripted module cannot be called with other params"
        hint = "pass the module that was scripted, or module.requires_grad_(False) without params"
        raise ArgumentSpecError(msg, hint=hint)
    unknown = [k for k in chosen if k not in known]
    if unknown:
        msg = f"call_torch({name}): params names {unknown[0]!r}, which the module does not have"
        raise ArgumentSpecError(msg, expected=f"names in {name}.state_dict()")
    covered = {id(known[k]) for k in chosen}
    lost = [k for k, p in fun.named_parameters() if p.requires_grad and id(p) not in covered]
    if lost:
        msg = f"call_torch({name}): parameter {lost[0]!r} requires grad and is not in params"
        hint = (
            "pass params={name: array} for those to derive by, and module.requires_grad_(False) "
            "to use the others as constants"
        )
        raise ArgumentSpecError(msg, hint=hint)
    return chosen
