"""select_n and clamp: choices of index, scalars, bounds, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.quick_compiles import check_grads
from tracebridge import enable_x64
from tracebridge.core import lax
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.testing import check_rules

X = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize("n", range(1, 8))
def test_an_int32_index_chooses_among_any_number_of_cases(n: int) -> None:
    """Indices out of range take the first or the last case."""
    which = np.arange(-2, n + 2, dtype=np.int32)
    cases = [np.full(which.shape, 10 * k, np.int32) for k in range(n)]

    actual = np.asarray(lax.select_n(which, *cases))

    np.testing.assert_array_equal(10 * np.clip(which, 0, n - 1), actual)


@pytest.mark.parametrize("which", [True, False, np.bool_(True), 1, 0, np.int32(1)], ids=repr)
def test_a_scalar_chooses_a_whole_case(which: Any) -> None:
    """Python and NumPy scalars serve as index."""
    actual = np.asarray(lax.select_n(which, X, -X))

    np.testing.assert_array_equal((-X if which else X).astype(np.float32), actual)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_indices_of_any_integer_dtype_choose(kind: str) -> None:
    """Indices that int32 cannot hold are out of range and take an end case, here and in `jit`."""
    limits = np.iinfo(kind)
    with enable_x64():
        which = tb.numpy.asarray(np.array([0, 1, 2, limits.min, limits.max], kind))
        cases = [np.full(5, k, np.float32) for k in (0, 10, 20)]
        expected = [0, 10, 20, 0, 20]

        assert expected == lax.select_n(which, *cases).tolist()
        assert expected == tb.jit(lax.select_n)(which, *cases).tolist()


def test_scalar_cases_stand_beside_arrays() -> None:
    """A scalar case and the index may have different ranks."""
    which = np.array([0, 1, 2], np.int32)

    assert lax.select_n(which, X, 0.0, X).tolist() == [1.0, 0.0, 3.0]
    assert lax.select_n(which, 0.0, 1.0, 2.0).tolist() == [0.0, 1.0, 2.0]
    check_rules(lambda x: lax.select_n(which, x, 0.0, 1.0), X)
    check_rules(lambda w, x: lax.select_n(w, x, 2.0), np.array(True), X)


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ((X, X, X), DtypeMismatchError, "which must be of booleans or integers, got float32"),
        ((X > 1, X, X, X), TypeError, "a boolean which chooses between two cases, got 3"),
        ((X > 1, X, np.arange(3)), DtypeMismatchError, r"select_n: .*got f32\[3\], i32\[3\]"),
        ((X[:2] > 1, X, X), ShapeMismatchError, r"select_n: .*got \(2,\), \(3,\), \(3,\)"),
        ((X > 1,), TypeError, "at least one case is needed"),
        ((X, X), DtypeMismatchError, "which must be of booleans or integers"),
    ],
)
def test_wrong_arguments(args: Any, error: type[Exception], text: str) -> None:
    """The message names the argument."""
    with pytest.raises(error, match=text):
        lax.select_n(*args)


def test_clamp_bounds_may_be_scalars_or_arrays() -> None:
    """Each bound on its own; the upper one wins where they cross."""
    x = np.array([-1.0, 0.5, 2.0, np.nan])

    np.testing.assert_array_equal([0, 0.5, 1, np.nan], np.asarray(lax.clamp(0.0, x, 1.0)))
    np.testing.assert_array_equal([0, 0.5, 1, np.nan], np.asarray(lax.clamp(0 * x, x, 1.0))[:4])
    np.testing.assert_array_equal([1, 1, 1, np.nan], np.asarray(lax.clamp(3.0, x, 1.0)))


def test_clamp_derivatives_go_to_the_active_bound() -> None:
    """x moves strictly between the bounds, the bounds move strictly outside; no one at ties."""
    check_grads(lax.clamp, (X - 1.9, X * 0 + 0.3, X), order=2)
    check_grads(lambda x: lax.clamp(0.5, x, 2.5), (X,), order=2)


def test_clamp_refuses_complex_numbers() -> None:
    """They have no order."""
    with pytest.raises(TypeError, match="it works on booleans, integers and floats"):
        lax.clamp(0j, X + 0j, 1j)
