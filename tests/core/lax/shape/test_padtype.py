"""Padding of windows by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tracebridge.core.errors.argument_errors import ArgumentTypeError, ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("window", range(1, 6))
@pytest.mark.parametrize("stride", range(1, 4))
def test_number_of_windows(size: int, window: int, stride: int) -> None:
    """SAME gives as many windows as a window of one element, with the least padding."""
    ((low, high),) = tb.lax.padtype_to_pads((size,), (window,), (stride,), "SAME")
    ((before, after),) = tb.lax.padtype_to_pads((size,), (window,), (stride,), "same_lower")
    wanted = -(-size // stride)

    assert (low, high) == (after, before)
    assert 0 <= high - low <= 1
    assert wanted == (size + low + high - window) // stride + 1
    assert low == 0 == high or wanted > (size + low + high - 1 - window) // stride + 1
    assert [(0, 0)] == tb.lax.padtype_to_pads((size,), (window,), (stride,), "VALID")


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (1, 3), (2, 1), (5, 1)])
def test_sizes_that_are_not_known(window: int, stride: int) -> None:
    """Where the padding is the same for all sizes, it is that for a symbolic one."""
    (n,) = tb.symbolic_shapes.symbolic_shape("n")
    known = [tb.lax.padtype_to_pads((size,), (window,), (stride,), "SAME") for size in range(9)]

    assert [tb.lax.padtype_to_pads((n,), (window,), (stride,), "SAME")] * 9 == known


@pytest.mark.parametrize(
    ("error", "message", "args"),
    [
        (ArgumentValueError, "padding is 'FULL'", ((5,), (2,), (1,), "FULL")),
        (ArgumentValueError, "padding is 3", ((5,), (2,), (1,), 3)),
        (RankError, r"have lengths \(1, 2, 1\)", ((5,), (2, 2), (1,), "SAME")),
        (ArgumentTypeError, "padtype_to_pads", ((5.5,), (2,), (1,), "SAME")),
    ],
)
def test_bad_arguments(error: Any, message: str, args: Any) -> None:
    """Other names, sequences of different lengths, and sizes that are no ints."""
    with pytest.raises(error, match=message):
        tb.lax.padtype_to_pads(*args)


def test_windows_that_do_not_move() -> None:
    """A stride of 0 is named, also where the padding has a name."""
    with pytest.raises(ShapeMismatchError, match="window_strides is"):
        tb.lax.padtype_to_pads((5,), (3,), (0,), "SAME")
    with pytest.raises(ShapeMismatchError, match="window_strides is"):
        tb.lax.conv(np.ones((1, 1, 5)), np.ones((1, 1, 3)), (0,), "SAME")
