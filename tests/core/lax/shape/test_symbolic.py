"""Operations on shapes, traced once with symbolic dimensions, give what concrete ones give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.core.lax.symbolic import run_symbolic
from tracebridge import lax
from tracebridge.core import lax as engine
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.symbolic.scope import SymbolicScope, symbolic_shape

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def size(x: Any, axis: int = 0) -> Any:
    """A dimension, symbolic or not."""
    return x.aval.shape[axis]


CASES = {
    "broadcast": (lambda x: lax.broadcast(x, (size(x), 2)), "n, m", X),
    "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, (size(x), 4), (0, 1)), "n, 1", X[:, :1]),
    "collapse": (lambda x: lax.collapse(x, 0), "n, m", X),
    "concatenate": (lambda x: lax.concatenate([x, x], 0), "n, m", X),
    "expand and squeeze": (lambda x: lax.squeeze(lax.expand_dims(x, (1,)), (1,)), "n, m", X),
    "full_like": (lambda x: lax.full_like(x, 2), "n, m", X),
    "iota": (lambda x: lax.broadcasted_iota("int32", x.aval.shape, 0), "n, m", X),
    "dimension_size": (lambda x: lax.mul(x, engine.dimension_size(size(x) * 2, x)), "n, m", X),
    "pad by ints": (lambda x: lax.pad(x, 1.0, ((1, 2, 2), (-1, 0, 0))), "n, m", X),
    "pad by sizes": (lambda x: lax.pad(x, 1.0, ((1, size(x), 1), (0, 0, 0))), "n, m", X),
    "reshape": (lambda x: lax.reshape(x, (size(x) * 4,)), "n, 4", X),
    "rev": (lambda x: lax.rev(x, (0,)), "n, m", X),
    "roll": (lambda x: lax.roll(x, 5, 0), "n, m", X),
    "roll of a known size": (lambda x: lax.roll(x, 1, 1), "n, 4", X),
    "shape_as_value": (lambda x: lax.shape_as_value(x.aval.shape), "n, m", X),
    "split": (lambda x: lax.split(x, (1, size(x) - 1)), "n, m", X),
    "tile": (lambda x: lax.tile(x, (2, 3)), "n, m", X),
    "stack": (lambda x: lax.stack([x, x], 1), "n, m", X),
    "transpose": (lambda x: lax.transpose(x, (1, 0)), "n, m", X),
}


@pytest.mark.parametrize("name", CASES)
def test_symbolic_programs_run_at_sizes(name: str) -> None:
    """The program for all sizes equals the eager operation at these."""
    fun, spec, x = CASES[name]
    want = fun(put_numpy(x))

    found = run_symbolic(fun, spec, x)

    for f, w in zip(found, want if isinstance(want, list) else [want], strict=True):
        np.testing.assert_array_equal(np.asarray(w), f)


def test_symbolic_shapes_of_results() -> None:
    """Shapes of results are expressions of the shapes of arguments."""
    n, m = symbolic_shape("n, m", scope=SymbolicScope())
    avals = [ShapedArray((n, m), np.float32)]

    def shapes(x: Any) -> list[Any]:
        return [lax.pad(x, 0.0, ((1, 1, 1), (0, 0, 0))), lax.concatenate([x, x], 1)]

    assert [(2 * n + 1, m), (n, 2 * m)] == [a.shape for a in stage(shapes, avals).out_avals]


def test_mapping_over_a_symbolic_axis() -> None:
    """The batch may have a symbolic size."""

    def fun(x: Any) -> Any:
        def body(row: Any) -> list[Any]:
            return [lax.broadcast(lax.pad(row, 0.0, ((1, 0, 0),)), (2,))]

        (out,), _ = batch_flat(body, [x], [0], size(x))
        return out

    np.testing.assert_array_equal(np.asarray(fun(put_numpy(X))), run_symbolic(fun, "n, m", X)[0])


def test_sizes_that_cannot_agree() -> None:
    """Different symbols are different sizes."""
    n, m = symbolic_shape("n, m", scope=SymbolicScope())

    with pytest.raises(ShapeMismatchError, match=r"\(size n\) into shape \(m,\)"):
        stage(lambda x: [lax.reshape(x, (m,))], [ShapedArray((n,), np.float32)])
