"""custom_jvp: the user's rule in every composition, and the messages of wrong rules."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge import custom_derivatives as cd
from tracebridge.core.errors.transform_errors import ArgumentSpecError, CustomRuleError
from tracebridge.core.lowering.module import lower_module
from tracebridge.core.mlir.context import building
from tracebridge.experimental.custom_dce import custom_dce


@tb.custom_jvp
def product(x, y):
    """Its rule says ten times the derivative in ``x``, so that it can be told from the real one."""
    return x * y


@product.defjvp
def product_jvp(primals, tangents):
    x, y = primals
    x_dot, y_dot = tangents
    return product(x, y), 10.0 * y * x_dot + x * y_dot


def through_scan(x, y):
    """The function inside a loop."""
    return tb.lax.scan(lambda c, _: (product(c, y), None), x, None, length=1)[0]


FORMS = pytest.mark.parametrize(
    "f",
    [product, tb.jit(product), tb.jit(tb.jit(lambda x, y: product(x, y))), through_scan],
    ids=["plain", "jit", "jit in jit", "scan"],
)
X, Y = tnp.asarray([1.0, 2.0]), tnp.asarray([3.0, 4.0])


@FORMS
def test_value_and_gradients(f):
    """The function gives values, the rule gives derivatives in both modes."""
    assert float(f(2.0, 3.0)) == 6.0
    assert [float(g) for g in tb.grad(f, argnums=(0, 1))(2.0, 3.0)] == [30.0, 2.0]
    assert [float(g) for g in tb.jit(tb.grad(f, argnums=(0, 1)))(2.0, 3.0)] == [30.0, 2.0]
    assert [float(v) for v in tb.jvp(f, (2.0, 3.0), (1.0, 1.0))] == [6.0, 32.0]
    assert float(tb.linearize(f, 2.0, 3.0)[1](1.0, 1.0)) == 32.0


@FORMS
def test_second_order(f):
    """The rule itself is differentiated, by its own function's rule where it calls that."""

    def mixed(x, y):
        return tb.grad(lambda y: tb.grad(f)(x, y))(y)

    assert float(mixed(2.0, 3.0)) == 10.0
    assert float(tb.jit(mixed)(2.0, 3.0)) == 10.0
    assert float(tb.jvp(lambda y: tb.grad(f)(2.0, y), (3.0,), (1.0,))[1]) == 10.0


@FORMS
def test_batched(f):
    """vmap of the function, of its gradient, and the gradient of vmap."""
    assert tb.vmap(f)(X, Y).tolist() == [3.0, 8.0]
    assert tb.vmap(tb.grad(f))(X, Y).tolist() == [30.0, 40.0]
    assert tb.grad(lambda x: tb.vmap(f)(x, Y).sum())(X).tolist() == [30.0, 40.0]
    assert float(tb.grad(lambda x: tb.vmap(f, in_axes=(None, 0))(x, Y).sum())(1.0)) == 70.0
    assert float(tb.jit(tb.grad(lambda x: tb.vmap(f, (None, 0))(x, Y).sum()))(1.0)) == 70.0
    assert (
        tb.vmap(tb.vmap(tb.grad(f)))(tnp.stack([X, X]), tnp.stack([Y, Y])).tolist()
        == [[30.0, 40.0]] * 2
    )


@pytest.mark.parametrize("kind", ["jvp", "vjp", "vmap", "dce"])
@pytest.mark.parametrize("x", [1.5, 2, 1j, np.float64(3.0), np.arange(3.0), [1.0, 2]])
def test_functions_with_rules_get_arrays(kind, x):
    """Numbers and arrays of NumPy arrive as arrays, of the dtypes that arrays have."""
    seen = []

    def f(x):
        seen.extend(tb.tree.leaves(x))
        return x

    if kind == "jvp":
        f = tb.custom_jvp(f)
        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    elif kind == "vjp":
        f = tb.custom_vjp(f)
        f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct,))
    elif kind == "vmap":
        f = tb.custom_batching.custom_vmap(f)
        f.def_vmap(lambda size, batched, x: (x, batched[0]))
    else:
        f = custom_dce(f)
        f.def_dce(lambda used, x: x)
    out = f(x)
    given = tb.tree.leaves(x)
    for arrays in (seen, tb.tree.leaves(out)):
        assert [tb.typeof(g) for g in given] == [a.aval for a in arrays]
        assert all(isinstance(a, tb.Array) for a in arrays)


def test_rule_sees_numbers_outside_of_jit():
    """Python control flow on primals works in the function and in its rule under grad and jvp."""

    @tb.custom_jvp
    def f(x):
        return tnp.sin(x) if x > 0 else x

    f.defjvp(lambda p, t: (f(*p), 5.0 * t[0] if p[0] > 0 else t[0]))

    assert [float(tb.grad(f)(x)) for x in (2.0, -2.0)] == [5.0, 1.0]
    assert float(tb.jvp(f, (2.0,), (1.0,))[1]) == 5.0


def test_without_differentiation_only_the_function_runs():
    """Neither an eager call nor a compiled one touches the rule."""
    calls = []

    @tb.custom_jvp
    def f(x):
        return x + 1.0

    f.defjvp(lambda p, t: calls.append(1))

    assert float(f(2.0)) == 3.0
    assert float(tb.jit(f)(2.0)) == 3.0
    assert tb.vmap(f)(tnp.asarray([2.0])).tolist() == [3.0]
    assert calls == []


def test_trees():
    """Arguments and results are trees; integers have float0 tangents in the rule."""
    seen = []

    @tb.custom_jvp
    def f(p, n):
        return {"r": p["a"] * n, "n": n + 1}

    @f.defjvp
    def rule(primals, tangents):
        (p, n), (t, n_dot) = primals, tangents
        seen.append(n_dot.dtype)
        return f(p, n), {"r": t["a"] * n + t["b"], "n": n_dot}

    args = {"a": 2.0, "b": 3.0}
    for g in (f, tb.jit(f)):
        grads = tb.grad(lambda p, g=g: g(p, 4)["r"])(args)

        assert {k: float(v) for k, v in grads.items()} == {"a": 4.0, "b": 1.0}
    assert {tb.float0} == set(seen)


def test_nondiff_arguments():
    """Functions and strings are passed to the rule first; defaults and keywords are resolved."""

    @partial(tb.custom_jvp, nondiff_argnums=(0,), nondiff_argnames=("mode",))
    def apply(fun, x, mode="plain"):
        return fun(x) * (2.0 if mode == "double" else 1.0)

    @apply.defjvp
    def rule(fun, mode, primals, tangents):
        return apply(fun, *primals, mode), 100.0 * tangents[0] * (2.0 if mode == "double" else 1.0)

    assert apply.nondiff_argnums == (0, 2)
    assert float(apply(tnp.sin, np.float32(np.pi / 2), mode="double")) == 2.0
    assert float(tb.grad(lambda x: apply(tnp.sin, x))(1.0)) == 100.0
    assert float(tb.jit(tb.grad(lambda x: apply(tnp.sin, x=x, mode="double")))(1.0)) == 200.0
    assert float(tb.grad(tb.jit(lambda x: apply(tnp.sin, x, "double")))(1.0)) == 200.0


def test_defjvps():
    """One rule per argument; None says that there is no dependence."""

    @tb.custom_jvp
    def f(x, y, z):
        return (x * y, z)

    f.defjvps(lambda t, ans, x, y, z: (7.0 * t, 0.0 * t), None, lambda t, ans, x, y, z: (t, ans[1]))
    x_bar, y_bar, _ = tb.grad(lambda *a: f(*a)[0], argnums=(0, 1, 2))(2.0, 3.0, 4.0)

    assert (float(x_bar), float(y_bar)) == (7.0, 0.0)
    g = tb.custom_jvp(lambda x: x)
    g.defjvps(None)
    assert float(tb.grad(g)(1.0)) == 0.0


def test_symbolic_zeros_whatever_was_called_before():
    """A derivative in both arguments does not make the next one, in one of them, take zeros."""

    @tb.custom_jvp
    def f(x, y):
        return x * y

    @partial(f.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        x, y = primals
        total = 0.0 * x
        for t in tangents:
            if not isinstance(t, cd.SymbolicZero):
                total = total + t * np.inf
        return f(x, y), total

    staged = tb.jit(f)
    tb.grad(staged, (0, 1))(1.0, 2.0)

    assert np.inf == float(tb.jvp(lambda x: staged(x, 2.0), (1.0,), (1.0,))[1])


def test_symbolic_zeros():
    """The rule sees which tangents are zero, and may answer with a symbolic zero."""
    seen = []

    @tb.custom_jvp
    def f(x, y):
        return x * y, y

    @partial(f.defjvp, symbolic_zeros=True)
    def rule(primals, tangents):
        x, y = primals
        x_dot, y_dot = tangents
        seen.append((type(x_dot) is cd.SymbolicZero, type(y_dot) is cd.SymbolicZero))
        return f(x, y), (x_dot * 3.0, y_dot)

    for g in (f, tb.jit(f)):
        assert float(tb.grad(lambda x, g=g: sum(g(x, 2.0)))(1.0)) == 3.0
    assert {(False, True)} == set(seen)


def test_constant_tangent_is_zero():
    """What does not depend on tangents is no derivative."""
    f = tb.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: (p[0], 7.0))

    assert float(tb.grad(f)(1.0)) == 0.0
    assert float(tb.grad(tb.jit(f))(1.0)) == 0.0


def scaled(a, x):
    """A function with a rule that both close over ``a``."""

    @tb.custom_jvp
    def f(x):
        return x * a

    f.defjvp(lambda p, t: (f(*p), t[0] * a * 10.0))
    return f(x)


def test_closures():
    """Rules may close over traced values, at any depth of jit and vmap."""
    by_x = partial(tb.grad, argnums=1)
    summed = lambda a, x: tb.vmap(scaled)(a, x).sum()

    assert float(by_x(scaled)(2.0, 3.0)) == 20.0
    assert float(tb.jit(by_x(scaled))(2.0, 3.0)) == 20.0
    assert float(by_x(tb.jit(scaled))(2.0, 3.0)) == 20.0
    assert float(tb.jit(lambda a, x: tb.grad(tb.jit(lambda y: scaled(a, y)))(x))(2.0, 3.0)) == 20.0
    assert by_x(summed)(X, Y).tolist() == [10.0, 20.0]
    assert tb.vmap(by_x(scaled))(X, Y).tolist() == [10.0, 20.0]
    assert tb.vmap(scaled, (0, None))(tnp.asarray([0.0, 1.0]), 3.0).tolist() == [0.0, 3.0]


@pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
def test_closing_over_the_differentiated_value(wrap):
    """There is no rule for it, so it is an error instead of a wrong number."""
    for f in (tb.grad(wrap(scaled)), lambda a, x: tb.jvp(wrap(scaled), (a, x), (1.0, 1.0))):
        with pytest.raises(CustomRuleError, match="closes over a value with respect to which"):
            f(2.0, 3.0)


RULES = [
    (lambda p, t: p[0], r"returned an array f32\[\], expected a pair"),
    (lambda p, t: (p[0], t[0], t[0]), "returned a tuple of 3, expected a pair"),
    (lambda p, t: (p[0], (t[0],)), "a result and a tangent of different structures"),
    (lambda p, t: (p[0], None), "a result and a tangent of different structures"),
    (
        lambda p, t: (p[0], tnp.ones(2)),
        r"does not fit the result\n    got: f32\[2\]\n    expected: f32\[\]",
    ),
    (lambda p, t: (p[0], 1), r"got: i32\[\]\n    expected: f32\[\]"),
    (lambda p, t: (t[0], t[0]), "depends on the tangents"),
]


@pytest.mark.parametrize(("rule", "message"), RULES)
def test_wrong_rules(rule, message):
    """What a rule returns is checked; the message names the function and the rule."""

    @tb.custom_jvp
    def some_function(x, y):
        return x * y["a"]

    some_function.defjvp(rule)
    with pytest.raises(CustomRuleError, match=message) as caught:
        tb.grad(some_function)(2.0, {"a": 3.0})

    assert str(caught.value).startswith("some_function: ") or "some_function" in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "got"),
    [
        (lambda p, t: ((p[0],), (t[0],)), r"got: \(f32\[\],\)"),
        (lambda p, t: (tnp.ones(2), tnp.ones(2)), r"got: f32\[2\]"),
    ],
)
def test_result_of_the_rule_differs_from_the_function(rule, got):
    """Where the function is traced too, the rule's result must have its type."""
    f = tb.custom_jvp(lambda x: x)
    f.defjvp(rule)

    with pytest.raises(
        CustomRuleError, match=rf"differs in type(.|\n)*{got}\n    expected: f32\[\]"
    ):
        tb.grad(tb.jit(f))(1.0)


def test_wrong_setup():
    """No rule, no function, arguments that the rule could not get."""
    with pytest.raises(CustomRuleError, match="No JVP defined for custom_jvp function"):
        tb.custom_jvp(lambda x: x)(1.0)
    with pytest.raises(ArgumentSpecError, match="got 3, expected a function"):
        tb.custom_jvp(lambda x: x).defjvp(3)
    with pytest.raises(ArgumentSpecError, match="nondiff_argnums contains 2"):
        tb.custom_jvp(lambda x, y: x, nondiff_argnums=2)

    @tb.custom_jvp
    def f(x, *, k):
        return x

    f.defjvp(lambda p, t: (p[0], t[0]))
    with pytest.raises(ArgumentSpecError, match=r"\['k'\] can be given by keyword only"):
        f(1.0, k=2.0)
    with pytest.raises(ArgumentSpecError, match="does not fit"):
        product(1.0)


def test_methods():
    """A custom_jvp function in a class is a method."""

    class Model:
        def __init__(self, k):
            self.k = k

        @partial(tb.custom_jvp, nondiff_argnums=(0,))
        def scale(self, x):
            return self.k * x

        @scale.defjvp
        def rule(self, primals, tangents):
            return self.scale(*primals), 5.0 * self.k * tangents[0]

    assert float(Model(2.0).scale(3.0)) == 6.0
    assert float(tb.grad(Model(2.0).scale)(3.0)) == 10.0
    assert float(tb.jit(tb.grad(Model(2.0).scale))(3.0)) == 10.0


def test_new_rule_replaces_the_old_one():
    """Traces are forgotten when a rule is set."""
    f = tb.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: (p[0], 2.0 * t[0]))
    first = float(tb.grad(lambda x: tb.jit(lambda y: f(y))(x))(1.0))
    f.defjvp(lambda p, t: (p[0], 3.0 * t[0]))

    assert (first, float(tb.grad(lambda x: tb.jit(lambda y: f(y))(x))(1.0))) == (2.0, 3.0)


def test_nothing_keeps_a_function_alive():
    """Functions with rules die with their last user reference, traced or not."""

    def make():
        f = tb.custom_jvp(lambda x: x * 2.0)
        f.defjvp(lambda p, t: (f(*p), t[0]))
        tb.grad(f)(1.0)
        tb.vmap(f)(X)
        tb.grad(lambda x: tb.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0])(1.0)
        return weakref.ref(f)

    reference = make()
    gc.collect()

    assert reference() is None


def test_arrays_that_a_rule_closes_over_inside_loops():
    """An array used in the bodies of two loops is defined in each of them."""
    k = tnp.asarray([1.0, 2.0, 3.0])

    @tb.custom_jvp
    def f(x):
        return tnp.sin(x)

    f.defjvp(lambda p, t: (f(*p), t[0] * k * tnp.cos(p[0])))

    def loops(x):
        x = tb.lax.scan(lambda c, _: (f(c), None), x, None, length=3)[0]
        return tb.lax.scan(lambda c, _: (f(f(c)), None), x, None, length=2)[0]

    def written_out(x):
        for _ in range(7):
            x = f(x)
        return x

    x = tnp.asarray([0.1, 0.2, 0.3])
    push = lambda run: lambda x: tb.jvp(run, (x,), (x,))
    module = lower_module(tb.make_jaxpr(push(loops))(x).jaxpr, "loops", "cpu")
    with building():
        assert module.module.operation.verify()
    np.testing.assert_allclose(tb.jit(push(loops))(x)[1], push(written_out)(x)[1], rtol=1e-5)
