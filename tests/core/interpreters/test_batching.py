"""Batching of flat functions and Jaxprs."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tests.equations import equations_of
from tests.strategies import array, run_jaxpr
from tracebridge.core.interpreters.batching import batch_flat, batch_jaxpr
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.typeof import as_value

F32 = np.dtype("float32")
VECTOR = ShapedArray((3,), F32)


def test_results_that_depend_on_nothing_mapped_are_not_batched() -> None:
    """Only what depends on a mapped argument gets the axis; its place is the rule's choice."""
    x, y = as_value(array((2, 3), 1, "float32")), as_value(array((3,), 2, "float32"))
    outs, dims = batch_flat(lambda x, y: [lax.sin(x), lax.sin(y)], [x, y], [0, None], 2)
    assert dims[0] is not None
    assert dims[1] is None
    np.testing.assert_allclose(np.moveaxis(np.asarray(outs[0]), dims[0], 0), np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(outs[1], np.sin(y), rtol=1e-6)


def test_unmapped_work_is_not_repeated() -> None:
    """An equation on unmapped values stays as it is: no axis, no broadcast."""
    jaxpr = stage(lambda x, y: [lax.mul(x, lax.exp(y))], [VECTOR, VECTOR])
    batched, out_dims = batch_jaxpr(jaxpr, 5, None, (0, None))
    assert (0,) == out_dims
    (exp,) = equations_of(batched, "exp")
    assert (3,) == exp.out.shape


def test_jaxpr_along_any_axis() -> None:
    """Results have the axis in front wherever the arguments have it."""

    def f(x: Any, y: Any) -> list[Any]:
        return [lax.reduce_sum(lax.mul(x, y), (0,)), lax.transpose(x, (0,))]

    jaxpr = stage(f, [VECTOR, VECTOR])
    batched, out_dims = batch_jaxpr(jaxpr, 4, None, (1, 0))
    assert (0, 0) == out_dims
    assert ((3, 4), (4, 3)) == tuple(a.shape for a in batched.in_avals)
    x, y = array((3, 4), 1, "float32"), array((4, 3), 2, "float32")
    total, moved = run_jaxpr(batched, x, y)
    np.testing.assert_allclose(total, np.sum(x.T * y, 1), rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(moved), x.T)


def test_instantiate_gives_every_result_the_axis() -> None:
    """A result that need not be batched is repeated where the caller wants it."""
    jaxpr = stage(lambda x, y: [lax.neg(y), lax.neg(y), x], [VECTOR, VECTOR])
    batched, out_dims = batch_jaxpr(jaxpr, 2, None, (0, None), (True, False, False))
    assert (0, None, 0) == out_dims
    assert [(2, 3), (3,), (2, 3)] == [a.shape for a in batched.out_avals]
    y = array((3,), 1, "float32")
    first, second, _ = run_jaxpr(batched, array((2, 3), 2, "float32"), y)
    np.testing.assert_array_equal(np.asarray(first), np.stack([-y, -y]))
    np.testing.assert_array_equal(np.asarray(second), -y)


def test_batching_twice_is_remembered_by_its_options() -> None:
    """Size, name and axes are part of what is remembered."""
    jaxpr = stage(lambda x: [lax.sin(x)], [VECTOR])
    once = batch_jaxpr(jaxpr, 2, None, (0,))
    assert once is batch_jaxpr(jaxpr, 2, None, (0,))
    assert once is not batch_jaxpr(jaxpr, 3, None, (0,))
    assert once is not batch_jaxpr(jaxpr, 2, None, (1,))
