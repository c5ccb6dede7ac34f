"""Reductions of segments agree with loops, and all their rules agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import ops
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.runtime.calls import staged_functions
from tracebridge.testing import check_rules

X = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
IDS = np.array([0, -1, 2, 2, 9, 0])
REDUCTIONS: dict[str, tuple[Any, float]] = {
    "sum": (np.sum, 0.0),
    "prod": (np.prod, 1.0),
    "max": (np.max, -np.inf),
    "min": (np.min, np.inf),
}


@pytest.mark.parametrize("bucket", [None, 2, 4])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_segments_agree_with_a_loop(name: str, bucket: int | None) -> None:
    """Rows of other numbers take no part; empty segments give what changes nothing."""
    reduced, empty = REDUCTIONS[name]
    fun = getattr(ops, f"segment_{name}")
    expected = [reduced(X[i == IDS], axis=0, initial=empty) for i in range(4)]
    kept = np.array([0, 2])

    np.testing.assert_allclose(np.asarray(fun(X, IDS, 4, bucket_size=bucket)), expected, rtol=1e-5)
    check_rules(lambda x: fun(x, IDS, 4, bucket_size=bucket)[kept], X, order=1)


def test_integers_defaults_and_modes() -> None:
    """The number of segments is found; integers have their own limits; clip moves numbers."""
    assert [4, 0, 3] == ops.segment_sum(np.array([1, 3, 3]), np.array([0, 0, 2])).tolist()
    assert ops.segment_max(np.array([1]), np.array([1]))[0] == np.iinfo(np.int32).min
    assert [4, 3] == ops.segment_sum(
        np.array([1, 3, 3]), np.array([0, 0, 2]), 2, mode="clip"
    ).tolist()
    assert ops.segment_sum(np.zeros((0, 3)), np.zeros(0, int)).shape == (0, 3)
    assert tb.jit(lambda x, i: ops.segment_sum(x, i, 3))(X, np.abs(IDS)).shape == (3, 2)


@pytest.mark.parametrize("bucket", [None, 4])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_one_row_is_that_of_each_number(name: str, bucket: int | None) -> None:
    """A number, and a single row, are repeated; their derivatives are sums."""
    fun = getattr(ops, f"segment_{name}")

    for data in (np.float32(1.5), X[:1]):
        rows = np.broadcast_to(data, (len(IDS), *np.shape(data)[1:]))
        expected = fun(rows, IDS, 3, bucket_size=bucket)
        np.testing.assert_array_equal(fun(data, IDS, 3, bucket_size=bucket), expected)
        assert fun(data, IDS[:0], 3).shape == expected.shape
    if name == "sum":
        check_rules(lambda x: fun(x, IDS, 3, bucket_size=bucket), np.float32(1.5), order=1)


def test_errors() -> None:
    """Shapes and counts that do not fit."""
    with pytest.raises(ShapeMismatchError, match="segment_sum"):
        ops.segment_sum(X, np.array(1), 2)
    with pytest.raises(ShapeMismatchError, match="segment_sum"):
        ops.segment_sum(X, IDS[:2], 2)
    with pytest.raises(ArgumentValueError, match="num_segments"):
        ops.segment_max(X, IDS, -1)
    with pytest.raises(ArgumentValueError, match="bucket_size"):
        ops.segment_max(X, IDS, 1, bucket_size=0)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_buckets_of_many_rows_and_of_none(name: str) -> None:
    """More buckets than the dtype of the segments' numbers counts; without rows an identity."""
    function = getattr(tb.ops, f"segment_{name}")
    data = np.linspace(0.99, 1.01, 600, dtype=np.float32)
    numbers = (np.arange(600) % 3).astype(np.int8)

    expected = function(data, numbers.astype(np.int32), 3)
    np.testing.assert_allclose(function(data, numbers, 3, bucket_size=2), expected, 1e-5)
    none = (np.zeros((0, 2), np.float32), np.zeros(0, np.int32), 3)
    np.testing.assert_array_equal(function(*none, bucket_size=2), function(*none))


def test_the_number_of_segments_of_a_program() -> None:
    """The largest number is not known while tracing; the error says what to give."""
    with pytest.raises(ConcretizationTypeError, match=r"segment_sum(.|\n)*give num_segments"):
        tb.jit(tb.ops.segment_sum)(np.ones(3), np.arange(3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_eager_sums_of_narrow_floats_are_one_program(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call runs one executable, which rounds each sum once."""
    x, ids = tnp.full((3000,), 0.1, dtype), tnp.zeros(3000, int)
    ops.segment_sum(x, ids, 2)
    monkeypatch.setattr(staged_functions.StagedFunction, "eager", None)
    expected = np.sum(np.asarray(x).astype(np.float64))

    out = ops.segment_sum(x, ids, 2)
    assert out.dtype == dtype
    np.testing.assert_allclose(np.asarray(out).astype(float), [expected, 0], rtol=2**-8)


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int8"])
def test_the_number_of_segments_is_found_of_all_integers(dtype: str) -> None:
    """The largest number and one more, of unsigned ones too; none without rows."""
    x, ids = tnp.arange(4.0), tnp.array([0, 2, 2, 1], dtype)

    assert ops.segment_sum(x, ids).tolist() == [0.0, 3.0, 3.0]
    assert ops.segment_sum(x[:0], ids[:0]).shape == (0,)
