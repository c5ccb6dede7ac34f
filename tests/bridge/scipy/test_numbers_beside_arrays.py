"""Functions of a number and an array: as of two arrays, with less work."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.scipy import stats
from tracebridge.scipy._special.formulas import log_beta_of_positive

_ENDS = np.array([0, np.inf, np.nan, 0.3, 5, 9.99, 11, 1e5], np.float32)


def test_log_beta_of_a_number() -> None:
    """Values and slopes are those of arrays, at ends too, on either side."""

    def everything(a: Any, b: Any) -> Any:
        slopes = tb.grad(lambda b: log_beta_of_positive(a, b).sum())(b)
        value = log_beta_of_positive(a, b)
        # Where there is no value there is no slope.
        return value, log_beta_of_positive(b, a), tnp.where(tnp.isnan(value), 0, slopes)

    everything = tb.jit(everything)
    for a in _ENDS:
        got, expected = everything(a, _ENDS), everything(np.full_like(_ENDS, a), _ENDS)
        for value, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(value, other, 1e-6, err_msg=str(a))


def test_the_gamma_function_of_a_number_is_computed_once() -> None:
    """One gamma function of arrays, of the other operand, and one of the number.

    In float64 that of the sum is in a fraction, which has no gamma functions.
    """
    log = tb.jit(lambda n, k: stats.nbinom.logpmf(k, n, 0.3))
    with tb.enable_x64():
        text = log.lower(np.float64(2.7), np.ones(64)).as_text()
    functions = [line for line in text.splitlines() if " = call @lgamma" in line]

    of_numbers = [line for line in functions if "-> tensor<f64>" in line]
    assert (2, 1) == (len(functions), len(of_numbers))
