"""scatter_apply: func as often as windows reach an element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import lax
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.testing import check_rules

X = np.array([[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]], np.float32)
ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))
REPEATED = np.array([[2], [0], [2], [7], [2]], np.int32)
DISTINCT = np.array([[2], [0], [7]], np.int32)


def applied(func: Any, x: Any, rows: Any) -> Any:
    """The loop over windows."""
    x = x.copy()
    for (row,) in rows:
        if 0 <= row < len(x):
            x[row] = func(x[row])
    return x


def test_repeated_windows_apply_repeatedly() -> None:
    """Value, jit, forward derivatives and batching for windows that overlap."""
    check_rules(
        lambda x, i: lax.scatter_apply(x, i, lax.sin, ROWS, update_shape=(5, 2)),
        X, REPEATED,
        reference=lambda x, i: applied(np.sin, x, i), modes=("fwd",),
    )  # fmt: skip


def test_unique_windows_have_all_derivatives() -> None:
    """Value, jit, derivatives of both modes and batching for windows that do not overlap."""
    check_rules(
        lambda x, i: lax.scatter_apply(
            x, i, lax.sin, ROWS, update_shape=(3, 2), unique_indices=True
        ),
        X, DISTINCT,
        reference=lambda x, i: applied(np.sin, x, i),
    )  # fmt: skip


def test_func_may_close_over_tracers() -> None:
    """What the function uses besides its argument is differentiated and batched too."""

    def run(c: Any) -> Any:
        return lax.scatter_apply(
            X, REPEATED, lambda v: lax.add(lax.mul(v, c), 1.0), ROWS, update_shape=(5, 2)
        )

    want = [applied(lambda v, c=c: v * c + 1, X, REPEATED) for c in (2.0, 3.0)]
    found = tb.vmap(run)(np.array([2.0, 3.0], np.float32))
    np.testing.assert_allclose(np.stack(want), np.asarray(found), rtol=1e-6)
    _, tangent = tb.jvp(run, (np.float32(2.0),), (np.float32(1.0),))
    # ((x c + 1) c + 1) c + 1, three times for row 2, once for row 0
    np.testing.assert_allclose(3 * X[2] * 4 + 2 * 2 + 1, np.asarray(tangent)[2])
    np.testing.assert_allclose(X[0], np.asarray(tangent)[0])


def test_functions_see_scalars() -> None:
    """The function is applied to elements, and may give a constant."""
    shapes: list[Any] = []

    def func(v: Any) -> Any:
        shapes.append(v.shape)
        return 7.0

    found = lax.scatter_apply(X, DISTINCT, func, ROWS, update_shape=(3, 2), unique_indices=True)
    np.testing.assert_array_equal(applied(lambda v: v * 0 + 7, X, DISTINCT), np.asarray(found))
    assert {()} == set(shapes)


@pytest.mark.parametrize("result", [3, np.ones(3, np.float32)])
def test_wrong_results(result: Any) -> None:
    """The function must give a scalar of the operand's dtype."""
    with pytest.raises(ShapeMismatchError, match="expected a scalar float32"):
        lax.scatter_apply(X, DISTINCT, lambda v: result, ROWS, update_shape=(3, 2))
