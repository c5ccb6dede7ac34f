"""The results of a call: their types, found before it runs, and how to give them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from tracebridge.core.config.values import option
from tracebridge.core.control.callbacks.base import result_types
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.errors.runtime_errors import CallbackError
from tracebridge.core.errors.shown import shown
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.core.util.caching import WeakIdCache
from tracebridge.interop.torch_adapter import DTYPES, ROWS
from tracebridge.torch._foreign.arguments import Arguments
from tracebridge.torch._foreign.turns import of_generator
from tracebridge.torch._foreign.types import Found, check_static, run_on_fakes

_STATIC = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_known: WeakIdCache[Results] = WeakIdCache("results of torch functions", 32)


@final
class Results:
    """Types of the tensors among the results, and the tree around them."""

    __slots__ = ("_leaves", "_places", "_tree", "avals")

    def __init__(
        self, leaves: Sequence[Any], places: Sequence[int], tree: PyTreeDef, avals: Sequence[Any]
    ) -> None:
        self._leaves = list(leaves)
        self._places = list(places)
        self._tree = tree
        self.avals: tuple[ShapedArray, ...] = tuple(avals)

    def tree_of(self, tensors: Sequence[Any]) -> Any:
        """What the function returns, with these in the place of its tensors."""
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        return self._tree.unflatten(leaves)

    def runner(self, arguments: Arguments, *, seeded: bool) -> Callable[..., Any]:
        """The call as a function of flat tensors; ``seeded``: the last one seeds torch."""

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if not seeded:
                return self._tensors(arguments, arguments.call(tensors, {}))
            high, low = tensors[-1].tolist()
            with of_generator.taken(), torch.random.fork_rng(_cuda_devices(tensors)):
                torch.manual_seed(high << 31 ^ low)
                return self._tensors(arguments, arguments.call(tensors[:-1], {}))

        return run

    def _tensors(self, arguments: Arguments, result: Any) -> tuple[torch.Tensor, ...]:
        leaves, tree = _flattened(result)
        if tree != self._tree:
            msg = f"call_torch({arguments.label}): the result has another structure than expected"
            raise CallbackError(msg, got=str(tree), expected=str(self._tree))
        return tuple([leaves[i] for i in self._places])


def results_of(
    arguments: Arguments, avals: tuple[ShapedArray, ...], declared: Any, *, has_key: bool
) -> Results:
    """The results of a call with these arguments, and arrays of the types ``avals``.

    Raises:
        CallbackError: the function fails, writes to its arguments, draws random numbers without
            a key, or depends on a tensor that requires grad.
    """
    name = f"call_torch({arguments.label})"
    check_static(name, avals)
    if declared is not None:
        types, tree = result_types(name, declared)
        return Results([None] * len(types), range(len(types)), tree, types)
    key = (avals, arguments.key, option("enable_x64"), has_key)
    try:
        results = _known.get(arguments.fun, key)
    except TypeError:  # a static argument that cannot be hashed
        return _find(name, arguments, avals, has_key=has_key)
    if results is None:
        results = _find(name, arguments, avals, has_key=has_key)
        _known.set(arguments.fun, key, results)
    return results


def _find(
    name: str, arguments: Arguments, avals: Sequence[ShapedArray], *, has_key: bool
) -> Results:
    found = run_on_fakes(name, arguments.call, avals, arguments.other_state())
    _check(name, found, has_key=has_key)
    leaves, tree = _flattened(found.result)
    places: list[int] = []
    types: list[ShapedArray] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            places.append(i)
            leaves[i] = None
            types.append(ShapedArray(tuple(leaf.shape), _dtype(leaf)))
        elif not isinstance(leaf, _STATIC):
            msg = f"{name}: the result has a leaf {shown(leaf)} of type {type(leaf).__name__}"
            hint = "return tensors in tuples, lists, dicts or registered classes"
            raise CallbackError(msg, hint=hint)
    return Results(leaves, places, tree, types)


def _flattened(result: Any) -> tuple[list[Any], PyTreeDef]:
    """Leaves and structure; torch's named results (of ``topk``, ``max``) are tuples."""
    leaves, tree = flatten(result)
    named = [hasattr(type(leaf), "n_sequence_fields") for leaf in leaves]
    if any(named):
        plain = [
            tuple(leaf) if is_named else leaf for leaf, is_named in zip(leaves, named, strict=True)
        ]
        return flatten(tree.unflatten(plain))
    return leaves, tree


def _dtype(tensor: torch.Tensor) -> Any:
    ours = DTYPES.get(tensor.dtype)
    return canonicalize(ROWS.ours(str(tensor.dtype)[6:]) if ours is None else ours)


def _check(name: str, call: Found, *, has_key: bool) -> None:
    if call.written:
        msg = f"{name}: the function writes to array {call.written[0]} of its arguments"
        hint = "arrays never change: let it write to x.clone()"
        raise CallbackError(msg, hint=hint)
    if call.written_state:
        msg = f"{name}: the module changes its {call.written_state[0]!r}"
        hint = "call it in evaluation mode (module.eval()), or translate it by from_module"
        raise CallbackError(msg, hint=hint)
    if call.draws and not has_key:
        msg = f"{name}: the function draws random numbers ({call.draws})"
        hint = "pass key=..., by which they are the same in forward and backward passes"
        raise CallbackError(msg, hint=hint)
    if call.reads_history:
        msg = f"{name}: the result depends on a tensor that requires grad and is no argument"
        hint = "its gradient would be lost: pass it as an argument, or detach it"
        raise CallbackError(msg, hint=hint)


def _cuda_devices(tensors: Sequence[torch.Tensor]) -> list[int]:
    return sorted({t.device.index for t in tensors if t.device.type == "cuda"})
