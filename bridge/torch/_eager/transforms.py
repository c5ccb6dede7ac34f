"""Calls under torch.func: vmap and grad are peeled off here, level by level.

torch's dispatcher would do the same with the rules of _graphs/operator.py, through ten passes over
trees and twice as many calls for each level. What this module does not know (forward mode,
functionalization) goes to the dispatcher, from the level on where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import torch
from torch._C import _functorch as functorch  # pyright: ignore[reportAttributeAccessIssue] - no stubs

from tracebridge._derived.dependence import attached, paths_of, reached
from tracebridge._derived.families import Family, Mask, ruled_handle
from tracebridge.core.config.settings import current_settings
from tracebridge.core.config.values import tracing_key
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.torch._crossing.numbers import aval_of
from tracebridge.torch._eager.through_operator import apply_operator
from tracebridge.torch._eager.visible import named_apply

if TYPE_CHECKING:
    from tracebridge.torch._contexts import LevelContext

Tensors = Sequence[torch.Tensor]
Apply = Callable[[Family, Tensors], Tensors]

# As numbers: torch's enumeration takes longer to compare two than to look at all tensors.
_VMAP, _GRAD = functorch.TransformType.Vmap.value, functorch.TransformType.Grad.value
_innermost = functorch.peek_interpreter_stack
_unwrap_if_dead = functorch.unwrap_if_dead
_unwrap_batched, _add_batch_dim = functorch._unwrap_batched, functorch._add_batch_dim
# What torch's context managers for these do, in a tenth of the time.
_is_allowed = functorch.get_single_level_autograd_function_allowed
_set_allowed = functorch.set_single_level_autograd_function_allowed
_is_fwd_grad_enabled, _set_fwd_grad_enabled = (
    torch._C._is_fwd_grad_enabled,
    torch._C._set_fwd_grad_enabled,
)
_set_grad_enabled = torch._C._set_grad_enabled
_unwrap_for_grad, _wrap_for_grad = functorch._unwrap_for_grad, functorch._wrap_for_grad


def apply_transformed(family: Family, xs: Tensors, apply: Apply) -> Tensors:
    """Apply a family to tensors in the innermost transformation of torch.func.

    ``apply`` is what to do outside of it, where others may be in force.
    """
    interpreter = _innermost()
    kind, level = interpreter.key().value, interpreter.level()
    if kind == _VMAP:
        return _mapped(family, xs, level, apply)
    xs = [_unwrap_if_dead(x) for x in xs]
    if kind == _GRAD:
        return _recorded(family, xs, level, apply)
    return apply_operator(xs, family)


def _outside(apply: Apply, family: Family, xs: Tensors) -> Tensors:
    """``apply`` without the innermost transformation."""
    layer = functorch.pop_dynamic_layer_stack()
    try:
        return apply(family, xs)
    finally:
        functorch.push_dynamic_layer_stack(layer)


def _mapped(family: Family, xs: Tensors, level: int, apply: Apply) -> Tensors:
    """Under vmap: the batched family; all its results are batched in front."""
    inner, dims = zip(*[_unwrap_batched(_unwrap_if_dead(x), level) for x in xs], strict=True)
    if dims.count(None) == len(dims):
        return _outside(apply, family, inner)
    outs = _outside(apply, family.mapped(dims), inner)
    return [_add_batch_dim(o, 0, level) for o in outs]


def _recorded(family: Family, xs: Tensors, level: int, apply: Apply) -> Tensors:
    """Under grad: a node of autograd, where a tensor of this level wants a gradient."""
    if torch.is_grad_enabled():
        wanted = tuple([x.requires_grad and functorch.maybe_get_level(x) == level for x in xs])
        if any(wanted):
            here = _differentiation(family, xs, wanted)
            if any(here.active):
                allowed = _is_allowed()
                _set_allowed(True)
                try:
                    return here.apply(here, level, apply, *xs)
                finally:
                    _set_allowed(allowed)
    return _lower(family, xs, level, apply)


def _lower(family: Family, xs: Tensors, level: int, apply: Apply) -> Tensors:
    """``apply`` outside of a level of grad, whose tensors are wrapped."""
    inner = [_unwrap_for_grad(x, level) for x in xs]
    # no_grad around the transformation holds for what is computed outside of it.
    recording = functorch.CGradInterpreterPtr(_innermost()).prevGradMode()
    before = torch.is_grad_enabled(), _is_fwd_grad_enabled()
    _set_grad_enabled(recording)
    _set_fwd_grad_enabled(True)
    try:
        outs = _outside(apply, family, inner)
    finally:
        _set_grad_enabled(before[0])
        _set_fwd_grad_enabled(before[1])
    return [_wrap_for_grad(o, level) for o in outs]


@final
class Differentiation:
    """A family at dtypes and shapes, with gradients of some inputs."""

    __slots__ = ("active", "apply", "attached", "family", "paths", "pullbacks", "ruled")

    def __init__(self, family: Family, xs: Tensors, wanted: Mask) -> None:
        self.family = family
        self.paths = paths_of(family.program(tuple([aval_of(x) for x in xs])))
        self.active = reached(wanted, self.paths, (True,) * len(self.paths))
        self.attached = attached(self.active, self.paths)
        self.apply = named_apply(_LevelNode, family.name)
        # What the forward rules of custom_vjp functions do has derivatives of its own.
        self.ruled = family.child(ruled_handle("", self.active)[2:])
        # By the results that have cotangents: the inputs that get gradients, and of whom.
        self.pullbacks: dict[Mask, tuple[Mask, Family]] = {}

    def pullback(self, mask: Mask) -> tuple[Mask, Family]:
        """The inputs that get gradients from cotangents at ``mask``, and the family for that."""
        found = self.pullbacks.get(mask)
        if found is None:
            wanted = reached(self.active, self.paths, mask)
            found = self.pullbacks[mask] = wanted, self.family.vjp(wanted, mask)
        return found

    def clear(self) -> None:
        """Nothing here waits for a backward pass."""


def _differentiation(family: Family, xs: Tensors, wanted: Mask) -> Differentiation:
    key: Any = ("level", tracing_key(), wanted, tuple([(x.dtype, x.shape) for x in xs]))
    found = family.runs.get(key)
    if found is None:
        found = Differentiation(family, xs, wanted)
        family.runs.set(key, found)
    return found


@final
class _LevelNode(torch.autograd.Function):
    """Reverse mode in one level of torch.func. Applied by ``_recorded``."""

    @staticmethod
    def forward(
        ctx: LevelContext, here: Differentiation, level: int, apply: Apply, *xs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.here, ctx.call, ctx.settings = here, apply, current_settings()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*xs)
        outs = _lower(here.ruled, xs, level, apply)
        if not all(here.attached):
            ctx.mark_non_differentiable(
                *[o for o, kept in zip(outs, here.attached, strict=True) if not kept]
            )
        return tuple(outs)

    @staticmethod
    def backward(ctx: LevelContext, *grads: Any) -> tuple[Any, ...]:
        here = ctx.here
        mask = tuple([g is not None for g in grads])
        if not any(mask):
            return (None,) * (len(here.active) + 3)
        wanted, pullback = here.pullback(mask)
        given = [*ctx.saved_tensors, *[g for g in grads if g is not None]]
        # A pullback may be called when its level is over.
        leaves = [_unwrap_if_dead(x) for x in given]
        try:
            with ctx.settings.again():
                results = iter(ctx.call(pullback, leaves))
        except Exception as error:
            hide_internal_frames(error)
            raise
        return (None, None, None, *[next(results) if w else None for w in wanted])
