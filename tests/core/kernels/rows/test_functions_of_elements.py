"""Large arrays of which costly functions are computed: one kernel, whatever the shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.kernels.plain_form import array, is_as_plain, kernels_in, needs_kernels
from tracebridge import core, lax, nn
from tracebridge.core.kernels import error_functions
from tracebridge.core.kernels.exponentials import AVX512
from tracebridge.core.kernels.machine import machine

pytestmark = needs_kernels

RNG = np.random.default_rng(0)

_SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 88.8, -104.0, 1e-30]


def _sine_chain(x: Any) -> Any:
    return tnp.sin(x) * tnp.cos(x) + tnp.exp(-x * x)


_FUNCTIONS = [_sine_chain, nn.gelu, nn.silu, nn.softplus, nn.mish, nn.sigmoid, tnp.tanh, tnp.expm1]


@pytest.mark.parametrize("shape", [(1 << 16,), (300, 1000), (64, 8, 16, 16), (1, 66000, 1)])
def test_arrays_of_any_shape_have_one_kernel(shape: tuple[int, ...]) -> None:
    x = array(*shape)
    assert kernels_in(_sine_chain, x) == 1
    is_as_plain(_sine_chain, x, tolerance=1e-6)


@pytest.mark.parametrize("f", _FUNCTIONS)
def test_functions_and_their_gradients_are_those_of_the_plain_form(f: Any) -> None:
    x = 5 * array(256, 512)
    is_as_plain(f, x, tolerance=2e-6)
    grad = tb.grad(lambda x: tnp.sum(f(x) * x))
    assert kernels_in(grad, x) == 1
    is_as_plain(grad, x, tolerance=4e-6)


@pytest.mark.parametrize("f", _FUNCTIONS)
def test_numbers_without_neighbours(f: Any) -> None:
    x = np.resize(np.array(_SPECIAL, np.float32), (256, 512))
    is_as_plain(f, x, tolerance=2e-6)


@pytest.mark.parametrize("n", [65_537, 2 * 65_537, (1 << 11) - 1])
def test_no_kernel_where_no_rows_fit_or_little_is_done(n: int) -> None:
    """65537 is a prime number."""
    assert kernels_in(_sine_chain, array(n)) == 0


def _normal_share(x: Any) -> Any:
    return 0.5 * (1.0 + lax.erf(tnp.log(tnp.abs(x) + 0.5)))


@pytest.mark.parametrize("f", [lax.erf, _normal_share, lambda x: 0.5 * x * (1 + lax.erf(x))])
def test_erf_alone_is_left_to_xla_which_takes_half_the_time(f: Any) -> None:
    x = array(256, 1000)
    assert kernels_in(f, x) == 0
    is_as_plain(f, x, tolerance=1e-6)


def test_erf_is_in_kernels_that_save_passes_over_memory() -> None:
    x = array(256, 1000)
    assert kernels_in(lambda x: nn.softmax(lax.erf(x)), x) == 1
    is_as_plain(lambda x: nn.softmax(lax.erf(x)), x, tolerance=2e-6)


def test_a_called_function_belongs_where_it_is_called() -> None:
    """Residuals of an activation are not written between two kernels."""
    x = array(256, 512)
    text = tb.jit(tb.grad(lambda x: tnp.sum(nn.mish(x) * x))).lower(x).as_text()
    assert "call @mish" not in text


def test_many_results_are_none_of_a_kernel() -> None:
    x = array(256, 512)

    def results(x: Any) -> Any:
        y = tnp.exp(x)
        return y, y + 1, y * x, y - x

    assert kernels_in(results, x) == 0
    is_as_plain(results, x)


@pytest.mark.parametrize("axes", [0, 1, (0, 1)])
def test_sums_of_functions(axes: Any) -> None:
    x, b = array(256, 512), array(512)
    is_as_plain(lambda x, b: tnp.sum(tnp.tanh(x + b), axes), x, b, tolerance=1e-5)


def test_functions_of_batches_and_broadcasts() -> None:
    x, b, c = array(128, 1024), array(1024), array(128)
    f = lambda x, b, c: nn.silu(x * c[:, None] + b)
    assert kernels_in(f, x, b, c) == 1
    is_as_plain(f, x, b, c)
    is_as_plain(tb.vmap(f, (1, None, None), 1), array(128, 4, 1024), b, c)


def test_no_kernel_beside_what_kernels_do_not_have() -> None:
    """XLA computes such a function and its gradient in one pass: a kernel would write its parts."""
    x = array(256, 512)
    assert kernels_in(tb.grad(lambda x: tnp.sum(lax.atan2(tnp.exp(x), x + 1) * x)), x) == 0


@pytest.mark.parametrize(
    ("name", "looks_up", "bound"),
    [
        ("erf", True, 1.5),
        ("erf", False, 1.5),
        ("erfc", True, 2.5),
        ("erfc", False, 2.2),
        ("ndtr", True, 3.5),
        ("ndtr", False, 3.0),
    ],
)
def test_digits_of_error_functions(
    name: str, looks_up: bool, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In vectors of whole registers, which look polynomials up with AVX-512, and without it."""
    n = 1024
    if not looks_up:
        monkeypatch.setattr(error_functions, "has_registers", lambda to: False)
        n = 1040  # rows of another length: kernels are remembered
    domain = (-12.9, 9.0) if name == "ndtr" else (-5.0, 9.19)
    x = RNG.uniform(*domain, (200, n)).astype(np.float32)
    x[0] = RNG.choice([-1, 1], n) * 2.0 ** RNG.uniform(-120, 0, n)
    x[1, :9] = 0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 3.0, 7.0, 10.5
    # Where one polynomial ends and the next begins, and beside it.
    ends = np.arange(1, 170, dtype=np.float32) / 16
    x[2:5, :169] = ends, np.nextafter(ends, 0), np.nextafter(ends, 99)
    x[5:8] = -x[2:5]

    def f(x: Any) -> Any:
        y = getattr(core.lax, name)(x)
        return y, y - tnp.max(y, -1, keepdims=True)  # a second pass: erf alone is XLA's

    assert kernels_in(f, x) == 1
    y = np.asarray(tb.jit(f)(x)[0])
    expected = getattr(special, name)(x.astype(np.float64))
    rounded = expected.astype(np.float32)
    normal = np.isfinite(rounded) & (np.abs(rounded) >= np.finfo(np.float32).tiny)
    error = np.abs(y - expected)[normal]
    assert (error <= bound * np.spacing(np.abs(rounded[normal]))).all()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(rounded))
    zeros = x == 0
    np.testing.assert_array_equal(y[zeros], rounded[zeros])


def test_erfc_of_a_number_is_the_same_beside_large_ones() -> None:
    """Where vectors look for numbers whose complement is small.

    Where none is, within 1.6 ulp by looked up polynomials, elsewhere as everywhere.
    """
    x = RNG.uniform(-12, 3.93, (256, 1024)).astype(np.float32)
    beside = x.copy()
    beside[:, ::7] = RNG.uniform(3.93, 12, beside[:, ::7].shape)
    beside[0, ::7] = np.inf
    beside[1, ::7] = np.nan

    f = lambda x: lax.erfc(x) * 1.0
    alone, among = [np.asarray(tb.jit(f)(v)) for v in (x, beside)]

    assert kernels_in(f, x) == 1
    others = np.arange(1024) % 7 != 0
    np.testing.assert_array_equal(alone[:, others], among[:, others])
    np.testing.assert_allclose(among[2:], special.erfc(beside[2:]), rtol=4e-7, atol=1e-37)
    expected = special.erfc(x.astype(np.float64))
    bound = 1.6 if machine().lanes == AVX512 else 2.2
    assert (np.abs(alone - expected) <= bound * np.spacing(expected.astype(np.float32))).all()


@pytest.mark.parametrize("size", [66000, (3, 7, 3501), (256, 257)])
def test_erfc_of_odd_sizes(size: Any) -> None:
    """Whatever the vectors are that the last elements are in, near and far ones among them."""
    x = RNG.uniform(-6, 6, size).astype(np.float32)
    x.flat[:5] = np.nan, np.inf, -np.inf, 4.0, -0.0
    f = lambda x: lax.erfc(x) * 1.0
    expected = special.erfc(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(tb.jit(f)(x)), expected, rtol=3e-7, atol=1e-37)
    assert tb.jit(f)(np.zeros(0, np.float32)).shape == (0,)


def test_payloads_of_nan_stay_nan() -> None:
    """Powers of two are made of bits: those of NaN must not become a number's."""
    bits = 0x7F800001 + RNG.integers(0, 0x7FFFFF, (256, 300))
    x = np.where(RNG.random(bits.shape) < 0.5, bits, bits | 0x80000000)
    x = x.astype(np.uint32).view(np.float32)
    f = lambda x: (lax.erfc(x) * 1.0, lax.exp(x), nn.gelu(x, approximate=False))

    for y in tb.jit(f)(x):
        assert np.isnan(y).all()


def test_exact_gelu_far_out() -> None:
    """The values and slopes of SciPy's functions, infinities and NaN."""
    x = np.linspace(-12, 12, 1 << 17).astype(np.float32).reshape(256, 512)
    x[0, :6] = np.inf, -np.inf, np.nan, 1e30, -1e30, 40.0
    f = lambda x: nn.gelu(x, approximate=False)
    slope = tb.jit(lambda x: tb.vjp(f, x)[1](tnp.ones_like(x))[0])
    near = np.clip(x.astype(np.float64), -40, 40)
    share = special.ndtr(near)
    density = np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi)
    value = np.where(x > near, x, near) * share
    np.testing.assert_allclose(tb.jit(f)(x), value, rtol=2e-5, atol=1e-37)
    np.testing.assert_allclose(slope(x), share + near * density, rtol=2e-5, atol=1e-6)


def test_exact_gelu_and_its_gradient() -> None:
    """Each is one kernel."""
    x = 3 * array(256, 512)
    f = lambda x: nn.gelu(x, approximate=False)
    assert kernels_in(f, x) == 1
    assert kernels_in(tb.grad(lambda x: tnp.sum(f(x) * x)), x) == 1
    is_as_plain(f, x)
    is_as_plain(tb.grad(lambda x: tnp.sum(f(x) * x)), x, tolerance=1e-6)
