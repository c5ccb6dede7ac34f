"""Small scalar functions under ``torch.func.grad``: one program gives the value and the gradients.

Two programs of a few operations cost more than all else that torch does for a gradient. So the
forward pass of a scalar function with small gradients computes them for the cotangent 1, which is
what ``torch.func.grad`` hands to the function that it is given, and its backward pass gives them
out. Where another cotangent comes, the function is one among others: the pullback runs as usual,
and the next forward passes do not compute gradients for nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, final

import torch
from torch._functorch import eager_transforms

from tracebridge._derived.families import Family
from tracebridge._derived.handles import Mask, slopes_handle
from tracebridge.torch._eager.early import PATIENCE, is_small_loss
from tracebridge.torch._eager.levels import (
    Apply,
    Levels,
    Tensors,
    innermost_level,
    outside,
    pop,
    push,
    run_plain,
    unwrap_for_grad,
    wrap_for_grad,
)

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.torch._contexts import SlopesContext

_LEAF: Any = getattr(getattr(torch._C, "_functions", None), "AccumulateGrad", None)
"""The node of a leaf; not there, every gradient is recorded."""


@final
class Slopes:
    """Value and gradients of a family in one program, as long as somebody wants them."""

    __slots__ = ("anywhere", "n_out", "plain", "unused", "wanted")

    def __init__(self, family: Family, active: Mask, n_out: int, call: Apply) -> None:
        levels = Levels.of(family.child(slopes_handle("", active)[2:]), call)
        self.plain = levels.plain
        self.anywhere = levels.anywhere
        self.n_out = n_out
        self.wanted = True
        self.unused = 0  # forward passes in a row whose gradients nobody has taken

    def run(self, ctx: SlopesContext, xs: Tensors) -> Tensors | None:
        """The results, in the outermost level; None for tensors that it is not made for."""
        inner = [unwrap_for_grad(x, 1) for x in xs]
        outs = run_plain(self.plain, inner)
        if outs is None:
            if any([x.requires_grad or type(x) is not torch.Tensor or not x.is_cpu for x in inner]):
                return None
            outs = outside(self.anywhere, inner, recording=True)
        ctx.slopes = outs[self.n_out :]
        self.unused += 1
        self.wanted = self.unused < PATIENCE
        return [wrap_for_grad(o, 1) for o in outs[: self.n_out]]

    def taken(
        self, ctx: SlopesContext, cotangent: torch.Tensor, *, leaving: bool
    ) -> Tensors | None:
        """The gradients, once, if they are for this cotangent and nobody differentiates them.

        ``leaving`` is what ``leave_level`` says.
        """
        slopes, ctx.slopes = ctx.slopes, None
        assert slopes is not None
        # Hooks may have changed the 1 that torch starts with.
        if leaving and innermost_level() == 1 and _is_one(cotangent):
            self.unused = 0
            return [wrap_for_grad(s, 1) for s in slopes]
        self.wanted = False
        return None


def slopes_of(
    family: Family, program: Jaxpr, active: Mask, attached: Mask, call: Apply
) -> Slopes | None:
    """What computes value and gradients at once; None for functions that it is not good for."""
    if not _CALLERS or not is_small_loss(program, active, attached):
        return None
    return Slopes(family, active, len(attached), call)


def _is_one(cotangent: torch.Tensor) -> bool:
    """Whether a cotangent, in the outermost level, is the number 1."""
    plain = unwrap_for_grad(cotangent, 1)
    if type(plain) is not torch.Tensor or plain.requires_grad or not plain.is_cpu:
        return False
    layer = pop()
    try:
        return plain.item() == 1
    finally:
        push(layer)


def _callers() -> tuple[CodeType, ...]:
    """The functions between torch.func.grad and a backward pass, the innermost first.

    None of them if this torch has others.
    """
    functions: Sequence[Any] = (
        torch.autograd.function.BackwardCFunction.apply,
        getattr(torch.autograd.graph, "_engine_run_backward", None),
        torch.autograd.grad,
        getattr(eager_transforms, "_autograd_grad", None),
        getattr(eager_transforms, "grad_and_value_impl", None),
    )
    codes: list[CodeType] = []
    for function in functions:
        code = getattr(inspect.unwrap(function) if function else None, "__code__", None)
        if code is None:
            return ()
        codes.append(code)
    return tuple(codes)


_CALLERS = _callers()


def leave_level(ctx: SlopesContext) -> bool:
    """Whether the gradients of a node leave its level at once, so that nobody differentiates them.

    They do in a backward pass of ``torch.func.grad`` itself, if the inputs are those of the
    function that it is given: elsewhere hooks, and backward passes of others, come between.
    """
    if not _CALLERS:
        return False
    frame: FrameType | None = sys._getframe(2)
    for code in _CALLERS:
        if frame is None or frame.f_code is not code:
            return False
        frame = frame.f_back
    for node, _ in ctx.next_functions:
        if node is not None and (type(node) is not _LEAF or node.variable._backward_hooks):
            return False
    return True
