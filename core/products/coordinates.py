"""Products of a matrix that is stored as elements with coordinates, and of dense matrices.

Each of the two primitives is the derivative of the other:

* ``sparse_dot``: data ``[E]`` at rows and columns, times ``[N, K]``, which gives ``[M, K]``;
* ``sampled_dot``: elements ``[E]`` of ``[M, K]`` times the transpose of ``[N, K]``.

``order`` says what is known of the rows: ``"any"`` order, ``"sorted"``, or ``"ends"``, where they
are not given themselves, but as the ``M + 1`` places where they begin and end. A coordinate
outside of the matrix, and an element after the last row, count as nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge.core._jaxlib.ffi import register_sparse_targets
from tracebridge.core.dtypes.dtypes import int32
from tracebridge.core.ir.aval import ShapedArray, result_aval
from tracebridge.core.ir.linear_input import is_linear_input
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.lax.batch_util import move_batch_axis, to_front
from tracebridge.core.lowering.context import register_platform_lowering
from tracebridge.core.mlir.attrs import array, dictionary, i32, index_tensor, string
from tracebridge.core.mlir.types import is_static
from tracebridge.core.products.bilinear import Bilinear

if TYPE_CHECKING:
    from tracebridge.core._jaxlib.mlir import IrValue
    from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
    from tracebridge.core.ir.value import Value

ANY, SORTED, ENDS = "any", "sorted", "ends"


@final
class SparseDot(Bilinear):
    """Operands: data, rows, columns, ``[N, K]``. ``size`` is M."""

    name = "sparse_dot"
    factors = 0, 3

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        data, _, _, x = avals
        return result_aval((data, x), (params["size"], x.shape[1]), weak_type=False)

    def compose(self, *operands: Value, **params: Any) -> Any:
        data, rows, columns, x = operands
        shape = (params["size"], x.aval.shape[1])
        if 0 in (*data.aval.shape, *x.aval.shape, *shape):
            return zeros_of(x.aval.strong.update(shape))
        products = lax.mul(_along(data, shape[1]), _rows_at(x, columns))
        rows = _listed(rows, data.aval.shape[0], params["order"])
        numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
        return lax.scatter_add(
            zeros_of(x.aval.strong.update(shape)),
            _column(rows),
            products,
            numbers,
            indices_are_sorted=params["order"] != ANY,
            mode="drop",
        )

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        data, rows, columns, x = args
        order = params["order"]
        if is_linear_input(data):
            return [sampled_dot_p.bind(ct, rows, columns, x, order=order), None, None, None]
        rows = _listed(rows, data.aval.shape[0], order)
        return [None, None, None, _turned(data, rows, columns, ct, x.aval)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """More columns of the dense matrix where nothing else is mapped, else blocks."""
        data, rows, columns, x = args
        m, size = params["size"], ctx.size
        if all([d is None for d in dims[:3]]) and dims[3] is not None:
            n, k = [s for a, s in enumerate(x.aval.shape) if a != dims[3]]
            wide = lax.reshape(move_batch_axis(x, dims[3], 1), (n, size * k))
            out = self.bind(data, rows, columns, wide, **params)
            return lax.reshape(out, (m, size, k)), 1
        data, rows, columns, x = [to_front(v, d, size) for v, d in zip(args, dims, strict=True)]
        n, k = x.aval.shape[1:]
        rows, columns = _blocks(rows, columns, m, n, params["order"])
        data, x = lax.reshape(data, columns.aval.shape), lax.reshape(x, (size * n, k))
        out = self.bind(data, rows, columns, x, **{**params, "size": size * (m + 1)})
        out = lax.reshape(out, (size, m + 1, k))
        return lax.slice_in_dim(out, 0, m, axis=1), 0


@final
class SampledDot(Bilinear):
    """Operands: ``[M, K]``, rows, columns, ``[N, K]``."""

    name = "sampled_dot"
    factors = 0, 3

    def abstract_eval(self, *avals: ShapedArray, **params: Any) -> ShapedArray:
        x, _, columns, y = avals
        return result_aval((x, y), columns.shape, weak_type=False)

    def compose(self, *operands: Value, **params: Any) -> Any:
        x, rows, columns, y = operands
        if 0 in (*columns.aval.shape, *x.aval.shape, *y.aval.shape):
            return zeros_of(x.aval.strong.update(columns.aval.shape))
        rows = _listed(rows, columns.aval.shape[0], params["order"])
        return lax.reduce_sum(lax.mul(_rows_at(x, rows), _rows_at(y, columns)), axes=(1,))

    def transpose(self, ct: Value, *args: Value, **params: Any) -> Sequence[Any]:
        x, rows, columns, y = args
        if is_linear_input(x):
            m = x.aval.shape[0]
            return [sparse_dot_p.bind(ct, rows, columns, y, size=m, **params), None, None, None]
        rows = _listed(rows, columns.aval.shape[0], params["order"])
        return [None, None, None, _turned(ct, rows, columns, x, y.aval)]

    def batch(
        self, ctx: BatchContext, args: Sequence[Value], dims: Sequence[int | None], **params: Any
    ) -> tuple[Any, Any]:
        """Blocks of matrices; those on the left have one more row."""
        x, rows, columns, y = [to_front(v, d, ctx.size) for v, d in zip(args, dims, strict=True)]
        (size, m, k), n = x.aval.shape, y.aval.shape[1]
        shape = columns.aval.shape
        rows, columns = _blocks(rows, columns, m, n, params["order"])
        x = lax.pad(x, zeros_of(x.aval.strong.update(())), [(0, 0, 0), (0, 1, 0), (0, 0, 0)])
        x, y = lax.reshape(x, (size * (m + 1), k)), lax.reshape(y, (size * n, k))
        return lax.reshape(self.bind(x, rows, columns, y, **params), shape), 0


sparse_dot_p = SparseDot()
sampled_dot_p = SampledDot()


def _turned(data: Value, rows: Value, columns: Value, x: Value, out: ShapedArray) -> Any:
    """The transposed sparse matrix times ``x``."""
    return sparse_dot_p.bind(data, columns, rows, x, size=out.shape[0], order=ANY)


# coordinates -------------------------------------------------------------------------------------


def _along(data: Value, k: Any) -> Any:
    return lax.broadcast_in_dim(data, (data.aval.shape[0], k), (0,))


def _column(indices: Value) -> Any:
    return lax.reshape(indices, (indices.aval.shape[0], 1))


def _rows_at(x: Value, rows: Value) -> Any:
    """Rows of a matrix; zeros for those that it does not have."""
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    sizes = (1, x.aval.shape[1])
    return lax.gather(x, _column(rows), numbers, sizes, mode="fill", fill_value=0)


def _constant(like: Value, n: Any) -> Any:
    return full_of(like.aval.strong, n)


def _listed(rows: Value, nse: Any, order: str) -> Any:
    """The row of each element; their number after the last one.

    An element lies in row ``k`` if it does not come before ``rows[k]``, but before ``rows[k + 1]``.
    """
    if order != ENDS:
        return rows
    counts = zeros_of(ShapedArray((nse,), int32))
    ends = lax.slice_in_dim(rows, 1, rows.aval.shape[0])
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    ones = lax.full_like(ends, 1, int32)
    return lax.cumsum(lax.scatter_add(counts, _column(ends), ones, numbers, mode="drop"), axis=0)


def ends_of(rows: Value, size: int) -> Any:
    """Where each of the rows begins and ends, ``[size + 1]``: of rows that are in order."""
    counts = zeros_of(ShapedArray((size + 2,), int32))
    rows = lax.convert_dtype(rows, int32)
    after = lax.add(_kept(rows, size, size), _constant(rows, 1))
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    ones = full_of(after.aval, 1)
    counts = lax.scatter_add(counts, _column(after), ones, numbers, mode="drop")
    return lax.cumsum(lax.slice_in_dim(counts, 0, size + 1), axis=0)


def _kept(indices: Value, size: int, other: int) -> Any:
    """Coordinates, and ``other`` for those that are outside."""
    return lax.select_n(_inside(indices, size), _constant(indices, other), indices)


def _inside(indices: Value, size: int) -> Any:
    return lax.bitwise_and(
        lax.ge(indices, _constant(indices, 0)), lax.lt(indices, _constant(indices, size))
    )


def _blocks(rows: Value, columns: Value, m: int, n: int, order: str) -> tuple[Any, Any]:
    """Coordinates of matrices ``[B, ...]``, as those of one matrix that has them on its diagonal.

    Each has one more row, for its padding: it stays apart from the elements of the next one.
    """
    size, nse = columns.aval.shape
    rows, columns = [lax.convert_dtype(v, int32) for v in (rows, columns)]

    def shifted(x: Value, step: int) -> Any:
        first = lax.mul(lax.iota(int32, size), full_of(ShapedArray((size,), int32), step))
        return lax.add(x, lax.broadcast_in_dim(first, x.aval.shape, (0,)))

    columns = lax.select_n(_inside(columns, n), _constant(columns, size * n), shifted(columns, n))
    if order == ENDS:
        ends = lax.reshape(shifted(lax.clamp(0, rows, nse), nse), (size * (m + 1),))
        rows = lax.concatenate([ends, full_of(ShapedArray((1,), int32), size * nse)], 0)
    else:
        rows = lax.reshape(shifted(_kept(rows, m, m), m + 1), (size * nse,))
    return rows, lax.reshape(columns, (size * nse,))


# the CPU -----------------------------------------------------------------------------------------

KERNEL_DTYPES = tuple(
    [np.dtype(t) for t in ("float32", "float64", "complex64", "complex128", "int32", "int64")]
)
# Of fewer columns XLA's scatter makes less work than the kernel of jaxlib (1e5, 1e6 elements).
LEAST_COLUMNS = 8
# From so many products on it pays to sort the elements first, where there are enough columns.
LEAST_SORTED_PRODUCTS, LEAST_SORTED_COLUMNS = 2**25, 40
# So many columns at once: rows of that length stay in the cache.
SAMPLED_COLUMNS = 16
# Programs of more parts take long to compile.
MOST_SAMPLED_COLUMNS = 256
_TYPED_FFI = 4  # what StableHLO calls it


def by_rows(data: Value, rows: Value, columns: Value, **params: Any) -> tuple[Any, Any, Any]:
    """Data, ends of rows and columns, such that a kernel that checks nothing may read them."""
    size, width, order = params["size"], params["width"], params["order"]
    rows, columns = [lax.convert_dtype(v, int32) for v in (rows, columns)]
    if order == ANY:
        rows, columns, data = lax.sort((_kept(rows, size, size), columns, data), num_keys=1)
    inside = _inside(columns, width)
    data = lax.select_n(inside, zeros_of(data.aval.strong), data)
    columns = lax.select_n(inside, _constant(columns, 0), columns)
    if order == ENDS:
        return data, lax.clamp(0, rows, data.aval.shape[0]), columns
    return data, ends_of(rows, size), columns


def sampled_by_columns(x: Value, rows: Value, columns: Value, y: Value, *, order: str) -> Any:
    """As ``sampled_dot``, a few columns at a time: whole rows would be copied for each element."""
    rows = _listed(rows, columns.aval.shape[0], order)
    k, total = x.aval.shape[1], None
    for start in range(0, k, SAMPLED_COLUMNS):
        end = min(start + SAMPLED_COLUMNS, k)
        parts = [lax.slice_in_dim(v, start, end, axis=1) for v in (x, y)]
        part = sampled_dot_p.compose(parts[0], rows, columns, parts[1], order=ANY)
        total = part if total is None else lax.add(total, part)
    return total


def _lower_cpu(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    """By the kernel of jaxlib, where it takes the dtype and there are enough columns."""
    data, x = ctx.avals_in[0], ctx.avals_in[3]
    out = ctx.aval_out
    static = all([is_static(a) for a in (*ctx.avals_in, out)])
    if not static or 0 in (data.size, x.size, out.size) or data.dtype not in KERNEL_DTYPES:
        return sparse_dot_p.lower(ctx, *operands, **params)
    least, k = LEAST_COLUMNS, x.shape[1]
    if params["order"] == ANY:
        least = max(LEAST_SORTED_COLUMNS, LEAST_SORTED_PRODUCTS // data.size)
    if k < least:
        return sparse_dot_p.lower(ctx, *operands, **params)
    found = ctx.lower_fun(
        by_rows, *operands[:3], avals_in=ctx.avals_in[:3], width=x.shape[0], **params
    )
    register_sparse_targets()
    flat, wide = index_tensor([0]), index_tensor([1, 0])
    attributes = {
        "call_target_name": string("cpu_csr_sparse_dense_ffi"),
        "api_version": i32(_TYPED_FFI),
        "backend_config": dictionary({}),
        "operand_layouts": array([flat, flat, flat, wide]),
        "result_layouts": array([wide]),
    }
    return ctx.op1("stablehlo.custom_call", [*found, operands[3]], out, attributes)


def _lower_sampled_cpu(ctx: LoweringContext, *operands: IrValue, **params: Any) -> Any:
    k = ctx.avals_in[0].shape[1]
    if type(k) is not int or not SAMPLED_COLUMNS < k <= MOST_SAMPLED_COLUMNS:
        return sampled_dot_p.lower(ctx, *operands, **params)
    return ctx.lower_fun(sampled_by_columns, *operands, **params)[0]


register_platform_lowering(sparse_dot_p, "cpu", _lower_cpu, optional=True)
register_platform_lowering(sampled_dot_p, "cpu", _lower_sampled_cpu, optional=True)
