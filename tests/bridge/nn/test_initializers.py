"""Initial weights have the promised shape, dtype, variance and structure."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import ArgumentValueError
from tracebridge.core.errors.shape_errors import RankError, ShapeMismatchError
from tracebridge.nn import initializers as init

KEY = tb.random.key(0)
VARIANCES = {
    "glorot_normal": 1 / 60, "glorot_uniform": 1 / 60, "he_normal": 2 / 80, "he_uniform": 2 / 80,
    "lecun_normal": 1 / 80, "lecun_uniform": 1 / 80, "xavier_normal": 1 / 60,
    "xavier_uniform": 1 / 60, "kaiming_normal": 2 / 80, "kaiming_uniform": 2 / 80,
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANCES)
def test_variances(name: str) -> None:
    """The variance of 32,000 numbers is within 5 percent of what inputs and outputs ask for."""
    weights = np.asarray(getattr(init, name)(batch_axis=0)(KEY, (10, 80, 40)))

    assert weights.dtype == np.float32
    assert abs(weights.var() / VARIANCES[name] - 1) < 0.05
    assert abs(weights.mean()) < 0.01


@pytest.mark.parametrize("distribution", ["normal", "uniform", "truncated_normal"])
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg", "fan_geo_avg"])
def test_modes_and_complex_numbers(mode: str, distribution: str) -> None:
    """Complex weights have the same variance."""
    n = {"fan_in": 90, "fan_out": 360, "fan_avg": 225, "fan_geo_avg": 180}[mode]
    make = init.variance_scaling(3.0, mode, distribution, dtype="complex64")
    weights = np.asarray(make(KEY, (9, 10, 40)))

    assert weights.dtype == np.complex64
    assert abs(weights.var() / (3.0 / n) - 1) < 0.1


def test_simple_initializers() -> None:
    """Constants, bounds, dtypes given late."""
    assert [2.0, 2.0] == init.constant(2)(KEY, (2,)).tolist()
    assert [1.0] == init.ones(KEY, (1,)).tolist()
    assert init.zeros(KEY, (2,), "bfloat16").dtype == "bfloat16"
    assert 0 <= float(init.uniform(5.0)(KEY, (50,)).min()) <= 5.0
    assert abs(float(init.normal(3.0)(KEY, (4000,)).std()) - 3) < 0.2
    assert abs(np.asarray(init.truncated_normal(2.0)(KEY, (500,)))).max() <= 4
    assert init.he_normal()(KEY, (0, 3)).shape == (0, 3)
    assert init.lecun_normal(-1, 0)(KEY, (3, 4), "float16").dtype == np.float16


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 3, 4)], ids=str)
def test_orthogonal(shape: tuple[int, ...]) -> None:
    """Rows or columns, whichever are fewer, are orthonormal."""
    for axis in (-1, 0):
        weights = np.asarray(init.orthogonal(2.0, axis)(KEY, shape))
        assert weights.shape == shape
        matrix = np.moveaxis(weights, axis, -1).reshape(-1, shape[axis]) / 2
        rows, columns = matrix.shape
        product = matrix.T @ matrix if rows >= columns else matrix @ matrix.T
        np.testing.assert_allclose(product, np.eye(min(rows, columns)), atol=1e-5)


def test_delta_orthogonal() -> None:
    """An orthogonal matrix in the middle, zeros around."""
    weights = np.asarray(init.delta_orthogonal()(KEY, (3, 4, 2, 5)))
    middle = weights[1, 1]

    np.testing.assert_allclose(middle @ middle.T, np.eye(2), atol=1e-5)
    assert np.abs(weights).sum() == pytest.approx(np.abs(middle).sum())


def test_errors() -> None:
    """Weights that an initializer cannot make."""
    with pytest.raises(ArgumentValueError, match="variance_scaling"):
        init.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(RankError, match="axis -2"):
        init.he_normal()(KEY, (3,))
    with pytest.raises(RankError, match="orthogonal"):
        init.orthogonal()(KEY, (3,))
    with pytest.raises(RankError, match="delta_orthogonal"):
        init.delta_orthogonal()(KEY, (3, 3))
    with pytest.raises(ShapeMismatchError, match="inputs"):
        init.delta_orthogonal()(KEY, (3, 4, 2))
    assert isinstance(init.constant(tnp.arange(2))(KEY, (3, 2)), tb.Array)
