"""Functions of complex numbers: both sides of each cut, signed zeros, infinities and NaN.

The reference is NumPy, which follows annex G of the C standard. Where NumPy's answer is another
one, or an inexact one, ``REPAIRED`` says what is expected and why.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.core.config.option_scopes import enable_x64

INF, NAN = np.inf, np.nan
PARTS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -3.0, INF, -INF, NAN, 1e-30, -1e30]
NAMES = """
    sqrt log log1p log2 log10 arcsin arccos arctan arcsinh arccosh arctanh exp expm1 exp2 sinh cosh
    tanh tan sin cos reciprocal sign abs angle square
"""
DTYPES = {"c64": np.complex64, "c128": np.complex128}
TOLERANCE = {"c64": 2e-6, "c128": 1e-14}
# Lengths of arrays: short ones call libm for some functions of floats, others do not.
LENGTHS = {"c64": 600, "c128": len(PARTS) ** 2}


def joined(real: Any, imag: Any) -> Any:
    """A complex number of two parts, without arithmetic."""
    z = np.empty(np.shape(real), np.complex128)
    z.real, z.imag = real, imag
    return z


def points(dtype: Any) -> Any:
    """All pairs of the parts."""
    real, imag = (x.ravel() for x in np.meshgrid(PARTS, PARTS))
    return joined(real, imag).astype(dtype)


def _log1p(z: Any, numpys: Any) -> Any:
    """NumPy takes the logarithm of the rounded sum."""
    small = joined(z.real + z.imag**2 / 2, z.imag)
    return np.where(np.abs(z) < 1e-9, small, numpys)


def _expm1(z: Any, numpys: Any) -> Any:
    """The zero that came on the real axis; infinities as in the standard of array APIs."""
    far = np.isinf(z.real) & ~np.isfinite(z.imag)
    numpys = np.where(far, joined(np.expm1(z.real), np.exp(z).imag), numpys)
    return np.where(z.imag == 0, joined(np.expm1(z.real), z.imag), numpys)


def _reciprocal(z: Any, numpys: Any) -> Any:
    """The quotient of 1 + 0i as in annex G: 0 for infinities, an infinity for 0."""
    far = np.isinf(z.real) | np.isinf(z.imag)
    numpys = np.where(far, 0.0, numpys)
    return np.where(z == 0, joined(np.copysign(INF, z.real), NAN), numpys)


def _sign(z: Any, numpys: Any) -> Any:
    """A zero keeps its signs, as of real numbers."""
    return np.where(z == 0, z, numpys)


REPAIRED: dict[str, Callable[[Any, Any], Any]] = {
    "log1p": _log1p, "expm1": _expm1, "reciprocal": _reciprocal, "sign": _sign,
}  # fmt: skip
# Where the sign of a zero part is not defined: that of a quotient depends on how it is formed, and
# that of a difference of two tiny numbers on their rounding.
UNSIGNED = {
    "reciprocal": lambda z: np.ones(z.shape, bool),
    "expm1": lambda z: np.abs(z) < 1e-9,
}


def same(actual: Any, expected: Any, tolerance: float, signed: Any) -> Any:
    """Equal NaN, infinities and zeros with their signs where ``signed``; else close."""
    close = np.abs(actual - expected) <= tolerance * np.abs(expected)
    ends = (actual == expected) | (~signed & (np.abs(actual) == np.abs(expected)))
    ends &= ~signed | (np.signbit(actual) == np.signbit(expected))
    is_end = np.isinf(expected) | (expected == 0)
    return np.where(np.isnan(expected), np.isnan(actual), np.where(is_end, ends, close))


@functools.cache
def results(dtype: str) -> Any:
    """All functions in one program."""
    with tb.enable_x64(True):
        z = tnp.asarray(np.resize(points(DTYPES[dtype]), LENGTHS[dtype]))
        found = tb.jit(lambda z: {name: getattr(tnp, name)(z) for name in NAMES.split()})(z)
        return {name: np.asarray(row) for name, row in found.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES.split())
def test_values_are_on_the_side_of_the_cut_that_zero_says(name: str, dtype: str) -> None:
    """At all pairs of hard parts, NumPy's value and its signs."""
    z = np.resize(points(DTYPES[dtype]), LENGTHS[dtype])
    actual = results(dtype)[name]
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(z)
        if name in REPAIRED:
            wanted = REPAIRED[name](z, wanted).astype(wanted.dtype)
        # The standard leaves the sign of a part free beside NaN.
        signed = ~np.isnan(wanted)
        if name in UNSIGNED:
            signed &= ~UNSIGNED[name](z)
        fits = same(actual.real, wanted.real, TOLERANCE[dtype], signed)
        if np.iscomplexobj(wanted):
            fits &= same(actual.imag, wanted.imag, TOLERANCE[dtype], signed)
    wrong = [*zip(z[~fits], actual[~fits], wanted[~fits], strict=True)]

    assert wanted.dtype == actual.dtype
    assert [] == wrong[:8]


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_on_both_sides_of_the_cut(dtype: str) -> None:
    """Below the negative axis the root has a negative imaginary part; 0 has powers."""
    z = np.array([complex(-4, 0.0), complex(-4, -0.0), 0, 0, 2j, -2j, 3], DTYPES[dtype])
    w = np.array([0.5, 0.5, 1 + 1j, 0, -0.5, 1 + 2j, 1 - 1j], DTYPES[dtype])
    with tb.enable_x64(True):
        found = np.asarray(tnp.power(tnp.asarray(z), tnp.asarray(w)))
        by_one = np.asarray(tnp.power(tnp.asarray(z), tnp.asarray(w[2])))

    np.testing.assert_allclose(found, np.power(z, w), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_one, np.power(z, w[2]), rtol=1e-5, atol=1e-6)
    assert found[0].imag > 0 > found[1].imag


def test_functions_beside_an_axis_keep_both_parts() -> None:
    """No part is the difference of large terms."""
    z = np.array([1e-12 + 0.5j, 0.5 + 1e-12j, 1e-9 + 1e-9j, -1e-12 + 2j])
    with tb.enable_x64(True):
        for name in ("sinh", "cosh", "sin", "cos", "tan", "tanh", "exp", "expm1"):
            found = np.asarray(getattr(tnp, name)(tnp.asarray(z)))
            wanted = getattr(np, name)(z)
            np.testing.assert_allclose(found.real, wanted.real, rtol=1e-14, err_msg=name)
            np.testing.assert_allclose(found.imag, wanted.imag, rtol=1e-14, err_msg=name)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_reciprocals_keep_the_signs_of_zeros(dtype: str) -> None:
    """The parts of ``1 / z`` have the signs of those of the conjugate, also where they are 0."""
    parts = (-2.0, -0.0, 0.0, 1.0, math.inf)
    z = np.array([complex(x, y) for x in parts for y in parts if x or y], dtype)
    with enable_x64(True):
        for found in (tnp.reciprocal(z), lax.reciprocal(z), lax.integer_pow(z, -1)):
            real, imag = np.real(found), np.imag(found)

            np.testing.assert_array_equal(np.signbit(real), np.signbit(z.real))
            np.testing.assert_array_equal(np.signbit(imag), ~np.signbit(z.imag))
            finite = np.isfinite(z)
            np.testing.assert_allclose(np.asarray(found)[finite], 1 / z[finite], rtol=1e-6)
