"""Abstract values: what is known of an array while a program is traced."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, final

import numpy as np

from tracebridge.core.dtypes.dtypes import is_extended, short_name, tangent_dtype
from tracebridge.core.sharding.axis_types import WHOLLY_SHARED, ManualAxisType
from tracebridge.core.sharding.context import get_abstract_mesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec, entry_names
from tracebridge.core.sharding.splits import check_even, explicit_split
from tracebridge.core.util.caching import interned
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from collections.abc import Sequence


Shape = tuple[Any, ...]
NOWHERE: frozenset[Any] = frozenset()

# One object per (shape, dtype, weak_type, split, vma): equality is identity, hashes are as usual.
# Entries are weak, so that a program that sees ever new shapes does not grow the table for ever.
_INTERNED: dict[tuple[Any, ...], weakref.ReferenceType[ShapedArray]] = {}


@public_path("tracebridge.core")
@final
class ShapedArray:
    """Shape, dtype and weak type of an array. Interned: compare with ``is``.

    ``mlir_type``, ``strong`` and ``tangent`` memoise what other layers derive from an aval.
    ``split`` is how it is divided over axes of type Explicit, a ``NamedSharding`` over an abstract
    mesh with an entry for each axis; None if over none. ``vma`` are the axes of ``shard_map``
    along which the devices may have different values. The constructor and ``update`` take
    ``memory_space`` without effect.
    """

    __slots__ = (
        "__weakref__",
        "_strong",
        "_tangent",
        "dtype",
        "mlir_type",
        "ndim",
        "shape",
        "size",
        "split",
        "vma",
        "weak_type",
    )

    shape: Shape
    dtype: np.dtype[Any]
    weak_type: bool
    ndim: int
    size: Any
    split: NamedSharding | None
    vma: frozenset[Any]
    mlir_type: Any
    _strong: ShapedArray | None
    _tangent: ShapedArray | None

    def __new__(
        cls,
        shape: Any,
        dtype: Any,
        weak_type: bool = False,
        *,
        sharding: object = None,
        manual_axis_type: ManualAxisType | None = None,
        memory_space: object = None,
    ) -> ShapedArray:
        del memory_space
        if type(shape) is not tuple:
            shape = tuple(shape)
        if not isinstance(dtype, np.dtype) and not is_extended(dtype):
            dtype = np.dtype(dtype)
        split = None if sharding is None else explicit_split(sharding, len(shape))
        if split is not None:
            check_even(split, shape)
        vma = NOWHERE if manual_axis_type is None else manual_axis_type.varying
        key = (shape, dtype, weak_type, split, vma)
        reference = _INTERNED.get(key)
        if reference is not None:
            found = reference()
            if found is not None:
                return found
        return _make(*key)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.shape, self.dtype, self.weak_type, self.split)
        return _restored, ((*fields, tuple(self.vma)) if self.vma else fields)

    def __copy__(self) -> ShapedArray:
        return self

    def __deepcopy__(self, memo: object) -> ShapedArray:
        return self

    def update(
        self,
        shape: Any = None,
        dtype: Any = None,
        weak_type: bool | None = None,
        *,
        sharding: object = None,
        manual_axis_type: ManualAxisType | None = None,
        memory_space: object = None,
    ) -> ShapedArray:
        """The aval with some of its fields replaced; another shape is split over no axis.

        The lookup of `__new__` is repeated here: each result of a rule is made by this method.
        """
        del memory_space
        split, vma = self.split, self.vma
        if shape is None:
            shape = self.shape
        else:
            if type(shape) is not tuple:
                shape = tuple(shape)
            if split is not None and shape != self.shape:
                split = None
        if sharding is not None:
            split = explicit_split(sharding, len(shape))
        if manual_axis_type is not None:
            vma = manual_axis_type.varying
        if dtype is None:
            dtype = self.dtype
        elif not isinstance(dtype, np.dtype) and not is_extended(dtype):
            dtype = np.dtype(dtype)
        if weak_type is None:
            weak_type = self.weak_type
        reference = _INTERNED.get((shape, dtype, weak_type, split, vma))
        if reference is not None:
            interned = reference()
            if interned is not None:
                return interned
        return _make(shape, dtype, weak_type, split, vma)

    def with_split(self, split: NamedSharding | None) -> ShapedArray:
        """The same, divided over axes of type Explicit as ``split`` says, which has normal form."""
        if split is self.split:
            return self
        return _found((self.shape, self.dtype, self.weak_type, split, self.vma))

    def with_vma(self, vma: frozenset[Any]) -> ShapedArray:
        """The same, of which devices along the axes ``vma`` may have different values."""
        if vma == self.vma:
            return self
        return _found((self.shape, self.dtype, self.weak_type, self.split, vma))

    @property
    def strong(self) -> ShapedArray:
        """The same aval, strongly typed."""
        if not self.weak_type:
            return self
        if self._strong is None:
            self._strong = self.update(weak_type=False)
        return self._strong

    @property
    def tangent(self) -> ShapedArray:
        """The aval of tangents: the same for inexact dtypes, float0 for the others."""
        found = self._tangent
        if found is None:
            dtype = tangent_dtype(self.dtype)
            is_own = dtype == self.dtype
            found = self if is_own else self.update(dtype=dtype, weak_type=False)
            self._tangent = found
        return found

    @property
    def manual_axis_type(self) -> ManualAxisType:
        """Along which axes of ``shard_map`` the devices may have different values."""
        return ManualAxisType(varying=self.vma) if self.vma else WHOLLY_SHARED

    mat = manual_axis_type

    @property
    def sharding(self) -> NamedSharding:
        """How the type divides arrays: over axes of type Explicit, of the mesh in force or its own.

        Where arrays are divided over axes of other types it says nothing, whatever devices hold
        them.
        """
        if self.split is not None:
            return self.split
        return NamedSharding(get_abstract_mesh(), PartitionSpec(*[None] * self.ndim))

    def strip_weak_type(self) -> ShapedArray:
        """``strong``."""
        return self.strong

    def update_weak_type(self, weak_type: bool) -> ShapedArray:
        """The same aval, weakly or strongly typed."""
        return self.update(weak_type=weak_type)

    def to_tangent_aval(self) -> ShapedArray:
        """``tangent``."""
        return self.tangent

    to_ct_aval = at_least_vspace = to_tangent_aval

    # What types of users define (ir/user_type.py): an array consists of itself.

    def lo_ty(self) -> list[ShapedArray]:
        """The types of the arrays that a value consists of."""
        return [self]

    def lower_val(self, hi_val: Any, /) -> list[Any]:
        """The arrays of a value."""
        return [hi_val]

    def raise_val(self, lo_val: Any, /) -> Any:
        """The value of an array."""
        return lo_val

    def dec_rank(self, size: Any, spec: int | None, /) -> ShapedArray:
        """The type of one of ``size`` elements along the axis ``spec``."""
        del size
        return element_aval(self, spec)

    def inc_rank(self, size: Any, spec: int | None, /) -> ShapedArray:
        """The type of ``size`` elements along the new axis ``spec``."""
        return batched_aval(self, size, spec)

    def leading_axis_spec(self) -> int:
        """Slices of a loop are those along the first axis."""
        return 0

    def vspace_add(self, x: Any, y: Any, /) -> Any:
        """The sum of two tangents of the type."""
        return x + y

    def normalize(self) -> ShapedArray:
        """The type without what does not matter for the meaning of a program."""
        return self.strong

    def str_short(self, short_dtypes: bool = True) -> str:
        """The form of printed Jaxprs, such as ``f32[2,3]``, or ``f32[2@x,3]`` if it is split.

        Args:
            short_dtypes: False names the dtype as NumPy does: ``float32[2,3]``, which is `str`.
        """
        name = short_name(self.dtype) if short_dtypes else self.dtype.name
        return f"{name}[{self._sizes()}]{self._varies()}"

    def _varies(self) -> str:
        if not self.vma:
            return ""
        names = sorted(map(str, self.vma))
        return f"{{V:{names[0] if len(names) == 1 else '(' + ','.join(names) + ')'}}}"

    def _sizes(self) -> str:
        if self.split is None:
            return ",".join(map(str, self.shape))
        pairs = zip(self.shape, self.split.spec, strict=True)
        return ",".join([_split_size(size, entry_names(entry)) for size, entry in pairs])

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short(short_dtypes=False)}{weak})"

    def __str__(self) -> str:
        """The type in full; weak types begin with ``~``."""
        return f"{'~' if self.weak_type else ''}{self.str_short(short_dtypes=False)}"


def result_aval(
    operands: Sequence[ShapedArray],
    shape: Any,
    dtype: Any = None,
    weak_type: bool | None = None,
) -> ShapedArray:
    """The aval of a result of several operands.

    Its dtype is that of the first one, and it is weakly typed if all of them are, unless given.
    With one operand, call its `update`. What avals get to know besides (how they are split, say)
    is combined here, so that rules name all operands that the result depends on.
    """
    if weak_type is None:
        weak_type = all([a.weak_type for a in operands])
    return operands[0].update(shape, dtype, weak_type)


def batched_aval(aval: ShapedArray, size: Any, dim: int | None = 0) -> ShapedArray:
    """The aval of ``size`` values side by side along a new axis; as it is if ``dim`` is None."""
    if dim is None:
        return aval
    if type(aval) is not ShapedArray:  # a type of users; see ir/user_type.py
        return aval.inc_rank(size, aval.leading_axis_spec() if dim == 0 else dim)
    shape = aval.shape
    batched = aval.update((*shape[:dim], size, *shape[dim:]))
    if aval.split is None:
        return batched
    spec = [*aval.split.spec]
    spec.insert(dim, None)
    return batched.with_split(aval.split.with_spec(PartitionSpec(*spec)))


def element_aval(aval: ShapedArray, dim: int | None = 0) -> ShapedArray:
    """The aval of one element along an axis; as it is if ``dim`` is None."""
    if dim is None:
        return aval
    shape = aval.shape
    element = aval.update((*shape[:dim], *shape[dim + 1 :]))
    if aval.split is None:
        return element
    spec = [*aval.split.spec]
    del spec[dim]
    return element.with_split(explicit_split(aval.split.with_spec(PartitionSpec(*spec)), len(spec)))


def stored(aval: ShapedArray) -> ShapedArray:
    """How an array of an extended dtype is stored: elements are blocks of an ordinary dtype."""
    dtype: Any = aval.dtype
    if not is_extended(dtype):
        return aval
    return aval.update((*aval.shape, *dtype.element_shape), dtype.element_dtype)


def _split_size(size: object, names: tuple[Any, ...]) -> str:
    """A size, and the names of the axes over which it is divided."""
    if not names:
        return str(size)
    return f"{size}@{names[0]}" if len(names) == 1 else f"{size}@({','.join(map(str, names))})"


def _restored(
    shape: Shape,
    dtype: np.dtype[Any],
    weak_type: bool,
    split: NamedSharding | None,
    vma: tuple[Any, ...] = (),
) -> ShapedArray:
    return ShapedArray(shape, dtype, weak_type, sharding=split).with_vma(frozenset(vma))


def _found(key: tuple[Any, ...]) -> ShapedArray:
    reference = _INTERNED.get(key)
    found = None if reference is None else reference()
    return found if found is not None else _make(*key)


def _make(
    shape: Shape,
    dtype: np.dtype[Any],
    weak_type: bool,
    split: NamedSharding | None,
    vma: frozenset[Any] = NOWHERE,
) -> ShapedArray:
    """Make and intern a new aval; dims are normalised so that ``np.int64(3)`` and 3 are one key."""
    shape = tuple([d if type(d) is int else _as_dim(d) for d in shape])
    weak_type = bool(weak_type)
    aval = object.__new__(ShapedArray)
    aval.shape = shape
    aval.dtype = dtype
    aval.weak_type = weak_type
    aval.split = split
    aval.vma = vma
    aval.ndim = len(shape)
    size: Any = 1
    for d in shape:
        size = size * d
    aval.size = size
    aval.mlir_type = aval._strong = aval._tangent = None
    return interned(_INTERNED, (shape, dtype, weak_type, split, vma), aval)


def _as_dim(d: Any) -> Any:
    """An int, or a symbolic dimension as it is."""
    if getattr(d, "is_symbolic_dim", False):
        return d
    return int(d.__index__())
