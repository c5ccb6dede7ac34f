"""The softmax family, standardize, one_hot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.nn as nn
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.testing import assert_allclose, check_rules

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
WHERE = np.array([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 1, 1]], bool)


@pytest.mark.parametrize("axis", [-1, 0, (0, 1)], ids=str)
def test_the_softmax_family_agrees_with_scipy(axis: Any) -> None:
    """Values, derivatives and batching, with and without a mask."""
    masked = np.where(WHERE, X.astype(np.float64), -np.inf)
    for fun, reference in (
        (nn.softmax, special.softmax),
        (nn.log_softmax, special.log_softmax),
        (nn.logsumexp, special.logsumexp),
    ):
        check_rules(lambda x, f=fun: f(x, axis=axis), X,
                    reference=lambda x, r=reference: r(x.astype(np.float64), axis=axis),
                    order=2 if axis == -1 else 1, rtol=1e-5, atol=1e-6)  # fmt: skip
        check_rules(lambda x, f=fun: f(x, axis=axis, where=WHERE), X,
                    reference=lambda x, r=reference: r(masked, axis=axis),
                    order=0, rtol=1e-5, atol=1e-6)  # fmt: skip


def test_no_nan_where_nothing_takes_part() -> None:
    """Rows that are masked or minus infinity have values and derivatives of their own only."""
    x = X.copy()
    x[1] = -np.inf
    where = WHERE.copy()
    where[1] = False

    assert float(nn.logsumexp(np.full(3, -np.inf, np.float32))) == -np.inf
    assert [0.0] * 4 == nn.softmax(x, where=where)[1].tolist()
    for fun in (nn.softmax, nn.logsumexp):
        gradient = tb.grad(lambda x, f=fun: f(x, axis=-1, where=where)[0].sum())(x)
        assert np.isfinite(np.asarray(gradient)).all(), fun
    part = np.array([0.0, -np.inf, 1.0], np.float32)
    assert_allclose(np.asarray(tb.grad(nn.logsumexp)(part)), special.softmax(part), rtol=1e-6)


@pytest.mark.parametrize("fun", [nn.softmax, nn.log_softmax])
def test_rows_with_infinity_have_no_distribution(fun: Any) -> None:
    """Shares next to infinity are undefined, all of them; other rows stay."""
    x = np.array([[np.inf, 1, 2], [np.nan, 1, 2], [0, 0, -np.inf], [-np.inf] * 3], np.float32)
    no, half = [np.nan] * 3, [0.5, 0.5, 0.0]
    with np.errstate(divide="ignore"):
        third = half if fun is nn.softmax else np.log(half)

    assert_allclose(np.asarray(fun(x)), np.array([no, no, third, no], np.float32), rtol=1e-6)


def test_factors_and_signs() -> None:
    """``b`` are factors; without the sign a negative sum is NaN."""
    b = np.array([1.0, -2.0, 0.0, 3.0], np.float32)
    values, signs = nn.logsumexp(X, axis=1, b=b, return_sign=True)
    wanted, wanted_signs = special.logsumexp(X, axis=1, b=b, return_sign=True)

    assert_allclose(np.asarray(values), wanted.astype(np.float32), rtol=1e-5)
    assert wanted_signs.tolist() == signs.tolist()
    assert np.isnan(float(nn.logsumexp(X[0], b=-1.0)))
    assert nn.logsumexp(X, axis=1, keepdims=True).shape == (3, 1)
    mean = nn.logmeanexp(X, axis=1, where=WHERE)
    expected = [np.log(np.mean(np.exp(x[w]))) for x, w in zip(X, WHERE, strict=True)]
    assert_allclose(np.asarray(mean), np.array(expected, np.float32), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["fast", "stable"])
def test_standardize(algorithm: str) -> None:
    """Mean 0 and variance 1; mean and variance may be given."""

    def expected(x: Any) -> Any:
        x = x.astype(np.float64)
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    check_rules(lambda x: nn.standardize(x, algorithm=algorithm), X, reference=expected,
                order=1, rtol=1e-4, atol=1e-5)  # fmt: skip
    given = nn.standardize(X, mean=1.0, variance=4.0, epsilon=0.0)
    assert_allclose(np.asarray(given), (X - 1) / 2, rtol=1e-6)
    with pytest.raises(ArgumentValueError, match="algorithm"):
        nn.standardize(X, algorithm="slow")


def test_one_hot() -> None:
    """Any axis and dtype; indices outside give zeros; a mapped axis by name."""
    x = np.array([[0, 2], [1, 7]])

    assert [[1, 0], [0, 0]] == nn.one_hot(x, 3, axis=0, dtype="int8")[0].tolist()
    assert nn.one_hot(x, 3, axis=1).shape == (2, 3, 2)
    assert nn.one_hot(x, 3).dtype == np.float32
    rows = tb.vmap(lambda i: nn.one_hot(i, 3, axis="c"), axis_name="c", in_axes=None, axis_size=3)
    assert [0.0, 0.0, 1.0] == rows(2).tolist()
    with pytest.raises(ShapeMismatchError, match="num_classes"):
        tb.vmap(lambda i: nn.one_hot(i, 4, axis="c"), axis_name="c")(np.arange(3))


def test_standardize_of_large_narrow_floats() -> None:
    """Squares that float16 does not have are those of a small variance relative to them."""
    x = tb.numpy.asarray([1000.0, -1000.0, 60000.0, 58000.0], "float16")
    wide = np.asarray(tb.nn.standardize(x.astype("float32")))

    assert tb.nn.standardize(x).dtype == "float16"
    np.testing.assert_allclose(np.asarray(tb.nn.standardize(x), np.float32), wide, rtol=1e-3)
