"""checkify: where failures are found, what the message says, and that values stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.experimental import checkify as ck

X = tnp.arange(4.0)


def positive(x):
    ck.check(x > 0, "{x} is not positive", x=x)
    return tnp.log(x)


def found(f, *args, errors=ck.all_checks):
    """The message of a call, without the line; the result is that of the plain function."""
    error, out = ck.checkify(f, errors=errors)(*args)
    compiled, again = tb.jit(ck.checkify(f, errors=errors))(*args)
    assert error.get() == compiled.get()
    for a, b in zip(tb.tree.leaves(out), tb.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    text = error.get()
    return text if text is None else text.rpartition(" [")[0]


def test_nan_names_the_primitive_and_the_line():
    """The first operation that gives NaN is reported."""
    error, y = ck.checkify(lambda x: tnp.sin(tnp.log(x)) + 1.0, errors=ck.nan_checks)(-1.0)

    assert error.get().startswith("nan came out of log [")
    assert "test_transform.py:" in error.get()
    assert np.isnan(y)
    assert found(lambda x: tnp.sin(tnp.log(x)), 1.0) is None
    assert found(lambda x: tnp.log(x) * 1j, -1.0) == "nan came out of log"
    assert found(lambda x: x.reshape(2, 2).T[0], X * np.nan, errors=ck.nan_checks) is None


def test_division():
    """Integers and floats; other kinds of checks do not look."""
    divide = lambda x, y: x / y

    assert found(divide, 1.0, 0.0) == "division by zero in div"
    assert found(lax.div, X, X) == "division by zero in div"
    assert found(lax.div, tnp.arange(3), tnp.arange(3)) == "division by zero in div"
    assert found(divide, 1.0, 2.0) is None
    assert found(divide, 1.0, 0.0, errors=ck.index_checks) is None


@pytest.mark.parametrize(
    ("f", "i", "text"),
    [
        (lambda i: X[i], 4, "index 4 in dynamic_slice: axis 0"),
        (lambda i: X.reshape(2, 2)[0, i], 3, "index 3 in dynamic_slice: axis 1"),
        (lambda i: X[tnp.stack([i, i * -3, i])], 2, "index -2 in gather: axis 0"),
        (lambda i: X.at[tnp.stack([i, 0])].set(1.0), 7, "index 7 in scatter: axis 0"),
        (lambda i: X.at[tnp.stack([i, 0])].add(1.0), 7, "index 7 in scatter_add: axis 0"),
        (lambda i: lax.dynamic_slice(X, (i,), (2,)), 3, "index 3 in dynamic_slice: axis 0"),
        (lambda i: lax.dynamic_update_slice(X, X, (i,)), 1, "index 1 in dynamic_update_slice"),
    ],
)
def test_indices(f, i, text):
    """The index, the axis and the shape are in the message; good indices pass."""
    assert found(f, i).startswith(f"out-of-bounds {text}")
    assert found(f, 0) is None


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: x[4], "index 4 in dynamic_slice: axis 0 of an array of shape (4,)"),
        (lambda x: x[-7], "index -3 in dynamic_slice: axis 0"),
        (lambda x: x[np.int64(9)], "index 9 in dynamic_slice: axis 0"),
        (lambda x: x.at[4].get(), "index 4 in dynamic_slice: axis 0"),
        (lambda x: x.reshape(2, 2)[:, 3], "index 3 in dynamic_slice: axis 1"),
        (lambda x: x.reshape(2, 2)[3, ::-1], "index 3 in dynamic_slice: axis 0"),
        (lambda x: x.reshape(2, 2)[-4, None, 0], "index -2 in dynamic_slice: axis 0"),
        (lambda x: x.reshape(2, 2)[2, tnp.array([0, 1])], "index 2 in gather: axis 0"),
        (lambda x: lax.dynamic_slice(x, (-6,), (1,)), "index -2 in dynamic_slice"),
        (lambda x: lax.dynamic_update_slice(x, x[:1], (-6,)), "index -2 in dynamic_update_slice"),
        (lambda x: X[5] * x, "index 5 in dynamic_slice: axis 0"),
        (tb.jit(lambda x: x[4]), "index 4 in dynamic_slice"),
        (tb.grad(lambda x: x[4]), "index 4 in dynamic_update_slice"),
        (lambda x: tb.vmap(lambda x: x[4])(x[None]), "index 4 in dynamic_slice: axis 1"),
        (lambda x: lax.scan(lambda c, _: (c + x[4], 0), 0.0, None, 2), "index 4 in dynamic_slice"),
        (lambda x: lax.cond(x[0] < 1, lambda: x[4], lambda: x[0]), "index 4 in dynamic_slice"),
        (lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + 3 + x[4], 0.0), "index 4 in dyn"),
        (lambda x: tb.checkpoint(lambda x: x[4])(x), "index 4 in dynamic_slice"),
    ],
)
def test_known_indices(f, text):
    """Python integers outside of an axis are found like traced ones, and clamped all the same."""
    assert text in found(f, X)
    assert found(f, X, errors=ck.nan_checks | ck.div_checks) is None


@pytest.mark.parametrize("i", [5, -9])
def test_known_indices_outside_are_clamped(i):
    """Values and gradients are those of the nearest element, whatever stands beside the index."""
    x = tnp.arange(12.0).reshape(3, 4)
    near = min(max(i, 0), 2)

    for rest in ((), (slice(1, 3),), (slice(None, None, -1),), (None, 2), (..., slice(0, 4, 2))):
        np.testing.assert_array_equal(x[(i, *rest)], np.asarray(x)[(near, *rest)])
        gradient = tb.grad(lambda x, rest=rest: x[(i, *rest)].sum())
        expected = np.zeros((3, 4))
        expected[(near, *rest)] = 1
        np.testing.assert_array_equal(gradient(x), expected)
        np.testing.assert_array_equal(tb.jit(gradient)(x), expected)


def test_clipped_indices_are_meant():
    """Mode clip says what to do with indices outside."""
    f = lambda i: X.at[tnp.stack([i, 0])].get(mode="clip")

    assert found(f, 9) is None
    assert found(f, 9) is found(f, 1)


def test_user_checks_have_formatted_messages():
    """Positions, names, trees and format specifications; the first failure counts."""

    def f(x):
        ck.check(x[0] > 0, "{:.2f} and {pair[1]} of {d[k]}", x[0], pair=(1, x[1]), d={"k": x})
        ck.check(False, "too late")
        return x

    assert found(f, tnp.array([-1.0, 2.0])) == "-1.00 and 2.0 of [-1.  2.]"
    assert found(f, tnp.array([1.0, 2.0])) == "too late"


def test_what_messages_format_are_arrays():
    """Templates see what the check was given as arrays, of each rank and in batches."""

    def f(x):
        ck.check(x.sum() > 0, "{0!r} of {x.shape} has {n:03d}, {0.dtype}", x[0], x=x, n=x.size)
        return x

    expected = "Array(-1., dtype=float32) of (2,) has 002, float32"
    assert expected == found(f, tnp.array([-1.0, 0.5]))
    rows = tnp.array([[1.0, 2.0], [-1.0, 0.5]])
    assert expected == found(tb.vmap(f), rows)


def test_through_jit_scan_while_and_cond():
    """A failure inside is found, that of a branch only if the branch runs."""

    def steps(xs):
        def body(count, x):
            ck.check(x != 2, "two at {}", count)
            return count + 1, lax.cond(x > 1, lambda: tb.jit(positive)(1.0 - x), lambda: x)

        return lax.scan(body, 0, xs)

    assert found(steps, X) == "two at 2"
    assert found(steps, X[3:]) == "-2.0 is not positive"
    assert found(steps, X[:2]) is None

    def loop(n):
        def test(i):
            ck.check(i < 5, "test {}", i)
            return i < n

        def body(i):
            ck.check(i != 3, "body {}", i)
            return i + 1

        return lax.while_loop(test, body, 0)

    assert found(loop, 3) is None
    assert found(loop, 4) == "body 3"
    assert found(loop, 9) == "body 3"
    assert found(lambda n: lax.fori_loop(0, 4, lambda i, x: positive(x) + 1.0, n), 0.1) == (
        "-1.3025851249694824 is not positive"
    )
    assert found(lambda i, x: lax.switch(i, [tnp.log, tnp.sqrt], x), 1, -1.0) == (
        "nan came out of sqrt"
    )
    assert found(lambda x: tb.lax.platform_dependent(x, cpu=tnp.log, default=tnp.sin), -1.0) == (
        "nan came out of log"
    )


def test_batches():
    """vmap outside gives an error for each element, inside the first failure of all."""
    xs = tnp.array([1.0, -2.0, 0.0, 3.0])
    error, _ = tb.vmap(ck.checkify(positive))(xs)
    lines = error.get().splitlines()

    assert [line.partition(" [")[0] for line in lines] == [
        "at mapped index 1: -2.0 is not positive",
        "at mapped index 2: 0.0 is not positive",
    ]
    assert isinstance(error.get_exception(), ck.FailedCheckError)
    assert found(tb.vmap(positive), xs) == "-2.0 is not positive"
    assert found(tb.vmap(tb.vmap(positive)), xs.reshape(2, 2)) == "-2.0 is not positive"
    nested, _ = tb.vmap(tb.vmap(ck.checkify(positive)))(xs.reshape(2, 2))
    assert "at mapped index 0, 1: -2.0" in nested.get()
    assert found(lambda e: ck.check_error(e), nested) == "-2.0 is not positive"


def test_gradients():
    """checkify of grad, grad of checkify; derivatives are checked too."""
    both = tb.grad(lambda x: ck.checkify(positive)(x)[::-1], has_aux=True)
    slope, error = both(-2.0)

    assert slope == -0.5
    assert error.get().startswith("-2.0 is not positive")
    assert tb.jit(both)(2.0)[1].get() is None
    assert found(tb.grad(positive), -2.0) == "-2.0 is not positive"
    assert found(tb.grad(tnp.sqrt), 0.0).startswith("division by zero") or found(
        tb.grad(lambda x: tnp.sqrt(x) * x), 0.0
    ).startswith("nan")
    total = lambda xs: lax.scan(lambda c, x: (c + positive(x), None), 0.0, xs)[0]
    assert found(tb.grad(total), X) == "0.0 is not positive"
    np.testing.assert_allclose(tb.grad(lambda x: ck.checkify(total)(x)[1])(X + 1), 1 / (X + 1))


def test_functions_with_rules_of_their_own():
    """Their programs are checked, their rules stay."""

    @tb.custom_jvp
    def f(x):
        ck.check(x > 0, "f of {}", x)
        return tnp.log(x)

    f.defjvp(lambda p, t: (tnp.log(p[0]), 7.0 * t[0]))

    @tb.custom_vjp
    def g(x):
        return tnp.log(x)

    g.defvjp(lambda x: (tnp.log(x), x), lambda x, ct: (9.0 * ct,))

    assert found(f, -1.0) == "f of -1.0"
    assert found(g, -1.0) == "nan came out of log"
    assert tb.grad(lambda x: ck.checkify(f)(x)[1])(-1.0) == 7.0
    assert tb.grad(lambda x: ck.checkify(g, errors=ck.nan_checks)(x)[1])(-1.0) == 9.0
    assert found(tb.jit(lambda x: tb.vmap(f)(x)), X - 1.0) == "f of -1.0"
    solve = lambda a: lax.custom_linear_solve(
        lambda x: a * x, 1.0, lambda mv, b: b / mv(1.0), symmetric=True
    )
    assert found(solve, 0.0) == "division by zero in div"
    assert found(tb.grad(solve), 2.0) is None


def test_nested():
    """Each checkify takes its kinds of failures; check_error passes the rest on."""
    inner = ck.checkify(positive, errors=ck.nan_checks)
    error, (inner_error, _) = ck.checkify(inner)(-1.0)

    assert error.get().startswith("-1.0 is not positive")
    assert inner_error.get().startswith("nan came out of log")
    assert inner(-1.0)[0].get().startswith("nan came out of log")

    def passes_on(x):
        error, out = ck.checkify(positive, errors=ck.all_checks)(x)
        ck.check_error(error)
        return out

    assert found(passes_on, -1.0, errors=ck.user_checks) == "-1.0 is not positive"
    assert found(passes_on, 1.0) is None
    with pytest.raises(ck.FailedCheckError, match="not positive"):
        passes_on(-1.0)


def test_checks_outside_of_checkify():
    """Eagerly they raise at once, compiled they cannot; debug checks do nothing."""
    with pytest.raises(ck.FailedCheckError, match=r"a 1\n"):
        ck.check(False, "a {}", 1)
    with pytest.raises(ck.FailedCheckError, match=r"-1\.0 is not positive"):
        tb.vmap(positive)(X - 1.0)
    with pytest.raises(tb.errors.ArgumentSpecError, match=r"(?s)compiled.*apply checkify"):
        tb.jit(positive)(1.0)
    ck.debug_check(False, "no")
    assert tb.jit(lambda x: (ck.debug_check(x > 0, "no"), x)[1])(-1.0) == -1.0
    assert found(lambda x: ck.debug_check(x > 0, "now"), -1.0) == "now"


def test_error_values():
    """get, get_exception, throw, and errors as trees."""
    assert ck.init_error.get() is None
    assert ck.init_error.get_exception() is None
    ck.init_error.throw()
    error, _ = ck.checkify(lambda x: x / 0.0, errors=ck.float_checks)(1.0)
    with pytest.raises(ck.DivisionByZeroError, match="division by zero"):
        error.throw()
    with pytest.raises(ck.JaxRuntimeError):
        error.throw()
    assert repr(error) == f"Error({error.get()})"
    same = tb.tree.map(lambda leaf: leaf, error)
    assert same.get() == error.get()
    assert "Error(" in str(tb.eval_shape(ck.checkify(positive), 1.0))


def test_bad_arguments():
    """Messages name the argument."""
    with pytest.raises(tb.errors.ArgumentSpecError, match=r"pred is f32\[\], expected a scalar"):
        ck.check(1.0, "x")
    with pytest.raises(tb.errors.ArgumentSpecError, match=r"pred is bool\[2\]"):
        ck.check(X[:2] > 0, "x")
    with pytest.raises(tb.errors.ArgumentSpecError, match="msg is 3 of type int"):
        ck.check(True, 3)
    with pytest.raises(tb.errors.UnsupportedDtypeError, match="'a' of type str"):
        ck.check(False, "hi {}", "a")
    with pytest.raises(tb.errors.ArgumentSpecError, match="errors is 'nan'"):
        ck.checkify(positive, errors="nan")
    with pytest.raises(tb.errors.ArgumentSpecError, match="check_error: got 3"):
        ck.check_error(3)


PROGRAMS = [
    lambda x: tnp.sum(tnp.exp(x) / (1.0 + x * x)),
    lambda x: lax.scan(lambda c, v: (c * 0.5 + v, tnp.sin(c)), 0.0, x)[1],
    lambda x: lax.fori_loop(0, 3, lambda i, v: v.at[i].multiply(2.0), x),
    lambda x: lax.cond(x[0] > 0, lambda v: v * 2.0, lambda v: v - 1.0, x),
    lambda x: lax.while_loop(lambda v: v[0] < 10.0, lambda v: v + 3.0, x),
    lambda x: tb.vmap(lambda v: lax.cond(v > 0, tnp.cos, tnp.sin, v))(x),
    lambda x: tnp.sort(x)[tnp.argmax(x)],
]


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(PROGRAMS),
    st.lists(st.floats(-3, 3, width=32), min_size=3, max_size=3),
    st.sampled_from([ck.user_checks, ck.float_checks, ck.all_checks]),
)
def test_without_failures_no_value_changes(f, xs, errors):
    """The result is that of the plain function, as are its gradients."""
    x = np.array(xs, np.float32)
    error, out = tb.jit(ck.checkify(f, errors=errors))(x)

    assert error.get() is None
    np.testing.assert_allclose(out, tb.jit(f)(x), rtol=1e-6)


def test_pmap():
    """Each element has its own program; a failure before it stays the first."""
    f = tb.pmap(positive)

    assert found(f, X[1:2]) is None
    assert found(f, -X[1:2]) == "-1.0 is not positive"
    assert found(lambda x: (positive(x[0]), f(x))[1], -X[1:2]) == "-1.0 is not positive"
    assert found(f, -X[1:2], errors=ck.nan_checks) == "nan came out of log"
    assert found(f, -X[1:2], errors=ck.index_checks) is None
    gradient = tb.grad(lambda x: tnp.sum(f(x)))
    assert found(gradient, X[1:2]) is None
    assert found(gradient, -X[1:2]) == "-1.0 is not positive"


@pytest.mark.parametrize("errors", [frozenset(), ck.div_checks], ids=["none", "other"])
def test_checks_of_other_kinds_inside(errors):
    """Where they are not looked for, in whatever program, nothing is raised."""
    step = lambda c, _: (positive(c), None)
    for f in (
        tb.jit(positive),
        lambda x: lax.scan(step, x, None, length=2)[0],
        lambda x: lax.cond(x < 0, positive, lambda x: x, x),
        lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, positive(s[1])), (0, x)),
        lambda x: tb.pmap(positive)(x[None])[0],
    ):
        error, _ = ck.checkify(f, errors=errors)(-1.0 + X[0])
        assert error.get() is None
        assert found(ck.checkify(f, errors=errors), -1.0 + X[0]) == "-1.0 is not positive"


def test_arguments_that_the_function_must_know():
    """Strings are constants, numbers if the function needs them: counts, static arguments."""

    def f(x, n, mode="plain"):
        for _ in range(n):
            x = tnp.log(x)
        return x if mode == "plain" else -x

    error, y = ck.checkify(f, errors=ck.nan_checks)(2.0, 2, mode="minus")
    assert (error.get(), round(float(y), 4)) == (None, 0.3665)
    assert ck.checkify(f, errors=ck.nan_checks)(2.0, 3)[0].get().startswith("nan came out of log")
    power = tb.jit(lambda x, n: x**n, static_argnums=1)
    assert float(ck.checkify(power)(2.0, 3)[1]) == 8.0
    with pytest.raises(tb.errors.TracerIntegerConversionError):
        ck.checkify(f)(2.0, tnp.int32(3))


def test_dynamic_indices_below_the_first_element():
    """They count from the end once; what is below that is out of bounds, and clamped."""
    get = tb.jit(lambda x, i: x[i])

    assert [int(get(tnp.arange(3), i)) for i in (-1, -3, -4, -5, 3)] == [2, 0, 0, 0, 2]
    assert "index -1 in dynamic_slice" in found(lambda x, i: x[i], X, -5)


def test_an_error_of_unchecked_functions_is_known_while_tracing():
    """Without a check there is nothing to wait for, so that get and throw work inside of jit."""

    def run(x):
        error, y = ck.checkify(lambda x: x + 1.0)(x)
        error.throw()
        assert error.get() is None
        return y

    assert 2.0 == float(tb.jit(run)(1.0))
