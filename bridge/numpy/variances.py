"""Variances and standard deviations over axes."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import to_inexact
from tracebridge.core.dtypes.dtypes import is_complex, is_float, is_inexact
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, kind_of
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.runtime.planned import Planned
from tracebridge.numpy._planning import static_dtype
from tracebridge.numpy._promote import broadcast_to, check_no_out, hashable_axis, normalize_axes
from tracebridge.numpy.reductions import count_of, count_where, mean_of, sum_of


def _var(
    x: Any,
    axis: Any,
    dtype: Any,
    keepdims: bool,
    ddof: Any,
    root: bool,
    where: Any,
    mean: Any = None,
) -> Any:
    axes = normalize_axes(axis, x.aval.ndim, "var")
    kind = dtype or x.aval.dtype
    kind = kind if is_inexact(kind) else to_inexact(kind)
    wide = np.dtype(np.float32) if is_float(kind) and kind.itemsize < 4 else kind
    x = lax.convert_dtype(x, wide)
    if mean is None:
        mean = mean_of(x, axes, None, True, None, where)
    center = lax.sub(x, broadcast_to(lax.convert_dtype(mean, wide), x.aval.shape))
    if is_complex(wide):
        squares = lax.add(lax.square(lax.real(center)), lax.square(lax.imag(center)))
        kind = kind if not is_complex(kind) else squares.aval.dtype
    else:
        squares = lax.square(center)
    total = sum_of(squares, axes, None, keepdims, None, where)
    if where is None:
        count: Any = lax.full_of(total.aval.update(shape=()), count_of(x, axes) - ddof)
    else:
        count = lax.sub(count_where(x, where, axes, keepdims, total.aval.dtype), float(ddof))
    result = lax.div(total, count)
    return lax.convert_dtype(lax.sqrt(result) if root else result, kind)


_var_planned = Planned(lambda x, *s: _var(x, *s, where=None), "var", exact=True, judges=False)


_var_where = Planned(lambda x, w, *s: _var(x, *s, where=w), "var", exact=True, judges=False)


_var_mean = Planned(
    lambda x, m, *s: _var(x, *s, where=None, mean=m), "var", exact=True, judges=False
)


_var_both = Planned(
    lambda x, w, m, *s: _var(x, *s, where=w, mean=m), "var", exact=True, judges=False
)


def _variance(
    name: str,
    a: Any,
    axis: Any,
    dtype: Any,
    keepdims: bool,
    ddof: Any,
    where: Any,
    mean: Any,
    correction: Any,
) -> Any:
    if correction is not None:
        if ddof:
            msg = f"{name}: ddof={ddof} and correction={correction} are two names of one argument"
            raise ArgumentValueError(msg, hint="give one of them")
        ddof = correction
    if not isinstance(ddof, int | float | np.number):
        msg = f"{name}: ddof is {kind_of(ddof)}, expected a number"
        raise ArgumentTypeError(msg)
    root = name == "std"
    statics = (hashable_axis(axis, name), static_dtype(name, dtype), bool(keepdims), ddof, root)
    if mean is None:
        return _var_planned((a,), statics) if where is None else _var_where((a, where), statics)
    return _var_mean((a, mean), statics) if where is None else _var_both((a, where, mean), statics)


def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    """Variance over axes; divides by ``n - ddof`` (``correction`` is another name of ``ddof``).

    ``mean`` is used instead of the mean of ``a`` if given (with reduced axes kept).

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.var(tnp.array([1.0, 3.0])))
    1.0
    """
    try:
        check_no_out("var", out)
        return _variance("var", a, axis, dtype, keepdims, ddof, where, mean, correction)
    except Exception as error:
        hide_internal_frames(error)
        raise


def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: float | None = None,
) -> Any:
    """Standard deviation over axes: the square root of ``var``.

    >>> import tracebridge.numpy as tnp
    >>> float(tnp.std(tnp.array([1.0, 3.0])))
    1.0
    """
    try:
        check_no_out("std", out)
        return _variance("std", a, axis, dtype, keepdims, ddof, where, mean, correction)
    except Exception as error:
        hide_internal_frames(error, "std")
        raise
