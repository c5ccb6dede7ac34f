"""All rules of the operations that change shapes agree with NumPy and with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracebridge import lax
from tracebridge.testing import check_rules


def array(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Distinct elements."""
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1).astype(dtype)


def padded(x: Any, value: Any, config: Any) -> Any:
    """What pad does, one axis after the other, with lists of elements."""
    for axis, (low, high, interior) in enumerate(config):
        rows = list(np.moveaxis(x, axis, 0))
        shape = np.moveaxis(x, axis, 0).shape[1:]
        fill = np.full(shape, value, x.dtype)
        spread: list[Any] = []
        for i, row in enumerate(rows):
            spread += ([fill] * interior if i else []) + [row]
        spread = [fill] * low + spread if low >= 0 else spread[-low:]
        spread = spread + [fill] * high if high >= 0 else spread[: len(spread) + high]
        stacked = np.stack(spread) if spread else np.zeros((0, *shape), x.dtype)
        x = np.moveaxis(stacked, 0, axis)
    return x


CASES = {
    "broadcast_in_dim": (
        lambda x: lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)),
        [array(2, 3)],
        lambda x: np.broadcast_to(x, (4, 2, 3)),
    ),
    "broadcast_in_dim of an axis of size 1": (
        lambda x: lax.broadcast_in_dim(x, (2, 1, 4, 3), (0, 2)),
        [array(2, 1)[:, :]],
        lambda x: np.broadcast_to(x.reshape(2, 1, 1, 1), (2, 1, 4, 3)),
    ),
    "broadcast_in_dim of a scalar": (
        lambda x: lax.broadcast_in_dim(x, (2, 3), ()),
        [np.float32(3.0)],
        lambda x: np.full((2, 3), x),
    ),
    "broadcast": (lambda x: lax.broadcast(x, (2, 1)), [array(3)], lambda x: np.tile(x, (2, 1, 1))),
    "broadcast_to_rank": (
        lambda x: lax.broadcast_to_rank(x, 3),
        [array(3)],
        lambda x: x[None, None],
    ),
    "reshape": (lambda x: lax.reshape(x, (3, 2)), [array(2, 3)], lambda x: x.reshape(3, 2)),
    "reshape of a scalar": (
        lambda x: lax.reshape(x, (1, 1)),
        [np.float32(2.0)],
        lambda x: x.reshape(1, 1),
    ),
    "reshape with dimensions": (
        lambda x: lax.reshape(x, (6,), (1, 0)),
        [array(2, 3)],
        lambda x: x.T.reshape(6),
    ),
    "squeeze": (lambda x: lax.squeeze(x, (0, -1)), [array(1, 3, 1)], lambda x: x[0, :, 0]),
    "expand_dims": (lambda x: lax.expand_dims(x, (0, -1)), [array(3)], lambda x: x[None, :, None]),
    "collapse": (lambda x: lax.collapse(x, 1, 3), [array(2, 3, 2)], lambda x: x.reshape(2, 6)),
    "transpose": (
        lambda x: lax.transpose(x, (2, 0, 1)),
        [array(2, 3, 4)],
        lambda x: x.transpose(2, 0, 1),
    ),
    "concatenate": (
        lambda x, y, z: lax.concatenate([x, y, z], 1),
        [array(2, 1), array(2, 3), array(2, 2)],
        lambda *xs: np.concatenate(xs, 1),
    ),
    "concatenate of ints": (
        lambda x, y: lax.concatenate([x, y], 0),
        [array(2, dtype=np.int16), array(1, dtype=np.int16)],
        lambda *xs: np.concatenate(xs, 0),
    ),
    "rev": (lambda x: lax.rev(x, (0, -1)), [array(2, 2, 3)], lambda x: x[::-1, :, ::-1]),
    "roll": (lambda x: lax.roll(x, -4, 1), [array(2, 3, 2)], lambda x: np.roll(x, -4, 1)),
    "roll in memory": (lambda x: lax.roll(x, 3, 0), [array(40, 20)], lambda x: np.roll(x, 3, 0)),
    "split": (
        lambda x: lax.split(x, (1, 0, 3), -1),
        [array(2, 4)],
        lambda x: np.split(x, (1, 1), -1),
    ),
    "tile": (lambda x: lax.tile(x, (2, 3)), [array(2, 1)], lambda x: np.tile(x, (2, 3))),
    "stack": (
        lambda x, y, z: lax.stack([x, y, z], -1),
        [array(2, 3), array(2, 3), array(2, 3)],
        lambda *xs: np.stack(xs, -1),
    ),
    "unstack": (lambda x: lax.unstack(x, 1)[1:], [array(2, 3)], lambda x: [x[:, 1], x[:, 2]]),
    "pad": (
        lambda x, v: lax.pad(x, v, ((1, 2, 0), (0, 1, 2))),
        [array(2, 3), np.float32(9.0)],
        lambda x, v: padded(x, v, ((1, 2, 0), (0, 1, 2))),
    ),
    "pad that cuts": (
        lambda x, v: lax.pad(x, v, ((-1, 2, 1), (3, -2, 0))),
        [array(3, 4), np.float32(9.0)],
        lambda x, v: padded(x, v, ((-1, 2, 1), (3, -2, 0))),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rules_agree(name: str) -> None:
    """Value, jit, derivatives of both modes and orders, and batching are those of NumPy."""
    fun, args, reference = CASES[name]

    check_rules(fun, *args, reference=reference)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "bfloat16", "complex64"])
@pytest.mark.parametrize(
    "name",
    ["reshape", "transpose", "rev", "roll in memory", "broadcast_in_dim", "split", "tile", "stack"],
)
def test_every_dtype_moves(name: str, dtype: str) -> None:
    """Moving elements about does not look at them."""
    fun, args, reference = CASES[name]

    check_rules(fun, *[a.astype(dtype) for a in args], reference=reference, order=0, vmap=False)


def test_zero_size_arrays() -> None:
    """Arrays without elements go through every operation."""
    empty = np.zeros((0, 3), np.float32)

    check_rules(lambda x: lax.pad(x, 0.0, ((1, 0, 2), (0, 0, 1))), empty, order=1)
    check_rules(lambda x: lax.concatenate([x, x], 0), empty, order=1)
    check_rules(lambda x: lax.rev(x, (0, 1)), empty, order=1)
    check_rules(lambda x: lax.roll(x, 2, 0), empty, order=1)
    check_rules(lambda x: lax.tile(x, (2, 2)), empty, order=1)
