"""Meeting the other processes of a program, and leaving them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.runtime_errors import ProcessesError
from tracebridge.core.runtime.backends.clients import started
from tracebridge.core.runtime.processes.cluster import METHODS, Members, detect, merged
from tracebridge.core.runtime.processes.connection import connect, connection, disconnect

_CALL = "distributed.initialize"


@api_boundary
def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Meet the other processes of this program; to be called in each before the first computation.

    It returns when all are there. From then on ``devices()`` gives the devices of all processes,
    the same list in each, and ``local_devices()`` those of this one.

    What is not given comes from the environment: from ``TRACEBRIDGE_COORDINATOR_ADDRESS``,
    ``TRACEBRIDGE_NUM_PROCESSES`` and ``TRACEBRIDGE_PROCESS_ID``, or from what starts processes:
    Slurm, ``mpirun`` of Open MPI, ``torchrun``, indexed Jobs of Kubernetes (which do not say how
    many processes there are).

    Args:
        coordinator_address: ``"host:port"`` of process 0, where the others find it; the port has
            to be free there.
        num_processes: how many processes there are.
        process_id: which this one is, from 0.
        local_device_ids: on GPUs, the devices of the machine that are for this process; by
            default all, unless what started it gives one to each process.
        cluster_detection_method: "environment", "slurm", "ompi", "torchrun" or "k8s" asks that
            one alone, "deactivate" none.
        initialization_timeout: seconds to wait for the others.
        heartbeat_timeout_seconds: after so many seconds without a sign of life a process counts as
            failed, and the others end.
        shutdown_timeout_seconds: seconds to wait for the others at the end.
        coordinator_bind_address: the address at which process 0 listens; by default all addresses
            of its machine.
        slice_index: for slices of TPUs that are joined; accepted, the TPU's runtime finds out.
        partition_index: likewise.

    Raises:
        ProcessesError: it was called before, devices are in use already, or the others did not
            come.
        ArgumentValueError: something is missing, or does not fit together.

    >>> import tracebridge as tb
    >>> tb.distributed.initialize("localhost:0", num_processes=2, process_id=2)
    Traceback (most recent call last):
        ...
    tracebridge.errors.ArgumentValueError: distributed.initialize: process_id=2, num_processes=2
        ...
    """
    del slice_index, partition_index
    members = _members(
        cluster_detection_method,
        Members(coordinator_address, num_processes, process_id, _ids(local_device_ids)),
    )
    assert members.address is not None
    assert members.n_processes is not None
    assert members.process_id is not None
    if connection() is not None:
        raise ProcessesError(f"{_CALL} was called before", hint="call it once in each process")
    if started():
        msg = f"{_CALL} is called after the first use of a device: {started()}"
        raise ProcessesError(msg, hint="call it at the start of the program, before any array")
    try:
        connect(
            members.address,
            members.n_processes,
            members.process_id,
            members.local_device_ids,
            bind_address=coordinator_bind_address,
            initialization_timeout=initialization_timeout,
            heartbeat_timeout=heartbeat_timeout_seconds,
            shutdown_timeout=shutdown_timeout_seconds,
        )
    except (RuntimeError, OSError) as error:
        msg = (
            f"{_CALL}: process {members.process_id} of {members.n_processes} did not meet the "
            f"others at {members.address} within {initialization_timeout} s"
        )
        reason = str(error).replace("std::bad_cast", "").partition("\n")[0]
        raise ProcessesError(
            f"{msg}: {reason}" if reason else msg,
            hint="start all processes, give each another process_id, and let the address be one "
            "of the machine of process 0, with a free port that the others can reach",
        ) from error


@api_boundary
def is_initialized() -> bool:
    """Whether this process has met others with ``initialize``.

    >>> import tracebridge as tb
    >>> tb.distributed.is_initialized()
    False
    """
    return connection() is not None


@api_boundary
def shutdown() -> None:
    """Leave the other processes, when all of them have come so far.

    The end of a process does it, too. Nothing can be computed over devices of others afterwards.

    >>> import tracebridge as tb
    >>> tb.distributed.shutdown()  # nothing to leave
    """
    disconnect()


def _ids(local_device_ids: Any) -> tuple[int, ...] | None:
    if local_device_ids is None:
        return None
    if isinstance(local_device_ids, int):
        return (local_device_ids,)
    return tuple([int(i) for i in local_device_ids])


def _members(method: str | None, given: Members) -> Members:
    """What is given, and for the rest what the environment says."""
    try:
        found = detect(method)
    except ValueError as error:
        raise ArgumentValueError(f"{_CALL}: {error}") from error
    members = merged([given, found])
    names = ("coordinator_address", "num_processes", "process_id")
    missing = [n for n, value in zip(names, members, strict=False) if value is None]
    if missing:
        msg = f"{_CALL}: {', '.join(missing)} not given, and the environment does not say"
        raise ArgumentValueError(
            msg,
            hint=f"give all three, or start the program with one of {', '.join(METHODS)}",
        )
    _check(*members[:3])
    return members


def _check(address: Any, count: Any, index: Any) -> None:
    host, colon, port = str(address).rpartition(":")
    if not (host and colon and port.isdigit() and 0 <= int(port) < 1 << 16):
        msg = f"{_CALL}: coordinator_address={address!r}"
        raise ArgumentValueError(msg, expected="host:port, such as 'localhost:12345'")
    if count < 1 or not 0 <= index < count:
        msg = f"{_CALL}: process_id={index}, num_processes={count}"
        raise ArgumentValueError(msg, expected=f"a number from 0 to {max(count, 1) - 1}")
