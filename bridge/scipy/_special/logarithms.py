"""Logarithms, entropies and powers."""

from __future__ import annotations

from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.numpy._promote import strong_array
from tracebridge.scipy._special import entropies, formulas
from tracebridge.scipy._special.elementwise import floats

_OF_COMPLEX = {"xlogy", "xlog1py", "logit", "expit", "boxcox", "boxcox1p"}
_STAGED = {
    name: floats(name, function, full=True, complexes=name in _OF_COMPLEX)
    for name, function in {
        "xlogy": formulas.xlogy,
        "xlog1py": formulas.xlog1py,
        "entr": formulas.entr,
        "rel_entr": lambda p, q: strong_array(entropies.rel_entr(p, q)),
        "kl_div": lambda p, q: strong_array(entropies.kl_div(p, q)),
        "logit": lambda p: strong_array(formulas.logit(p)),
        "expit": lambda *xs: lax.logistic(*xs),
        "boxcox": formulas.boxcox,
        "boxcox1p": formulas.boxcox1p,
    }.items()
}


def _call(name: str, *xs: Any) -> Any:
    return _STAGED[name](xs)


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """``x * log(y)``, which is 0 where ``x`` is.

    Args:
        x: real or complex numbers; integers become floats.
        y: argument of the logarithm.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.xlogy(0.0, 0.0))
    0.0
    """
    return _call("xlogy", x, y)


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """``x * log1p(y)``, which is 0 where ``x`` is.

    Args:
        x: real or complex numbers; integers become floats.
        y: argument of the logarithm.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.xlog1py(0.0, -1.0))
    0.0
    """
    return _call("xlog1py", x, y)


def entr(x: ArrayLike) -> Array:
    """``-x log(x)``; minus infinity below 0.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.entr(0.5))
    0.346...
    """
    return _call("entr", x)


def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """``p log(p / q)``; infinite outside of positive numbers.

    Args:
        p: numbers.
        q: numbers.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.rel_entr(1.0, 2.0))
    -0.693...
    """
    return _call("rel_entr", p, q)


def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """``p log(p / q) - p + q``; infinite outside of positive numbers.

    Args:
        p: numbers.
        q: numbers.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.kl_div(1.0, 2.0))
    0.306...
    """
    return _call("kl_div", p, q)


def logit(x: ArrayLike) -> Array:
    """``log(x / (1 - x))`` of real or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.logit(0.5))
    0.0
    """
    return _call("logit", x)


def expit(x: ArrayLike) -> Array:
    """``1 / (1 + exp(-x))`` of real or complex numbers.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.expit(0.0))
    0.5
    """
    return _call("expit", x)


def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """``(x**lmbda - 1) / lmbda``, the logarithm at 0.

    Args:
        x: real or complex numbers; integers become floats.
        lmbda: the power.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.boxcox(2.0, 2.0))
    1.5...
    """
    return _call("boxcox", x, lmbda)


def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """``((1 + x)**lmbda - 1) / lmbda``, the logarithm at 0.

    Args:
        x: real or complex numbers; integers become floats.
        lmbda: the power.

    >>> import tracebridge as tb
    >>> float(tb.scipy.special.boxcox1p(1.0, 2.0))
    1.5...
    """
    return _call("boxcox1p", x, lmbda)
