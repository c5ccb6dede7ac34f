"""What processes of one program do together: gather, broadcast, wait, make global arrays.

With one process each has a plain meaning. With several, all have to make the same calls in the
same order, with data of the same structure, shapes and dtypes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tracebridge._api.devices.devices import process_count, process_index
from tracebridge._api.devices.transfer import device_put
from tracebridge._api.programs.jit import jit
from tracebridge.core import lax
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import ProcessesError
from tracebridge.core.errors.transform_errors import AxisSpecError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.shards import shard_buffers
from tracebridge.core.runtime.arrays.transfer import assemble, move
from tracebridge.core.runtime.processes.connection import connection
from tracebridge.core.runtime.processes.messages import (
    differing,
    fingerprint_of,
    gather_bytes,
    kinds_of,
    rows_of_processes,
)
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.tree.prefix import flatten_axes
from tracebridge.core.tree.tree import flatten

Host = np.ndarray[Any, Any]


def _hosts(tree: object) -> tuple[list[Host], Any]:
    leaves, structure = flatten(tree)
    return [np.asarray(leaf) for leaf in leaves], structure


def _check_kinds(call: str, hosts: Sequence[Host], structure: object) -> None:
    others = differing(kinds_of(hosts, structure))
    if others:
        msg = f"{call}: processes {others} give arrays of other shapes, dtypes or structure than 0"
        raise ProcessesError(msg, expected="the same in all processes")


def _packed(hosts: Sequence[Host]) -> bytes:
    return b"".join([host.tobytes() for host in hosts])


def _unpacked(data: bytes, hosts: Sequence[Host]) -> list[Host]:
    """Arrays of the kinds of ``hosts`` from their elements."""
    made: list[Host] = []
    start = 0
    for host in hosts:
        part = data[start : start + host.nbytes]
        made.append(np.frombuffer(part, host.dtype).reshape(host.shape).copy())
        start += host.nbytes
    return made


@api_boundary
def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """The data of all processes, for each of them.

    Args:
        in_tree: tree of arrays and numbers. Arrays over devices of several processes take
            ``tiled=True`` and are whole in the result.
        tiled: concatenate along the first axis instead of stacking along a new one; the numbers of
            several processes are stacked.

    Returns:
        A tree of NumPy arrays.

    Raises:
        ProcessesError: the data has another structure, shapes or dtypes in other processes.
        ArgumentValueError: an array is over devices of several processes, and ``tiled`` is False.

    >>> from tracebridge.experimental.multihost_utils import process_allgather
    >>> process_allgather([1, 2])
    [array([1]), array([2])]
    """
    call = "process_allgather"
    leaves, structure = flatten(in_tree)
    spread = [i for i, leaf in enumerate(leaves) if _is_spread(leaf)]
    if spread and not tiled:
        msg = f"{call}: {leaves[spread[0]].aval.str_short()} is over devices of several processes"
        raise ArgumentValueError(msg, hint="tiled=True gives the whole array")
    whole = {i: np.asarray(_replicated(leaves[i])) for i in spread}
    hosts = [np.asarray(x) for i, x in enumerate(leaves) if i not in whole]
    gathered = iter(_gathered(call, hosts, structure, tiled))
    return structure.unflatten(
        [whole[i] if i in whole else next(gathered) for i in range(len(leaves))]
    )


def _is_spread(leaf: object) -> bool:
    return type(leaf) is Array and not leaf.is_fully_addressable


def _replicated(array: Array) -> Array:
    """The array on each of its devices."""
    everywhere = NamedSharding(cast("NamedSharding", array.sharding).mesh, PartitionSpec())
    return move(array, everywhere, committed=True)


def _gathered(call: str, hosts: Sequence[Host], structure: object, tiled: bool) -> list[Host]:
    if process_count() == 1:
        return [host if tiled else host[None] for host in hosts]
    _check_kinds(call, hosts, structure)
    rows = [_unpacked(data, hosts) for data in gather_bytes(_packed(hosts))]
    join = {True: np.concatenate, False: np.stack}
    return [join[tiled and column[0].ndim > 0](column) for column in zip(*rows, strict=True)]


@api_boundary
def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The data of one process, for all of them.

    Args:
        in_tree: tree of arrays and numbers, of one structure in all processes; the elements matter
            in one of them only.
        is_source: whether this process has the data; by default process 0 has it.

    Returns:
        A tree of NumPy arrays.

    Raises:
        ProcessesError: the data has another structure, shapes or dtypes in other processes, or not
            exactly one of them is the source.

    >>> from tracebridge.experimental.multihost_utils import broadcast_one_to_all
    >>> broadcast_one_to_all({"seed": 3})
    {'seed': array(3)}
    """
    call = "broadcast_one_to_all"
    hosts, structure = _hosts(in_tree)
    if process_count() == 1:
        return structure.unflatten(hosts)
    source = process_index() == 0 if is_source is None else bool(is_source)
    _check_kinds(call, hosts, structure)
    sources = [i for i, flag in enumerate(gather_bytes(bytes([source]))) if flag != b"\0"]
    if len(sources) != 1:
        msg = f"{call}: is_source is true in the processes {sources}"
        raise ProcessesError(msg, expected="true in one of them")
    data = np.frombuffer(_packed(hosts), np.uint8)
    rows = rows_of_processes(data if source else np.zeros_like(data))
    everywhere = NamedSharding(rows.sharding.mesh, PartitionSpec())
    # The others give zeros.
    total = jit(lambda x: lax.reduce_sum(x, axes=(0,)), out_shardings=everywhere)(rows)
    return structure.unflatten(_unpacked(np.asarray(total).tobytes(), hosts))


@api_boundary
def sync_global_devices(name: str) -> None:
    """Wait until all processes have come to the same point of the program.

    Args:
        name: what the point is called, the same in all processes.

    Raises:
        ProcessesError: another process is at a point of another name.

    >>> from tracebridge.experimental.multihost_utils import sync_global_devices
    >>> sync_global_devices("checkpoint written")
    """
    if process_count() == 1:
        return
    others = differing(kinds_of([], f"{name} {zlib.crc32(name.encode())}"))
    if others:
        msg = f"sync_global_devices: {name!r} in this process; {others} differ from process 0"
        raise ProcessesError(msg, expected="the same name in all processes")


@api_boundary
def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes shall save their state at this step, as one of them will be ended.

    A process that is about to be ended gets SIGTERM. All then agree on a step that none of them
    has begun, and this is True in each of them for that step, and for no other. Call it in all
    processes, at every step; the first call begins to listen, and from then on the signal no longer
    ends the process.

    Args:
        step_id: number of the step, which grows from call to call.

    Returns:
        Whether to save now; always False where there is one process.

    >>> from tracebridge.experimental.multihost_utils import reached_preemption_sync_point
    >>> [step for step in range(3) if reached_preemption_sync_point(step)]
    []
    """
    others = connection()
    return others is not None and others.reached_sync_point(step_id)


@api_boundary
def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Raise unless all processes have the same data.

    Args:
        in_tree: tree of arrays and numbers.
        fail_message: what the error says.

    Raises:
        ProcessesError: some process has other elements, shapes, dtypes or another structure. It is
            an AssertionError, and raised in all processes.

    >>> from tracebridge.experimental.multihost_utils import assert_equal
    >>> assert_equal({"steps": 10}, "processes disagree")
    """
    hosts, structure = _hosts(in_tree)
    if process_count() == 1:
        return
    others = differing(fingerprint_of(hosts, structure))
    if others:
        msg = fail_message or "assert_equal"
        raise ProcessesError(
            f"{msg}: processes {others} have other data than process 0; this one, "
            f"{process_index()}, has {in_tree}"
        )


def _specs(call: str, inputs: Any, pspecs: object) -> tuple[list[Any], list[Any], Any]:
    leaves, structure = flatten(inputs)
    specs = flatten_axes(call, structure, pspecs, axes_name="pspecs", full_name="the arrays")
    for spec in specs:
        if not isinstance(spec, PartitionSpec):
            raise AxisSpecError(
                f"{call}: pspecs contains {spec!r}",
                expected="PartitionSpec; without entries for arrays that all devices hold",
            )
    return leaves, specs, structure


def _scaled(shape: Sequence[int], there: NamedSharding, here: NamedSharding) -> tuple[int, ...]:
    """The shape at ``there`` of an array of which ``here`` has as large parts."""
    parts = zip(shape, there.parts_of(len(shape)), here.parts_of(len(shape)), strict=True)
    return tuple([size // mine * all_parts for size, all_parts, mine in parts])


def _rebuilt(array: Array, place: NamedSharding) -> Array:
    """The array of the same parts on the devices of this process, over other devices."""
    sharding = cast("NamedSharding", array.sharding)
    aval = array.aval.update(shape=_scaled(array.shape, place, sharding))
    return assemble(shard_buffers(array._buf, array.aval, sharding), aval, place)


@api_boundary
def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: object) -> Any:
    """Arrays over all devices of a mesh, of the parts that the processes have.

    Args:
        local_inputs: tree of arrays: what the devices of this process hold, together. With one
            process it is all. Arrays that are over devices of several processes stay as they are.
        global_mesh: the devices; those of each process are a grid in it.
        pspecs: how arrays are split: a ``PartitionSpec``, or a tree prefix of them. Arrays that
            are not split over devices of other processes have to be the same there.

    Raises:
        AxisSpecError: ``pspecs`` contains something else.
        ShapeMismatchError: an array cannot be split evenly.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.multihost_utils import host_local_array_to_global_array
    >>> mesh = tb.make_mesh((1,), ("x",))
    >>> host_local_array_to_global_array(tb.numpy.ones(4), mesh, tb.P("x")).sharding.spec
    P('x',)
    """
    call = "host_local_array_to_global_array"
    leaves, specs, structure = _specs(call, local_inputs, pspecs)
    mine = global_mesh.local_mesh
    made: list[Any] = []
    for leaf, spec in zip(leaves, specs, strict=True):
        if type(leaf) is Array and not leaf.is_fully_addressable:
            made.append(leaf)
            continue
        local = device_put(leaf, NamedSharding(mine, spec))
        alone = mine is global_mesh
        made.append(local if alone else _rebuilt(local, NamedSharding(global_mesh, spec)))
    return structure.unflatten(made)


@api_boundary
def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: object) -> Any:
    """The parts of arrays over all devices that this process has, over its devices.

    Args:
        global_inputs: tree of arrays. With one process it has all of them. Arrays over devices of
            this process alone stay as they are.
        global_mesh: the devices; those of each process are a grid in it.
        pspecs: how arrays are split: a ``PartitionSpec``, or a tree prefix of them.

    Raises:
        AxisSpecError: ``pspecs`` contains something else.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.multihost_utils import global_array_to_host_local_array
    >>> mesh = tb.make_mesh((1,), ("x",))
    >>> print(global_array_to_host_local_array(tb.numpy.ones(2), mesh, tb.P("x")))
    [1. 1.]
    """
    call = "global_array_to_host_local_array"
    leaves, specs, structure = _specs(call, global_inputs, pspecs)
    mine = global_mesh.local_mesh
    made: list[Any] = []
    for leaf, spec in zip(leaves, specs, strict=True):
        if mine is not global_mesh and type(leaf) is Array and leaf.is_fully_addressable:
            made.append(leaf)
            continue
        whole = device_put(leaf, NamedSharding(global_mesh, spec))
        made.append(whole if mine is global_mesh else _rebuilt(whole, NamedSharding(mine, spec)))
    return structure.unflatten(made)
