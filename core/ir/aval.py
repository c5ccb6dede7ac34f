"""Abstract values: what is known of an array while a program is traced."""

from __future__ import annotations

import weakref
from typing import Any, final

import numpy as np

from tracebridge.core.dtypes.dtypes import short_name, tangent_dtype
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.sharding.abstract_mesh import AbstractMesh
from tracebridge.core.sharding.named import NamedSharding
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.util.caching import interned
from tracebridge.core.util.public_path import public_path

Shape = tuple[Any, ...]

# Types say nothing of places: the mesh of their shardings has no axes.
_NO_MESH = AbstractMesh((), ())

# One object per (shape, dtype, weak_type): equality is identity, hashing is the default. Entries
# are weak, so that a program that sees ever new shapes does not grow the table for ever.
_INTERNED: dict[tuple[Any, ...], weakref.ReferenceType[ShapedArray]] = {}


@public_path("tracebridge.core")
@final
class ShapedArray:
    """Shape, dtype and weak type of an array. Interned: compare with ``is``.

    ``mlir_type``, ``strong`` and ``tangent`` memoise what other layers derive from an aval.
    """

    __slots__ = (
        "__weakref__",
        "dtype",
        "mlir_type",
        "ndim",
        "shape",
        "size",
        "strong",
        "tangent",
        "weak_type",
    )

    shape: Shape
    dtype: np.dtype[Any]
    weak_type: bool
    ndim: int
    size: Any
    mlir_type: Any
    strong: ShapedArray
    tangent: ShapedArray

    def __new__(
        cls,
        shape: Any,
        dtype: Any,
        weak_type: bool = False,
        *,
        sharding: NamedSharding | None = None,
    ) -> ShapedArray:
        if sharding is not None:
            _check_splits_nothing(sharding)
        if type(shape) is not tuple:
            shape = tuple(shape)
        if not isinstance(dtype, np.dtype):
            dtype = np.dtype(dtype)
        key = (shape, dtype, weak_type)
        reference = _INTERNED.get(key)
        if reference is not None:
            found = reference()
            if found is not None:
                return found
        return _make(shape, dtype, weak_type)

    def __reduce__(self) -> tuple[Any, ...]:
        return ShapedArray, (self.shape, self.dtype, self.weak_type)

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
        sharding: NamedSharding | None = None,
    ) -> ShapedArray:
        """The aval with some of its fields replaced."""
        return ShapedArray(
            self.shape if shape is None else shape,
            self.dtype if dtype is None else dtype,
            self.weak_type if weak_type is None else weak_type,
            sharding=sharding,
        )

    @property
    def sharding(self) -> NamedSharding:
        """How the type itself splits arrays: not at all, whatever devices hold them."""
        return NamedSharding(_NO_MESH, PartitionSpec(*[None] * self.ndim))

    def strip_weak_type(self) -> ShapedArray:
        """The same aval, strongly typed."""
        return self.strong

    def update_weak_type(self, weak_type: bool) -> ShapedArray:
        """The same aval, weakly or strongly typed."""
        return self.update(weak_type=weak_type)

    def to_tangent_aval(self) -> ShapedArray:
        """The aval of tangents: the same for inexact dtypes, float0 for the others."""
        return self.tangent

    to_ct_aval = at_least_vspace = to_tangent_aval

    def str_short(self) -> str:
        """The form of printed Jaxprs, such as ``f32[2,3]``."""
        sizes = ",".join(map(str, self.shape))
        return f"{short_name(self.dtype)}[{sizes}]"

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.dtype.name}[{','.join(map(str, self.shape))}]{weak})"

    __str__ = str_short

    def __getattr__(self, name: str) -> Any:
        # Slots that hold derived avals are filled at first use: making them eagerly would recurse.
        if name == "strong":
            value = self if not self.weak_type else ShapedArray(self.shape, self.dtype)
        elif name == "tangent":
            dtype = tangent_dtype(self.dtype)
            value = self if dtype == self.dtype else ShapedArray(self.shape, dtype)
        elif name == "mlir_type":
            value = None
        else:
            msg = f"'ShapedArray' object has no attribute {name!r}"
            raise AttributeError(msg)
        setattr(self, name, value)
        return value


def _make(shape: Shape, dtype: np.dtype[Any], weak_type: bool) -> ShapedArray:
    """Make and intern a new aval; dims are normalised so that ``np.int64(3)`` and 3 are one key."""
    shape = tuple([d if type(d) is int else _as_dim(d) for d in shape])
    weak_type = bool(weak_type)
    aval = object.__new__(ShapedArray)
    aval.shape = shape
    aval.dtype = dtype
    aval.weak_type = weak_type
    aval.ndim = len(shape)
    size: Any = 1
    for d in shape:
        size = size * d
    aval.size = size
    return interned(_INTERNED, (shape, dtype, weak_type), aval)


def _check_splits_nothing(sharding: Any) -> None:
    """Take back what `ShapedArray.sharding` gave: types say nothing of places."""
    if not isinstance(sharding, NamedSharding):
        raise ArgumentTypeError(
            call="ShapedArray",
            where="argument sharding",
            got=f"{sharding!r} of type {type(sharding).__name__}",
            expected="a NamedSharding or None",
        )
    if not sharding.is_fully_replicated:
        raise ArgumentValueError(
            call="ShapedArray",
            where="argument sharding",
            got=repr(sharding),
            expected="a sharding that splits no axis: the type of an array says nothing of places",
            hint="give the sharding to device_put, or to in_shardings and out_shardings of jit",
        )


def _as_dim(d: Any) -> Any:
    """An int, or a symbolic dimension as it is."""
    if getattr(d, "is_symbolic_dim", False):
        return d
    return int(d.__index__())
