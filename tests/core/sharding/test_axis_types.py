"""Types of the axes of meshes."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.config.values import mesh_in_force
from tracebridge.sharding import AbstractMesh, AxisType, ManualAxisType, Mesh

AUTO, EXPLICIT, MANUAL = AxisType.Auto, AxisType.Explicit, AxisType.Manual


def meshes(*types: AxisType) -> list[Mesh | AbstractMesh]:
    """A mesh of one device and an abstract one, with an axis of each of these types."""
    names = tuple("xyz"[: len(types)])
    sizes = (1,) * len(types)
    devices = np.array(tb.devices()[:1]).reshape(sizes)
    return [Mesh(devices, names, axis_types=types), AbstractMesh(sizes, names, types)]


def about_all(mesh: Mesh | AbstractMesh) -> list[bool]:
    """Whether all axes are of each of the three types."""
    return [mesh.are_all_axes_auto, mesh.are_all_axes_explicit, mesh.are_all_axes_manual]


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT, MANUAL])
def test_axes_of_one_type(kind: AxisType) -> None:
    """Exactly the properties of that type hold and have names."""
    for mesh in (*meshes(kind), *meshes(kind, kind)):
        names = mesh.axis_names

        assert [kind is AUTO, kind is EXPLICIT, kind is MANUAL] == about_all(mesh)
        assert names == mesh.auto_axes + mesh.explicit_axes + mesh.manual_axes


def test_axes_of_several_types() -> None:
    """Each axis is in the list of its type, and no property speaks for all of them."""
    for mesh in meshes(EXPLICIT, AUTO, EXPLICIT):
        assert (("y",), ("x", "z"), ()) == (mesh.auto_axes, mesh.explicit_axes, mesh.manual_axes)
        assert [False] * 3 == about_all(mesh)


def test_meshes_without_axes_have_no_type() -> None:
    """Nothing holds of all axes where there are none."""
    mesh = AbstractMesh((), ())

    assert () == mesh.auto_axes
    assert [False] * 3 == about_all(mesh)
    assert mesh == tb.typeof(1.0).sharding.mesh


def test_manual_axes_without_a_role() -> None:
    """What does not vary, and is no sum, is the same along the Manual axes."""
    mesh = AbstractMesh((2, 2, 2, 2), tuple("wxyz"), (MANUAL, MANUAL, MANUAL, AUTO))
    kind = ManualAxisType(varying=frozenset({"x"}), unreduced=frozenset({"w"}))

    assert {"y"} == kind.invarying(mesh)
    assert {"w", "x", "y"} == ManualAxisType().invarying(mesh)


def test_meshes_decorate_functions() -> None:
    """Each call of a decorated function runs with the mesh in force."""
    mesh = Mesh(np.array(tb.devices()[:1]), ("x",))

    @mesh
    def inside(a: int, *, b: int = 0) -> tuple[object, int]:
        """Documented."""
        return mesh_in_force(), a + b

    assert (mesh, 3) == inside(1, b=2)
    assert ("inside", "Documented.") == (inside.__name__, inside.__doc__)
    assert mesh_in_force() is not mesh
