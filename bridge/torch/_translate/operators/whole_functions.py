"""Functions that graphs keep whole: see ``_translate/whole.py``."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import tracebridge.core.lax as lax
import tracebridge.lax as public
import tracebridge.numpy as tnp
from tracebridge.core.ir.value import Value
from tracebridge.torch._translate.numbers import Operator, cast
from tracebridge.torch._translate.whole import CTC_LOSSES, LSTSQ, is_vector

_INT32: Final = np.dtype(np.int32)


def _ctc_losses(
    log_probs: Value,
    targets: Value,
    input_lengths: Value,
    target_lengths: Value,
    blank: int,
    zero_infinity: bool,
) -> Any:
    """Minus the logarithm of the probability of each sequence of labels."""
    batch = log_probs.shape[1:-1]
    x = tnp.reshape(log_probs, (log_probs.shape[0], -1, log_probs.shape[-1]))
    n_inputs = tnp.reshape(cast(input_lengths, _INT32), (-1,))
    n_labels = tnp.reshape(cast(target_lengths, _INT32), (-1,))
    labels = _padded(cast(targets, _INT32), n_labels, is_one=not batch)
    path = _with_blanks(labels, blank)
    found = tnp.take_along_axis(x, path[None], axis=-1)
    ways = _ways(found, _may_skip(path, blank), n_inputs)
    last = tnp.stack([2 * n_labels, tnp.maximum(2 * n_labels - 1, 0)], axis=-1)
    ends = tnp.take_along_axis(ways, last, axis=-1)
    ends = tnp.where(tnp.stack([n_labels >= 0, n_labels > 0], axis=-1), ends, -np.inf)
    losses = -_log_sum(ends[:, 0], ends[:, 1])
    losses = losses + _slope_of_logits(x, n_inputs)
    if zero_infinity:
        losses = tnp.where(lax.eq(losses, tnp.full_like(losses, np.inf)), 0, losses)
    return tnp.reshape(losses, batch)


def _padded(targets: Value, n_labels: Value, *, is_one: bool) -> Any:
    """Labels by row; torch takes them one row after the other as well."""
    if targets.ndim == 2 or is_one:
        return tnp.reshape(targets, (n_labels.shape[0], -1))
    starts = tnp.cumsum(n_labels) - n_labels
    place = starts[:, None] + tnp.arange(targets.shape[0], dtype=_INT32)
    return tnp.take(targets, place, axis=0, mode="clip")


def _with_blanks(labels: Value, blank: int) -> Any:
    rows, n = labels.shape
    between = tnp.stack([tnp.full_like(labels, blank), labels], axis=-1)
    end = tnp.full((rows, 1), blank, labels.dtype)
    return tnp.concatenate([tnp.reshape(between, (rows, 2 * n)), end], axis=1)


def _may_skip(path: Value, blank: int) -> Any:
    """Where a path may come from two places before: from another label over a blank."""
    before = tnp.pad(path, ((0, 0), (2, 0)), constant_values=blank)[:, : path.shape[1]]
    return (path != blank) & (path != before)


def _ways(found: Value, may_skip: Value, n_inputs: Value) -> Any:
    """Logarithms of the probabilities to be at each place of the path after all inputs."""
    size = found.shape[-1]
    start = tnp.where(tnp.arange(size) == 0, 0.0, -np.inf)
    first = tnp.broadcast_to(cast(start, found.dtype), found.shape[1:])

    def step(ways: Any, at: Any) -> Any:
        t, log_probs = at
        moved = [tnp.pad(ways, ((0, 0), (k, 0)), constant_values=-np.inf)[:, :size] for k in (1, 2)]
        skipped = tnp.where(may_skip, moved[1], -np.inf)
        new = _log_sum(ways, moved[0], skipped) + log_probs
        return tnp.where((t < n_inputs)[:, None], new, ways), None

    times = tnp.arange(found.shape[0], dtype=_INT32)
    return public.scan(step, first, (times, found))[0]


def _log_sum(*parts: Value) -> Any:
    """The logarithm of a sum of exponentials, with a slope of 0 where it is that of nothing."""
    largest = parts[0]
    for x in parts[1:]:
        largest = tnp.maximum(largest, x)
    largest = lax.stop_gradient(largest)
    is_none = largest == -np.inf
    largest = tnp.where(is_none, 0, largest)
    total = sum([tnp.exp(x - largest) for x in parts])
    return tnp.where(is_none, -np.inf, tnp.log(tnp.where(is_none, 1, total)) + largest)


def _slope_of_logits(x: Value, n_inputs: Value) -> Any:
    """Zeros with the slope that torch adds: that of logits, of which ``x`` are the logarithms."""
    is_read = tnp.arange(x.shape[0], dtype=_INT32)[:, None] < n_inputs
    total = tnp.sum(tnp.where(is_read[..., None], tnp.exp(x), 0), axis=(0, 2))
    return total - lax.stop_gradient(total)


def _lstsq(a: Value, b: Value, rcond: Value | None, is_full: bool) -> tuple[Any, ...]:
    """Solutions of least squares; of residuals torch gives none where the rank is not full."""
    m, n = a.shape[-2:]
    as_vector = is_vector(a, b)
    right = b[..., None] if as_vector else b
    batch = np.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    a = tnp.broadcast_to(a, (*batch, m, n))
    right = tnp.broadcast_to(right, (*batch, *right.shape[-2:]))
    values = tnp.linalg.svd(lax.stop_gradient(a), compute_uv=False)
    eps = max(m, n) * float(tnp.finfo(a.dtype).eps)
    bound = 0.0 if is_full else eps if rcond is None else cast(rcond, values.dtype)
    x = tnp.matmul(tnp.linalg.pinv(a, rtol=bound), right)
    largest = tnp.max(values, axis=-1, keepdims=True, initial=0)
    rank = tnp.sum(values > bound * largest, axis=-1)
    residuals = tnp.zeros((0,), values.dtype)
    if m > n:
        residuals = tnp.sum(tnp.abs(tnp.matmul(a, x) - right) ** 2, axis=-2)
    return (x[..., 0] if as_vector else x), residuals, cast(rank, np.dtype(np.int64)), values


WHOLE: Final[dict[Any, Operator]] = {CTC_LOSSES: _ctc_losses, LSTSQ: _lstsq}
"""Operators of graphs that are made here."""
