"""What the operators and methods of sparse arrays do, whatever their format.

Formats other than BCOO go by way of it where they have no function of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import tracebridge.numpy as tnp
from tracebridge.core.control.calls.by_definition import ByDefinition
from tracebridge.core.dtypes.dtypes import as_dtype
from tracebridge.core.errors.argument_errors import UnsupportedArgumentError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.ir.cost import Cost
from tracebridge.core.ir.typeof import is_array_like
from tracebridge.core.tree.tree import PyTreeDef, flatten
from tracebridge.experimental.sparse._base import JAXSparse, with_elements
from tracebridge.experimental.sparse._bcoo.arguments import checked_axes
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.conversion import bcoo_todense
from tracebridge.experimental.sparse._bcoo.dots import bcoo_dot_general
from tracebridge.experimental.sparse._bcoo.indexing import indexed
from tracebridge.experimental.sparse._bcoo.indices import sparse_sizes, valid, widened
from tracebridge.experimental.sparse._bcoo.moves import (
    bcoo_broadcast_in_dim,
    bcoo_reshape,
    bcoo_transpose,
)
from tracebridge.experimental.sparse._bcoo.products import (
    at_coordinates,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
    same_layout,
)
from tracebridge.experimental.sparse._bcoo.sorting import bcoo_sum_duplicates
from tracebridge.experimental.sparse._bcoo.sums import bcoo_reduce_sum
from tracebridge.experimental.sparse._bcsr import BCSR, bcsr_dot_general, bcsr_todense
from tracebridge.experimental.sparse._matrices import COO, CSR
from tracebridge.experimental.sparse._matrix_functions import (
    coo_matmat,
    coo_matvec,
    coo_todense,
    csr_matmat,
    csr_matvec,
    csr_todense,
)
from tracebridge.numpy._promote import broadcast_shape

_WAY_OUT = "write todense(x) if the result may be dense"


def as_bcoo(x: Any) -> BCOO:
    """A sparse array of any format as a BCOO array."""
    return x if isinstance(x, BCOO) else x.to_bcoo()


def todense(arr: Any) -> Any:
    """The dense form of an array, whether it is sparse or not.

    Args:
        arr: sparse array of any format, or array.

    >>> from tracebridge.experimental import sparse
    >>> print(sparse.todense(sparse.eye(2)))
    [[1. 0.]
     [0. 1.]]
    """
    leaves, structure = flatten(arr if isinstance(arr, JAXSparse) else tnp.asarray(arr))
    return todense_p.bind(*leaves, tree=structure)


@final
class Todense(ByDefinition):
    """The arrays of an array of any format -> the dense array; ``tree`` is its structure."""

    name = "todense"
    cost = Cost.OTHER

    def define(self, *leaves: Any, tree: PyTreeDef) -> Any:
        arr = tree.unflatten(leaves)
        return dense_form(arr) if isinstance(arr, JAXSparse) else arr

    def evaluate(self, arrays: Sequence[Any], **params: Any) -> Any:
        """An array that is dense is the result."""
        return arrays[0] if params["tree"].num_nodes == 1 else NotImplemented


todense_p = Todense()


def dense_form(mat: Any) -> Any:
    """The dense form of a sparse array, by the function of its format."""
    if isinstance(mat, BCSR):
        return bcsr_todense(mat)
    if isinstance(mat, COO):
        return coo_todense(mat)
    if isinstance(mat, CSR):
        return csr_todense(mat)
    return bcoo_todense(as_bcoo(mat))


def mapped(mat: Any, function: Callable[[Any], Any]) -> Any:
    """A function of the elements, which maps zero to zero and is linear."""
    return with_elements(mat, function(mat.data))


def merged(mat: Any) -> Any:
    """The array with each of its coordinates once, for functions that are not linear."""
    if getattr(mat, "unique_indices", False):
        return mat
    return bcoo_sum_duplicates(as_bcoo(mat))


def compared(operator: str, x: Any, y: Any) -> Any:
    """Raise: most of a comparison of sparse arrays is true, or depends on what is not stored."""
    kinds = [type(v).__name__ for v in (x, y)]
    msg = f"{kinds[0]} {operator} {kinds[1]}: the result would be dense"
    raise UnsupportedArgumentError(msg, hint="compare dense forms, x.todense()")


def absolute(mat: Any) -> Any:
    """Absolute values."""
    return mapped(merged(mat), tnp.abs)


def power(mat: Any, exponent: Any) -> Any:
    """Powers of the elements."""
    if isinstance(exponent, JAXSparse) or tnp.ndim(exponent) != 0:
        msg = f"power: the exponent is {type(exponent).__name__}, expected a number"
        raise UnsupportedArgumentError(msg, hint=_WAY_OUT)
    if isinstance(exponent, int | float) and exponent <= 0:
        msg = f"power: the exponent is {exponent}, expected a positive number"
        raise UnsupportedArgumentError(msg, hint=f"others make zeros to ones; {_WAY_OUT}")
    return mapped(merged(mat), lambda x: x**exponent)


def total(
    mat: Any, axis: int | Sequence[int] | None, dtype: Any = None, keepdims: bool = False
) -> Any:
    """Sums over axes; over all of them a dense array without axes."""
    mat = as_bcoo(mat)
    axes = range(mat.ndim) if axis is None else checked_axes("sum", axis, mat.ndim)
    kind = tnp.sum(tnp.zeros(0, mat.dtype)).dtype if dtype is None else as_dtype(dtype)
    out = bcoo_reduce_sum(mat.astype(kind), axes=tuple(axes))
    if keepdims:
        kept = [a for a in range(mat.ndim) if a not in axes]
        sizes = [n if a in kept else 1 for a, n in enumerate(mat.shape)]
        out = bcoo_reshape(out, new_sizes=sizes)
    return bcoo_todense(out) if len(axes) == mat.ndim else out


def item(mat: Any, index: Any) -> Any:
    """The part that an index names."""
    return indexed(as_bcoo(mat), index)


def _is_dense(x: Any) -> bool:
    return is_array_like(x) and not isinstance(x, JAXSparse)


def add(x: Any, y: Any) -> Any:
    """The sum of two arrays of which at least one is sparse."""
    if isinstance(x, JAXSparse) and isinstance(y, JAXSparse):
        lhs, rhs = same_layout("add", as_bcoo(x), as_bcoo(y))
        kind = tnp.promote_types(lhs.dtype, rhs.dtype)
        return _side_by_side(lhs.astype(kind), rhs.astype(kind))
    if not (_is_dense(x) or _is_dense(y)):
        return NotImplemented
    mat, dense = (x, y) if isinstance(x, JAXSparse) else (y, x)
    dense = tnp.asarray(dense)
    if broadcast_shape("add", [mat.shape, dense.shape]) != dense.shape:
        msg = f"add: a sparse array of shape {mat.shape} and a dense one of shape {dense.shape}"
        raise UnsupportedArgumentError(
            msg, expected="a dense array of the shape of the sum", hint=_WAY_OUT
        )
    return todense(mat) + dense


def _side_by_side(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The sum of arrays of one layout: the elements of both."""
    if lhs.nse == 0 or rhs.nse == 0:
        return rhs if lhs.nse == 0 else lhs
    b = lhs.n_batch
    lhs, rhs = widened(lhs), widened(rhs)
    kind = tnp.promote_types(lhs.indices.dtype, rhs.indices.dtype)
    indices = tnp.concatenate([x.indices.astype(kind) for x in (lhs, rhs)], axis=b)
    return BCOO((tnp.concatenate([lhs.data, rhs.data], axis=b), indices), shape=lhs.shape)


def subtract(x: Any, y: Any) -> Any:
    """The difference of two arrays of which at least one is sparse."""
    if isinstance(y, JAXSparse):
        return add(x, mapped(y, lambda v: -v))
    return add(x, -tnp.asarray(y)) if _is_dense(y) else NotImplemented


def multiply(x: Any, y: Any) -> Any:
    """The elementwise product of two arrays of which at least one is sparse."""
    if isinstance(x, JAXSparse) and isinstance(y, JAXSparse):
        return bcoo_multiply_sparse(as_bcoo(x), as_bcoo(y))
    mat, dense = (x, y) if isinstance(x, JAXSparse) else (y, x)
    if not _is_dense(dense):
        return NotImplemented
    if tnp.ndim(dense) == 0:
        return mapped(mat, lambda v: v * dense)
    mat, dense = _fitted("multiply", mat, dense)
    return with_elements(mat, bcoo_multiply_dense(mat, dense))


def _fitted(call: str, mat: Any, dense: Any) -> tuple[BCOO, Any]:
    """The sparse array repeated to the shape that both broadcast to."""
    mat, dense = as_bcoo(mat), tnp.asarray(dense)
    shape = broadcast_shape(call, [mat.shape, dense.shape])
    if shape != mat.shape:
        axes = range(len(shape) - mat.ndim, len(shape))
        mat = bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=tuple(axes))
    return mat, dense


def divide(x: Any, y: Any) -> Any:
    """The quotient of a sparse and a dense array."""
    if isinstance(y, JAXSparse):
        msg = "divide: the divisor is sparse, the quotient would not be"
        raise UnsupportedArgumentError(msg, hint=_WAY_OUT)
    if not _is_dense(y):
        return NotImplemented
    if tnp.ndim(y) == 0:
        return mapped(x, lambda v: v / y)
    mat, dense = _fitted("divide", x, y)
    dense = dense.reshape((*[1] * (mat.ndim - dense.ndim), *dense.shape))
    keep = valid(mat.indices, sparse_sizes(mat))
    found = at_coordinates(dense, mat)
    keep = keep.reshape((*keep.shape, *[1] * mat.n_dense))
    # Padding has no divisor.
    return mapped(mat, lambda v: v / tnp.where(keep, found, tnp.ones((), found.dtype)))


def matmul(x: Any, y: Any) -> Any:
    """The matrix product, with the axes of ``tracebridge.numpy.matmul``."""
    if not all([isinstance(v, JAXSparse) or is_array_like(v) for v in (x, y)]):
        return NotImplemented
    x, y = [v if isinstance(v, JAXSparse) else tnp.asarray(v) for v in (x, y)]
    if x.ndim == 0 or y.ndim == 0:
        msg = f"matmul: shapes {x.shape} and {y.shape}, expected at least one axis each"
        raise RankError(msg, hint="multiply by a number with *")
    inner = y.ndim - 2 if y.ndim > 1 else 0
    if x.shape[-1] != y.shape[inner]:
        msg = f"matmul: the inner sizes differ: shapes {x.shape} and {y.shape}"
        raise ShapeMismatchError(msg)
    if x.ndim == 2 and y.ndim < 3 and not isinstance(y, JAXSparse):
        if isinstance(x, BCSR):
            return bcsr_dot_general(x, y, dimension_numbers=(((1,), (0,)), ((), ())))
        if isinstance(x, COO):
            return coo_matmat(x, y) if y.ndim == 2 else coo_matvec(x, y)
        if isinstance(x, CSR):
            return csr_matmat(x, y) if y.ndim == 2 else csr_matvec(x, y)
    x, y = [as_bcoo(v) if isinstance(v, JAXSparse) else v for v in (x, y)]
    if y.ndim < 3:
        return _dot(x, y, (x.ndim - 1,), (inner,), 0)
    if x.ndim < 3:
        out = _dot(x, y, (x.ndim - 1,), (inner,), 0)
        if x.ndim == 1:
            return out
        order = (*range(1, out.ndim - 1), 0, out.ndim - 1)
        if isinstance(out, BCOO):
            return bcoo_transpose(out, permutation=order)
        return tnp.transpose(out, order)
    batch = broadcast_shape("matmul", [x.shape[:-2], y.shape[:-2]])
    x, y = [_repeated(v, (*batch, *v.shape[-2:])) for v in (x, y)]
    return _dot(x, y, (x.ndim - 1,), (y.ndim - 2,), len(batch))


def _repeated(x: Any, shape: tuple[int, ...]) -> Any:
    if not isinstance(x, BCOO):
        return tnp.broadcast_to(x, shape)
    if x.shape == shape:
        return x
    axes = tuple(range(len(shape) - x.ndim, len(shape)))
    return bcoo_broadcast_in_dim(x, shape=shape, broadcast_dimensions=axes)


def _dot(x: Any, y: Any, left: Sequence[int], right: Sequence[int], n_batch: int) -> Any:
    batch = tuple(range(n_batch))
    numbers = ((tuple(left), tuple(right)), (batch, batch))
    return bcoo_dot_general(x, y, dimension_numbers=numbers)
