"""Shifted sums of exponentials: shift and sum give the logarithm, whichever shift it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
from tests.equations import primitives_in
from tracebridge.core.config.scopes import scope
from tracebridge.core.lax.reduce.exp_sums import by_largest, by_sum, shifted_exp_sum

SMALL, LARGE = (3, 4, 5), (64, 40, 60)


pytestmark = pytest.mark.usefixtures("without_kernels")


def _numbers(shape: tuple[int, ...], scale: float = 3.0, offset: float = 0.0) -> Any:
    drawn = np.random.default_rng(0).standard_normal(shape)
    return (drawn * scale + offset).astype(np.float32)


def _exact(x: Any, axes: tuple[int, ...]) -> Any:
    x = x.astype(np.float64)
    shift = x.max(axes, keepdims=True)
    return shift.squeeze(axes) + np.log(np.exp(x - shift).sum(axes))


@pytest.mark.parametrize("shape", [SMALL, LARGE])
@pytest.mark.parametrize("axes", [(2,), (1, 2), (0,), (0, 1, 2)])
def test_shift_and_sum_are_the_logarithm(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Of numbers of any size; the shift is near the largest one."""
    run = tb.jit(lambda x: shifted_exp_sum(x, axes))
    for scale, offset in ((3, 0), (1, 30), (1, -45), (100, 0), (1, 1e6), (1e30, 0)):
        x = _numbers(shape, scale, offset)
        shift, total = run(x)
        assert np.isfinite(total).all()
        np.testing.assert_allclose(shift + np.log(total), _exact(x, axes), rtol=3e-7, atol=1e-6)
        assert (np.abs(shift - x.max(axes)) <= np.log(x.size) + 1).all()


def test_both_forms_are_the_same() -> None:
    """What the CPU does with large arrays, and everybody with the others."""
    x = _numbers((32, 50))
    for axes in ((1,), (0, 1)):
        within, shift, total = tb.jit(lambda x, axes=axes: by_sum(x, axes))(x)
        plain_shift, plain_total = tb.jit(lambda x, axes=axes: by_largest(x, axes))(x)
        assert within
        np.testing.assert_allclose(
            shift + np.log(total), plain_shift + np.log(plain_total), rtol=3e-7, atol=1e-6
        )
    is_within = tb.jit(lambda x: by_sum(x, (1,))[0])
    for number in (60.0, -100.0, np.inf, np.nan):
        y = x.copy()
        y[3] = number
        assert not is_within(y)


def test_float64_needs_no_shift_for_long() -> None:
    """Its sums have all digits as far as 1e250; beyond, and next to infinity, they are shifted."""
    drawn = np.random.default_rng(0).standard_normal((40, 1000))
    with scope("enable_x64", True):
        for scale, offset in ((1, 0), (3, -60), (1, 500), (1, -500), (1, -700), (1, 1e6), (300, 0)):
            x = drawn * scale + offset
            wide = x.astype(np.longdouble)
            sums = np.exp(wide - offset).sum(1)
            within, *_ = tb.jit(lambda x: by_sum(x, (1,)))(x)
            assert bool(within) == (np.abs(np.log(sums) + offset) < np.log(1e250)).all()
            shift, total = [np.asarray(v) for v in tb.jit(lambda x: shifted_exp_sum(x, (1,)))(x)]
            exact = np.log(np.exp(wide - shift[:, None]).sum(1))
            assert np.abs(np.log(total) - exact).max() < 2e-15
            assert np.abs(shift - x.max(1)).max() <= np.log(1000) + 1
        for number in (np.inf, np.nan):
            x = drawn.copy()
            x[3, 4] = number
            logs = np.asarray(tb.nn.log_softmax(x))
            assert np.isnan(logs[3]).all()
            assert np.isfinite(np.delete(logs, 3, 0)).all()


def test_derivative_is_that_of_the_sum() -> None:
    """The shift has none: together they have that of the logarithm, also mapped."""
    for shape in (SMALL, LARGE):
        x, t = _numbers(shape), _numbers(shape, 1)

        def log_sum(x: Any) -> Any:
            shift, total = shifted_exp_sum(x, (0, 1))
            return shift + tb.lax.log(total)

        weights = np.exp(x - _exact(x, (1, 2))[:, None, None])
        mapped = tb.vmap(lambda x, t: tb.jvp(log_sum, (x,), (t,)))
        value, tangent = tb.jit(mapped)(x, t)
        np.testing.assert_allclose(value, _exact(x, (1, 2)), rtol=1e-6)
        np.testing.assert_allclose(tangent, (weights * t).sum((1, 2)), rtol=1e-4, atol=1e-5)
        gradient = tb.jit(tb.grad(lambda x: tb.vmap(log_sum, 2)(x).sum()))(x)
        columns = np.exp(x - _exact(x, (0, 1)))
        np.testing.assert_allclose(gradient, columns, rtol=1e-5)


def test_which_arrays_do_without_maxima() -> None:
    """Large ones of long rows, on the CPU, unless rules for platforms are off."""

    def has_choice(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
        lowered = tb.jit(lambda x: shifted_exp_sum(x, axes)).lower(_numbers(shape))
        return "stablehlo.if" in lowered.as_text()

    assert has_choice(LARGE, (2,))
    assert has_choice(LARGE, (1, 2))
    assert not has_choice((40000,), (0,))
    for shape, axes in ((LARGE, (0,)), (SMALL, (2,)), (LARGE, (0, 1, 2)), ((40000, 4), (1,))):
        assert not has_choice(shape, axes)
    with scope("platform_rules", False):
        assert not has_choice(LARGE, (2,))
    with scope("enable_x64", True):
        doubles = tb.jit(lambda x: shifted_exp_sum(x, (0,))).lower(np.zeros(40000))
        assert "stablehlo.if" in doubles.as_text()
    program = tb.make_jaxpr(tb.nn.log_softmax)(_numbers(SMALL))
    assert "shifted_exp_sum" in primitives_in(program, inside=True)
