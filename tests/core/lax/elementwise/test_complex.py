"""Conventions of complex derivatives: transposes do not conjugate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.quick_compiles import check_grads
from tracebridge.core import lax
from tracebridge.core.interpreters.jvp import jvp_flat
from tracebridge.core.interpreters.linearize import linearize_flat
from tracebridge.core.interpreters.transpose import backward
from tracebridge.core.ir.trace import current_trace
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.runtime.arrays.transfer import put_numpy


def vjp(f: Callable[..., Any], *primals: Any, ct: Any) -> list[Any]:
    """Cotangents of the primals for one cotangent of the only result."""
    values = [put_numpy(np.asarray(p)) for p in primals]
    (_,), linear = linearize_flat(lambda *xs: [f(*xs)], values)
    found = backward(linear, [put_numpy(np.asarray(ct))], current_trace().process)
    return [None if c is None else np.asarray(c)[()] for c in found]


Z = np.complex128(1 + 2j)


@pytest.mark.parametrize(
    ("f", "primals", "ct", "expected"),
    [
        (lambda z: lax.real(lax.mul(z, z)), (Z,), 1.0, [2 + 4j]),
        (lambda z: lax.imag(lax.mul(z, z)), (Z,), 1.0, [4 - 2j]),
        (lambda z: lax.real(lax.mul(lax.conj(z), z)), (Z,), 1.0, [2 - 4j]),
        (lax.abs, (Z,), 1.0, [(1 - 2j) / np.sqrt(5)]),
        (lax.abs, (np.complex128(0),), 1.0, [0j]),
        (lax.real, (Z,), 2.0, [2 + 0j]),
        (lax.imag, (Z,), 2.0, [-2j]),
        (lax.conj, (Z,), 1 + 2j, [1 - 2j]),
        (lax.conj, (np.float64(2),), 1 + 2j, [1.0]),
        (lax.complex, (np.float64(2), np.float64(3)), 1 + 2j, [1.0, -2.0]),
        (lax.mul, (Z, Z), 1j, [1j * Z, 1j * Z]),
        (lax.exp, (Z,), 1 + 0j, [np.exp(Z)]),
        (lambda x: lax.convert_dtype(x, Z.dtype), (np.float64(2),), 1 + 2j, [1.0]),
        (lambda z: lax.convert_dtype(z, np.dtype("f8")), (Z,), 1.0, [1 + 0j]),
        (lax.max, (Z, Z), 1j, [0.5j, 0.5j]),
    ],
)
def test_cotangents_are_not_conjugated(
    f: Callable[..., Any], primals: Any, ct: Any, expected: Any
) -> None:
    """The gradient of a real function of z = x + iy is df/dx - i df/dy."""
    np.testing.assert_allclose(vjp(f, *primals, ct=ct), expected, rtol=1e-12, atol=1e-15)


def test_forward_mode_is_real_linear() -> None:
    """The tangent of abs along a complex direction is the real projection."""
    (_,), (t,) = jvp_flat(lambda z: [lax.abs(z)], [put_numpy(Z[None])], [put_numpy(Z[None] * 1j)])

    np.testing.assert_allclose(np.asarray(t), [0.0], atol=1e-15)


@pytest.mark.parametrize(
    "f",
    [lax.acosh, lax.asinh, lax.atanh, lax.acos, lax.asin, lax.atan, lax.sqrt, lax.log, lax.sign],
    ids=lambda f: f.__name__,
)
def test_derivatives_are_on_the_right_branch(f: Callable[..., Any]) -> None:
    """In all four quadrants the derivative belongs to the principal value."""
    z = np.array([0.7 + 0.4j, -1.7 + 0.4j, -0.7 - 0.4j, 1.7 - 0.4j])

    check_grads(f, (z,), order=2)


def test_conj_makes_floats_complex_and_refuses_integers() -> None:
    """conj of a float is complex with a zero imaginary part."""
    assert lax.conj(as_value(2.0)).dtype == np.complex64
    with pytest.raises(TypeError, match="conj does not accept dtype int32, it works on complex"):
        lax.conj(2)


def test_complex_parts_are_float32_or_float64() -> None:
    """There are no complex numbers of half precision."""
    with pytest.raises(TypeError, match="complex does not accept dtype float16, it works on"):
        lax.complex(np.float16(1), np.float16(2))
