"""Arrays that several processes hold parts of, split in another way.

What this process lacks it can only get by a program that all processes run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tracebridge.core.errors.runtime_errors import OtherProcessesError
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.runtime.arrays.placement import MeshPlacement
from tracebridge.core.runtime.calls.execute import SINGLE, make_run
from tracebridge.core.runtime.programs.compile import compile_jaxpr
from tracebridge.core.sharding.equivalent import over_mesh
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.runtime.arrays.array import Array
    from tracebridge.core.sharding.sharding import Sharding

_EXCHANGES: BoundedCache[Any] = BoundedCache("exchanges between processes", 1024)


def exchange(array: Array, placement: Sharding) -> Array:
    """``array`` at ``placement``, or whole on each of its devices where no name says the place.

    Raises:
        OtherProcessesError: it is not over the devices of a mesh.
    """
    source = array._sig.sharding
    mesh = getattr(source, "mesh", None)
    if not isinstance(source, NamedSharding) or type(mesh) is not Mesh:
        msg = f"{array.aval.str_short()} at {source} cannot be read from other processes"
        raise OtherProcessesError(msg, expected="an array over the devices of a Mesh")
    wanted = None
    if isinstance(placement, NamedSharding) and placement.memory_kind == source.memory_kind:
        wanted = over_mesh(mesh, placement, array.aval.ndim)
    if wanted is None:
        wanted = NamedSharding(mesh, PartitionSpec())
    key = (array.aval, source, wanted)
    run = _EXCHANGES.get(key)
    if run is None:
        run = _program(array.aval, source, wanted)
        _EXCHANGES.set(key, run)
    return cast("Array", run(array))


def _program(aval: Any, source: NamedSharding, wanted: NamedSharding) -> Any:
    """A program that gives its argument back, split in another way."""
    jaxpr = Jaxpr((aval,), (), (), (0,), (aval,))
    placement = MeshPlacement(wanted.mesh, (source,), (wanted,))
    program = compile_jaxpr(jaxpr, "exchange", placement, keep_unused=True)
    return make_run(program, 1, SINGLE, committed=True)
