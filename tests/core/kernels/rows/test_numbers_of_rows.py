"""What computes one number for each row, for a kernel alone, is done in the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import lax, nn

pytestmark = needs_kernels

X, S = array(512, 128), np.abs(array(512, 1)) + 0.5


def operations(f: Callable[..., Any], *args: Any) -> int:
    """How many operations stand beside the kernel."""
    text = tb.jit(f).lower(*args).as_text()
    assert kernels_in(f, *args) == 1
    return text.count(" stablehlo.") - text.count("stablehlo.custom_call")


# functions of an array and of numbers of its rows, and how many operations stay outside
FUNCTIONS = {
    "one": (lambda x, s: nn.softmax(x * lax.rsqrt(s)), 0),
    "a chain": (lambda x, s: nn.softmax(x * (1 / tnp.sqrt(s + 1e-3) - 2 * s)), 0),
    "read twice": (lambda x, s: nn.softmax(x * lax.rsqrt(s)) + lax.rsqrt(s), 0),
    "a flag": (lambda x, s: nn.softmax(tnp.where(s > 1, x, -x)), 0),
    "a result": (lambda x, s: (nn.softmax(x * lax.rsqrt(s)), lax.rsqrt(s)), 1),
    "read by others": (lambda x, s: (nn.softmax(x * lax.rsqrt(s)), lax.rsqrt(s).sum()), None),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_numbers_of_rows(case: str) -> None:
    """They have the values of the plain form, zeros and infinities too."""
    f, outside = FUNCTIONS[case]
    assert outside is None or operations(f, X, S) == outside
    is_as_plain(f, X, S, tolerance=3e-6)
    special = S.copy()
    special[::9], special[1::9], special[2::9] = 0, np.inf, np.nan
    is_as_plain(f, X, special, tolerance=3e-6)


def test_gradient_of_a_norm() -> None:
    """Nothing stands beside the kernel of a backward pass that gets mean and deviation."""

    def slope(x: Any, mean: Any, deviation: Any, g: Any) -> Any:
        normal = (x - mean) / deviation
        inverse = 1 / deviation
        return inverse * (
            g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True)
        )

    args = X, array(512, 1), S, array(512, 128)
    assert operations(slope, *args) == 0
    is_as_plain(slope, *args, tolerance=1e-5)


def test_numbers_of_channels() -> None:
    """Rows that vectors go across."""
    x, s = array(8, 32, 256), np.abs(array(8, 1, 256)) + 0.5
    f = lambda x, s: nn.softmax(x * lax.rsqrt(s), axis=1)
    assert operations(f, x, s) == 0
    is_as_plain(f, x, s, tolerance=3e-6)


def test_as_many_columns_as_rows() -> None:
    """Numbers of columns are none of rows, though there are as many."""
    x, b = array(512, 512), array(512)

    def centred(x: Any) -> Any:
        return x - x.mean(-1, keepdims=True)

    is_as_plain(lambda x, b: centred(x) * (2 * b + 1), x, b)
    is_as_plain(lambda x, b: centred(x) * (2 * b + 1)[:, None], x, b)
