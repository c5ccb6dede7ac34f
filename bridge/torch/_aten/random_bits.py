"""Random bits: threefry in 64-bit integers, bit for bit."""

from __future__ import annotations

from typing import Any

from torch import fx

from tracebridge.core.dtypes import dtypes as d
from tracebridge.torch._aten.builder import Builder, aten, rule
from tracebridge.torch._aten.integers import masked

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@rule("threefry2x32")
def _threefry(b: Builder, k1: fx.Proxy, k2: fx.Proxy, x1: fx.Proxy, x2: fx.Proxy) -> list[Any]:
    """Twenty rounds, five times four (Salmon et al., 2011)."""
    parity = b.call(aten.bitwise_xor.Tensor, k1, k2)
    keys = [k1, k2, b.call(aten.bitwise_xor.Scalar, parity, 0x1BD11BDA)]

    def plus(x: fx.Proxy, y: fx.Proxy) -> Any:
        return masked(b, b.call(aten.add.Tensor, x, y), d.uint32)

    def turned(x: fx.Proxy, by: int) -> Any:
        left = masked(b, b.call(aten.bitwise_left_shift.Tensor_Scalar, x, by), d.uint32)
        right = b.call(aten.bitwise_right_shift.Tensor_Scalar, x, 32 - by)
        return b.call(aten.bitwise_or.Tensor, left, right)

    x1, x2 = plus(x1, keys[0]), plus(x2, keys[1])
    for i in range(5):
        for by in _ROTATIONS[i % 2]:
            x1 = plus(x1, x2)
            x2 = b.call(aten.bitwise_xor.Tensor, turned(x2, by), x1)
        x1 = plus(x1, keys[(i + 1) % 3])
        more = b.call(aten.add.Scalar, plus(x2, keys[(i + 2) % 3]), i + 1)
        x2 = masked(b, more, d.uint32)
    return [x1, x2]
