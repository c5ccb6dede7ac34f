"""Kernels of small loops: what was wrong once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.kernels.machine import is_there
from tracebridge.core.lowering.rewrites import steps

pytestmark = pytest.mark.skipif(not is_there(), reason="llvmlite is not installed")


def kernels_in(f: Any, *args: Any) -> int:
    """How many kernels the program of a function calls."""
    return tb.jit(f).lower(*args).as_text().count(f"@{KERNEL}")


def of_steps(f: Any, xs: Any) -> Any:
    """``f`` of each row, by a kernel."""

    def run(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c, f(x)), np.float32(0), xs)[1]

    assert kernels_in(run, xs) == 1
    return tb.jit(run)(xs)


def test_tanh_keeps_the_sign_of_zero() -> None:
    """Large arguments give exactly 1, and signs are those of the arguments."""
    x = np.array([[0.0, -0.0, 20.0, -20.0]] * 4, np.float32)
    y = np.asarray(of_steps(lax.tanh, x))
    np.testing.assert_array_equal(y, np.sign(x))
    np.testing.assert_array_equal(np.signbit(y), np.signbit(x))


@pytest.mark.parametrize(("most", "kernels"), [(8192, 1), (1000, 0)])
def test_no_kernel_of_a_long_text(most: int, kernels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM would take seconds for what XLA compiles in a fraction of one."""

    def step(c: Any, x: Any) -> Any:
        for _ in range(20):
            c = tnp.tanh(c @ x) * most  # another program in each case
        return c, None

    c, xs = np.ones((3, 3), np.float32), np.ones((4, 3, 3), np.float32)
    monkeypatch.setattr(steps, "_MOST_LINES", most)
    assert kernels_in(lambda c, xs: lax.scan(step, c, xs)[0], c, xs) == kernels
