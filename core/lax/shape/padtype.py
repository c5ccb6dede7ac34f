"""Padding of windows by name: SAME, SAME_LOWER and VALID as numbers of elements."""

from __future__ import annotations

__all__ = ["padtype_to_pads"]

from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.argument_errors import ArgumentValueError, size_of
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.core.symbolic.dims import DimExpr, max_dim

_NAMES = ("VALID", "SAME", "SAME_LOWER")


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: object,
) -> list[tuple[int, int]]:
    """How many elements a named padding adds before and after each axis.

    Args:
        in_shape: sizes of the axes that windows move over.
        window_shape: sizes of the window.
        window_strides: how far the window moves at a time.
        padding: ``"VALID"`` (none), ``"SAME"`` (as many windows as there would be with windows of
            one element; the greater half goes behind) or ``"SAME_LOWER"`` (in front).

    Returns:
        A pair for each axis.

    Raises:
        ArgumentValueError: ``padding`` is another name.
        RankError: the sequences differ in length.
        ShapeMismatchError: a stride is below 1.

    >>> import tracebridge as tb
    >>> tb.lax.padtype_to_pads((5, 5), (3, 2), (1, 1), "SAME")
    [(1, 1), (0, 1)]
    """
    name = padding.upper() if isinstance(padding, str) else padding
    if name not in _NAMES:
        msg = f"padtype_to_pads: padding is {padding!r}"
        raise ArgumentValueError(msg, expected="'VALID', 'SAME' or 'SAME_LOWER'")
    lengths = len(in_shape), len(window_shape), len(window_strides)
    if len(set(lengths)) != 1:
        msg = f"padtype_to_pads: in_shape, window_shape and window_strides have lengths {lengths}"
        raise RankError(msg)
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if any([type(s) is int and s < 1 for s in window_strides]):
        msg = f"padtype_to_pads: window_strides is {tuple(window_strides)}"
        raise ShapeMismatchError(msg, expected="entries of at least 1")
    pads: list[tuple[int, int]] = []
    for numbers in zip(in_shape, window_shape, window_strides, strict=True):
        size, window, stride = [size_of(n, "padtype_to_pads", "a size") for n in numbers]
        if isinstance(size, DimExpr) and 1 in (window, stride):
            total = max_dim(0, window - 1)  # the same for all sizes
        else:
            n_windows = -(-size // stride)
            total = max_dim(0, (n_windows - 1) * stride + window - size)
        less: Any = total // 2
        pads.append((less, total - less) if name == "SAME" else (total - less, less))
    return pads
