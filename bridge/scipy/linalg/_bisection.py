"""Eigenvalues of symmetric tridiagonal matrices by bisection: no matrix is made of the diagonals.

Source: Barth, Martin, Wilkinson (1967), Numer. Math. 9: Sturm counts, for all eigenvalues at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge.core.linalg.matrices import repeated

SMALL = 64
"""Up to so many rows LAPACK's decomposition of the whole matrix is as fast."""


def bisected(main: Any, beside: Any, first: int, last: int) -> Any:
    """The ascending eigenvalues of numbers ``first`` to ``last - 1``, with an error of eps |T|.

    Args:
        main: real diagonal, of shape ``(n,)``.
        beside: the elements beside it, real or complex, of shape ``(n - 1,)``.
        first: which eigenvalue is the first one wanted, from 0.
        last: the one behind the last one.
    """
    n = main.shape[0]
    size = tnp.abs(beside)
    kind = np.finfo(main.dtype)
    edge = tnp.zeros(1, size.dtype)
    radius = tnp.concatenate([edge, size]) + tnp.concatenate([size, edge])
    scale = tnp.max(tnp.abs(main) + radius)
    scale = tnp.where(scale == 0, 1, scale)
    # Squares of a matrix of size 1 neither overflow nor vanish as a whole.
    main, size = main / scale, size / scale
    squares = tnp.concatenate([edge, size * size])
    wanted = tnp.arange(first, last, dtype=np.int32)
    least = float(kind.tiny) / float(kind.eps)

    def count(x: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            q, below = state
            q = main[i] - x - squares[i] / q
            q = tnp.where(tnp.abs(q) < least, -least, q)
            return q, below + (q < 0).astype(np.int32)

        return repeated(n, step, (tnp.ones_like(x), tnp.zeros_like(wanted)))[1]

    def halve(_: Any, state: Any) -> Any:
        low, high = state
        middle = 0.5 * (low + high)
        is_above = count(middle) > wanted
        return tnp.where(is_above, low, middle), tnp.where(is_above, middle, high)

    bound = tnp.full(wanted.shape, 1 + 4 * float(kind.eps), main.dtype)
    low, high = repeated(kind.nmant + 4, halve, (-bound, bound))
    eigenvalues = 0.5 * (low + high) * scale
    return tnp.where(tnp.isfinite(scale), eigenvalues, np.nan)
