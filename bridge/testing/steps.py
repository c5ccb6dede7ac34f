"""Differences of functions at two lengths of the step, of which derivatives may fit either.

The longer step balances truncation and rounding for smooth functions with numbers around one. Next
to a kink, or where slopes change fast, it reaches too far; an iteration that stops early is too
rough for it in 64 bits. There the other step decides, 1e-4, the usual one, if the numbers resolve
it: otherwise a function that does not move seems to have the slope 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tracebridge.core.dtypes import dtypes
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.testing.compare import to_host

Host = np.ndarray[Any, Any]
Slopes = Sequence[Host | None]

OTHER_STEP: Final = 1e-4

# What rounding may add to a slope, as a part of it or of 1.
_NOISE: Final = 1e-2


def fits_either(
    compare: Callable[[Slopes], None], slopes: Slopes, other: Callable[[], Slopes | None] | None
) -> None:
    """Call ``compare`` with ``slopes``, and if these do not fit with those of the ``other`` step.

    Raises:
        AssertionError: that of ``slopes``, if neither fit.
    """
    try:
        compare(slopes)
    except AssertionError as error:
        second = None if other is None else other()
        if second is None:
            raise
        try:
            compare(second)
        except AssertionError:
            raise error from None


def are_resolved(values: Sequence[Any], outs: Sequence[object], slopes: Slopes) -> bool:
    """Whether rounding arguments and results hardly changes ``slopes`` of the other step."""
    arguments = [v for v in map(to_host, values) if dtypes.is_inexact(v.dtype)]
    results = [o for o in map(to_host, outs) if dtypes.is_inexact(o.dtype)]
    sizes = [_largest(s) for s in slopes if s is not None]
    return all(_noise(a) <= _NOISE for a in arguments) and all(
        _noise(o) <= _NOISE * (1.0 + size) for o, size in zip(results, sizes, strict=True)
    )


def _noise(x: Host) -> float:
    """The rounding error of an array, by the length of the step."""
    return float(finfo(x.dtype).eps) * _largest(x) / OTHER_STEP


def _largest(x: Host) -> float:
    return float(np.max(np.abs(x), initial=0.0))
