"""What public functions accept as an array and as a dtype, for annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.arrays.array import Array


@runtime_checkable
class SupportsDType(Protocol):
    """An object with a dtype, such as an array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        ...


if TYPE_CHECKING:
    _NumpyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    _NumpyNumber: TypeAlias = np.number[Any]
    _NumpyDType: TypeAlias = np.dtype[Any]
else:
    # Bare classes: `isinstance(x, ArrayLike)` and checkers of types at run time take no generics.
    _NumpyArray = np.ndarray
    _NumpyNumber = np.number
    _NumpyDType = np.dtype

if TYPE_CHECKING:
    _EngineArray: TypeAlias = Array | Tracer | Value
else:
    _EngineArray = Array | Tracer  # literals are found by their protocol, which is no class

ArrayLike: TypeAlias = (
    _EngineArray | _NumpyArray | np.bool_ | _NumpyNumber | bool | int | float | complex
)
"""Arrays, traced values, NumPy arrays and numbers; a union that `isinstance` takes."""

DTypeLike: TypeAlias = str | type[Any] | _NumpyDType | SupportsDType
"""Dtypes, their names and scalar classes, and objects with a dtype."""
