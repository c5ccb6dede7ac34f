"""logaddexp and logaddexp2: derivatives at ties, at infinities and far apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

FUNCTIONS = [(tnp.logaddexp, np.logaddexp, 1.0), (tnp.logaddexp2, np.logaddexp2, math.log(2.0))]
INF = math.inf


@pytest.mark.parametrize(("f", "reference", "scale"), FUNCTIONS)
@pytest.mark.parametrize("x", [0.0, 1.0, -30.0, 1e4])
def test_ties_share_the_derivative(f: Any, reference: Any, scale: float, x: float) -> None:
    """Equal operands have half the derivative each, in both modes; the second one is smooth."""
    value, gradients = tb.value_and_grad(f, (0, 1))(x, x)
    forward = [tb.jvp(f, (x, x), t)[1] for t in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))]

    np.testing.assert_allclose(value, reference(x, x), rtol=1e-6)
    assert [0.5, 0.5] == [float(g) for g in gradients]
    assert [0.5, 0.5, 1.0] == [float(t) for t in forward]
    second = np.array([[1.0, -1.0], [-1.0, 1.0]]) * scale / 4
    np.testing.assert_allclose(np.asarray(tb.hessian(f, (0, 1))(x, x)), second, rtol=1e-6)


@pytest.mark.parametrize(("f", "reference", "scale"), FUNCTIONS)
@pytest.mark.parametrize(
    ("x", "y", "gradients"),
    [
        (INF, INF, [1.0, 0.0]), (-INF, -INF, [1.0, 0.0]), (INF, -INF, [1.0, 0.0]),
        (-INF, 0.0, [0.0, 1.0]), (3.0, INF, [0.0, 1.0]), (500.0, 0.0, [1.0, 0.0]),
        (-500.0, 0.0, [0.0, 1.0]),
    ],
)  # fmt: skip
def test_far_apart(
    f: Any, reference: Any, scale: float, x: float, y: float, gradients: list[float]
) -> None:
    """Where one operand says it all, infinite ones too, derivatives are numbers that add up."""
    value, found = tb.jit(tb.value_and_grad(f, (0, 1)))(x, y)

    np.testing.assert_allclose(value, reference(x, y), atol=1e-6)
    assert gradients == [float(g) for g in found]
    assert [[0.0, 0.0], [0.0, 0.0]] == np.asarray(tb.hessian(f, (0, 1))(x, y)).tolist()


@pytest.mark.parametrize(("f", "reference", "scale"), FUNCTIONS)
def test_derivatives_are_those_of_the_formula(f: Any, reference: Any, scale: float) -> None:
    """Mapped over a grid with ties: the share of each operand in the sum; NaN stays NaN."""
    x, y = np.meshgrid(np.linspace(-3, 3, 7), np.linspace(-2, 3, 6))
    share = 1.0 / (1.0 + np.exp(scale * (y - x)))
    got = tb.vmap(tb.grad(f))(x.ravel().astype(np.float32), y.ravel().astype(np.float32))

    np.testing.assert_allclose(got, share.ravel(), rtol=1e-5)
    np.testing.assert_allclose(f(x, y), reference(x, y), rtol=1e-5, atol=1e-6)
    assert math.isnan(f(math.nan, 0.0))
    assert math.isnan(f(0.0, math.nan))
    assert math.isnan(tb.grad(f)(math.nan, 0.0))


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_logarithms_of_complex_sums_are_principal(name: str) -> None:
    """Imaginary parts of operands go around; that of the logarithm does not."""
    exp, log = (np.exp, np.log) if name == "logaddexp" else (np.exp2, np.log2)
    x, y = np.array([3 + 7j, 1 - 20j], np.complex64), np.array([1 + 4j, 1 + 3j], np.complex64)

    expected = log(exp(x) + exp(y))
    np.testing.assert_allclose(getattr(tnp, name)(x, y), expected, rtol=1e-5)


def test_narrow_results_that_cancel() -> None:
    """The sum of the larger one and a logarithm is rounded once; whole powers of two are exact."""
    x, y = tnp.float16(-1.5), tnp.float16(-0.6665)

    expected = np.logaddexp2(float(x), float(y))
    np.testing.assert_allclose(float(tnp.logaddexp2(x, y)), expected, rtol=1e-3)
    assert [2.0**-9, 2.0**11] == tnp.exp2(tnp.array([-9.0, 11.0], "float16")).tolist()
