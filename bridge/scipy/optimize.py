"""Minima of functions, as in ``scipy.optimize``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tracebridge.numpy as tnp
from tracebridge.core.dtypes.dtypes import is_complex, is_float
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import shield
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.scipy._quasi_newton import Limits, OptimizeResults, descend

__all__ = ["OptimizeResults", "minimize"]

_LBFGS = "l-bfgs-experimental-do-not-rely-on-this"
_OPTIONS = {
    "bfgs": ("maxiter", "norm", "gtol", "line_search_maxiter"),
    _LBFGS: ("maxiter", "norm", "maxcor", "ftol", "gtol", "maxfun", "maxgrad", "maxls"),
}


def _start(x0: ArrayLike) -> Any:
    """The first point as a vector of floats."""
    start: Any = tnp.asarray(x0)
    if start.ndim != 1:
        msg = f"minimize: x0 has {start.ndim} axes, expected a vector"
        raise RankError(msg, hint="flatten it by tracebridge.flatten_util.ravel_pytree")
    if is_complex(start.dtype):
        msg = f"minimize: x0 is {start.dtype}, expected real numbers"
        raise UnsupportedDtypeError(msg, hint="search for real and imaginary parts side by side")
    return start if is_float(start.dtype) else start.astype(float)


def minimize(
    fun: Callable[..., Any],
    x0: ArrayLike,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """A local minimum of a function, whose gradient is derived from it.

    Args:
        fun: ``fun(x, *args)`` gives a real scalar; ``x`` is a vector.
        x0: where to start, a real vector.
        args: further arguments of ``fun``.
        method: "BFGS", which keeps a dense inverse Hessian, or
            "l-bfgs-experimental-do-not-rely-on-this", which keeps a few differences of gradients.
        tol: the option ``gtol``, if that is not given.
        options: ``gtol`` (1e-5), the norm of the gradient that ends the search, and ``norm``
            (infinity) which one it is; ``maxiter`` (200 per unknown); ``line_search_maxiter``
            or ``maxls`` (20) function values per step; for the second method also ``maxcor`` (10)
            differences, ``ftol`` (relative change of values that ends the search), ``maxfun``
            and ``maxgrad``.

    Returns:
        An ``OptimizeResults``. The search can be traced and mapped, but not differentiated in
        reverse mode.

    Raises:
        ArgumentTypeError: ``args`` is no tuple.
        ArgumentValueError: no such method or option.
        RankError: ``x0`` is no vector, or ``fun`` gives no scalar.
        UnsupportedDtypeError: ``x0`` is complex.

    >>> import tracebridge as tb
    >>> def f(x):
    ...     return ((x - tb.numpy.array([1.0, 2.0])) ** 2).sum()
    >>> found = tb.scipy.optimize.minimize(f, tb.numpy.zeros(2), method="BFGS")
    >>> bool(found.success), [round(v, 3) for v in found.x.tolist()]
    (True, [1.0, 2.0])
    """
    if not isinstance(args, tuple):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass one
        msg = f"minimize: args is of type {type(args).__name__}, expected a tuple"
        raise ArgumentTypeError(msg, hint="write (x,) for one argument")
    kind = str(method).lower()
    if kind not in _OPTIONS:
        msg = f"minimize: method is {method!r}, expected 'BFGS' or {_LBFGS!r}"
        raise ArgumentValueError(msg)
    settings = dict(options or {})
    unknown = sorted(settings.keys() - set(_OPTIONS[kind]))
    if unknown:
        msg = f"minimize: unknown options {unknown} of {method!r}"
        raise ArgumentValueError(msg, expected=f"some of {list(_OPTIONS[kind])}")
    start = _start(x0)

    def objective(x: Array) -> Any:
        value: Any = tnp.asarray(fun(x, *args))
        if value.ndim:
            msg = f"minimize: fun gives an array of shape {value.shape}, expected a scalar"
            raise RankError(msg)
        return value

    most = settings.get("maxiter")
    limits = Limits(
        iterations=start.shape[0] * 200 if most is None else most,
        gtol=settings.get("gtol", 1e-5 if tol is None else tol),
        ftol=settings.get("ftol", 0.0 if kind == "bfgs" else 2.220446049250313e-09),
        norm=settings.get("norm", tnp.inf),
        evaluations=_smallest(settings.get("maxfun"), settings.get("maxgrad")),
        per_step=settings.get("line_search_maxiter", settings.get("maxls", 20)),
    )
    history = None if kind == "bfgs" else int(settings.get("maxcor", 10))
    return descend(objective, start, limits, history)


def _smallest(*limits: Any) -> Any:
    found = [x for x in limits if x is not None]
    return min(found) if found else 2**31 - 1


shield(globals(), __name__)
