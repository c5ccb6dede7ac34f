"""Choices that numbers decide are made in programs, and change nothing but their size."""

from __future__ import annotations

from typing import Any

import numpy as np

import tracebridge as tb
import tracebridge.numpy as tnp
from tests.core.lowering.rewrites.test_by_content import traced
from tests.equations import primitives_in
from tracebridge import lax
from tracebridge.core.config.scopes import scope
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.core.ir.traverse import primitives_of
from tracebridge.core.lowering.rewrites.known_choices import with_known_choices
from tracebridge.scipy import stats

_RNG = np.random.default_rng(0)
X = _RNG.uniform(-0.5, 9, 400).astype(np.float32)
X[:8] = 0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1e-42, 3e38

# Parameters on both sides of what chooses the formula, and invalid ones.
DENSITIES: dict[str, Any] = {
    "gamma small": lambda x: stats.gamma.logpdf(x, 2.7),
    "gamma one": lambda x: stats.gamma.logpdf(x, 1.0),
    "gamma large": lambda x: stats.gamma.logpdf(x, 12.3, 0.1, 1.7),
    "gamma invalid": lambda x: stats.gamma.logpdf(x, -2.7),
    "gamma infinite": lambda x: stats.gamma.logpdf(x, np.inf),
    "no scale": lambda x: stats.gamma.logpdf(x, 2.5, scale=0.0),
    "beta small": lambda x: stats.beta.logpdf(x / 9, 2.3, 1.0),
    "beta large": lambda x: stats.beta.logpdf(x / 9, 12.3, 11.0),
    "chi2": lambda x: stats.chi2.logpdf(x, 3.3),
    "expon": lambda x: stats.expon.logpdf(x),
    "t": lambda x: stats.t.logpdf(x, 3.0),
    "nbinom": lambda x: stats.nbinom.logpmf(tnp.floor(x), 5.0, 0.3),
}


def _called(f: Any) -> Any:
    """A function of numbers that programs hold as a call; nobody asks for its derivatives."""
    called = tb.custom_jvp(f)
    called.defjvp(lambda primals, tangents: (called(*primals), tangents[-2:]))
    return called


def _changed(f: Any, *args: Any) -> Jaxpr:
    new = with_known_choices(traced(f, *args))
    assert new is not None
    return new


def test_densities_are_those_of_the_plain_form() -> None:
    """Values and gradients, at ends, of infinities and NaN, at parameters of all kinds."""

    def everything(x: Any) -> Any:
        values = [f(x) for f in DENSITIES.values()]
        return values, [tb.grad(lambda x, f=f: f(x).sum())(x) for f in DENSITIES.values()]

    for dtype, error in ((np.float32, 3e-6), (np.float64, 1e-13)):
        with scope("enable_x64", True):
            got = tb.jit(everything)(X.astype(dtype))
            with scope("platform_rules", False):
                expected = tb.jit(everything)(X.astype(dtype))
        for kind, plain in zip(got, expected, strict=True):
            for name, value, other in zip(DENSITIES, kind, plain, strict=True):
                np.testing.assert_allclose(value, other, error, error, err_msg=name)


def test_the_other_form_is_no_part_of_the_program() -> None:
    """The density of small shapes has one logarithm of the argument, and no quotient."""
    new = _changed(DENSITIES["gamma small"], X)

    of_arrays = [app.primitive for app, _ in new.equations if app.out.ndim]
    assert 1 == of_arrays.count(lax.log_p)
    assert lax.div_p not in of_arrays
    assert "lgamma" in primitives_in(new)  # of the shape, once


def test_conditions_of_numbers_and_arrays() -> None:
    """A number decides a conjunction, or leaves it to the array."""
    x = np.linspace(-1, 1, 5, dtype=np.float32)

    @_called
    def chosen(a: Any, x: Any) -> Any:
        both, one = (a >= 2.7) & (x > 0), (a >= 2.7) | (x > 0)
        return tnp.where(both, tnp.exp(x), x), tnp.where(one, tnp.sin(x), x)

    def of(a: float) -> Any:
        return lambda x: chosen(a, x)

    up = np.where(x > 0, np.sin(x), x)
    for a, first, second in ((2.6, x, up), (2.71, np.where(x > 0, np.exp(x), x), np.sin(x))):
        got = tb.jit(of(a))(x)
        np.testing.assert_allclose(got[0], first, 1e-6)
        np.testing.assert_allclose(got[1], second, 1e-6)
    assert "exp" not in primitives_in(_changed(of(2.6), x))
    assert "exp" in primitives_in(_changed(of(2.71), x))


def test_programs_with_other_numbers_choose_anew() -> None:
    """What a number has decided holds for that number only, whichever program comes first."""

    def density(x: Any, a: float) -> Any:
        return stats.gamma.logpdf(x, a)

    x = X[X > 0.1]
    for a in (2.7, 12.3, 2.7, 3.3, 14.1, -1.3):
        got = tb.jit(lambda x, a=a: density(x, a))(x)
        np.testing.assert_allclose(got, density(x, np.full_like(x, a)), 1e-4, 1e-5)


def test_signs_of_zeros_and_small_numbers_stay() -> None:
    """A difference with 0 keeps -0, a sum does not; what may be flushed decides nothing."""
    x = np.array([-0.0, 0.0, 1.0], np.float32)

    @_called
    def chosen(one: Any, small: Any, x: Any) -> Any:
        divisor = tnp.where(one > 0.0, one, 2.0)
        return (x - 0.0) / divisor, tnp.where((small > 0.0) & (x >= 0), 1.0, x + 0.0)

    def f(x: Any) -> Any:
        return chosen(1.0, 1e-42, x)

    assert [True, False, False] == np.signbit(tb.jit(f)(x)[0]).tolist()
    with scope("platform_rules", False):
        plain = tb.jit(f)(x)
    np.testing.assert_array_equal(plain[1], tb.jit(f)(x)[1])


def test_a_difference_with_minus_zero_stays() -> None:
    """It is a sum with 0, in which -0 loses its sign."""

    @_called
    def chosen(zero: Any, x: Any) -> Any:
        return x - zero, tnp.where((zero < 1.0) & (x >= 0), x, 0.0)

    x = np.array([-0.0, 1.0], np.float32)
    of_arrays = [app.primitive for app, _ in _changed(lambda x: chosen(-0.0, x), x).equations]
    assert lax.sub_p in of_arrays
    assert lax.sub_p not in primitives_of(_changed(lambda x: chosen(0.0, x), x))


def test_numbers_beyond_the_cases_choose_the_nearest_one() -> None:
    """As where the number is an argument, of one case too, of integers that could be a case."""

    def chosen(n: int) -> Any:
        return _called(lambda which, x: lax.select_n(which, *[x * k for k in range(1, n + 1)]))

    for n, numbers in ((1, (-1, 1, True)), (2, (-7, 2, True)), (3, (-1, 0, 2, 3))):
        for which in numbers:
            for dtype in (np.int32, np.float32):
                x = np.array([2, 3], dtype)
                got = tb.jit(lambda x, n=n, which=which: chosen(n)(which, x))(x)
                np.testing.assert_array_equal(got, x * (1 + min(max(int(which), 0), n - 1)))


def test_programs_that_choose_nothing_stay() -> None:
    """Where a condition is an array's, or no number is computed with."""
    assert with_known_choices(traced(lambda x: tnp.where(x > 0.3, x, 2.0), X)) is None
    assert with_known_choices(traced(lambda x: tb.nn.relu(x) * 2.3, X)) is None


def test_integers_of_numbers_that_have_none() -> None:
    """Infinities and large numbers are brought to the ends by devices, not by NumPy."""

    @_called
    def chosen(a: Any, x: Any) -> Any:
        whole = lax.convert_element_type(a * 1.0, np.int32)
        return tnp.where((whole > 3) & (x >= 0), x, 0.0), tnp.where((whole < -3) & (x >= 0), x, 0.0)

    x = np.arange(3, dtype=np.float32)
    for a in (np.inf, -np.inf, np.nan, 1e20, -1e20, 2.0**31, 5.5, -5.5):
        got = tb.jit(lambda x, a=a: chosen(a, x))(x)
        with scope("platform_rules", False):
            plain = tb.jit(lambda x, a=a: chosen(a, x))(x)
        np.testing.assert_array_equal(got, plain, str(a))


def test_equations_without_results_stay_before_choices() -> None:
    """What an equation without results does is done, whatever the next one becomes."""
    calls: list[int] = []

    def f(x: Any) -> Any:
        twos = tnp.full(x.shape, 2.0)
        tb.debug.callback(lambda: calls.append(1))
        return tnp.where(twos > 1.0, x, tnp.exp(x))

    jaxpr = tb.make_jaxpr(f)(X).jaxpr
    new = with_known_choices(jaxpr)
    np.testing.assert_array_equal(tb.jit(f)(X), X)
    tb.effects_barrier()

    assert new is not None
    assert any([not app.outs for app, _ in jaxpr.equations])
    assert any([not app.outs for app, _ in new.equations])
    assert [1] == calls
