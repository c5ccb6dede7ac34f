"""Pullbacks as functions of their own, with which graphs that are saved find their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import tensorflow as tf

from tracebridge.core.util.caching import BoundedCache
from tracebridge.tf._xla_call_module import tf_dtype, tf_shape
from tracebridge.tf.gradient import (
    called,
    pull_all_orders,
    pull_kept,
    run_differentiable,
    run_keeping,
    without_gradient,
)
from tracebridge.tf.loops import XlaModule
from tracebridge.tf.program import Program
from tracebridge.tf.recording import watched, with_tangents

_MAX_PROGRAMS = 256


def pullback_functions(program: Program, order: int, limit: int | None = None) -> list[Any]:
    """The pullbacks of orders 1 to ``order`` as traced functions of flat tensors.

    There are fewer where a pullback has no derivatives. Gradients of graphs call them from now on.
    Those of the last one are an error that names ``limit``, the number of orders in a file.
    """
    first = program
    programs: list[Program] = []
    for _ in range(order):
        if not program.diff_in or not program.diff_out:
            break
        program = program.pullback
        programs.append(program)
    pulls: list[Any] = []

    def traced(k: int) -> Any:
        own = programs[k]

        @tf.function(input_signature=_specs(own.jaxpr.in_avals), autograph=False)  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
        def pull(*tensors: Any) -> list[Any]:
            if k + 1 == len(programs) and limit is not None:
                return ended(own, own.module(tensors), limit)
            return run_differentiable(own, tensors, pull_all_orders)

        return pull

    pulls.extend([traced(k) for k in range(len(programs))])
    for owner, pull in zip([first, *programs], pulls, strict=False):
        owner.stored = pull
    for pull in reversed(pulls):
        pull.get_concrete_function()
    return pulls


def ended(program: Program, outs: list[Any], limit: int) -> list[Any]:
    """The results of a program whose derivative is not in the file."""
    if not program.diff_in:
        return outs
    message = f"{program.name}: the model was saved with grad_order={limit}; save it with more"
    return without_gradient(program, outs, message)


class Stored(NamedTuple):
    """A program for graphs that are saved: how to run it, and functions of its gradients."""

    run: Callable[[Sequence[Any]], list[Any]]
    pulls: list[Any]


def stored_program(program: Program, order: int, limit: int | None = None) -> Stored:
    """``program`` with gradients of orders 1 to ``order`` that a file can hold.

    Gradients read residuals where there are some. Those are further results of a function that
    XLA compiles as a whole: it computes them where a gradient reads them, and only there.
    ``limit`` as in ``pullback_functions``.
    """
    kept = program.keeping(tuple(program.diff_in)) if order and program.diff_out else None
    if kept is None or not kept.n_residuals or not isinstance(kept.forward, XlaModule):
        return _by_inputs(program, order, limit)
    gradients = program.gradients_of(kept)
    pulls = pullback_functions(gradients, order - 1, limit)
    avals, n = program.jaxpr.in_avals, program.jaxpr.n_in
    results = kept.forward.operation.results
    n_results = len(results) - kept.n_residuals
    read = [*kept.results, *range(n_results, len(results))]
    specs = [*_specs(avals), *[results[i] for i in read], *[results[i] for i in kept.cotangents]]

    @tf.function(input_signature=specs, autograph=False)  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def pull(*tensors: Any) -> list[Any]:
        inputs, saved = list(tensors[:n]), tensors[n : n + len(read)]
        outs: list[Any] = [None] * len(results)
        for i, x in zip(read, saved, strict=True):
            outs[i] = x
        cotangents = list(tensors[n + len(read) :])
        if not pulls and limit is not None:
            return ended(gradients, kept.gradients(inputs, outs, cotangents), limit)
        return pull_kept(program, kept, inputs, outs, cotangents)

    @tf.function(input_signature=_specs(avals), autograph=False, jit_compile=True)  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def forward(*tensors: Any) -> list[Any]:
        def by_inputs(inputs: list[Any], outs: list[Any], cotangents: list[Any]) -> list[Any]:
            return called(pull, [*inputs, *[outs[i] for i in read], *cotangents])

        return run_keeping(program, kept, tensors, by_inputs)

    functions: tuple[Any, Any] = pull, forward
    for function in functions:
        function.get_concrete_function()
    return Stored(lambda xs: called(functions[1], xs), [functions[0], *pulls])


def _by_inputs(program: Program, order: int, limit: int | None = None) -> Stored:
    """``program`` with gradients that are functions of its inputs."""
    pulls = pullback_functions(program, order, limit)
    if not pulls and limit is not None:
        return Stored(lambda xs: ended(program, program.module(xs), limit), [])
    return Stored(lambda xs: run_differentiable(program, xs, pull_all_orders), pulls)


def _specs(avals: Sequence[Any]) -> list[Any]:
    return [tf.TensorSpec(tf_shape(a.shape), tf_dtype(a.dtype)) for a in avals]


class _InGraphs(NamedTuple):
    """A program, functions to put beside it into a graph, and constants of those of all orders."""

    program: Program
    run: Callable[[Sequence[Any]], list[Any]]
    lower: list[Any]
    constants: list[Any]


@final
class StoredPullbacks:
    """Runs programs such that a graph has their pullbacks to an order, called or not.

    TensorFlow saves the gradients of what it finds in the functions of a graph, if these functions
    have what the gradients capture. So functions of the lower orders are put into the graph beside
    the program, and constants of all orders are captured there. The function of the highest order
    is found as what the gradient of the one before calls, and its own gradient is not.
    """

    __slots__ = ("_found", "_order")

    def __init__(self, name: str, order: int) -> None:
        self._order = order
        self._found: BoundedCache[_InGraphs] = BoundedCache(f"pullbacks of {name}", _MAX_PROGRAMS)

    def run(self, program: Program, tensors: Sequence[object]) -> list[Any]:
        """The results of ``program``, with gradients of any order in this process."""
        graph: Any = tf.compat.v1.get_default_graph()
        if tf.executing_eagerly() or not program.diff_in or not hasattr(graph, "capture"):
            return run_differentiable(program, tensors, pull_all_orders)
        inputs, by = list(tensors), program.diff_in
        # Who asks here takes what it needs. A function of residuals gives all gradients, and
        # TensorFlow's tangents of functions have no gradients.
        asked = bool(watched(inputs, by) or with_tangents(inputs, by))
        stored = self._of(program, asked)
        for function in stored.lower:
            function.get_concrete_function().add_to_graph(graph)
        for constant in stored.constants:
            graph.capture(constant)
        return stored.run(inputs)

    def _of(self, program: Program, asked: bool) -> _InGraphs:
        # The row has the program, so that the number is that of no other one.
        key = id(program), asked
        found = self._found.get(key)
        if found is None:
            with tf.init_scope():
                make = _by_inputs if asked else stored_program
                found = _in_graphs(program, make(program, self._order), self._order)
            self._found.set(key, found)
        return found


def _in_graphs(program: Program, stored: Stored, order: int) -> _InGraphs:
    constants = {id(t): t for f in stored.pulls for t in f.get_concrete_function().captured_inputs}
    return _InGraphs(program, stored.run, stored.pulls[: order - 1], list(constants.values()))
