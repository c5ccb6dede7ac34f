"""Large gradients of leaves, computed one after the other where torch adds them up.

Torch takes all results of a node before it gives the first to who accumulates. So a leaf enters the
node of a call through a node of its own, ``Late``: the backward pass of the call gives it a
``LateGradient``, which is no memory yet, and ``Late`` makes a tensor of it just before torch adds
it to ``.grad`` and frees it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch.utils._pytree import tree_map_only

from tracebridge.core.errors.filtering import hide_internal_frames

if TYPE_CHECKING:
    from tracebridge.torch._contexts import AutogradContext

Run = Callable[[Sequence[Any]], Sequence[torch.Tensor]]

# A node and a program of its own take about 30 us; making and adding a gradient of that size takes
# twenty times as long.
LATE_BYTES = 1 << 20
# From here on that is nothing, and a gradient may wait for another one of the same leaf in the same
# backward pass, which nobody can know in the forward pass.
HUGE_BYTES = 1 << 24


@final
class LateGradient(torch.Tensor):
    """A gradient to be computed: the values that it depends on, and the program.

    Whoever but ``Late`` gets one may do with it as with any tensor: it is computed again each time.
    """

    _run: Run
    _given: list[tuple[Any, int | None]]

    @staticmethod
    def of(tail: Tail, inputs: Sequence[Any], device: torch.device) -> LateGradient:
        """The gradient that ``tail.run(inputs)`` computes."""
        result = torch.Tensor._make_wrapper_subclass(
            LateGradient, tail.shape, dtype=tail.dtype, device=device
        )
        result._run = tail.run
        result._given = [(x, _version(x)) for x in inputs]
        return result

    def compute(self) -> torch.Tensor:
        """The gradient.

        Raises:
            RuntimeError: what it depends on was changed since the backward pass went by.
        """
        if any([_version(x) != version for x, version in self._given]):
            msg = (
                "a tensor that is needed for a gradient of a wrapped function was changed by an "
                "inplace operation during the backward pass; change a copy in the hook, or later"
            )
            raise RuntimeError(msg)
        return self._run([x for x, _ in self._given])[0]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_SHELL:
                return func(*args, **(kwargs or {}))
            return func(*_computed(args), **_computed(kwargs or {}))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # fmt: skip
        del types
        return func(*_computed(args), **_computed(kwargs or {}))


def _version(x: Any) -> int | None:
    return x._version if isinstance(x, torch.Tensor) else None  # numbers do not change


def _computed(tree: Any) -> Any:
    return tree_map_only(LateGradient, LateGradient.compute, tree)


# What can be said of a gradient without computing it.
_OF_SHELL: frozenset[Any] = frozenset(
    {getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device")}
)


@final
class Late(torch.autograd.Function):
    """The identity; its backward pass computes what was left for later."""

    @staticmethod
    def forward(ctx: AutogradContext, x: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return x.detach()

    @staticmethod
    def backward(ctx: AutogradContext, *grads: Any) -> Any:
        del ctx
        (grad,) = grads
        if type(grad) is not LateGradient:
            return grad
        try:
            return grad.compute()
        except Exception as error:
            hide_internal_frames(error)
            raise


_apply_late = super(torch.autograd.Function, Late).apply  # pyright: ignore[reportAttributeAccessIssue] - of torch._C, no stubs


def late_leaves(large: Sequence[int], leaves: Sequence[Any], huge: bool) -> list[Any] | None:
    """``leaves`` with those leaves of the graph among ``large`` behind a node of their own.

    None if there is no reason: no gradient of these is there yet, nor a hook that may free it, and
    none is ``huge``.
    """
    found = [i for i in large if leaves[i].is_leaf]
    if not found or not (huge or any([_is_waited_for(leaves[i]) for i in found])):
        return None
    result = list(leaves)
    for i in found:
        result[i] = _apply_late(leaves[i])
    return result


def _is_waited_for(leaf: torch.Tensor) -> bool:
    return leaf.grad is not None or bool(leaf._post_accumulate_grad_hooks)


class Tail(NamedTuple):
    """How a gradient is computed last: from which inputs and results of the first program."""

    run: Run
    places: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype


@final
class LateRuns:
    """The executables of a backward program in two stages; see ``Tails``."""

    __slots__ = ("changing", "first", "last", "n_out")

    def __init__(
        self, first: Run, last: Mapping[int, Tail], n_out: int, changing: Collection[int]
    ) -> None:
        self.first = first
        self.last = last
        self.n_out = n_out
        self.changing = changing

    def __call__(
        self, inputs: Sequence[Any], late: Collection[int], device: torch.device
    ) -> list[torch.Tensor]:
        """All gradients; those at the places ``late`` are computed when they are needed."""
        values = self.first(inputs)
        env = [*inputs, *values]
        early = iter(values)
        # Who gets a gradient may be changed by a hook before the next one is computed.
        kept = {i: env[i].clone() for i in self.changing if env[i].is_leaf}
        results: list[torch.Tensor] = []
        for k in range(self.n_out):
            tail = self.last.get(k)
            if tail is None:
                results.append(next(early))
            elif k in late:
                tail_inputs = [kept.get(i, env[i]) for i in tail.places]
                results.append(LateGradient.of(tail, tail_inputs, device))
            else:
                results.append(tail.run([env[i] for i in tail.places])[0])
        return results
