"""Profiles of programs: what ran when on which thread and device, and what fills the memory.

Profiles are written to a folder that TensorBoard and XProf read; ``ProfileData`` reads them here.
"""

from __future__ import annotations

import functools
import gzip
import http.server
import json
import os
import socketserver
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tracebridge.core._jaxlib import profiler as _profiler
from tracebridge.core._jaxlib.profiler import ProfileData, ProfileEvent, ProfilePlane
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.runtime_errors import ProfilerError
from tracebridge.core.runtime.backends.clients import get_backend

__all__ = [
    "ProfileData",
    "ProfileEvent",
    "ProfileOptions",
    "ProfilePlane",
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "device_memory_profile",
    "register_subprocess",
    "save_device_memory_profile",
    "start_server",
    "start_trace",
    "stop_server",
    "stop_trace",
    "trace",
]

P = ParamSpec("P")
R = TypeVar("R")

_VIEWER = "https://ui.perfetto.dev"
_PORT = 9001  # the viewer may load files from this port only


class ProfileOptions(_profiler.ProfileOptions):
    """What a profile records.

    Attributes such as ``host_tracer_level`` (0 to 3: how much of the host), and
    ``python_tracer_level`` (1: calls of Python functions) may be set.

    >>> import tracebridge as tb
    >>> options = tb.profiler.ProfileOptions()
    >>> options.python_tracer_level = 0
    """


class TraceAnnotation(_profiler.TraceMe):
    """A context whose time appears in profiles under a name.

    Args:
        name: shown in the profile.
        **kwargs: numbers and strings shown with it.

    >>> import tracebridge as tb
    >>> with tb.profiler.TraceAnnotation("product", size=3):
    ...     y = tb.numpy.ones((3, 3)) @ tb.numpy.ones(3)
    """


class StepTraceAnnotation(_profiler.TraceMe):
    """A ``TraceAnnotation`` of a step of training, by which profiles are summed up.

    Args:
        name: shown in the profile.
        **kwargs: ``step_num``, the number of the step, and others.

    >>> import tracebridge as tb
    >>> for i in range(2):
    ...     with tb.profiler.StepTraceAnnotation("train", step_num=i):
    ...         y = tb.numpy.ones(3) + i
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name, _r=1, **kwargs)


def annotate_function(
    func: Callable[P, R], name: str | None = None, **decorator_kwargs: Any
) -> Callable[P, R]:
    """A function whose calls appear in profiles.

    Args:
        func: the function.
        name: shown in the profile (default: that of the function).
        **decorator_kwargs: numbers and strings shown with it.

    >>> import tracebridge as tb
    >>> @tb.profiler.annotate_function
    ... def f(x):
    ...     return x + 1
    >>> f(2)
    3
    """
    shown = name or getattr(func, "__qualname__", None) or getattr(func, "__name__", repr(func))

    @functools.wraps(func)
    def annotated(*args: P.args, **kwargs: P.kwargs) -> R:
        with TraceAnnotation(shown, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


# traces ------------------------------------------------------------------------------------------


class _Running:
    """The profile and the server of this process, of which there is one each; and their lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.session: Any = None
        self.folder = ""
        self.perfetto = False
        self.link = False
        self.server: Any = None


_running = _Running()


def start_trace(
    log_dir: os.PathLike[str] | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Start to record what programs and Python functions do.

    Args:
        log_dir: folder that the profile is written to by ``stop_trace``.
        create_perfetto_link: then print a link to the viewer Perfetto, and wait until it has
            loaded the profile from this process.
        create_perfetto_trace: also write ``perfetto_trace.json.gz``, which that viewer opens.
        profiler_options: what is recorded.

    Raises:
        ProfilerError: a profile is being taken already.

    >>> import tracebridge as tb
    >>> import tempfile
    >>> tb.profiler.start_trace(tempfile.mkdtemp())
    >>> tb.profiler.stop_trace()
    """
    with _running.lock:
        if _running.session is not None:
            msg = f"start_trace: a profile is being taken already, for {_running.folder!r}"
            raise ProfilerError(msg, hint="stop it by stop_trace")
        get_backend()  # devices have to be there before they are recorded
        options = _profiler.ProfileOptions() if profiler_options is None else profiler_options
        _running.session = _profiler.ProfilerSession(options)
        _running.folder = os.fspath(log_dir)
        _running.perfetto = create_perfetto_trace or create_perfetto_link
        _running.link = create_perfetto_link


def stop_trace() -> None:
    """Stop to record, and write the profile to the folder given to ``start_trace``.

    Raises:
        ProfilerError: no profile is being taken.

    >>> import tracebridge as tb
    >>> import tempfile
    >>> tb.profiler.start_trace(tempfile.mkdtemp())
    >>> tb.profiler.stop_trace()
    """
    with _running.lock:
        session, folder = _running.session, _running.folder
        if session is None:
            msg = "stop_trace: no profile is being taken"
            raise ProfilerError(msg, hint="start one by start_trace")
        _running.session = None
        session.stop_and_export(folder)
        if _running.perfetto:
            file = _write_for_perfetto(Path(folder))
            if _running.link:
                _serve_to_viewer(file)


@contextmanager
def trace(
    log_dir: os.PathLike[str] | str,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Iterator[None]:
    """A context that is recorded; arguments as of ``start_trace``.

    >>> import tracebridge as tb
    >>> import tempfile
    >>> with tb.profiler.trace(tempfile.mkdtemp()):
    ...     y = tb.numpy.ones(3) + 1
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


def _write_for_perfetto(folder: Path) -> Path:
    """The newest profile of ``folder`` without what the viewer does not know."""
    runs = sorted((folder / "plugins" / "profile").iterdir(), key=lambda p: p.stat().st_mtime)
    found = next(runs[-1].glob("*.trace.json.gz"))
    with gzip.open(found, "rt", encoding="utf-8") as file:
        events = json.load(file)
    events.pop("metadata", None)
    written = runs[-1] / "perfetto_trace.json.gz"
    with gzip.open(written, "wt", encoding="utf-8") as file:
        json.dump(events, file)
    return written


def _serve_to_viewer(path: Path) -> None:
    """Print a link to the viewer, and hand the file to it once."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, directory=str(path.parent), **kwargs)

        def end_headers(self) -> None:
            self.send_header("Access-Control-Allow-Origin", _VIEWER)
            super().end_headers()

        def do_GET(self) -> None:
            self.server.asked = True  # type: ignore[attr-defined]  # our own attribute
            super().do_GET()

        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    class Server(socketserver.TCPServer):
        allow_reuse_address = True
        asked = False

    with Server(("127.0.0.1", _PORT), Handler) as server:
        url = urllib.parse.quote(f"http://127.0.0.1:{_PORT}/{path.name}", safe=":/")
        sys.stdout.write(f"Open this link to see the profile: {_VIEWER}/#!/?url={url}\n")
        sys.stdout.flush()
        while not server.asked:
            server.handle_request()


# the server --------------------------------------------------------------------------------------


def start_server(port: int, requires_backend: bool = True) -> Any:
    """Start a server from which TensorBoard takes profiles of this process.

    Args:
        port: port that it listens at.
        requires_backend: start the devices first, so that they are recorded.

    Returns:
        The server, which lives until ``stop_server``.

    Raises:
        ProfilerError: the server runs already.

    >>> import tracebridge as tb
    >>> def profiled():
    ...     tb.profiler.start_server(9999)
    """
    with _running.lock:
        if _running.server is not None:
            msg = "start_server: the profiler server runs already"
            raise ProfilerError(msg, hint="stop it by stop_server")
        if requires_backend:
            get_backend()
        _running.server = _profiler.start_server(port)
        return _running.server


def stop_server() -> None:
    """Stop the server that ``start_server`` started.

    Raises:
        ProfilerError: no server runs.

    >>> import tracebridge as tb
    >>> def done():
    ...     tb.profiler.stop_server()
    """
    with _running.lock:
        if _running.server is None:
            msg = "stop_server: no profiler server runs"
            raise ProfilerError(msg, hint="start one by start_server")
        _running.server = None


def register_subprocess(pid: int, port: int) -> Callable[[], None]:
    """Let profiles of this process contain those of another one on this machine.

    Args:
        pid: number of the other process.
        port: port of its profiler server.

    Returns:
        A function that ends this; so does its collection as garbage.

    >>> import tracebridge as tb
    >>> def watch(worker, port):
    ...     return tb.profiler.register_subprocess(worker.pid, port)
    """
    return _profiler.register_subprocess(pid, port)


# memory ------------------------------------------------------------------------------------------


def device_memory_profile(backend: str | None = None) -> bytes:
    """What lives in the memory of devices now, and where it was made, for the tool ``pprof``.

    Args:
        backend: name of a platform (default: that of programs).

    Returns:
        A compressed or plain protocol buffer of pprof's format.

    Raises:
        BackendNotFoundError: no such platform.

    >>> import tracebridge as tb
    >>> type(tb.profiler.device_memory_profile())
    <class 'bytes'>
    """
    return _profiler.heap_profile(get_backend(backend).client)


def save_device_memory_profile(
    filename: os.PathLike[str] | str, backend: str | None = None
) -> None:
    """Write ``device_memory_profile`` to a file.

    Args:
        filename: the file.
        backend: as of ``device_memory_profile``.

    >>> import tracebridge as tb
    >>> import tempfile
    >>> tb.profiler.save_device_memory_profile(tempfile.mkdtemp() + "/memory.prof")
    """
    Path(filename).write_bytes(device_memory_profile(backend))


shield(globals(), __name__)
