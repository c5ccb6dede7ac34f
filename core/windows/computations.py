"""Computations that combine two elements: how they are traced, and how many elements are combined.

XLA's own operations run a computation element by element, and have no derivatives. Where one is
needed, or where a computation closes over values, arrays are combined by halves instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core.control.calls.bodies import Body, flatten_values, trace_body
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.dtypes.dtypes import is_bool, is_float, is_inexact, is_integer, is_signed
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    EffectError,
    TreeMismatchError,
)
from tracebridge.core.interpreters.batching import batch_flat
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.ir.jaxpr import Jaxpr, eval_jaxpr
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.values import Literal
from tracebridge.core.lax.families import operands
from tracebridge.core.lax.reduce.extremes import largest, smallest
from tracebridge.core.tree.tree import PyTreeDef

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike
    from tracebridge.core.ir.value import Value

Combine = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


def checked_operands(
    call: str, operand: object, init: object, computation: object
) -> tuple[list[Value], list[Value], PyTreeDef]:
    """Operands of one shape and their initial values, flat, and the structure that both have.

    Raises:
        TreeMismatchError: the structures differ.
        ShapeMismatchError: operands of different shapes.
        RankError: an initial value is no scalar.
        DtypeMismatchError: an initial value has another dtype than its operand.
    """
    xs, tree = flatten_values(call, "operands", operand)
    starts, init_tree = flatten_values(call, "init_values", init)
    if tree != init_tree:
        msg = f"{call}: the operands and the initial values differ in structure"
        raise TreeMismatchError(msg, got=str(init_tree), expected=str(tree))
    if not xs:
        msg = f"{call}: there are no operands, expected at least one"
        raise ArgumentSpecError(msg)
    pairs = [
        operands(call, x, _whole(call, s, x, computation)) for x, s in zip(xs, starts, strict=True)
    ]
    for x, start in pairs:
        if x.aval.shape != xs[0].aval.shape:
            msg = f"{call}: operands of shapes {xs[0].aval.shape} and {x.aval.shape}"
            raise ShapeMismatchError(msg, expected="one shape")
        if start.aval.ndim:
            msg = f"{call}: an initial value is {start.aval.str_short()}, expected a scalar"
            raise RankError(msg)
        if start.aval.dtype != x.aval.dtype:
            got = f"{start.aval.str_short()} for {x.aval.str_short()}"
            msg = f"{call}: an initial value has another dtype than its operand: {got}"
            raise DtypeMismatchError(msg, hint="convert it with convert_element_type")
    return [x for x, _ in pairs], [start for _, start in pairs], tree


def _whole(call: str, start: Value, x: Value, computation: object) -> Value:
    """``start``; as an integer where a Python float is one and the operand holds integers.

    So that ``0.0`` starts sums of any dtype, and ``-inf`` maxima; an array 0 of another dtype
    starts sums over whole axes, too.
    """
    aval, dtype = start.aval, x.aval.dtype
    neutral = 0 if computation is lax.add else 1 if computation is lax.mul else None
    numbers = call == "reduce" and not (aval.weak_type or is_bool(dtype) or is_bool(aval.dtype))
    if numbers and neutral is not None and _known(start) == neutral:
        return Literal(neutral, aval.update(dtype=dtype))
    if type(start) is Literal and aval.weak_type and is_float(aval.dtype) and is_integer(dtype):
        number = float(start.value)
        if number.is_integer():
            return Literal(int(number), aval.update(dtype=default_int()))
        if math.isinf(number) and (computation is lax.max or computation is lax.min):
            end = largest(dtype) if number > 0 else smallest(dtype)
            return Literal(end, aval.update(dtype=dtype, weak_type=False))
    return start


def _known(value: Value) -> Any:
    """The number that a scalar is, None where that is not known yet."""
    if type(value) is Literal:
        return value.value
    return np.asarray(value)[()] if value._trace is None and not value.aval.ndim else None


def trace_computation(
    call: str, computation: Callable[[Any, Any], Any], xs: Sequence[Value], tree: PyTreeDef
) -> Body:
    """``computation`` of two trees of scalars like ``xs``, as a Jaxpr.

    Raises:
        ArgumentSpecError: it is no function.
        TreeMismatchError: it returns another structure.
        ShapeMismatchError, DtypeMismatchError: it returns something else than such scalars.
        EffectError: it has side effects.
    """
    if not callable(computation):
        kind = type(computation).__name__
        msg = f"{call}: computation is {computation!r} of type {kind}, expected a function"
        raise ArgumentSpecError(msg)
    scalars = [x.aval.strong.update(shape=()) for x in xs]

    def take_apart(result: object) -> tuple[list[Any], Any]:
        values, out_tree = flatten_values(call, "the result of computation", result)
        if out_tree != tree:
            msg = f"{call}: computation returned another structure than the operands have"
            raise TreeMismatchError(msg, got=str(out_tree), expected=str(tree))
        for i, (value, scalar) in enumerate(zip(values, scalars, strict=True)):
            got = value.aval
            if got.shape != () or (got.dtype != scalar.dtype and not got.weak_type):
                msg = f"{call}: computation returned {got.str_short()}"
                error = DtypeMismatchError if got.shape == () else ShapeMismatchError
                raise error(msg, expected=scalar.str_short())
            values[i] = lax.convert_dtype(value, scalar.dtype)
        return values, None

    # A pair of trees like that of the operands.
    pair_tree = _pair_of(tree)
    key = (call, tree)
    body = trace_body(call, computation, pair_tree, (*scalars, *scalars), take_apart, key)
    if body.jaxpr.effects:
        msg = f"{call}: computation has side effects, and how often it runs is not defined"
        raise EffectError(msg, hint="call back before or after the reduction")
    return body


def _pair_of(tree: PyTreeDef) -> PyTreeDef:
    n = tree.num_leaves
    pair = (tree.unflatten(range(n)), tree.unflatten(range(n)))
    return flatten_values("computation", "operands", pair)[1]


def closed_jaxpr(body: Body) -> Jaxpr | None:
    """The computation for a region of XLA, where nothing from outside can be used; else None."""
    if body.hoisted or body.reads:
        return None
    jaxpr = inline_calls(body.jaxpr)
    return jaxpr if all([type(c) is Literal for c in jaxpr.consts]) else None


def combine_by(jaxpr: Jaxpr, consts: Sequence[Any] = ()) -> Combine:
    """The computation ``jaxpr`` of scalars, for arrays of one shape, elementwise."""

    def run(*values: Any) -> list[Any]:
        return eval_jaxpr(jaxpr, current_trace().process, [*consts, *values])

    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        shape, size = a[0].aval.shape, a[0].aval.size
        if not shape:
            return run(*a, *b)
        flat = [lax.reshape(v, (size,)) for v in (*a, *b)]
        outs, dims = batch_flat(run, flat, [0] * len(flat), size)
        return [
            lax.broadcast_in_dim(out, shape, ()) if dim is None else lax.reshape(out, shape)
            for out, dim in zip(outs, dims, strict=True)
        ]

    return combine


def fold(combine: Combine, xs: Sequence[Any], inits: Sequence[Any]) -> list[Any]:
    """All elements along axis 0 combined by halves, then with the initial values."""
    n, *trailing = xs[0].aval.shape
    starts = [lax.broadcast_in_dim(i, tuple(trailing), ()) for i in inits]
    if n == 0:
        return starts
    tail: list[Any] | None = None
    while n > 1:
        half = n // 2
        if n % 2:
            last = [lax.reshape(lax.slice_in_dim(x, n - 1, n), tuple(trailing)) for x in xs]
            tail = last if tail is None else combine(last, tail)
        left = [lax.slice_in_dim(x, 0, half) for x in xs]
        xs = combine(left, [lax.slice_in_dim(x, half, 2 * half) for x in xs])
        n = half
    whole = [lax.reshape(x, tuple(trailing)) for x in xs]
    return combine(starts, whole if tail is None else combine(whole, tail))


# primitives that mean the computation ------------------------------------------------------------

_MONOIDS: dict[object, str] = {
    lax.add_p: "sum",
    lax.mul_p: "prod",
    lax.max_p: "max",
    lax.min_p: "min",
    lax.and_p: "and",
    lax.or_p: "or",
    lax.xor_p: "xor",
}


def monoid_of(jaxpr: Jaxpr) -> str:
    """The reduction that the computation of one operand is the step of; "" if there is none."""
    if jaxpr.n_in != 2 or len(jaxpr.equations) != 1 or tuple(jaxpr.outs) != (2,) or jaxpr.consts:
        return ""
    app, indices = jaxpr.equations[0]
    if tuple(indices) not in ((0, 1), (1, 0)):
        return ""
    return _MONOIDS.get(app.primitive, "")


def is_identity(monoid: str, init: Value) -> bool:
    """Whether the initial value is known now, and changes nothing."""
    value = _known(init)
    return value is not None and bool(value == identity_of(monoid, init.aval.dtype))


def identity_of(monoid: str, dtype: DTypeLike) -> Any:
    """The number that changes nothing when it is combined."""
    if monoid == "max":
        return smallest(dtype)
    if monoid == "min":
        return largest(dtype)
    if monoid == "and":
        return -1 if is_signed(dtype) and not is_bool(dtype) else largest(dtype)
    return 1 if monoid == "prod" else 0


def fits_monoid(monoid: str, dtype: DTypeLike) -> bool:
    """Whether the specialised reductions take elements of ``dtype``."""
    if monoid in ("sum", "prod"):
        return not is_bool(dtype)
    return monoid in ("max", "min") or not is_inexact(dtype)
