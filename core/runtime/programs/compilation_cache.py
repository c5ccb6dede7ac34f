"""The persistent compilation cache: executables in files, for other processes and later ones.

A file is named after everything that decides what the compiler makes: the program, its options,
the versions of jaxlib and of the platform, the devices, and the machine's own features. Programs
that call back into Python are never kept: they hold addresses of this process.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracebridge.core._jaxlib.version import JAXLIB_VERSION
from tracebridge.core._jaxlib.xla import (
    DeviceList,
    XlaRuntimeError,
    deserialize_executable,
    serialize_executable,
)
from tracebridge.core.config import env
from tracebridge.core.config.values import option
from tracebridge.core.runtime.backends import monitoring
from tracebridge.core.util.processor import processor_lines

_SUFFIX = ".executable"
_CHECKED = b"without wrong fusions"  # earlier versions kept programs that had them
_FORMAT = b"seconds first"
_DIGEST_SIZE = hashlib.sha256().digest_size
# How long the compiler took, before the executable itself.
_SECONDS = struct.Struct("<d")


def load_or_make(
    folder: Path,
    make: Callable[[], Any],
    client: Any,
    devices: Sequence[Any],
    options: Any,
    bytecode: bytes,
) -> Any:
    """The executable that an equal program became before, or what ``make`` compiles and we keep.

    Args:
        folder: of the files.
        make: compiles the program.
        client: of the devices.
        devices: those that run it.
        options: XLA's compile options.
        bytecode: the StableHLO program.
    """
    file = folder / (_key(client, bytecode, devices, options) + _SUFFIX)
    monitoring.record_event(monitoring.CACHE_REQUEST)
    start = time.perf_counter()
    found = _load(file, client, devices, options)
    if found is not None:
        executable, seconds = found
        took = time.perf_counter() - start
        monitoring.record_event(monitoring.CACHE_HIT)
        monitoring.record_event_duration_secs(monitoring.CACHE_RETRIEVAL, took)
        monitoring.record_event_duration_secs(monitoring.CACHE_SAVED, seconds - took)
        return executable
    monitoring.record_event(monitoring.CACHE_MISS)
    start = time.perf_counter()
    executable = make()
    seconds = time.perf_counter() - start
    if seconds >= option("persistent_cache_min_compile_time_secs"):
        _store(file, client, executable, seconds)
    return executable


def _key(client: Any, bytecode: bytes, devices: Sequence[Any], options: Any) -> str:
    parts: list[bytes] = [
        repr(JAXLIB_VERSION).encode(),
        _CHECKED,
        _FORMAT,
        client.platform.encode(),
        client.platform_version.encode(),
        _machine().encode() if client.platform == "cpu" else b"",
        env.xla_flags().encode(),
        ",".join(f"{d.device_kind}:{d.id}" for d in devices).encode(),
        options.SerializeAsString(),
        bytecode,
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


@functools.cache
def _machine() -> str:
    """What generated code for the CPU may depend on."""
    # The compiler splits loops for so many threads.
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines = processor_lines(of_all_cores=True)
    if lines is None:
        return f"{threads} {platform.machine()} {platform.processor()} {platform.platform()}"
    return "\n".join([f"{threads} {platform.machine()}", *lines])


def _load(
    file: Path, client: Any, devices: Sequence[Any], options: Any
) -> tuple[Any, float] | None:
    """The executable in a file, and how long the compiler took; None if missing or damaged."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn(f"cannot read {file}: {error}")
        return None
    digest, body = data[:_DIGEST_SIZE], data[_DIGEST_SIZE:]
    if hashlib.sha256(body).digest() != digest:
        _warn(f"{file} is damaged; the program is compiled again")
        return None
    try:
        (seconds,) = _SECONDS.unpack_from(body)
        program = body[_SECONDS.size :]
        return deserialize_executable(client, program, DeviceList(devices), options), seconds
    except XlaRuntimeError as error:
        _warn(f"XLA could not load {file}, the program is compiled again: {error}")
        return None


def _store(file: Path, client: Any, executable: Any, seconds: float) -> None:
    """Write a file at once or not at all: other processes may read it at any time."""
    try:
        body = _SECONDS.pack(seconds) + serialize_executable(client, executable)
    except XlaRuntimeError:
        return  # a backend, or a program, whose executables cannot leave the process
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=file.stem[:16], suffix=".draft")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(hashlib.sha256(body).digest() + body)
            Path(draft).replace(file)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        _warn(f"cannot write {file}: {error}")


def _warn(message: str) -> None:
    warnings.warn(f"persistent compilation cache: {message}", RuntimeWarning, stacklevel=2)
