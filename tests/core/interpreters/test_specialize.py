"""Jaxprs with symbolic dimensions become Jaxprs with sizes."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.interpreters.specialize import specialize_jaxpr, specialize_param
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.check import check_jaxpr
from tracebridge.core.symbolic.scope import symbolic_shape

N, M = symbolic_shape("n, m")


def test_shapes_and_parameters_get_sizes() -> None:
    """Every aval is static, and the program is well typed."""
    struct = tb.ShapeDtypeStruct((N, M), "float32")
    jaxpr = tb.make_jaxpr(lambda x: tnp.reshape(x, (N * M,)) * x.shape[1])(struct).jaxpr

    found = specialize_jaxpr(jaxpr, {"n": 2, "m": 3})

    check_jaxpr(found)
    assert ["f32[6]"] == [a.str_short() for a in found.out_avals]
    assert "dimension_size" in str(jaxpr)
    assert "dimension_size" not in str(found)


def test_equal_sizes_give_the_same_program() -> None:
    """Remembered on the Jaxpr, whatever the order of the names."""
    struct = tb.ShapeDtypeStruct((N, M), "float32")
    jaxpr = tb.make_jaxpr(tnp.sin)(struct).jaxpr

    first = specialize_jaxpr(jaxpr, {"n": 2, "m": 3})

    assert first is specialize_jaxpr(jaxpr, {"m": 3, "n": 2})
    assert first is not specialize_jaxpr(jaxpr, {"n": 3, "m": 2})


def test_every_variable_needs_a_size() -> None:
    """A missing one is an error."""
    jaxpr = tb.make_jaxpr(tnp.sin)(tb.ShapeDtypeStruct((N,), "float32")).jaxpr

    with pytest.raises(KeyError, match="n"):
        specialize_jaxpr(jaxpr, {"m": 3})


def test_parameters_of_all_kinds() -> None:
    """Dimensions, avals and programs, also inside tuples; the rest stays as it is."""
    aval = ShapedArray((N,), np.dtype("float32"))
    program = tb.make_jaxpr(tnp.sin)(tb.ShapeDtypeStruct((N,), "float32")).jaxpr

    dim, (name, inner), found, other = specialize_param(
        (2 * N + 1, ("x", aval), program, 1.5), {"n": 4}
    )

    assert (9, "x", (4,), 1.5) == (dim, name, inner.shape, other)
    assert (4,) == found.in_avals[0].shape
