"""Functions of several operands, activations and log-densities are as exact as their table says."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.properties.digits_table import TABLE, Row
from tests.properties.test_digits import in_units
from tracebridge.core._jaxlib.xla import QUICK_COMPILE

# Digits of the reference, and the share of an operand by which it is moved for differences.
PRECISION, STEP = 360, mpmath.mpf(2) ** -70
# So many functions are one test.
TOGETHER = 9
KINDS = ("value", "slope", "second")


def _operands(row: Row) -> tuple[int, ...]:
    return tuple(range(len(row.points[0]))) if row.smooth is None else row.smooth


def _derivative(fun: Any, i: int) -> Any:
    """In one operand, of each element."""

    def slope(*xs: Any) -> Any:
        moved = lambda x: fun(*xs[:i], x, *xs[i + 1 :])
        return tb.jvp(moved, (xs[i],), (tnp.ones_like(xs[i]),))[1]

    return slope


def _measured(row: Row) -> dict[tuple[int, int], Any]:
    """The function and its derivatives, by order and operand."""
    found = {(0, 0): row.fun}
    for order in (1, 2):
        if row.bounds[order] is not None:
            for i in _operands(row):
                found[order, i] = _derivative(found[order - 1, i if order == 2 else 0], i)
    return found


def _computed(row: Row, columns: list[Any]) -> Any:
    """By a program of its own: beside other functions a compiler may round in other places."""

    def run(*xs: Any) -> Any:
        return {f"{order} {i}": fun(*xs) for (order, i), fun in _measured(row).items()}

    return tb.jit(run, compiler_options=dict(QUICK_COMPILE))(*columns)


def _exact(row: Row, order: int, i: int, point: list[Any]) -> Any:
    def at(moves: int) -> Any:
        return row.exact(*point[:i], point[i] * (1 + moves * STEP), *point[i + 1 :])

    if order == 0:
        return mp.re(at(0))
    width = point[i] * STEP
    if order == 1:
        return mp.re(at(1) - at(-1)) / (2 * width)
    return mp.re(at(1) - 2 * at(0) + at(-1)) / width**2


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("first", range(0, len(TABLE), TOGETHER))
def test_values_slopes_and_second_derivatives(first: int, dtype: type) -> None:
    """At the points of the table."""
    rows = TABLE[first : first + TOGETHER]
    columns = [[np.array(c, dtype) for c in zip(*row.points, strict=True)] for row in rows]

    with tb.enable_x64(True):
        found = [_computed(row, xs) for row, xs in zip(rows, columns, strict=True)]

    wrong: list[Any] = []
    for row, xs, results in zip(rows, columns, found, strict=True):
        for key, values in results.items():
            order, i = map(int, key.split())
            for got, *point in zip(np.asarray(values), *xs, strict=True):
                with mp.workprec(PRECISION):
                    exact = _exact(row, order, i, [mpmath.mpf(float(x)) for x in point])
                    error = in_units(got, exact, row.least[order], np.finfo(dtype))
                if not error <= row.bounds[order]:
                    wrong.append((row.name, KINDS[order], i, [*map(float, point)], error))

    assert [] == wrong
