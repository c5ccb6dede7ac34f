"""The mesh of a block ``with mesh``, where older programs look for it."""

from __future__ import annotations

from typing import final

from tracebridge.core.config.values import entered_mesh
from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.sharding.mesh import EMPTY_MESH, Mesh

__all__ = ["thread_resources"]


@final
class _Resources:
    """What blocks of this thread put in force."""

    __slots__ = ()

    @property
    def physical_mesh(self) -> Mesh:
        """The mesh of the innermost block ``with mesh``; an empty one outside of such blocks."""
        found = entered_mesh()
        return EMPTY_MESH if found is None else found


@final
class _ThreadResources:
    """The resources of the calling thread: ``thread_resources.env.physical_mesh``."""

    __slots__ = ()

    @property
    def env(self) -> _Resources:
        """Those in force."""
        return _Resources()


thread_resources = _ThreadResources()

_shield(globals(), __name__)
