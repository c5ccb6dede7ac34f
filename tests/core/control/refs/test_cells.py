"""References in control flow, under differentiation and in custom rules."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge.core.errors.ref_errors import RefError

lax = tb.lax
eager_and_jit = pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["eager", "jit"])


def zeros(*shape):
    """A reference full of zeros."""
    return tb.new_ref(tnp.zeros(shape))


# control flow ------------------------------------------------------------------------------------


@eager_and_jit
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(wrap, reverse):
    """The body reads and writes references that it closes over, also one that it only reads."""
    ref, scale = zeros(4), tb.new_ref(3.0)

    def body(c, i):
        ref[i] = c * scale[...]
        return c + 1.0, ref[0]

    def run():
        return lax.scan(body, 1.0, tnp.arange(4), reverse=reverse)

    last, ys = wrap(run)()
    order = [3, 2, 1, 0] if reverse else [0, 1, 2, 3]
    expected = np.zeros(4)
    seen = np.zeros(4)
    for c, i in enumerate(order, 1):
        expected[i] = 3.0 * c
        seen[i] = expected[0]
    assert (5.0, seen.tolist()) == (float(last), ys.tolist())
    assert expected.tolist() == ref[...].tolist()


@eager_and_jit
def test_scan_over_references(wrap):
    """A reference among the xs: the body gets its part at the step."""
    ref, xs = tb.new_ref(tnp.zeros((3, 2))), tnp.arange(3.0)

    def body(c, x):
        r, value = x["r"], x["v"]
        r[1] = value
        r[0] += c
        return c + 1.0, r[...]

    def run(r):
        return lax.scan(body, 10.0, {"r": r, "v": xs})

    _, ys = wrap(run)(ref)
    expected = [[10.0, 0.0], [11.0, 1.0], [12.0, 2.0]]
    assert (expected, expected) == (ys.tolist(), ref[...].tolist())
    with pytest.raises(ValueError, match="equal leading axes"):
        lax.scan(lambda c, x: (c, None), 0.0, (zeros(2), zeros(3)))
    with pytest.raises(ValueError, match="equal leading axes"):
        lax.scan(lambda c, x: (c, None), 0.0, zeros())


@eager_and_jit
def test_while_loop(wrap):
    """Body and condition see the writes of the body."""
    ref = zeros(2)
    limit = tb.new_ref(3.0)

    def body(i):
        ref[0] += 1.0
        return i + 1

    def run():
        return lax.while_loop(lambda i: ref[0] < limit[...], body, 0)

    assert 3 == int(wrap(run)())
    assert [3.0, 0.0] == ref[...].tolist()
    with pytest.raises(RefError, match="writes to a reference"):
        lax.while_loop(lambda i: (ref.set(1.0, 0), i < 3)[1], lambda i: i + 1, 0)


@eager_and_jit
def test_fori_loop_and_map(wrap):
    """Loops over known and traced bounds, and map."""
    ref = zeros(4)

    def run(n):
        lax.fori_loop(0, 3, lambda i, _: ref.set(1.0, i), None)
        lax.fori_loop(0, n, lambda i, _: ref.addupdate(2.0, i), None)
        return lax.map(lambda i: ref[i] * 2.0, tnp.arange(4))

    assert [6.0, 6.0, 2.0, 0.0] == wrap(run)(2).tolist()
    assert [3.0, 3.0, 1.0, 0.0] == ref[...].tolist()


@eager_and_jit
@pytest.mark.parametrize("index", range(3))
def test_branches(wrap, index):
    """Branches read and write different references; those of the others stay."""
    a, b, seen = zeros(), zeros(), tb.new_ref(5.0)

    def first():
        a[...] = seen[...]
        return b[...]

    def second():
        b[...] += 2.0
        return a[...] + 1.0

    def run(i):
        return lax.switch(i, [first, second, lambda: 7.0])

    assert [0.0, 1.0, 7.0][index] == float(wrap(run)(index))
    assert [(5.0, 0.0), (0.0, 2.0), (0.0, 0.0)][index] == (float(a[...]), float(b[...]))
    wrap(lambda r: lax.cond(index == 1, lambda q: q.set(9.0), lambda q: None, r))(seen)
    assert (9.0 if index == 1 else 5.0) == float(seen[...])


def test_branches_may_read_what_others_write():
    """A reference that one branch reads and another writes; results of several types."""
    r = tb.new_ref(tnp.arange(3.0))

    def writes(x):
        r[0] = x
        return {"out": r[...].sum()}

    for flag, expected in ((True, 10.0), (False, 3.0)):
        run = tb.jit(lambda p: lax.cond(p, writes, lambda x: {"out": r[...].sum()}, 7.0))
        r[0] = 0.0
        assert expected == float(run(flag)["out"])


def test_nested_control_flow():
    """Loops in loops in branches, under jit: one reference all the way down."""
    ref = zeros(3)

    @tb.jit
    def run(flag):
        def row(c, i):
            def cell(j, _):
                lax.cond(flag, lambda: ref.addupdate(1.0, i), lambda: ref.set(-1.0, i))

            lax.fori_loop(0, 2, cell, None)
            return c, None

        lax.scan(row, 0.0, tnp.arange(3))

    run(True)
    assert [2.0] * 3 == ref[...].tolist()
    run(False)
    assert [-1.0] * 3 == ref[...].tolist()


# differentiation ---------------------------------------------------------------------------------


def inner(x):
    """sin(x) + x by way of a reference."""
    ref = tb.new_ref(x)
    ref[...] = tnp.sin(ref[...])
    ref[...] += x
    return ref[...]


def looped(x):
    """sin(sin(sin x)) in a loop that writes to a reference."""
    ref = tb.new_ref(x)
    lax.scan(lambda c, _: (c, ref.set(tnp.sin(ref[...]))), 0.0, None, length=3)
    return ref[...]


def chosen(x):
    """sin(x) in a branch that writes to a reference."""
    ref = tb.new_ref(0.0)
    lax.cond(x > 0, lambda: ref.set(tnp.sin(x)), lambda: None)
    return ref[...]


PLAIN = {
    inner: lambda x: tnp.sin(x) + x,
    looped: lambda x: tnp.sin(tnp.sin(tnp.sin(x))),
    chosen: tnp.sin,
}


@pytest.mark.parametrize("f", PLAIN, ids=lambda f: f.__name__)
def test_derivatives_pass_through_references(f):
    """Every derivative of a function with references is that of the function without."""
    g = PLAIN[f]
    for transform in (
        tb.grad,
        lambda f: tb.jit(tb.grad(f)),
        lambda f: tb.grad(tb.jit(f)),
        lambda f: tb.grad(tb.grad(f)),
        tb.jacfwd,
        lambda f: tb.jacfwd(tb.grad(f)),
        lambda f: lambda x: tb.jvp(f, (x,), (1.0,))[1],
        lambda f: lambda x: tb.linearize(f, x)[1](1.0),
        lambda f: lambda x: tb.vmap(tb.grad(f))(x + tnp.arange(3.0)),
        lambda f: tb.grad(tb.checkpoint(f)),
    ):
        np.testing.assert_allclose(transform(g)(0.7), transform(f)(0.7), rtol=1e-5, atol=1e-6)


def test_forward_mode_through_while():
    """jvp of a while_loop that writes to a reference."""

    def f(x):
        ref = tb.new_ref(x)
        lax.while_loop(lambda i: i < 2, lambda i: (ref.set(ref[...] ** 2), i + 1)[1], 0)
        return ref[...]

    assert [16.0, 32.0] == [float(v) for v in tb.jvp(f, (2.0,), (1.0,))]


def test_statistics_of_differentiated_functions():
    """References of outside take values without derivative, and constants."""
    ref, count = zeros(), tb.new_ref(0)

    def f(x, r):
        r[...] = lax.stop_gradient(x) * 2.0
        count[...] += 1
        return x * x * count[...]

    for n, run in enumerate((tb.grad(f), tb.jit(tb.grad(f)), tb.grad(tb.jit(f))), 1):
        assert 6.0 * n == float(run(3.0, ref))
        assert (6.0, n) == (float(ref[...]), int(count[...]))
        ref[...] = 0.0


def test_differentiated_values_stay_inside():
    """They can't be written to a reference of outside: it has no place for the derivative."""
    ref = zeros()

    def f(x, r):
        r[...] = x
        return x * x

    for run in (
        lambda: tb.grad(f)(1.0, ref),
        lambda: tb.grad(tb.jit(f))(1.0, ref),
        lambda: tb.jvp(lambda x: f(x, ref), (1.0,), (1.0,)),
        lambda: tb.vjp(lambda x: f(x, ref), 1.0),
        lambda: tb.jit(tb.grad(f))(1.0, ref),
        lambda: tb.grad(lambda x: tb.grad(f)(x, tb.new_ref(x)))(1.0),
    ):
        with pytest.raises(RefError, match="being differentiated"):
            run()
    for run in (
        lambda: tb.grad(lambda r: r[...] ** 2)(ref),
        lambda: tb.vjp(lambda r: r[...] ** 2, ref),
    ):
        with pytest.raises(RefError, match="nor be differentiated"):
            run()
    with pytest.raises(RefError, match="passed twice"):  # no reference is its own tangent
        tb.jvp(lambda r: r[...] ** 2, (ref,), (ref,))
    assert 0.0 == float(ref[...])


# custom rules ------------------------------------------------------------------------------------


@tb.custom_vjp
def stash(ref, x):
    """The identity; its backward rule keeps the cotangent in ``ref``."""
    del ref
    return x


def _stash_bwd(ref, ct):
    ref[...] = ct
    return None, ct


stash.defvjp(lambda ref, x: (x, ref), _stash_bwd)


def through(x, ref):
    """sin(sin(x)), and the derivative of the outer one in ``ref``."""
    return tnp.sin(stash(ref, tnp.sin(x)))


@pytest.mark.parametrize(
    "transform",
    [tb.grad, lambda f: tb.jit(tb.grad(f)), lambda f: tb.grad(tb.jit(f)),
     lambda f: lambda x, r: tb.vjp(lambda x: f(x, r), x)[1](1.0)[0],
     lambda f: lambda x, r: tb.jit(lambda: tb.grad(lambda x: f(x, r))(x))()],
)  # fmt: skip
def test_rules_write_to_references(transform):
    """A backward rule hands a cotangent out through a reference."""
    ref = zeros()
    for x in (1.0, 2.0):
        value = transform(through)(x, ref)
        np.testing.assert_allclose(np.cos(np.sin(x)) * np.cos(x), value, rtol=1e-5)
        np.testing.assert_allclose(np.cos(np.sin(x)), ref[...], rtol=1e-5)
    assert float(tb.jit(through)(1.0, ref)) == pytest.approx(np.sin(np.sin(1.0)))


@eager_and_jit
def test_rules_write_to_references_in_scan(wrap):
    """Layers in a loop: each keeps the cotangent of its result in its part."""

    def f(x, refs):
        def layer(c, ref):
            return stash(ref, tnp.sin(c)), None

        return lax.scan(layer, x, refs)[0]

    refs = zeros(3)
    value = wrap(tb.grad(f))(1.0, refs)
    xs = [1.0]
    for _ in range(3):
        xs.append(np.sin(xs[-1]))
    expected = [np.cos(xs[1]) * np.cos(xs[2]), np.cos(xs[2]), 1.0]
    np.testing.assert_allclose(expected, refs[...], rtol=1e-5)
    np.testing.assert_allclose(expected[0] * np.cos(1.0), value, rtol=1e-5)


def test_rules_of_functions_that_count_their_calls():
    """A function with a rule may close over references; under grad its rule takes its place."""
    count = tb.new_ref(0)

    def f(x):
        count[...] += 1
        return x * x

    by_vjp = tb.custom_vjp(f)
    by_vjp.defvjp(lambda x: (f(x), x), lambda x, ct: (3.0 * x * ct,))
    by_jvp = tb.custom_jvp(f)
    by_jvp.defjvp(lambda primals, tangents: (f(primals[0]), 3.0 * primals[0] * tangents[0]))
    for n, g in enumerate((by_vjp, by_jvp)):
        for k, run in enumerate((g, tb.jit(g), tb.vmap(lambda x, g=g: g(x), axis_size=1))):
            run(tnp.ones(1))
            assert 6 * n + k + 1 == int(count[...])
        for k, run in enumerate((tb.grad(g), tb.jit(tb.grad(g)), tb.grad(tb.jit(g)))):
            assert 6.0 == float(run(2.0))
            assert 6 * n + k + 4 == int(count[...])


def test_rules_with_references_elsewhere_are_errors():
    """Where the rule could not reach the reference, the call is an error and not a wrong number."""
    ref = zeros()
    for run in (
        lambda: tb.grad(lambda x: tb.vmap(lambda y: stash(ref, y * x))(tnp.ones(2)).sum())(1.0),
        lambda: tb.grad(lambda x: lax.cond(True, lambda y: stash(ref, y), lambda y: y, x))(1.0),
        lambda: tb.grad(lambda x: lax.while_loop(lambda c: c < 1, lambda c: stash(ref, c), x))(2.0),
    ):
        with pytest.raises(RefError, match="custom derivative rule"):
            run()
    with pytest.raises(TypeError):
        tb.jvp(lambda x: stash(ref, x), (1.0,), (1.0,))
