"""jet: every operation and every construct against nested jvp, and known power series."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tests.strategies as some
import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.experimental.jet import jet, jet2, jet_rules, zero_series, zero_term

X = np.array([0.3, 0.6, 0.8])
TERMS = [np.array([1.0, -0.5, 0.7]), np.array([0.2, 0.4, -0.3]), np.array([-0.6, 0.1, 0.5])]


@pytest.fixture(autouse=True)
def _double():
    """High derivatives need precision."""
    with tb.enable_x64(True):
        yield


def slope_of(g):
    """The derivative of a function of a number, by jvp."""
    return lambda t: tb.jvp(g, (t,), (np.float64(1.0),))[1]


def nested(f, x, terms):
    """The derivatives of f along the curve by nested jvp."""

    def along(t):
        power = sum([c * t**k / math.factorial(k) for k, c in enumerate(terms, 1)])
        return f(x + power)

    found = []
    for _ in terms:
        along = slope_of(along)
        found.append(along(np.float64(0.0)))
    return found


def same(f, x=X, terms=TERMS, tol=1e-8):
    """jet agrees with nested jvp."""
    value, found = jet(f, (x,), (terms,))
    np.testing.assert_allclose(value, f(x), rtol=1e-10)
    for a, b in zip(found, tb.jit(lambda: nested(f, x, terms))(), strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol)


UNARY = [
    lax.neg, lax.sin, lax.cos, lax.tan, lax.sinh, lax.cosh, lax.tanh, lax.asin, lax.acos, lax.atan,
    lax.asinh, lax.atanh, lax.exp, lax.exp2, lax.expm1, lax.log, lax.log1p, lax.logistic, lax.sqrt,
    lax.rsqrt, lax.cbrt, lax.square, lax.abs, lax.erf, lax.erfc, lax.erf_inv, lax.lgamma,
    lax.digamma, lax.sign, lax.floor, lambda x: lax.acosh(x + 1.5),
    lambda x: lax.integer_pow(x, 5), lambda x: lax.integer_pow(x, -3), lambda x: x**2.5,
    lambda x: lax.pow(x, 1.0 + x), lambda x: lax.integer_pow(x, 0),
]  # fmt: skip
OTHERS = [
    lambda x: x * x + 3.0 * x - x / (1.0 + x * x),
    lambda x: 2.0 / x - 1.0,
    lambda x: lax.atan2(x, 1.0 - x),
    lambda x: lax.max(x, 0.5) + lax.min(x * x, 0.5),
    lambda x: lax.clamp(0.4, x, 0.7),
    lambda x: lax.rem(x, 0.25),
    lambda x: tnp.sum(x) * tnp.prod(x) + tnp.max(x) - tnp.mean(x),
    lambda x: tnp.cumsum(x) + tnp.cumprod(x) + lax.cummax(x) + lax.cumlogsumexp(x),
    lambda x: tnp.sort(x)[::-1] + x[tnp.argmax(x)],
    lambda x: tnp.where(x > 0.5, tnp.sin(x), x * x),
    lambda x: tnp.outer(x, x) @ tnp.exp(x) + x @ x,
    lambda x: tnp.concatenate([x, x[1:], tnp.ones(2)]).reshape(7)[::2],
    lambda x: lax.dynamic_slice(x, (1,), (2,)) * lax.pad(x, 0.0, [(-1, 0, 0)]),
    lambda x: tnp.zeros(5).at[tnp.array([0, 2, 2])].add(x * x).at[1].set(x[0]),
    lambda x: tnp.real(tnp.exp(1j * x) * x) + tnp.abs(x + 2j),
    lambda x: lax.stop_gradient(x) * x,
    lambda x: lax.reduce_precision(x, 11, 52) + lax.convert_element_type(x, np.float64),
    lambda x: tb.vmap(lambda v: tnp.sin(v) * v)(x),
    lambda x: tb.jit(lambda v: tnp.tanh(v) + 1.0)(x) * x,
    lambda x: lax.cond(x[0] > 0, tnp.sin, tnp.cos, x),
    lambda x: lax.cond(x[0] > 0, lambda v: (v, v * 0 + 1.0), lambda v: (v * v, v), x)[1],
    lambda x: lax.scan(lambda c, v: (c * v + 1.0, tnp.sin(c)), 1.0, x)[1],
    lambda x: lax.scan(lambda c, v: (c * x[0], v * c), x[1], x, reverse=True)[1],
    lambda x: lax.fori_loop(0, 3, lambda i, v: v * tnp.cos(v) + i, x),
    lambda x: lax.while_loop(lambda v: v[0] < 3.0, lambda v: v * 1.5 + x, x),
    lambda x: lax.associative_scan(lax.mul, x),
    lambda x: lax.platform_dependent(x, cpu=tnp.sin, default=tnp.cos),
    lambda x: lax.custom_linear_solve(
        lambda v: x * v, tnp.sin(x), lambda mv, b: b / mv(tnp.ones(3)), symmetric=True
    ),
    tb.checkpoint(lambda x: tnp.sin(x) * tnp.exp(x)) if hasattr(tb, "checkpoint") else tnp.sin,
]


@pytest.mark.parametrize("f", UNARY, ids=range(len(UNARY)))
def test_elementwise_operations(f):
    """Each to third order."""
    same(f)


@pytest.mark.parametrize("f", OTHERS, ids=range(len(OTHERS)))
def test_other_operations_and_control_flow(f):
    """Structure, reductions, products, selection, programs in programs."""
    same(f)


@pytest.mark.parametrize(
    ("f", "at", "coefficient"),
    [
        (lax.exp, 0.0, lambda k: 1 / math.factorial(k)),
        (lambda x: 1.0 / (1.0 - x), 0.0, lambda k: 1.0),
        (lax.log1p, 0.0, lambda k: (-1) ** (k + 1) / k),
        (lax.sin, 0.0, lambda k: [0, 1, 0, -1][k % 4] / math.factorial(k)),
        (lax.atan, 0.0, lambda k: [0, 1, 0, -1][k % 4] / k),
        (lambda x: lax.integer_pow(x, 4), 0.0, lambda k: float(k == 4)),
        (lax.tanh, 0.0, lambda k: [0, 1, 0, -1 / 3, 0, 2 / 15, 0][k]),
        (lambda x: lax.sqrt(1.0 + x), 0.0,
         lambda k: [1, 1 / 2, -1 / 8, 1 / 16, -5 / 128, 7 / 256, -21 / 1024][k]),
    ],
    ids=range(8),
)  # fmt: skip
def test_power_series_to_order_six(f, at, coefficient):
    """Taylor coefficients along x = t."""
    _, found = jet2(f, (at,), ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0],))
    _, scaled = jet(f, (at,), ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0],))

    for k, (c, d) in enumerate(zip(found, scaled, strict=True), 1):
        np.testing.assert_allclose(c, coefficient(k), atol=1e-12)
        np.testing.assert_allclose(d, coefficient(k) * math.factorial(k), atol=1e-9)


def test_functions_with_rules_of_their_own():
    """The rule for forward mode counts; without one, the function itself."""

    @tb.custom_jvp
    def f(x):
        return tnp.sin(x)

    f.defjvp(lambda p, t: (f(p[0]), 3.0 * tnp.cos(p[0]) * t[0]))

    @tb.custom_vjp
    def g(x):
        return tnp.sin(x)

    g.defvjp(lambda x: (g(x), x), lambda x, ct: (9.0 * ct,))
    same(lambda x: f(x) * x)
    value, found = jet(g, (X,), (TERMS,))
    np.testing.assert_allclose(value, np.sin(X))
    for a, b in zip(found, nested(tnp.sin, X, TERMS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_trees_and_several_arguments():
    """Series of trees have lists in the place of leaves; zero_series does not change."""

    def f(d, y, n):
        return {"p": d["a"] * d["b"][0], "q": (y * 2.0, n + 1)}

    primals = ({"a": 2.0, "b": [3.0]}, 5.0, 7)
    series = ({"a": [1.0, 0.0], "b": [[10.0, 2.0]]}, zero_series, zero_series)
    out, terms = jet(f, primals, series)

    assert (6.0, 10.0, 8) == (float(out["p"]), float(out["q"][0]), int(out["q"][1]))
    np.testing.assert_allclose(terms["p"], [23.0, 24.0])
    np.testing.assert_allclose(terms["q"][0], [0, 0])
    np.testing.assert_allclose(terms["q"][1], [0, 0])
    _, shorter = jet(lambda x: x * x, (3.0,), ([zero_term, 1.0],))
    np.testing.assert_allclose(shorter, [0.0, 6.0])


@pytest.mark.parametrize("array", [np.asarray, tnp.asarray])
def test_series_in_one_array(array):
    """Its rows are the derivatives."""
    _, found = jet(tnp.sin, (X,), (array(TERMS),))
    for a, b in zip(found, jet(tnp.sin, (X,), (TERMS,))[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert 2.0 == second_derivative(array([1.0, 0.0]))


def second_derivative(terms):
    """Of the square."""
    return float(jet(lambda x: x * x, (3.0,), (terms,))[1][1])


def test_operations_without_derivative_are_named():
    """The message says which operation, and what to do, also from inside a loop."""

    def callback(x):
        return tb.pure_callback(np.sin, tb.ShapeDtypeStruct((), x.dtype), x)

    for f in (callback, lambda x: lax.fori_loop(0, 2, lambda _, c: callback(c), x)):
        with pytest.raises(tb.errors.EffectError, match="whose derivative is not known"):
            jet(f, (1.0,), ([1.0],))


def test_composition():
    """vmap and grad around, jet of jet, jet of grad, closures over traced values."""
    third = lambda x: jet(tnp.sin, (x,), ([1.0, 0.0, 0.0],))[1][2]

    np.testing.assert_allclose(third(0.5), -np.cos(0.5))
    np.testing.assert_allclose(tb.vmap(third)(X), -np.cos(X))
    np.testing.assert_allclose(tb.grad(third)(0.5), np.sin(0.5))
    np.testing.assert_allclose(tb.jit(tb.vmap(tb.grad(third)))(X), np.sin(X))
    np.testing.assert_allclose(jet(third, (0.5,), ([1.0, 0.0],))[1], [np.sin(0.5), np.cos(0.5)])
    same(tb.grad(lambda x: tnp.sum(tnp.sin(x) * x)))
    closed = lambda k: jet(lambda x: tnp.sin(k * x), (0.5,), ([1.0, 0.0],))[1][1]
    np.testing.assert_allclose(
        tb.grad(closed)(2.0), -4 * np.sin(1.0) - 4 * 0.5 * np.cos(1.0), rtol=1e-9
    )
    np.testing.assert_allclose(
        lax.scan(lambda c, x: (c + third(x), None), 0.0, X)[0], -np.cos(X).sum()
    )


def test_rules_of_users(monkeypatch):
    """A rule for a primitive gets and gives derivatives."""
    monkeypatch.setitem(
        jet_rules, lax.sin_p, lambda primals, series: (primals[0], [2.0 * t for t in series[0]])
    )

    np.testing.assert_allclose(jet(lax.sin, (5.0,), ([1.0, 3.0],))[1], [2.0, 6.0])


def test_bad_arguments():
    """Messages name the argument."""
    with pytest.raises(tb.errors.ArgumentSpecError, match="primals is a float"):
        jet(tnp.sin, 1.0, [1.0])
    with pytest.raises(tb.errors.ArgumentSpecError, match="2 primals and 1 series"):
        jet(tnp.sin, (1.0, 2.0), ([1.0],))
    with pytest.raises(
        tb.errors.ArgumentSpecError, match=r"primals\[0\] has 1, primals\[1\] has 2"
    ):
        jet(tnp.add, (1.0, 2.0), ([1.0], [1.0, 2.0]))
    with pytest.raises(tb.errors.ArgumentSpecError, match="is a float"):
        jet(tnp.sin, (1.0,), (1.0,))
    with pytest.raises(tb.errors.ShapeMismatchError, match=r"primals\[0\] has a term of another"):
        jet(tnp.sin, (1.0,), ([np.ones(2)],))
    with pytest.raises(tb.errors.TreeMismatchError, match=r"series\[0\] has another structure"):
        jet(lambda d: d["a"], ({"a": 1.0},), ([1.0],))


STEPS = [
    tnp.sin,
    tnp.exp,
    lambda v: v * v,
    lambda v: v / (2.0 + v * v),
    tnp.tanh,
    lambda v: v[::-1],
]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    st.integers(1, 4),
)
def test_jet_is_nested_jvp(steps, xs, order):
    """For random compositions, points and orders."""

    def f(x):
        for step in steps:
            x = step(x) + 0.5 * x
        return x

    terms = [np.cos(np.arange(3.0) + k) for k in range(order)]
    _, found = jet(f, (np.array(xs),), (terms,))
    for a, b in zip(found, nested(f, np.array(xs), terms), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=some.programs(max_steps=4, modes="f"), seed=some.seeds, order=st.integers(1, 3))
def test_jet_of_random_programs_is_nested_jvp(program, seed, order):
    """With loops, branches, indexing, reductions, custom rules and rematerialization inside."""
    args = program.arguments(seed)
    rows = [program.arguments(seed + k) for k in range(1, order + 1)]
    series = [list(terms) for terms in zip(*rows, strict=True)]

    def along(t):
        moved = [
            a + sum([c * t**k / math.factorial(k) for k, c in enumerate(terms, 1)])
            for a, terms in zip(args, series, strict=True)
        ]
        return program(*moved)

    value, found = jet(program, args, series)
    jitted = tb.jit(lambda xs, ts: jet(program, xs, ts))(args, series)
    np.testing.assert_allclose(value, program.numpy(*args), rtol=1e-9, atol=1e-12)
    for k in range(order):
        along = slope_of(along)
        expected = along(np.float64(0.0))
        scale = 1e-9 * (1.0 + float(np.max(np.abs(expected), initial=0.0)))
        np.testing.assert_allclose(found[k], expected, rtol=1e-9, atol=scale)
        np.testing.assert_allclose(jitted[1][k], expected, rtol=1e-9, atol=scale)
