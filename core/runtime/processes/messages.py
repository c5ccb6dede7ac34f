"""What processes tell each other: bytes of the host, through the devices of all.

All processes have to make the same calls in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracebridge.core.errors.runtime_errors import ProcessesError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.runtime.arrays.transfer import move, put_parts
from tracebridge.core.runtime.backends.clients import get_backend
from tracebridge.core.sharding.mesh import Mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec

Host = np.ndarray[Any, Any]
_AXIS = "processes"


def mesh_of_processes() -> Mesh:
    """One device of each process, in the order of the processes."""
    first: dict[int, Any] = {}
    for device in get_backend().devices:
        first.setdefault(device.process_index, device)
    grid = np.empty(len(first), dtype=object)
    grid[:] = [first[index] for index in sorted(first)]
    return Mesh(grid, (_AXIS,))


def rows_of_processes(row: Host) -> Any:
    """An Array whose row ``i`` is what process ``i`` gives; all give one shape and dtype."""
    mesh = mesh_of_processes()
    aval = ShapedArray((mesh.size, *row.shape), row.dtype)
    return put_parts(lambda _: row[None], aval, NamedSharding(mesh, PartitionSpec(_AXIS)))


def gather_bytes(data: bytes) -> list[bytes]:
    """What each process gives: as many bytes from each."""
    if not data:
        return [b""] * mesh_of_processes().size
    rows = rows_of_processes(np.frombuffer(data, np.uint8))
    everywhere = NamedSharding(rows.sharding.mesh, PartitionSpec())
    return [row.tobytes() for row in move(rows, everywhere, committed=True)._to_numpy()]


def differing(fingerprint: bytes) -> list[int]:
    """The processes whose fingerprint of 32 bytes is not that of process 0."""
    every = gather_bytes(fingerprint)
    return [i for i, other in enumerate(every) if other != every[0]]


def fingerprint_of(hosts: Sequence[Host], structure: object = "") -> bytes:
    """What says whether arrays are the same in all processes: shapes, dtypes, and elements."""
    digest = hashlib.sha256(kinds_of(hosts, structure))
    for host in hosts:
        digest.update(np.ascontiguousarray(host).view(np.uint8).data if host.size else b"")
    return digest.digest()


def kinds_of(hosts: Sequence[Host], structure: object = "") -> bytes:
    """Shapes, dtypes and structure of arrays, in 32 bytes."""
    kinds = [(host.shape, host.dtype.name) for host in hosts]
    return hashlib.sha256(repr((kinds, str(structure))).encode()).digest()


def check_same(call: str, host: Host) -> None:
    """Raise unless all processes have the same array.

    Raises:
        ProcessesError: names those that have another one.
    """
    others = differing(fingerprint_of([host]))
    if others:
        msg = f"{call}: processes {others} have another array than process 0, which has "
        raise ProcessesError(
            f"{msg}one of shape {host.shape} and dtype {host.dtype}",
            hint="give the same in all processes, or make the array of the parts that each has: "
            "make_array_from_process_local_data",
        )
