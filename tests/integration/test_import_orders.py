"""The package beside PyTorch and TensorFlow in one process, imported in every order.

All three bring C++ libraries (XLA, LLVM, protobuf, OpenMP) of their own; an order that clashes
crashes the process, so each runs in a fresh one.
"""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.tf, pytest.mark.slow]

MODULES = ("tracebridge", "torch", "tensorflow")
PROGRAM = """
import importlib, sys
import numpy as np
for name in sys.argv[1:]:
    importlib.import_module(name)
    if name == "tracebridge":
        import tracebridge.numpy as tnp
        tnp.ones(2)  # starts the backend before the next import

import tensorflow as tf
import torch
import tracebridge as tb
import tracebridge.numpy as tnp

expected = np.linalg.inv(np.eye(3) * 2)
got = tb.jit(lambda x: tnp.tanh(x @ x.T).sum())(tnp.ones((3, 3)))
assert np.allclose(got, 9 * np.tanh(3.0)), got
assert np.allclose(torch.linalg.inv(torch.eye(3) * 2).numpy(), expected)
assert np.allclose(tf.linalg.inv(tf.eye(3) * 2).numpy(), expected)
assert np.allclose(tb.grad(lambda x: tnp.sum(x * x))(tnp.ones(3)), 2)
x = torch.ones(3, requires_grad=True)
(x * x).sum().backward()
assert np.allclose(x.grad.numpy(), 2)
compiled = tf.function(lambda y: y * y, jit_compile=True)
assert np.allclose(compiled(tf.ones(3)).numpy(), 1)
assert np.allclose(tb.jit(lambda x: tnp.cos(x))(tnp.zeros(3)), 1)
print("healthy")
"""


@pytest.mark.parametrize("order", list(itertools.permutations(MODULES)), ids="-".join)
def test_every_order_is_healthy(
    order: tuple[str, ...], subprocess_environment: dict[str, str]
) -> None:
    """Each library computes values and gradients, whichever came first."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *order],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (0, "healthy") == (done.returncode, done.stdout.strip()), done.stderr[-4000:]
