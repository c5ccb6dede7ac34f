"""Losses of sequences that are aligned with labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge.core.control.scan.forward import scan
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, cast, wide

_INT32: Final = np.dtype(np.int32)
# Instead of the logarithm of zero: differences of these are no NaN.
_NEVER: Final = -1e30


def _rows_of_labels(targets: Value, lengths: Any) -> Any:
    """Labels of shape ``(batch, most)``, also where they stand one after the other."""
    if targets.ndim == 2:
        return cast(targets, _INT32)
    is_known = isinstance(lengths, list | tuple)
    most = max([0, *lengths]) if is_known else targets.shape[0]
    if not most:
        return tnp.zeros((len(lengths) if is_known else lengths.shape[0], 0), _INT32)
    ends = tnp.cumsum(_lengths(lengths))
    places = (ends - _lengths(lengths))[:, None] + tnp.arange(most, dtype=_INT32)
    return cast(targets[tnp.minimum(places, targets.shape[0] - 1)], _INT32)


def _lengths(lengths: Value | Sequence[Any]) -> Any:
    if isinstance(lengths, list | tuple):
        return tnp.stack([tnp.asarray(n, dtype=_INT32) for n in lengths])
    return cast(lengths, _INT32)


def _sum_of_logs(*logs: Value) -> Any:
    parts = tnp.stack(logs)
    largest = lax.stop_gradient(tnp.max(parts, 0))
    return largest + tnp.log(tnp.sum(tnp.exp(parts - largest), 0))


def _shifted(logs: Value, by: int) -> Any:
    return tnp.pad(logs, ((0, 0), (by, 0)), constant_values=_NEVER)[:, : logs.shape[1]]


def _ctc(
    log_probs: Value,
    targets: Value,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Any, Any]:
    """The loss of each sequence, and logarithms of the probabilities of what has been read.

    States are the labels with a blank before, between and behind them.
    """
    del zero_infinity  # of the loss by what calls this
    dtype, log_probs = log_probs.dtype, wide(log_probs)
    steps, batch, classes = log_probs.shape
    labels = _rows_of_labels(targets, target_lengths)
    n_read, n_labels = _lengths(input_lengths), _lengths(target_lengths)
    states = tnp.full((batch, 2 * labels.shape[1] + 1), blank, _INT32)
    states = states.at[:, 1::2].set(tnp.clip(labels, 0, classes - 1))
    place = tnp.arange(states.shape[1], dtype=_INT32)
    # A blank between two labels may be left out if they differ.
    may_skip = (place % 2 == 1) & (place > 1) & (states != tnp.roll(states, 2, 1))
    emitted = tnp.maximum(tnp.take_along_axis(log_probs, states[None], 2), _NEVER)

    def read(alpha: Any, given: Any) -> tuple[Any, Any]:
        step, emission = given
        skipping = tnp.where(may_skip, _shifted(alpha, 2), _NEVER)
        moved = emission + _sum_of_logs(alpha, _shifted(alpha, 1), skipping)
        alpha = tnp.where((step < n_read)[:, None], moved, alpha)
        return alpha, alpha

    first = tnp.where((place < 2) & (place <= 2 * n_labels[:, None]), emitted[0], _NEVER)
    after = tnp.arange(1, steps, dtype=_INT32)
    alpha, later = scan(read, first, (after, emitted[1:]))
    ends = tnp.stack([2 * n_labels, tnp.maximum(2 * n_labels - 1, 0)], 1)
    last = tnp.take_along_axis(alpha, ends, 1)
    both = tnp.where((n_labels == 0)[:, None] & (tnp.arange(2) == 1), _NEVER, last)
    loss = -_sum_of_logs(both[:, 0], both[:, 1])
    loss = tnp.where(loss > -_NEVER / 2, np.inf, loss)
    loss = tnp.where(n_read == 0, tnp.where(n_labels == 0, 0, np.inf), loss)
    is_read = tnp.arange(steps, dtype=_INT32)[:, None] < n_read
    # torch's derivative is that by what log_softmax was given; none where labels do not fit.
    counts = is_read & lax.ne(loss, np.inf)
    mass = tnp.sum(tnp.where(counts[..., None], tnp.exp(log_probs), 0), (0, 2))
    loss = loss + (mass - lax.stop_gradient(mass))
    history = lax.stop_gradient(tnp.concatenate([first[None], later]))
    return cast(loss, dtype), cast(tnp.swapaxes(history, 0, 1), dtype)


ROWS: Final[dict[str, Operator]] = {
    "_ctc_loss.Tensor": _ctc,
    "_ctc_loss.default": _ctc,
}
