"""Contractions: dot_general, and dot and batch_matmul made of it."""

from __future__ import annotations

__all__ = ["DotDimensionNumbers", "batch_matmul", "dot", "dot_general", "dot_general_p"]

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from tracebridge.core import lax
from tracebridge.core._jaxlib import mlir
from tracebridge.core.config.values import option
from tracebridge.core.dtypes.canonicalize import canonicalize_explicit
from tracebridge.core.dtypes.dtypes import (
    int32,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    itemsize_bits,
)
from tracebridge.core.dtypes.promotion import dtype_of_product
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.ir.primitive import Primitive
from tracebridge.core.ir.splits import split_of
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.lax.accepted_dtypes import check_ordinary
from tracebridge.core.lax.contract.by_library import (
    emit_by_library,
    may_call_library,
    suits_library,
)
from tracebridge.core.lax.contract.leading import contracts_leading_axes, emit_smaller_first
from tracebridge.core.lax.contract.precision import (
    canonical_precision,
    is_pair,
    precision_attributes,
)
from tracebridge.core.lax.contract.product_splits import product_entries, sums_in_parts
from tracebridge.core.lax.contract.small import (
    emit_small_dot,
    emit_tiny_dot,
    is_small_dot,
    is_tiny_dot,
)
from tracebridge.core.lax.sharding_constraint import constrained_result
from tracebridge.core.lax.unsplit import unsplit
from tracebridge.core.util.caching import BoundedCache

if TYPE_CHECKING:
    from tracebridge.core.ir.application import Params
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Operand, Value


Axes = tuple[int, ...]
# ((contracting axes of lhs, of rhs), (batch axes of lhs, of rhs))
DotDimensionNumbers = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]
_WAYS: BoundedCache[Any] = BoundedCache("forms of products", 512)


@final
class DotGeneral(Primitive):
    """Sums products over contracting axes; batch axes go in step.

    The result has the batch axes, then the free axes of lhs, then those of rhs. Operands of two
    dtypes are promoted.
    """

    name = "dot_general"
    cost = Cost.CONTRACTION

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, y = avals
        numbers = params["dimension_numbers"]
        _check_numbers(x, y, numbers)
        check_ordinary(self.name, x, y)
        (_, _), (xb, _) = numbers
        x_free, y_free = _free_axes(x.ndim, y.ndim, numbers)
        shape = (
            *[x.shape[i] for i in xb],
            *[x.shape[i] for i in x_free],
            *[y.shape[i] for i in y_free],
        )
        preferred = params["preferred_element_type"]
        if preferred is None:
            if x.dtype != y.dtype:
                msg = f"dot_general: got {x.str_short()} and {y.str_short()}, expected one dtype"
                raise DtypeMismatchError(msg, hint="say preferred_element_type")
            return result_aval(avals, shape)
        _check_preferred(x, y, preferred)
        return result_aval(avals, shape, preferred)

    def split_results(
        self, avals: Sequence[ShapedArray], outs: Sequence[ShapedArray], **params: Any
    ) -> Any:
        del outs
        x, y = avals
        entries = product_entries(x, y, params["dimension_numbers"])
        return [split_of("dot_general", avals, entries)]

    def recipe(self, *avals: ShapedArray, **params: Any) -> Any:
        """One operation, where StableHLO takes the operands as they are."""
        x, y = avals
        out = params["preferred_element_type"] or x.dtype
        numbers = params["dimension_numbers"]
        if _way_on_cpu(x, y, out, numbers, calls=True) is not None:
            return None
        # Recipes repeat scalars to the shape of the result, which is not what a product does.
        if x.dtype != y.dtype or not _is_direct(x.dtype, out) or not (x.ndim and y.ndim):
            return None
        return "stablehlo.dot_general", _attributes(x.dtype, y.dtype, out, params)

    def lower(self, ctx: LoweringContext, *operands: Any, **params: Any) -> Any:
        out = ctx.aval_out
        x_aval, y_aval = ctx.avals_in
        numbers, precision = params["dimension_numbers"], params["precision"]
        plain = precision is None or is_pair(precision)
        plain = plain and ctx.platform == "cpu" and option("platform_rules")
        calls = plain and may_call_library(ctx, *operands)
        way = _way_on_cpu(x_aval, y_aval, out.dtype, numbers, calls=calls) if plain else None
        if way is is_small_dot:
            x, y = operands
            return emit_small_dot(ctx, x, y, ctx.avals_in, out, numbers)
        if way is is_tiny_dot:
            x, y = operands
            return emit_tiny_dot(ctx, x, y, ctx.avals_in, numbers)
        if way is suits_library:
            x, y = operands
            return emit_by_library(ctx, x, y, out, numbers)
        if way is contracts_leading_axes:
            x, y = operands
            return emit_smaller_first(ctx, x, y, out, precision, len(numbers[1][0]))
        if x_aval.dtype == y_aval.dtype and _is_direct(x_aval.dtype, out.dtype):
            attributes = _attributes(x_aval.dtype, y_aval.dtype, out.dtype, params)
            return ctx.op1("stablehlo.dot_general", operands, out, attributes)
        # Booleans are counted.
        dtype = int32 if is_bool(out.dtype) else out.dtype
        converted: list[Any] = []
        for v, aval in zip(operands, ctx.avals_in, strict=True):
            same = aval.dtype == dtype
            converted.append(v if same else ctx.convert(v, aval.update(dtype=dtype)))
        attributes = _attributes(dtype, dtype, dtype, params)
        value = ctx.op1("stablehlo.dot_general", converted, out.update(dtype=dtype), attributes)
        return value if dtype == out.dtype else ctx.convert(value, out)

    def jvp(self, primals: Sequence[Value], tangents: Sequence[Value | None], **params: Any) -> Any:
        (x, y), (s, t) = primals, tangents
        ans = self.bind(x, y, **params)
        total = None if s is None else self.bind(s, y, **params)
        if t is not None:
            part = self.bind(x, t, **params)
            total = part if total is None else lax.add(total, part)
        return ans, total

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, y = args
        if is_linear_input(x):
            return [_lhs_cotangent(ct, x.aval, y, params), None]
        return [None, _rhs_cotangent(ct, x, y.aval, params)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """An axis of both operands becomes a batch axis, an axis of one operand a free axis."""
        (x, y), (d, e) = args, dims
        (xc, yc), (xb, yb) = params["dimension_numbers"]
        n_batch = len(xb)
        xc, xb = [axes if d is None else _moved(axes, d) for axes in (xc, xb)]
        yc, yb = [axes if e is None else _moved(axes, e) for axes in (yc, yb)]
        if d is not None and e is not None:
            numbers = ((xc, yc), ((d, *xb), (e, *yb)))
            return self.bind(x, y, **{**params, "dimension_numbers": numbers}), 0
        numbers = ((xc, yc), (xb, yb))
        x_free, y_free = _free_axes(x.aval.ndim, y.aval.ndim, numbers)
        if d is not None:
            out_dim = n_batch + x_free.index(d)
        else:
            assert e is not None  # one of the operands is batched
            out_dim = n_batch + len(x_free) + y_free.index(e)
        return self.bind(x, y, **{**params, "dimension_numbers": numbers}), out_dim


def _moved(axes: Axes, d: int) -> Axes:
    """``axes`` after an axis has been inserted at ``d``."""
    return tuple([a + (a >= d) for a in axes])


def _free_axes(x_ndim: int, y_ndim: int, numbers: Any) -> tuple[list[int], list[int]]:
    """The axes of lhs and of rhs that are neither contracting nor batch axes."""
    (xc, yc), (xb, yb) = numbers
    x_free = [i for i in range(x_ndim) if i not in xc and i not in xb]
    return x_free, [i for i in range(y_ndim) if i not in yc and i not in yb]


def _check_numbers(x: ShapedArray, y: ShapedArray, numbers: Any) -> None:
    (xc, yc), (xb, yb) = numbers
    for what, a, b in (("contracting", xc, yc), ("batch", xb, yb)):
        if len(a) != len(b):
            msg = f"dot_general: lhs has {len(a)} {what} axes {a}, rhs has {len(b)} {b}"
            raise ShapeMismatchError(msg, expected="as many of them in lhs as in rhs")
    for side, aval, axes in (("lhs", x, (*xc, *xb)), ("rhs", y, (*yc, *yb))):
        if len(set(axes)) != len(axes) or any([not 0 <= a < aval.ndim for a in axes]):
            msg = (
                f"dot_general: contracting and batch axes {axes} of {side} must be distinct axes "
                f"of {aval.str_short()}"
            )
            raise RankError(msg)
    for what, a, b in (("contracting", xc, yc), ("batch", xb, yb)):
        for i, j in zip(a, b, strict=True):
            if x.shape[i] != y.shape[j]:
                msg = (
                    f"dot_general: {what} axis {i} of lhs has size {x.shape[i]}, axis {j} of rhs "
                    f"has size {y.shape[j]}, expected equal sizes"
                )
                where = f"lhs {x.str_short()}, rhs {y.str_short()}, dimension_numbers {numbers}"
                raise ShapeMismatchError(msg, where=where)


def _is_lossy(x: ShapedArray, y: ShapedArray, preferred: Any) -> bool:
    """Real results of complex operands, and integer results of floating ones, lose information."""
    return any(
        [
            (is_complex(aval.dtype) and not is_complex(preferred))
            or (is_inexact(aval.dtype) and not is_inexact(preferred))
            for aval in (x, y)
        ]
    )


def _check_preferred(x: ShapedArray, y: ShapedArray, preferred: Any) -> None:
    if _is_lossy(x, y, preferred):
        msg = (
            f"dot_general: preferred_element_type {preferred.name} cannot hold products of "
            f"{x.str_short()} and {y.str_short()}"
        )
        raise DtypeMismatchError(msg, hint="convert the result with convert_element_type")


def _way_on_cpu(x: ShapedArray, y: ShapedArray, out: Any, numbers: Any, *, calls: bool) -> Any:
    """Which of the forms for the CPU suits a product: the question that it answers, or None.

    ``calls``: whether a library may be called.
    """
    key = x, y, out, numbers, calls
    found = _WAYS.get(key, _WAYS)
    if found is _WAYS:
        ways = (is_small_dot, is_tiny_dot, suits_library, contracts_leading_axes)
        ways = ways if calls else tuple([way for way in ways if way is not suits_library])
        found = next((suits for suits in ways if suits(x, y, out, numbers)), None)
        _WAYS.set(key, found)
    return found


def _is_direct(operand: Any, out: Any) -> bool:
    """Whether StableHLO multiplies ``operand`` dtypes and adds up in ``out`` by itself."""
    if is_bool(operand) or is_complex(out) != is_complex(operand):
        return False
    # XLA takes sub-byte integers only where the result has the same dtype.
    return operand == out or (is_float(operand) == is_float(out) and itemsize_bits(operand) >= 8)


def _attributes(x: Any, y: Any, out: Any, params: Params) -> dict[str, Any]:
    (xc, yc), (xb, yb) = params["dimension_numbers"]
    attributes = precision_attributes(params["precision"], x, y, out)
    attributes["dot_dimension_numbers"] = mlir.stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=list(xb),
        rhs_batching_dimensions=list(yb),
        lhs_contracting_dimensions=list(xc),
        rhs_contracting_dimensions=list(yc),
    )
    return attributes


def _lhs_cotangent(ct: Value, x: ShapedArray, y: Value, params: Params) -> Any:
    """The cotangent of lhs: contract the free axes of rhs away."""
    numbers = params["dimension_numbers"]
    (xc, yc), (xb, yb) = numbers
    x_free, y_free = _free_axes(x.ndim, y.aval.ndim, numbers)
    n_batch = len(xb)
    start = n_batch + len(x_free)
    ct_free = tuple(range(start, start + len(y_free)))
    numbers = ((ct_free, tuple(y_free)), (tuple(range(n_batch)), yb))
    out = _contract_cotangent(ct, y, numbers, ct, params)
    # The result has the batch axes, the free axes, and the contracting axes in the order of rhs.
    axes = [*xb, *x_free, *[xc[i] for i in sorted(range(len(yc)), key=yc.__getitem__)]]
    return _finish(out, axes, x)


def _rhs_cotangent(ct: Value, x: Value, y: ShapedArray, params: Params) -> Any:
    """The cotangent of rhs: contract the free axes of lhs away."""
    numbers = params["dimension_numbers"]
    (xc, yc), (xb, yb) = numbers
    x_free, y_free = _free_axes(x.aval.ndim, y.ndim, numbers)
    n_batch = len(xb)
    ct_free = tuple(range(n_batch, n_batch + len(x_free)))
    numbers = ((tuple(x_free), ct_free), (xb, tuple(range(n_batch))))
    out = _contract_cotangent(x, ct, numbers, ct, params)
    axes = [*yb, *[yc[i] for i in sorted(range(len(xc)), key=xc.__getitem__)], *y_free]
    return _finish(out, axes, y)


def _contract_cotangent(a: Value, b: Value, numbers: object, ct: Value, params: Params) -> Any:
    """One of ``a`` and ``b`` is the cotangent; accumulates in its dtype."""
    if sums_in_parts(a.aval, b.aval, numbers):
        # A batch is split, and its sum is not: nobody has to say how, since a cotangent is split
        # as its operand is.
        a, b = unsplit(a), unsplit(b)
    preferred = None if a.aval.dtype == b.aval.dtype else ct.aval.dtype
    return dot_general_p.bind(
        a,
        b,
        dimension_numbers=numbers,
        precision=params["precision"],
        preferred_element_type=preferred,
    )


def _finish(out: Value, axes: list[int], aval: ShapedArray) -> Any:
    """The cotangent with its axes, which are ``axes`` of the operand, put in order."""
    out = lax.transpose(out, tuple([axes.index(i) for i in range(aval.ndim)]))
    if is_complex(out.aval.dtype) and not is_complex(aval.dtype):
        out = lax.real(out)
    if aval.split is not None and out.aval.split != aval.split:
        out = lax.sharding_constraint_p.bind(out, sharding=aval.split)
    return out if out.aval.dtype == aval.dtype else lax.convert_dtype(out, aval.dtype)


dot_general_p = DotGeneral()


def dot_general(
    lhs: Operand,
    rhs: Operand,
    dimension_numbers: DotDimensionNumbers,
    precision: object = None,
    preferred_element_type: object = None,
    *,
    out_sharding: object = None,
) -> Any:
    """Product of two arrays, summed over contracting axes.

    Args:
        lhs: array of numbers or booleans (for which "or" of "and" is computed).
        rhs: likewise; two dtypes are promoted.
        dimension_numbers: ``((lhs contracting, rhs contracting), (lhs batch, rhs batch))``, each
            a sequence of axes. Sizes of corresponding axes agree.
        precision: see ``Precision``; default: the option ``default_matmul_precision``.
        preferred_element_type: dtype of the sums and of the result. If it holds no such numbers,
            as integers no fractions, sums of the promoted dtype are converted.
        out_sharding: how to split the result over a mesh with axes of the type Explicit.

    Returns:
        Array with the batch axes, then the other axes of ``lhs``, then those of ``rhs``.

    Raises:
        ShapeMismatchError: sizes do not agree.

    >>> import tracebridge as tb
    >>> x = tb.numpy.ones((2, 3, 4))
    >>> tb.lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,)))).shape
    (2, 3, 3)
    """
    x, y = as_value(lhs), as_value(rhs)
    if out_sharding is not None:
        x, y = unsplit(x), unsplit(y)
    (xc, yc), (xb, yb) = dimension_numbers
    preferred = preferred_element_type
    if preferred is not None:
        preferred = canonicalize_explicit(preferred, "dot_general")
    elif x.aval.dtype != y.aval.dtype:
        # Decided here, since what 64 bits become is an option.
        preferred = dtype_of_product(x.aval.dtype, y.aval.dtype)
    kind: Any = None
    if preferred is not None and _is_lossy(x.aval, y.aval, preferred):
        kind, preferred = preferred, dtype_of_product(x.aval.dtype, y.aval.dtype)
    out = dot_general_p.bind(
        x,
        y,
        dimension_numbers=((_ints(xc), _ints(yc)), (_ints(xb), _ints(yb))),
        precision=canonical_precision(precision, "dot_general"),
        preferred_element_type=preferred,
    )
    if kind is not None:
        out = lax.convert_dtype(out, kind)
    return out if out_sharding is None else constrained_result("dot_general", out, out_sharding)


def _ints(axes: Any) -> Axes:
    """Axes as integers; one that is given by itself, too."""
    return tuple([operator.index(a) for a in (axes if hasattr(axes, "__iter__") else (axes,))])


def dot(
    lhs: Operand,
    rhs: Operand,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: object = None,
    preferred_element_type: object = None,
    out_sharding: object = None,
) -> Any:
    """Product of vectors and matrices: the last axis of ``lhs`` with the first of ``rhs``.

    Args:
        lhs: array of rank 1 or 2 (any rank with ``dimension_numbers``).
        rhs: array of rank 1 or 2 (any rank with ``dimension_numbers``).
        dimension_numbers: as in ``dot_general``.
        precision: as in ``dot_general``.
        preferred_element_type: as in ``dot_general``.
        out_sharding: as in ``dot_general``.

    Raises:
        RankError: another rank.
        ShapeMismatchError: sizes do not agree.

    >>> import tracebridge as tb
    >>> tb.lax.dot(tb.numpy.ones((2, 3)), tb.numpy.arange(3.0)).tolist()
    [3.0, 3.0]
    """
    x, y = as_value(lhs), as_value(rhs)
    if dimension_numbers is None:
        if not (1 <= x.aval.ndim <= 2 and 1 <= y.aval.ndim <= 2):
            msg = f"dot: got {x.aval.str_short()} and {y.aval.str_short()}, expected rank 1 or 2"
            raise RankError(msg, hint="pass dimension_numbers, or use tracebridge.numpy.matmul")
        if x.aval.shape[-1] != y.aval.shape[0]:
            msg = f"dot: the inner sizes differ: {x.aval.shape[-1]} and {y.aval.shape[0]}"
            where = f"lhs {x.aval.str_short()}, rhs {y.aval.str_short()}"
            raise ShapeMismatchError(msg, where=where)
        dimension_numbers = (((x.aval.ndim - 1,), (0,)), ((), ()))
    if out_sharding is not None:
        x, y = unsplit(x), unsplit(y)
    out = dot_general(x, y, dimension_numbers, precision, preferred_element_type)
    return out if out_sharding is None else constrained_result("dot", out, out_sharding)


def batch_matmul(lhs: Operand, rhs: Operand, precision: object = None) -> Any:
    """Matrix products over the last two axes; the axes before go in step.

    Args:
        lhs: array of shape ``(*batch, n, k)``.
        rhs: array of shape ``(*batch, k, m)``.
        precision: as in ``dot_general``.

    Returns:
        Array of shape ``(*batch, n, m)``.

    Raises:
        RankError: the ranks differ, or are below 2.

    >>> import tracebridge as tb
    >>> tb.lax.batch_matmul(tb.numpy.ones((5, 2, 3)), tb.numpy.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    x, y = as_value(lhs), as_value(rhs)
    n = x.aval.ndim
    if n != y.aval.ndim or n < 2:
        msg = f"batch_matmul: got {x.aval.str_short()} and {y.aval.str_short()}"
        raise RankError(msg, expected="two arrays of the same rank, at least 2")
    batch = tuple(range(n - 2))
    return dot_general(x, y, (((n - 1,), (n - 2,)), (batch, batch)), precision)
