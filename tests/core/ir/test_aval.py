"""Abstract values: what they say of an array besides its shape and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core import ShapedArray
from tracebridge.core.ir.aval import batched_aval, element_aval, result_aval
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
    """`ShapedArray(...)` and `update` give the one object of these fields, however written."""
    aval = tb.typeof(tnp.ones((2, 3)))

    assert aval is ShapedArray([2, 3], "float32")
    assert aval is ShapedArray(np.int64([2, 3]), np.float32, False)
    assert aval is aval.update()
    assert aval is aval.update((2, 3), np.float32, False)
    assert aval is aval.update(shape=[np.int64(2), 3], dtype="float32", weak_type=False)
    assert ShapedArray((3,), "int8", True) is aval.update((3,), "int8", True)
    assert aval.strong is aval.update(weak_type=True).strong


def test_types_take_places_and_keep_none() -> None:
    """What other engines' types say of whole arrays is taken, and is no part of the type."""
    aval = tb.typeof(tnp.ones((2, 3)))
    places = {
        "sharding": aval.sharding.update(spec=tb.sharding.PartitionSpec(None, None)),
        "manual_axis_type": tb.sharding.ManualAxisType(),
        "memory_space": tb.memory.Space.Device,
    }

    assert aval is ShapedArray((2, 3), "float32", **places)
    assert aval is aval.update(**places)
    assert aval.update((2,), weak_type=True) is aval.update((2,), weak_type=True, **places)


def test_how_types_print() -> None:
    """`str` names the dtype in full, printed programs in short."""
    aval = tb.typeof(tnp.ones((2, 3)))

    assert ("float32[2,3]", "ShapedArray(float32[2,3])") == (str(aval), repr(aval))
    assert ("f32[2,3]", "float32[2,3]") == (aval.str_short(True), aval.str_short(False))


def test_results_of_several_operands() -> None:
    """The dtype is the first one's, and the type is weak if all operands are, unless given."""
    weak, strong = ShapedArray((), "float32", True), ShapedArray((2,), "int32")

    assert ShapedArray((2,), "float32") is result_aval((weak, strong), (2,))
    assert ShapedArray((2,), "float32", True) is result_aval((weak, weak), (2,))
    assert ShapedArray((), "bool") is result_aval((weak, weak), (), "bool", False)
    assert ShapedArray((2,), "int32", True) is result_aval((strong, weak), (2,), weak_type=True)


@pytest.mark.parametrize("dim", [0, 1, 2, None])
def test_batches_and_their_elements(dim: int | None) -> None:
    """A batch has a new axis, without which it is the type of its elements; weakness stays."""
    aval = ShapedArray((2, 3), "float32", True)

    batch = batched_aval(aval, 7, dim)
    expected = np.stack([np.zeros((2, 3))] * 7, dim).shape if dim is not None else (2, 3)
    assert ShapedArray(expected, "float32", True) is batch
    assert aval is element_aval(batch, dim)


def test_names_of_derived_types() -> None:
    """Types of tangents and cotangents, and types with another weakness."""
    for x in (1.0, np.ones(3, np.int8), np.ones(2, np.complex64), True):
        aval = tb.typeof(x)

        assert aval.to_tangent_aval() is aval.at_least_vspace()
        assert aval.to_tangent_aval() is aval.to_ct_aval()
        assert not aval.update_weak_type(False).weak_type
        assert aval.strip_weak_type() is aval.update_weak_type(True).update_weak_type(False)


def test_words_of_weak_types() -> None:
    """As text weak types begin with a tilde; as code they have an argument."""
    weak = ShapedArray((2,), "float32", True)
    assert ("float32[2]", "~float32[2]") == (str(weak.strong), f"{weak}")
    assert "ShapedArray(float32[2], weak_type=True)" == repr(weak)
    assert "f32[2]" == weak.str_short()
