"""Options that say where a function runs: shardings, devices and backends, resolved and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from tracebridge._api.args.values import name_of_leaf
from tracebridge.core.control.calls.traced_call import Arguments, argument_names
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.runtime.arrays.placement import Wishes
from tracebridge.core.runtime.backends.clients import get_backend
from tracebridge.core.sharding.context import get_mesh, named_sharding
from tracebridge.core.sharding.equivalent import over_mesh, stand_in
from tracebridge.core.sharding.layout import Format, sharding_of_format
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import PyTreeDef, leaves
from tracebridge.core.tree.tree import map as tree_map


class _Unspecified:
    """Type of the default of arguments for which None is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<unspecified>"


UNSPECIFIED: Final = _Unspecified()


def without_formats(option: str, spec: object) -> Any:
    """A tree of shardings, with the shardings of formats in their place.

    Raises:
        ArgumentValueError: a format has a layout that arrays do not have.
    """
    if not any([isinstance(leaf, Format) for leaf in leaves(spec)]):
        return spec

    def place(leaf: object) -> Any:
        found = sharding_of_format(f"jit: {option}", leaf)
        return UNSPECIFIED if found is None else found

    return tree_map(place, spec)


def with_memories(*specs: Any) -> list[Any]:
    """Trees of shardings, over meshes where one is of a device and of another memory than usual.

    Programs on one device have one memory, that of the device; those over meshes have several.
    """
    singles = [p for spec in specs for p in leaves(spec) if isinstance(p, SingleDeviceSharding)]
    if all([p.memory_kind == SingleDeviceSharding(p.device).memory_kind for p in singles]):
        return list(specs)

    def place(leaf: Any) -> Any:
        return stand_in(leaf) if isinstance(leaf, SingleDeviceSharding) else leaf

    return [tree_map(place, spec) for spec in specs]


def resolve_placement(
    in_shardings: object, out_shardings: object, device: object, backend: str | None
) -> Callable[[], Any] | None:
    """A function that gives the placement that the options of ``jit`` ask for, or None.

    Raises:
        DevicePlacementError: they name several places, or something that is no place.
    """
    if device is not None and backend is not None:
        msg = f"jit: both device={device} and backend={backend!r} are given"
        raise DevicePlacementError(msg, hint="give one of them")
    wanted = [None if device is None else single_device("device", device)]
    for option, tree in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        requested = leaves(tree)
        if any([_is_named(leaf) for leaf in requested]):
            _check_named(option, requested)
            if device is not None or backend is not None:
                msg = f"jit: {option} names a mesh, and device={device}, backend={backend!r}"
                raise DevicePlacementError(msg, hint="leave device and backend out")
            continue
        wanted += [single_device(option, leaf) for leaf in requested]
    places = {d for d in wanted if d is not None}
    if len(places) > 1 or (places and backend is not None):
        names = ", ".join(sorted(map(str, places)))
        got = names if backend is None else f"{names} and backend={backend!r}"
        msg = f"jit: the options name several places to run at: {got}"
        raise DevicePlacementError(msg, hint="name one device, or use shard_map over a mesh")
    if places:
        (placement,) = places
        sharding = SingleDeviceSharding(placement)
        return lambda: sharding
    if backend is not None:
        # Looked up at the first call: the platform need not be started before.
        return lambda: get_backend(backend).placement
    return None


def single_device(option: str, sharding: object) -> Any:
    """The device of a sharding over one device; the device itself if it is one.

    Raises:
        DevicePlacementError: a sharding over several devices, or something else.
    """
    if sharding is UNSPECIFIED:
        return None
    if isinstance(sharding, SingleDeviceSharding):
        return sharding.device
    devices = getattr(sharding, "device_set", None)
    if devices is not None:
        if len(devices) == 1:
            return next(iter(devices))
        msg = f"{option}: {sharding!r} has {len(devices)} devices"
        raise DevicePlacementError(
            msg,
            expected="a device, or a sharding over one device",
            hint="use shard_map for programs over several devices",
        )
    if hasattr(sharding, "platform") and hasattr(sharding, "client"):
        return sharding
    msg = f"{option}: got {sharding!r} of type {type(sharding).__name__}"
    raise DevicePlacementError(msg, expected="a device, a sharding over one device, or None")


def _is_named(sharding: object) -> bool:
    """Whether a sharding is about the axes of a mesh."""
    return isinstance(sharding, NamedSharding | PartitionSpec)


def _check_named(option: str, shardings: Sequence[object]) -> None:
    """Shardings over meshes stand beside others of their kind only."""
    for leaf in shardings:
        if not (_is_named(leaf) or leaf is UNSPECIFIED):
            msg = f"{option}: got {leaf!r} of type {type(leaf).__name__} beside shardings of a mesh"
            raise DevicePlacementError(msg, expected="a NamedSharding, a PartitionSpec, or None")
        spec = leaf.spec if isinstance(leaf, NamedSharding) else leaf
        if isinstance(spec, PartitionSpec) and PartitionSpec.UNCONSTRAINED in tuple(spec):
            raise DevicePlacementError(
                f"{option}: Unconstrained dims are not allowed, got {spec}",
                hint="use None for axes that are not split, or lax.with_sharding_constraint",
            )


@final
class ShardingTrees:
    """``in_shardings`` and ``out_shardings``, which must fit the arguments and the results.

    Where all of their devices are one device only the structure, and arguments that are committed
    elsewhere, are left to check at a call; shardings over a mesh are the wishes of a program.
    """

    __slots__ = ("_ins", "_named", "_outs")

    def __init__(self, in_shardings: object, out_shardings: object) -> None:
        self._ins = in_shardings
        self._outs = out_shardings
        self._named = any([_is_named(s) for s in leaves((in_shardings, out_shardings))])

    def check_inputs(self, name: str, call: Arguments, signatures: Sequence[Any] = ()) -> None:
        """Check the positional arguments of a call.

        Raises:
            ArgumentSpecError: the call has keyword arguments.
            TreeMismatchError: ``in_shardings`` is no prefix of the arguments.
            DevicePlacementError: an argument is committed to another device.
        """
        wanted = self._wanted_inputs(name, call)
        if self._named:
            return
        for i, (place, sig) in enumerate(zip(wanted, signatures, strict=False)):
            if place is None or place is UNSPECIFIED or not sig.committed:
                continue
            device = single_device("in_shardings", place)
            if sig.sharding is not SingleDeviceSharding(device):
                raise _committed_elsewhere(name, call, i, sig, device)

    def _wanted_inputs(self, name: str, call: Arguments) -> list[Any]:
        """The entry of each positional argument, in order; none where the option is not given."""
        if self._ins is UNSPECIFIED or self._ins is None:
            return []
        positional, keywords = call.tree.children()
        if keywords.num_leaves:
            names = ", ".join(map(repr, keywords.node_data()[1]))
            msg = f"jit({name}): in_shardings is given, and the keyword arguments {names}"
            raise ArgumentSpecError(
                msg, hint="in_shardings is about positional arguments: give them by position"
            )
        return _spread(name, positional, self._ins, "in_shardings", "args")

    def check_outputs(self, name: str, tree: PyTreeDef) -> None:
        """Raise TreeMismatchError unless ``out_shardings`` is a prefix of the result."""
        self._wanted_outputs(name, tree)

    def _wanted_outputs(self, name: str, tree: PyTreeDef) -> list[Any]:
        if self._outs is UNSPECIFIED or self._outs is None:
            return []
        return _spread(name, tree, self._outs, "out_shardings", "the result")

    def places_of_results(self, name: str, tree: PyTreeDef) -> list[Any]:
        """The sharding that the option names for each result, or None; none without the option.

        Raises:
            TreeMismatchError: ``out_shardings`` is no prefix of the result.
        """
        wanted, option = self._wanted_outputs(name, tree), f"jit({name}): out_shardings"
        if self._named:
            return _resolved(option, wanted)
        return [
            None
            if w is None or w is UNSPECIFIED
            else SingleDeviceSharding(single_device(option, w))
            for w in wanted
        ]

    def wishes(
        self,
        name: str,
        call: Arguments,
        in_avals: Sequence[Any],
        signatures: Sequence[Any],
        out_tree: PyTreeDef,
        out_avals: Sequence[Any],
    ) -> Wishes | None:
        """The mesh, and the shardings over it; None where the options name one device.

        Raises:
            NoMeshError: a PartitionSpec is given, and no mesh is in force.
            DevicePlacementError: shardings are about different devices, or an argument is
                committed to another sharding.
            ShapeMismatchError: an array cannot be split evenly.
        """
        if not self._named:
            return None
        ins = _resolved(f"jit({name}): in_shardings", self._wanted_inputs(name, call))
        outs = _resolved(f"jit({name}): out_shardings", self._wanted_outputs(name, out_tree))
        meshes, option = [s.mesh for s in (*ins, *outs) if s is not None], f"jit({name})"
        if not meshes:
            # A sharding for arguments of which none is an array.
            return None
        mesh = meshes[0]
        names = argument_names(call.tree, call.parameters)
        in_wishes = _over(f"{option}: in_shardings", mesh, ins, in_avals, names)
        for i, (place, sig) in enumerate(zip(in_wishes, signatures, strict=False)):
            if place is None or not sig.committed:
                continue
            if not place.is_equivalent_to(sig.sharding, sig.aval.ndim):
                raise _committed_elsewhere(name, call, i, sig, place)
        results = [name_of_leaf(out_tree, i, "the result") for i in range(len(out_avals))]
        wanted = _over(f"{option}: out_shardings", mesh, outs, out_avals, results)
        return Wishes(mesh, tuple(in_wishes), tuple(wanted))


def _resolved(option: str, wanted: Sequence[object]) -> list[NamedSharding | None]:
    """Shardings, with those of the mesh in force in place of specifications and abstract meshes."""
    found: list[NamedSharding | None] = []
    for w in wanted:
        if w is None or w is UNSPECIFIED:
            found.append(None)
            continue
        sharding = named_sharding(option, w).on_mesh(get_mesh())
        if type(sharding.mesh) is not Mesh:
            raise DevicePlacementError(
                f"{option}: {sharding} has no devices",
                hint="put a mesh with these axes in force: with set_mesh(mesh)",
            )
        found.append(sharding)
    return found


def _over(
    option: str,
    mesh: Mesh,
    wanted: Sequence[NamedSharding | None],
    avals: Sequence[Any],
    names: Sequence[str],
) -> list[NamedSharding | None]:
    """The shardings over one mesh, each of which splits its array evenly."""
    shardings_of_leaves: list[NamedSharding | None] = []
    for sharding, aval, name in zip(wanted, avals, names, strict=False):
        if sharding is None:
            shardings_of_leaves.append(None)
            continue
        place = sharding.without_open_axes()
        for axis, (size, n) in enumerate(zip(aval.shape, place.parts_of(aval.ndim), strict=True)):
            if size % n:
                msg = f"{option} of {name}: {sharding.spec} splits axis {axis} of "
                raise ShapeMismatchError(
                    f"{msg}{aval.str_short()} into {n} parts",
                    expected=f"a size that is a multiple of {n}",
                )
        there = over_mesh(mesh, place, aval.ndim)
        if there is None:
            msg = f"{option} of {name}: {sharding} is about other devices than {mesh}"
            raise DevicePlacementError(msg, hint="use one mesh for all shardings of a function")
        shardings_of_leaves.append(there)
    return shardings_of_leaves


def _committed_elsewhere(
    name: str, call: Arguments, index: int, sig: Any, place: Any
) -> DevicePlacementError:
    argument = argument_names(call.tree, call.parameters)[index]
    where = "device" if not isinstance(place, NamedSharding) else "sharding"
    return DevicePlacementError(
        f"jit({name}): argument {argument} is committed to {sig.sharding}, but in_shardings says "
        f"{place}",
        hint=f"move it with device_put(x, {where})",
    )


def _spread(name: str, tree: PyTreeDef, spec: object, option: str, whole: str) -> list[Any]:
    return flatten_axes(
        f"jit({name})",
        tree,
        spec,
        axes_name=option,
        full_name=whole,
        of_arguments=option == "in_shardings",
    )


def sharding_trees(in_shardings: object, out_shardings: object) -> ShardingTrees | None:
    """The checks that the two options need at calls; None where they name no tree."""
    if all(_is_plain(s) for s in (in_shardings, out_shardings)):
        return None
    return ShardingTrees(in_shardings, out_shardings)


def _is_plain(spec: object) -> bool:
    return spec is None or spec is UNSPECIFIED
