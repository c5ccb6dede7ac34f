"""jet: Taylor mode of a function of trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.values import public
from tracebridge.core.config.values import option
from tracebridge.core.control.calls.bodies import flatten_values, leaf_paths, trace_body
from tracebridge.core.control.calls.closed_call import closed_call_p
from tracebridge.core.control.calls.inline_rules import has_tangent
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError, TreeMismatchError
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.jaxpr import eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.ad_util import zeros_of
from tracebridge.core.lax.elementwise.convert import convert_element_type
from tracebridge.core.transforms.jet.series import filled, is_constant, scaled
from tracebridge.core.transforms.jet.transform import coefficients, jet_jaxpr, joined
from tracebridge.core.transforms.jet.user_rules import ZeroSeries, ZeroTerm
from tracebridge.core.tree.tree import flatten


def jet(
    fun: Callable[..., object],
    primals: Sequence[object],
    series: Sequence[object],
    factorial_scaled: bool = True,
    **_: Any,
) -> tuple[Any, Any]:
    """Derivatives of any order along a curve, in one pass.

    For a curve ``x(t)``, given by its value and its derivatives at ``t = 0``, the value and the
    derivatives of ``fun(x(t))``. The cost grows with the square of the order, where nested ``jvp``
    doubles it for each order. Loops, branches, compiled functions and functions with a rule for
    forward mode may be inside; the call composes with ``jit``, ``vmap`` and ``grad``.

    Args:
        fun: function of arrays and trees of arrays.
        primals: tuple or list of the arguments.
        series: for each argument the list of its derivatives ``[x', x'', ...]``, or an array of
            them, all of the same length. For an argument that is a tree: the tree with such lists
            in the place of its leaves. ``zero_series`` for what does not change.
        factorial_scaled: False for Taylor coefficients (``x'' / 2!``) in the place of derivatives,
            in ``series`` and in the result.

    Returns:
        ``(result, series of the result)``: a tree like the result, with lists at its leaves.

    Raises:
        ArgumentSpecError: the arguments are no sequences, or lists have different lengths.
        TreeMismatchError: a series has another structure than its argument.
        ShapeMismatchError: a term has another shape than its argument.

    Source: Griewank and Walther, "Evaluating Derivatives" (2008), chapter 13.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.jet import jet
    >>> y, (first, second) = jet(tb.lax.exp, (0.0,), ([1.0, 0.0],))
    >>> print(y, first, second)
    1.0 1.0 1.0
    """
    check_callable("jet", fun)
    for role, inputs in (("primals", primals), ("series", series)):
        if not isinstance(inputs, tuple | list):
            kind = type(inputs).__name__
            msg = f"jet({name_of(fun)}): {role} is a {kind}, expected a tuple or list"
            raise ArgumentSpecError(msg)
    if len(primals) != len(series):
        msg = f"jet({name_of(fun)}): got {len(primals)} primals and {len(series)} series"
        raise ArgumentSpecError(msg, expected="one series for each primal")
    call = f"jet({name_of(fun)})"
    values, in_tree = flatten_values(call, "primals", tuple(primals))
    order, terms = _terms(call, primals, series, values, factorial_scaled)
    curves = [[v, *t] for v, t in zip(values, terms, strict=True)]
    body = trace_body(call, fun, in_tree, tuple([v.aval for v in values]), _take_apart, "jet")
    inputs = [[h, *[None] * order] for h in body.hoisted] + curves
    flags = tuple([not is_constant(x) for x in inputs])
    program, moving = jet_jaxpr(body.jaxpr, order, flags)
    operands: list[Any] = [*[x[0] for x in inputs], *coefficients(inputs, flags)]
    if option("disable_jit"):
        outs = eval_jaxpr(program, current_trace().process, operands)
    else:
        outs = closed_call_p.bind(*operands, jaxpr=program)
    n = len(moving)
    output_series = joined(outs[:n], outs[n:], moving, order)
    scales = [math.factorial(k) if factorial_scaled else 1 for k in range(order + 1)]
    lists = [_listed(x, scales) for x in output_series]
    return body.out.unflatten([public(x[0]) for x in output_series]), body.out.unflatten(lists)


def jet2(
    fun: Callable[..., object],
    primals: Sequence[object],
    series: Sequence[object],
    *,
    factorial_scaled: bool = False,
    **_: Any,
) -> tuple[Any, Any]:
    """``jet`` with Taylor coefficients in the place of derivatives.

    >>> import tracebridge as tb
    >>> from tracebridge.experimental.jet import jet2
    >>> y, (first, second) = jet2(tb.lax.exp, (0.0,), ([1.0, 0.0],))
    >>> print(y, first, second)
    1.0 1.0 0.5
    """
    return jet(fun, primals, series, factorial_scaled)


def _take_apart(result: object) -> tuple[list[Any], Any]:
    return flatten_values("jet", "the result", result)


def _listed(x: list[Any], scales: Sequence[int]) -> list[Any]:
    """The terms of a result, zeros where it does not change."""
    if not has_tangent(x[0].aval):
        zero = zeros_of(x[0].aval)
        return [public(zero)] * (len(x) - 1)
    pairs = zip(filled(x)[1:], scales[1:], strict=True)
    return [public(scaled(c, float(s))) for c, s in pairs]


def _terms(
    call: str,
    primals: Sequence[object],
    series: Sequence[object],
    values: Sequence[object],
    factorial_scaled: bool,
) -> tuple[int, list[list[Any]]]:
    """The order, and for each leaf of the primals its coefficients."""
    lists: list[Any] = []
    for i, (primal, own_series) in enumerate(zip(primals, series, strict=True)):
        tree = flatten(primal)[1]
        if isinstance(own_series, ZeroSeries):
            lists += [own_series] * tree.num_leaves
            continue
        try:
            parts = tree.flatten_up_to(own_series)
        except ValueError as error:
            msg = f"{call}: series[{i}] has another structure than primals[{i}]"
            raise TreeMismatchError(
                msg, got=str(flatten(own_series)[1]), expected=str(tree)
            ) from error
        lists += [_rows(part) for part in parts]
    names = [f"primals{p}" for p in leaf_paths(tuple(primals))]
    for name, part in zip(names, lists, strict=True):
        if not isinstance(part, tuple | list | ZeroSeries):
            msg = f"{call}: the series of {name} is a {type(part).__name__}"
            raise ArgumentSpecError(msg, expected="a list of its derivatives, or zero_series")
    sizes = {len(p): n for n, p in zip(names, lists, strict=True) if not isinstance(p, ZeroSeries)}
    if len(sizes) > 1:
        numbers_of_terms = ", ".join([f"{n} has {size}" for size, n in sizes.items()])
        msg = f"{call}: the series have different lengths: {numbers_of_terms}"
        raise ArgumentSpecError(msg)
    order = next(iter(sizes), 0)
    scales = [math.factorial(k) if factorial_scaled else 1 for k in range(order + 1)]
    return order, [
        _coefficients(f"{call}: the series of {name}", value, part, scales, order)
        for name, value, part in zip(names, values, lists, strict=True)
    ]


def _rows(part: Any) -> Any:
    """An array of derivatives as their list."""
    return list(part) if getattr(part, "ndim", 0) else part


def _coefficients(what: str, value: Any, part: Any, scales: Sequence[int], order: int) -> list[Any]:
    """The terms of one leaf as coefficients; None where nothing changes."""
    if isinstance(part, ZeroSeries) or not has_tangent(value.aval):
        return [None] * order
    coefficients: list[Any] = []
    for k, term in enumerate(part, 1):
        if isinstance(term, ZeroTerm):
            coefficients.append(None)
            continue
        c = as_value(term)
        if c.aval.shape != value.aval.shape:
            msg = f"{what} has a term of another shape than the value"
            raise ShapeMismatchError(msg, got=c.aval.str_short(), expected=value.aval.str_short())
        dtype = value.aval.tangent.dtype
        if c.aval.dtype != dtype:
            if not c.aval.weak_type:
                msg = f"{what} has a term of another dtype than the value"
                raise DtypeMismatchError(
                    msg, got=c.aval.str_short(), expected=value.aval.tangent.str_short()
                )
            c = convert_element_type(c, dtype)
        coefficients.append(scaled(c, 1.0 / scales[k]))
    return coefficients
