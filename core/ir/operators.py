"""Operators, indexing and methods, shared by arrays and tracers.

Every method delegates to the NumPy layer through the slot in ir/array_protocol.py. Attributes that
the layer adds (``sum``, ``T``, ``reshape``, ...) cost nothing until the first one is used.

Every method trims the traceback of an error itself: a ``try`` costs nothing until it catches, the
extra call of ``api_boundary`` would be paid each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import hide_internal_frames, hiding
from tracebridge.core.ir.array_protocol import METHODS, NAMESPACE, PROPERTIES
from tracebridge.core.ir.late_attributes import LateAttribute, present, set_missing

if TYPE_CHECKING:
    from tracebridge.core.ir.value import Value


class EngineValue:
    """Base of the classes whose ``aval`` is one of this engine.

    Arrays of other libraries have such an attribute as well.
    """

    __slots__ = ()


# Classes of values that were seen; the set is looked up without a step of Python per operand.
_OF_ENGINE: set[type] = set()


def are_of_engine(args: Sequence[Value]) -> bool:
    """Whether what the operands call ``aval`` is ours: arrays of others have one, too."""
    if _OF_ENGINE.issuperset(map(type, args)):
        return True
    found = {kind for kind in map(type, args) if issubclass(kind, EngineValue)}
    _OF_ENGINE.update(found)
    return found.issuperset(map(type, args))


OF_TENSORS = {
    "add_": "x + y: arrays do not change",
    "backward": "tracebridge.grad(function) gives derivatives",
    "chunk": "tracebridge.numpy.array_split(x, n)",
    "clamp": "x.clip(min, max)",
    "clone": "x.copy()",
    "contiguous": "x: memory of arrays is always dense",
    "copy_": "y: arrays do not change",
    "cpu": "tracebridge.device_put(x, device)",
    "cuda": "tracebridge.device_put(x, device)",
    "detach": "tracebridge.lax.stop_gradient(x)",
    "dim": "x.ndim",
    "div_": "x / y: arrays do not change",
    "double": "x.astype('float64'), with tracebridge.enable_x64(True)",
    "exp": "tracebridge.numpy.exp(x)",
    "expand": "tracebridge.numpy.broadcast_to(x, shape)",
    "fill_": "tracebridge.numpy.full_like(x, value): arrays do not change",
    "float": "x.astype('float32')",
    "grad": "tracebridge.grad(function) gives derivatives",
    "half": "x.astype('float16')",
    "int": "x.astype('int32')",
    "log": "tracebridge.numpy.log(x)",
    "long": "x.astype(int)",
    "matmul": "x @ y",
    "mul_": "x * y: arrays do not change",
    "norm": "tracebridge.numpy.sqrt(tracebridge.numpy.sum(x * x))",
    "numel": "x.size",
    "numpy": "numpy.asarray(x), outside of functions that are traced",
    "permute": "x.transpose(axes)",
    "requires_grad": "tracebridge.grad(function) gives derivatives",
    "sqrt": "tracebridge.numpy.sqrt(x)",
    "sub_": "x - y: arrays do not change",
    "tanh": "tracebridge.numpy.tanh(x)",
    "to": "x.astype(dtype), or tracebridge.device_put(x, device)",
    "unsqueeze": "tracebridge.numpy.expand_dims(x, axis)",
    "zero_": "tracebridge.numpy.zeros_like(x): arrays do not change",
}
"""Attributes of tensors of frameworks, and what arrays have instead."""


class BinaryOperators:
    """The operators of two operands, without the comparisons."""

    __slots__ = ()
    __array_priority__ = 100

    def __add__(self, other: object) -> Self:
        try:
            return NAMESPACE.add(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __radd__(self, other: object) -> Self:
        try:
            return NAMESPACE.radd(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __sub__(self, other: object) -> Self:
        try:
            return NAMESPACE.sub(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rsub__(self, other: object) -> Self:
        try:
            return NAMESPACE.rsub(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __mul__(self, other: object) -> Self:
        try:
            return NAMESPACE.mul(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rmul__(self, other: object) -> Self:
        try:
            return NAMESPACE.rmul(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __truediv__(self, other: object) -> Self:
        try:
            return NAMESPACE.truediv(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rtruediv__(self, other: object) -> Self:
        try:
            return NAMESPACE.rtruediv(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __floordiv__(self, other: object) -> Self:
        try:
            return NAMESPACE.floordiv(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rfloordiv__(self, other: object) -> Self:
        try:
            return NAMESPACE.rfloordiv(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __mod__(self, other: object) -> Self:
        try:
            return NAMESPACE.mod(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rmod__(self, other: object) -> Self:
        try:
            return NAMESPACE.rmod(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __pow__(self, other: object) -> Self:
        try:
            return NAMESPACE.pow(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rpow__(self, other: object) -> Self:
        try:
            return NAMESPACE.rpow(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __matmul__(self, other: object) -> Self:
        try:
            return NAMESPACE.matmul(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rmatmul__(self, other: object) -> Self:
        try:
            return NAMESPACE.rmatmul(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __and__(self, other: object) -> Self:
        try:
            return NAMESPACE.and_(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rand__(self, other: object) -> Self:
        try:
            return NAMESPACE.rand(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __or__(self, other: object) -> Self:
        try:
            return NAMESPACE.or_(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __ror__(self, other: object) -> Self:
        try:
            return NAMESPACE.ror(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __xor__(self, other: object) -> Self:
        try:
            return NAMESPACE.xor(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rxor__(self, other: object) -> Self:
        try:
            return NAMESPACE.rxor(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __lshift__(self, other: object) -> Self:
        try:
            return NAMESPACE.lshift(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rlshift__(self, other: object) -> Self:
        try:
            return NAMESPACE.rlshift(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rshift__(self, other: object) -> Self:
        try:
            return NAMESPACE.rshift(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rrshift__(self, other: object) -> Self:
        try:
            return NAMESPACE.rrshift(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __divmod__(self, other: object) -> tuple[Self, Self]:
        try:
            return NAMESPACE.divmod(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __rdivmod__(self, other: object) -> tuple[Self, Self]:
        try:
            return NAMESPACE.rdivmod(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise


class ArrayOperators(BinaryOperators, EngineValue):
    """Mixin of Array and Tracer. Subclasses have ``aval``."""

    __slots__ = ()
    aval: Any
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __eq__(self, other: object) -> Self:  # type: ignore[override] - elementwise, as in NumPy
        try:
            return NAMESPACE.eq(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __ne__(self, other: object) -> Self:  # type: ignore[override] - elementwise, as in NumPy
        try:
            return NAMESPACE.ne(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __lt__(self, other: object) -> Self:
        try:
            return NAMESPACE.lt(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __le__(self, other: object) -> Self:
        try:
            return NAMESPACE.le(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __gt__(self, other: object) -> Self:
        try:
            return NAMESPACE.gt(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __ge__(self, other: object) -> Self:
        try:
            return NAMESPACE.ge(self, other)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __neg__(self) -> Self:
        try:
            return NAMESPACE.neg(self)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __pos__(self) -> Self:
        try:
            return NAMESPACE.pos(self)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __abs__(self) -> Self:
        try:
            return NAMESPACE.abs(self)
        except Exception as error:
            hide_internal_frames(error)
            raise

    def __invert__(self) -> Self:
        try:
            return NAMESPACE.invert(self)
        except Exception as error:
            hide_internal_frames(error)
            raise

    __hash__ = None  # type: ignore[assignment]  # mutable-looking: == is elementwise

    def __getitem__(self, index: object) -> Self:
        try:
            return NAMESPACE.getitem(self, index)
        except Exception as error:
            hide_internal_frames(error)
            raise

    @hiding
    def __setitem__(self, index: object, value: Any) -> None:
        msg = (
            "arrays are immutable: x[index] = value does not work. Use x = x.at[index].set(value)."
        )
        raise ArgumentTypeError(msg)

    def __round__(self, ndigits: int | None = None) -> Self:
        try:
            return NAMESPACE.round_(self, ndigits)
        except Exception as error:
            hide_internal_frames(error)
            raise

    @hiding
    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the array API standard for this array: ``tracebridge.numpy``."""
        return NAMESPACE.array_namespace(api_version)

    def __dir__(self) -> list[str]:
        return present(type(self), object.__dir__(self))

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
        try:
            shape = self.shape
            if not shape:
                msg = "len() of an array without axes"
                raise ArgumentTypeError(msg)
            return shape[0]
        except Exception as error:
            hide_internal_frames(error)
            raise


def _adopt() -> None:
    """Make attributes of the functions of the NumPy layer, which the first use of one loads."""
    for name, method in NAMESPACE.methods.items():
        setattr(ArrayOperators, name, hiding(method))
    for name, get in NAMESPACE.properties.items():
        setattr(ArrayOperators, name, property(hiding(get)))


for _name in (*METHODS, *PROPERTIES):
    setattr(ArrayOperators, _name, LateAttribute(_name, _adopt))
set_missing(ArrayOperators, OF_TENSORS)
