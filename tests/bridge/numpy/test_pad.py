"""Padding at its corners: truth values, widths by axis, modes that need real numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge.numpy as tnp
from tracebridge.errors import UnsupportedDtypeError


@pytest.mark.parametrize(
    ("mode", "option"),
    [("mean", {}), ("median", {}), ("linear_ramp", {"end_values": 1}), ("linear_ramp", {}),
     ("reflect", {"reflect_type": "odd"}), ("symmetric", {"reflect_type": "odd"})],
)  # fmt: skip
def test_truth_values_are_padded_as_by_numpy(mode: Any, option: dict[str, Any]) -> None:
    """What is between False and True is not False: it is true."""
    x = np.array([[True, False, True], [False, False, True]])
    expected = np.pad(x, ((2, 1), (0, 3)), mode, **option)

    assert expected.tolist() == tnp.pad(x, ((2, 1), (0, 3)), mode, **option).tolist()


def test_widths_by_axis_name_axes_that_there_are() -> None:
    """Counted from the end too."""
    assert (2, 6) == tnp.pad(np.ones((2, 3)), {-1: (1, 2)}).shape
    with pytest.raises(ValueError, match="pad: axis 5"):
        tnp.pad(np.ones((2, 3)), {5: 1})


def test_complex_numbers_have_no_median_to_pad_with() -> None:
    """The error names the function and the mode."""
    with pytest.raises(UnsupportedDtypeError, match="pad: mode 'median' takes real numbers"):
        tnp.pad(np.ones(3, np.complex64), 1, "median")
