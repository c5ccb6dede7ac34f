"""Objects that are indexed to make arrays: mgrid, ogrid, r_, c_, s_, index_exp."""

from __future__ import annotations

__all__ = ["c_", "index_exp", "mgrid", "ogrid", "r_", "s_"]

from typing import Any

import numpy as np

from tracebridge.core.config.option_scopes import numpy_dtype_promotion
from tracebridge.core.dtypes.promotion import result_type
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.numpy.conversion import asarray
from tracebridge.numpy.creation import arange
from tracebridge.numpy.grids import meshgrid
from tracebridge.numpy.joining import concatenate
from tracebridge.numpy.manipulation import atleast_2d, moveaxis, reshape
from tracebridge.numpy.ranges import linspace


def _range_of(part: slice) -> Any:
    """``start:stop:step``; an imaginary step is the number of evenly spaced numbers."""
    start = 0 if part.start is None else part.start
    if isinstance(part.step, complex):
        return linspace(start, part.stop, int(abs(part.step)))
    return arange(start, part.stop, part.step)


class _Grid:
    """``mgrid`` and ``ogrid``."""

    def __init__(self, sparse: bool, name: str) -> None:
        self._sparse = sparse
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Any:
        if isinstance(key, slice):
            return _range_of(key)
        ranges = [_range_of(k) for k in key]
        if not ranges:
            return [] if self._sparse else arange(0)
        with numpy_dtype_promotion("standard"):  # one array of integers and floats was asked for
            common = result_type(*[r.dtype for r in ranges])
        ranges = [r.astype(common) for r in ranges]
        grids = meshgrid(*ranges, sparse=self._sparse, indexing="ij")
        if self._sparse:
            return grids
        return concatenate([reshape(g, (1, *g.shape)) for g in grids], 0)


mgrid = _Grid(False, "mgrid")
ogrid = _Grid(True, "ogrid")


class _Concatenator:
    """``r_`` and ``c_``: joins slices, numbers and arrays that are written as an index."""

    def __init__(self, name: str, axis: int, ndmin: int, trans1d: int) -> None:
        self._name = name
        self._axis = axis
        self._ndmin = ndmin
        self._trans1d = trans1d

    def __repr__(self) -> str:
        return self._name

    def __getitem__(self, key: Any) -> Any:
        parts = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, trans1d, as_column = self._axis, self._ndmin, self._trans1d, ""
        if parts and isinstance(parts[0], str):
            directive = parts.pop(0)
            if directive in ("r", "c"):
                as_column = directive
            else:
                numbers = self._numbers(directive)
                axis, ndmin, trans1d = (numbers + [axis, ndmin, trans1d][len(numbers) :])[:3]
        if not parts:
            msg = f"{self._name}: got nothing to join"
            raise ArgumentValueError(msg)
        pieces = [_piece(p, max(ndmin, 1), trans1d) for p in parts]
        joined = concatenate(pieces, axis)
        if as_column and joined.ndim == 1:
            joined = atleast_2d(joined) if as_column == "r" else reshape(joined, (-1, 1))
        return joined

    def _numbers(self, directive: str) -> list[int]:
        """The axis, the least number of axes and where the first goes, as far as they are given."""
        try:
            return [int(n) for n in directive.split(",")]
        except ValueError:
            msg = (
                f"{self._name}: could not understand directive {directive!r}, expected 'r', 'c' or "
                "up to three integers, as in '0,2,1'"
            )
            raise ArgumentValueError(msg) from None


def _piece(part: Any, ndmin: int, trans1d: int) -> Any:
    """One entry of ``r_[...]`` with at least ``ndmin`` axes."""
    value = _range_of(part) if isinstance(part, slice) else asarray(part)
    ndim = value.ndim
    if ndim >= ndmin:
        return value
    value = reshape(value, (*(1,) * (ndmin - ndim), *value.shape))
    if trans1d == -1 or not ndim:
        return value
    # NumPy counts where the first axis of the piece goes.
    axes = list(range(ndmin - ndim, ndmin))
    start = trans1d if trans1d >= 0 else ndmin + trans1d + 1 - ndim
    return moveaxis(value, axes, [start + i for i in range(ndim)])


r_ = _Concatenator("r_", 0, 1, -1)
c_ = _Concatenator("c_", -1, 2, 0)
s_ = np.s_
index_exp = np.index_exp
