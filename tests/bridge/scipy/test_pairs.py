"""Numbers of twice as many digits, against exact fractions; the beta function made of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core._jaxlib.xla import QUICK_COMPILE
from tracebridge.scipy import special
from tracebridge.scipy._special import pairs
from tracebridge.scipy._special.pairs import Pair

OPERATIONS = {
    "times": (Pair.times, lambda x, y: x * y),
    "over": (Pair.over, lambda x, y: x / y),
    "plus": (lambda x, y: x.plus(y.head * 0.25), lambda x, y: x + y / 4),
}
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])


def _numbers(dtype: type, size: int = 300) -> tuple[Any, Any]:
    random = np.random.default_rng(7)
    x, y = np.exp2(random.uniform(0, 1, (2, size))).astype(dtype)
    return x, y


@DTYPES
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_have_twice_the_digits(name: str, dtype: type) -> None:
    """Of rounded numbers, in a compiled program."""
    operation, exact = OPERATIONS[name]
    xs, ys = _numbers(dtype)

    def run(x: Any, y: Any) -> Any:
        found = operation(pairs.exactly(x), pairs.exactly(y))
        return found.head, found.rest

    with tb.enable_x64(True):
        heads, rests = map(np.asarray, tb.jit(run)(xs, ys))

    for x, y, head, rest in zip(xs, ys, heads, rests, strict=True):
        right = exact(Fraction(float(x)), Fraction(float(y)))
        error = Fraction(float(head)) + Fraction(float(rest)) - right
        assert abs(error) <= abs(right) * Fraction(2 * float(np.finfo(dtype).eps) ** 2)


@DTYPES
def test_roots_and_constants_have_twice_the_digits(dtype: type) -> None:
    """A root's square, and a constant's parts."""
    xs, _ = _numbers(dtype)

    def run(x: Any) -> Any:
        root, e = pairs.exactly(x).root(), pairs.constant(x, np.e, 1.4456468917292502e-16)
        return root.head, root.rest, e.head, e.rest

    with tb.enable_x64(True):
        found = [np.asarray(v) for v in tb.jit(run)(xs)]

    with mp.workprec(200):
        for x, *parts in zip(xs, *found, strict=True):
            root, root_rest, e, e_rest = [mpmath.mpf(float(v)) for v in parts]
            bound = 4 * float(np.finfo(dtype).eps) ** 2
            assert abs((root + root_rest) ** 2 / mpmath.mpf(float(x)) - 1) <= bound
            assert abs((e + e_rest) / mp.e - 1) <= bound


@DTYPES
def test_very_small_products_have_no_rest_of_noise(dtype: type) -> None:
    """What rounding has taken off a number near the least one is no float."""
    xs, ys = _numbers(dtype)
    small = (xs * float(np.finfo(dtype).tiny) ** 0.5).astype(dtype)
    other = (ys * 8 * float(np.finfo(dtype).tiny) ** 0.5).astype(dtype)

    with tb.enable_x64(True):
        found = tb.jit(lambda x, y: pairs.exactly(x).times(pairs.exactly(y)).value())(small, other)

    assert np.array_equal(small * other, np.asarray(found))


@DTYPES
@pytest.mark.parametrize("quick", [True, False])
def test_the_beta_function_keeps_its_digits_everywhere(dtype: type, quick: bool) -> None:
    """At random points, and at some that rounding of the sum or of products had been worst for."""
    random, info = np.random.default_rng(23), np.finfo(dtype)
    xs = [np.exp(random.uniform(np.log(1e-3), np.log(hi), 1200)) for hi in (300.0, 3000.0)]
    worst = ((7.117637638392718, 0.12710995917337645), (2.5125320236731556, 3.8379815906809176),
             (4.0156264, 2.3858712), (389.81995, 0.234096276), (0.02867755, 796.6338))  # fmt: skip
    a, b = (
        np.concatenate([x, w]).astype(dtype)
        for x, w in zip(xs, zip(*worst, strict=True), strict=True)
    )

    options = dict(QUICK_COMPILE) if quick else None
    with tb.enable_x64(True):
        found = np.asarray(tb.jit(special.beta, compiler_options=options)(a, b))

    wrong: list[Any] = []
    with mp.workprec(200):
        for x, y, got in zip(a, b, found, strict=True):
            exact = mp.beta(mpmath.mpf(float(x)), mpmath.mpf(float(y)))
            if exact > float(info.tiny):
                unit = float(np.spacing(dtype(float(exact))))
                error = float(abs(mpmath.mpf(float(got)) - exact)) / unit
                if not error <= 3.0:
                    wrong.append((float(x), float(y), error))
    assert [] == wrong


def test_the_beta_function_of_one_and_a_number_is_its_inverse() -> None:
    """To the last place or the one beside it, up to the ends of what products are taken of."""
    xs = np.array([1e-15, 0.3, 1.0, 6.9, 7.0, 1e3, 1e100, 1e250])

    with tb.enable_x64(True):
        found = special.beta(tnp.ones_like(tnp.asarray(xs)), tnp.asarray(xs))

    np.testing.assert_allclose(np.asarray(found), 1 / xs, rtol=5e-16)
