"""The older place of shard_map, with its older arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracebridge._api.devices.shard_map import shard_map as _shard_map
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.core.sharding.context import get_abstract_mesh as _mesh_in_force
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.util.listing import listing as _listing

__all__ = ["shard_map"]

__dir__ = _listing(globals())


def shard_map(
    f: Callable[..., object],
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    check_rep: bool = True,
    auto: frozenset[Any] = frozenset(),
) -> Callable[..., Any]:
    """``tracebridge.shard_map`` with the arguments that it had before.

    Args:
        f: function of blocks.
        mesh: the devices; by default the mesh that is in force.
        in_specs: as in ``tracebridge.shard_map``.
        out_specs: as in ``tracebridge.shard_map``.
        check_rep: what is called ``check_vma`` there.
        auto: the axes of the mesh that are left to the compiler; there the others are named.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.shard_map import shard_map
    >>> mesh = tb.make_mesh((1,), ("x",))
    >>> double = shard_map(lambda x: 2 * x, mesh, in_specs=tb.P("x"), out_specs=tb.P("x"))
    >>> double(tb.numpy.arange(3)).tolist()
    [0, 2, 4]
    """
    known = _mesh_in_force() if mesh is None else mesh
    names = frozenset(known.axis_names) - auto if auto else frozenset[Any]()
    return _shard_map(
        f,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names=names,
        check_vma=check_rep,
    )
