"""Programs that XLA compiles in a third of the time, where nothing depends on how it optimises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tracebridge as tb
from tracebridge.core._jaxlib.xla import QUICK_COMPILE
from tracebridge.testing.grads import check_flat, flat_function
from tracebridge.testing.rules import quickly_compiled


def check_grads(
    f: Callable[..., object],
    args: Sequence[object],
    order: int,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | Mapping[Any, float] | None = None,
    rtol: float | Mapping[Any, float] | None = None,
    eps: float | None = None,
) -> None:
    """``tracebridge.testing.check_grads`` with each order of derivatives as one program.

    XLA hardly optimises them: the rules that are checked do not depend on it.
    """
    flat, values = flat_function(f, args)
    check_flat(flat, values, order, tuple(modes), atol, rtol, eps, quickly_compiled)


def quick_jit(f: Callable[..., object]) -> Callable[..., Any]:
    """``tracebridge.jit`` that lets XLA hardly optimise."""
    return tb.jit(f, compiler_options=dict(QUICK_COMPILE))
