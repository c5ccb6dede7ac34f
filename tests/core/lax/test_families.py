"""What the families of primitives share: batching of scalars beside arrays, scalar operands."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core import lax
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.families import operands, scalar_like
from tracebridge.core.runtime.arrays.transfer import put_numpy

SIZE = 4
# Each operand: rank 0 or 2, unbatched or batched at an axis.
KINDS = [(0, None), (0, 0), (2, None), (2, 0), (2, 1), (2, 2)]


@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, KINDS)), ids=str)
def test_scalars_and_arrays_batch_in_every_combination(kinds: Any) -> None:
    """clamp(low, x, high) mapped over an axis equals calling it for each element."""
    random = np.random.default_rng(0)
    hosts: list[Any] = [np.float32(-0.5)]
    dims: list[int | None] = [None]
    for rank, dim in kinds:
        shape = [2, 3] if rank else []
        if dim is not None:
            shape.insert(dim, SIZE)
        hosts.append(random.standard_normal(shape).astype(np.float32))
        dims.append(dim)
    expected = [
        np.clip(hosts[1] if dims[1] is None else np.take(hosts[1], i, dims[1]), -0.5, None)
        for i in range(SIZE)
    ]
    expected = [
        np.minimum(e, hosts[2] if dims[2] is None else np.take(hosts[2], i, dims[2]))
        for i, e in enumerate(expected)
    ]

    (out,), (dim,) = batch_flat(
        lambda *xs: [lax.clamp(*xs)], [put_numpy(np.asarray(h)) for h in hosts], dims, SIZE
    )

    actual = np.asarray(out)
    if dim is None:
        actual = np.broadcast_to(actual, (SIZE, *actual.shape))
        dim = 0
    np.testing.assert_array_equal(np.stack(expected), np.moveaxis(actual, dim, 0))


def test_python_scalars_become_literals_of_the_arrays_dtype() -> None:
    """The literal is weakly typed, so that weak arrays give weak results."""
    x = put_numpy(np.ones(2, np.float16))

    found = operands("add", x, 2, True)

    assert type(found[1]) is Literal
    assert found[1].aval is ShapedArray((), np.float16, weak_type=True)
    assert found[2].aval.dtype == bool


def test_scalars_like_an_array() -> None:
    """scalar_like gives a constant of the dtype and weak type of an array."""
    x = put_numpy(np.ones(2, np.int8), weak_type=True)

    assert scalar_like(x, 3).aval is ShapedArray((), np.int8, weak_type=True)
    assert scalar_like(x, 3.0).value == 3


@pytest.mark.parametrize("name", ["add", "mul", "pow", "atan2", "rem", "max", "eq", "nextafter"])
@pytest.mark.parametrize("shapes", [((3, 1), (1, 2)), ((1,), (0,)), ((2, 1, 3), (1, 4, 3))])
def test_axes_of_size_1_are_repeated(name: str, shapes: Any) -> None:
    """Operands of one rank are broadcast as NumPy broadcasts them, under every transformation."""
    function = getattr(tb.lax, name)
    x, y = (np.arange(1.0, math.prod(s) + 1.0, dtype=np.float32).reshape(s) for s in shapes)
    full = np.broadcast_shapes(*shapes)
    expected = np.asarray(function(np.broadcast_to(x, full), np.broadcast_to(y, full)))

    np.testing.assert_array_equal(expected, function(x, y))
    np.testing.assert_array_equal(expected, tb.jit(function)(x, y))
    mapped = tb.vmap(function, (0, None))(np.stack([x, x]), y)
    np.testing.assert_array_equal(np.stack([expected, expected]), mapped)


def test_derivatives_of_repeated_axes() -> None:
    """Cotangents are summed over the axes that were repeated."""
    x, y = np.ones((3, 1), np.float32), np.full((1, 2), 2.0, np.float32)
    of_x, of_y = tb.grad(lambda x, y: tb.lax.mul(x, y).sum(), (0, 1))(x, y)

    assert [[4.0]] * 3 == of_x.tolist()
    assert [[3.0, 3.0]] == of_y.tolist()


@pytest.mark.parametrize("shapes", [((2,), (3,)), ((3, 1), (2,)), ((2, 1), (3, 2))])
def test_other_shapes_do_not_fit(shapes: Any) -> None:
    """Ranks must agree, and sizes that differ must be 1; selections take one shape alone."""
    x, y = (np.ones(shape, np.float32) for shape in shapes)

    with pytest.raises(ShapeMismatchError, match="need the same shape"):
        tb.lax.add(x, y)
    with pytest.raises(ShapeMismatchError, match="need the same shape"):
        tb.lax.select(np.ones((3, 1), bool), np.ones((1, 2)), np.ones((1, 2)))
