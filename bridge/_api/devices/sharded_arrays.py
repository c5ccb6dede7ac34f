"""Arrays over several devices: made of parts, of callbacks, of copies; meshes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracebridge._api.args.values import value_of
from tracebridge.core.dtypes.canonicalize import canonicalize
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import DevicePlacementError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.tracer_errors import ConcretizationTypeError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, AxisSpecError
from tracebridge.core.ir.aval import ShapedArray, batched_aval
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.transfer import assemble, move, put_parts
from tracebridge.core.runtime.backends.clients import get_backend
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.sharding.axis_types import AxisType
from tracebridge.core.sharding.layout import Format, Layout, sharding_of_format
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.sharding.single_device import SingleDeviceSharding
from tracebridge.core.tree.prefix import flatten_up_to
from tracebridge.core.tree.tree import flatten


@api_boundary
def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[object],
    axis_types: tuple[AxisType, ...] | None = None,
    *,
    devices: Sequence[object] | None = None,
) -> Mesh:
    """A mesh of the first devices.

    Args:
        axis_shapes: the size of each axis.
        axis_names: the name of each axis.
        axis_types: an ``AxisType`` for each axis; ``Explicit`` by default, as types tell how
            arrays are split then. (``Mesh`` itself takes ``Auto`` by default.)
        devices: the devices to take them from; by default those of the default platform.

    Raises:
        DevicePlacementError: there are too few devices.
        AxisSpecError: sizes and names do not fit.

    >>> import tracebridge as tb
    >>> tb.make_mesh((1, 1), ("x", "y"))
    Mesh(axis_sizes=(1, 1), axis_names=('x', 'y'), axis_types=(Explicit, Explicit))
    """
    if not all([hasattr(n, "__index__") for n in axis_shapes]):
        msg = f"make_mesh: axis_shapes={axis_shapes!r}"
        raise AxisSpecError(msg, expected="axis_shapes should be a sequence of ints")
    sizes = tuple([int(n) for n in axis_shapes])
    names = tuple(axis_names)
    if len(sizes) != len(names) or any([n < 1 for n in sizes]):
        msg = f"make_mesh: axis_shapes={sizes}, axis_names={names}"
        raise AxisSpecError(msg, expected="a positive size for each name")
    available = list(get_backend().devices if devices is None else devices)
    n = math.prod(sizes)
    if n > len(available):
        msg = f"make_mesh: axis_shapes={sizes} needs {n} devices, but there are {len(available)}"
        raise DevicePlacementError(
            msg, hint=f"on CPU set TRACEBRIDGE_NUM_CPU_DEVICES={n} before the first use"
        )
    grid = np.empty(n, dtype=object)
    grid[:] = available[:n]
    if axis_types is None:
        axis_types = (AxisType.Explicit,) * len(names)
    return Mesh(grid.reshape(sizes), names, axis_types)


def _stacked(devices: Sequence[object]) -> NamedSharding:
    """A leading axis with one element for each device."""
    grid = np.empty(len(devices), dtype=object)
    grid[:] = list(devices)
    return NamedSharding(Mesh(grid, ("devices",)), PartitionSpec("devices"))


@api_boundary
def device_put_sharded(shards: Any, devices: Sequence[object]) -> Any:
    """Put one tree of arrays on each device, as the elements of a leading axis.

    Args:
        shards: trees of one structure; their arrays agree in shape and dtype.
        devices: as many devices.

    Returns:
        A tree of arrays with a leading axis, spread over the devices.

    Raises:
        ArgumentSpecError: ``shards`` is no sequence, or not as long as ``devices``.
        ShapeMismatchError: shards differ in structure, shape or dtype.

    >>> import tracebridge as tb
    >>> devices = tb.local_devices()
    >>> x = tb.device_put_sharded([float(i) for i in range(len(devices))], devices)
    >>> x.shape == (len(devices),)
    True
    """
    if not isinstance(shards, Sequence):
        msg = f"device_put_sharded: shards is {shards!r} of type {type(shards).__name__}"
        raise ArgumentSpecError(msg, expected="a sequence of trees, one for each device")
    if len(shards) != len(devices) or not devices:
        msg = f"device_put_sharded: got {len(shards)} shards for {len(devices)} devices"
        raise ArgumentSpecError(msg, expected="one shard for each device, and at least one")
    rows, trees = zip(*[flatten(s) for s in shards], strict=True)
    for i, tree in enumerate(trees):
        if tree != trees[0]:
            msg = f"device_put_sharded: shard {i} has the structure {tree}, shard 0 {trees[0]}"
            raise ShapeMismatchError(msg, expected="shards of one structure")
    sharding = _stacked(devices)
    call = "device_put_sharded"
    columns = [
        [_concrete(call, leaf, trees[0], k, f"shards[{i}]") for i, leaf in enumerate(leaves)]
        for k, leaves in enumerate(zip(*rows, strict=True))
    ]
    return trees[0].unflatten([_stack(column, devices, sharding) for column in columns])


def _concrete(call: str, leaf: Any, tree: Any, index: int, name: str) -> Array:
    """A leaf as an Array; traced values have no device."""
    value = value_of(call, leaf, tree, index, name)
    if isinstance(value, Tracer):
        raise ConcretizationTypeError(
            value, f"{call} moves arrays to devices at once.", hint="call it outside jit and grad"
        )
    return to_array(value)


def _stack(parts: Sequence[Array], devices: Sequence[object], sharding: NamedSharding) -> Array:
    """Arrays as the elements of a leading axis."""
    aval = parts[0].aval
    for i, part in enumerate(parts):
        if part.aval.shape != aval.shape or part.aval.dtype != aval.dtype:
            msg = (
                f"device_put_sharded: shard {i} is {part.aval.str_short()}, shard 0 "
                f"{aval.str_short()}"
            )
            raise ShapeMismatchError(msg, expected="shards of one shape and dtype")
    whole = batched_aval(aval, len(parts))
    rows: list[Any] = []
    for part, device in zip(parts, devices, strict=True):
        # An element of the leading axis is a part with that axis.
        row = move(part, SingleDeviceSharding(device), committed=True)
        rows.append(row[None]._buf)
    return assemble(rows, whole, sharding)


@api_boundary
def device_put_replicated(x: object, devices: Any) -> Any:
    """Put a copy of a tree of arrays on each device, as the elements of a leading axis.

    Args:
        x: tree of arrays and numbers.
        devices: at least one device.

    Raises:
        ArgumentSpecError: ``devices`` is no sequence, or empty.

    >>> import tracebridge as tb
    >>> devices = tb.local_devices()
    >>> x = tb.device_put_replicated({'w': tb.numpy.ones(3)}, devices)
    >>> x['w'].shape == (len(devices), 3)
    True
    """
    are_devices = isinstance(devices, Sequence) and all([hasattr(d, "client") for d in devices])
    if not are_devices or not devices:
        msg = f"device_put_replicated: devices is {devices!r} of type {type(devices).__name__}"
        raise ArgumentSpecError(msg, expected="a sequence of at least one device")
    sharding = _stacked(devices)
    flat, tree = flatten(x)
    arrays = [_concrete("device_put_replicated", leaf, tree, i, "x") for i, leaf in enumerate(flat)]
    return tree.unflatten([_stack([a] * len(devices), devices, sharding) for a in arrays])


@api_boundary
def make_array_from_callback(
    shape: Sequence[int],
    sharding: Sharding | Format,
    data_callback: Callable[[Any], Any],
    dtype: Any = None,
) -> Array:
    """An array whose parts a function gives.

    Args:
        shape: the shape of the whole array.
        sharding: how it is spread over devices; a ``Format`` too.
        data_callback: ``data_callback(index)`` gives the part at a tuple of slices of the whole
            array. Each different part that this process holds is asked for once.
        dtype: the dtype; needed only if this process holds no part.

    Raises:
        ShapeMismatchError: a part has another shape or dtype than expected.

    >>> import tracebridge as tb
    >>> import numpy as np
    >>> whole = np.arange(6.0).reshape(2, 3)
    >>> here = tb.sharding.SingleDeviceSharding(tb.devices("cpu")[0])
    >>> tb.make_array_from_callback((2, 3), here, lambda index: whole[index]).shape
    (2, 3)
    """
    sharding = _checked_sharding("make_array_from_callback", sharding)
    whole = tuple([int(n) for n in shape])
    part_shape = sharding.shard_shape(whole)
    known: dict[str, Any] = {}

    def part(index: Any) -> Any:
        key = str(index)
        piece = known.pop(key, None)
        if piece is None:
            data = data_callback(index)
            if is_extended(getattr(data, "dtype", None)):
                return data
            data = np.asarray(data)
            kind = canonicalize(data.dtype if dtype is None else np.dtype(dtype))
            piece = data.astype(kind, copy=False)
        if piece.shape != part_shape:
            msg = f"make_array_from_callback: data_callback({index}) has shape {piece.shape}"
            raise ShapeMismatchError(msg, expected=f"the shape {part_shape} of one part")
        return piece

    indices = list(sharding.addressable_devices_indices_map(whole).values())
    kind = canonicalize(np.dtype(dtype)) if dtype is not None else None
    if kind is None:
        known[str(indices[0])] = first = part(indices[0])
        kind = first.dtype
    if is_extended(kind):
        return _of_keys(part, whole, sharding)
    return put_parts(_of_dtype(part, kind), ShapedArray(whole, kind, False), sharding)


def _of_keys(part: Callable[[Any], Any], whole: tuple[int, ...], sharding: Sharding) -> Array:
    """An array of an extended dtype, which NumPy does not have, from its parts."""
    found: dict[str, Any] = {}
    parts: list[Array] = []
    for device, index in sharding.addressable_devices_indices_map(whole).items():
        piece = found.get(str(index))
        if piece is None:
            piece = found[str(index)] = part(index)
        parts.append(move(to_array(piece), SingleDeviceSharding(device), committed=True))
    return make_array_from_single_device_arrays(whole, sharding, parts)


def _of_dtype(part: Callable[[Any], Any], dtype: Any) -> Callable[[Any], Any]:
    def checked(index: Any) -> Any:
        found = part(index)
        if found.dtype != dtype:
            msg = f"make_array_from_callback: data_callback({index}) has dtype {found.dtype}"
            raise ShapeMismatchError(msg, expected=f"{dtype}, as the first part has")
        return found

    return checked


@api_boundary
def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding | Format, arrays: Sequence[Array], *, dtype: Any = None
) -> Array:
    """One array over the arrays that its devices hold, without copies.

    Args:
        shape: the shape of the whole array.
        sharding: how it is spread over devices; a ``Format`` too.
        arrays: the parts, each on its device, in any order.
        dtype: the dtype; needed only if this process holds no part.

    Raises:
        DevicePlacementError: there is not exactly one part on each device.
        ShapeMismatchError: a part has another shape or dtype than expected.
        DeletedArrayError: a part was deleted.

    >>> import tracebridge as tb
    >>> x = tb.device_put(tb.numpy.arange(3), tb.devices("cpu")[0])
    >>> tb.make_array_from_single_device_arrays((3,), x.sharding, [x]).tolist()
    [0, 1, 2]
    """
    call = "make_array_from_single_device_arrays"
    sharding = _checked_sharding(call, sharding)
    whole = tuple([int(n) for n in shape])
    part = sharding.shard_shape(whole)
    by_device: dict[Any, Array] = {}
    for i, array in enumerate(arrays):
        if type(array) is not Array or type(array.sharding) is not SingleDeviceSharding:
            msg = f"{call}: arrays[{i}] is {array!r}"
            raise DevicePlacementError(msg, expected="arrays on one device each")
        array._check_alive()
        if array.shape != part or array.dtype != arrays[0].dtype:
            msg = f"{call}: arrays[{i}] is {array.aval.str_short()}"
            expected = f"the shape {part} of one part and the dtype {arrays[0].dtype}"
            raise ShapeMismatchError(msg, expected=expected)
        by_device[array.device] = array
    mine = [d for d in sharding.device_tuple if d in sharding.addressable_devices]
    if set(by_device) != set(mine) or len(arrays) != len(mine):
        msg = f"{call}: the parts are on {[a.device for a in arrays]}"
        raise DevicePlacementError(msg, expected=f"one part on each of {mine}")
    kind = arrays[0].dtype if arrays else np.dtype(dtype)
    if dtype is not None and canonicalize(np.dtype(dtype)) != kind:
        msg = f"{call}: dtype is {np.dtype(dtype)}, and the parts have {kind}"
        raise ShapeMismatchError(msg, hint="leave dtype out, or convert the parts")
    weak = all([a.aval.weak_type for a in arrays])
    aval = ShapedArray(whole, kind, weak)
    return assemble([by_device[d]._buf for d in mine], aval, sharding)


@api_boundary
def make_array_from_process_local_data(
    sharding: Sharding | Format, local_data: Any, global_shape: Any = None
) -> Any:
    """An array from the part of its elements that this process has.

    Args:
        sharding: how the whole array is spread over devices; a ``Format`` too.
        local_data: tree of ndarrays: the elements that the devices of this process hold, or along
            some axes all elements.
        global_shape: the shape of the whole array, or a tree of shapes. Where it, or an entry, is
            None, the other processes have as much for each of their parts as this one; with one
            process it is the shape of the data.

    Raises:
        ShapeMismatchError: the data is not what this process holds of the whole array.
        DevicePlacementError: ``sharding`` is none.

    >>> import tracebridge as tb
    >>> import numpy as np
    >>> here = tb.sharding.SingleDeviceSharding(tb.devices("cpu")[0])
    >>> tb.make_array_from_process_local_data(here, np.ones((2, 2))).shape
    (2, 2)
    """
    call = "make_array_from_process_local_data"
    sharding = _checked_sharding(call, sharding)
    flat, tree = flatten(local_data)
    shapes: list[Any] = [None] * len(flat)
    if global_shape is not None:
        if all([n is None or isinstance(n, int) for n in global_shape]):
            shapes = [tuple(global_shape)] * len(flat)
        else:
            shapes = flatten_up_to(call, tree, local_data, global_shape)
    return tree.unflatten(
        [
            _of_local_data(call, sharding, np.asarray(leaf), shape)
            for leaf, shape in zip(flat, shapes, strict=True)
        ]
    )


def _of_local_data(call: str, sharding: Sharding, host: Any, wanted: Any) -> Array:
    """The array of which this process has ``host``; None in ``wanted`` is to be found out."""
    sizes = [None] * host.ndim if wanted is None else list(wanted)
    if len(sizes) != host.ndim:
        msg = f"{call}: local_data has shape {host.shape}, but global_shape={tuple(sizes)}"
        raise ShapeMismatchError(msg, expected="as many axes")
    mine = sharding.addressable_devices
    places = zip(sharding.device_tuple, sharding.positions(host.ndim), strict=True)
    held = [place for device, place in places if device in mine]
    shape: list[int] = []
    starts: list[int] = []
    for axis, parts in enumerate(sharding.parts_of(host.ndim)):
        rows = sorted({place[axis] for place in held})
        local, given = host.shape[axis], sizes[axis]
        size = local // len(rows) * parts if given is None else int(given)
        part = size // parts
        # Data that is whole along an axis has what other processes need, too.
        is_whole = local == size and len(rows) < parts
        if not is_whole and (local != part * len(rows) or rows[-1] - rows[0] + 1 != len(rows)):
            msg = f"{call}: local_data has shape {host.shape}, but global_shape={tuple(sizes)}; "
            raise ShapeMismatchError(
                f"{msg}of axis {axis} this process holds the parts {rows} of {parts}",
                expected=f"{part * len(rows)} elements along it, parts without gaps, or all",
            )
        shape.append(size)
        starts.append(0 if is_whole else part * rows[0])
    kind = canonicalize(host.dtype)
    cast = host.astype(kind, copy=False)

    def piece(index: Sequence[slice]) -> Any:
        spans = zip(index, starts, strict=True)
        return cast[tuple([_moved(span, -start) for span, start in spans])]

    return put_parts(piece, ShapedArray(tuple(shape), kind, False), sharding)


def _moved(span: slice, by: int) -> slice:
    return span if span.start is None else slice(span.start + by, span.stop + by)


def _checked_sharding(call: str, place: object) -> Sharding:
    """The sharding, also that of a ``Format``."""
    if isinstance(place, Format) and place.layout is Layout.AUTO:
        raise ArgumentTypeError(
            call=call,
            got="a Format with Layout.AUTO",
            expected="a layout, or None for the usual one",
        )
    sharding = sharding_of_format(call, place)
    if not isinstance(sharding, Sharding):
        msg = f"{call}: sharding is {sharding!r} of type {type(sharding).__name__}"
        raise DevicePlacementError(msg, expected="a sharding, such as NamedSharding(mesh, spec)")
    return sharding
