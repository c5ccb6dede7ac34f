"""The persistent compilation cache, from process to process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, sys, warnings
import numpy as np
import tracebridge as tb, tracebridge.numpy as tnp

counts = {"hits": 0, "misses": 0, "cache": 0}
durations = []
def listen(event, **kwargs):
    if "compilation_cache" in event:
        counts[event.rpartition("_")[2]] += 1
def listen_to_durations(event, seconds, **kwargs):
    if "compilation_cache" in event:
        durations.append([event.rpartition("/")[2], seconds])
tb.monitoring.register_event_listener(listen)
tb.monitoring.register_event_duration_secs_listener(listen_to_durations)
tb.config.update("persistent_cache_min_compile_time_secs", 0)
tb.config.update("compilation_cache_dir", sys.argv[1])
what = sys.argv[2]

def step(c, x):
    c = tnp.tanh(c @ x)
    return c, tnp.sort(c.sum(0))

def f(x):
    c, ys = tb.lax.scan(step, x, tnp.ones((3, 4, 4)))
    return c.sum() + (ys ** 2).sum()

if what == "callback":
    def f(x):
        return tb.pure_callback(np.sin, tb.ShapeDtypeStruct(x.shape, x.dtype), x).sum()
if what == "constant":
    def f(x):
        return (x * tnp.asarray(np.arange(16.0, dtype=np.float32).reshape(4, 4))).sum() * FACTOR
    FACTOR = float(sys.argv[3])
x = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    if what == "mesh":
        mesh = tb.make_mesh((2,), ("i",))
        split = tb.NamedSharding(mesh, tb.P("i"))
        out = tb.jit(lambda x: (x @ x.T) * 2, in_shardings=split, out_shardings=split)(x)
        assert len(out.sharding.device_set) == 2
        value = float(np.asarray(out).sum())
    elif what == "options":
        value = float(tb.jit(f, compiler_options={"xla_cpu_enable_fast_math": True})(x))
    else:
        value, grads = tb.jit(tb.value_and_grad(f))(x) if what == "grad" else (tb.jit(f)(x), 0)
        value = float(value) + float(np.asarray(grads).sum())
seen = [str(w.message) for w in seen]
print(json.dumps({**counts, "value": value, "warnings": seen, "durations": durations}))
"""


def run(folder: Path, what: str = "grad", *args: str, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), what, *args],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_second_process_loads_what_the_first_compiled(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "cache"
    first, second = run(folder), run(folder)
    assert first["misses"] > 0
    assert first["hits"] == 0
    assert second["misses"] == 0
    assert second["hits"] == first["misses"]
    assert second["value"] == first["value"]
    assert second["warnings"] == []
    assert folder.stat().st_mode & 0o077 == 0
    assert not list(folder.glob("*.draft"))


def test_listeners_hear_of_requests_and_of_saved_time(tmp_path: Path) -> None:
    """Each look is a request; each hit says how long reading took, and what compiling had taken."""
    first, second = run(tmp_path), run(tmp_path)

    for process in (first, second):
        assert process["cache"] == process["hits"] + process["misses"]
    assert [] == first["durations"]
    names = [name for name, _ in second["durations"]]
    assert ["cache_retrieval_time_sec", "compile_time_saved_sec"] * second["hits"] == names
    retrieval, saved = second["durations"][0][1], second["durations"][1][1]
    assert 0 < retrieval < 60
    # The compiler took some time, which is what was saved and what reading took instead.
    assert 0 < retrieval + saved < 60


def test_programs_options_and_flags_have_files_of_their_own(tmp_path: Path) -> None:
    run(tmp_path, "plain")
    count = len(list(tmp_path.iterdir()))
    assert run(tmp_path, "options")["misses"] > 0
    assert len(list(tmp_path.iterdir())) > count
    flags = run(tmp_path, "plain", XLA_FLAGS="--xla_cpu_enable_fast_min_max=true")
    assert flags["hits"] == 0
    assert run(tmp_path, "constant", "2")["value"] * 2 == run(tmp_path, "constant", "4")["value"]


def test_programs_over_several_devices_are_kept(tmp_path: Path) -> None:
    devices = {"TRACEBRIDGE_NUM_CPU_DEVICES": "2"}
    first, second = run(tmp_path, "mesh", **devices), run(tmp_path, "mesh", **devices)
    assert second["value"] == first["value"]
    assert second["misses"] == 0
    assert second["hits"] > 0


def test_programs_that_call_python_are_not_kept(tmp_path: Path) -> None:
    run(tmp_path, "callback")
    again = run(tmp_path, "callback")
    assert again["value"] == pytest.approx(run(tmp_path / "other", "callback")["value"])
    assert again["misses"] == 0


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "folder"])
def test_damaged_files_are_compiled_again(tmp_path: Path, damage: str) -> None:
    first = run(tmp_path, "plain")
    for file in tmp_path.iterdir():
        data = bytearray(file.read_bytes())
        data[-100] ^= 255
        file.unlink()
        if damage == "folder":
            file.mkdir()
        else:
            file.write_bytes(
                {"empty": b"", "cut": bytes(data[:-50]), "flipped": bytes(data)}[damage]
            )
    again = run(tmp_path, "plain")
    assert again["value"] == first["value"]
    assert again["hits"] == 0
    assert any(str(tmp_path) in text for text in again["warnings"])
    if damage != "folder":
        assert run(tmp_path, "plain")["misses"] == 0


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = run(tmp_path / "file" / "cache", "plain")
    assert any("cannot" in text for text in out["warnings"])
