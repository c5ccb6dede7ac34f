"""Kernels beside the plain forms of the same programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge as tb
from tracebridge.core._jaxlib.ffi import KERNEL
from tracebridge.core.config.scopes import scope

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    """Normal numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def kernels_in(f: Any, *args: Any) -> int:
    """How many kernels the program of a function calls."""
    return tb.jit(f).lower(*args).as_text().count(f"@{KERNEL}")


def is_as_plain(f: Callable[..., Any], *args: Any, tolerance: float = 1e-6) -> None:
    """``f`` has the numbers of its plain form, but for ``tolerance``."""
    fast = tb.tree.leaves(tb.jit(f)(*args))
    with scope("platform_rules", False):
        plain = tb.tree.leaves(tb.jit(lambda *xs: f(*xs))(*args))
    for a, b in zip(fast, plain, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        x, y = np.asarray(a), np.asarray(b)
        largest = np.abs(np.where(np.isfinite(y), y, 0)).max(initial=0)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * largest)
