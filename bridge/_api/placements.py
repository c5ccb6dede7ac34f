"""Options that say where a function runs: shardings, devices and backends, resolved and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from tracebridge.core.control.jit import Arguments, argument_names
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.runtime.backends import get_backend
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import PyTreeDef, leaves


class _Unspecified:
    """Type of the default of arguments for which None is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<unspecified>"


UNSPECIFIED: Final = _Unspecified()


def resolve_placement(
    in_shardings: Any, out_shardings: Any, device: Any, backend: str | None
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
        wanted += [single_device(option, leaf) for leaf in leaves(tree)]
    places = {d for d in wanted if d is not None}
    if len(places) > 1 or (places and backend is not None):
        names = ", ".join(sorted(map(str, places)))
        got = names if backend is None else f"{names} and backend={backend!r}"
        msg = f"jit: the options name several places to run at: {got}"
        raise DevicePlacementError(msg, hint="name one device, or use shard_map over a mesh")
    if places:
        (found,) = places
        sharding = SingleDeviceSharding(found)
        return lambda: sharding
    if backend is not None:
        # Looked up at the first call: the platform need not be started before.
        return lambda: get_backend(backend).placement
    return None


def single_device(option: str, sharding: Any) -> Any:
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


@final
class ShardingTrees:
    """``in_shardings`` and ``out_shardings``, which must fit the arguments and the results.

    All of their devices are one device, so that only the structure, and arguments that are
    committed elsewhere, are left to check at a call.
    """

    __slots__ = ("_ins", "_outs")

    def __init__(self, in_shardings: Any, out_shardings: Any) -> None:
        self._ins = in_shardings
        self._outs = out_shardings

    def check_inputs(self, name: str, call: Arguments, signatures: Sequence[Any] = ()) -> None:
        """Check the positional arguments of a call.

        Raises:
            ArgumentSpecError: the call has keyword arguments.
            TreeMismatchError: ``in_shardings`` is no prefix of the arguments.
            DevicePlacementError: an argument is committed to another device.
        """
        if self._ins is UNSPECIFIED or self._ins is None:
            return
        positional, keywords = call.tree.children()
        if keywords.num_leaves:
            names = ", ".join(map(repr, keywords.node_data()[1]))
            msg = f"jit({name}): in_shardings is given, and the keyword arguments {names}"
            raise ArgumentSpecError(
                msg, hint="in_shardings is about positional arguments: give them by position"
            )
        wanted = _spread(name, positional, self._ins, "in_shardings", "args")
        for i, (place, sig) in enumerate(zip(wanted, signatures, strict=False)):
            if place is None or place is UNSPECIFIED or not sig.committed:
                continue
            device = single_device("in_shardings", place)
            if sig.sharding is not SingleDeviceSharding(device):
                argument = argument_names(call.tree, call.parameters)[i]
                msg = (
                    f"jit({name}): argument {argument} is committed to {sig.sharding}, but "
                    f"in_shardings says {device}"
                )
                raise DevicePlacementError(msg, hint="move it with device_put(x, device)")

    def check_outputs(self, name: str, tree: PyTreeDef) -> None:
        """Raise TreeMismatchError unless ``out_shardings`` is a prefix of the result."""
        if self._outs is not UNSPECIFIED and self._outs is not None:
            _spread(name, tree, self._outs, "out_shardings", "the result")


def _spread(name: str, tree: PyTreeDef, spec: Any, option: str, whole: str) -> list[Any]:
    return flatten_axes(f"jit({name})", tree, spec, axes_name=option, full_name=whole)


def sharding_trees(in_shardings: Any, out_shardings: Any) -> ShardingTrees | None:
    """The checks that the two options need at calls; None where they name no tree."""
    if all(_is_plain(s) for s in (in_shardings, out_shardings)):
        return None
    return ShardingTrees(in_shardings, out_shardings)


def _is_plain(spec: Any) -> bool:
    return spec is None or spec is UNSPECIFIED
