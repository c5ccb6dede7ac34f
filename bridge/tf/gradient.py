"""Gradients of programs under ``tf.GradientTape``: one custom gradient for each order.

TensorFlow's complex gradients are the conjugates of cotangents; both are converted here.
Forward mode (``tf.autodiff.ForwardAccumulator``) has no way into a custom gradient.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tracebridge.core.errors.filtering import api_boundary
from tracebridge.tf.keeping import Kept, record_on_tapes, watched
from tracebridge.tf.program import Program

Pull = Callable[[Program, list[Any]], list[Any]]
"""Runs the pullback of a program on its inputs and cotangents."""


def _recording_probe() -> Callable[[], bool]:
    """TensorFlow's own check whether some tape is active; always True where it has moved."""
    try:
        return importlib.import_module("tensorflow.python.eager.record").could_possibly_record
    except (ImportError, AttributeError):
        return lambda: True


could_record = _recording_probe()


def run_differentiable(program: Program, tensors: Sequence[object], pull: Pull) -> list[Any]:
    """The results of ``program``, with gradients by ``pull(program, ...)``."""
    if not program.diff_in or (not could_record() and tf.executing_eagerly()):
        return program.module(tensors)

    # Without the identities, second derivatives inside a tf.function with the tapes outside of
    # it refer to tensors of the wrong graph.
    inputs = [tf.identity(t) for t in tensors]
    active = watched(inputs, program.diff_in) if pull is pull_all_orders else ()
    kept = program.keeping(active) if active else None
    if kept is None:
        return _with_gradient(program, inputs, program.module(inputs), pull)
    outs = kept.forward(inputs)
    results = _with_gradient(program, inputs, outs[: len(outs) - kept.n_residuals], pull)

    @api_boundary
    def gradient(*cotangents: object) -> list[Any]:
        given = [_or_zeros(cotangents[i], outs[i]) for i in kept.cotangents]
        grads = dict(zip(active, _pull_kept(program, kept, inputs, outs, given), strict=True))
        return [grads.get(i) for i in range(len(inputs))]

    # Tapes ask for what they watched, so that nothing else need be computed.
    record_on_tapes(program.name, results, inputs, gradient)
    return results


def _with_gradient(
    program: Program, inputs: Sequence[Any], outs: Sequence[Any], pull: Pull
) -> list[Any]:
    """The results ``outs`` with gradients by all inputs, for whoever asks for whichever."""

    @tf.custom_gradient  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def run(*xs: object) -> tuple[list[Any], Callable[..., Any]]:
        @api_boundary
        def gradient(*cotangents: object) -> list[Any]:
            if not program.diff_out:
                # Without this gradient tapes would ask for one of the operation, and raise.
                return [None] * len(xs)
            out_cotangents = [
                _conjugate(_or_zeros(cotangents[i], outs[i])) for i in program.diff_out
            ]
            grads = iter(pull(program, [*xs, *out_cotangents]))
            return [_conjugate(next(grads)) if i in diff_in else None for i in range(len(xs))]

        return list(outs), gradient

    diff_in = frozenset(program.diff_in)
    return list(run(*inputs))


def _pull_kept(
    program: Program, kept: Kept, inputs: list[Any], outs: list[Any], cotangents: list[Any]
) -> list[Any]:
    """Gradients by residuals, which can be differentiated again by inputs and cotangents."""
    if tf.executing_eagerly() and not could_record():
        return kept.gradients(inputs, outs, cotangents)
    n = len(inputs)

    @tf.custom_gradient  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def run(*values: Any) -> tuple[list[Any], Callable[..., Any]]:
        grads = kept.gradients(inputs, outs, values[n:])

        @api_boundary
        def gradient(*seconds: object) -> list[Any]:
            by_result = dict(zip(kept.cotangents, values[n:], strict=True))
            by_input = {
                i: _or_zeros(second, grad)
                for i, second, grad in zip(kept.active, seconds, grads, strict=True)
            }
            pulled = pull_all_orders(
                program.pullback,
                [
                    *values[:n],
                    *[_conjugate(_or_zeros(by_result.get(i), outs[i])) for i in program.diff_out],
                    *[_or_zeros(by_input.get(i), inputs[i]) for i in program.diff_in],
                ],
            )
            found = dict(zip(program.pullback.diff_in, pulled, strict=True))
            place = {i: n + k for k, i in enumerate(program.diff_out)}
            # The cotangents were conjugated on the way in.
            return [
                *[_conjugate(found[i]) if i in found else None for i in range(n)],
                *[found[place[i]] for i in kept.cotangents],
            ]

        return grads, gradient

    return list(run(*inputs, *cotangents))


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
    return run_differentiable(program.pullback, tensors, pull_all_orders)


def _or_zeros(cotangent: Any, like: Any) -> Any:
    """A cotangent; zeros where TensorFlow has none."""
    return tf.zeros_like(like) if cotangent is None else tf.convert_to_tensor(cotangent)


def _conjugate(x: Any) -> Any:
    return tf.math.conj(x) if x.dtype.is_complex else x
