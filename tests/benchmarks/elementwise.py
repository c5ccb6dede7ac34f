"""Cases of elementwise functions whose operation XLA is slow at on the CPU."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from matrices import Add, Make, floats, timed

GROUP = "elementwise functions"
N = 10**6


def _integers(dtype: str) -> tuple[Any, Any]:
    """Operands of divisions."""
    random, ends = np.random.default_rng(0), np.iinfo(dtype)
    return (
        random.integers(ends.min, ends.max, N, dtype),
        random.integers(1, 70_000, N, dtype),
    )


def _shares(count: int) -> Any:
    """Numbers in (0, 1)."""
    return np.random.default_rng(0).uniform(0.01, 0.99, count).astype(np.float32)


def _scipy(api: Any, module: str) -> Any:
    return importlib.import_module(f"{api.package}.scipy.{module}")


CASES: dict[str, Make] = {
    "floor_divide, int32": lambda api: (lambda x, y: x // y, _integers("int32")),
    "mod, int32": lambda api: (lambda x, y: x % y, _integers("int32")),
    "mod by a number, int32": lambda api: (
        lambda x, y: x % y,
        (_integers("int32")[0], np.int32(360)),
    ),
    "mod by a constant, int32": lambda api: (lambda x: x % 360, _integers("int32")[:1]),
    "mod, uint32": lambda api: (lambda x, y: x % y, _integers("uint32")),
    "mod, float32": lambda api: (lambda x, y: x % y, (floats(N), floats(N))),
    "floor_divide, float32": lambda api: (lambda x, y: x // y, (floats(N), floats(N))),
    "sin": lambda api: (api.np.sin, (floats(N),)),
    "arctan2": lambda api: (api.np.arctan2, (floats(N), floats(N))),
    "cbrt": lambda api: (api.np.cbrt, (floats(N),)),
    "expm1": lambda api: (api.np.expm1, (floats(N),)),
    "sinh": lambda api: (api.np.sinh, (floats(N),)),
    "logit": lambda api: (_scipy(api, "special").logit, (_shares(N),)),
    "beta.cdf of numbers as parameters": lambda api: (
        lambda x: _scipy(api, "stats").beta.cdf(x, 2.0, 3.0),
        (_shares(10**5),),
    ),
}


def register(case: Add) -> None:
    """Add the cases to their group."""
    for name, make in CASES.items():
        case(GROUP, name)(lambda api, make=make: timed(api, make))
