"""The interpreter ends while daemon threads are in TensorFlow and our programs: no abort."""

from __future__ import annotations

import subprocess
import sys

LOOPS = """
import atexit, tempfile, threading, time, warnings
import numpy as np
import tensorflow as tf
import tracebridge as tb, tracebridge.numpy as tnp

warnings.simplefilter("ignore")
x, a = tf.ones((50, 50)), tnp.ones((50, 50))
f = tb.tf.to_tf(lambda x: tnp.tanh(x @ x).sum())
in_graph = tf.function(f)
folder = tempfile.mkdtemp()
one_row = [tf.TensorSpec((None, 50))]
tb.tf.save(lambda p, x: x @ p, folder, one_row, params=np.ones((50, 2), np.float32))
loaded = tf.saved_model.load(folder)
layer = tb.tf.Layer(lambda p, x: x @ p, np.ones((50, 2), np.float32))

def on_host(x):
    y = tf.py_function(lambda v: v * 2, [x], tf.float32)
    y.set_shape(x.shape)
    return y

callback = tb.tf.call_tf(on_host)
calling_back = tb.jit(lambda x: callback(x).sum())
compiled = tb.jit(lambda x: tb.tf.call_tf(tf.math.lgamma)(x).sum())

def slope():
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x)

uses = [
    lambda: f(x), lambda: in_graph(x), slope, lambda: loaded.serve(x), lambda: layer(x),
    lambda: callback(a), lambda: calling_back(a), lambda: compiled(a),
]

def repeat(use):
    while True:
        use()

def worker():
    for _ in range(5):
        f(x)
    print("worker", float(in_graph(x)), flush=True)

def last():
    print("last", float(f(x)), float(calling_back(a)), flush=True)

for use in uses:
    use()
    threading.Thread(target=repeat, args=(use,), daemon=True).start()
atexit.register(last)
threading.Thread(target=worker).start()
time.sleep(0.3)
"""


def test_daemon_threads(subprocess_environment: dict[str, str]) -> None:
    """Those that compute are ended; other threads, and functions for the end, go on."""
    done = subprocess.run(
        [sys.executable, "-c", LOOPS],
        env=subprocess_environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert {"worker 2500.0", "last 2500.0 5000.0"} == set(done.stdout.splitlines())
    assert "Traceback" not in done.stderr
