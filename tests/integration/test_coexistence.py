"""The package beside the other library that is built on the same back end, in one process.

The other library is never a dependency, so these tests need an interpreter that has it:
``TRACEBRIDGE_PEER_PYTHON`` is its path.
"""

from __future__ import annotations

import os
import subprocess

import pytest

PEER_PYTHON = os.environ.get("TRACEBRIDGE_PEER_PYTHON", "")
PEER_MODULE = os.environ.get("TRACEBRIDGE_PEER_MODULE", "jax")

pytestmark = pytest.mark.skipif(
    not PEER_PYTHON,
    reason="TRACEBRIDGE_PEER_PYTHON names no interpreter that has the other library",
)

CHECK = """
import importlib, os
import numpy as np

def check(library):
    xp = importlib.import_module(library.__name__ + ".numpy")
    f = lambda x: xp.sum(xp.tanh(x) ** 2)
    x = xp.arange(3.0)
    expected = 2 * np.tanh(np.arange(3.0)) * (1 - np.tanh(np.arange(3.0)) ** 2)
    assert np.allclose(library.jit(library.grad(f))(x), expected, rtol=1e-5)
    assert np.allclose(library.vmap(xp.sin)(x), np.sin(np.arange(3.0)), rtol=1e-5)
    _, ys = library.lax.scan(lambda c, a: (c + a, c), 0.0, x)
    assert np.allclose(ys, [0, 0, 1])
    return x

peer_name = os.environ["PEER_MODULE"]
names = ["tracebridge", peer_name]
if os.environ["PEER_FIRST"] == "1":
    names.reverse()
"""
TOGETHER = """
libraries = [importlib.import_module(name) for name in names]
for _ in range(2):
    for library in libraries:
        check(library)
"""
ONE_AFTER_THE_OTHER = """
for name in names:
    check(importlib.import_module(name))
check(importlib.import_module(names[0]))
"""
EXCHANGE = """
ours, theirs = (check(importlib.import_module(n)) for n in ("tracebridge", peer_name))
import tracebridge.numpy as tnp
peer_numpy = importlib.import_module(peer_name + ".numpy")
assert type(ours) is not type(theirs)
assert np.allclose(np.asarray(tnp.asarray(np.asarray(theirs))), np.asarray(theirs))
assert np.allclose(tnp.from_dlpack(theirs), [0, 1, 2])
library, peer = (importlib.import_module(n) for n in ("tracebridge", peer_name))
twice = library.jit(lambda v: v * 2)
for got in (tnp.sin(theirs), ours + theirs, library.grad(tnp.sum)(theirs), twice(theirs)):
    assert type(got) is type(ours)
assert np.allclose(ours + theirs, [0, 2, 4])

def traced(v):
    for fun in (tnp.sin, twice, lambda v: ours + v, library.device_put):
        try:
            fun(v)
        except TypeError as error:
            assert "UnsupportedDtypeError" in type(error).__name__, error
        else:
            raise AssertionError(fun)
    return v

peer.jit(traced)(theirs)
assert np.allclose(peer_numpy.from_dlpack(ours), [0, 1, 2])
"""
OPTIONS = """
ours, theirs = importlib.import_module("tracebridge"), importlib.import_module(peer_name)
check(ours), check(theirs)
with ours.enable_x64(True):
    peer_numpy = importlib.import_module(peer_name + ".numpy")
    import tracebridge.numpy as tnp
    assert tnp.ones(2).dtype == np.float64
    assert peer_numpy.ones(2).dtype == np.float32
theirs.config.update("jax_enable_x64", True)
assert peer_numpy.ones(2).dtype == np.float64
assert tnp.ones(2).dtype == np.float32
check(ours)
"""


@pytest.mark.parametrize("peer_first", ["0", "1"], ids=["ours first", "theirs first"])
@pytest.mark.parametrize(
    "program",
    [TOGETHER, ONE_AFTER_THE_OTHER, EXCHANGE, OPTIONS],
    ids=["together", "one after the other", "exchange", "options"],
)
def test_both_are_healthy(
    program: str, peer_first: str, subprocess_environment: dict[str, str]
) -> None:
    """Neither import nor use of one disturbs the other: results, pytrees, options, exchange."""
    done = subprocess.run(
        [PEER_PYTHON, "-W", "error", "-c", f'{CHECK}\n{program}\nprint("healthy")'],
        env={**subprocess_environment, "PEER_MODULE": PEER_MODULE, "PEER_FIRST": peer_first},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (0, "healthy") == (done.returncode, done.stdout.strip()), done.stderr[-4000:]
