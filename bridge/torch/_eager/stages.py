"""A backward program in pieces: see ``bridge/_derived/pieces.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from tracebridge.torch._crossing.execute import Run

_LOST = (
    "The backward pass runs in pieces that free what they have read. Unless the graph was "
    "retained, run the forward pass again before the next backward pass."
)


@final
class Stages:
    """The executables of a backward program that is cut in pieces.

    ``steps``: of each piece the executable, the places of its arguments among the inputs and all
    values so far, and the places that nobody reads behind it.
    """

    __slots__ = ("results", "steps")

    def __init__(
        self,
        steps: Sequence[tuple[Run, tuple[int, ...], tuple[int, ...]]],
        results: tuple[int, ...],
    ) -> None:
        self.steps = tuple(steps)
        self.results = results

    def __call__(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """All gradients."""
        return self.spend([*leaves])

    def spend(self, leaves: list[Any]) -> list[torch.Tensor]:
        """All gradients. Who has no other name for ``leaves`` gets their memory on the way."""
        for run, places, last in self.steps:
            leaves += run([leaves[p] for p in places])
            for p in last:
                leaves[p] = None
        return [leaves[p] for p in self.results]


def run_and_free(run: Run, leaves: list[Any], free: Callable[[], None] | None) -> Sequence[Any]:
    """``run(leaves)``, which empties ``leaves``; ``free`` lets go of what torch has saved of them.

    Torch does so itself behind a backward pass, unless it is told to retain the graph. A program
    in one piece needs all its arguments until it ends.
    """
    if not isinstance(run, Stages):
        return run(leaves)
    if free is not None:
        free()
    try:
        return run.spend(leaves)
    except BaseException as error:
        error.add_note(_LOST)
        raise
