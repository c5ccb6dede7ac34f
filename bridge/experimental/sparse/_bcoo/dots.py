"""Products of sparse and dense arrays: bcoo_dot_general, bcoo_dot_general_sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import tracebridge.core.lax as lax
import tracebridge.numpy as tnp
from tracebridge._api.vectorize.vmap import vmap
from tracebridge.core.control.calls.by_definition import ByDefinition
from tracebridge.core.dtypes.dtypes import as_dtype
from tracebridge.core.errors.argument_errors import ArgumentTypeError, UnsupportedArgumentError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.cost import Cost
from tracebridge.experimental.sparse._base import JAXSparse, Shape, SparseInfo, info_of
from tracebridge.experimental.sparse._bcoo import wide
from tracebridge.experimental.sparse._bcoo.arguments import checked_axes
from tracebridge.experimental.sparse._bcoo.array import BCOO
from tracebridge.experimental.sparse._bcoo.indices import not_negative
from tracebridge.experimental.sparse._bcoo.sparse_dots import dot_of_sparse

Axes = tuple[int, ...]


@final
class Dims(NamedTuple):
    """Checked dimension numbers of a product of two arrays."""

    lhs_contracting: Axes
    rhs_contracting: Axes
    lhs_batch: Axes
    rhs_batch: Axes

    def numbers(self) -> tuple[tuple[Axes, Axes], tuple[Axes, Axes]]:
        """As ``lax.dot_general`` takes them."""
        return (self.lhs_contracting, self.rhs_contracting), (self.lhs_batch, self.rhs_batch)

    def swapped(self) -> Dims:
        """Those of the product of the second with the first."""
        return Dims(self.rhs_contracting, self.lhs_contracting, self.rhs_batch, self.lhs_batch)


def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: None = None,
) -> Any:
    """The product of two arrays of which at least one is sparse.

    Args:
        lhs: BCOO array, or array.
        rhs: likewise.
        dimension_numbers: ``((lhs contracting, rhs contracting), (lhs batch, rhs batch))``, as of
            ``lax.dot_general``.
        precision: accepted without effect: products are computed in the dtype of the elements.
        preferred_element_type: dtype of the result.
        out_sharding: must be None.

    Returns:
        An array if one of the two is dense, otherwise a BCOO array. The axes are those of
        ``lax.dot_general``.

    Raises:
        ShapeMismatchError: sizes differ, or the numbers of axes do.
        AxisError, ArgumentValueError: an axis is out of range, or named twice.
        ArgumentTypeError: an argument is an array of another sparse format.
        UnsupportedArgumentError: ``out_sharding`` is given.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> m = sparse.BCOO.fromdense(tnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> x = tnp.array([10.0, 1.0])
    >>> print(sparse.bcoo_dot_general(m, x, dimension_numbers=(((1,), (0,)), ((), ()))))
    [10. 23.]
    """
    call = "bcoo_dot_general"
    if out_sharding is not None:
        msg = f"{call}: out_sharding is {out_sharding!r}, expected None"
        raise UnsupportedArgumentError(msg, hint="place the result")
    lhs, rhs = [_operand(call, x) for x in (lhs, rhs)]
    dims = checked_dims(call, lhs, rhs, dimension_numbers)
    kind = None if preferred_element_type is None else as_dtype(preferred_element_type)
    if isinstance(lhs, BCOO):
        if isinstance(rhs, BCOO):
            return dot_of_sparse(lhs, rhs, dims, kind)
        return _sparse_dense(lhs, rhs, dims, kind)
    if isinstance(rhs, BCOO):
        return _dense_sparse(lhs, rhs, dims, kind)
    return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=kind)


def _operand(call: str, x: Any) -> Any:
    if isinstance(x, BCOO):
        return x
    if isinstance(x, JAXSparse):
        msg = f"{call}: got {type(x).__name__}, expected BCOO arrays and dense arrays"
        raise ArgumentTypeError(msg, hint="convert it with x.to_bcoo()")
    return tnp.asarray(x)


def checked_dims(call: str, lhs: Any, rhs: Any, numbers: Any) -> Dims:
    """The dimension numbers of a product.

    Raises:
        ShapeMismatchError: sizes differ, or the numbers of axes do.
    """
    try:
        (lc, rc), (lb, rb) = numbers
        dims = Dims(
            checked_axes(call, lc, lhs.ndim),
            checked_axes(call, rc, rhs.ndim),
            checked_axes(call, lb, lhs.ndim),
            checked_axes(call, rb, rhs.ndim),
        )
    except (TypeError, ValueError) as error:
        if "tracebridge" in type(error).__module__:
            raise
        msg = f"{call}: dimension_numbers are {numbers!r}"
        raise ArgumentTypeError(
            msg, expected="((lhs contracting, rhs contracting), (lhs batch, rhs batch))"
        ) from None
    for what, left, right in (
        ("contracting", dims.lhs_contracting, dims.rhs_contracting),
        ("batch", dims.lhs_batch, dims.rhs_batch),
    ):
        sizes = [lhs.shape[a] for a in left], [rhs.shape[a] for a in right]
        if sizes[0] != sizes[1]:
            msg = f"{call}: {what} axes {left} of {lhs.shape} and {right} of {rhs.shape}"
            raise ShapeMismatchError(msg, got=f"sizes {sizes[0]} and {sizes[1]}", expected="equal")
    checked_axes(call, (*dims.lhs_contracting, *dims.lhs_batch), lhs.ndim)
    checked_axes(call, (*dims.rhs_contracting, *dims.rhs_batch), rhs.ndim)
    return dims


def _dense_sparse(lhs: Any, rhs: BCOO, dims: Dims, kind: Any) -> Any:
    out = _sparse_dense(rhs, lhs, dims.swapped(), kind)
    b = len(dims.lhs_batch)
    n = rhs.ndim - b - len(dims.lhs_contracting)
    return tnp.transpose(out, (*range(b), *range(b + n, out.ndim), *range(b, b + n)))


def _sparse_dense(lhs: BCOO, rhs: Any, dims: Dims, kind: Any) -> Any:
    return bcoo_dot_general_p.bind(
        lhs.data,
        lhs.indices,
        rhs,
        lhs_spinfo=info_of(lhs),
        dimension_numbers=dims.numbers(),
        preferred_element_type=kind,
    )


@final
class BcooDotGeneral(ByDefinition):
    """Data and coordinates of the left, and the right, which is dense -> a dense array."""

    name = "bcoo_dot_general"
    cost = Cost.CONTRACTION

    def define(
        self,
        data: Any,
        indices: Any,
        rhs: Any,
        *,
        lhs_spinfo: SparseInfo,
        dimension_numbers: Any,
        preferred_element_type: Any,
    ) -> Any:
        lhs = BCOO((data, indices), **lhs_spinfo._asdict())
        dims = checked_dims(self.name, lhs, rhs, dimension_numbers)
        if preferred_element_type is not None:
            lhs, rhs = [x.astype(preferred_element_type) for x in (lhs, rhs)]
        return _peeled(lhs, lhs.data, indices, rhs, lhs.shape, lhs.n_batch, dims)


bcoo_dot_general_p = BcooDotGeneral()


def _less(axes: Axes, gone: int) -> Axes:
    """Axes of an array without the axis ``gone``."""
    return tuple([a - (a > gone) for a in axes if a != gone])


def _peeled(
    whole: BCOO, data: Any, indices: Any, rhs: Any, shape: Shape, n_batch: int, dims: Dims
) -> Any:
    """The product, mapped over the axes of batches of the sparse array ``whole`` one by one."""
    if n_batch == 0:
        return _unbatched(data, indices, rhs, shape, dims, whole.indices_sorted)
    size = shape[0]
    axes: list[int | None] = [0, 0, None]
    out_axis = len(dims.lhs_batch)
    role = "free"
    if 0 in dims.lhs_contracting:
        k = dims.lhs_contracting.index(0)
        role, axes[2] = "contracting", dims.rhs_contracting[k]
    elif 0 in dims.lhs_batch:
        out_axis = dims.lhs_batch.index(0)
        role, axes[2] = "batch", dims.rhs_batch[out_axis]
    gone = -1 if axes[2] is None else axes[2]
    rest = Dims(
        _less(dims.lhs_contracting, 0),
        dims.rhs_contracting if gone < 0 else _less(dims.rhs_contracting, gone),
        _less(dims.lhs_batch, 0),
        dims.rhs_batch if gone < 0 else _less(dims.rhs_batch, gone),
    )
    operands = [data, indices, rhs]
    for i in range(2):
        if operands[i].shape[0] != size:
            operands[i], axes[i] = tnp.squeeze(operands[i], 0), None

    def inner(data: Any, indices: Any, rhs: Any) -> Any:
        return _peeled(whole, data, indices, rhs, shape[1:], n_batch - 1, rest)

    if role == "contracting":
        parts = vmap(inner, axes, axis_size=size)(*operands)
        return tnp.sum(parts, axis=0, dtype=parts.dtype)
    return vmap(inner, axes, out_axis, axis_size=size)(*operands)


def _unbatched(data: Any, indices: Any, rhs: Any, shape: Shape, dims: Dims, is_sorted: bool) -> Any:
    """The product with an array whose axes have coordinates or are dense.

    The elements of ``rhs`` at the coordinates that both share, times the data, are added up at
    the coordinates that are left.
    """
    n = indices.shape[-1]
    if len(dims.lhs_contracting) == 1 and not dims.lhs_batch:
        first, axis = tnp.moveaxis(rhs, dims.rhs_contracting[0], 0), dims.lhs_contracting[0]
        if n == 2 and wide.fits(data, shape, first, axis):
            return wide.of_coordinates(data, indices, shape, first, axis, is_sorted)
    dtype = tnp.promote_types(data.dtype, rhs.dtype)
    data, rhs = data.astype(dtype), rhs.astype(dtype)
    partner = dict(zip(dims.lhs_contracting, dims.rhs_contracting, strict=True))
    partner |= dict(zip(dims.lhs_batch, dims.rhs_batch, strict=True))
    shared = [a for a in range(n) if a in partner]
    kept = [a for a in range(n) if a not in dims.lhs_contracting]
    others = [a for a in range(rhs.ndim) if a not in [partner[a] for a in shared]]
    indices = not_negative(indices, shape[:n])
    part = tnp.transpose(rhs, (*[partner[a] for a in shared], *others))
    if shared:
        part = part.at[tuple([indices[:, a] for a in shared])].get(mode="fill", fill_value=0)
    inner = Dims(
        tuple([a for a in dims.lhs_contracting if a >= n]),
        tuple([partner[a] for a in dims.lhs_contracting if a >= n]),
        tuple([a for a in dims.lhs_batch if a >= n]),
        tuple([partner[a] for a in dims.lhs_batch if a >= n]),
    )
    product = _of_elements(data, part, n, others, inner, bool(shared), bool(kept))
    last = len(rhs.shape) - len(partner)
    if kept:
        sizes = tuple([shape[a] for a in kept])
        index = tuple([indices[:, a] for a in kept])
        empty = tnp.zeros((*sizes, *product.shape[1:]), dtype)
        product = empty.at[index].add(product, mode="drop")
    free = [a for a in range(n, len(shape)) if a not in partner]
    labels = [*kept, *inner.lhs_batch, *free]
    wanted = [*dims.lhs_batch, *[a for a in range(len(shape)) if a not in partner]]
    order = [labels.index(a) for a in wanted]
    return tnp.transpose(product, (*order, *range(len(order), len(order) + last)))


def _of_elements(
    data: Any, part: Any, n: int, others: Sequence[int], inner: Dims, shared: bool, kept: bool
) -> Any:
    """The products of elements and parts of the other array, for each element if ``kept``.

    Axes: of elements, dense axes of batches, free dense axes, those of the other array.
    """
    place = {a: k + shared for k, a in enumerate(others)}
    contracting = (
        [a - n + 1 for a in inner.lhs_contracting],
        [place[a] for a in inner.rhs_contracting],
    )
    batch = ([a - n + 1 for a in inner.lhs_batch], [place[a] for a in inner.rhs_batch])
    if not shared:
        if not kept:
            data = tnp.sum(data, axis=0, keepdims=True, dtype=data.dtype)
        out = tnp.moveaxis(lax.dot_general(data, part, (contracting, batch)), len(batch[0]), 0)
        return out if kept else tnp.squeeze(out, 0)
    if not kept:
        sums = ([0, *contracting[0]], [0, *contracting[1]])
        return lax.dot_general(data, part, (sums, batch))
    if not contracting[0] and not batch[0]:
        n_dense = data.ndim - 1
        data = data.reshape((*data.shape, *[1] * (part.ndim - 1)))
        return data * part.reshape((part.shape[0], *[1] * n_dense, *part.shape[1:]))
    batch = ([0, *batch[0]], [0, *batch[1]])
    return lax.dot_general(data, part, (contracting, batch))


def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: Any) -> Any:
    """Elements of the product of two dense arrays at given coordinates.

    Args:
        A: array.
        B: array.
        indices: coordinates in the product, of shape ``(*batch, nse, n_sparse)``.
        dimension_numbers: as of ``lax.dot_general``.

    Returns:
        The data of a BCOO array with these coordinates and the shape of the product: zeros at
        padding.

    Raises:
        ShapeMismatchError: sizes differ, or there are more coordinates than axes of the product.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> A = tnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> places = tnp.array([[0, 1], [1, 0]])
    >>> numbers = (((1,), (0,)), ((), ()))
    >>> print(sparse.bcoo_dot_general_sampled(A, A, places, dimension_numbers=numbers))
    [10. 15.]
    """
    call = "bcoo_dot_general_sampled"
    left, right, indices = tnp.asarray(A), tnp.asarray(B), tnp.asarray(indices)
    dims = checked_dims(call, left, right, dimension_numbers)
    n = left.ndim + right.ndim - 2 * len(dims.lhs_contracting) - len(dims.lhs_batch)
    if indices.ndim < 2 or indices.ndim - 2 + indices.shape[-1] > n:
        msg = f"{call}: indices of shape {indices.shape} for a product with {n} axes"
        raise ShapeMismatchError(msg, expected="(*batch, nse, n_sparse)")
    return bcoo_dot_general_sampled_p.bind(left, right, indices, dimension_numbers=dims.numbers())


@final
class BcooDotGeneralSampled(ByDefinition):
    """Two dense arrays and coordinates in their product -> data."""

    name = "bcoo_dot_general_sampled"
    cost = Cost.CONTRACTION

    def define(self, lhs: Any, rhs: Any, indices: Any, *, dimension_numbers: Any) -> Any:
        dims = checked_dims(self.name, lhs, rhs, dimension_numbers)
        return _sampled(lhs, rhs, indices, dims)


bcoo_dot_general_sampled_p = BcooDotGeneralSampled()


def _product_axes(A: Any, B: Any, dims: Dims) -> list[tuple[int | None, int | None]]:
    """For each axis of the product the axes of the two arrays from which it comes."""
    return [
        *zip(dims.lhs_batch, dims.rhs_batch, strict=True),
        *[
            (a, None)
            for a in range(A.ndim)
            if a not in dims.lhs_contracting and a not in dims.lhs_batch
        ],
        *[
            (None, b)
            for b in range(B.ndim)
            if b not in dims.rhs_contracting and b not in dims.rhs_batch
        ],
    ]


def _sampled(A: Any, B: Any, indices: Any, dims: Dims) -> Any:
    axes = _product_axes(A, B, dims)
    if indices.ndim > 2:
        a, b = axes[0]
        rest = Dims(
            dims.lhs_contracting if a is None else _less(dims.lhs_contracting, a),
            dims.rhs_contracting if b is None else _less(dims.rhs_contracting, b),
            dims.lhs_batch if a is None else _less(dims.lhs_batch, a),
            dims.rhs_batch if b is None else _less(dims.rhs_batch, b),
        )
        size = B.shape[b] if a is None else A.shape[a]
        many = indices.shape[0] == size
        if not many:
            indices = tnp.squeeze(indices, 0)
        return vmap(
            lambda a, b, i: _sampled(a, b, i, rest), (a, b, 0 if many else None), axis_size=size
        )(A, B, indices)
    n = indices.shape[-1]
    sizes = [B.shape[b] if a is None else A.shape[a] for a, b in axes]
    indices = not_negative(indices, tuple(sizes[:n]))
    left, a_place = _rows_at(A, indices, [a for a, _ in axes[:n]])
    right, b_place = _rows_at(B, indices, [b for _, b in axes[:n]])
    numbers = (
        (
            [a_place[a] for a in dims.lhs_contracting],
            [b_place[b] for b in dims.rhs_contracting],
        ),
        (
            [0, *[a_place[a] for a in dims.lhs_batch[n:]]],
            [0, *[b_place[b] for b in dims.rhs_batch[n:]]],
        ),
    )
    return lax.dot_general(left, right, numbers)


def _rows_at(x: Any, indices: Any, axes: Sequence[int | None]) -> tuple[Any, dict[int, int]]:
    """Parts of an array for each coordinate, and where its other axes are then."""
    gather = [a for a in axes if a is not None]
    others = [a for a in range(x.ndim) if a not in gather]
    place = {a: k + 1 for k, a in enumerate(others)}
    x = tnp.transpose(x, (*gather, *others))
    if not gather:
        return tnp.broadcast_to(x, (indices.shape[0], *x.shape)), place
    found = tuple([indices[:, k] for k, a in enumerate(axes) if a is not None])
    return x.at[found].get(mode="fill", fill_value=0), place
