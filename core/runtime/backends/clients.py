"""Clients of XLA, made at first use: the CPU's and those of installed plugins."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
from typing import Any, final

import numpy as np

from tracebridge.core._jaxlib import plugins
from tracebridge.core._jaxlib.xla import collect_garbage, make_cpu_client
from tracebridge.core.config.values import (
    before_global_change,
    on_global_change,
    option,
    read_environment_again,
)
from tracebridge.core.errors.config_errors import OptionFrozenError
from tracebridge.core.errors.filtering import GENERATED_PREFIX
from tracebridge.core.errors.runtime_errors import BackendNotFoundError, ForkedProcessError
from tracebridge.core.runtime.processes.connection import connection
from tracebridge.core.sharding.single_device import SingleDeviceSharding

_LOCK = threading.RLock()
_BACKENDS: dict[str, Backend] = {}
_DEFAULT: list[Backend] = []
# Set in a child process that was forked after a client had been made: its threads are gone.
_forked = False
_ALIASES = {"gpu": ("cuda", "rocm"), "cuda": ("cuda",), "rocm": ("rocm",), "tpu": ("tpu",)}


@final
class Backend:
    """One client with its devices."""

    __slots__ = ("client", "devices", "n_processes", "placement", "platform")

    def __init__(self, platform: str, client: Any) -> None:
        self.platform = platform
        self.client = client
        self.devices: list[Any] = client.devices()
        self.n_processes = len({d.process_index for d in self.devices})
        # Where uncommitted arrays go.
        self.placement = SingleDeviceSharding(client.local_devices()[0])

    def __repr__(self) -> str:
        return f"Backend({self.platform}, {len(self.devices)} devices)"


def check_not_forked() -> None:
    """Raise in a child that was forked after XLA had started threads in the parent.

    Ends daemon threads while the interpreter ends.
    """
    if _ending[0]:
        end_thread()
    if _forked:
        msg = "this process was forked after tracebridge had started XLA, whose threads are gone"
        raise ForkedProcessError(msg, hint="start workers by spawn or forkserver")


def _after_fork() -> None:
    global _forked  # noqa: PLW0603 - the one fact about this process that a fork changes
    if _BACKENDS:
        _forked = True
        while _give_back in gc.callbacks:
            gc.callbacks.remove(_give_back)  # a thread of the parent may have been inside
        for listener in _FORK_LISTENERS:
            listener()


_FORK_LISTENERS: list[Any] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def on_fork(listener: object) -> None:
    """Call ``listener()`` in forked children that may not use XLA, to empty fast paths."""
    _FORK_LISTENERS.append(listener)


# --- the end of the interpreter --------------------------------------------------------------

_ending: list[bool] = [False]
_PATIENCE = 10.0  # seconds for calls that have begun
_QUIET = 4  # looks in a row at which nobody was inside


def end_thread() -> None:
    """End this thread, if the interpreter is ending and it is not the main one."""
    if _ending[0] and threading.current_thread() is not threading.main_thread():
        raise SystemExit


def _in_engine(frame: Any) -> bool:
    """Whether a thread whose innermost frame this is may be inside of jaxlib.

    Outer frames count: what a compiled program calls back is Python of others, and jaxlib waits.
    """
    own = f"{__name__.partition('.')[0]}."
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name.startswith(own) or frame.f_code.co_filename.startswith(GENERATED_PREFIX):
            return True
        frame = frame.f_back
    return False


def _stop_daemons() -> None:
    """Let daemon threads leave XLA, and none enter it, before the interpreter ends.

    Python ends a daemon thread where it next takes the lock of the interpreter. If that is inside
    of jaxlib, C++ ends the process with an abort. Calls that are remembered ask nothing, so what
    is remembered is dropped; the way to new entries comes by ``check_not_forked``.
    """
    here, others = threading.get_ident(), sys._current_frames()
    if len(others) == 1:
        return
    _ending[0] = True
    deadline, quiet = time.monotonic() + _PATIENCE, 0
    while time.monotonic() < deadline:
        for listener in _FORK_LISTENERS:
            listener()
        others = sys._current_frames()
        inside = any([_in_engine(f) for thread, f in others.items() if thread != here])
        del others  # frames keep what their threads hold
        # Memory of arrays is freed in C++ as well, wherever their last name goes: leave time.
        quiet = 0 if inside else quiet + 1
        if quiet > _QUIET:
            return
        time.sleep(0.01)


atexit.register(_stop_daemons)


# The largest block that glibc takes from its heap once it has seen one of this size freed; less
# its own words, and one page for rounding.
_TAUGHT_BYTES = (32 << 20) - 8192


def _keep_freed_memory() -> None:
    """Let the C library keep memory of results for the next results.

    glibc gives a free end of its heap back to the system at twice the size of the largest block
    that was mapped alone and then freed. A program whose results have 4 MB frees two of them in
    a row now and then: 8 MB go back and come again page by page, and that call takes 5 to 50
    times as long. This block moves the border to 64 MB, as an array of that size in the program
    would. Its memory is never touched; other C libraries do nothing.
    """
    np.empty(_TAUGHT_BYTES, np.uint8)


def _give_back(phase: str, info: dict[str, int]) -> None:
    """Let go of memory that Arrays had borrowed, for which jaxlib waits for the next call."""
    del info
    if phase == "stop":
        collect_garbage()


def _make_cpu() -> Backend:
    _keep_freed_memory()
    if _give_back not in gc.callbacks:
        gc.callbacks.append(_give_back)
    client = make_cpu_client(
        num_devices=read_environment_again("num_cpu_devices"),
        asynchronous=option("cpu_async_dispatch"),
        **_others_of_cpu(),
    )
    return Backend("cpu", client)


def _others_of_cpu() -> dict[str, Any]:
    """What the client of a CPU has to know of other processes."""
    others = connection()
    if others is None:
        return {}
    return {
        "distributed_client": others.client,
        "node_id": others.index,
        "num_nodes": others.count,
        "collectives": others.collectives(),
    }


def _make_plugin(platform: str) -> Backend | None:
    installed = plugins.discover_plugins()
    for name in _ALIASES.get(platform, (platform,)):
        if name in installed:
            return Backend(name, _plugin_client(name))
    return None


def _plugin_client(name: str) -> Any:
    others = connection()
    if others is None:
        return plugins.make_plugin_client(name)
    options: dict[str, Any] = {}
    if name in _ALIASES["gpu"]:
        options = {"node_id": others.index, "num_nodes": others.count}
        if others.local_device_ids is not None:
            options["visible_devices"] = list(others.local_device_ids)
    return plugins.make_plugin_client(name, options, distributed_client=others.client)


def get_backend(platform: str | None = None) -> Backend:
    """The backend of a platform ("cpu", "gpu", "cuda", "tpu"), or the default one.

    Raises:
        BackendNotFoundError: no such platform is installed or it could not be started.
        ForkedProcessError: this process was forked after the parent used XLA.
    """
    check_not_forked()
    if platform is None:
        return _DEFAULT[0] if _DEFAULT else _choose_default()
    cached = _BACKENDS.get(platform)
    if cached is not None:
        return cached
    with _LOCK:
        cached = _BACKENDS.get(platform)
        if cached is None:
            made = _make_cpu() if platform == "cpu" else _make_plugin(platform)
            if made is None:
                known = ", ".join(["cpu", *sorted(plugins.discover_plugins())])
                msg = f"Unknown backend {platform!r}: it is not installed or has no device"
                raise BackendNotFoundError(msg, expected=known)
            cached = _BACKENDS.setdefault(made.platform, made)
            _BACKENDS[platform] = cached
    return cached


def _choose_default() -> Backend:
    wanted = [p for p in option("platforms").split(",") if p]
    if not wanted:
        installed = plugins.discover_plugins()  # looks through all installed packages: once
        wanted = [p for p in ("tpu", "cuda", "rocm") if p in installed] + ["cpu"]
    failures: list[Exception] = []
    for platform in wanted:
        try:
            backend = get_backend(platform)
        except Exception as error:  # noqa: BLE001 - a plugin may fail in any way; try the next
            failures.append(error)
            continue
        _DEFAULT[:] = [backend]
        return backend
    raise failures[0]


def started() -> list[Backend]:
    """The backends in use, each once."""
    return list(dict.fromkeys(_BACKENDS.values()))


def backend_of(device: Any) -> Backend:
    """The backend that owns a device."""
    for backend in _BACKENDS.values():
        if backend.client is device.client:
            return backend
    return get_backend(device.platform)


def default_placement() -> SingleDeviceSharding:
    """Where uncommitted computations run: option default_device, or the first device."""
    device = option("default_device")
    if device is None:
        return get_backend().placement
    if isinstance(device, str):
        return get_backend(device).placement
    return SingleDeviceSharding(device)


@before_global_change
def _refuse_late_changes(name: str, value: object) -> None:
    """The number of devices is that with which the client was made."""
    if name == "num_cpu_devices" and "cpu" in _BACKENDS and value != option(name):
        msg = f"num_cpu_devices={value}: the CPU backend runs already, with {option(name)}"
        raise OptionFrozenError(
            msg,
            hint="change it before the first use of a device, or set TRACEBRIDGE_NUM_CPU_DEVICES",
        )


@on_global_change
def _options_changed(name: str, value: object) -> None:
    del value
    if name == "platforms":
        _DEFAULT.clear()
