"""Programs that keep residuals for their gradients, of the inputs that tapes watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge._derived.dependence import attached, paths_of
from tracebridge._derived.gradients import with_gradients
from tracebridge._derived.residuals import split_for_backward
from tracebridge.core.symbolic.dims import is_static

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr


Module = Callable[[Sequence[Any]], list[Any]]
"""A program as a function of flat tensors."""
Write = Callable[["Jaxpr", str, Sequence[str]], Module]
"""Makes the module of a program, from its name and those of its inputs."""


class Kept(NamedTuple):
    """A program in two parts, for gradients of its inputs ``active``.

    ``forward``: inputs -> results, residuals. ``backward``: (the inputs ``inputs``, the results
    ``results``, residuals, cotangents of the results ``cotangents``) -> gradients, both in the
    convention of TensorFlow: conjugates.
    """

    forward: Module
    backward: Module
    active: tuple[int, ...]
    inputs: tuple[int, ...]
    results: tuple[int, ...]
    cotangents: tuple[int, ...]
    n_residuals: int

    def gradients(
        self, inputs: Sequence[Any], outs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """Gradients by the inputs ``active``; ``outs``: results and residuals."""
        of_inputs = [inputs[i] for i in self.inputs]
        of_results = [outs[i] for i in self.results]
        residuals = outs[len(outs) - self.n_residuals :] if self.n_residuals else []
        return self.backward([*of_inputs, *of_results, *residuals, *cotangents])


def split_program(
    jaxpr: Jaxpr,
    name: str,
    names: Sequence[str],
    active: tuple[int, ...],
    plain: Callable[[], Module],
    write: Write,
) -> Kept | None:
    """The two parts; None where no result depends on the inputs ``active``.

    ``plain`` gives the program without residuals. ``write`` makes the modules.
    """
    mask = tuple([i in active for i in range(jaxpr.n_in)])
    attached_results = attached(mask, paths_of(jaxpr))
    if not any(attached_results):
        return None
    joint = with_gradients(jaxpr, mask, attached_results)
    split = split_for_backward(joint, jaxpr, attached_results)
    inputs, backward = split.inputs, split.backward
    if not all([is_static(a.shape) for a in backward.in_avals]):
        # All sizes are known from the inputs of the function, not from some of them.
        inputs, backward = tuple(range(jaxpr.n_in)), split.backward_of_all(attached_results)
    forward = write(split.forward, name, names) if split.n_residuals else plain()
    cotangents = tuple([i for i, here in enumerate(attached_results) if here])
    of_backward = [
        *[names[i] for i in inputs],
        *[f"result {i}" for i in split.results],
        *[f"residual {i}" for i in range(split.n_residuals)],
        *[f"the cotangent of result {i}" for i in cotangents],
    ]
    pull = write(backward, f"the gradient of {name}", of_backward)
    return Kept(forward, pull, active, inputs, split.results, cotangents, split.n_residuals)
