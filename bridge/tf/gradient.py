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

    @tf.custom_gradient  # pyright: ignore[reportUntypedFunctionDecorator] - TensorFlow has no stubs for it
    def run(*xs: object) -> tuple[list[Any], Callable[..., Any]]:
        outs = program.module(xs)

        @api_boundary
        def gradient(*cotangents: object) -> list[Any]:
            if not program.diff_out:
                # Without this gradient tapes would ask for one of the operation, and raise.
                return [None] * len(xs)
            out_cotangents = [_cotangent(cotangents[i], outs[i]) for i in program.diff_out]
            grads = iter(pull(program, [*xs, *out_cotangents]))
            return [_conjugate(next(grads)) if i in diff_in else None for i in range(len(xs))]

        return outs, gradient

    diff_in = frozenset(program.diff_in)
    # Without the identities, second derivatives inside a tf.function with the tapes outside of
    # it refer to tensors of the wrong graph.
    return list(run(*[tf.identity(t) for t in tensors]))


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


def _cotangent(cotangent: Any, out: Any) -> Any:
    """A cotangent of a result: zeros where TensorFlow has none."""
    if cotangent is None:
        return tf.zeros_like(out)
    return _conjugate(tf.convert_to_tensor(cotangent))


def _conjugate(x: Any) -> Any:
    return tf.math.conj(x) if x.dtype.is_complex else x
