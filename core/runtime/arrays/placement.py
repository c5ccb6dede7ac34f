"""Where a computation runs: committed arguments decide, else the default device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard, final

from tracebridge.core.config.values import mesh_of_computations
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.ir.jaxpr import Jaxpr, jaxprs_in_params
from tracebridge.core.ir.traverse import applications
from tracebridge.core.runtime.arrays.transfer import as_array, move
from tracebridge.core.runtime.backends.clients import default_placement
from tracebridge.core.sharding.equivalent import over_mesh
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.sharding.splits import explicit_split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tracebridge.core.runtime.arrays.array import Array


@final
class MeshPlacement:
    """Several devices: a mesh, and the sharding of each argument over it.

    ``out_shardings`` are those that the user chose for results, None where XLA chooses; or empty.
    ``replicas`` are the devices that run a program in replicas: where several processes run it
    together they are more than those of the mesh, over which this process spreads its arrays.
    ``untyped``: an argument is split over Explicit axes of which its type in the program knows
    nothing, so that types of results do not say how these are split.
    """

    __slots__ = ("in_shardings", "mesh", "out_shardings", "replicas", "untyped")

    def __init__(
        self,
        mesh: Mesh,
        in_shardings: tuple[NamedSharding, ...],
        out_shardings: tuple[NamedSharding | None, ...] = (),
        replicas: tuple[Any, ...] | None = None,
        untyped: bool = False,
    ) -> None:
        self.mesh = mesh
        self.untyped = untyped
        self.replicas = mesh.device_tuple if replicas is None else replicas
        self.in_shardings = in_shardings
        self.out_shardings = out_shardings

    @property
    def device(self) -> Any:
        """One of the devices; all are of one platform."""
        return self.mesh.device_tuple[0]

    @property
    def replicated(self) -> NamedSharding:
        """The sharding of an array that each device holds."""
        return NamedSharding(self.mesh, PartitionSpec())

    def without_first(self, n: int) -> MeshPlacement:
        """The placement of the arguments after the first ``n``."""
        if not n:
            return self
        rest = self.in_shardings[n:]
        return MeshPlacement(self.mesh, rest, self.out_shardings, self.replicas, self.untyped)

    def __repr__(self) -> str:
        return f"MeshPlacement({self.mesh!r}, {[s.spec for s in self.in_shardings]})"


Placement = SingleDeviceSharding | MeshPlacement


@final
class Wishes:
    """What the user says about the places of a computation: a mesh, and shardings over it.

    ``ins`` and ``outs`` hold None where nothing is said, and may be empty.
    """

    __slots__ = ("ins", "mesh", "outs")

    def __init__(
        self,
        mesh: Mesh,
        ins: tuple[NamedSharding | None, ...] = (),
        outs: tuple[NamedSharding | None, ...] = (),
    ) -> None:
        self.mesh = mesh
        self.ins = ins
        self.outs = outs


def wishes_inside(jaxpr: Jaxpr) -> Wishes | None:
    """The mesh over which the operations of ``jaxpr`` want to have arrays split."""
    mesh = _mesh_inside(jaxpr)
    return None if mesh is None else Wishes(mesh)


def _mesh_inside(jaxpr: Jaxpr) -> Mesh | None:
    if "mesh inside" not in jaxpr.cache:
        jaxpr.cache["mesh inside"] = next(filter(None, _meshes(jaxpr)), None)
    return jaxpr.cache["mesh inside"]


def _meshes(jaxpr: Jaxpr) -> Iterator[Mesh | None]:
    for app, _ in jaxpr.equations:
        wanted = app.primitive.wanted_sharding(app.params)
        if wanted is not None:
            mesh = getattr(wanted, "mesh", None)
            yield mesh if type(mesh) is Mesh else None
        for inner in jaxprs_in_params(app.params):
            yield _mesh_inside(inner)


def splits_values(jaxpr: Jaxpr) -> bool:
    """Whether a constraint in a program splits a value, if only over one device."""
    for app in applications(jaxpr):
        wanted = app.primitive.wanted_sharding(app.params)
        if isinstance(wanted, NamedSharding) and any(wanted.axes):
            return True
    return False


def is_spread(placement: Placement) -> TypeGuard[MeshPlacement]:
    """Whether a program runs on the devices of a mesh."""
    return type(placement) is MeshPlacement


def mesh_of(placement: Placement | None) -> Mesh | None:
    """The mesh on which a program runs that XLA is to split."""
    return placement.mesh if type(placement) is MeshPlacement else None


def choose_placement(
    signatures: Sequence[Any],
    name: str,
    device: SingleDeviceSharding | None = None,
    wishes: Wishes | None = None,
) -> tuple[Any, bool]:
    """Placement of a computation and whether its results are committed.

    ``device`` decides, else ``wishes``, the mesh of ``set_mesh``, the committed arguments.

    Raises:
        DevicePlacementError: two arguments are committed to different devices, or one elsewhere
            than the user wishes.
    """
    if device is not None:
        return device, True
    chosen: Any = None
    first = -1
    for i, sig in enumerate(signatures):
        if not sig.committed:
            continue
        if chosen is None:
            chosen, first = sig.sharding, i
        elif sig.sharding is not chosen and sig.sharding.device_set != chosen.device_set:
            msg = (
                f"{name}: arguments are committed to different devices: argument {first} to "
                f"{chosen}, argument {i} to {sig.sharding}"
            )
            raise DevicePlacementError(msg, hint="move one with device_put(x, device)")
    source = ""
    if wishes is None:
        mesh = mesh_of_computations()
        if type(mesh) is Mesh:
            wishes, source = Wishes(mesh), ", the mesh of set_mesh"
    if wishes is not None:
        if chosen is not None and chosen.device_set != set(wishes.mesh.device_tuple):
            msg = f"{name}: argument {first} is committed to {chosen}, but the program is to run "
            raise DevicePlacementError(
                f"{msg}on {wishes.mesh}{source}", hint="move it with device_put(x, sharding)"
            )
        return _at_wishes(signatures, wishes), True
    if chosen is None:
        return default_placement(), False
    if type(chosen) is SingleDeviceSharding:
        return chosen, True
    mesh = chosen.mesh
    return MeshPlacement(mesh, tuple([_over(mesh, sig) for sig in signatures])), True


def _at_wishes(signatures: Sequence[Any], wishes: Wishes) -> MeshPlacement:
    mesh = wishes.mesh
    ins = (*wishes.ins, *[None] * len(signatures))[: len(signatures)]
    places = [_over(mesh, s) if w is None else w for s, w in zip(signatures, ins, strict=True)]
    untyped = any([_is_untyped(w, s) for w, s in zip(ins, signatures, strict=True)])
    return MeshPlacement(mesh, tuple(places), wishes.outs, untyped=untyped)


def _is_untyped(wished: NamedSharding | None, sig: Any) -> bool:
    """Whether an option splits an array over Explicit axes, and its type does not say so."""
    aval = sig.aval
    return wished is not None and explicit_split(wished, aval.ndim) is not aval.split


def _over(mesh: Mesh, sig: Any) -> NamedSharding:
    """The sharding over ``mesh`` under which an argument enters: its own, if it has one there."""
    sharding = sig.sharding
    if isinstance(sharding, NamedSharding):
        found = over_mesh(mesh, sharding, sig.aval.ndim)
        if found is not None:
            return found
    return NamedSharding(mesh, PartitionSpec())


def all_at(signatures: Sequence[Any], placement: Any) -> bool:
    """Whether every argument is there already."""
    if type(placement) is SingleDeviceSharding:
        return all([s.sharding is placement for s in signatures])
    wanted = placement.in_shardings
    return all([s.sharding is w for s, w in zip(signatures, wanted, strict=True)])


def bring(arrays: Sequence[Array], placement: Any) -> list[Array]:
    """The arrays at the place where a computation runs; literals may stand among them."""
    given = [as_array(a) for a in arrays]
    if type(placement) is SingleDeviceSharding:
        return [move(a, placement, committed=a._sig.committed) for a in given]
    wanted = placement.in_shardings
    return [move(a, s, committed=True) for a, s in zip(given, wanted, strict=True)]


def moving(
    run: Callable[..., object], placement: object, *, star: bool = False
) -> Callable[..., Any]:
    """``run`` of arrays that are elsewhere; with ``star`` of one sequence of them."""
    if star:
        return lambda arrays: run(bring(arrays, placement))
    return lambda *arrays: run(*bring(arrays, placement))
