"""The mesh that is in force: for a thread, inside a block, or for the whole process."""

from __future__ import annotations

from types import TracebackType
from typing import Any, final

from tracebridge.core.config.scope_stack import Change
from tracebridge.core.config.state import SCOPES, enter_scope, settled_state, with_mesh
from tracebridge.core.config.values import global_mesh, mesh_in_force, set_global_mesh
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import AxisSpecError, NoMeshError
from tracebridge.core.sharding.abstract_mesh import EMPTY_ABSTRACT_MESH, AbstractMesh
from tracebridge.core.sharding.mesh import EMPTY_MESH, Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.util.public_path import public_path


def get_mesh() -> Mesh:
    """The mesh that ``set_mesh`` or ``with mesh`` put in force; an empty one if there is none.

    >>> import tracebridge as tb
    >>> tb.sharding.get_mesh().empty
    True
    >>> with tb.set_mesh(tb.make_mesh((1,), ("x",))):
    ...     tb.sharding.get_mesh().axis_names
    ('x',)
    """
    found = mesh_in_force()
    return found if isinstance(found, Mesh) else EMPTY_MESH


def get_abstract_mesh() -> AbstractMesh:
    """The names and sizes of the axes of the mesh that is in force; an empty mesh if there is none.

    >>> import tracebridge as tb
    >>> with tb.sharding.use_abstract_mesh(tb.sharding.AbstractMesh((4, 2), ("x", "y"))):
    ...     tb.sharding.get_abstract_mesh().size
    8
    """
    found = mesh_in_force()
    if found is None:
        return EMPTY_ABSTRACT_MESH
    return found.abstract_mesh if isinstance(found, Mesh) else found


class _MeshScope:
    """A block in which a mesh is in force for this thread; gives the mesh."""

    __slots__ = ("_mesh", "_open")

    def __init__(self, mesh: Any) -> None:
        self._mesh = mesh
        self._open: list[Change] = []

    def __enter__(self) -> Any:
        self._open.append(enter_scope(with_mesh, self._mesh))
        return self._mesh

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        SCOPES.leave_one_of(self._open)


@public_path("tracebridge")
@final
class set_mesh(_MeshScope):
    """Put a mesh in force: from now on for the process, or inside a ``with`` block.

    Where a mesh is in force a ``PartitionSpec`` does for a sharding: in ``device_put``, in
    ``in_shardings`` and ``out_shardings`` of ``jit``, and in ``lax.with_sharding_constraint``.
    Computations run on the devices of the mesh: uncommitted arguments are copied to all of them,
    results are committed to them, and arguments that are committed elsewhere are refused.

    Args:
        mesh: a ``Mesh``; None for no mesh.

    Raises:
        AxisSpecError: ``mesh`` is something else or has axes of the type Manual, or a function is
            being traced.

    >>> import tracebridge as tb
    >>> P = tb.sharding.PartitionSpec
    >>> with tb.set_mesh(tb.make_mesh((1,), ("x",))):
    ...     tb.device_put(tb.numpy.ones(4), P("x")).sharding.spec
    P('x',)
    """

    __slots__ = ("_before",)

    def __init__(self, mesh: Any) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            msg = f"set_mesh: mesh is {mesh!r} of type {type(mesh).__name__}"
            raise AxisSpecError(
                msg, expected="a Mesh, or None", hint="use use_abstract_mesh for an AbstractMesh"
            )
        if mesh is not None and mesh.manual_axes:
            raise AxisSpecError(
                f"set_mesh: {mesh} contains manual axes",
                expected="axes of the types Auto and Explicit",
                hint="use shard_map, in which axes are Manual",
            )
        current = settled_state()
        if current is not None and current.trace is not None:
            raise AxisSpecError(
                "set_mesh: called inside a function that is traced",
                hint="call it outside; inside use sharding.use_abstract_mesh",
            )
        super().__init__(None if mesh is None or mesh.empty else mesh)
        # As a statement it holds for all that follows; a block takes it back in ``__enter__``.
        self._before = [set_global_mesh(self._mesh)]

    def __enter__(self) -> Any:
        if self._before:
            before = self._before.pop()
            if global_mesh() is self._mesh:  # else another statement has put one in force since
                set_global_mesh(before)
        return super().__enter__()


@public_path("tracebridge.sharding")
@final
class use_abstract_mesh(_MeshScope):
    """A ``with`` block in which a mesh without devices is in force.

    Args:
        mesh: an ``AbstractMesh``.

    Raises:
        AxisSpecError: ``mesh`` is something else.

    >>> import tracebridge as tb
    >>> with tb.sharding.use_abstract_mesh(tb.sharding.AbstractMesh((2,), ("x",))) as mesh:
    ...     mesh.axis_names
    ('x',)
    """

    __slots__ = ()

    def __init__(self, mesh: Any) -> None:
        if not isinstance(mesh, AbstractMesh):
            msg = f"use_abstract_mesh: mesh is {mesh!r} of type {type(mesh).__name__}"
            raise AxisSpecError(msg, expected="an AbstractMesh")
        super().__init__(mesh)

    def __enter__(self) -> Any:
        current = mesh_in_force()
        if current is not None and not self._mesh.empty and current.size != self._mesh.size:
            raise AxisSpecError(
                f"use_abstract_mesh cannot change the size of the mesh: {current} is in force, "
                f"got {self._mesh}"
            )
        return super().__enter__()


def named_sharding(call: str, sharding: object) -> Any:
    """A sharding as it is; of a PartitionSpec the one over the mesh that is in force.

    Raises:
        NoMeshError: there is no such mesh.
        DevicePlacementError: it is neither.
    """
    if isinstance(sharding, Sharding):
        return sharding
    if isinstance(sharding, PartitionSpec):
        mesh = mesh_in_force()
        if mesh is None:
            raise NoMeshError(
                f"{call}: got {sharding!r}, but no mesh is in force, whose axes it could name",
                hint="use set_mesh(mesh), or give a NamedSharding",
            )
        return NamedSharding(mesh, sharding)
    msg = f"{call}: got {sharding!r} of type {type(sharding).__name__}"
    raise DevicePlacementError(msg, expected="a sharding, or a PartitionSpec")
