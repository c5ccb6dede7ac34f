"""MLIR types of avals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp

HUGE: dict[str, Callable[[], Any]] = {
    "eager": lambda: tnp.zeros((2**40, 2**40)),
    "bytes": lambda: tnp.zeros(2**61),
    "one size": lambda: tnp.full(2**70, 1.0),
    "iota": lambda: lax.iota(np.int32, 2**62),
    "inside jit": lambda: tb.jit(lambda x: (tnp.zeros((2**40, 2**40)) + x).sum())(1.0),
    "exp": lambda: tb.jit(lambda x: tnp.exp(tnp.zeros(2**62) + x).sum())(1.0),
    "rows": lambda: tb.jit(lambda x: tnp.exp(tnp.zeros((2**53, 1024)) + x).sum(-1))(1.0),
    "vmap": lambda: tb.jit(tb.vmap(lambda x: x + tnp.zeros(2**60)))(tnp.ones(8)),
    "lower": lambda: tb.jit(lambda x: tnp.zeros((2**40, 2**40)) + x).lower(1.0),
    "scan": lambda: lax.scan(lambda c, _: (c, tnp.zeros(2**60)), 0.0, None, length=2),
}


@pytest.mark.parametrize("case", HUGE)
def test_sizes_beyond_64_bits_are_refused(case: str) -> None:
    """Arrays of 2**63 bytes and more end neither the process nor later programs."""
    with pytest.raises(ValueError, match=r"expected fewer than 2\*\*63 bytes"):
        HUGE[case]()
    assert 3.0 == float(tnp.ones(3).sum())


def test_shapes_of_huge_arrays_can_be_told() -> None:
    """Only programs are limited: shapes are known without one, and empty arrays are small."""
    assert (2**40, 2**40) == tb.eval_shape(lambda: tnp.zeros((2**40, 2**40))).shape
    assert (0, 2**61) == tnp.zeros((0, 2**61)).shape
