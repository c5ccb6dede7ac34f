"""Programs that keep residuals for their gradients, of the inputs that tapes watch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tracebridge._derived.dependence import attached, paths_of
from tracebridge._derived.families import with_gradients
from tracebridge._derived.residuals import split_for_backward
from tracebridge.core.export.portable import portable_program
from tracebridge.core.lowering.embedding import CONSUMER_TARGET
from tracebridge.core.symbolic.dims import is_static
from tracebridge.tf._xla_call_module import PLATFORMS, CallModule, stablehlo_target

if TYPE_CHECKING:
    from tracebridge.core.ir.jaxpr import Jaxpr


def _tape_functions() -> tuple[Callable[..., bool] | None, Callable[..., None] | None]:
    """TensorFlow's own check whether a tape watches tensors, and what records on tapes alone."""
    try:
        record = importlib.import_module("tensorflow.python.eager.record")
        found = record.should_record_backprop, record.record_operation_backprop_only
    except (ImportError, AttributeError):
        found = None, None
    return found


_is_watched, _record = _tape_functions()


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


def watched(tensors: Sequence[Any], candidates: Sequence[int]) -> tuple[int, ...]:
    """Those of ``candidates`` that a tape watches; none where TensorFlow does not say."""
    if _is_watched is None or _record is None:
        return ()
    return tuple([i for i in candidates if _is_watched([tensors[i]])])


def record_on_tapes(
    name: str, outs: Sequence[Any], inputs: Sequence[Any], gradient: Callable[..., Any]
) -> None:
    """Let ``gradient`` be what tapes call for ``outs``, in the place of what they have recorded.

    Gradients of graphs and forward accumulators don't see it: they may ask for any input.
    """
    if _record is not None:
        _record(name, list(outs), list(inputs), gradient)


def split_program(
    jaxpr: Jaxpr,
    name: str,
    names: Sequence[str],
    active: tuple[int, ...],
    plain: Module,
    write: Write,
) -> Kept | None:
    """The two parts; None where no result depends on the inputs ``active``.

    ``plain``: the program without residuals. ``write`` makes the modules.
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
    forward = write(split.forward, name, names) if split.n_residuals else plain
    cotangents = tuple([i for i, here in enumerate(attached_results) if here])
    of_backward = [
        *[names[i] for i in inputs],
        *[f"result {i}" for i in split.results],
        *[f"residual {i}" for i in range(split.n_residuals)],
        *[f"the cotangent of result {i}" for i in cotangents],
    ]
    pull = write(backward, f"the gradient of {name}", of_backward)
    return Kept(forward, pull, active, inputs, split.results, cotangents, split.n_residuals)


def module_of(
    jaxpr: Jaxpr,
    name: str,
    names: Sequence[str],
    *,
    platforms: Sequence[str] = PLATFORMS,
    disabled_checks: Sequence[str] = (),
) -> CallModule:
    """A program as a TensorFlow operation."""
    portable = portable_program(
        jaxpr,
        name,
        target=stablehlo_target(),
        names=names,
        platforms=platforms,
        allowed=(CONSUMER_TARGET,),
    )
    return CallModule(portable, names, disabled_checks)
