"""Threads: calling and tracing at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp


def test_eight_threads_trace_and_call_at_once():
    """Each thread traces its own functions and calls shared ones; all results are right."""
    shared = tb.jit(lambda x, y: tnp.tanh(x) * y + 1.0)

    def work(i: int) -> bool:
        x = tnp.arange(4.0) + i
        host = np.arange(4.0, dtype=np.float32) + i
        for k in range(12):
            fresh = tb.jit(lambda x, k=k: (x * k + x.sum()).mean())
            grad = tb.jit(tb.grad(lambda x, k=k: (x**2).sum() * (k + 1)))
            np.testing.assert_allclose((host * k + host.sum()).mean(), fresh(x), rtol=1e-5)
            np.testing.assert_allclose(2 * host * (k + 1), grad(x), rtol=1e-5)
            np.testing.assert_allclose(np.tanh(host) * host + 1, shared(x, x), rtol=1e-4)
            with tb.enable_x64(True):
                assert np.dtype("float64") == tnp.arange(2.0).dtype
            np.testing.assert_allclose(host[::2] + i, x[::2] + i, rtol=1e-6)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [True] * 8


def test_a_trace_in_one_thread_is_not_seen_by_another():
    """While one thread traces, another evaluates eagerly."""

    def traced(x):
        with ThreadPoolExecutor(1) as pool:
            value = pool.submit(lambda: float((tnp.ones(2) + 1)[0])).result()
        return x * value

    assert float(tb.jit(traced)(3.0)) == 6.0
