"""Short forms of rules that users add."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.transforms.jet.series import scaled
from tracebridge.core.transforms.jet.transform import derivative, run_jet
from tracebridge.core.transforms.jet.user_rules import (
    derivatives,
    from_derivatives,
    jet_rules,
    zero_series,
)


def deflinear(prim: Primitive) -> None:
    """Say that a primitive is linear in all its arguments together.

    Args:
        prim: the primitive.

    >>> from tracebridge import lax
    >>> from tracebridge.experimental import jet
    >>> jet.deflinear(lax.neg_p)
    >>> print(jet.jet(lax.neg, (1.0,), ([2.0],))[1])
    [Array(-2., dtype=float32, weak_type=True)]
    """
    jet_rules[prim] = functools.partial(linear_prop, prim)


def linear_prop(
    prim: Primitive, primals_in: Sequence[Any], series_in: Sequence[object], **params: Any
) -> tuple[Any, Any]:
    """The rule of a linear primitive: it applies to each derivative.

    >>> from tracebridge import lax
    >>> from tracebridge.experimental import jet
    >>> jet.linear_prop(lax.neg_p, [lax.full((2,), 1.0)], [[lax.full((2,), 2.0)]])[1]
    [Array([-2., -2.], dtype=float32, weak_type=True)]
    """
    out = prim.bind(*primals_in, **params)
    return out, [prim.bind(*terms, **params) for terms in zip(*series_in, strict=True)]


def defzero(prim: Primitive) -> None:
    """Say that the results of a primitive do not change with its arguments.

    Args:
        prim: the primitive.

    >>> from tracebridge import lax
    >>> from tracebridge.experimental import jet
    >>> jet.defzero(lax.sign_p)
    >>> print(jet.jet(lax.sign, (2.0,), ([1.0],))[1])
    [Array(0., dtype=float32, weak_type=True)]
    """
    jet_rules[prim] = functools.partial(zero_prop, prim)


def zero_prop(
    prim: Primitive, primals_in: Sequence[Any], series_in: Sequence[object], **params: Any
) -> tuple[Any, Any]:
    """The rule of a primitive whose derivative is zero.

    >>> from tracebridge import lax
    >>> from tracebridge.experimental import jet
    >>> jet.zero_prop(lax.sign_p, [lax.full((1,), 2.0)], [[lax.full((1,), 1.0)]])[1]
    zero_series
    """
    del series_in
    return prim.bind(*primals_in, **params), zero_series


def def_deriv(prim: Primitive, deriv: Callable[[Any], Any]) -> None:
    """Give the derivative of a primitive of one argument as a function.

    Args:
        prim: the primitive, which applies elementwise.
        deriv: function of the argument.

    >>> from tracebridge import lax
    >>> from tracebridge.experimental import jet
    >>> jet.def_deriv(lax.erf_p, lambda x: lax.exp(-x * x) * 1.1283791)
    >>> round(float(jet.jet(lax.erf, (0.0,), ([1.0],))[1][0]), 4)
    1.1284
    """
    jet_rules[prim] = functools.partial(deriv_prop, prim, deriv)


def deriv_prop(
    prim: Primitive,
    deriv: Callable[[Any], Any],
    primals_in: Sequence[Any],
    series_in: Sequence[Any],
    **params: Any,
) -> tuple[Any, Any]:
    """The rule of a primitive of one argument, whose derivative is ``deriv``.

    >>> from tracebridge import lax
    >>> from tracebridge.experimental import jet
    >>> x = lax.full((1,), 0.0)
    >>> jet.deriv_prop(lax.sin_p, lax.cos, [x], [[x + 3.0]])[1]
    [Array([3.], dtype=float32, weak_type=True)]
    """
    (x,) = primals_in
    order = len(series_in[0])
    curve = from_derivatives(x, series_in[0], order)
    slope = _jet_of(
        lambda v, t: lax.mul(deriv(v), t), [curve[:order], derivative(curve)], order - 1
    )
    out = prim.bind(x, **params)
    return out, derivatives([out, *[scaled(c, 1.0 / k) for k, c in enumerate(slope, 1)]])


def def_comp(prim: Primitive, comp: Callable[..., object], **kwargs: object) -> None:
    """Give a primitive as a composition of other operations, for Taylor mode only.

    Args:
        prim: the primitive.
        comp: function of the arguments that computes the same.
        **kwargs: further arguments of ``comp``.

    >>> from tracebridge import lax
    >>> from tracebridge.experimental import jet
    >>> jet.def_comp(lax.tan_p, lambda x: lax.sin(x) / lax.cos(x))
    >>> print(jet.jet(lax.tan, (0.0,), ([1.0],))[1])
    [Array(1., dtype=float32, weak_type=True)]
    """

    def rule(primals_in: Sequence[object], series_in: Sequence[Any], **params: Any) -> Any:
        order = len(series_in[0])
        curves = [
            from_derivatives(x, terms, order)
            for x, terms in zip(primals_in, series_in, strict=True)
        ]
        out = _jet_of(functools.partial(comp, **kwargs, **params), curves, order)
        return out[0], derivatives(out)

    jet_rules[prim] = rule


def _jet_of(fun: Callable[..., object], curves: list[list[Any]], order: int) -> list[Any]:
    """A function of values, with one result, applied to series."""
    jaxpr = stage(lambda *xs: [as_value(fun(*xs))], [c[0].aval for c in curves], locate=False)
    return run_jet(jaxpr, curves, order)[0]
