"""Calls under torch.func: vmap and grad are peeled off here, level by level.

torch's dispatcher would do the same with the rules of _graphs/operator.py, through ten passes over
trees and twice as many calls for each level. What this module does not know (forward mode,
functionalization) goes to the dispatcher, from the level on where it stands. What it has done once
it notes in levels.py, where it is found in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

import torch

from tracebridge._derived.dependence import attached, paths_of, reached
from tracebridge._derived.families import Avals, Family
from tracebridge._derived.handles import Mask, ruled_handle
from tracebridge.core.config.settings import current_settings
from tracebridge.core.config.state import state
from tracebridge.core.config.values import tracing_key
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.interop.torch_adapter import check_has_values
from tracebridge.torch._crossing.dense import alive
from tracebridge.torch._crossing.numbers import aval_of
from tracebridge.torch._eager.as_operations import Run, as_operations
from tracebridge.torch._eager.levels import (
    GRAD,
    VMAP,
    Apply,
    Levels,
    Tensors,
    add_batch_dim,
    grad_enabled,
    has_few_elements,
    innermost,
    innermost_level,
    is_quiet,
    level_of,
    outside,
    pop,
    push,
    record,
    unwrap_batched,
    unwrap_for_grad,
    wrap_for_grad,
)
from tracebridge.torch._eager.nodes import gradients
from tracebridge.torch._eager.slopes import leave_level, slopes_of
from tracebridge.torch._eager.through_operator import apply_operator
from tracebridge.torch._eager.visible import event_name

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.torch._contexts import SlopesContext

_FUNCTION: Any = torch.autograd.Function


def apply_transformed(family: Family, xs: Tensors, apply: Apply) -> Tensors:
    """Apply a family to tensors in the innermost transformation of torch.func.

    ``apply`` is what to do outside of it, where others may be in force.
    """
    interpreter = innermost()
    kind, level = interpreter.key().value, interpreter.level()
    for x in xs:
        if x.is_nested:
            check_has_values(x)  # words the error
    xs = [alive(x) for x in xs]
    if kind == VMAP:
        return _mapped(family, xs, level, apply)
    if kind == GRAD:
        return _recorded(family, xs, level, apply)
    return apply_operator(xs, family)


def _mapped(family: Family, xs: Tensors, level: int, apply: Apply) -> Tensors:
    """Under vmap: the batched family; all its results are batched in front."""
    inner, dims = zip(*[unwrap_batched(x, level) for x in xs], strict=True)
    for x in inner:
        if x.is_nested:
            check_has_values(x)  # words the error
    is_mapped = dims.count(None) < len(dims)
    if is_mapped:
        run = _operations(family, xs, dims, inner, apply)
        if run is not None:
            return run(*xs)
    below = family.mapped(dims) if is_mapped else family
    layer = pop()
    try:
        outs = apply(below, inner)
    finally:
        push(layer)
    if not is_mapped:
        return outs
    Levels.of(family, apply).mapped(dims, Levels.of(below, apply))
    return [add_batch_dim(o, 0, level) for o in outs]


def _recorded(family: Family, xs: Tensors, level: int, apply: Apply) -> Tensors:
    """Under grad: a node of autograd, where a tensor of this level wants a gradient."""
    run = _operations(family, xs, None, xs, apply)
    if run is not None:
        return run(*xs)
    recording = grad_enabled()
    if recording:
        wanted = tuple([x.requires_grad and level_of(x) == level for x in xs])
        if any(wanted):
            # Tensors made in inference mode can be saved in the level alone, as its own.
            xs = [wrap_for_grad(x, level) if x.is_inference() else x for x in xs]
            here = _differentiation(family, xs, wanted, apply)
            if any(here.active):
                if state() is None:
                    Levels.of(family, apply).recorded(wanted, xs, here.apply)
                return record(here.apply, level, xs)
    inner = [unwrap_for_grad(x, level) for x in xs]
    outs = outside(lambda *xs: apply(family, xs), inner, recording=recording)
    return [wrap_for_grad(o, level) for o in outs]


def _operations(
    family: Family,
    xs: Tensors,
    dims: tuple[int | None, ...] | None,
    whole: Tensors,
    apply: Apply,
) -> Run | None:
    """The function as operations of torch, for few elements of ``whole``; None if it is large."""
    if not is_quiet() or not has_few_elements(whole):
        return None
    run = as_operations(family, xs)
    if run is not None:
        Levels.of(family, apply).operations(dims, whole, run)
    return run


@final
class Differentiation:
    """A family at dtypes and shapes, with gradients of some inputs."""

    __slots__ = (
        "active", "apply", "attached", "call", "family", "key", "paths", "pullbacks", "ruled",
        "settings", "slopes", "unread",
    )  # fmt: skip

    def __init__(self, family: Family, xs: Tensors, wanted: Mask, call: Apply) -> None:
        self.family = family
        self.call = call
        # A pullback is derived under the options of its forward pass.
        self.settings = current_settings()
        avals = tuple([aval_of(x) for x in xs])
        program = family.program(avals)
        self.paths = paths_of(program)
        self.active = reached(wanted, self.paths, (True,) * len(self.paths))
        self.attached = attached(self.active, self.paths)
        # What the forward rules of custom_vjp functions do has derivatives of its own.
        self.ruled = family.child(ruled_handle("", self.active)[2:])
        # By the results that have cotangents: the inputs that get gradients, and of whom.
        self.pullbacks: dict[Mask, tuple[Mask, Family]] = {}
        self.unread = self._unread(avals, program)
        self.slopes = slopes_of(family, program, self.active, self.attached, call)
        # Not called if nothing is active.
        self.apply = _node_apply(self)

    def pullback(self, mask: Mask) -> tuple[Mask, Family]:
        """The inputs that get gradients from cotangents at ``mask``, and the family for that."""
        found = self.pullbacks.get(mask)
        if found is None:
            wanted = reached(self.active, self.paths, mask)
            found = self.pullbacks[mask] = wanted, self.family.vjp(wanted, mask)
        return found

    def _unread(self, avals: Avals, program: Jaxpr) -> list[int]:
        """The inputs that no gradient depends on, of whatever order: they may change in between."""
        if not any(self.active):
            return []
        pairs = zip(program.out_avals, self.attached, strict=True)
        cotangents = [a.strong for a, here in pairs if here]
        try:
            pullback = self.pullback(self.attached)[1].program((*avals, *cotangents))
        except Exception:  # noqa: BLE001 - rules of users raise anything: when gradients are asked for
            return []
        _, used = dce_jaxpr(pullback, (True,) * len(pullback.outs), keep_in=True)
        return [i for i in range(len(avals)) if not used[i]]

    def clear(self) -> None:
        """Nothing here waits for a backward pass."""


def _differentiation(family: Family, xs: Tensors, wanted: Mask, call: Apply) -> Differentiation:
    key: Any = ("level", tracing_key(), wanted, tuple([(x.dtype, x.shape) for x in xs]))
    found = family.runs.get(key)
    if found is None:
        found = Differentiation(family, xs, wanted, call)
        family.runs.set(key, found)
    return found


def _node_apply(here: Differentiation) -> Callable[..., Any]:
    """The ``apply`` of the autograd function for one level: ``apply(level, *xs)``."""
    lowered = Levels.of(here.ruled, here.call).lowered
    active, key = here.active, here.settings.key
    detached = [i for i, kept in enumerate(here.attached) if not kept]
    everything = here.attached
    pulled = Levels.of(here.pullback(everything)[1], here.call)
    pull, pull_below = pulled.anywhere, pulled.lowered
    sources = [i for i, kept in enumerate(here.attached) if kept]
    slopes, unread = here.slopes, here.unread

    def forward(ctx: SlopesContext, level: int, *xs: torch.Tensor) -> Tensors:
        if unread:
            ctx.unread = [xs[i] for i in unread]
            ctx.save_for_backward(*[x for i, x in enumerate(xs) if i not in unread])
        else:
            ctx.save_for_backward(*xs)
        ctx.set_materialize_grads(False)
        ctx.slopes = outs = None
        if level == 1 and slopes is not None and slopes.wanted:
            outs = slopes.run(ctx, xs)
        if outs is None:
            outs = lowered(level, *xs)
        if detached:
            ctx.mark_non_differentiable(*[outs[i] for i in detached])
        return tuple(outs)

    def backward(ctx: SlopesContext, *grads: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        if unread:
            saved = _with_unread(saved, ctx.unread, unread)
        try:
            cotangents = [grads[i] for i in sources]
            known = all([g is not None for g in cotangents]) and tracing_key() == key
            if known and is_quiet():
                leaving = leave_level(ctx)
                if ctx.slopes is not None:
                    assert slopes is not None
                    found = slopes.taken(ctx, cotangents[0], leaving=leaving)
                    if found is not None:
                        return gradients(found, active)
                leaves = [alive(x) for x in (*saved, *cotangents)]
                if leaving:
                    return gradients(pull_below(innermost_level(), *leaves), active)
                return gradients(pull(*leaves), active)
            return _in_full(here, saved, grads)
        except Exception as error:
            hide_internal_frames(error)
            raise

    rules = {
        "__module__": __name__,
        "forward": staticmethod(forward),
        "backward": staticmethod(backward),
    }
    named = type(_FUNCTION)(event_name(here.family.name), (_FUNCTION,), rules)
    return super(_FUNCTION, named).apply


def _with_unread(saved: Tensors, others: Tensors, places: Sequence[int]) -> Tensors:
    """All inputs in order: those that were saved, and ``others`` at ``places``."""
    xs = list(saved)
    for place, x in zip(places, others, strict=True):
        xs.insert(place, x)
    return xs


def _in_full(here: Differentiation, saved: Tensors, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of all inputs from whatever cotangents there are."""
    mask = tuple([g is not None for g in grads])
    if not any(mask):
        return (None,) * (len(here.active) + 1)
    wanted, pullback = here.pullback(mask)
    leaves = [alive(x) for x in (*saved, *[g for g in grads if g is not None])]
    with here.settings.again():
        return gradients(here.call(pullback, leaves), wanted)
