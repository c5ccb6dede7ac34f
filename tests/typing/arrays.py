"""What a type checker knows about results that are arrays. Checked by test_typing.py, never run."""

from __future__ import annotations

from typing import Any, assert_type

import tracebridge as tb
import tracebridge.numpy as tnp


def softmax(x: tb.Array) -> tb.Array:
    """Functions, operators and methods of arrays give arrays."""
    shifted = x - x.max(axis=-1, keepdims=True)
    assert_type(shifted, tb.Array)
    powers = tnp.exp(shifted)
    assert_type(powers, tb.Array)
    total = tnp.sum(powers, axis=-1, keepdims=True)
    assert_type(total, tb.Array)
    return powers / total


def results(x: tb.Array) -> None:
    """Each by its own function."""
    assert_type(tnp.zeros((2, 3)), tb.Array)
    assert_type(tnp.asarray([1.0]), tb.Array)
    assert_type(tnp.add(x, 1), tb.Array)
    assert_type(tnp.matmul(x, x), tb.Array)
    assert_type(tnp.stack([x, x]), tb.Array)
    assert_type(x @ x.T, tb.Array)
    assert_type(-x, tb.Array)
    assert_type(2 * x, tb.Array)
    assert_type(x > 0, tb.Array)
    assert_type(x[0], tb.Array)
    assert_type(x.reshape(-1).astype("float32").sum(), tb.Array)
    assert_type(x.shape, tuple[Any, ...])
