"""What all sparse formats share: the class that they derive from, its operators, warnings.

The operators look their functions up when the first one is used: these functions need the classes.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self, final

from tracebridge.core._jaxlib.pytree import GetAttrKey
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError, index_of
from tracebridge.core.errors.shape_errors import RankError
from tracebridge.core.tree.registry import register_pytree_with_keys
from tracebridge.core.util.public_path import public_path

Shape = tuple[int, ...]


@public_path("tracebridge.experimental.sparse")
class SparseEfficiencyError(ValueError):
    """A conversion of a layout would store many zeros."""


@public_path("tracebridge.experimental.sparse")
class SparseEfficiencyWarning(UserWarning):
    """A conversion of a layout stores many zeros."""


@public_path("tracebridge.experimental.sparse")
class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """Programs may filter it; it is never given, since no kernel of cuSPARSE is called."""


@final
class SparseInfo(NamedTuple):
    """What a sparse array is besides its arrays, as a parameter of primitives."""

    shape: Shape
    indices_sorted: bool = False
    unique_indices: bool = False


def info_of(mat: Any) -> SparseInfo:
    """What is known of a BCOO or BCSR array."""
    return SparseInfo(mat.shape, mat.indices_sorted, mat.unique_indices)


def _function(name: str) -> Callable[..., Any]:
    """A function of the module of operators, which is loaded with the first one."""
    return getattr(importlib.import_module("tracebridge.experimental.sparse._operators"), name)


@public_path("tracebridge.experimental.sparse")
class JAXSparse(ABC):
    """Base class of sparse arrays: they have a shape, a dtype and operators, and are pytrees.

    Attributes:
        data: the stored elements.
        shape: shape of the dense array.

    >>> import tracebridge.numpy as tnp
    >>> from tracebridge.experimental import sparse
    >>> isinstance(sparse.BCOO.fromdense(tnp.eye(2)), sparse.JAXSparse)
    True
    """

    __slots__ = ("__weakref__", "data", "shape")

    # NumPy leaves its operators to this class.
    __array_priority__: ClassVar[int] = 100
    __array_ufunc__: ClassVar[None] = None

    data: Any
    shape: Shape

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]) -> None:
        self.shape = checked_shape(type(self).__name__, shape)

    @property
    def size(self) -> int:
        """Number of elements of the dense array."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes of the dense array."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the elements."""
        return self.data.dtype

    @property
    @abstractmethod
    def nse(self) -> int:
        """Number of stored elements, of each batch."""

    @property
    def T(self) -> Any:
        """The transposed array."""
        return self.transpose()

    @abstractmethod
    def tree_flatten(self) -> tuple[tuple[Any, ...], Hashable]:
        """Arrays, and what else the object is made of."""

    @classmethod
    @abstractmethod
    def tree_unflatten(cls, aux_data: Any, children: Sequence[Any]) -> Self:
        """The object of these arrays; they are not looked at.

        Args:
            aux_data: what ``tree_flatten`` gave besides the arrays.
            children: the arrays.
        """

    @abstractmethod
    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The array with its axes in another order.

        Args:
            axes: the axes of this array in the new order; None reverses them.
        """

    def todense(self) -> Any:
        """The dense array."""
        return _function("dense_form")(self)

    def sum(
        self,
        axis: int | Sequence[int] | None = None,
        dtype: Any = None,
        *,
        keepdims: bool = False,
    ) -> Any:
        """Sum over axes: a BCOO array, over all axes a dense one.

        Args:
            axis: the axes; None for all.
            dtype: dtype of the elements before they are added.
            keepdims: keep the axes with size 1.
        """
        return _function("total")(self, axis, dtype, keepdims)

    def block_until_ready(self) -> Self:
        """Wait until all arrays are computed."""
        for leaf in self.tree_flatten()[0]:
            leaf.block_until_ready()
        return self

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            kinds = [f", {k}={n}" for k in ("n_batch", "n_dense") if (n := getattr(self, k, 0))]
            return f"{name}({self.dtype.name}{list(self.shape)}, nse={self.nse}{''.join(kinds)})"
        except (AttributeError, IndexError, TypeError):  # a tree of other things than arrays
            return f"{name}({', '.join([repr(x) for x in self.tree_flatten()[0]])})"

    def __len__(self) -> int:
        if not self.shape:
            msg = f"len({type(self).__name__}): it has no axes"
            raise RankError(msg)
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __bool__(self) -> bool:
        msg = f"bool({type(self).__name__}): the truth of a sparse array is not defined"
        raise ArgumentTypeError(msg, hint="use its dense form, x.todense()")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        msg = f"{type(self).__name__} is no dense array"
        raise ArgumentTypeError(msg, hint="write x.todense()")

    def __getitem__(self, index: Any) -> Any:
        return _function("item")(self, index)

    def __neg__(self) -> Self:
        return _function("mapped")(self, lambda x: -x)

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Any:
        return _function("absolute")(self)

    def __add__(self, other: Any) -> Any:
        return _function("add")(self, other)

    def __radd__(self, other: Any) -> Any:
        return _function("add")(other, self)

    def __sub__(self, other: Any) -> Any:
        return _function("subtract")(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _function("subtract")(other, self)

    def __mul__(self, other: Any) -> Any:
        return _function("multiply")(self, other)

    def __rmul__(self, other: Any) -> Any:
        return _function("multiply")(other, self)

    def __truediv__(self, other: Any) -> Any:
        return _function("divide")(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _function("divide")(other, self)

    def __eq__(self, other: object) -> Any:
        return _function("compared")("==", self, other)

    def __ne__(self, other: object) -> Any:
        return _function("compared")("!=", self, other)

    def __lt__(self, other: object) -> Any:
        return _function("compared")("<", self, other)

    def __le__(self, other: object) -> Any:
        return _function("compared")("<=", self, other)

    def __gt__(self, other: object) -> Any:
        return _function("compared")(">", self, other)

    def __ge__(self, other: object) -> Any:
        return _function("compared")(">=", self, other)

    # Arrays have none either.
    __hash__ = None  # type: ignore[assignment]  # it has __eq__

    def __pow__(self, exponent: Any) -> Any:
        return _function("power")(self, exponent)

    def __matmul__(self, other: Any) -> Any:
        return _function("matmul")(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _function("matmul")(other, self)


class Format(JAXSparse):
    """A format of this package: its arrays, the elements first, and what is known of them."""

    __slots__ = ()

    _arrays: ClassVar[tuple[str, ...]]
    _facts: ClassVar[tuple[str, ...]] = ()

    def tree_flatten(self) -> tuple[tuple[Any, ...], Hashable]:
        """The arrays, and the shape with what is known of them."""
        arrays = tuple([getattr(self, name) for name in self._arrays])
        return arrays, (self.shape, *[getattr(self, name) for name in self._facts])

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Sequence[Any]) -> Self:
        """The object of these arrays; they are not looked at.

        Args:
            aux_data: what ``tree_flatten`` gave besides the arrays.
            children: the arrays.
        """
        self = object.__new__(cls)
        self.shape, *facts = aux_data
        for name, x in zip((*cls._arrays, *cls._facts), (*children, *facts), strict=True):
            setattr(self, name, x)
        return self


def register_format(kind: type[Format], *names: str) -> None:
    """Make the objects of a format trees, with the names of the arrays as keys."""
    keys = [GetAttrKey(name) for name in names]

    def with_keys(x: Format) -> tuple[list[tuple[Any, Any]], Hashable]:
        arrays, rest = x.tree_flatten()
        return list(zip(keys, arrays, strict=True)), rest

    register_pytree_with_keys(kind, with_keys, kind.tree_unflatten, kind.tree_flatten)


def with_elements(mat: Any, data: Any) -> Any:
    """A sparse array with other elements at the same coordinates."""
    (_, *rest), aux = mat.tree_flatten()
    return type(mat).tree_unflatten(aux, (data, *rest))


def checked_shape(call: str, shape: Any) -> Shape:
    """A shape as a tuple of ints.

    Raises:
        ArgumentValueError: a size is negative.
        ArgumentTypeError: it is no shape.
    """
    try:
        sizes = tuple(shape)
    except TypeError:
        msg = f"{call}: shape is {shape!r}, expected a tuple of ints"
        raise ArgumentTypeError(msg) from None
    found = tuple([index_of(n, call, "a size of shape") for n in sizes])
    if any([n < 0 for n in found]):
        msg = f"{call}: shape is {found}, expected sizes of at least 0"
        raise ArgumentValueError(msg)
    return found
