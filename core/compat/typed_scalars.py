"""Python numbers that know a dtype; libraries register conversions for these classes.

To the engine they are the numbers that they are: weakly typed scalars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast, final

from tracebridge.core.dtypes.dtypes import as_dtype

if TYPE_CHECKING:
    import numpy as np

    from tracebridge.core.dtypes.dtypes import DTypeLike


class _Typed:
    """What the three classes share; the class of the number comes second."""

    dtype: np.dtype[Any]

    def __new__(cls, value: Any, dtype: DTypeLike) -> Self:
        self = super().__new__(cls, value)  # type: ignore[call-arg]  # of the class of the number
        # Numbers have no dtypes of users, which `as_dtype` may return, too.
        self.dtype = cast("np.dtype[Any]", as_dtype(dtype))
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()}, dtype={self.dtype.name})"

    def __getnewargs__(self) -> tuple[Any, np.dtype[Any]]:
        """What a copy is made of."""
        kind: Any = type(self).__mro__[2]
        return kind(self), self.dtype


@final
class TypedInt(_Typed, int):
    """An integer with a dtype.

    >>> from tracebridge._src import literals
    >>> literals.TypedInt(3, "int16")
    TypedInt(3, dtype=int16)
    """


@final
class TypedFloat(_Typed, float):
    """A float with a dtype.

    >>> from tracebridge._src import literals
    >>> literals.TypedFloat(0.5, "bfloat16").dtype
    dtype(bfloat16)
    """


@final
class TypedComplex(_Typed, complex):
    """A complex number with a dtype.

    >>> from tracebridge._src import literals
    >>> literals.TypedComplex(1j, "complex64") * 2
    2j
    """
