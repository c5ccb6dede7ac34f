"""Gradients of small losses, computed in the forward pass.

A program of a few operations costs less than calling it, 10 to 20 us where torch's own code ran
just before. So where a call has one scalar result to differentiate, its program gives the gradients
for the cotangent 1 as well, which is what ``backward()`` begins with. A backward pass that has
another cotangent, or is itself differentiated, runs the pullback as ever, and the function computes
nothing in advance any more. slopes.py does the same in levels of ``torch.func``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge._derived.forward_only import NoSplit
from tracebridge._derived.gradients import with_gradients
from tracebridge._derived.tails import bytes_of
from tracebridge.core.config.values import fast_path_allowed
from tracebridge.core.dtypes.dtypes import is_complex, is_inexact
from tracebridge.core.ir.traverse import applications
from tracebridge.interop.torch_adapter import is_ready

if TYPE_CHECKING:
    import torch

    from tracebridge._derived.handles import Mask
    from tracebridge._derived.residuals import Split
    from tracebridge.core.ir.jaxpr import Jaxpr
    from tracebridge.torch._crossing.execute import Run

MAX_BYTES = 64 << 10  # of all gradients: more are dearer than a second program
PATIENCE = 16  # forward passes without a backward pass


@final
class Early:
    """The program of value and gradients of a node, as long as somebody takes these."""

    __slots__ = ("_make", "_run", "_unused", "wanted")

    def __init__(self, make: Callable[[], Run]) -> None:
        self._make = make
        self._run: Run | None = None
        self._unused = 0  # forward passes in a row whose gradients nobody has taken
        self.wanted = True

    def run(self, leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results, then the gradients."""
        self._unused += 1
        self.wanted = self._unused < PATIENCE
        found = self._run
        if found is None:
            found = self._run = self._make()
        return found(leaves)

    def fits(self, cotangent: Any) -> bool:
        """Whether the gradients are for this cotangent; hooks may have changed the 1 of torch."""
        if cotangent is not None and is_ready(cotangent) and cotangent.item() == 1:
            self._unused = 0
            return True
        self.wanted = False
        return False

    def clear(self) -> None:
        """Drop the executable."""
        self._run = None


def is_worth_it(program: Jaxpr, active: Mask, attached: Mask, parts: Split | NoSplit) -> bool:
    """Whether gradients may be computed in the forward pass of ``program``, split in ``parts``."""
    if isinstance(parts, NoSplit) or parts.n_residuals:
        return False
    if not is_small_loss(program, active, attached):
        return False
    # Rules of users may print, or call functions of Python, which belongs to the backward pass.
    whole = with_gradients(program, active, attached)
    return not whole.effects and not any([a.primitive.holds_functions for a in applications(whole)])


def is_small_loss(program: Jaxpr, active: Mask, attached: Mask) -> bool:
    """Whether a program has one real scalar to differentiate, small gradients, and no effects."""
    if program.effects or not fast_path_allowed() or sum(attached) != 1:
        return False
    result = program.out_avals[attached.index(True)]
    if result.shape or is_complex(result.dtype) or not is_inexact(result.dtype):
        return False
    pairs = zip(program.in_avals, active, strict=True)
    return sum([bytes_of(a) for a, here in pairs if here]) <= MAX_BYTES
