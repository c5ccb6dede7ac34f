"""Gradients of small losses, computed in the forward pass.

A program of a few operations costs less than calling it, 10 to 20 us where torch's own code ran
just before. So where a call has one scalar result to differentiate, its program gives the gradients
for a cotangent as well: for 1, which is what ``backward()`` begins with, until another one comes,
then for that one. A loss that is scaled has the same cotangent for many steps. A backward pass with
a cotangent that was not foreseen, or one that is itself differentiated, runs the pullback as ever,
and after some of these the function computes nothing in advance any more. slopes.py does so for the
cotangent 1 in levels of ``torch.func``.
"""

from __future__ import annotations

import math
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
MOST_MISSED = 4  # cotangents in a row that were not foreseen


@final
class Early:
    """The programs of value and gradients of a node, as long as somebody takes these.

    ``make_of_one`` makes the program for the cotangent 1, ``make_of_seed`` the one whose last
    argument is the cotangent, a number. ``seed``: that of the next forward pass.
    """

    __slots__ = (
        "_make_of_one", "_make_of_seed", "_missed", "_of_one", "_of_seed", "_unused", "seed",
        "wanted",
    )  # fmt: skip

    def __init__(self, make_of_one: Callable[[], Run], make_of_seed: Callable[[], Run]) -> None:
        self._make_of_one, self._make_of_seed = make_of_one, make_of_seed
        self._of_one: Run | None = None
        self._of_seed: Run | None = None
        self._unused = 0  # forward passes in a row whose gradients nobody has taken
        self._missed = 0  # cotangents in a row that were others
        self.seed = 1.0
        self.wanted = True

    def run(self, leaves: Sequence[torch.Tensor], seed: float) -> list[torch.Tensor]:
        """The results, then the gradients for the cotangent ``seed``."""
        self._unused += 1
        self.wanted = self._unused < PATIENCE
        if seed == 1:
            found = self._of_one
            if found is None:
                found = self._of_one = self._make_of_one()
            return found(leaves)
        found = self._of_seed
        if found is None:
            found = self._of_seed = self._make_of_seed()
        return found((*leaves, seed))

    def fits(self, cotangent: Any, seed: float) -> bool:
        """Whether gradients for ``seed`` are those for this cotangent.

        If they are not, the next ones may be. Zeros have signs, which numbers that are equal do not
        tell: nothing is computed for them in advance.
        """
        value = cotangent.item() if cotangent is not None and is_ready(cotangent) else None
        if value == seed:
            self._unused = self._missed = 0
            return True
        self._missed += 1
        if value is None or self._missed >= MOST_MISSED:
            self.wanted = False
        elif value and math.isfinite(value):
            self.seed = value
        return False

    def clear(self) -> None:
        """Drop the executables."""
        self._of_one = self._of_seed = None


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
