"""Products of arrays of two dtypes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import primitives_in

DTYPES = ["bool", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"]
X, Y = np.array([[1, 2], [3, 1]]), np.array([[1, 0], [2, 1]])


@pytest.mark.parametrize("name", ["dot", "matmul", "inner", "vecdot", "vdot", "matvec", "vecmat"])
def test_operands_stay_as_they_are(name: str) -> None:
    """One contraction takes both dtypes; no converted copies stand before it."""
    a, b = tb.ShapeDtypeStruct((5, 5), np.int32), tb.ShapeDtypeStruct((5, 5), np.float16)
    jaxpr = tb.make_jaxpr(getattr(tnp, name))(a, b)

    assert "convert_element_type" not in primitives_in(jaxpr)
    assert np.float16 == jaxpr.out_avals[0].dtype


def test_values_are_those_of_promoted_operands() -> None:
    """For all pairs of dtypes, in one program."""
    pairs = list(itertools.combinations(DTYPES, 2))
    arrays = [(tnp.asarray(X, dtype=a), tnp.asarray(Y, dtype=b)) for a, b in pairs]
    found = tb.jit(lambda pairs: [tnp.dot(x, y) for x, y in pairs])(arrays)

    for (a, b), value in zip(pairs, found, strict=True):
        dtype = tnp.promote_types(a, b)
        assert dtype == value.dtype
        expected = (X.astype(a).astype(int) @ Y.astype(int)).astype(dtype)
        if "bool" not in (a, b):
            np.testing.assert_array_equal(expected, value)


@pytest.mark.parametrize(("a", "b"), [("bfloat16", "float32"), ("float32", "complex64")])
def test_cotangents_have_the_dtypes_of_their_operands(a: str, b: str) -> None:
    """Each is converted back on its way."""
    x, y = tnp.asarray(X, dtype=a), tnp.asarray(Y, dtype=b)
    gradients = tb.grad(lambda x, y: tnp.dot(x, y).real.sum(), (0, 1))(x, y)

    assert [a, b] == [g.dtype for g in gradients]
    np.testing.assert_array_equal([[1, 3], [1, 3]], gradients[0])
    np.testing.assert_array_equal([[4, 4], [3, 3]], gradients[1])
