"""Borrowed and exported memory: nothing aborts the process, nothing is silently destroyed.

The cases run in a process apart: what jaxlib does wrong here is to abort.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import gc
import numpy as np
import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.dlpack import from_dlpack, to_dlpack

def aligned(n):
    raw = np.zeros(4 * n + 64, np.uint8)
    start = -raw.ctypes.data % 64
    host = raw[start : start + 4 * n].view(np.float32)
    host[:] = np.arange(n)
    return host
"""

CASES = {
    "delete while a consumer has the memory": """
        array = put_numpy(np.arange(16.0))
        view = np.from_dlpack(array)
        array.delete()
        gc.collect()
        assert array.is_deleted()
        assert view.sum() == 120
        """,
    "delete while a capsule is unused": """
        array = put_numpy(np.arange(16.0))
        capsule = to_dlpack(array)
        array.delete()
        del capsule
        gc.collect()
        """,
    "delete after the capsule was dropped": """
        array = put_numpy(np.arange(16.0))
        to_dlpack(array)
        gc.collect()
        array.delete()
        """,
    "delete a borrowed array": """
        host = aligned(16)
        array = from_dlpack(host)
        array.delete()
        assert host.sum() == 120
        try:
            array + 1
        except tb.errors.DeletedArrayError:
            pass
        else:
            raise AssertionError
        """,
    "the lender goes first": """
        host = aligned(16)
        array = from_dlpack(host)
        del host
        gc.collect()
        assert float(tnp.sum(array)) == 120
        """,
    "donate borrowed memory": """
        host = aligned(16)
        array = from_dlpack(host)
        out = tb.jit(lambda x: x * 2, donate_argnums=0)(array)
        assert host.tolist() == list(range(16))
        assert np.asarray(out).tolist() == [2.0 * i for i in range(16)]
        assert not array.is_deleted() and array[1] == 1
        """,
    "donate exported memory": """
        array = put_numpy(np.arange(16, dtype=np.float32))
        view = np.from_dlpack(array)
        out = tb.jit(lambda x: x * 2, donate_argnums=0)(array)
        assert view.tolist() == list(range(16))
        assert np.asarray(out).tolist() == [2.0 * i for i in range(16)]
        """,
    "a host view outlives its array": """
        array = put_numpy(np.arange(16.0))
        view = np.asarray(array)
        array.delete()
        gc.collect()
        assert view.sum() == 120
        """,
    "a capsule is consumed twice": """
        class Twice:
            def __init__(self, capsule):
                self.capsule = capsule
            def __dlpack__(self, **options):
                return self.capsule
            def __dlpack_device__(self):
                return (1, 0)
        twice = Twice(to_dlpack(put_numpy(np.arange(16.0))))
        np.from_dlpack(twice)
        try:
            from_dlpack(twice)
        except Exception as error:
            assert 'capsule' in str(error).lower(), error
        else:
            raise AssertionError
        """,
    "many round trips free their memory": """
        import resource
        host = aligned(100_000)
        for i in range(2000):
            np.from_dlpack(from_dlpack(host))
            put_numpy(host).__dlpack__()
            if i == 200:
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
        """,
}


RUN_ALL = """
kept = []  # what the cases leave is there when the interpreter ends
for name, body in CASES.items():
    kept.append(dict(globals()))
    exec(body, kept[-1])
    print(name, flush=True)
"""


@pytest.fixture(scope="module")
def errors(subprocess_environment: dict[str, str]) -> dict[str, str]:
    """By case what went wrong. After a case that ends the process, another one goes on."""
    found: dict[str, str] = {}
    waiting = {name: textwrap.dedent(body) for name, body in CASES.items()}
    while waiting:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", f"{PRELUDE}CASES = {waiting!r}{RUN_ALL}"],
            env=subprocess_environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        passed = done.stdout.splitlines()
        at_the_end = done.returncode != 0 and len(passed) == len(waiting)
        found |= dict.fromkeys(passed, done.stderr if at_the_end else "")
        waiting = {name: body for name, body in waiting.items() if name not in passed}
        if waiting:
            name = next(iter(waiting))
            found[name] = f"ended with status {done.returncode}: {done.stderr}"
            del waiting[name]
    return found


@pytest.mark.parametrize("name", CASES)
def test_process_survives(name: str, errors: dict[str, str]) -> None:
    """The case ends, and so does the process, with status 0."""
    assert not errors[name]
