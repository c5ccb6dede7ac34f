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


def comparisons(x: tb.Array) -> None:
    """Equality is elementwise, with numbers too."""
    assert_type(x == x, tb.Array)
    assert_type(x != 1, tb.Array)
    assert_type(tnp.equal(x, 1), tb.Array)
    assert_type(tnp.less_equal(x, x), tb.Array)
    assert_type(divmod(x, 2), tuple[tb.Array, tb.Array])
    assert_type(round(x), tb.Array)


def results_by_arguments(x: tb.Array) -> None:
    """Arguments that ask for more results change the type."""
    assert_type(tnp.where(x > 0, x, 0), tb.Array)
    assert_type(tnp.where(x > 0), tuple[tb.Array, ...])
    assert_type(tnp.unique(x), tb.Array)
    assert_type(tnp.linspace(0, 1, 5), tb.Array)
    assert_type(tnp.linspace(0, 1, retstep=True), tuple[tb.Array, tb.Array])
    assert_type(tnp.average(x), tb.Array)
    assert_type(tnp.average(x, returned=True), tuple[tb.Array, tb.Array])
    assert_type(tnp.intersect1d(x, x), tb.Array)
    assert_type(tnp.indices((2, 3)), tb.Array)
    assert_type(tnp.atleast_2d(x), tb.Array)


def several_results(x: tb.Array) -> None:
    """Functions with several results say of each that it is an array."""
    assert_type(tnp.divmod(x, 2), tuple[tb.Array, tb.Array])
    assert_type(tnp.frexp(x), tuple[tb.Array, tb.Array])
    assert_type(tnp.nonzero(x), tuple[tb.Array, ...])
    assert_type(tnp.split(x, 2), list[tb.Array])
    assert_type(tnp.meshgrid(x, x), list[tb.Array])
    assert_type(tnp.histogram(x), tuple[tb.Array, tb.Array])
    assert_type(tnp.unique_counts(x).values, tb.Array)
    assert_type(tnp.tril_indices(3), tuple[tb.Array, tb.Array])
