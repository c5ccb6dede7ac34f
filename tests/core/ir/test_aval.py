"""Abstract values: what they say of an array besides its shape and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core import ShapedArray
from tracebridge.errors import ArgumentTypeError, ArgumentValueError
from tracebridge.sharding import NamedSharding, PartitionSpec


@pytest.mark.parametrize("x", [1.0, np.ones(3, np.int8), np.ones((2, 0, 3), bool)])
def test_types_are_split_over_no_mesh(x: Any) -> None:
    """The sharding of a type has an empty mesh and one entry per axis, in and out of traces."""
    expected = PartitionSpec(*[None] * np.ndim(x))
    seen: list[NamedSharding] = []
    tb.jit(lambda y: seen.append(tb.typeof(y).sharding))(x)

    for sharding in (tb.typeof(x).sharding, *seen):
        assert isinstance(sharding, NamedSharding)
        assert expected == sharding.spec
        assert sharding.mesh.empty
        assert sharding.is_fully_replicated
    assert 1 == len(seen)


def test_the_sharding_of_a_type_is_no_place() -> None:
    """A struct made from a type is free to be anywhere; one with that sharding has its shape."""
    aval = tb.typeof(tnp.ones((2, 3)))

    assert tb.ShapeDtypeStruct.like(aval).sharding is None
    struct = tb.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=aval.sharding)
    assert aval.sharding == struct.sharding
    assert (2, 3) == tb.eval_shape(lambda x: x + 1, struct).shape
    assert aval.sharding is aval.update(dtype=np.int32).sharding


def test_a_type_is_rebuilt_from_its_fields() -> None:
    """A sharding that splits nothing, as `.sharding` gives it, is taken: the type is the same."""
    aval = tb.typeof(tnp.ones((2, 3)))
    unplaced = NamedSharding(tb.sharding.AbstractMesh((), ()), PartitionSpec())

    same = ShapedArray(aval.shape, aval.dtype, aval.weak_type, sharding=aval.sharding)
    row = aval.sharding.update(spec=PartitionSpec(*aval.sharding.spec[1:]))
    assert aval is same
    assert aval is ShapedArray((2, 3), np.float32, sharding=unplaced)
    assert ShapedArray((3,), np.float32) is ShapedArray((3,), np.float32, sharding=row)
    assert aval.update(shape=(3,)) is aval.update(shape=(3,), sharding=row)


def test_a_type_splits_over_no_mesh() -> None:
    """A sharding that splits an axis is refused, and so is what is no NamedSharding."""
    mesh = tb.sharding.AbstractMesh((2,), ("rows",))

    with pytest.raises(ArgumentValueError, match="splits no axis"):
        ShapedArray((2,), np.float32, sharding=NamedSharding(mesh, PartitionSpec("rows")))
    with pytest.raises(ArgumentTypeError, match="NamedSharding"):
        ShapedArray((2,), np.float32, sharding=tnp.ones(2).sharding)


def test_names_of_derived_types() -> None:
    """Types of tangents and cotangents, and types with another weakness."""
    for x in (1.0, np.ones(3, np.int8), np.ones(2, np.complex64), True):
        aval = tb.typeof(x)

        assert aval.to_tangent_aval() is aval.at_least_vspace()
        assert aval.to_tangent_aval() is aval.to_ct_aval()
        assert not aval.update_weak_type(False).weak_type
        assert aval.strip_weak_type() is aval.update_weak_type(True).update_weak_type(False)
