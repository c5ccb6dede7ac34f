"""Slices, gathers and scatters, traced once with symbolic dimensions, at concrete sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.lax.symbolic import run_symbolic
from tracebridge import lax
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.interpreters.linearize import linearize_flat
from tracebridge.core.interpreters.transpose import backward
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.runtime.arrays.transfer import put_numpy

X = np.arange(12, dtype=np.float32).reshape(3, 4)
ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
TO_ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
INDICES = np.array([[1], [5], [-1], [1]], np.int32)


def size(x: Any, axis: int = 0) -> Any:
    """A dimension, symbolic or not."""
    return x.aval.shape[axis]


def gradient(fun: Any) -> Any:
    """The cotangent of the first argument for the cotangent ``fun(x)`` itself."""

    def run(x: Any, *rest: Any) -> Any:
        (y,), linear = linearize_flat(lambda v: [fun(v, *rest)], [x])
        return backward(linear, [y], current_trace().process)[0]

    return run


def rows(mode: str) -> Any:
    """A gather of whole rows."""
    return lambda x, i: lax.gather(x, i, ROWS, (1, size(x, 1)), mode=mode, fill_value=3)


def mapped(x: Any, starts: Any) -> Any:
    """A dynamic_slice for each element of a symbolic batch."""

    def body(i: Any) -> list[Any]:
        return [lax.dynamic_slice(x, (i, 0), (2, size(x, 1)))]

    return batch_flat(body, [starts], [0], size(starts))[0][0]


STARTS = np.array([0, 5, -1, 1], np.int32)
CASES = {
    "slice": (lambda x: lax.slice(x, (0, 1), x.aval.shape, (2, 1)), "n, m", X),
    "slice_in_dim": (lambda x: lax.slice_in_dim(x, 1, size(x)), "n, 4", X),
    "slice from the end": (lambda x: lax.slice_in_dim(x, -1, None), "n, 4", X),
    "index_in_dim": (lambda x: lax.index_in_dim(x, -1), "n, m", X),
    "gradient of slice": (gradient(lambda x: lax.slice_in_dim(x, 1, size(x), 2, 0)), "n, 4", X),
    "dynamic_slice": (
        lambda x, i: lax.dynamic_slice(x, (i, 0), (2, size(x, 1))),
        "n, m;", X, np.int32(-1),
    ),
    "dynamic_slice of a symbolic size": (
        lambda x, i: lax.dynamic_slice(x, (0, i), (size(x), 2)),
        "n, 4;", X, np.int8(9),
    ),
    "dynamic_update_slice": (
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)),
        "n, m; k, m;", X, -X[:2], np.int32(7),
    ),
    "gather with fill": (rows("fill"), "n, m; k, 1", X, INDICES),
    "gather with clip": (rows("clip"), "n, m; k, 1", X, INDICES),
    "gather by int64": (rows("fill"), "n, m; k, 1", X, INDICES.astype(np.int64)),
    "gradient of gather": (gradient(rows("fill")), "n, m; k, 1", X, INDICES),
    "scatter_add": (
        lambda x, i, u: lax.scatter_add(x, i, u, TO_ROWS, mode="clip"),
        "n, m; k, 1; k, m", X, INDICES, np.ones((4, 4), np.float32),
    ),
    "gradient of scatter": (
        gradient(lambda u, i, x: lax.scatter(x, i, u, TO_ROWS)),
        "k, m; k, 1; n, m", np.ones((4, 4), np.float32), INDICES, X,
    ),
    "mapped dynamic_slice": (mapped, "n, m; b", X, STARTS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_symbolic_programs_run_at_sizes(name: str) -> None:
    """The program for all sizes equals the eager operation at these."""
    fun, spec, *arrays = CASES[name]

    found = run_symbolic(fun, spec, *arrays)

    want = fun(*[put_numpy(np.asarray(a)) for a in arrays])
    np.testing.assert_array_equal(np.asarray(want), found[0])
