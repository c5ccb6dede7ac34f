"""Cases of sums over products: weighted sums, outer products for each sample, small loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp
from matrices import Add, Make, floats, timed

GROUP = "sums of products"


def _recurrent(api: Any) -> Callable[..., Any]:
    """The gradient of a recurrent network: products of few rows with one matrix."""

    def loss(w: Any, x: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = api.np.tanh(h @ w.T + x)
            return h, h

        return api.lax.scan(step, x[0] * 0, x)[1].sum()

    return api.grad(loss)


def _ragged() -> tuple[Any, ...]:
    """1024 rows in 64 groups of unlike sizes, and a matrix for each."""
    sizes = onp.random.default_rng(0).multinomial(1024, [1 / 64] * 64).astype("int32")
    return floats(1024, 64), floats(64, 64, 64), sizes


CASES: dict[str, Make] = {
    "weighted sums of rows": lambda api: (
        lambda x, w: (x * w).sum(1),
        (floats(1000, 1000), floats(1000)),
    ),
    "weighted sums of columns": lambda api: (
        lambda x, w: (x * w[:, None]).sum(0),
        (floats(1000, 1000), floats(1000)),
    ),
    "weighted sums in 256 matrices": lambda api: (
        lambda x, w: (x * w[:, None]).sum(2),
        (floats(256, 64, 64), floats(256, 64)),
    ),
    "squared norms of 256 outer products": lambda api: (
        lambda x, g: ((x[:, :, None] * g[:, None]) ** 2).sum((1, 2)),
        (floats(256, 32), floats(256, 64)),
    ),
    "weighted sum of 256 outer products": lambda api: (
        lambda s, x, g: (s[:, None, None] * x[:, :, None] * g[:, None]).sum(0),
        (floats(256), floats(256, 32), floats(256, 64)),
    ),
    "gradient of a loop of products": lambda api: (
        _recurrent(api),
        (floats(128, 128) / 12, floats(100, 16, 128)),
    ),
    "ragged product of 64 groups": lambda api: (api.lax.ragged_dot, _ragged()),
    "ragged product of 64 groups, dx": lambda api: (
        api.grad(lambda x, w, sizes: (api.lax.ragged_dot(x, w, sizes) ** 2).sum()),
        _ragged(),
    ),
    "ragged product of 64 groups, dw": lambda api: (
        api.grad(lambda x, w, sizes: (api.lax.ragged_dot(x, w, sizes) ** 2).sum(), 1),
        _ragged(),
    ),
}


def register(case: Add) -> None:
    """Add the cases to their group."""
    for name, make in CASES.items():
        case(GROUP, name)(lambda api, make=make: timed(api, make))
