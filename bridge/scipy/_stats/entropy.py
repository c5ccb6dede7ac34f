"""The entropy of Poisson numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge.scipy._special import formulas as f
from tracebridge.scipy._special.elementwise import floats

# Of 1/mu, 1/mu^2, ...: what half the logarithm of 2 pi e mu lacks (Evans and Boersma 1988).
_TAIL = (
    -1 / 12, -1 / 24, -19 / 360, -9 / 80, -863 / 2520, -1375 / 1008, -33953 / 5040, -57281 / 1440,
    -3250433 / 11880,
)  # fmt: skip


def _poisson_entropy(mu: Any, loc: Any) -> Any:
    del loc  # a shift has no effect
    # The expansion has the last digit from these rates on.
    large = 64.0 if mu.dtype == np.float64 else 12.0
    is_far = mu > large
    inside = (mu > 0) & ~is_far
    near = tnp.expand_dims(tnp.where(inside, mu, 1), -1)
    last = int(large + 12 * math.sqrt(large))
    k = tnp.arange(last, dtype=mu.dtype)
    log = k * tnp.log(near) - near - f.gammaln(k + 1)
    total = -(tnp.exp(log) * log).sum(axis=-1)
    far = tnp.where(is_far, mu, large)
    tail: Any = tnp.zeros_like(far)
    for c in reversed(_TAIL):
        tail = (tail + c) / far
    expansion = 0.5 * (tnp.log(far) + math.log(2 * math.pi * math.e)) + tail
    # At 0 the slope is that of this, infinite.
    start = -f.xlogy(tnp.where(mu == 0, mu, 0), tnp.where(mu == 0, mu, 1))
    entropy = tnp.where(is_far, expansion, tnp.where(inside, total, start))
    return tnp.where(mu >= 0, entropy, math.nan)


POISSON_ENTROPY = floats("poisson.entropy", _poisson_entropy, full=True)
