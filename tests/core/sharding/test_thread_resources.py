"""interpreters.pxla: the mesh of a block, where older programs look for it."""

from __future__ import annotations

import tracebridge as tb
from tracebridge.interpreters import pxla


def test_mesh_of_the_block() -> None:
    """It is that of the innermost ``with mesh``; ``set_mesh`` and functions change nothing."""
    mesh = tb.sharding.Mesh(tb.devices()[:1], ("x",))
    env = pxla.thread_resources.env

    assert env.physical_mesh.empty
    with mesh:
        assert mesh is env.physical_mesh is pxla.thread_resources.env.physical_mesh
        seen = []
        tb.jit(lambda x: seen.append(env.physical_mesh) or x)(1.0)
        assert [mesh] == seen
    with tb.set_mesh(mesh):
        assert env.physical_mesh.empty
