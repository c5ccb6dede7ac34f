"""The accuracy argument reaches the compiled program and its derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracebridge.core import lax
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.lowering.module import lower_module
from tracebridge.testing.grads import jvp_of

WITH_ACCURACY = (
    "cbrt", "cos", "exp", "exp2", "expm1", "log", "log1p", "logistic", "rsqrt", "sin", "sqrt",
    "tan", "tanh",
)  # fmt: skip
ONE = ShapedArray((2,), np.float32)


def text_of(fun: Any, *avals: ShapedArray) -> str:
    """The StableHLO text of a flat function."""
    return lower_module(stage(fun, avals), "f", "cpu").as_text()


@pytest.mark.parametrize("name", WITH_ACCURACY)
def test_modes_and_tolerances_become_attributes(name: str) -> None:
    """None leaves the attribute out; the values are right all the same."""
    fun = getattr(lax, name)
    x = np.array([0.5, 1.5], np.float32)
    plain = np.asarray(fun(x))

    assert "result_accuracy" not in text_of(lambda x: [fun(x)], ONE)
    for accuracy, part in (
        (lax.AccuracyMode.HIGHEST, "HIGHEST"),
        (lax.Tolerance(rtol=1e-2), "TOLERANCE"),
        (lax.Tolerance(ulps=2), "ulps = 2"),
    ):
        text = text_of(lambda x, a=accuracy: [fun(x, accuracy=a)], ONE)
        assert "result_accuracy" in text
        assert part in text
        np.testing.assert_allclose(np.asarray(fun(x, accuracy=accuracy)), plain, rtol=1e-2)


def test_derivatives_of_sine_keep_the_accuracy() -> None:
    """The cosine is as accurate as the sine was asked to be."""
    fun = jvp_of(lambda x: [lax.sin(x, accuracy=lax.AccuracyMode.HIGHEST)], [True])

    assert text_of(fun, ONE, ONE).count("HIGHEST") == 1


@pytest.mark.parametrize("wrong", ["highest", 1e-3, lax.Tolerance(), lax.Tolerance(atol=-1.0)])
def test_wrong_accuracies(wrong: Any) -> None:
    """A name, a bare number and an empty tolerance are refused."""
    with pytest.raises(ValueError, match="exp: accuracy must be None"):
        lax.exp(1.0, accuracy=wrong)
