"""Moving arrays between host and devices, and waiting for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge._api.args.placements import single_device
from tracebridge._api.args.values import value_of
from tracebridge.core._jaxlib.xla import batched_block_until_ready
from tracebridge.core.config.transfer_guards import guards_in_force
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.ir.float0 import is_float0
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.annotations import to_memory_p
from tracebridge.core.lax.device_put import device_put_p
from tracebridge.core.runtime.arrays.array import Array, living_arrays
from tracebridge.core.runtime.arrays.transfer import copied, move, put_host, put_numpy
from tracebridge.core.runtime.backends.clients import default_placement, get_backend
from tracebridge.core.runtime.backends.guards import explicit_transfers
from tracebridge.core.runtime.processes.messages import check_same
from tracebridge.core.runtime.programs.donation import mark_donated
from tracebridge.core.sharding.context import named_sharding
from tracebridge.core.sharding.layout import Format, Layout, sharding_of_format
from tracebridge.core.sharding.memory import Space, in_space, kind_of_space
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import PyTreeDef, flatten, leaves

_ON_HOST = frozenset({int, float, complex, bool, str, bytes, np.ndarray})


@api_boundary
def device_put(
    x: object, device: object = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """Put the arrays in ``x`` on a device, or spread them over several.

    Args:
        x: array, number, or tree of them.
        device: a device, a sharding, a ``PartitionSpec`` for the mesh in force (``set_mesh``), or
            None for the default device; or a tree of these that is a prefix of ``x``. With a
            device or a sharding the results are committed to it: computations with them run there.
            A ``memory.Space`` is another memory of the devices where ``x`` is.
        src: where ``x`` is, in the same form; derivatives are put back there.
        donate: whether the arrays in ``x`` end with this call, so that their memory can be
            reused; a bool or a tree prefix of bools.
        may_alias: whether results may share memory with ``x``. False copies always, True and
            None where ``x`` is on another device.

    Returns:
        A tree like ``x`` with arrays as leaves.

    Raises:
        DevicePlacementError: ``device`` is no device and no sharding.
        ShapeMismatchError: a sharding does not split an array evenly.
        ArgumentValueError: ``donate`` and ``may_alias`` are both True, or a format leaves its
            layout open.
        UnsupportedDtypeError: ``x`` contains something that is no array or number.

    >>> import tracebridge as tb
    >>> x = tb.device_put([1.0, 2], tb.devices("cpu")[0])
    >>> print(x[0], x[1].committed)
    1.0 True
    """
    if guards_in_force[0]:
        with explicit_transfers():
            return _device_put(x, device, src, donate, may_alias)
    return _device_put(x, device, src, donate, may_alias)


def _device_put(x: object, device: object, src: Any, donate: Any, may_alias: Any) -> Any:
    flat, tree = flatten(x)
    if not flat:
        return x
    places = [_place("device", d) for d in _spread(tree, device, "device")]
    sources = [_place("src", d) for d in _spread(tree, src, "src")]
    donated = _spread(tree, donate, "donate")
    aliases = _spread(tree, may_alias, "may_alias")
    if any([give and alias for give, alias in zip(donated, aliases, strict=True)]):
        msg = "device_put: donate and may_alias are both True"
        raise ArgumentValueError(msg, hint="an array that ends cannot share its memory")
    results = [
        leaf if is_float0(leaf) else _put(leaf, place, source, alias, (tree, i))
        for i, (leaf, place, source, alias) in enumerate(
            zip(flat, places, sources, aliases, strict=True)
        )
    ]
    for leaf, result, give in zip(flat, results, donated, strict=True):
        if give and type(leaf) is Array and _is_copy(leaf, result):
            mark_donated([leaf], [0], "device_put")
    return tree.unflatten(results)


def _is_copy(leaf: Array, result: Array) -> bool:
    """Whether the memory of ``leaf`` can go: no part of the result shares it."""
    if leaf._sig.borrowed or result._buf is leaf._buf:
        return False
    if type(leaf.sharding) is type(result.sharding) is SingleDeviceSharding:
        return True
    old, new = (
        {shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards}
        for x in (leaf, result)
    )
    return old.isdisjoint(new)


def _spread(tree: PyTreeDef, spec: object, name: str) -> list[Any]:
    """A specification, spread over the leaves of ``x``."""
    if (
        spec is None
        or isinstance(spec, bool | Sharding | PartitionSpec | Format | Space)
        or hasattr(spec, "client")
    ):
        return [spec] * tree.num_leaves
    return flatten_axes("device_put", tree, spec, axes_name=name, full_name="x")


def _place(option: str, spec: object) -> Sharding | Space | None:
    if isinstance(spec, Format) and spec.layout is Layout.AUTO:
        msg = f"device_put: {option} is {spec}"
        raise ArgumentValueError(msg, expected="a layout: nothing is compiled that chooses one")
    spec = sharding_of_format(f"device_put: {option}", spec)
    if spec is None or isinstance(spec, Sharding | Space):
        return spec
    if isinstance(spec, PartitionSpec):
        return named_sharding(f"device_put: {option}", spec)
    return SingleDeviceSharding(single_device(f"device_put: {option}", spec))


def _put(
    leaf: Any,
    place: Sharding | Space | None,
    source: Sharding | Space | None,
    may_alias: bool | None,
    where: tuple[PyTreeDef, int],
) -> Any:
    """One array at its place."""
    if isinstance(place, Space):
        if isinstance(leaf, Tracer):
            return _tracer_in(leaf, place)
        place = in_space(leaf.sharding if type(leaf) is Array else default_placement(), place)
    if isinstance(source, Space):
        source = None
    kind = type(leaf)
    if kind is np.ndarray:
        host = np.asarray(leaf, canonicalize(leaf.dtype))
        return put_numpy(host) if place is None else _put_host(host, place)
    value = (
        leaf if issubclass(type(leaf), EngineValue) else value_of("device_put", leaf, *where, "x")
    )
    if isinstance(value, Tracer):
        if place is None:
            return value
        if source is None:
            source = _source_of(value)
        return device_put_p.bind(value, placement=place, source=source)
    if type(value) is Literal:
        # Literals share one device scalar; what users hold may be deleted.
        weak, host = value.aval.weak_type, np.asarray(value)
        if place is None:
            return put_numpy(host, weak_type=weak)
        return _put_host(host, place, weak_type=weak)
    value._check_alive()
    target = value._sig.sharding if place is None else place
    if may_alias is False and value._sig.sharding is target:
        committed = place is not None or value.committed
        return copied(value, committed=committed)  # type: ignore[arg-type] - likewise
    if place is None:
        return value
    return move(value, place, committed=True)  # type: ignore[arg-type] - the third kind of value


def _source_of(value: Tracer) -> Sharding | None:
    """Where the array is that is differentiated: its cotangents go back there."""
    known = value.known()
    return known.sharding if type(known) is Array else None


def _put_host(host: Any, place: Sharding, *, weak_type: bool = False) -> Any:
    """A host array at its place; over devices of several processes all have to have the same."""
    if not place.is_fully_addressable and place.has_addressable_devices:
        check_same("device_put", host)
    return put_host(host, place, weak_type=weak_type)


def _tracer_in(value: Tracer, space: Space) -> Any:
    """A traced value in another memory of the devices that the program will run on."""
    if space is Space.Any:
        return value
    return to_memory_p.bind(value, kind=kind_of_space(space, default_placement().device))


@api_boundary
def block_until_ready(x: object) -> Any:
    """Wait for the computations that make the arrays in ``x``.

    Args:
        x: a tree; leaves that are no arrays are left alone.

    Returns:
        ``x``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> print(tb.block_until_ready(tnp.ones(2) + 1))
    [2. 2.]
    """
    buffers: list[Any] = []
    for leaf in leaves(x):
        if type(leaf) is Array:
            leaf._check_alive()
            buffers.append(leaf._buf)
        elif not isinstance(leaf, Tracer) and hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    if buffers:
        batched_block_until_ready(buffers)
    return x


@api_boundary
def copy_to_host_async(x: object) -> Any:
    """Start copying the arrays in ``x`` to the host, so that a later read finds them there.

    Args:
        x: a tree; leaves that are no arrays are left alone.

    Returns:
        ``x``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> print(tb.copy_to_host_async(tnp.ones(2)))
    [1. 1.]
    """
    for leaf in leaves(x):
        if not isinstance(leaf, Tracer) and hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return x


@api_boundary
def device_get(x: object) -> Any:
    """Fetch the arrays in ``x`` to the host.

    Args:
        x: a tree; leaves that are no arrays, traced values, and keys, which NumPy does not have,
            are left alone.

    Returns:
        The same tree with NumPy arrays in place of arrays, and of objects with ``__array__``.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> tb.device_get({'a': tnp.arange(3)})
    {'a': array([0, 1, 2], dtype=int32)}
    """
    flat, tree = flatten(copy_to_host_async(x))
    with explicit_transfers():
        return tree.unflatten([_fetch(leaf) for leaf in flat])


def _fetch(leaf: object) -> Any:
    if type(leaf) is Array:
        return leaf if is_extended(leaf.dtype) else np.asarray(leaf)
    if isinstance(leaf, Tracer) or type(leaf) in _ON_HOST or not hasattr(leaf, "__array__"):
        return leaf
    return np.asarray(leaf)


@api_boundary
def live_arrays(platform: str | None = None) -> list[Array]:
    """All arrays that have not been deleted, for finding out what holds memory.

    Scalars that the engine keeps for itself are not among them.

    Args:
        platform: only those on this platform ("cpu", "gpu", ...); None means all.

    Raises:
        BackendNotFoundError: there is no such platform.

    >>> import tracebridge as tb
    >>> import tracebridge.numpy as tnp
    >>> x = tnp.ones(3)
    >>> any(x is y for y in tb.live_arrays())
    True
    """
    if platform is not None:
        get_backend(platform)
    living = living_arrays()
    if platform is None:
        return living
    names = {platform, "cuda", "rocm"} if platform == "gpu" else {platform}
    return [x for x in living if any(d.platform in names for d in x.devices())]
