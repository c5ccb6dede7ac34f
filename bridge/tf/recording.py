"""What TensorFlow's tapes and forward accumulators record: the one place that uses its private API.

``tf.custom_gradient`` lets accumulators see the operations inside of it, and has no place for the
function of tangents. TensorFlow's own functions are recorded by what is used here.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

_NAMES = ("could_possibly_record", "record_operation", "should_record_backprop", "stop_recording")


def _found() -> dict[str, Callable[..., Any]]:
    """TensorFlow's functions by name; none where it has moved one of them."""
    try:
        record = importlib.import_module("tensorflow.python.eager.record")
        util = importlib.import_module("tensorflow.python.eager.forwardprop_util")
        found = {name: getattr(record, name) for name in _NAMES}
        found["pack_tangents"] = util.pack_tangents
    except (ImportError, AttributeError):
        found = {}
    return found


_FUNCTIONS = _found()
CAN_RECORD = bool(_FUNCTIONS)
"""Whether this TensorFlow has all that is used here."""


def could_record() -> bool:
    """Whether some tape or accumulator is active, as far as TensorFlow says."""
    return not CAN_RECORD or _FUNCTIONS["could_possibly_record"]()


def watched(tensors: Sequence[Any], candidates: Sequence[int]) -> tuple[int, ...]:
    """Those of ``candidates`` that a tape watches; none where TensorFlow does not say."""
    if not CAN_RECORD:
        return ()
    is_watched = _FUNCTIONS["should_record_backprop"]
    return tuple([i for i in candidates if is_watched([tensors[i]])])


def with_tangents(tensors: Sequence[Any], candidates: Sequence[int]) -> tuple[int, ...]:
    """Those of ``candidates`` that have a tangent in an accumulator."""
    if not CAN_RECORD:
        return ()
    levels = _FUNCTIONS["pack_tangents"](list(tensors)).indices
    # The tangents themselves stand behind the tensors, and may have tangents of their own.
    found = {primal for level in levels for primal, _ in level}
    return tuple([i for i in candidates if i in found])


def only_tangents(tensors: Sequence[Any], dots: Sequence[int]) -> list[Any] | None:
    """The tangents of the tensors ``dots``, if there is one accumulator that has any.

    With several, the tangents of one have tangents in another.
    """
    if not CAN_RECORD:
        return None
    levels, tangents = _FUNCTIONS["pack_tangents"](list(tensors))
    found = [dict(level) for level in levels if level]
    if len(found) != 1 or set(found[0]) != set(dots):
        return None
    return [tangents[found[0][i] - len(tensors)] for i in dots]


def not_recording() -> contextlib.AbstractContextManager[None]:
    """Operations inside are recorded by nobody; the gradients of graphs see them."""
    return _FUNCTIONS["stop_recording"]() if CAN_RECORD else contextlib.nullcontext()


def record(
    name: str,
    outs: Sequence[Any],
    inputs: Sequence[Any],
    gradient: Callable[..., Any],
    tangents: Callable[..., Any] | None = None,
) -> None:
    """Let tapes call ``gradient`` and accumulators ``tangents`` for ``outs``, if they want them.

    ``gradient`` takes a cotangent for each result, ``tangents`` a tangent for each input; None
    where there is none. Without ``tangents``, TensorFlow differentiates ``gradient``.
    """
    if CAN_RECORD:
        _FUNCTIONS["record_operation"](name, list(outs), list(inputs), gradient, tangents)
