"""Functions with rules of their own: how calls, rules of several kinds and bad rules behave."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.errors
import tracebridge.numpy as tnp
from tracebridge.custom_batching import custom_vmap, sequential_vmap
from tracebridge.custom_derivatives import SymbolicZero, linear_call
from tracebridge.custom_transpose import custom_transpose
from tracebridge.experimental.custom_dce import custom_dce

X = tnp.asarray([1.0, 2.0, 3.0])
WRAPS = pytest.mark.parametrize("wrap", [lambda f: f, tb.jit], ids=["plain", "jit"])
KINDS = [tb.custom_jvp, tb.custom_vjp, custom_vmap, custom_dce]


@pytest.mark.parametrize("kind", KINDS)
@WRAPS
def test_a_call_without_rules(kind: Any, wrap: Callable[..., Any]) -> None:
    """It is an error that says so, and an AttributeError as elsewhere."""
    f = kind(lambda x: x)

    with pytest.raises(
        tb.errors.UndefinedRuleError, match=r"^No (JVP|VJP|batching rule|dce rule) defined"
    ):
        wrap(f)(1.0)
    with pytest.raises(AttributeError):
        wrap(f)(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_methods_of_stacked_decorators(kind: Any) -> None:
    """The outer function passes definitions on to the decorator that they are for."""
    methods = {
        tb.custom_jvp: "defjvp",
        tb.custom_vjp: "defvjp",
        custom_vmap: "def_vmap",
        custom_dce: "def_dce",
        custom_transpose: "def_transpose",
    }
    for other, method in methods.items():
        assert callable(getattr(kind(other(lambda x: x)), method))

    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        kind(lambda x: x).missing  # noqa: B018  # reading it is the test
    with pytest.raises(AttributeError, match="def_nothing"):
        kind(lambda x: x).def_nothing  # noqa: B018  # reading it is the test


def test_rules_of_two_kinds() -> None:
    """Each transformation finds its own rule."""

    @tb.custom_vjp
    @custom_vmap
    def f(x: Any, y: Any) -> Any:
        return tnp.sin(x) * y

    f.def_vmap(lambda n, b, x, y: (tnp.cos(x) * y, True))
    f.defvjp(lambda x, y: (f(x, y), y), lambda y, ct: (ct * y, None))

    np.testing.assert_allclose(tb.vmap(f, (0, None))(X, 2.0), 2 * np.cos(X), rtol=1e-6)
    assert float(tb.grad(f)(1.0, 5.0)) == 5.0


def test_keyword_only_parameters_keep_their_defaults() -> None:
    """Only those that a call gives are an error; a partial function keeps its own."""
    f = tb.custom_jvp(lambda x, *, k=2.0: x * k)
    f.defjvp(lambda p, t: (f(*p), 3.0 * t[0]))
    g = tb.custom_jvp(functools.partial(lambda x, k: x * k, k=2.0))
    g.defjvp(lambda p, t: (g(*p), 3.0 * t[0]))

    assert (float(f(1.0)), float(tb.grad(f)(1.0)), float(tb.grad(g)(1.0))) == (2.0, 3.0, 3.0)
    with pytest.raises(TypeError, match=r"\['k'\] can be given by keyword only"):
        f(1.0, k=3.0)


@WRAPS
def test_a_jvp_rule_that_calls_the_function_on_tangents(wrap: Callable[..., Any]) -> None:
    """Where that is linear, its own code is transposed."""

    @tb.custom_jvp
    def div(x: Any, y: Any) -> Any:
        return x / y

    div.defjvp(lambda p, t: (div(*p), div(t[0], p[1])))
    loop = lambda x: tb.lax.scan(lambda c, _: (div(c, 2.0), None), x, None, length=3)[0]

    assert float(wrap(tb.grad(lambda x: div(x, 2.0)))(1.0)) == 0.5
    assert float(wrap(tb.grad(loop))(1.0)) == 0.125
    assert wrap(tb.vmap(tb.grad(lambda x: div(x, 4.0))))(X).tolist() == [0.25] * 3


def test_a_bad_rule_matters_only_where_it_is_used() -> None:
    """A function that closes over a traced value runs although its rule could not be traced."""

    def f(y: Any) -> Any:
        g = tb.custom_jvp(lambda x: x * y)
        g.defjvp(lambda p, t: 1 / 0)
        return g(2.0)

    assert float(tb.jit(f)(3.0)) == 6.0
    assert tb.vmap(f)(X).tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_collectives_of_unmapped_values(kind: str) -> None:
    """A function that uses the axis by name alone has an unmapped result."""
    if kind == "jvp":
        f: Any = tb.custom_jvp(lambda x: tb.lax.psum(x, "i"))
        f.defjvp(lambda p, t: (f(*p), t[0]))
    else:
        f = tb.custom_vjp(lambda x: tb.lax.psum(x, "i"))
        f.defvjp(lambda x: (tb.lax.psum(x, "i"), None), lambda _, ct: (3.0 * ct,))
    g = lambda _, x: tb.jit(f)(x)

    total = tb.vmap(g, axis_name="i", in_axes=(0, None), out_axes=None)
    assert float(total(X, 2.0)) == 6.0
    assert float(tb.grad(lambda x: total(X, x))(2.0)) == (1.0 if kind == "jvp" else 3.0)


def test_closing_over_values_is_one_kind_of_error() -> None:
    """It is the error of rules, and that of tracers in the wrong place."""

    def f(x: Any) -> Any:
        g = tb.custom_jvp(lambda y: x + y)
        g.defjvp(lambda p, t: (g(*p), t[0]))
        return g(1.0)

    for error in (tb.errors.ClosedOverValueError, tb.errors.UnexpectedTracerError):
        with pytest.raises(error, match="pass that value to"):
            tb.grad(f)(3.0)


def test_traced_values_in_nondiff_argnums() -> None:
    """Arguments that are not differentiated are no arrays: a traced one is an error."""
    f = tb.custom_vjp(lambda n, x: n * x, nondiff_argnums=(0,))
    f.defvjp(lambda n, x: (f(n, x), None), lambda n, _, ct: (n * ct,))

    assert float(tb.jit(lambda x: f(2, x))(3.0)) == 6.0
    assert float(tb.grad(lambda x: f(2, x))(3.0)) == 2.0
    for call in (tb.jit(f), tb.vmap(f, (0, None)), tb.grad(f)):
        with pytest.raises(tb.errors.UnexpectedTracerError, match="custom_vjp"):
            call(X if call is not tb.grad(f) else 1.0, 3.0)


@WRAPS
def test_what_backward_rules_may_return(wrap: Callable[..., Any]) -> None:
    """A leaf for a tree stands for each leaf, a number for an array, symbolic zeros for zeros."""
    f = tb.custom_vjp(lambda pair, y: pair[0] * pair[1] * y)
    f.defvjp(lambda pair, y: (f(pair, y), None), lambda _, ct: (2.0 * ct, 1))

    pair, y = wrap(tb.grad(lambda p, y: f(p, y), (0, 1)))((3.0, 4.0), 5.0)
    assert ([float(p) for p in pair], float(y)) == ([2.0, 2.0], 1.0)

    g = tb.custom_vjp(lambda x, y: (x, y))
    g.defvjp(
        lambda x, y: ((x.value, y.value), None), lambda _, ct: (ct[1], None), symbolic_zeros=True
    )
    with pytest.raises(ValueError, match=r"args\[0\] that does not fit"):
        wrap(tb.grad(lambda x, y: g(x, y)[0].sum(), (0, 1)))(tnp.ones(2), tnp.ones(3))
    seen: list[Any] = []
    g.defvjp(
        lambda x, y: ((x.value, y.value), None),
        lambda _, ct: (seen.append(type(ct[0])), ct)[1],
        symbolic_zeros=True,
    )
    x_bar, y_bar = wrap(tb.grad(lambda x, y: g(x, y)[1].sum(), (0, 1)))(tnp.ones(2), tnp.ones(3))
    assert (seen, x_bar.tolist(), y_bar.tolist()) == ([SymbolicZero], [0.0, 0.0], [1.0, 1.0, 1.0])


def transposed(f: Callable[..., Any]) -> Callable[..., Any]:
    """The transpose of a function of a number."""
    return lambda ct: tb.linear_transpose(f, 0.0)(ct)[0]


def test_transposes_of_transposes() -> None:
    """Those of linear_call alternate; a custom transpose is a function like any other."""

    def call(x: Any) -> Any:
        return linear_call(lambda _, x: 2.0 * x, lambda _, ct: 3.0 * ct, (), x)

    plain = custom_transpose(lambda _, x: 2.0 * x)
    plain.def_transpose(lambda _, ct: 3.0 * ct)
    deep = custom_transpose(lambda _, x: 2.0 * x)
    back = custom_transpose(lambda _, x: 3.0 * x)
    back.def_transpose(lambda _, ct: 7.0 * ct)
    deep.def_transpose(lambda r, ct: back(tb.typeof(ct), r, ct))

    def degrees(f: Callable[..., Any]) -> list[float]:
        found = []
        for _ in range(4):
            found.append(float(f(1.0)))
            f = transposed(f)
        return found

    assert degrees(call) == [2.0, 3.0, 2.0, 3.0]
    assert degrees(lambda x: plain(tb.typeof(x), (), x)) == [2.0, 3.0, 3.0, 3.0]
    assert degrees(lambda x: deep(tb.typeof(x), (), x)) == [2.0, 3.0, 7.0, 7.0]
    program = str(tb.make_jaxpr(lambda x: plain(tb.typeof(x), (), x))(1.0))
    assert "custom_transpose_call" in program


@WRAPS
def test_recursive_transposes(wrap: Callable[..., Any]) -> None:
    """A transpose may call the function that it belongs to, also from an array closed over."""
    f = custom_transpose(lambda c, x: c * x)
    f.def_transpose(lambda c, ct: f(tb.typeof(ct), c + 1.0, ct))
    g = lambda x: f(tb.typeof(x), 1.0, x)

    assert float(wrap(transposed(g))(1.0)) == 2.0
    assert float(wrap(transposed(transposed(g)))(1.0)) == 3.0
    assert wrap(tb.vmap(transposed(transposed(g))))(X).tolist() == [3.0, 6.0, 9.0]

    def h(x: Any) -> Any:
        return linear_call(lambda _, x: x * X[0], lambda _, ct: h(ct) * X[1], None, x)

    assert float(wrap(tb.grad(h))(4.0)) == 2.0


def test_dce_rules_that_call_their_function() -> None:
    """There the function itself runs; lists and tuples may stand for each other."""

    @custom_dce
    def f(x: Any) -> Any:
        return tnp.exp(x), 10.0 * tnp.sqrt(x)

    f.def_dce(lambda used, x: [2.0 * v if u else None for u, v in zip(used, f(x), strict=True)])

    for i in (0, 1):
        np.testing.assert_allclose(tb.jit(lambda x, i=i: f(x)[i])(1.5), 2.0 * f(1.5)[i], rtol=1e-6)


def test_dce_as_forward_rule() -> None:
    """The forward rule of a checkpointed function gives way where its residuals are not used."""
    f = tb.custom_vjp(tnp.tan)

    @custom_dce
    def forward(x: Any) -> Any:
        return tnp.sin(x), (x,)

    @forward.def_dce
    def forward_dce(used: Any, x: Any) -> Any:
        if not used[1][0]:
            return f(x), None
        result, residuals = forward(x)
        return result if used[0] else None, residuals

    f.defvjp(forward, lambda r, ct: (tnp.cos(r[0]) * ct,))
    value, slope = tb.jit(tb.value_and_grad(lambda x: tb.checkpoint(f)(x) ** 2))(3.2)
    np.testing.assert_allclose(value, np.tan(3.2) ** 2, rtol=1e-4)
    np.testing.assert_allclose(slope, 2 * np.tan(3.2) * np.cos(3.2), rtol=1e-4)


def test_vmap_rules_where_only_tangents_are_mapped() -> None:
    """The rule is derived at unmapped arguments, and what does not depend on the axis stays so."""
    seen: list[Any] = []

    @custom_vmap
    def f(x: Any) -> Any:
        return tnp.sin(x)

    @f.def_vmap
    def rule(size: Any, batched: Any, x: Any) -> Any:
        seen.append(batched)
        return tnp.cos(x), batched[0]

    push = lambda x, t: tb.jvp(f, (x,), (t,))
    y, ts = tb.vmap(push, (None, 0), out_axes=(None, 0))(0.5, X)
    np.testing.assert_allclose(y, np.cos(0.5), rtol=1e-6)
    np.testing.assert_allclose(ts, -np.sin(0.5) * X, rtol=1e-6)
    assert seen == [[False]]
    np.testing.assert_allclose(tb.jacfwd(f)(X), -np.diag(np.sin(X)), rtol=1e-5, atol=1e-6)

    g = custom_vmap(lambda x: 7.0 * x)
    g.def_vmap(lambda n, b, x: (11.0 * x, b[0]))
    ys, t = tb.vmap(lambda x: tb.jvp(g, (x,), (4.0,)), out_axes=(0, None))(X)
    assert (ys.tolist(), float(t)) == ([11.0, 22.0, 33.0], 44.0)


def test_vmap_rules_that_need_mapped_arguments() -> None:
    """Where a rule cannot do without, it gets arguments with the axis."""
    f = custom_vmap(lambda x: 2.0 * x)
    f.def_vmap(lambda n, b, x: (2.0 * x, True))

    ts = tb.vmap(lambda t: tb.jvp(f, (3.0,), (t,))[1])(X)
    assert ts.tolist() == [2.0, 4.0, 6.0]


def test_vmap_rules_are_compared_with_the_function() -> None:
    """Also outside of jit, if the function can be traced."""
    f = custom_vmap(lambda x: tnp.sin(x))
    f.def_vmap(lambda n, b, x: ([tnp.sin(x)], b))
    with pytest.raises(ValueError, match="is not that of <lambda>"):
        tb.vmap(f)(X)

    g = custom_vmap(lambda x: x if x > 0 else -x)
    g.def_vmap(lambda n, b, x: (tnp.abs(x), True))
    assert tb.vmap(g)(-X).tolist() == [1.0, 2.0, 3.0]


def test_all_orders_of_transformations() -> None:
    """A rule serves under any order of jit, vmap, grad and checkpoint."""
    f = tb.custom_vjp(tnp.sin)
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (10.0 * ct * tnp.cos(x),))
    h = sequential_vmap(lambda x: tnp.sum(f(x)))
    steps = {"jit": tb.jit, "checkpoint": tb.checkpoint, "cond": lambda g: _in_cond(g)}

    for names in itertools.permutations(steps):
        g: Any = f
        for name in names:
            g = steps[name](g)
        got = tb.vmap(tb.grad(g))(X)
        np.testing.assert_allclose(got, 10.0 * np.cos(X), rtol=1e-5)
    np.testing.assert_allclose(
        tb.grad(lambda x: tb.vmap(h)(x).sum())(X[:, None])[:, 0], 10.0 * np.cos(X), rtol=1e-5
    )


def _in_cond(g: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: tb.lax.cond(x > 0, g, lambda x: x, x)
