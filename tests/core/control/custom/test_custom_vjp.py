"""custom_vjp: the user's rules in every composition, and the messages of wrong rules."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax
import tracebridge.numpy as tnp
from tracebridge import custom_derivatives as cd
from tracebridge.core.errors.transform_errors import ArgumentSpecError, CustomRuleError


@tb.custom_vjp
def product(x, y):
    """Its rules say ten times the derivative in ``x``."""
    return x * y


def product_fwd(x, y):
    return product(x, y), (x, y)


def product_bwd(residuals, ct):
    x, y = residuals
    return 10.0 * y * ct, x * ct


product.defvjp(product_fwd, product_bwd)


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
    """The function gives values, the rules give gradients."""
    assert float(f(2.0, 3.0)) == 6.0
    assert [float(g) for g in tb.grad(f, argnums=(0, 1))(2.0, 3.0)] == [30.0, 2.0]
    assert [float(g) for g in tb.jit(tb.grad(f, argnums=(0, 1)))(2.0, 3.0)] == [30.0, 2.0]
    value, pullback = tb.vjp(f, 2.0, 3.0)
    assert [float(value), *map(float, pullback(2.0))] == [6.0, 60.0, 4.0]


@FORMS
def test_second_order(f):
    """Both rules are differentiated, in either mode."""

    def mixed(x, y):
        return tb.grad(lambda y: tb.grad(f)(x, y))(y)

    assert float(mixed(2.0, 3.0)) == 10.0
    assert float(tb.jit(mixed)(2.0, 3.0)) == 10.0


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
    twice = tb.grad(lambda x: tb.vmap(tb.vmap(f, (0, None)), (None, 0))(x, Y).sum())(X)
    assert twice.tolist() == [70.0, 70.0]


@FORMS
def test_forward_mode_is_an_error(f):
    """jvp and the linear function of linearize say what to do instead."""
    for run in (
        lambda: tb.jvp(f, (2.0, 3.0), (1.0, 1.0)),
        lambda: tb.linearize(f, 2.0, 3.0)[1](1.0, 1.0),
        lambda: tb.jit(lambda x: tb.jvp(lambda x: f(x, 3.0), (x,), (1.0,)))(2.0),
    ):
        with pytest.raises(
            CustomRuleError, match="product: can't apply forward-mode autodiff"
        ) as caught:
            run()
        assert "use grad, vjp or jacrev, or define the function with custom_jvp" in str(
            caught.value
        )


def test_loop_of_calls():
    """Residuals of each step are kept by the loop."""

    @tb.custom_vjp
    def sine(x):
        return tnp.sin(x)

    sine.defvjp(lambda x: (tnp.sin(x), tnp.cos(x)), lambda r, ct: (r * ct,))

    def loop(f, w):
        return tb.lax.scan(lambda c, x: (f(c * w + x), None), 0.2, tnp.arange(5.0))[0]

    for transform in (tb.grad, lambda f: tb.jit(tb.grad(f)), lambda f: tb.grad(tb.jit(f))):
        np.testing.assert_allclose(
            transform(lambda w: loop(tnp.sin, w))(0.7),
            transform(lambda w: loop(sine, w))(0.7),
            rtol=1e-5,
        )
    np.testing.assert_allclose(
        tb.vmap(tb.grad(lambda w: loop(tnp.sin, w)))(X),
        tb.vmap(tb.grad(lambda w: loop(sine, w)))(X),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        tb.grad(lambda w: tb.vmap(lambda w: loop(tnp.sin, w))(w).sum())(X),
        tb.grad(lambda w: tb.vmap(lambda w: loop(sine, w))(w).sum())(X),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        tb.grad(tb.grad(lambda w: loop(tnp.sin, w)))(0.7),
        tb.grad(tb.grad(lambda w: loop(sine, w)))(0.7),
        rtol=1e-4,
    )


def test_rules_see_numbers_outside_of_jit():
    """Python control flow on primals, residuals and cotangents works under grad."""

    @tb.custom_vjp
    def f(x):
        return x if x > 0 else -x

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (5.0 * ct if x > 0 and ct > 0 else ct,))

    assert [float(tb.grad(f)(x)) for x in (2.0, -2.0)] == [5.0, 1.0]


def test_without_differentiation_only_the_function_runs():
    """Neither an eager call nor a compiled one touches the rules."""
    calls = []

    @tb.custom_vjp
    def f(x):
        return x + 1.0

    f.defvjp(lambda x: calls.append("fwd"), lambda r, ct: calls.append("bwd"))

    assert float(f(2.0)) == 3.0
    assert float(tb.jit(f)(2.0)) == 3.0
    assert tb.vmap(f)(tnp.asarray([2.0])).tolist() == [3.0]
    assert calls == []


def tree_function(bwd, fwd=None, wrap=lambda f: f):
    """Gradients of ``x * y['a'] + y['b'][0]`` by the given rules."""

    @tb.custom_vjp
    def some_function(x, y):
        return x * y["a"] + y["b"][0]

    some_function.defvjp(fwd or (lambda x, y: (some_function(x, y), (x, y))), bwd)
    g = tb.grad(wrap(some_function), argnums=(0, 1))(2.0, {"a": 3.0, "b": [4.0]})
    return float(g[0]), float(g[1]["a"]), float(g[1]["b"][0])


WRAPS = pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])


@WRAPS
@pytest.mark.parametrize(
    ("bwd", "expected"),
    [
        (lambda r, ct: (ct * r[1]["a"], {"a": ct * r[0], "b": [ct]}), (3.0, 2.0, 1.0)),
        (lambda r, ct: [ct, {"a": ct, "b": [ct]}], (1.0, 1.0, 1.0)),
        (lambda r, ct: (None, None), (0.0, 0.0, 0.0)),
        (lambda r, ct: (None, {"a": ct, "b": None}), (0.0, 1.0, 0.0)),
        (lambda r, ct: (ct, {"a": None, "b": [ct]}), (1.0, 0.0, 1.0)),
        (lambda r, ct: (1.0, {"a": np.float32(2.0), "b": [ct]}), (1.0, 2.0, 1.0)),
        (lambda r, ct: (ct.astype("bfloat16"), None), (1.0, 0.0, 0.0)),
    ],
)
def test_backward_rules(bwd, expected, wrap):
    """Cotangents follow the trees of the arguments; None stands for zeros of any subtree."""
    assert expected == tree_function(bwd, wrap=wrap)


@WRAPS
@pytest.mark.parametrize(
    ("bwd", "message"),
    [
        (
            lambda r, ct: ct,
            r"bwd returned an array f32\[\], expected a tuple with one cotangent for each of the 2",
        ),
        (lambda r, ct: (ct,), "bwd returned a tuple of 1, expected a tuple"),
        (
            lambda r, ct: (ct, (ct,)),
            r"a cotangent of argument 1 of another structure(.|\n)*got: PyTreeDef\(\(\*,\)\)",
        ),
        (lambda r, ct: (ct, {"a": ct}), "a cotangent of argument 1 of another structure"),
        (
            lambda r, ct: (tnp.ones(2), None),
            r"args\[0\] that does not fit it\n    got: f32\[2\]\n    expected: f32\[\]",
        ),
        (
            lambda r, ct: (None, {"a": ct, "b": [tnp.complex64(1)]}),
            r"args\[1\]\['b'\]\[0\] that does not fit it\n    got: c64\[\]",
        ),
        (lambda r, ct: (ct * 1j, None), r"got: c64\[\]\n    expected: f32\[\]"),
    ],
)
def test_wrong_backward_rules(bwd, message, wrap):
    """What a backward rule returns is checked against the arguments."""
    bwd.__name__ = "bwd"
    with pytest.raises(
        CustomRuleError,
        match=f"some_function: its backward rule {message}"
        if message.startswith("bwd")
        else message,
    ):
        tree_function(bwd, wrap=wrap)


@WRAPS
def test_wrong_forward_rules(wrap):
    """A forward rule returns a pair."""
    with pytest.raises(
        CustomRuleError, match=r"forward rule \S+ returned an array f32\[\], expected"
    ):
        tree_function(lambda r, ct: (ct, None), lambda x, y: x, wrap)
    with pytest.raises(CustomRuleError, match="returned a tuple of 3, expected a pair"):
        tree_function(lambda r, ct: (ct, None), lambda x, y: (x, x, x), wrap)


def test_forward_result_differs_from_the_function():
    """Where the function is traced too, the forward rule must give its type."""
    with pytest.raises(CustomRuleError, match=r"differs in type(.|\n)*got: f32\[2\]"):
        tree_function(lambda r, ct: (ct, None), lambda x, y: (tnp.ones(2), x), tb.jit)


def test_integers_have_no_cotangents():
    """An integer argument may get None or a float0 array; integer results have float0 ones."""
    seen = []

    @tb.custom_vjp
    def f(x, n):
        return x * n, n

    def bwd(n, cts):
        seen.append(cts[1].dtype)
        return cts[0] * n, np.zeros((), tb.float0)

    f.defvjp(lambda x, n: (f(x, n), n), bwd)
    for g in (f, tb.jit(f)):
        assert float(tb.grad(lambda x, g=g: g(x, 3)[0])(2.0)) == 3.0
    assert {tb.float0} == set(seen)


def test_nondiff_arguments():
    """Forward gets constants in their places, backward gets them first."""

    @partial(tb.custom_vjp, nondiff_argnums=(1, 3))
    def f(x, fun, y, k=2):
        return fun(x) * y * k

    def fwd(x, fun, y, k):
        return f(x, fun, y, k), (x, y)

    def bwd(fun, k, residuals, ct):
        assert fun is tnp.sin
        return 100.0 * k * ct, residuals[0] * ct

    f.defvjp(fwd, bwd)
    for g in (f, lambda x, fun, y: tb.jit(lambda x, y: f(x, fun, y))(x, y)):
        assert [float(v) for v in tb.grad(g, argnums=(0, 2))(3.0, tnp.sin, 4.0)] == [200.0, 3.0]
    assert float(tb.grad(lambda x: f(x, fun=tnp.sin, y=1.0, k=3))(3.0)) == 300.0


def test_symbolic_zeros():
    """Forward sees which leaves are perturbed, backward sees zero cotangents without elements."""
    seen = []

    @tb.custom_vjp
    def f(x, y):
        return x * y, x + y

    def fwd(x, y):
        seen.append((x.perturbed, y.perturbed))
        x, y = cd.custom_vjp_primal_tree_values((x, y))
        return f(x, y), y

    def bwd(y, cts):
        seen.append(tuple([type(ct) is cd.SymbolicZero for ct in cts]))
        return 7.0 * cts[0], cd.zero_from_primal(y, symbolic_zeros=True)

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    for g in (f, tb.jit(f)):
        seen.clear()

        assert float(tb.grad(lambda x, g=g: g(x, 2.0)[0])(1.0)) == 7.0
        assert seen == [(True, False), (False, True)]


def scaled(a, x):
    """A function whose rules close over ``a``."""

    @tb.custom_vjp
    def f(x):
        return x * a

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct * a * 10.0,))
    return f(x)


def test_closures():
    """Rules may close over traced values, at any depth of jit, vmap and loops."""
    by_x = partial(tb.grad, argnums=1)

    assert float(by_x(scaled)(2.0, 3.0)) == 20.0
    assert float(tb.jit(by_x(scaled))(2.0, 3.0)) == 20.0
    assert float(by_x(tb.jit(scaled))(2.0, 3.0)) == 20.0
    assert float(tb.jit(lambda a, x: tb.grad(tb.jit(lambda y: scaled(a, y)))(x))(2.0, 3.0)) == 20.0
    assert by_x(lambda a, x: tb.vmap(scaled)(a, x).sum())(X, Y).tolist() == [10.0, 20.0]
    assert tb.vmap(by_x(scaled))(X, Y).tolist() == [10.0, 20.0]
    loop = lambda a, x: tb.lax.scan(lambda c, _: (scaled(a, c), None), x, None, length=3)[0]
    assert float(tb.jit(by_x(loop))(2.0, 3.0)) == 8000.0


@WRAPS
def test_closing_over_the_differentiated_value(wrap):
    """There is no rule for it, so it is an error instead of a wrong number."""
    with pytest.raises(CustomRuleError, match="closes over a value with respect to which"):
        tb.grad(wrap(scaled))(2.0, 3.0)


def test_wrong_setup():
    """No rules, or rules that are no functions."""
    with pytest.raises(CustomRuleError, match="No VJP defined for custom_vjp function"):
        tb.custom_vjp(lambda x: x)(1.0)
    with pytest.raises(ArgumentSpecError, match="bwd is None, expected a function"):
        tb.custom_vjp(lambda x: x).defvjp(lambda x: (x, None), None)


def test_unused_call():
    """A result that nothing uses leaves no trace in the gradient."""

    def f(x):
        product(x, x)
        return x * 2.0

    assert float(tb.grad(f)(1.0)) == 2.0
    assert float(tb.jit(tb.grad(tb.jit(f)))(1.0)) == 2.0


def test_jacobian_by_vmap_of_the_pullback():
    """Backward rules are batched over cotangents."""

    @tb.custom_vjp
    def f(x):
        return x * x

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (3.0 * x * ct,))
    for g in (f, tb.jit(f)):
        _, pullback = tb.vjp(g, X)

        assert tb.vmap(pullback)(tnp.eye(2))[0].tolist() == [[3.0, 0.0], [0.0, 6.0]]


@WRAPS
def test_numbers_among_the_residuals_stay_numbers(wrap):
    """The backward rule may branch on them and compute sizes, also where it is traced."""
    seen = []

    @tb.custom_vjp
    def f(x):
        return x * x

    def fwd(x):
        return f(x), {"twice": True, "n": 3, "x": x, "k": np.float32(0.5), "off": np.array(False)}

    def bwd(res, ct):
        seen.append([type(res[k]) for k in ("twice", "n", "k", "off")])
        if res["off"] or not res["twice"]:
            return (0.0 * ct,)
        return (2.0 * res["x"] * ct * res["k"] * tnp.ones(res["n"] + 1).sum(),)

    f.defvjp(fwd, bwd)

    assert float(tb.grad(wrap(f))(3.0)) == 12.0
    assert tb.vmap(tb.grad(wrap(f)))(X).tolist() == [4.0, 8.0]
    assert tb.grad(lambda x: tb.vmap(wrap(f))(x).sum())(X).tolist() == [4.0, 8.0]
    assert all(types == [bool, int, np.float32, np.bool_] for types in seen)


def test_zeros_of_trees():
    """zero_from_primal gives the zero tangent of each value of a tree; integers have float0."""
    tree = {"w": (1.0, tnp.ones(2)), "n": np.arange(3), "none": None}

    zeros = cd.zero_from_primal(tree)

    assert float(zeros["w"][0]) == 0.0
    assert zeros["w"][1].tolist() == [0.0, 0.0]
    assert (zeros["n"].shape, zeros["n"].dtype, zeros["none"]) == ((3,), tb.float0, None)
    marked = cd.zero_from_primal(tree, symbolic_zeros=True)
    assert isinstance(marked["n"], cd.SymbolicZero)
    assert marked["w"][1].shape == (2,)


def test_integer_results_of_any_size():
    """Their cotangents have a symbolic size, and hold nothing."""
    seen = []

    @tb.custom_vjp
    def best(x):
        return x * 2, x.argsort()

    def bwd(residuals, cts):
        seen.append(cts[1])
        return (3 * cts[0],)

    best.defvjp(lambda x: (best(x), None), bwd)
    spec = tb.ShapeDtypeStruct(tb.export.symbolic_shape("n"), np.float32)
    jaxpr = tb.make_jaxpr(tb.grad(lambda x: best(x)[0].sum()))(spec)

    assert [tb.export.symbolic_shape("n", scope=spec.shape[0].scope)] == [
        v.shape for v in jaxpr.out_avals
    ]
    assert seen[-1].dtype == tb.float0
    assert tb.grad(lambda x: best(x)[0].sum())(X).tolist() == [3.0] * X.size


@pytest.mark.parametrize("ct", [tnp.int32(2), True, np.int8(-1)], ids=repr)
def test_integers_and_masks_are_cotangents_of_floats(ct):
    """They are real numbers, and get the dtype of the argument."""
    f = tb.custom_vjp(lambda x: x * 3)
    f.defvjp(lambda x: (x * 3, None), lambda _, __: (ct,))

    for gradient in (tb.grad(f), tb.jit(tb.grad(f))):
        out = gradient(np.float32(1))
        assert (float(ct), "float32") == (float(out), out.dtype.name)
