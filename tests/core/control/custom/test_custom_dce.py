"""custom_dce: the rule of the user decides what remains when results are not used."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.transform_errors import ArgumentSpecError, CustomRuleError
from tracebridge.experimental.custom_dce import custom_dce


def make() -> tuple[Any, list[Any]]:
    """A function of two results, and what its rule was asked for."""
    asked: list[Any] = []

    @custom_dce
    def f(x: Any, y: Any) -> Any:
        return tnp.sin(x) * y, x * tnp.sin(y)

    @f.def_dce
    def rule(used_outs: Any, x: Any, y: Any) -> Any:
        asked.append(used_outs)
        return (
            tnp.sin(x) * y if used_outs[0] else None,
            x * tnp.sin(y) if used_outs[1] else None,
        )

    return f, asked


def compiled_text(fun: Callable[..., Any], *args: Any) -> str:
    """The StableHLO of a compiled function."""
    return tb.jit(fun).lower(*args).as_text()


def test_all_results_are_used() -> None:
    """The function runs, its rule does not; eagerly nothing is left out."""
    f, asked = make()

    np.testing.assert_allclose(tb.jit(f)(0.5, 2.0), [np.sin(0.5) * 2, 0.5 * np.sin(2.0)])
    np.testing.assert_allclose(f(0.5, 2.0)[0], np.sin(0.5) * 2)
    assert asked == []


@pytest.mark.parametrize("k", [0, 1])
def test_one_result_is_used(k: int) -> None:
    """The rule runs once, is told which one, and its program is what is compiled."""
    f, asked = make()
    g = lambda x, y: f(x, y)[k]

    np.testing.assert_allclose(tb.jit(g)(0.5, 2.0), f(0.5, 2.0)[k], rtol=1e-6)
    assert asked == [(k == 0, k == 1)]
    assert compiled_text(g, 0.5, 2.0).count("sine") == 1


def test_no_result_is_used() -> None:
    """The call goes away without asking the rule."""
    f, asked = make()

    assert "sine" not in compiled_text(lambda x, y: (f(x, y), x)[1], 0.5, 2.0)
    assert asked == []


def test_arguments_that_the_rule_ignores_are_not_computed() -> None:
    """What only an unused argument needs goes away too."""

    @custom_dce
    def f(x: Any, y: Any) -> Any:
        return {"x": tnp.sin(x), "y": tnp.sin(y)}

    @f.def_dce
    def rule(used_outs: Any, x: Any, y: Any) -> Any:
        return {"x": tnp.sin(x), "y": None} if used_outs["x"] else {"x": None, "y": tnp.sin(y)}

    text = compiled_text(lambda x, y: f(x, tnp.cos(y))["x"], 0.5, 2.0)
    assert "cosine" not in text


def test_rules_may_change_what_is_computed() -> None:
    """The program follows the rule even where it says another thing; that shows it is used."""

    @custom_dce
    def f(x: Any) -> Any:
        return x, 2.0 * x

    f.def_dce(lambda used, x: (10.0 * x, None) if used[0] else (None, 20.0 * x))

    assert float(tb.jit(lambda x: f(x)[0])(1.0)) == 10.0
    assert float(tb.jit(lambda x: f(x)[1])(1.0)) == 20.0
    assert [float(v) for v in tb.jit(f)(1.0)] == [1.0, 2.0]
    # Through calls, loops, vmap and another custom_dce.
    inner = tb.jit(f)
    assert float(tb.jit(lambda x: inner(x)[1])(1.0)) == 20.0
    in_inner = tb.jit(lambda x: f(x)[0])
    assert float(tb.jit(lambda x: in_inner(x) + 1.0)(1.0)) == 11.0
    scanned = lambda x: tb.lax.scan(lambda c, _: (f(c)[1], None), x, None, length=2)[0]
    assert float(tb.jit(scanned)(1.0)) == 400.0
    stacked = lambda x: tb.lax.scan(lambda c, _: (c + 1.0, f(c)), x, None, length=2)[1][0]
    assert tb.jit(stacked)(1.0).tolist() == [10.0, 20.0]
    assert tb.jit(lambda x: tb.vmap(f)(x)[0])(tnp.arange(3.0)).tolist() == [0.0, 10.0, 20.0]
    assert tb.vmap(tb.jit(lambda x: f(x)[0]))(tnp.arange(3.0)).tolist() == [0.0, 10.0, 20.0]


def test_derivatives() -> None:
    """Derivatives of what is used follow the rule, forwards and backwards."""

    @custom_dce
    def f(x: Any) -> Any:
        return x * x, 2.0 * x * x

    f.def_dce(lambda used, x: (10.0 * x * x, None) if used[0] else (None, 20.0 * x * x))

    assert float(tb.jit(tb.grad(lambda x: f(x)[0]))(1.0)) == 20.0
    assert float(tb.jit(tb.grad(lambda x: f(x)[1]))(1.0)) == 40.0
    assert float(tb.grad(lambda x: sum(f(x)))(1.0)) == 6.0
    assert float(tb.jit(tb.grad(lambda x: sum(f(x))))(1.0)) == 6.0
    forward = tb.jit(lambda x: tb.jvp(lambda x: f(x)[0], (x,), (1.0,)))
    assert [float(v) for v in forward(1.0)] == [10.0, 20.0]
    tangent_only = tb.jit(lambda x: tb.jvp(f, (x,), (1.0,))[1][1])
    assert float(tangent_only(1.0)) == 40.0
    assert float(tb.jit(tb.grad(tb.grad(lambda x: f(x)[0])))(3.0)) == 20.0
    many = tb.jit(tb.vmap(tb.grad(lambda x: f(x)[0])))(tnp.arange(3.0))
    assert many.tolist() == [0.0, 20.0, 40.0]
    of_many = tb.jit(tb.grad(lambda x: tb.vmap(f)(x)[1].sum()))(tnp.arange(3.0))
    assert of_many.tolist() == [0.0, 40.0, 80.0]
    kept = tb.checkpoint(lambda x: f(x)[0])
    assert float(tb.jit(tb.grad(kept))(1.0)) == 20.0


def test_plain_values_are_right_under_all_transformations() -> None:
    """With an honest rule everything agrees with the function without custom_dce."""
    f, _ = make()
    plain = lambda x, y: (tnp.sin(x) * y, x * tnp.sin(y))
    x, y = tnp.asarray([0.5, 1.0]), tnp.asarray([2.0, 3.0])
    for k in (0, 1):
        ours, theirs = lambda x, y, k=k: f(x, y)[k].sum(), lambda x, y, k=k: plain(x, y)[k].sum()
        for wrap in (tb.jit, lambda g: g):
            for derive in (tb.grad, tb.jacfwd, tb.hessian, lambda g: tb.grad(g, (0, 1))):
                for a, b in zip(
                    tb.tree.leaves(wrap(derive(ours))(x, y)),
                    tb.tree.leaves(derive(theirs)(x, y)),
                    strict=True,
                ):
                    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_static_arguments_come_first() -> None:
    """Static arguments may be anything hashable; the rule gets them before used_outs."""
    seen: list[Any] = []

    @functools.partial(custom_dce, static_argnums=(1,))
    def f(x: Any, fun: Any, y: Any) -> Any:
        return fun(x), fun(y)

    @f.def_dce
    def rule(fun: Any, used_outs: Any, x: Any, y: Any) -> Any:
        seen.append((fun, used_outs))
        return fun(x) if used_outs[0] else None, fun(y) if used_outs[1] else None

    assert f.static_argnums == (1,)
    assert float(tb.jit(lambda x: f(x, tnp.cos, x)[1])(0.0)) == 1.0
    assert seen == [(tnp.cos, (False, True))]
    assert float(tb.jit(lambda x: f(x, y=x, fun=tnp.cos)[1])(0.0)) == 1.0


def test_attributes_and_nesting() -> None:
    """The object has the parts it is made of; functions of this kind may be nested."""
    f, asked = make()
    assert f.fun(0.0, 1.0)[0] == 0.0
    assert (f.static_argnums, callable(f.dce_rule), f.__name__) == ((), True, "f")

    @custom_dce
    def outer(x: Any) -> Any:
        return f(x, x)

    @outer.def_dce
    def rule(used_outs: Any, x: Any) -> Any:
        both = f(x, x)
        return tuple(v if u else None for v, u in zip(both, used_outs, strict=True))

    np.testing.assert_allclose(tb.jit(lambda x: outer(x)[0])(0.5), np.sin(0.5) * 0.5, rtol=1e-6)
    assert asked == [(True, False)]


def test_closures() -> None:
    """The function may close over traced values; a rule that does so must get them as arguments."""

    def outer(x: Any) -> Any:
        @custom_dce
        def f(y: Any) -> Any:
            return x * y, x + y

        f.def_dce(lambda used, y: (2.0 * y, None) if used[0] else (None, 3.0 * y))
        return f(2.0)[0]

    assert float(tb.jit(outer)(3.0)) == 4.0

    def wrong(x: Any) -> Any:
        @custom_dce
        def f(y: Any) -> Any:
            return x * y, x + y

        f.def_dce(lambda used, y: (x * y, x + y))
        return f(2.0)[0]

    with pytest.raises(CustomRuleError, match="closes over"):
        tb.jit(wrong)(3.0)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda x: (None, x), "returned None for result\\[0\\], which is used"),
        (lambda x: x, "of another structure"),
        (lambda x: (x, x, x), "of another structure"),
        (lambda x: (tnp.stack([x, x]), None), "result\\[0\\] of another type"),
        (lambda x: ((x, x), None), "returned a tuple of 2 for result\\[0\\]"),
        (lambda x: (tnp.int32(1), None), "result\\[0\\] of another type"),
    ],
)
def test_wrong_rules(result: Any, text: str) -> None:
    """Results of the rule are checked against those of the function."""
    f = custom_dce(lambda x: (x, 2.0 * x))
    f.def_dce(lambda used, x: result(x))

    with pytest.raises(CustomRuleError, match=text):
        tb.jit(lambda x: f(x)[0])(1.0)


def test_mapped_results_must_agree() -> None:
    """A rule whose result is mapped where that of the function is not is an error."""
    f = custom_dce(lambda x: (1.0, 2.0 * x))
    f.def_dce(lambda used, x: (x, None))

    assert float(tb.jit(lambda x: f(x)[0])(3.0)) == 3.0
    with pytest.raises(CustomRuleError, match="depends on a mapped argument"):
        tb.jit(lambda x: tb.vmap(lambda x: f(x)[0] + x)(x))(tnp.arange(3.0))


def test_bad_input() -> None:
    """No rule, a rule that is no function, positions that do not exist, unhashable statics."""
    with pytest.raises(CustomRuleError, match="No dce rule defined"):
        custom_dce(tnp.sin)(1.0)
    with pytest.raises(ArgumentSpecError, match="expected a function"):
        custom_dce(tnp.sin).def_dce(3)
    with pytest.raises(TypeError, match="expected a function"):
        custom_dce(3)
    with pytest.raises(ArgumentSpecError, match="static_argnums contains 4"):
        custom_dce(lambda x: x, static_argnums=4)
    f = custom_dce(lambda x, s: x, static_argnums=1)
    f.def_dce(lambda s, used, x: x)
    with pytest.raises(ValueError, match="hashable"):
        f(1.0, [])
