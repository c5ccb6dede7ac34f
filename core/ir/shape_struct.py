"""ShapeDtypeStruct: what an array would look like, without data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from tracebridge.core.dtypes.canonicalize import as_given, canonicalize
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.sharding.axis_types import ManualAxisType
from tracebridge.core.sharding.context import named_sharding
from tracebridge.core.sharding.layout import Format, Layout, row_major, sharding_of_format
from tracebridge.core.sharding.partition_spec import PartitionSpec
from tracebridge.core.sharding.sharding import Sharding
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.dtypes.dtypes import DTypeLike


@public_path("tracebridge")
@final
class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist. Immutable, hashable.

    Args:
        shape: sizes of the axes.
        dtype: dtype of the elements. One of 64 bits is kept, and narrowed where it is used while
            the option ``enable_x64`` is off.
        sharding: where the array would live, or None. A ``PartitionSpec`` is one of the mesh that
            is in force when ``sharding`` is asked for.
        weak_type: whether the dtype yields to that of other operands.
        manual_axis_type: along which axes of ``shard_map`` devices may have different values.
        is_ref: whether it stands for a mutable reference with such a content, where a function
            is lowered.

    Raises:
        ValueError: there is no dtype, or ``sharding`` is something else.
        ArgumentTypeError: ``sharding`` is a format that leaves the layout to the compiler.
        ShapeMismatchError: the sharding does not split the shape evenly.

    >>> import tracebridge as tb
    >>> tb.eval_shape(lambda x: x + 1, tb.ShapeDtypeStruct((2, 3), 'float32'))
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = (
        "_exact", "_sharding", "dtype", "is_ref", "manual_axis_type", "shape", "weak_type",
    )  # fmt: skip
    shape: tuple[Any, ...]
    dtype: Any
    _sharding: Any
    weak_type: bool
    manual_axis_type: ManualAxisType | None
    is_ref: bool
    # Whether the dtype is that of an array that exists: it is never narrowed.
    _exact: bool

    def __init__(
        self,
        shape: Any,
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
        manual_axis_type: ManualAxisType | None = None,
        is_ref: bool = False,
    ) -> None:
        if dtype is None:
            msg = "ShapeDtypeStruct: dtype is None, expected a dtype"
            raise ArgumentValueError(msg)
        put = object.__setattr__
        put(self, "shape", tuple(shape))
        put(self, "dtype", as_given(dtype))
        put(self, "_exact", False)
        if isinstance(sharding, Format):
            sharding = _place_of(sharding)
        if sharding is not None:
            _check_sharding(sharding, self.shape)
        put(self, "_sharding", sharding)
        put(self, "weak_type", bool(weak_type))
        put(self, "manual_axis_type", manual_axis_type)
        put(self, "is_ref", bool(is_ref))

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """Shape, dtype and placement of an array, or of anything that has a shape and a dtype.

        An array that may be moved freely has no placement here.

        >>> import tracebridge as tb
        >>> tb.ShapeDtypeStruct.like(tb.lax.iota("int8", 3))
        ShapeDtypeStruct(shape=(3,), dtype=int8)
        """
        if isinstance(x, ShapeDtypeStruct):
            return x
        plain = not issubclass(type(x), EngineValue) and hasattr(x, "shape") and hasattr(x, "dtype")
        aval: Any = x if plain else as_value(x).aval
        weak = bool(getattr(aval, "weak_type", False))
        where = None if type(x) is ShapedArray else getattr(x, "sharding", None)
        if where is not None and not getattr(x, "committed", True):
            where = None
        vma = getattr(aval, "vma", None)
        kind = ManualAxisType(varying=vma) if vma else None
        struct = cls(aval.shape, aval.dtype, sharding=where, weak_type=weak, manual_axis_type=kind)
        object.__setattr__(struct, "_exact", not plain)
        return struct

    @property
    def format(self) -> Format:
        """Where the array would live, and in which order."""
        sharding = self.sharding
        if not isinstance(sharding, Sharding):
            return Format()
        return row_major(len(self.shape), sharding)

    @property
    def sharding(self) -> Any:
        """Where the array would live, or None."""
        given = self._sharding
        return None if given is None else named_sharding("ShapeDtypeStruct", given)

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"ShapeDtypeStruct is immutable; use update({name}=...) for a changed copy"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements."""
        n: Any = 1
        for d in self.shape:
            n = n * d
        return n

    @property
    def nbytes(self) -> Any:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def to_aval(self) -> ShapedArray:
        """The abstract value of such an array."""
        dtype = self.dtype if self._exact else canonicalize(self.dtype)
        kind = self.manual_axis_type
        return ShapedArray(
            self.shape, dtype, self.weak_type, sharding=self.sharding, manual_axis_type=kind
        )

    @property
    def __tracebridge_typeof__(self) -> ShapedArray:
        return self.to_aval()

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with some of the arguments of the class replaced."""
        fields: dict[str, Any] = {
            "shape": self.shape,
            "dtype": self.dtype,
            "sharding": self._sharding,
            "weak_type": self.weak_type,
            "manual_axis_type": self.manual_axis_type,
            "is_ref": self.is_ref,
        }
        unknown = sorted(changes.keys() - fields.keys())
        if unknown:
            msg = f"ShapeDtypeStruct.update: unknown fields {unknown}, expected {sorted(fields)}"
            raise ArgumentTypeError(msg)
        changed = ShapeDtypeStruct(**{**fields, **changes})
        object.__setattr__(changed, "_exact", self._exact and "dtype" not in changes)
        return changed

    def __len__(self) -> int:
        if not self.shape:
            msg = "len() of a ShapeDtypeStruct without axes"
            raise ArgumentTypeError(msg)
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShapeDtypeStruct):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        kind = self.manual_axis_type
        return (self.shape, self.dtype, self._sharding, self.weak_type, kind, self.is_ref)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (*self._key(), self._exact)

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        where = "" if self._sharding is None else f", sharding={self._sharding}"
        kind = self.manual_axis_type
        varies = "" if kind is None else f", manual_axis_type={kind}"
        ref = ", is_ref=True" if self.is_ref else ""
        end = f"{weak}{where}{varies}{ref}"
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{end})"


def _place_of(given: Format) -> Any:
    """The sharding of a format, whose layout is one that arrays have."""
    if given.layout is Layout.AUTO:
        msg = f"ShapeDtypeStruct: sharding is {given}"
        raise ArgumentTypeError(msg, expected="a format that says the layout")
    return sharding_of_format("ShapeDtypeStruct: sharding", given)


def _check_sharding(sharding: Any, shape: tuple[Any, ...]) -> None:
    if isinstance(sharding, Sharding):
        if all([type(n) is int for n in shape]):
            sharding.shard_shape(shape)
    elif not isinstance(sharding, PartitionSpec):
        msg = f"ShapeDtypeStruct: sharding is {sharding!r} of type {type(sharding).__name__}"
        raise ArgumentValueError(msg, expected="a Sharding, a PartitionSpec, or None")


def _rebuild(
    shape: object,
    dtype: DTypeLike,
    sharding: object,
    weak_type: bool,
    kind: ManualAxisType | None,
    is_ref: bool,
    exact: bool,
) -> ShapeDtypeStruct:
    struct = ShapeDtypeStruct(
        shape, dtype, sharding=sharding, weak_type=weak_type, manual_axis_type=kind, is_ref=is_ref
    )
    object.__setattr__(struct, "_exact", exact)
    return struct


def struct_of(aval: ShapedArray, sharding: object = None) -> ShapeDtypeStruct:
    """The ShapeDtypeStruct of an aval, whose dtype is canonical already; a user's type itself.

    Without ``sharding`` it is divided as the type says.
    """
    if type(aval) is not ShapedArray:
        return aval
    struct = object.__new__(ShapeDtypeStruct)
    put = object.__setattr__
    put(struct, "shape", aval.shape)
    put(struct, "dtype", aval.dtype)
    put(struct, "_sharding", aval.split if sharding is None else sharding)
    put(struct, "weak_type", aval.weak_type)
    kind = ManualAxisType(varying=aval.vma) if aval.vma else None
    put(struct, "manual_axis_type", kind)
    put(struct, "is_ref", False)
    put(struct, "_exact", True)
    return struct
