"""What the tests of shard_map share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge as tb

Host = np.ndarray[Any, Any]
Fun = Callable[..., Any]
TOL = {"rtol": 2e-4, "atol": 2e-5}


def mesh(*sizes: int) -> Any:
    """The first devices in a grid with the axes x, y, ..."""
    n = int(np.prod(sizes))
    names = tuple("xyz"[: len(sizes)])
    return tb.make_mesh(sizes, names, tb.sharding.AxisType.Auto, devices=tb.devices()[:n])


def over(f: Fun, ins: Any, outs: Any, sizes: tuple[int, ...] = (2, 4), **options: Any) -> Fun:
    """``f`` over a grid of devices."""
    return tb.shard_map(f, mesh=mesh(*sizes), in_specs=ins, out_specs=outs, **options)


def sample(*shape: int, seed: int = 0) -> Host:
    """Random numbers, the same each time."""
    return np.random.default_rng(seed).normal(size=shape).astype("f4")


X = sample(8, 8)
