"""Calls under torch.func that are known: each level is peeled off by a few looks.

The first call of its kind goes through transforms.py, which notes here what it has found. Both do
the same; what is left out here are the questions whose answer a look of torch at all tensors
(guards.py) gives at once, and those that are asked once for all levels by who calls ``anywhere``:
whether modes, forward mode, options of the thread or a profiler are in force.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import final

import torch
from torch._C import _functorch as functorch  # pyright: ignore[reportAttributeAccessIssue] - no stubs
from torch.autograd import forward_ad

from tracebridge._derived.families import Family
from tracebridge._derived.handles import Mask
from tracebridge.core.config.state import state
from tracebridge.interop.torch_adapter import modes_active
from tracebridge.torch._crossing.dense import alive
from tracebridge.torch._eager.as_operations import MAX_ELEMENTS, Run
from tracebridge.torch._eager.guards import MAX_GUARDS, Check, any_nested, guard_of
from tracebridge.torch._eager.nodes import Compiled
from tracebridge.torch._eager.visible import function_modes, profiler

Tensors = Sequence[torch.Tensor]
Apply = Callable[[Family, Tensors], Tensors]
PlainCall = tuple[Check, Mask | None, Compiled]

MAX_MAPS = 64  # of one family: choices of axes that are mapped over
# As numbers: torch's enumeration takes longer to compare two than to look at all tensors.
VMAP, GRAD = functorch.TransformType.Vmap.value, functorch.TransformType.Grad.value
DEAD = -2  # what torch calls the level of a wrapper whose level is over
innermost = functorch.peek_interpreter_stack
pop, push = functorch.pop_dynamic_layer_stack, functorch.push_dynamic_layer_stack
unwrap_batched, add_batch_dim = functorch._unwrap_batched, functorch._add_batch_dim
unwrap_for_grad, wrap_for_grad = functorch._unwrap_for_grad, functorch._wrap_for_grad
unwrap = functorch.get_unwrapped
level_of, innermost_level = functorch.maybe_get_level, functorch.current_level
# What torch's context managers for these do, in a tenth of the time.
_is_allowed = functorch.get_single_level_autograd_function_allowed
_set_allowed = functorch.set_single_level_autograd_function_allowed
_is_fwd_grad_enabled, _set_fwd_grad_enabled = (
    torch._C._is_fwd_grad_enabled,
    torch._C._set_fwd_grad_enabled,
)
_set_grad_enabled = torch._C._set_grad_enabled
grad_enabled = torch.is_grad_enabled
transforms_active = torch._C._are_functorch_transforms_active
_tracing_state = torch._C._get_tracing_state


def is_quiet() -> bool:
    """Whether nothing but transformations of torch.func is in force: ``anywhere`` may be called."""
    return (
        not modes_active()
        and not function_modes()
        and forward_ad._current_level < 0
        and state() is None
        and not profiler._is_profiler_enabled
        and _tracing_state() is None  # pyright: ignore[reportUnnecessaryComparison] - the stubs forget None
    )


@final
class Levels:
    """The known calls of one family.

    ``anywhere(*xs)`` applies the family in the innermost level that is in force, or in none;
    ``lowered(level, *xs)`` outside of the innermost level, one of grad, whose tensors are wrapped.
    """

    __slots__ = ("anywhere", "grads", "lowered", "maps", "plain", "small", "small_maps")

    def __init__(self, family: Family, miss: Apply) -> None:
        # Outside of all levels: check, which of the tensors want gradients (None: no one),
        # executables.
        self.plain: list[PlainCall] = []
        # By the axes that are mapped over: ``anywhere`` of the mapped family.
        self.maps: dict[tuple[int | None, ...], Callable[..., Tensors]] = {}
        # By the inputs that want gradients of a level: check, the node's apply.
        self.grads: dict[Mask, list[tuple[Check, Callable[..., Tensors]]]] = {}
        # Check, and the function as operations of torch; for a map by the axes that are mapped
        # over, with a check of the whole tensors. In levels further in, which may be in a map, a
        # check does not see how many elements there are.
        self.small: list[tuple[Check, Run]] = []
        self.small_maps: dict[tuple[int | None, ...], list[tuple[Check, Run]]] = {}
        self.anywhere = _anywhere(family, self, miss)
        self.lowered = _lowered(self)

    @staticmethod
    def of(family: Family, miss: Apply) -> Levels:
        """The known calls of ``family``; ``miss`` makes those that are not known."""
        found = family.levels
        if found is None:
            with family.lock:
                found = family.levels
                if found is None:
                    found = family.levels = Levels(family, miss)
        return found

    def guard(self, compiled: Compiled, xs: Tensors) -> None:
        """Find a call of plain tensors such as ``xs`` by one look at them."""
        if len(self.plain) < MAX_GUARDS:
            check = guard_of(xs)
            if check is not None:
                wanted = tuple([x.requires_grad for x in xs])
                self.plain.append((check, wanted if any(wanted) else None, compiled))

    def mapped(self, dims: tuple[int | None, ...], below: Levels) -> None:
        """Find the family that is mapped over ``dims``."""
        if len(self.maps) >= MAX_MAPS:
            self.maps.clear()
        self.maps[dims] = below.anywhere

    def recorded(self, wanted: Mask, xs: Tensors, apply: Callable[..., Tensors]) -> None:
        """Find the node for tensors such as ``xs``, of which ``wanted`` have gradients."""
        _remember(self.grads.setdefault(wanted, []), xs, apply)

    def operations(self, dims: tuple[int | None, ...] | None, xs: Tensors, run: Run) -> None:
        """Find what runs the function on tensors such as ``xs``, ``dims`` of which are mapped."""
        _remember(self.small if dims is None else self.small_maps.setdefault(dims, []), xs, run)

    def clear(self) -> None:
        """Forget all calls."""
        self.plain.clear()
        self.maps.clear()
        self.grads.clear()
        self.small.clear()
        self.small_maps.clear()


def _remember(known: list[tuple[Check, Run]], xs: Tensors, run: Run) -> None:
    """Find ``run`` by one look at tensors such as ``xs``, if there is room."""
    if len(known) < MAX_GUARDS:
        check = guard_of(xs)
        if check is not None:
            known.append((check, run))


def _anywhere(family: Family, levels: Levels, miss: Apply) -> Callable[..., Tensors]:
    plain, maps, grads = levels.plain, levels.maps, levels.grads
    small, small_maps = levels.small, levels.small_maps

    def anywhere(*xs: torch.Tensor) -> Tensors:
        if not transforms_active():
            for check, wanted, compiled in plain:
                if check(*xs):
                    if wanted is None or not grad_enabled():
                        return compiled.run(xs)
                    break
            return miss(family, [alive(x) for x in xs])
        # Whose level tensors are of says what the innermost one is: there is no forward mode, and
        # what is batched in it is of vmap, what wants a gradient in it of grad.
        level = innermost_level()
        levels_of = [level_of(x) for x in xs]
        if DEAD in levels_of:
            return miss(family, xs)  # the looks take wrappers for those of a level in force
        if maps or small_maps:
            inner, dims = zip(*map(unwrap_batched, xs, repeat(level)), strict=True)
            if any_nested(inner):
                return miss(family, xs)
            for check, run in small_maps.get(dims, ()):
                if check(*inner) and (level == 1 or has_few_elements(inner)):
                    return run(*xs)
            below = maps.get(dims)
            if below is not None:
                layer = pop()
                try:
                    outs = below(*inner)
                finally:
                    push(layer)
                return [add_batch_dim(o, 0, level) for o in outs]
        for check, run in small:
            if check(*xs) and (level == 1 or has_few_elements(xs)):
                return run(*xs)
        if grads and grad_enabled():
            pairs = zip(levels_of, xs, strict=True)
            known = grads.get(tuple([here == level and x.requires_grad for here, x in pairs]))
            if known is not None:
                for check, apply in known:
                    if check(*xs):
                        return record(apply, level, xs)
        return miss(family, xs)

    return anywhere


def _lowered(levels: Levels) -> Callable[..., Tensors]:
    plain, anywhere = levels.plain, levels.anywhere

    def lowered(level: int, *xs: torch.Tensor) -> Tensors:
        inner = [unwrap_for_grad(x, level) for x in xs]
        if level == 1:
            outs = run_plain(plain, inner)
            if outs is not None:
                return [wrap_for_grad(o, level) for o in outs]
        return [wrap_for_grad(o, level) for o in outside(anywhere, inner, recording=True)]

    return lowered


def has_few_elements(xs: Tensors) -> bool:
    """Whether the tensors are as small as functions want that run as operations of torch."""
    total = 0
    for x in xs:
        whole = x
        while level_of(whole) > 0:
            whole = unwrap(whole)
        total += whole.numel()
    return total <= MAX_ELEMENTS


def run_plain(plain: Sequence[PlainCall], inner: Tensors) -> Tensors | None:
    """The results of a known call without gradients outside of the outermost level; or None."""
    layer = pop()  # looks take levels in force for a part of tensors
    try:
        for check, wanted, compiled in plain:
            if wanted is None and check(*inner):
                return compiled.run(inner)
    finally:
        push(layer)
    return None


def outside(apply: Callable[..., Tensors], xs: Tensors, *, recording: bool) -> Tensors:
    """``apply(*xs)`` outside of the innermost level, which is one of grad.

    ``recording`` is whether the level itself records: no_grad inside of a transformation holds for
    what is computed outside of it, and so does no_grad around it.
    """
    interpreter = innermost()  # what ``prevGradMode`` is read from is a part of it
    recording = recording and functorch.CGradInterpreterPtr(interpreter).prevGradMode()
    before = grad_enabled(), _is_fwd_grad_enabled()
    _set_grad_enabled(recording)
    _set_fwd_grad_enabled(True)
    layer = pop()
    try:
        return apply(*xs)
    finally:
        push(layer)
        _set_grad_enabled(before[0])
        _set_fwd_grad_enabled(before[1])


def record(apply: Callable[..., Tensors], level: int, xs: Tensors) -> Tensors:
    """Apply a node of autograd in one level of torch.func."""
    allowed = _is_allowed()
    _set_allowed(True)
    try:
        return apply(level, *xs)
    finally:
        _set_allowed(allowed)
