"""Profiles: what is recorded and written, and what is refused."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge import profiler
from tracebridge.core.errors.runtime_errors import BackendNotFoundError, ProfilerError


@pytest.fixture(autouse=True)
def _nothing_runs_afterwards() -> Iterator[None]:
    yield
    for stop in (profiler.stop_trace, profiler.stop_server):
        try:
            stop()
        except ProfilerError:
            continue


def events(folder: Path) -> dict[str, dict[str, Any]]:
    """Names and statistics of all events that were recorded."""
    (file,) = folder.rglob("*.xplane.pb")
    data = profiler.ProfileData.from_file(str(file))
    return {
        event.name: dict(event.stats)
        for plane in data.planes
        for line in plane.lines
        for event in line.events
    }


def test_annotations_are_recorded(tmp_path: Path) -> None:
    """Contexts, steps and functions appear under their names, with what was said of them."""
    named = profiler.annotate_function(lambda x: x + 1, name="named", kind="k")

    @profiler.annotate_function
    def plain(x: Any) -> Any:
        """Says so."""
        return x

    with profiler.trace(tmp_path):
        with profiler.TraceAnnotation("inner", size=3):
            tb.numpy.ones(3).block_until_ready()
        with profiler.StepTraceAnnotation("train", step_num=7):
            assert 3 == named(plain(2))
    found = events(tmp_path)

    assert "Says so." == plain.__doc__
    assert "3" == str(found["inner"]["size"])
    assert "7" == str(found["train"]["step_num"])
    assert "k" == str(found["named"]["kind"])
    assert any("plain" in name for name in found)


def test_options(tmp_path: Path) -> None:
    """Calls of Python functions are left out if nobody wants them."""
    options = profiler.ProfileOptions()
    options.python_tracer_level = 0
    profiler.start_trace(str(tmp_path), profiler_options=options)
    json.dumps([1])
    profiler.stop_trace()

    assert not any("dumps" in name for name in events(tmp_path))


def test_perfetto_file(tmp_path: Path) -> None:
    """A second file for a viewer that takes events only."""
    with profiler.trace(tmp_path, create_perfetto_trace=True):
        tb.numpy.ones(3).block_until_ready()
    (file,) = tmp_path.rglob("perfetto_trace.json.gz")
    with gzip.open(file, "rt") as text:
        content = json.load(text)

    assert "traceEvents" in content
    assert "metadata" not in content


def test_one_profile_at_a_time(tmp_path: Path) -> None:
    """A second one is refused, and one that was not started cannot be stopped."""
    profiler.start_trace(tmp_path)
    with pytest.raises(ProfilerError, match="a profile is being taken already"):
        profiler.start_trace(tmp_path)
    profiler.stop_trace()
    with pytest.raises(RuntimeError, match="no profile is being taken"):
        profiler.stop_trace()


def free_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_server() -> None:
    """There is one at a time; it can be started again."""
    code = (
        "import sys, tracebridge as tb; p = int(sys.argv[1])\n"
        "tb.profiler.start_server(p)\n"
        "try: tb.profiler.start_server(p)\n"
        "except ValueError as e: print('runs already' in str(e))\n"
        "tb.profiler.stop_server()\n"
        "try: tb.profiler.stop_server()\n"
        "except ValueError as e: print('no profiler server runs' in str(e))\n"
    )
    command = [sys.executable, "-c", code, str(free_port())]
    done = subprocess.run(command, check=True, capture_output=True, text=True)

    assert ["True", "True"] == done.stdout.split()


def test_a_process_without_server_cannot_be_registered() -> None:
    """The runtime's error says so."""
    with pytest.raises(RuntimeError):
        profiler.register_subprocess(1, free_port())


def test_memory_profile(tmp_path: Path) -> None:
    """The protocol buffer names what lives on the device."""
    kept = tb.numpy.array(np.ones(1000, np.float32))
    profiler.save_device_memory_profile(tmp_path / "memory.prof")
    raw = (tmp_path / "memory.prof").read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw

    assert b"buffer" in text
    assert kept.nbytes == 4000
    with pytest.raises(BackendNotFoundError):
        profiler.device_memory_profile("cuda13")
