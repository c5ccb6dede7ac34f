"""Operators, indexing and methods, shared by arrays and tracers.

Every method delegates to the NumPy layer through the slot in ir/array_protocol.py. Attributes that
the layer adds (``sum``, ``T``, ``reshape``, ...) are found by ``__getattr__`` and cost nothing
until used.
"""

from __future__ import annotations

from typing import Any

from tracebridge.core.ir.array_protocol import NAMESPACE


class ArrayOperators:
    """Mixin of Array and Tracer. Subclasses have ``aval``."""

    __slots__ = ()
    __array_priority__ = 100
    aval: Any

    def __add__(self, other: Any) -> Any:
        return NAMESPACE.add(self, other)

    def __radd__(self, other: Any) -> Any:
        return NAMESPACE.radd(self, other)

    def __sub__(self, other: Any) -> Any:
        return NAMESPACE.sub(self, other)

    def __rsub__(self, other: Any) -> Any:
        return NAMESPACE.rsub(self, other)

    def __mul__(self, other: Any) -> Any:
        return NAMESPACE.mul(self, other)

    def __rmul__(self, other: Any) -> Any:
        return NAMESPACE.rmul(self, other)

    def __truediv__(self, other: Any) -> Any:
        return NAMESPACE.truediv(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return NAMESPACE.rtruediv(self, other)

    def __floordiv__(self, other: Any) -> Any:
        return NAMESPACE.floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return NAMESPACE.rfloordiv(self, other)

    def __mod__(self, other: Any) -> Any:
        return NAMESPACE.mod(self, other)

    def __rmod__(self, other: Any) -> Any:
        return NAMESPACE.rmod(self, other)

    def __pow__(self, other: Any) -> Any:
        return NAMESPACE.pow(self, other)

    def __rpow__(self, other: Any) -> Any:
        return NAMESPACE.rpow(self, other)

    def __matmul__(self, other: Any) -> Any:
        return NAMESPACE.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return NAMESPACE.rmatmul(self, other)

    def __and__(self, other: Any) -> Any:
        return NAMESPACE.and_(self, other)

    def __rand__(self, other: Any) -> Any:
        return NAMESPACE.rand(self, other)

    def __or__(self, other: Any) -> Any:
        return NAMESPACE.or_(self, other)

    def __ror__(self, other: Any) -> Any:
        return NAMESPACE.ror(self, other)

    def __xor__(self, other: Any) -> Any:
        return NAMESPACE.xor(self, other)

    def __rxor__(self, other: Any) -> Any:
        return NAMESPACE.rxor(self, other)

    def __lshift__(self, other: Any) -> Any:
        return NAMESPACE.lshift(self, other)

    def __rlshift__(self, other: Any) -> Any:
        return NAMESPACE.rlshift(self, other)

    def __rshift__(self, other: Any) -> Any:
        return NAMESPACE.rshift(self, other)

    def __rrshift__(self, other: Any) -> Any:
        return NAMESPACE.rrshift(self, other)

    def __divmod__(self, other: Any) -> Any:
        return NAMESPACE.divmod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return NAMESPACE.rdivmod(self, other)

    def __eq__(self, other: object) -> Any:
        return NAMESPACE.eq(self, other)

    def __ne__(self, other: object) -> Any:
        return NAMESPACE.ne(self, other)

    def __lt__(self, other: Any) -> Any:
        return NAMESPACE.lt(self, other)

    def __le__(self, other: Any) -> Any:
        return NAMESPACE.le(self, other)

    def __gt__(self, other: Any) -> Any:
        return NAMESPACE.gt(self, other)

    def __ge__(self, other: Any) -> Any:
        return NAMESPACE.ge(self, other)

    def __neg__(self) -> Any:
        return NAMESPACE.neg(self)

    def __pos__(self) -> Any:
        return NAMESPACE.pos(self)

    def __abs__(self) -> Any:
        return NAMESPACE.abs(self)

    def __invert__(self) -> Any:
        return NAMESPACE.invert(self)

    __hash__ = None  # type: ignore[assignment]  # mutable-looking: == is elementwise

    def __getitem__(self, index: Any) -> Any:
        return NAMESPACE.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        msg = (
            f"{type(self).__name__} is immutable: x[index] = value does not work. "
            "Use x = x.at[index].set(value)."
        )
        raise TypeError(msg)

    def __round__(self, ndigits: int | None = None) -> Any:
        return NAMESPACE.round_(self, ndigits)

    def __getattr__(self, name: str) -> Any:
        # Only reached for names that are no slot, property or method of the class, and for slots
        # that are not filled yet: private ones, and the two that the eager trace looks for.
        if name[0] != "_" and name not in {"sig", "buf"} and name not in ArrayOperators.__dict__:
            _adopt_methods()
            if name in ArrayOperators.__dict__:
                return getattr(self, name)
        msg = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(msg)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *NAMESPACE.methods, *NAMESPACE.properties})

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of the axes."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """The NumPy dtype of the elements."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.aval.ndim

    @property
    def size(self) -> Any:
        """Number of elements."""
        return self.aval.size

    @property
    def weak_type(self) -> bool:
        """Whether the dtype yields to that of other operands, as a Python scalar's does."""
        return self.aval.weak_type

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            msg = "len() of an array without axes"
            raise TypeError(msg)
        return shape[0]


def _adopt_methods() -> None:
    """Make methods of the functions of the NumPy layer, which the first use of one has loaded."""
    for name, method in NAMESPACE.methods.items():
        if name not in ArrayOperators.__dict__:
            setattr(ArrayOperators, name, method)
    for name, get in NAMESPACE.properties.items():
        if name not in ArrayOperators.__dict__:
            setattr(ArrayOperators, name, property(get))
