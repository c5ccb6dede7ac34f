"""Functions of private modules that are made of public ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tracebridge.numpy as tnp
from tracebridge.numpy._promote import promote_inexact

if TYPE_CHECKING:
    from tracebridge.core.runtime.arrays.array_like import ArrayLike


def promote_dtypes_inexact(*args: ArrayLike) -> list[Any]:
    """Arrays of one float or complex dtype, the one that arithmetic of the arguments has.

    Args:
        args: arrays and numbers.

    >>> from tracebridge._src.numpy.util import promote_dtypes_inexact
    >>> [str(x.dtype) for x in promote_dtypes_inexact(1, 2)]
    ['float32', 'float32']
    """
    return promote_inexact(*[tnp.asarray(x) for x in args]) if args else []
