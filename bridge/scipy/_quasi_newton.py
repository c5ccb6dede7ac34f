"""Quasi-Newton methods: BFGS with a dense matrix, and with a limited memory.

Source: Nocedal, Wright (2006), Numerical Optimization, algorithms 6.1, 7.4 and 3.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tracebridge.numpy as tnp
from tracebridge._api.derivatives.grad import value_and_grad
from tracebridge.core.control.loops.while_loop import while_loop
from tracebridge.core.linalg.matrices import as_dtype, eye
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.util.public_path import public_path

_ARMIJO, _CURVATURE = 1e-4, 0.9

CONVERGED, TOO_LONG, NO_STEP, UNDEFINED = 0, 1, 5, -1
"""The values of ``status``."""


@public_path("tracebridge.scipy.optimize")
class OptimizeResults(NamedTuple):
    """What a search found.

    Args:
        x: where it ended.
        success: whether it converged.
        status: 0 converged, 1 too many iterations or function values, 5 no step along which the
            function decreases enough, -1 undefined: the gradient is not finite.
        fun: value there.
        jac: gradient there.
        hess_inv: estimate of the inverse Hessian; None for methods without one.
        nfev: how many function values were computed.
        njev: how many gradients.
        nit: how many steps were made.

    >>> import tracebridge as tb
    >>> tb.scipy.optimize.OptimizeResults._fields[:3]
    ('x', 'success', 'status')
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


class Limits(NamedTuple):
    """When a search ends."""

    iterations: Any
    gtol: Any
    ftol: Any
    norm: Any
    evaluations: Any
    per_step: Any


class _Search(NamedTuple):
    """A search on its way; ``memory`` is what the inverse Hessian is estimated from."""

    x: Any
    f: Any
    g: Any
    previous: Any
    memory: Any
    status: Any
    done: Any
    evaluations: Any
    steps: Any


class _Line(NamedTuple):
    """A search along a line: ``low`` is a step that decreases enough, ``high`` one too long."""

    step: Any
    low: Any
    low_f: Any
    low_slope: Any
    high: Any
    f: Any
    g: Any
    found: Any
    count: Any


def _along(objective: Callable[..., Any], s: _Search, p: Array, first: Array, most: Array) -> _Line:
    """A step that satisfies the strong Wolfe conditions, by doubling and then narrowing."""
    slope = tnp.vdot(s.g, p)

    def going(line: _Line) -> Any:
        return ~line.found & (line.count < most)

    def narrow(line: _Line) -> _Line:
        f, g = objective(s.x + line.step * p)
        here = tnp.vdot(g, p)
        # The negation takes NaN for too long a step.
        too_long = ~(f <= s.f + _ARMIJO * line.step * slope) | ((line.low > 0) & (f >= line.low_f))
        accepted = ~too_long & (tnp.abs(here) <= -_CURVATURE * slope)
        shorter = too_long | (here >= 0)
        high = tnp.where(shorter, line.step, line.high)
        low = tnp.where(shorter, line.low, line.step)
        low_f = tnp.where(shorter, line.low_f, f)
        low_slope = tnp.where(shorter, line.low_slope, here)
        width = high - low
        # The minimum of the parabola through the lower end, its slope and the upper value.
        bend = f - low_f - low_slope * width
        guess = low - low_slope * width**2 / tnp.where(bend > 0, 2 * bend, 1)
        inside = (bend > 0) & shorter & tnp.isfinite(guess)
        middle = low + 0.5 * width
        guess = tnp.clip(tnp.where(inside, guess, middle), low + 0.1 * width, high - 0.1 * width)
        following = tnp.where(tnp.isfinite(high), guess, 2 * line.step)
        step = tnp.where(accepted, line.step, following)
        return _Line(step, low, low_f, low_slope, high, f, g, accepted, line.count + 1)

    zero = tnp.zeros_like(first)
    start = _Line(
        first, zero, s.f, slope, tnp.full_like(first, tnp.inf), s.f, s.g,
        tnp.asarray(False), tnp.asarray(0, "int32"),
    )  # fmt: skip
    return while_loop(going, narrow, start)


# estimates of the inverse Hessian ----------------------------------------------------------------


def _dense_update(matrix: Array, dx: Array, dg: Array) -> Any:
    curvature = tnp.vdot(dg, dx)
    rho = 1 / tnp.where(curvature > 0, curvature, 1)
    left = eye((len(dx), len(dx)), dx.dtype) - rho * tnp.outer(dx, dg)
    updated = left @ matrix @ left.T + rho * tnp.outer(dx, dx)
    return tnp.where((curvature > 0) & tnp.isfinite(updated).all(), updated, matrix)


def _limited_update(memory: Array, dx: Array, dg: Array) -> Any:
    steps, changes, scales = memory
    curvature = tnp.vdot(dg, dx)
    good = curvature > 0

    def pushed(rows: Array, row: Array) -> Any:
        return tnp.where(good, tnp.concatenate([rows[1:], row[None]]), rows)

    scale = 1 / tnp.where(good, curvature, 1)
    return pushed(steps, dx), pushed(changes, dg), pushed(scales, scale)


def _limited_direction(memory: Array, g: Array) -> Any:
    """The product with the estimate, from the pairs that are there; others have scale 0."""
    steps, changes, scales = memory
    m = len(scales)
    q, weights = g, [tnp.zeros_like(g, shape=())] * m
    for i in reversed(range(m)):
        weights[i] = scales[i] * tnp.vdot(steps[i], q)
        q = q - weights[i] * changes[i]
    size = tnp.vdot(changes[-1], changes[-1]) * scales[-1]
    q = q * tnp.where(size > 0, 1 / tnp.where(size > 0, size, 1), 1)
    for i in range(m):
        q = q + (weights[i] - scales[i] * tnp.vdot(changes[i], q)) * steps[i]
    return -q


# the search --------------------------------------------------------------------------------------


def _norm(g: Array, which: Any) -> Any:
    if which == tnp.inf:
        return tnp.abs(g).max(initial=0)
    if which == -tnp.inf:
        return tnp.abs(g).min(initial=tnp.inf)
    return (tnp.abs(g) ** which).sum() ** (1 / which)


def descend(
    fun: Callable[..., Any], x0: Array, limits: Limits, history: int | None
) -> OptimizeResults:
    """Search from ``x0``; with a memory of ``history`` pairs, or a dense matrix."""
    objective = value_and_grad(fun)
    n = x0.shape[0]
    dense = history is None
    memory: Any = eye((n, n), x0.dtype)
    if history is not None:
        rows = tnp.zeros_like(x0, shape=(history, n))
        memory = (rows, rows, tnp.zeros_like(x0, shape=history))

    def status_of(g: Array) -> tuple[Any, Any]:
        size = _norm(g, limits.norm)
        status = tnp.where(size <= limits.gtol, CONVERGED, TOO_LONG)
        status = tnp.where(tnp.isfinite(size), status, UNDEFINED)
        return status.astype("int32"), status != TOO_LONG

    def going(s: _Search) -> Any:
        return ~s.done & (s.steps < limits.iterations) & (s.evaluations < limits.evaluations)

    def advance(s: _Search) -> _Search:
        p = -(s.memory @ s.g) if dense else _limited_direction(s.memory, s.g)
        # Roundings may spoil the estimate; the gradient always descends.
        p = tnp.where(tnp.vdot(p, s.g) < 0, p, -s.g)
        slope = tnp.vdot(p, s.g)
        first = as_dtype(tnp.minimum(1.0, 2.02 * (s.f - s.previous) / slope), s.x.dtype)
        first = tnp.where(first > 0, first, 1.0)
        line = _along(objective, s, p, first, limits.per_step)
        dx = tnp.where(line.found, line.step, 0) * p
        f, g = tnp.where(line.found, line.f, s.f), tnp.where(line.found, line.g, s.g)
        update = _dense_update if dense else _limited_update
        kept = update(s.memory, dx, g - s.g)
        status, done = status_of(g)
        scale = tnp.maximum(tnp.maximum(tnp.abs(s.f), tnp.abs(f)), 1)
        flat = line.found & (s.f - f <= limits.ftol * scale) & (limits.ftol > 0)
        status = tnp.where(flat & ~done, CONVERGED, status)
        status = tnp.where(line.found, status, NO_STEP).astype("int32")
        evaluations = s.evaluations + line.count
        return _Search(
            s.x + dx, f, g, s.f, kept, status, done | flat | ~line.found, evaluations,
            s.steps + line.found.astype(s.steps.dtype),
        )  # fmt: skip

    f, g = objective(x0)
    status, done = status_of(g)
    # As if the step before had changed the value by half the norm of the gradient.
    previous = f + tnp.sqrt(tnp.vdot(g, g)) / 2
    one, zero = tnp.asarray(1, "int32"), tnp.asarray(0, "int32")
    start = _Search(x0, f, g, as_dtype(previous, f.dtype), memory, status, done, one, zero)
    end = while_loop(going, advance, start)
    return OptimizeResults(
        x=end.x, success=end.status == CONVERGED, status=end.status, fun=end.f, jac=end.g,
        hess_inv=end.memory if dense else None, nfev=end.evaluations, njev=end.evaluations,
        nit=end.steps,
    )  # fmt: skip
