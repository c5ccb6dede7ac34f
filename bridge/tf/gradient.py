"""Derivatives of programs: tapes, accumulators (``tf.autodiff.ForwardAccumulator``) and graphs.

Each derivative is a program that is differentiated in the same way, so that orders and modes mix.
TensorFlow's complex gradients are the conjugates of cotangents; both are converted here. Its
tangents are those of the mathematics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.tf.graph_gradients import GraphGradient, waits
from tracebridge.tf.keeping import Kept
from tracebridge.tf.loops import Iterations, set_rule
from tracebridge.tf.program import Program
from tracebridge.tf.recording import (
    CAN_RECORD,
    could_record,
    not_recording,
    only_tangents,
    record,
    watched,
    with_tangents,
)
from tracebridge.tf.registered import end_with_graph

Pull = Callable[[Program, list[Any]], list[Any]]
"""Runs the pullback of a program on its inputs and cotangents."""
Gradient = Callable[..., list[Any]]
"""Cotangents of results, or None where there is none, to those of inputs."""


def run_differentiable(program: Program, tensors: Sequence[object], pull: Pull) -> list[Any]:
    """The results of ``program``, with gradients by ``pull(program, ...)``."""
    eager = tf.executing_eagerly()
    if not program.diff_in or (eager and not could_record()):
        return program.module(tensors)

    # Without the identities, second derivatives inside a tf.function with the tapes outside of
    # it refer to tensors of the wrong graph.
    inputs: list[Any] = list(tensors) if eager else [tf.identity(t) for t in tensors]
    own = pull is pull_all_orders
    active = watched(inputs, program.diff_in) if own else ()
    late = not eager and own and waits(program)
    kept = program.keeping(active) if active and not late else None
    dots = with_tangents(inputs, program.diff_in)
    pushed = None if active or not own else _pushed(program, inputs, dots)
    # Made before recording stops: the derivatives of a function of call_tf come from tapes.
    module = program.module if kept is None else kept.forward
    if pushed is None:
        with not_recording():
            outs = module(inputs)
    else:
        outs = pushed[: len(program.jaxpr.out_avals)]
    of_all = _gradient_of_all(program, inputs, outs, pull)
    results = outs if kept is None else outs[: len(outs) - kept.n_residuals]
    passed = _known_to_graphs(program, results, inputs, of_all)
    results = passed
    gradient = of_all if kept is None else _gradient_of_kept(program, kept, inputs, outs)
    if late and pushed is None and passed:
        # Loops and branches keep the operands of identities as they are, without the identities.
        operands = [x.op.inputs[0] for x in inputs]
        in_graph = GraphGradient(program, operands, outs, of_all, pull_kept)
        in_graph.attach(passed[0].op)
        gradient = in_graph.by(active)
    # A custom gradient of TensorFlow would have no tangents.
    known = None if pushed is None else pushed[len(outs) :]
    tangents = _tangents_of(program, inputs, dots, known) if own else _zeros_of(results)
    record(program.name, results, inputs, gradient, tangents if dots else None)
    return results


def _pushed(program: Program, inputs: list[Any], dots: tuple[int, ...]) -> list[Any] | None:
    """Results and their tangents by one pass, where that is all that is asked for."""
    values = only_tangents(inputs, dots) if dots else None
    both = None if values is None else program.with_pushforward(dots)
    if values is None or both is None:
        return None
    module = both.module
    with not_recording():
        return module([*inputs, *values])


def _known_to_graphs(
    program: Program, outs: Sequence[Any], inputs: Sequence[Any], gradient: Gradient
) -> list[Any]:
    """``outs`` with ``gradient``, which is by all inputs, for those who differentiate graphs.

    For tapes too where TensorFlow does not let them be told what they want.
    """
    if not outs or (CAN_RECORD and tf.executing_eagerly()):
        return list(outs)

    @tf.custom_gradient  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def run(*xs: object) -> tuple[list[Any], Gradient]:
        del xs  # the gradient knows them
        return list(outs), gradient

    with not_recording():
        results: list[Any] = list(run(*inputs))
    if not tf.executing_eagerly():
        end_with_graph(results[0].op)
    n = len(outs)
    set_rule(results, lambda *given: _in_loop(program, n, *given))
    return results


def _in_loop(
    program: Program, n: int, loop: Any, iterations: Iterations, values: list[Any]
) -> list[tuple[Any, bool]]:
    """The rule of what stands between a program's operation and its derivatives.

    ``values``: the ``n`` results of all iterations and the inputs of the program, which are passed
    on. Derivatives are those of the program of all iterations.
    """
    own = iterations._replace(stacked=iterations.stacked[n:])
    passed = list(zip(values, iterations.stacked, strict=True))
    if not any(own.stacked):
        return passed
    loop.stack_inputs([i for i in range(n) if not iterations.stacked[i]])
    outs = [loop.input(i).t for i in range(n)]
    try:
        found = _derived(program.of_all(own), outs, [tf.identity(v) for v in values[n:]])
    except TracebridgeError as error:
        message = f"{program.name} cannot be vectorized to be differentiated: {error}"
        found = without_gradient(program, outs, message)
    return [*[(out, True) for out in found], *passed[n:]]


def _gradient_of_all(
    program: Program, inputs: Sequence[Any], outs: Sequence[Any], pull: Pull
) -> Gradient:
    """Gradients by all inputs, for whoever asks for whichever."""

    @api_boundary
    def gradient(*cotangents: object) -> list[Any]:
        if not program.diff_out:
            # Without this gradient tapes would ask for one of the operation, and raise.
            return [None] * len(inputs)
        given = [_conjugate(_or_zeros(cotangents[i], outs[i])) for i in program.diff_out]
        pulled = [_conjugate(g) for g in pull(program, [*inputs, *given])]
        return program.by_input(dict(zip(program.diff_in, pulled, strict=True)))

    return gradient


def _gradient_of_kept(program: Program, kept: Kept, inputs: list[Any], outs: list[Any]) -> Gradient:
    """Gradients by the inputs that tapes watch: they ask for nothing else."""

    @api_boundary
    def gradient(*cotangents: object) -> list[Any]:
        given = [_or_zeros(cotangents[i], outs[i]) for i in kept.cotangents]
        pulled = pull_kept(program, kept, inputs, outs, given)
        return program.by_input(dict(zip(kept.active, pulled, strict=True)))

    return gradient


def run_keeping(
    program: Program,
    kept: Kept,
    tensors: Sequence[Any],
    pull: Callable[[list[Any], list[Any], list[Any]], list[Any]],
) -> list[Any]:
    """The results of ``program`` in a graph; who differentiates the graph gets ``pull``.

    It takes the inputs, results with residuals, and cotangents of the results that have some.
    """
    inputs = [tf.identity(t) for t in tensors]
    outs = kept.forward(inputs)
    results = outs[: len(outs) - kept.n_residuals]
    # Derivatives of gradients go through the inputs alone.
    read = [tf.stop_gradient(x) for x in outs]

    @api_boundary
    def gradient(*cotangents: object) -> list[Any]:
        by_result = [_or_zeros(cotangents[i], results[i]) for i in kept.cotangents]
        return program.by_input(dict(zip(kept.active, pull(inputs, read, by_result), strict=True)))

    return _known_to_graphs(program, results, inputs, gradient)


def _tangents_of(
    program: Program, inputs: list[Any], dots: tuple[int, ...], known: list[Any] | None = None
) -> Callable[..., list[Any]]:
    """Tangents of results, from those of the inputs ``dots``, or as they are ``known``."""

    @api_boundary
    def tangents(*given: object) -> list[Any]:
        values = [_or_zeros(given[i], inputs[i]) for i in dots]
        pushforward, both = program.pushforward(dots), [*inputs, *values]
        if known is None:
            pushed = run_differentiable(pushforward, both, pull_all_orders)
        else:
            pushed = _derived(pushforward, known, both)
        found = dict(zip(program.diff_out, pushed, strict=True))
        return [found.get(i) for i in range(len(program.jaxpr.out_avals))]

    return tangents


def _zeros_of(outs: Sequence[Any]) -> Callable[..., list[Any]]:
    """Tangents that nobody gets to see: PreventGradient stands before them."""
    return lambda *_: [tf.zeros_like(out) for out in outs]


def pull_kept(
    program: Program, kept: Kept, inputs: list[Any], outs: list[Any], cotangents: list[Any]
) -> list[Any]:
    """Gradients by residuals, which can be differentiated again by inputs and cotangents."""
    if tf.executing_eagerly() and not could_record():
        return kept.gradients(inputs, outs, cotangents)
    with not_recording():
        grads = kept.gradients(inputs, outs, cotangents)
    return _derived(program.gradients_of(kept), grads, [*inputs, *cotangents])


def _derived(program: Program, outs: Sequence[Any], inputs: list[Any]) -> list[Any]:
    """``outs`` as the results of ``program``, which somebody else has computed."""
    gradient = _gradient_of_all(program, inputs, outs, pull_all_orders)
    results = _known_to_graphs(program, outs, inputs, gradient)
    dots = with_tangents(inputs, program.diff_in)
    tangents = _tangents_of(program, inputs, dots) if dots else None
    record(program.name, results, inputs, gradient, tangents)
    return results


def run_without_gradient(program: Program, tensors: Sequence[object], name: str) -> list[Any]:
    """The results of ``program``; who asks a tape for their gradient gets an error."""
    outs = run_differentiable(program, tensors, _refuse)
    if not program.diff_in:
        return outs
    return without_gradient(program, outs, f"{name} was made with with_gradient=False")


def without_gradient(program: Program, outs: Sequence[object], message: str) -> list[Any]:
    """The results of ``program``, whose gradient is an error with a message."""
    return [
        tf.raw_ops.PreventGradient(input=o, message=message) if i in program.diff_out else o
        for i, o in enumerate(outs)
    ]


def _refuse(program: Program, tensors: list[Any]) -> list[Any]:
    """Zeros, which nobody gets to see: PreventGradient stands before them.

    Who saves a model with its custom gradients traces this one too.
    """
    return [tf.zeros_like(tensors[i]) for i in program.diff_in]


def pull_all_orders(program: Program, tensors: list[Any]) -> list[Any]:
    """A pullback that can be differentiated again, as often as wanted."""
    stored = program.stored
    if stored is not None and not tf.executing_eagerly():
        return called(stored, tensors)
    return run_differentiable(program.pullback, tensors, pull_all_orders)


def called(function: Any, tensors: Sequence[Any]) -> list[Any]:
    """The results of a ``tf.function`` in a graph: a file needs its trace there.

    Also under ``tf.config.run_functions_eagerly``, which would run its Python code.
    """
    return list(function.get_concrete_function()(*tensors))


def _or_zeros(cotangent: Any, like: Any) -> Any:
    """A cotangent; zeros where TensorFlow has none."""
    return tf.zeros_like(like) if cotangent is None else tf.convert_to_tensor(cotangent)


def _conjugate(x: Any) -> Any:
    return tf.math.conj(x) if x.dtype.is_complex else x
