"""odeint against analytic solutions, SciPy and finite differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tests.quick_compiles import check_grads
from tracebridge.core.errors.dtype_errors import DtypeMismatchError, UnsupportedDtypeError
from tracebridge.core.errors.shape_errors import ShapeMismatchError
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    CustomRuleError,
    TreeMismatchError,
)
from tracebridge.experimental.ode import odeint

TIMES = np.linspace(0.0, 2.0, 6)


@pytest.fixture(autouse=True, scope="module")
def _double() -> Iterator[None]:
    """Tolerances of 1e-10 need 64 bits."""
    with tb.enable_x64(True):
        yield


def decay(y: Any, t: Any, rate: Any) -> Any:
    """dy/dt = -rate y."""
    del t
    return -rate * y


def pendulum(y: Any, t: Any, friction: Any, pull: Any) -> Any:
    """A driven pendulum: a nonlinear system that depends on time."""
    angle, speed = y
    return tnp.stack([speed, -friction * speed - tnp.sin(angle) + pull * tnp.cos(t)])


def by_scipy(f: Any, y0: Any, t: Any, *args: Any) -> Any:
    """The solution by an independent method of high order."""
    rates = lambda t, y: np.asarray(f(y, t, *args))
    return solve_ivp(rates, (t[0], t[-1]), y0, "DOP853", t, rtol=1e-12, atol=1e-12).y.T


def test_linear_equation() -> None:
    """The exponential function, to the tolerance asked for."""
    exact = np.exp(-0.7 * TIMES)
    np.testing.assert_allclose(exact, odeint(decay, 1.0, TIMES, 0.7), rtol=1e-7)
    fine = odeint(decay, 1.0, TIMES, 0.7, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(exact, fine, rtol=1e-11)
    coarse = odeint(decay, 1.0, TIMES, 0.7, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(exact, coarse, rtol=1e-2)
    assert np.max(np.abs(coarse - exact)) > 1e-9


def test_nonlinear_system_as_scipy() -> None:
    """A pendulum with friction and a force, at many times between the steps."""
    times = np.linspace(0.0, 8.0, 200)
    expected = by_scipy(pendulum, [1.0, 0.0], times, 0.2, 0.5)
    actual = odeint(pendulum, np.array([1.0, 0.0]), times, 0.2, 0.5)
    np.testing.assert_allclose(expected, actual, atol=2e-6)
    jitted = tb.jit(lambda y: odeint(pendulum, y, times, 0.2, 0.5, rtol=1e-10, atol=1e-10))
    np.testing.assert_allclose(expected, jitted(np.array([1.0, 0.0])), atol=2e-8)


@pytest.mark.parametrize("times", [-TIMES, TIMES[::-1].copy(), np.array([1.0, 1.0, 3.0, 3.0])])
def test_directions_and_repeated_times(times: Any) -> None:
    """Times may decrease, and may be equal."""
    exact = 3.0 * np.exp(-0.7 * (times - times[0]))
    np.testing.assert_allclose(exact, odeint(decay, 3.0, times, 0.7), rtol=1e-7)


def test_one_time() -> None:
    """One time: the start itself."""
    assert [[1.0, 2.0]] == odeint(decay, np.array([1.0, 2.0]), np.array([5.0]), 1.0).tolist()


def test_trees() -> None:
    """States and arguments are trees; leaves keep their shapes and dtypes."""

    def f(y: Any, t: Any, args: Any) -> Any:
        del t
        return {"a": -args["k"] * y["a"], "b": (y["b"][0] * 0 + args["m"],)}

    y0 = {"a": np.ones((2, 3)), "b": (np.float32(1.0),)}
    y = odeint(f, y0, TIMES, {"k": 0.5, "m": 2.0})
    assert ((6, 2, 3), (6,), np.float32) == (y["a"].shape, y["b"][0].shape, y["b"][0].dtype)
    np.testing.assert_allclose(np.exp(-0.5 * TIMES), y["a"][:, 1, 2], rtol=1e-7)
    np.testing.assert_allclose(1.0 + 2.0 * TIMES, y["b"][0], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_dtypes(dtype: Any) -> None:
    """The dtype of the state is that of the result; complex states rotate."""
    rate = 1j if np.dtype(dtype).kind == "c" else -1.0
    y = odeint(lambda y, t: y * rate, np.ones(2, dtype), TIMES)
    assert dtype == y.dtype
    np.testing.assert_allclose(np.exp(rate * TIMES), y[:, 0], rtol=1e-5)


def test_stiff_equation_and_jumps() -> None:
    """Steps shrink where they must: a stiff equation, and a rate that jumps."""
    y = odeint(lambda y, t: -500.0 * (y - tnp.cos(t)), 0.0, TIMES)
    exact = (500.0**2 * np.cos(TIMES) + 500.0 * np.sin(TIMES)) / (500.0**2 + 1)
    np.testing.assert_allclose(exact[1:], y[1:], atol=1e-6)
    y = odeint(lambda y, t: tnp.where(t < 0.5, 1.0, 0.0) + 0 * y, 0.0, np.array([0.0, 0.5, 2.0]))
    np.testing.assert_allclose([0.0, 0.5, 0.5], y, atol=1e-6)


def test_limits_of_steps() -> None:
    """hmax bounds a step (a pulse is not jumped over); beyond mxstep the result is NaN."""
    pulse = lambda y, t: tnp.where(tnp.abs(t - 5.0) < 0.05, 10.0, 0.0) + 0 * y
    times = np.array([0.0, 10.0])
    assert 0.0 == float(odeint(pulse, 0.0, times)[1])
    np.testing.assert_allclose(1.0, odeint(pulse, 0.0, times, hmax=0.02)[1], rtol=1e-5)

    exact = np.exp(-TIMES)
    np.testing.assert_allclose(exact, odeint(decay, 1.0, TIMES, 1.0, mxstep=1000), rtol=1e-7)
    short = odeint(decay, 1.0, TIMES, 1.0, mxstep=2)
    assert [False, *[True] * 5] == np.isnan(short).tolist()


def test_solutions_that_end() -> None:
    """1/(1-t) leaves every bound at 1: the result is NaN from there, and the loop ends."""
    y = odeint(lambda y, t: y * y, 1.0, np.array([0.0, 0.5, 1.5]), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose([1.0, 2.0], y[:2], rtol=1e-5)
    assert not np.isfinite(y[2]) or y[2] > 1e6
    assert np.isnan(odeint(lambda y, t: y * np.nan, 1.0, np.array([0.0, 1.0]))[1])


# derivatives -------------------------------------------------------------------------------------


def test_gradients_of_known_solutions() -> None:
    """d/dy0, d/drate and d/dt of y0 exp(-rate (t - t0))."""

    def last(y0: Any, rate: Any, times: Any) -> Any:
        return odeint(decay, y0, times, rate)[-1]

    ct = tb.grad(last, argnums=(0, 1, 2))(2.0, 0.7, TIMES)
    end = np.exp(-0.7 * 2.0)
    np.testing.assert_allclose(end, ct[0], rtol=1e-6)
    np.testing.assert_allclose(-2.0 * 2.0 * end, ct[1], rtol=1e-6)
    expected = np.zeros(6)
    expected[0], expected[-1] = 0.7 * 2.0 * end, -0.7 * 2.0 * end
    np.testing.assert_allclose(expected, ct[2], rtol=1e-6, atol=1e-12)


def test_gradients_as_finite_differences() -> None:
    """A nonlinear system with a loss over all times: state, times, arguments, closures."""
    times = np.array([0.0, 0.4, 1.1, 2.0])
    weights = np.linspace(1.0, 2.0, 8).reshape(4, 2)

    def loss(y0: Any, times: Any, friction: Any, pull: Any) -> Any:
        f = lambda y, t, friction: pendulum(y, t, friction, pull)
        ys = odeint(f, y0, times, friction, rtol=1e-10, atol=1e-10)
        return tnp.sum(weights * ys**2)

    args = (np.array([1.0, 0.3]), times, 0.2, 0.5)
    check_grads(loss, args, order=1, modes=("rev",), atol=1e-5, rtol=1e-5)


def test_second_derivatives() -> None:
    """The adjoint equation can be differentiated itself."""

    def last(y0: Any, rate: Any) -> Any:
        return odeint(decay, y0, TIMES, rate)[-1] ** 2

    expected = 4.0 * 2.0 * (-2.0) * np.exp(-2 * 0.7 * 2.0)
    mixed = tb.grad(lambda rate: tb.grad(last)(2.0, rate))(0.7)
    np.testing.assert_allclose(expected, mixed, rtol=1e-5)


def test_arguments_without_derivative() -> None:
    """Integers among the arguments are passed along."""
    f = lambda y, t, rate, n: -rate * n["n"] * y
    value = tb.grad(lambda rate: odeint(f, 1.0, TIMES, rate, {"n": 3})[-1])(0.7)
    np.testing.assert_allclose(-6.0 * np.exp(-0.7 * 6.0), value, rtol=1e-6)


def test_complex_gradient() -> None:
    """The gradient of a real function of a complex solution."""
    f = lambda w: tnp.real(odeint(lambda y, t, w: 1j * w * y, 1.0 + 0j, TIMES, w)[-1])
    np.testing.assert_allclose(-2.0 * np.sin(2.0 * 0.7), tb.grad(f)(0.7), rtol=1e-6)


def test_composition() -> None:
    """jit, vmap and scan around it, in every order with grad."""
    last = lambda y0, rate: odeint(decay, y0, TIMES, rate)[-1]
    y0s, rates = np.array([1.0, 2.0]), np.array([0.5, 0.7])
    np.testing.assert_allclose(y0s * np.exp(-2.0 * rates), tb.vmap(last)(y0s, rates), rtol=1e-6)
    expected = -2.0 * y0s * np.exp(-2.0 * rates)
    for run in (
        tb.vmap(tb.grad(last, argnums=1)),
        tb.jit(tb.vmap(tb.grad(last, argnums=1))),
        tb.grad(lambda y, r: tb.vmap(tb.jit(last))(y, r).sum(), argnums=1),
    ):
        np.testing.assert_allclose(expected, run(y0s, rates), rtol=1e-6)

    def chained(rate: Any) -> Any:
        return tb.lax.scan(lambda y, _: (last(y, rate), None), 1.0, None, length=3)[0]

    np.testing.assert_allclose(-6.0 * np.exp(-0.3 * 6.0), tb.jit(tb.grad(chained))(0.3), rtol=1e-6)


# wrong calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y0", "rates"),
    [
        ([1.0, 0.5], lambda y, t: [y[1], -y[0]]),
        ([1.0, 0.5], lambda y, t: (y[1], -y[0])),
        ((1.0, 0.5), lambda y, t: tnp.array([y[1], -y[0]])),
        (np.array([1.0, 0.5]), lambda y, t: [y[1], -y[0]]),
        ([np.array([1.0]), np.array([0.5])], lambda y, t: tnp.concatenate([y[1], -y[0]])),
    ],
)
def test_states_as_lists(y0: Any, rates: Any) -> None:
    """A list or tuple of arrays and a vector stand for each other; the result is like y0."""
    ys = odeint(rates, y0, TIMES)
    exact = [np.cos(TIMES) + 0.5 * np.sin(TIMES), 0.5 * np.cos(TIMES) - np.sin(TIMES)]
    columns = np.asarray(ys).T if isinstance(y0, np.ndarray) else [y.ravel() for y in ys]

    assert isinstance(ys, tb.Array if isinstance(y0, np.ndarray) else type(y0))
    np.testing.assert_allclose(exact, columns, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: odeint(3, 1.0, TIMES), ArgumentSpecError, "func is 3"),
        (lambda: odeint(decay, 1, TIMES, 1.0), DtypeMismatchError, "y0 has dtype int"),
        (lambda: odeint(decay, 1.0, np.arange(3), 1.0), DtypeMismatchError, "t has dtype int"),
        (lambda: odeint(decay, 1.0, 1j * TIMES, 1.0), DtypeMismatchError, "t has dtype complex"),
        (lambda: odeint(decay, 1.0, 1.0, 1.0), ShapeMismatchError, r"t has shape \(\)"),
        (lambda: odeint(decay, 1.0, TIMES[:0], 1.0), ShapeMismatchError, r"t has shape \(0,\)"),
        (lambda: odeint(decay, 1.0, TIMES, "a"), UnsupportedDtypeError, r"args\[0\] is 'a'"),
        (lambda: odeint(lambda y, t: (y,), 1.0, TIMES), TreeMismatchError, "another structure"),
        (
            lambda: odeint(lambda y, t: {"b": y["a"]}, {"a": 1.0}, TIMES),
            TreeMismatchError,
            "another structure",
        ),
        (lambda: odeint(lambda y, t: [y[0]], [1.0, 2.0], TIMES), ShapeMismatchError, "1 numbers"),
        (lambda: odeint(lambda y, t: tnp.ones(2), 1.0, TIMES), ShapeMismatchError, "2 numbers"),
        (lambda: odeint(lambda y, t: 1j * y, 1.0, TIMES), DtypeMismatchError, "make y0 complex"),
        (lambda: odeint(decay, 1.0, TIMES, 1.0, rtol=-1.0), ArgumentSpecError, "rtol is -1.0"),
        (lambda: odeint(decay, 1.0, TIMES, 1.0, hmax=0), ArgumentSpecError, "hmax is 0"),
        (lambda: odeint(decay, 1.0, TIMES, 1.0, mxstep="a"), ArgumentSpecError, "mxstep is 'a'"),
        (
            lambda: tb.jvp(lambda y: odeint(decay, y, TIMES, 1.0), (1.0,), (1.0,)),
            CustomRuleError,
            "odeint: can't apply forward-mode",
        ),
    ],
)
def test_wrong_calls(call: Any, error: type[Exception], text: str) -> None:
    """The message names the argument."""
    with pytest.raises(error, match=text):
        call()
