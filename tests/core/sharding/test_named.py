"""Mesh, PartitionSpec and NamedSharding as data."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    SingleDeviceSharding,
)
from tracebridge.sharding import PartitionSpec as P

several = pytest.mark.skipif(
    "tb.local_device_count() < 8", reason="needs 8 devices (TRACEBRIDGE_NUM_CPU_DEVICES=8)"
)


def test_partition_specs_compare_and_print() -> None:
    """Tuples of one name are names; trailing None counts; tuples are no specs."""
    assert P("x", None) == P(("x",), ())
    assert P("x") != P("x", None)
    assert ("x", ("y", "z")) == tuple(P("x", ("y", "z")))
    assert P("x") != ("x",)
    assert {P("x"): 1}.get(("x",)) is None
    assert hash(P("x")) == hash(P(["x"]))
    assert "P('x', None, ('y', 'z'))" == repr(P("x", None, ("y", "z")))
    assert P("x") + P("y") == P("x", "y") == P("y").__radd__(("x",))
    assert (2, "x", 1) == (len(P("x", "y")), P("x", "y")[0], P("x", "y").index("y"))
    spec = P("x", unreduced=frozenset({"y"}))
    assert spec == pickle.loads(pickle.dumps(spec))
    assert spec != P("x")


def test_meshes() -> None:
    """Interned, immutable, with checks."""
    device = tb.devices()[0]
    mesh = Mesh([[device]], ("x", "y"), AxisType.Auto)

    assert mesh is Mesh(np.array([[device]]), ["x", "y"])
    assert ((1, 1), 1, [device]) == (mesh.axis_sizes, mesh.size, mesh.local_devices)
    assert "Mesh('x': 1, 'y': 1, axis_types=(Auto, Auto))" == str(mesh)
    sizes = "axis_sizes=(1, 1), axis_names=('x', 'y')"
    assert f"Mesh({sizes}, axis_types=(Auto, Auto))" == repr(mesh)
    assert f"NamedSharding(mesh={mesh}, spec=P('x',), memory_kind=device)" == repr(
        NamedSharding(mesh, P("x"))
    )
    assert not mesh.is_multi_process
    with pytest.raises(ValueError, match="read-only"):
        mesh.devices[0, 0] = None
    refused: list[tuple[type[Exception], str, Any]] = [
        (AxisSpecError, "devices have 1 axes", ([device], ("x", "y"))),
        (AxisSpecError, "repeat a name", ([[device]], ("x", "x"))),
        (AxisSpecError, "axis_types", ([device], ("x",), (1,))),
        (DevicePlacementError, "appears twice", ([device, device], "x")),
    ]
    for error, message, args in refused:
        with pytest.raises(error, match=message):
            Mesh(*args)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(mesh)
    assert mesh is copy.copy(mesh) is copy.deepcopy(mesh) is mesh.local_mesh
    assert ("a", "b") == mesh.update(axis_names=("a", "b")).axis_names
    assert mesh is mesh.update()


@several
def test_named_shardings() -> None:
    """Parts and positions; copies along unused axes; equal ones are one object."""
    mesh = tb.make_mesh((2, 4), ("x", "y"))
    sharding = NamedSharding(mesh, P(None, ("y", "x")))

    assert sharding is NamedSharding(mesh, P(None, ("y", "x")))
    assert (3, 2) == sharding.shard_shape((3, 16))
    index = sharding.devices_indices_map((3, 16))
    # Device 5 is at x=1, y=1: part 1 * 2 + 1.
    assert (slice(None), slice(6, 8)) == index[tb.devices()[5]]
    assert not sharding.is_fully_replicated
    assert NamedSharding(mesh, P(None)).is_fully_replicated
    assert frozenset() == sharding.replicated_axes
    assert {"x"} == NamedSharding(mesh, P(None, "y")).replicated_axes
    assert {"y"} == NamedSharding(mesh.abstract_mesh, P("x")).replicated_axes
    assert sharding.is_equivalent_to(NamedSharding(mesh, P(None, ("y", "x"), None)), 3)
    assert not sharding.is_equivalent_to(NamedSharding(mesh, P(None, ("x", "y"))), 2)
    assert 8 == sharding.num_devices == len(sharding.device_set)
    assert sharding.update(spec=P("x")) is NamedSharding(mesh, P("x"))


@several
def test_refused_shardings() -> None:
    """Names that the mesh does not have, or twice; shapes that do not split."""
    mesh = tb.make_mesh((2, 4), ("x", "y"))
    with pytest.raises(AxisSpecError, match="names the axis 'z'"):
        NamedSharding(mesh, P("z"))
    with pytest.raises(AxisSpecError, match="names the axis 'x' twice"):
        NamedSharding(mesh, P("x", ("y", "x")))
    with pytest.raises(AxisSpecError, match="spec is 'x' of type str"):
        NamedSharding(mesh, "x")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(AxisSpecError, match="mesh is None"):
        NamedSharding(None, P())  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ShapeMismatchError, match="into 4 parts"):
        NamedSharding(mesh, P("y")).shard_shape((6,))


def test_one_device() -> None:
    """A sharding over one device answers the same questions."""
    sharding = SingleDeviceSharding(tb.devices()[0])

    assert (2, 3) == sharding.shard_shape((2, 3))
    assert {tb.devices()[0]: (slice(None),) * 2} == sharding.devices_indices_map((2, 3))
    assert sharding.is_equivalent_to(sharding, 1)
    assert sharding.is_fully_addressable
    assert (1, True) == (sharding.num_devices, sharding.is_fully_replicated)


class Device:
    """A device of one of several processes; this one is process 0."""

    client = type("Client", (), {"process_index": staticmethod(lambda: 0)})

    def __init__(self, number: int, process_index: int) -> None:
        self.id = number
        self.process_index = process_index


def test_the_part_of_a_mesh_in_this_process() -> None:
    """It is a grid, or there is none."""
    rows = [[Device(10 * i + j, i) for j in range(3)] for i in range(2)]
    mesh = Mesh(rows, ("x", "y"))

    assert mesh.is_multi_process
    assert (("x", 1), ("y", 3)) == mesh.local_mesh.shape_tuple
    assert rows[0] == list(mesh.local_mesh.device_tuple)
    stairs = Mesh([[Device(0, 0), Device(1, 1)], [Device(2, 1), Device(3, 0)]], ("x", "y"))
    with pytest.raises(DevicePlacementError, match="are no grid in Mesh"):
        _ = stairs.local_mesh


def test_copies_of_shardings_are_the_sharding() -> None:
    """They are plain data."""
    sharding = tb.numpy.ones(3).sharding

    assert sharding is copy.copy(sharding) is copy.deepcopy([sharding])[0]


def test_specs_with_other_entries() -> None:
    """``update`` changes what it is given, and ``partitions`` are the entries."""
    spec = P("x", ("y", "z"), unreduced=frozenset("u"))

    assert ("x", ("y", "z")) == spec.partitions
    assert P("y", unreduced=frozenset("u")) == spec.update(partitions=("y",))
    assert P("x", ("y", "z"), reduced=frozenset("r")) == spec.update(
        unreduced=frozenset(), reduced=frozenset("r")
    )
    assert spec == spec.update()


def test_shapes_that_shardings_fit() -> None:
    """``check_compatible_aval`` looks at the number of axes, not at sizes."""
    rows = NamedSharding(AbstractMesh((8,), ("x",)), P("x"))

    rows.check_compatible_aval((3, 2))
    with pytest.raises(ShapeMismatchError, match="P\\("):
        rows.check_compatible_aval(())
    here = tb.numpy.ones(3).sharding
    here.check_compatible_aval(())
    assert here.has_addressable_devices


def test_an_axis_has_one_role_in_a_spec() -> None:
    """It splits, or parts are to be summed along it, or cotangents are."""
    for make in (
        lambda: P("x", unreduced={"x"}),
        lambda: P(("x", "y"), reduced={"y"}),
        lambda: P(unreduced={"x"}, reduced={"x"}),
        lambda: P(unreduced={None}),
    ):
        with pytest.raises(ArgumentValueError, match=r"PartitionSpec: .*reduced"):
            make()
    not_a_set: Any = ["x"]
    with pytest.raises(ArgumentTypeError, match=r"unreduced is .* of type list"):
        P(unreduced=not_a_set)
