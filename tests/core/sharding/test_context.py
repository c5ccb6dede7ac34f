"""The mesh in force: set_mesh, with mesh, use_abstract_mesh, and PartitionSpec in their reach."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSpecError, NoMeshError
from tracebridge.sharding import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    NamedSharding,
    get_abstract_mesh,
    get_mesh,
    make_single_device_sharding,
    use_abstract_mesh,
)

P = tb.P
X = np.arange(8, dtype="f4").reshape(4, 2)


def mesh(name: str = "x") -> Any:
    return tb.make_mesh((1,), (name,), AxisType.Auto)


def test_blocks_and_statements() -> None:
    """A block ends; a statement holds until the next one; None takes the mesh away."""
    assert get_mesh().empty
    assert 0 == get_mesh().size
    assert get_abstract_mesh().empty
    with tb.set_mesh(mesh()) as inside:
        assert mesh() is inside is get_mesh()
        with mesh("y") as inner:
            assert ("y",) == inner.axis_names == get_mesh().axis_names
            with tb.set_mesh(None):
                assert get_mesh().empty
        assert ("x",) == get_mesh().axis_names
    assert get_mesh().empty

    scope = tb.set_mesh(mesh())
    assert mesh() is get_mesh()
    with scope:
        assert mesh() is get_mesh()
    assert get_mesh().empty

    tb.set_mesh(mesh())
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(get_mesh()))
    thread.start()
    thread.join()
    tb.set_mesh(None)
    assert [mesh()] == seen
    assert get_mesh().empty


def test_specifications_mean_the_mesh_in_force() -> None:
    """In device_put, jit and constraints; another mesh means another program."""
    f = tb.jit(lambda x: tb.lax.with_sharding_constraint(x * 2, P("x")))
    g = tb.jit(lambda x: x * 2, in_shardings=P("x"), out_shardings=P(None, "x"))
    for place in (mesh(), tb.make_mesh((1, 1), ("x", "y"), AxisType.Auto)):
        with tb.set_mesh(place):
            assert NamedSharding(place, P("x")) == tb.device_put(X, P("x")).sharding
            assert (2 * X).tolist() == f(X).tolist()
            assert place is f(X).sharding.mesh
            assert NamedSharding(place, P(None, "x")) == g(X).sharding
            assert P("x") == tb.numpy.zeros(4, device=P("x")).sharding.spec
    with pytest.raises(NoMeshError, match=r"with_sharding_constraint: got .* no mesh is in force"):
        f(X)
    with pytest.raises(RuntimeError, match=r"jit\(<lambda>\): in_shardings: got P"):
        g(X)
    with pytest.raises(AxisSpecError, match="device_put: device: got P"):
        tb.device_put(X, P("x"))


def test_statements_reach_cached_calls() -> None:
    """A function that was compiled without a mesh is compiled again."""
    f = tb.jit(lambda x: x if get_mesh().empty else 2 * x)

    assert 3.0 == float(f(3.0))
    tb.set_mesh(mesh())
    assert 6.0 == float(f(3.0))
    tb.set_mesh(None)
    assert 3.0 == float(f(3.0))


def test_abstract_meshes() -> None:
    """Names and sizes; equal if those are; a concrete mesh has one."""
    one = AbstractMesh((4, 2), ("x", "y"))
    assert one == AbstractMesh((4, 2), ("x", "y"), AxisType.Auto)
    assert hash(one) == hash(AbstractMesh((4, 2), ("x", "y")))
    assert one != one.update(axis_names=("x", "z"))
    assert (8, (4, 2), (("x", 4), ("y", 2))) == (one.size, one.axis_sizes, one.shape_tuple)
    assert one.abstract_mesh is one
    assert "AbstractMesh('x': 4, 'y': 2, axis_types=(Auto, Auto))" == repr(one)
    of_devices = mesh().abstract_mesh
    assert (("x", 1),) == of_devices.shape_tuple
    first = tb.devices()[0]
    kind = (first.device_kind, first.platform)
    assert kind == (of_devices.abstract_device.device_kind, of_devices.abstract_device.platform)
    assert AbstractDevice("cpu", None, "cpu") == AbstractDevice("cpu", None, "cpu")
    assert AbstractDevice("cpu", None, "cpu") != AbstractDevice("cpu", 2, "cpu")
    with use_abstract_mesh(one) as inside:
        assert one is inside is get_abstract_mesh()
        assert get_mesh().empty
    with tb.set_mesh(mesh()):
        assert of_devices == get_abstract_mesh()


def test_shardings_over_abstract_meshes() -> None:
    """They tell shapes of parts, and constrain programs over a mesh with these axes."""
    rows = NamedSharding(AbstractMesh((2,), ("x",)), P("x"))

    assert (2, 2) == rows.shard_shape((4, 2))
    with pytest.raises(DevicePlacementError, match="has no devices"):
        tb.device_put(X, rows)
    nowhere = tb.jit(lambda x: x + 1, in_shardings=NamedSharding(mesh().abstract_mesh, P("x")))
    with pytest.raises(DevicePlacementError, match=r"(?s)in_shardings: .*has no devices.*set_mesh"):
        nowhere(X)
    with tb.set_mesh(mesh()):
        assert (X + 1).tolist() == nowhere(X).tolist()
    here = NamedSharding(mesh(), P())
    abstract = NamedSharding(mesh().abstract_mesh, P("x"))
    f = tb.jit(lambda x: tb.lax.with_sharding_constraint(x, abstract), in_shardings=here)
    assert X.tolist() == f(X).tolist()


def test_single_device_sharding() -> None:
    """A device, or what has one."""
    device = tb.devices()[0]

    assert tb.numpy.ones(3).sharding == make_single_device_sharding(device)
    with pytest.raises(DevicePlacementError, match="make_single_device_sharding: device: got 3"):
        make_single_device_sharding(3)


def test_refused() -> None:
    """What is no mesh, and meshes that make no sense."""
    with pytest.raises(AxisSpecError, match="set_mesh: mesh is 3 of type int"):
        tb.set_mesh(3)
    with pytest.raises(
        AxisSpecError, match=r"(?s)set_mesh: mesh is AbstractMesh.*use_abstract_mesh"
    ):
        tb.set_mesh(AbstractMesh((1,), ("x",)))
    with pytest.raises(AxisSpecError, match="set_mesh: called inside a function that is traced"):
        tb.jit(lambda x: (tb.set_mesh(mesh()), x)[1])(1.0)
    with pytest.raises(AxisSpecError, match="use_abstract_mesh: mesh is"):
        use_abstract_mesh(mesh())
    with pytest.raises(AxisSpecError, match="a name for each size"):
        AbstractMesh((1, 2), ("x",))
    with pytest.raises(AxisSpecError, match=r"AbstractMesh: axis_names=.* repeat a name"):
        AbstractMesh((1, 2), ("x", "x"))
    assert get_mesh().empty


def test_meshes_with_manual_axes_are_not_put_in_force() -> None:
    """Axes become Manual in shard_map only."""
    manual = tb.sharding.Mesh(np.array(tb.devices()[:1]), "x", (AxisType.Manual,))
    with pytest.raises(ValueError, match="contains manual axes"):
        tb.set_mesh(manual)
    assert get_abstract_mesh().empty
