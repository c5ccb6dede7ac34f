"""The connection of this process to the others that run the same program."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from typing import Any, final

from tracebridge.core._jaxlib import distributed

# The service may serve all addresses of the machine.
_ANYWHERE = "[::]"


@final
class Connection:
    """What a process knows of the others: how many, which it is, and a client to talk through.

    Process 0 runs the service that all talk to.
    """

    __slots__ = (
        "address",
        "client",
        "count",
        "index",
        "local_device_ids",
        "pid",
        "preemption",
        "service",
    )

    def __init__(
        self,
        address: str,
        count: int,
        index: int,
        local_device_ids: tuple[int, ...] | None,
        client: Any,
        service: Any,
    ) -> None:
        self.address = address
        self.count = count
        self.index = index
        self.local_device_ids = local_device_ids
        self.client = client
        self.service = service
        self.pid = os.getpid()
        self.preemption: Any = None

    def collectives(self) -> Any:
        """How CPUs of different processes exchange data."""
        return distributed.make_gloo_collectives(self.client, hostname=own_address(self.address))

    def reached_sync_point(self, step: int) -> bool:
        """Whether all have agreed on this step, after one of them was told that it will end.

        The first call begins to listen for that: until then the signal ends the process as usual.
        """
        if self.preemption is None:
            self.preemption = distributed.make_preemption_watch(self.client)
        return bool(self.preemption.reached_sync_point(step))


_CURRENT: list[Connection] = []


def connection() -> Connection | None:
    """The connection of this process, None where it runs alone."""
    return _CURRENT[0] if _CURRENT else None


def connect(
    address: str,
    count: int,
    index: int,
    local_device_ids: tuple[int, ...] | None,
    *,
    bind_address: str | None,
    initialization_timeout: int,
    heartbeat_timeout: int,
    shutdown_timeout: int,
) -> Connection:
    """Meet the other processes; returns when all are there. Times are in seconds.

    Raises:
        RuntimeError: they did not come in time, or process 0 cannot be reached; XlaRuntimeError
            where XLA says more.
        OSError: the host of the address is not known.
    """
    _sockets().getaddrinfo(address.rpartition(":")[0].strip("[]"), None)
    service = None
    if index == 0:
        service = distributed.make_service(
            bind_address or f"{_ANYWHERE}:{address.rpartition(':')[2]}",
            count,
            heartbeat_timeout=heartbeat_timeout,
            shutdown_timeout=shutdown_timeout,
        )
    client = distributed.make_client(
        address,
        index,
        init_timeout=initialization_timeout,
        shutdown_timeout=shutdown_timeout,
        heartbeat_timeout=heartbeat_timeout,
        on_failure=_lost,
    )
    try:
        client.connect()
    except RuntimeError:
        if service is not None:
            service.shutdown()
        raise
    made = Connection(address, count, index, local_device_ids, client, service)
    _CURRENT[:] = [made]
    atexit.register(_leave)
    return made


def _lost(status: object) -> None:
    """Another process has failed; nothing that needs all of them would ever end."""
    if _CURRENT:
        print(f"tracebridge: another process of this program is lost: {status}", file=sys.stderr)  # noqa: T201 - the last words
        os._exit(1)


def disconnect() -> None:
    """Leave the others, when all have come so far; does nothing where the process runs alone."""
    atexit.unregister(_leave)
    if not _CURRENT:
        return
    ended = _CURRENT.pop()
    if ended.pid != os.getpid():
        return  # a forked child has the variables of its parent, not its threads
    if ended.preemption is not None:
        ended.preemption.shutdown()  # it talks through the client
    ended.client.shutdown()
    if ended.service is not None:
        ended.service.shutdown()


def _leave() -> None:
    """At the end of the interpreter: wait for the others, unless this process has failed.

    The others may be inside of a program that needs it: they learn from its closed connections.
    """
    if getattr(sys, "last_value", None) is None:
        disconnect()


def _sockets() -> Any:
    """The module, which programs of one process do not need."""
    return importlib.import_module("socket")


def own_address(coordinator: str) -> str:
    """The address under which this machine reaches the coordinator, and can be reached itself."""
    host, _, port = coordinator.rpartition(":")
    host = host.strip("[]")
    socket = _sockets()
    family, _, _, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)  # chooses a route, sends nothing
        return str(probe.getsockname()[0])
