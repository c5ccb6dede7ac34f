"""Random bits: threefry in unsigned integers, bit for bit."""

from __future__ import annotations

import tensorflow as tf

from tracebridge.tf._native.builder import Builder, Tensor, rule

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@rule("threefry2x32")
def _threefry(b: Builder, k1: Tensor, k2: Tensor, x1: Tensor, x2: Tensor) -> list[Tensor]:
    """Twenty rounds, five times four (Salmon et al., 2011)."""
    xor = tf.bitwise.bitwise_xor

    def number(value: int) -> Tensor:
        return tf.constant(value, tf.uint32)

    def turned(x: Tensor, by: int) -> Tensor:
        left = tf.bitwise.left_shift(x, number(by))
        return tf.bitwise.bitwise_or(left, tf.bitwise.right_shift(x, number(32 - by)))

    keys = [k1, k2, xor(xor(k1, k2), number(0x1BD11BDA))]
    x1, x2 = x1 + keys[0], x2 + keys[1]
    for i in range(5):
        for by in _ROTATIONS[i % 2]:
            x1 += x2
            x2 = xor(turned(x2, by), x1)
        x1 += keys[(i + 1) % 3]
        x2 += keys[(i + 2) % 3] + number(i + 1)
    return [x1, x2]
