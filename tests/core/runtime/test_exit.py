"""The interpreter ends while daemon threads compute: no abort, and the main thread goes on."""

from __future__ import annotations

import subprocess
import sys

LOOPS = """
import atexit, threading, time
import numpy as np
import tracebridge as tb, tracebridge.numpy as tnp

x, y, host = tnp.ones((300, 300)), tnp.ones(3), np.ones((200, 200), np.float32)
f = tb.jit(lambda x: (x @ x).sum())
f(x)
compiled = f.lower(x).compile()
uses = [
    lambda: f(x),
    lambda: compiled(x),
    lambda: x @ x,
    lambda: y * 2.0,
    lambda: np.asarray(x * 2.0).sum(),
    lambda: tnp.asarray(host),
    lambda: x[1],
    lambda: tb.grad(lambda v: (v * v).sum())(y),
    lambda: tb.jit(lambda v, c=time.time(): v * c)(y),
]

def repeat(use):
    while True:
        use()

def worker():
    for _ in range(20):
        f(x)
    print("worker", float(f(x)), flush=True)

for use in uses:
    threading.Thread(target=repeat, args=(use,), daemon=True).start()
threading.Thread(target=worker).start()
atexit.register(lambda: print("atexit", float(f(x)), flush=True))
time.sleep(0.2)
"""


def test_daemon_threads_at_the_end(subprocess_environment: dict[str, str]) -> None:
    """Threads that Python waits for, and functions called at exit, compute to their end."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", LOOPS],
            check=False, capture_output=True, text=True, timeout=120, env=subprocess_environment,
        )  # fmt: skip

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["worker 27000000.0", "atexit 27000000.0"]
