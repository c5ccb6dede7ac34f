"""Every public function of ``tracebridge.numpy``, against NumPy and under transformations."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.bridge.numpy.table import TOLERANCE, Case, leaves, numbered, widened
from tests.bridge.numpy.tables import elementwise, products, reducing, shaping
from tests.quick_compiles import check_grads, quick_jit
from tracebridge.core.dtypes import dtypes as d
from tracebridge.testing import assert_allclose

CASES = numbered([*elementwise.CASES, *reducing.CASES, *shaping.CASES, *products.CASES])


def compare(case: Case, actual: list, expected: list, text: str) -> None:
    """Equal numbers of results, equal shapes, nearly equal numbers."""
    tolerance = case.rtol if case.rtol is not None else TOLERANCE[case.letter]
    assert len(expected) == len(actual), text
    for a, e in zip(actual, expected, strict=True):
        host, wanted = np.asarray(a), np.asarray(e)
        if d.is_inexact(host.dtype):
            wanted = wanted.astype(np.complex128 if wanted.dtype.kind == "c" else np.float64)
            with np.errstate(all="ignore"):
                wanted = narrowed(wanted, host.dtype)
        assert_allclose(host, wanted, rtol=tolerance, atol=tolerance, err_msg=text)


def narrowed(wanted: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Wide numbers as the result's dtype has them: what is too large there is infinite."""
    kind = np.complex64 if wanted.dtype.kind == "c" else np.float32
    return wanted if dtype.itemsize < 4 else wanted.astype(kind).astype(wanted.dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_dtypes_are_those_of_numpy(case: Case) -> None:
    """The shape and the numbers are NumPy's; the dtype is NumPy's after the 64-bit rule."""
    arrays = case.arrays()
    values, dtypes = case.expected(arrays)

    results = case.run(*[tnp.asarray(x) for x in arrays])

    compare(case, results, values, str(case))
    assert [str(t) for t in dtypes] == [str(x.dtype) for x in results]
    assert [case.weak] * len(results) == [x.weak_type for x in results]


@pytest.mark.parametrize("case", [c for c in CASES if c.traced], ids=str)
def test_jit_and_vmap_change_nothing(case: Case) -> None:
    """jit(f) = f and vmap(f) = stack of f; avals too."""
    rows = [[tnp.asarray(x) for x in case.arrays(row)] for row in (0, 1)]
    expected = [case.run(*row) for row in rows]
    stacks = [
        tnp.asarray(np.stack([np.asarray(x) for x in pair])) for pair in zip(*rows, strict=True)
    ]
    mapped = case.mapped and bool(stacks)

    def both(row, stacks):
        return case.run(*row), tb.vmap(lambda *xs: case.run(*xs))(*stacks) if mapped else []

    plain, batched = tb.jit(both)(rows[0], stacks)

    assert [x.aval for x in expected[0]] == [x.aval for x in plain]
    compare(case, plain, expected[0], f"{case}: jit against eager evaluation")
    if mapped:
        stacked = [np.stack([np.asarray(x) for x in pair]) for pair in zip(*expected, strict=True)]
        compare(case, batched, stacked, f"{case}: vmap against one call per row")
        assert [x.dtype for x in expected[0]] == [x.dtype for x in batched]


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.traced and c.mapped and c.operands > 1], ids=str
)
def test_each_argument_may_be_mapped_alone(case: Case) -> None:
    """Rows differ in one argument; the others are the same in all of them, and not mapped."""
    first, second = ([tnp.asarray(x) for x in case.arrays(row)] for row in (0, 1))
    places = range(case.operands)
    others = [[*first[:k], second[k], *first[k + 1 :]] for k in places]
    stacks = [tnp.asarray(np.stack([first[k], second[k]])) for k in places]

    def mapped(stacks: list) -> list:
        return [
            tb.vmap(lambda x, k=k: case.run(*first[:k], x, *first[k + 1 :]))(stacks[k])
            for k in places
        ]

    actual = quick_jit(mapped)(stacks)

    plain = case.run(*first)
    for k in places:
        pairs = zip(plain, case.run(*others[k]), strict=True)
        expected = [np.stack([np.asarray(x) for x in pair]) for pair in pairs]
        compare(case, actual[k], expected, f"{case}: vmap over argument {k} alone")
        assert [x.dtype for x in plain] == [x.dtype for x in actual[k]]


@pytest.mark.parametrize("case", [c for c in CASES if c.derivative], ids=str)
def test_derivatives_are_those_of_finite_differences(case: Case) -> None:
    """Both modes, of both orders, agree with differences; 64-bit arrays have 64-bit results."""
    arrays = [widened(x) for x in case.arrays()]
    flat = tb.jit(lambda *xs: [x for x in case.run(*xs) if d.is_inexact(x.dtype)])

    check_grads(flat, arrays, order=2)
    with tb.enable_x64(True):
        assert {8, 16} >= {x.dtype.itemsize for x in leaves(flat(*arrays))}
