"""Sums of exponentials and what is made of them: shared by ``nn`` and ``scipy.special``."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.dtypes import is_complex
from tracebridge.core.runtime.arrays.argument_types import Axis
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.numpy._promote import promote_inexact
from tracebridge.numpy._staging import value_of
from tracebridge.numpy.reductions import max as largest
from tracebridge.numpy.reductions import sum as total
from tracebridge.numpy.searching import where as choose


def shift_of(a: Any, axis: Axis, where: ArrayLike | None) -> Any:
    """The largest real part over the axes, which are kept; 0 instead of infinities and NaN."""
    real = lax.real(a) if is_complex(a.dtype) else a
    best = largest(real, axis=axis, keepdims=True, initial=-np.inf, where=where)
    return lax.stop_gradient(choose(lax.is_finite(best), best, 0))


def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """See ``tracebridge.nn.logsumexp``."""
    if b is None:
        (x,) = promote_inexact(value_of(a))
        factors = None
    else:
        x, factors = promote_inexact(value_of(a), value_of(b))
        x = choose(factors != 0, x, -np.inf)
    if where is not None:
        # What is left out has no part in derivatives either, whatever stands there.
        x = choose(where, x, -np.inf)
    shift = shift_of(x, axis, None)
    terms = lax.exp(x - lax.convert_dtype(value_of(shift), x.dtype))
    if factors is not None:
        terms = terms * factors
    added = total(terms, axis=axis, keepdims=True, where=where)
    sign = lax.sign(value_of(added))
    if return_sign or not is_complex(x.dtype):
        added = lax.abs(value_of(added))
    # The logarithm of 0 has no slope: neither has an axis of nothing but minus infinity.
    none = added == 0
    out = lax.log(value_of(choose(none, 1, added)))
    out = choose(none, -np.inf, out + lax.convert_dtype(value_of(shift), out.dtype))
    if factors is not None and not return_sign and not is_complex(out.dtype):
        out = choose(sign < 0, np.nan, out)
    if not keepdims:
        out, sign = [
            total(v, axis=axis) if 0 in v.shape else _squeezed(v, axis) for v in (out, sign)
        ]
    return (out, sign) if return_sign else out


def _squeezed(v: Any, axis: Axis) -> Any:
    """Without the axes that a reduction kept."""
    if axis is None:
        return v.reshape(())
    return v.squeeze(axis)
