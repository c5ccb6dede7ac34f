"""The base of extended dtypes: element types that NumPy does not have, such as ``key<fry>``."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.dtypes")
class extended(np.generic):
    """Abstract scalar class above all extended dtypes, for ``issubdtype``."""


@public_path("tracebridge.dtypes")
class prng_key(extended):
    """Abstract scalar class above the dtypes of typed random keys."""


class ExtendedDType(abc.ABC):
    """An element type that is stored as a small block of an ordinary dtype.

    A subclass is immutable and defines ``__eq__`` and ``__hash__``: it takes part in cache keys.
    """

    __slots__ = ()

    kind = "V"

    @property
    @abc.abstractmethod
    def type(self) -> type:
        """The scalar class, below ``extended``."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The printed name, such as ``key<fry>``."""

    @property
    @abc.abstractmethod
    def element_shape(self) -> tuple[int, ...]:
        """Shape of the block that stores one element; it follows the array's own shape."""

    @property
    @abc.abstractmethod
    def element_dtype(self) -> np.dtype[Any]:
        """Dtype of the block that stores one element."""

    def from_blocks(self, blocks: Any) -> Any:
        """The array that these blocks store, of shape ``(*shape, *element_shape)``."""
        msg = f"{type(self).__name__}: from_blocks is not defined, so there are no zeros of {self}"
        raise TypeError(msg)

    @property
    def tangent_dtype(self) -> Any:
        """Dtype of tangents, or None where values have no derivative."""
        return None

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        size = self.element_dtype.itemsize
        for extent in self.element_shape:
            size *= extent
        return size

    def __repr__(self) -> str:
        return self.name
