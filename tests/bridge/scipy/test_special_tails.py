"""The tails of the normal distribution: digits at every distance, and small programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import tracebridge as tb
from tracebridge.scipy import special as ours
from tracebridge.scipy._special.normal_tails import tail_fraction

PRECISIONS = [("float32", 36.0, 5e-7), ("float64", 300.0, 2e-15)]


@pytest.mark.parametrize(("dtype", "digits", "rtol"), PRECISIONS, ids=str)
def test_quantiles_of_all_sizes(dtype: str, digits: float, rtol: float) -> None:
    """Near 0 as near 1, and where one fit ends and the next begins."""
    near_one = 1 - 10.0 ** -np.linspace(0.1, 7, 200)
    p = np.concatenate([10.0 ** -np.linspace(0.01, digits, 2000), near_one]).astype(dtype)

    with tb.enable_x64():
        actual = np.asarray(ours.ndtri(p))

    np.testing.assert_allclose(actual, special.ndtri(p.astype("float64")), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("dtype", "digits", "rtol"), PRECISIONS, ids=str)
def test_density_over_the_tail(dtype: str, digits: float, rtol: float) -> None:
    """The fraction is ``1 / erfcx``, scaled; it is its operand in the end."""
    del digits
    z = np.concatenate([np.linspace(5, 60, 1000), [1e3, 1e12]]).astype(dtype)

    with tb.enable_x64():
        actual = np.asarray(tb.jit(lambda z: tail_fraction(z))(z))

    scaled = special.erfcx(z.astype("float64") / np.sqrt(2)) * np.sqrt(np.pi / 2)
    np.testing.assert_allclose(actual, 1 / scaled, rtol=rtol)


def test_narrow_floats_get_quantiles_as_good_as_they_can_be() -> None:
    """They are computed of float32."""
    p = np.array([0.001, 0.05, 0.3, 0.98], np.float16)

    actual = np.asarray(ours.ndtri(p))

    assert np.float16 == actual.dtype
    np.testing.assert_allclose(actual, special.ndtri(p.astype("float64")), rtol=1e-3)


@pytest.mark.parametrize("name", ["ndtri", "log_ndtr"])
def test_tails_need_few_operations(name: str) -> None:
    """Polynomials, not one division after another: the time of compilers is that of equations."""
    jaxpr = tb.make_jaxpr(lambda x: getattr(ours, name)(x))(np.ones(3, np.float32))

    assert count_equations(jaxpr.jaxpr) < 100


def count_equations(jaxpr: Any) -> int:
    """With those of inner programs."""
    inner = [
        value
        for eqn in jaxpr.eqns
        for value in eqn.params.values()
        if hasattr(getattr(value, "jaxpr", value), "eqns")
    ]
    return len(jaxpr.eqns) + sum(count_equations(getattr(v, "jaxpr", v)) for v in inner)
