"""Several processes: the coordination service, its client, and collectives between CPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib import _jax, utils

DistributedRuntimeClient = _jax.DistributedRuntimeClient
DistributedRuntimeService = _jax.DistributedRuntimeService

__all__ = [
    "DistributedRuntimeClient",
    "DistributedRuntimeService",
    "make_client",
    "make_gloo_collectives",
    "make_preemption_watch",
    "make_service",
]


def make_service(
    address: str, num_nodes: int, *, heartbeat_timeout: int = 100, shutdown_timeout: int = 300
) -> Any:
    """Start the coordination service in this process; times are in seconds."""
    _hide_information()
    return _jax.get_distributed_runtime_service(
        address,
        num_nodes,
        heartbeat_timeout=heartbeat_timeout,
        shutdown_timeout=shutdown_timeout,
    )


def make_client(
    address: str,
    node_id: int,
    *,
    init_timeout: int = 300,
    shutdown_timeout: int = 300,
    heartbeat_timeout: int = 100,
    on_failure: Callable[[object], None] | None = None,
) -> Any:
    """Return a client of the coordination service; call its `connect()`.

    `on_failure(status)` is called when another process has failed or the service is lost; without
    it C++ ends the process. Up to jaxlib 0.10.2 the status has no form in Python, which is
    `RuntimeError: std::bad_cast` while `connect()` runs, and ends the process later.
    """
    _hide_information()
    return _jax.get_distributed_runtime_client(
        address,
        node_id,
        init_timeout=init_timeout,
        shutdown_timeout=shutdown_timeout,
        heartbeat_timeout=heartbeat_timeout,
        missed_heartbeat_callback=on_failure,
        shutdown_on_destruction=False,  # it would wait for the others
        use_compression=True,
    )


def make_gloo_collectives(
    client: Any, hostname: str | None = None, interface: str | None = None
) -> Any:
    """Return collectives over TCP for a CPU client that takes part in a distributed run."""
    return _jax.make_gloo_tcp_collectives(
        distributed_client=client, hostname=hostname, interface=interface
    )


def make_preemption_watch(client: Any) -> Any:
    """Return what tells the processes of a run of a SIGTERM that one of them gets.

    It takes the signal over, which then no longer ends the process. `reached_sync_point(step)` of
    it is True for one step, which is the same in all processes; call its `shutdown()` before that
    of the client.
    """
    watch = _jax.create_preemption_sync_manager()
    watch.initialize(client)
    return watch


def _hide_information() -> None:
    """Let the service write warnings and errors to stderr, but no news."""
    utils.absl_set_min_log_level(1)
