"""Borrowed and exported memory: nothing aborts the process, nothing is silently destroyed.

Each case runs in a process of its own: what jaxlib does wrong here is to abort.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

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


@pytest.mark.parametrize("name", CASES)
def test_process_survives(name: str, run_alone: Callable[[str], str]) -> None:
    """The case ends with status 0."""
    run_alone(PRELUDE + textwrap.dedent(CASES[name]))
