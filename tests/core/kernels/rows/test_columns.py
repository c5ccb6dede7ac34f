"""Columns that are picked from rows: their cotangents are never in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import lax, nn

ROWS, WIDTH = 256, 200
WHOLE = 4 * ROWS * WIDTH


def picked(x: Any, column: int = 0) -> Any:
    """The logarithm of the probability of one class."""
    return -nn.log_softmax(x)[:, column].mean()


def of_softmax(x: Any) -> Any:
    """The same by a softmax that is there already: two kernels, one after the other."""
    return tnp.log(nn.softmax(x)[:, 7]).sum()


def padded(x: Any) -> Any:
    """Rows with one column, beside it numbers other than zero."""
    return nn.softmax(tnp.pad(x[:, :1], ((0, 0), (3, WIDTH - 4)), constant_values=0.5))


def two_columns(x: Any) -> Any:
    """Positions that two kernels read, and a third reader."""
    return (nn.log_softmax(x)[:, 0] * nn.softmax(x * 2)[:, 0]).sum()


def temporary(f: Callable[..., Any], *args: Any) -> int:
    """Bytes beside arguments and results."""
    return tb.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes


@needs_kernels
@pytest.mark.parametrize(
    ("f", "most"), [(tb.grad(picked), 0.1), (tb.grad(of_softmax), 1.1), (padded, 0.1)]
)
def test_columns_are_not_filled_up_in_memory(f: Callable[..., Any], most: float) -> None:
    """In arrays: softmax itself is one, what the pick puts back is none."""
    x = array(ROWS, WIDTH)

    assert kernels_in(f, x) > 0
    assert temporary(f, x) < most * WHOLE


@pytest.mark.parametrize("column", [0, 5, WIDTH - 1, -1])
def test_any_column(column: int) -> None:
    """Values and gradients are those of the plain form, at the ends of rows as well."""
    is_as_plain(tb.value_and_grad(lambda x: picked(x, column)), array(ROWS, WIDTH))


@pytest.mark.parametrize("f", [tb.grad(of_softmax), padded, tb.grad(two_columns)])
def test_as_plain(f: Callable[..., Any]) -> None:
    """What stands beside the column is what the pad says."""
    is_as_plain(f, array(ROWS, WIDTH))


def test_numbers_that_are_none_stay_in_their_rows() -> None:
    """A row of NaN, one of infinities and a column of zeros of both signs, beside others."""
    x = array(ROWS, WIDTH)
    x[1], x[2], x[3, 0], x[4, 0] = np.nan, np.inf, -0.0, -np.inf
    is_as_plain(tb.grad(picked), x, signs=True)


def test_batches_and_second_derivatives() -> None:
    """Under vmap rows are rows of more axes; derivatives of gradients are those of plain forms."""
    x, v = array(4, ROWS, WIDTH), array(ROWS, WIDTH)
    is_as_plain(tb.vmap(tb.grad(picked)), x)
    is_as_plain(lambda x, v: tb.jvp(tb.grad(picked), (x,), (v,))[1], x[0], v, tolerance=1e-5)


def test_positions_are_summed_and_read() -> None:
    """Positions that two kernels read, one of which reads sums of them over all rows."""

    def program(x: Any) -> Any:
        share = nn.softmax(x)
        places = lax.broadcasted_iota(np.int32, x.shape, 1) * 2 + 1
        sums = (places.astype("f4") * 0.01).sum(0)
        return nn.softmax(tnp.cumsum(share, 0) * places) + sums

    is_as_plain(program, array(ROWS, WIDTH))
