"""ravel_pytree: all leaves of a tree as one vector, and the way back."""

from __future__ import annotations

import math
import warnings
from typing import Any, final

import numpy as np

import tracebridge.core.lax as lax
from tracebridge._api.args.values import public, values_of
from tracebridge.core.dtypes.dtypes import is_extended
from tracebridge.core.dtypes.promotion import result_type
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.tree import PyTreeDef, flatten


@final
class Unravel:
    """The function that makes a tree of a vector. Equal for trees of one type, and hashable."""

    __slots__ = ("_dtype", "_dtypes", "_shapes", "_tree")

    def __init__(
        self,
        tree: PyTreeDef,
        shapes: tuple[Any, ...],
        dtypes: tuple[np.dtype[Any], ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._tree = tree
        self._shapes = shapes
        self._dtypes = dtypes
        self._dtype = dtype

    @api_boundary
    def __call__(self, flat: Any) -> Any:
        """The tree whose leaves, one after the other, are the elements of ``flat``.

        Raises:
            ShapeMismatchError: ``flat`` is no vector, or has another number of elements.
            DtypeMismatchError: leaves have several dtypes, and ``flat`` is not of the common one.
        """
        x = as_value(flat, "unravel")
        sizes = [math.prod(shape) for shape in self._shapes]
        if x.aval.shape != (sum(sizes),):
            msg = f"unravel: got an array {x.aval.str_short()}"
            raise ShapeMismatchError(msg, expected=f"a vector of {sum(sizes)} elements")
        mixed = any([d != self._dtype for d in self._dtypes])
        if mixed and x.aval.dtype != self._dtype:
            raise DtypeMismatchError(
                call="unravel",
                got=f"an array of dtype {x.aval.dtype.name}",
                expected=f"{self._dtype.name}, the common dtype of the leaves",
                hint="convert it with astype",
            )
        parts = lax.split(x, sizes) if sizes else []
        leaves = [lax.reshape(p, shape) for p, shape in zip(parts, self._shapes, strict=True)]
        if mixed:
            with warnings.catch_warnings():
                # Parts of a complex vector go back to real leaves.
                warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
                leaves = [
                    lax.convert_element_type(leaf, dtype)
                    for leaf, dtype in zip(leaves, self._dtypes, strict=True)
                ]
        return self._tree.unflatten([public(leaf) for leaf in leaves])

    def _key(self) -> tuple[Any, ...]:
        return self._tree, self._shapes, self._dtypes, self._dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unravel) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@api_boundary
def ravel_pytree(pytree: Any) -> tuple[Any, Unravel]:
    """All leaves of a tree as one vector, and the function that makes such a tree of a vector.

    Args:
        pytree: tree of arrays and numbers. Leaves of several dtypes are converted to the dtype
            that they promote to.

    Returns:
        ``(flat, unravel)``: the leaves in the order of ``tree.leaves``, each in row-major order;
        ``unravel(vector)`` gives a tree of the same structure, shapes and dtypes. If all leaves
        have one dtype it takes and gives any. It is hashable, and equal for trees of one type.

    Raises:
        UnsupportedDtypeError: a leaf is no array or number.
        TypePromotionError: the dtypes have no common one.

    >>> import tracebridge as tb
    >>> from tracebridge.flatten_util import ravel_pytree
    >>> flat, unravel = ravel_pytree({"a": tb.numpy.arange(2), "b": 1.5})
    >>> print(flat)
    [0.  1.  1.5]
    >>> unravel(2 * flat)["a"].tolist()
    [0, 2]
    """
    leaves, tree = flatten(pytree)
    values = values_of("ravel_pytree", leaves, tree, "pytree")
    for value in values:
        if is_extended(value.aval.dtype):
            raise UnsupportedDtypeError(
                f"ravel_pytree: a leaf has dtype {value.aval.dtype.name}, expected numbers"
            )
    dtypes = tuple([v.aval.dtype for v in values])
    if len(set(dtypes)) > 1:
        dtype = result_type(*dtypes)
        values = [lax.convert_element_type(v, dtype) for v in values]
    else:
        dtype = dtypes[0] if dtypes else np.dtype(np.float32)
    unravel = Unravel(tree, tuple([v.aval.shape for v in values]), dtypes, dtype)
    if not values:
        return public(lax.full((0,), 0, dtype)), unravel
    flat = [lax.reshape(v, (v.aval.size,)) for v in values]
    return public(lax.concatenate(flat, 0) if len(flat) > 1 else flat[0]), unravel
