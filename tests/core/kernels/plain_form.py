"""Kernels beside the plain forms of the same programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.config.scopes import scope
from tracebridge.core.kernels import call
from tracebridge.core.kernels.machine import is_there

needs_kernels = pytest.mark.skipif(not is_there(), reason="llvmlite is not installed")
"""Of tests that look at kernels: without llvmlite, programs are XLA's alone."""

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    """Normal numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def kernels_in(f: Any, *args: Any) -> int:
    """How many kernels the program of a function calls."""
    return tb.jit(f).lower(*args).as_text().count(f"@{KERNEL}")


def _numbers(x: Any) -> Any:
    """An array of NumPy; of numbers of 16 bits as float32, which has all of them."""
    return np.asarray(x.astype("f4") if x.dtype.itemsize == 2 else x)


def is_as_plain(
    f: Callable[..., Any], *args: Any, tolerance: float = 1e-6, signs: bool = False
) -> None:
    """``f`` has the numbers of its plain form, but for ``tolerance``.

    ``signs``: zeros have the same signs, too.
    """
    fast = tb.tree.leaves(tb.jit(f)(*args))
    with scope("platform_rules", False):
        plain = tb.tree.leaves(tb.jit(lambda *xs: f(*xs))(*args))
    for a, b in zip(fast, plain, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        x, y = _numbers(a), _numbers(b)
        largest = np.abs(np.where(np.isfinite(y), y, 0)).max(initial=0)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * largest)
        if signs:
            zeros = (x == 0) & (y == 0)
            np.testing.assert_array_equal(np.signbit(x[zeros]), np.signbit(y[zeros]))


def texts_of(f: Any, *args: Any) -> list[str]:
    """The texts of the kernels of a program, in the order of their calls."""
    writers: list[Callable[[], str]] = []
    wait = call.wait_for_program

    def record(name: str, write: Callable[[], str]) -> None:
        writers.append(write)
        wait(name, write)

    with mock.patch.object(call, "wait_for_program", record):
        tb.jit(f).lower(*args)
    return [write() for write in writers]
