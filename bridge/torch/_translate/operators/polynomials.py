"""Orthogonal polynomials: by their recurrences, of degrees that are known when the program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tracebridge.numpy as tnp
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.torch._translate.numbers import Operator, cast, common_dtype

# What a degree and the two before it have to do with each other: next of (k, x, here, before).
Recurrence = Callable[[Any, Any, Any, Any], Any]


def _chebyshev(k: Any, x: Any, here: Any, before: Any) -> Any:
    del k
    return 2 * x * here - before


def _hermite(k: Any, x: Any, here: Any, before: Any) -> Any:
    return 2 * (x * here - k * before)


def _hermite_e(k: Any, x: Any, here: Any, before: Any) -> Any:
    return x * here - k * before


def _laguerre(k: Any, x: Any, here: Any, before: Any) -> Any:
    return ((2 * k + 1 - x) * here - k * before) / (k + 1)


def _legendre(k: Any, x: Any, here: Any, before: Any) -> Any:
    return ((2 * k + 1) * x * here - k * before) / (k + 1)


def _polynomial(
    first: Callable[[Any], Any], step: Recurrence, *, shifted: bool = False
) -> Operator:
    """Values at ``x`` of degree ``n``, which is 0 below it; ``first`` is that of degree 1."""

    def run(x: Any, n: Any) -> Any:
        dtype = common_dtype(x, n, floats=True)
        at = cast(x, dtype)
        at = 2 * at - 1 if shifted else at
        at, degree = tnp.broadcast_arrays(at, cast(n, np.dtype(np.int32)))
        last = tnp.max(degree, initial=0)

        def body(carry: Any) -> Any:
            k, before, here, found = carry
            after = step(cast(k, dtype), at, here, before)
            return k + 1, here, after, tnp.where(degree == k + 1, after, found)

        one, linear = tnp.ones_like(at), first(at)
        found = tnp.where(degree < 0, 0 * one, tnp.where(degree == 0, one, linear))
        return while_loop(lambda c: c[0] < last, body, (np.int32(1), one, linear, found))[3]

    return run


_CHEBYSHEV: dict[str, Callable[[Any], Any]] = {
    "t": lambda x: x,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}
_POLYNOMIALS: dict[str, Operator] = {
    **{f"chebyshev_polynomial_{k}": _polynomial(f, _chebyshev) for k, f in _CHEBYSHEV.items()},
    **{
        f"shifted_chebyshev_polynomial_{k}": _polynomial(f, _chebyshev, shifted=True)
        for k, f in _CHEBYSHEV.items()
    },
    "hermite_polynomial_h": _polynomial(lambda x: 2 * x, _hermite),
    "hermite_polynomial_he": _polynomial(lambda x: x, _hermite_e),
    "laguerre_polynomial_l": _polynomial(lambda x: 1 - x, _laguerre),
    "legendre_polynomial_p": _polynomial(lambda x: x, _legendre),
}

ROWS: dict[str, Operator] = {
    f"special_{name}.{overload}": run
    for name, run in _POLYNOMIALS.items()
    for overload in ("default", "x_scalar", "n_scalar")
}
