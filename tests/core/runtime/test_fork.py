"""Processes: fork gives a clear error instead of a hang, spawn works."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORK = """
import os, signal, sys
import tracebridge as tb, tracebridge.numpy as tnp
x = tnp.arange(3.0)
f = tb.jit(lambda x: x + 1)
compiled = f.lower(x).compile()
f(x); compiled(x); x * x; tb.grad(lambda x: (x * x).sum())(x)
uses = {
    "jit": lambda: f(x),
    "operation": lambda: x * x,
    "gradient": lambda: tb.grad(lambda x: (x * x).sum())(x),
    "compiled": lambda: compiled(x),
    "copy": lambda: x.copy(),
    "new": lambda: tb.jit(lambda x: x - 1)(x),
}
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    for name, use in uses.items():
        try:
            use()
            print(name, "ran", flush=True)
        except Exception as error:
            print(name, type(error).__name__, flush=True)
    print("read", x.tolist(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print("parent", f(x).tolist())
"""

SPAWN = """
import multiprocessing
import tracebridge.numpy as tnp

def work(n):
    return float(tnp.arange(float(n)).sum())

if __name__ == "__main__":
    tnp.ones(2) + 1
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [3, 4]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="fork is for POSIX")
def test_forked_child_gets_an_error_and_the_parent_goes_on(subprocess_environment):
    """Every use of the engine in a forked child raises; reading memory works."""
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        check=True, capture_output=True, text=True, timeout=120, env=subprocess_environment,
    ).stdout.splitlines()  # fmt: skip

    names = ("jit", "operation", "gradient", "compiled", "copy", "new")
    assert [f"{n} ForkedProcessError" for n in names] == out[:6]
    assert out[6:] == ["read [0.0, 1.0, 2.0]", "parent [1.0, 2.0, 3.0]"]


def test_spawned_workers_compute(subprocess_environment, tmp_path):
    """Spawned processes start an engine of their own."""
    script = tmp_path / "spawn.py"
    script.write_text(SPAWN)
    out = subprocess.run(
        [sys.executable, str(script)],
        check=True, capture_output=True, text=True, timeout=120, env=subprocess_environment,
    ).stdout  # fmt: skip

    assert out.strip() == "[3.0, 6.0]"
