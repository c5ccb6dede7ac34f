"""named_scope, named_call, ensure_compile_time_eval."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import TracerBoolConversionError, UnexpectedTracerError


def text_of(f: Any, *args: Any) -> str:
    """The program with its source locations."""
    return tb.jit(f).lower(*args).as_text(debug_info=True)


def test_scopes_nest() -> None:
    """Names are joined by slashes, and end with the block."""

    def f(x: Any) -> Any:
        with tb.named_scope("outer"):
            x = tnp.sin(x)
            with tb.named_scope("inner"):
                x = tnp.cos(x)
        return tnp.tanh(x)

    text = text_of(f, 1.0)
    for path in ("outer/sin", "outer/inner/cos", "tanh"):
        assert f'"jit(f)/{path}"' in text


def test_scope_as_decorator_and_named_call() -> None:
    """Both name the operations of a function; results do not change."""

    @tb.named_scope("decorated")
    def f(x: Any) -> Any:
        return tnp.sin(x)

    def g(x: Any) -> Any:
        return tnp.cos(x)

    assert '/decorated/sin"' in text_of(f, 1.0)
    assert '/g/cos"' in text_of(tb.named_call(g), 1.0)
    assert '/other/cos"' in text_of(tb.named_call(g, name="other"), 1.0)
    assert "g" == tb.named_call(g).__name__
    assert float(g(1.0)) == float(tb.named_call(g)(1.0))


def test_programs_that_run_have_scopes() -> None:
    """The compiled program, which profiles show, tells the scopes; equal lines share a program."""

    def f(x: Any) -> Any:
        with tb.named_scope("outer"):
            return tnp.sin(x)

    assert 'op_name="outer/sin"' in tb.jit(f).lower(1.0).compile().as_text()
    assert "loc(" not in tb.jit(f).lower(1.0).as_text()


@pytest.mark.parametrize(
    ("transform", "mapped"),
    [
        (tb.grad, False),
        (lambda g: tb.grad(tb.jit(g)), False),
        (tb.vmap, True),
        (lambda g: tb.vmap(tb.jit(g)), True),
        (lambda g: lambda x: tb.lax.scan(lambda c, _: (g(c), None), x, None, length=2)[0], False),
        (lambda g: tb.grad(lambda x: tb.lax.fori_loop(0, 2, lambda _, c: g(c), x)), False),
        (lambda g: lambda x: tb.lax.cond(x > 0, g, tnp.cos, x), False),
    ],
    ids=["grad", "grad of jit", "vmap", "vmap of jit", "scan", "grad of fori_loop", "cond"],
)
def test_transformed_programs_keep_scopes(transform: Any, mapped: bool) -> None:
    """Also where an equal program without scopes was seen before."""

    def plain(x: Any) -> Any:
        return tnp.sin(x) * 1.25

    @tb.named_scope("kept")
    def scoped(x: Any) -> Any:
        return tnp.sin(x) * 1.25

    x = tnp.ones(2) if mapped else tnp.ones(())
    assert "kept" not in text_of(transform(plain), x)
    text = text_of(transform(scoped), x)
    assert re.search(r"\bkept\)*/(sin|cos)", text)


def layer(x: Any) -> Any:
    """sin(x) x, inside two scopes."""
    with tb.named_scope("layer"), tb.named_scope("inner"):
        return tnp.sin(x) * x


@pytest.mark.parametrize(
    ("transformed", "paths"),
    [
        (tb.grad(layer), ["jvp(layer)/inner/cos", "transpose(jvp(layer))/inner/mul"]),
        (lambda x: tb.vmap(layer)(tnp.stack([x, x])), ["vmap(layer)/inner/sin"]),
        (lambda x: tb.jvp(layer, (x,), (x,)), ["jvp(layer)/inner/mul"]),
        (lambda x: tb.linearize(layer, x)[1](x), ["jvp(layer)/inner/add"]),
        (tb.jacfwd(layer), ["vmap(jvp(layer))/inner/add"]),
        (
            tb.grad(tb.grad(layer)),
            [
                "jvp(jvp(layer))/inner/cos",
                "jvp(transpose(jvp(layer)))/inner/mul",
                "transpose(jvp(jvp(layer)))/inner/mul",
                "transpose(jvp(transpose(jvp(layer))))/inner/mul",
            ],
        ),
        (tb.named_call(tb.grad(layer), name="all"), ["all/transpose(jvp(layer))/inner/mul"]),
        (
            lambda x: tb.named_call(tb.vjp(layer, x)[1], name="back")(x),
            ["jvp(layer)/inner/cos", "back/transpose(jvp(layer))/inner/mul"],
        ),
        (lambda x: tb.linear_transpose(lambda y: 2 * x * y, x)(x), ["mul"]),
        (
            lambda x: tb.linear_transpose(tb.named_call(lambda y: 3 * y, name="f"), x)(x),
            ["transpose(f)/mul"],
        ),
        (
            lambda x: tb.jit(lambda x: tb.vjp(layer, x))(x)[1](x),
            ["transpose(jvp(layer))/inner/mul"],
        ),
    ],
)
def test_derivatives_say_from_which_scope_they_are(transformed: Any, paths: list[str]) -> None:
    """Also operations of the backward pass are named, after what they transpose."""
    text = text_of(transformed, 0.5)

    for path in paths:
        assert f'/{path}"' in text


@pytest.mark.parametrize(
    "wrap",
    [
        tb.jit,
        tb.checkpoint,
        lambda f: tb.checkpoint(f, policy=tb.checkpoint_policies.dots_saveable),
    ],
)
def test_backward_operations_of_calls_have_scopes(wrap: Any) -> None:
    """All operations of the gradient of a jitted or checkpointed function are in its scope."""
    text = text_of(tb.grad(wrap(layer)), 0.5)

    for operation in ("cos", "mul", "add"):
        assert re.search(rf"\blayer\)*/inner/{operation}\b", text)


def test_scopes_of_custom_rules() -> None:
    """Rules have their own scopes, inside those of the call."""

    @tb.custom_vjp
    def f(x: Any) -> Any:
        return tnp.sin(x)

    @tb.named_scope("back")
    def back(x: Any, ct: Any) -> Any:
        return (ct * tnp.cos(x),)

    f.defvjp(lambda x: (f(x), x), back)

    text = text_of(tb.grad(tb.named_call(f, name="call")), 0.5)

    assert '/transpose(jvp(call))/back/cos"' in text


def test_derivatives_outside_of_scopes_have_no_names() -> None:
    """What comes before and after a scope stays as it was."""

    def f(x: Any) -> Any:
        y = tnp.tanh(x)
        with tb.named_scope("middle"):
            y = tnp.sin(y)
        return tnp.exp(y)

    text = text_of(tb.grad(f), 0.5)

    for path in ("tanh", "jvp(middle)/cos", "exp", "transpose(jvp(middle))/mul", "mul"):
        assert f'"jit(f)/{path}"' in text


def test_derived_programs_do_not_remember_the_scopes_of_callers() -> None:
    """The gradient of a function, made within one scope, is the same in another one."""
    f = tb.jit(lambda x: tnp.sin(x) * 2)
    f(1.0)

    def called(name: str) -> str:
        def g(x: Any) -> Any:
            with tb.named_scope(name):
                return tb.grad(f)(x)

        return text_of(g, 1.0)

    called("first")
    assert "first" not in called("second")


def test_scopes_survive_errors() -> None:
    """An exception ends the scope."""
    with pytest.raises(ZeroDivisionError), tb.named_scope("lost"):
        raise ZeroDivisionError

    assert "lost" not in text_of(tnp.sin, 1.0)


def test_rules_do_not_remember_scopes() -> None:
    """A derivative rule that is first used inside a scope is not named after it later."""

    def f(x: Any) -> Any:
        with tb.named_scope("first"):
            return tb.grad(tnp.arctan)(x)

    text_of(f, 1.0)

    assert "first" not in text_of(tb.grad(tnp.arctan), 1.0)


def test_names_are_strings() -> None:
    """Anything else is refused."""
    with pytest.raises(TypeError, match="named_scope: name is 3 of type int"):
        tb.named_scope(3)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match=r"^named_call: got 3"):
        tb.named_call(3)  # type: ignore[type-var]  # the point of the test


def test_evaluation_while_tracing() -> None:
    """Results are concrete inside a traced function."""

    @tb.jit
    def f(x: Any) -> Any:
        with tb.ensure_compile_time_eval():
            positive = tnp.sin(3.0) > 0
        return tnp.sin(x) if positive else x

    assert float(f(2.0)) == float(tnp.sin(2.0))


@tb.custom_jvp
def sevenfold(x: Any) -> Any:
    """The identity, with a derivative of its own."""
    return x


sevenfold.defjvp(lambda primals, tangents: (primals[0], 7 * tangents[0]))


@tb.custom_vjp
def ninefold(x: Any) -> Any:
    """The identity, with a cotangent of its own."""
    return x


ninefold.defvjp(lambda x: (x, None), lambda _, ct: (9 * ct,))


def evaluating(fun: Callable[..., Any]) -> Callable[..., Any]:
    """``fun`` inside ``ensure_compile_time_eval``."""

    def inside(*args: Any) -> Any:
        with tb.ensure_compile_time_eval():
            return fun(*args)

    return inside


TRACED_INSIDE: dict[str, Callable[..., Any]] = {
    "operation": tb.lax.sin,
    "function": lambda x: tnp.where(x > 0, x * x, -x),
    "operator": lambda x: 2 * x + 1,
    "jit": tb.jit(lambda x: x * tnp.sin(x)),
    "cond": lambda x: tb.lax.cond(x > 0, tnp.sin, tnp.cos, x),
    "scan": lambda x: tb.lax.scan(lambda c, _: (2 * c, None), x, None, length=3)[0],
    "custom_jvp": lambda x: sevenfold(x) * x,
    "custom_vjp": lambda x: ninefold(x) * x,
    "checkpoint": tb.checkpoint(lambda x: tnp.sin(tnp.sin(x))),
    "vmap": lambda x: tb.vmap(lambda y: x * y)(tnp.arange(3.0)).sum(),
}


@pytest.mark.parametrize("fun", TRACED_INSIDE.values(), ids=TRACED_INSIDE)
@pytest.mark.parametrize(
    "transform",
    [tb.jit, tb.grad, lambda f: tb.vmap(tb.grad(f)), lambda f: tb.jit(tb.vmap(tb.grad(f)))],
    ids=["jit", "grad", "vmap(grad)", "jit(vmap(grad))"],
)
def test_traced_values_stay_traced(fun: Any, transform: Any) -> None:
    """Their operations go to the transformation that traces them, with all its rules."""
    x = 0.5 if transform in (tb.jit, tb.grad) else tnp.array([0.5, -2.0])

    got = transform(evaluating(fun))(x)

    np.testing.assert_allclose(transform(fun)(x), got, rtol=1e-6)


def test_values_of_several_traces() -> None:
    """Their operations belong to the innermost of them."""

    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            with tb.ensure_compile_time_eval():
                return x * 2 + x * y * y

        return tb.grad(inner)(x) + tb.jit(inner)(x) + tb.vmap(inner)(tnp.stack([x, x])).sum()

    assert 2 * 9 + 3 * (6 + 27) == float(tb.jit(outer)(3.0))
    assert 4 * 3 + 3 * (2 + 3 * 9) == float(tb.grad(outer)(3.0))


def test_traced_values_are_not_known() -> None:
    """Python cannot steer by them; those of a finished trace are refused."""
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x)
        with tb.ensure_compile_time_eval():
            return 1 if x > 0 else 2

    with pytest.raises(TracerBoolConversionError, match="argument x of f"):
        tb.jit(f)(2.0)
    with tb.ensure_compile_time_eval(), pytest.raises(UnexpectedTracerError):
        tnp.sin(kept[0])


def test_jitted_functions_have_the_scopes_inside_of_them() -> None:
    """A jitted function that is called in two scopes is in both, and in neither by itself."""

    @tb.jit
    def inner(x: Any) -> Any:
        with tb.named_scope("inside"):
            return tnp.sin(x) * 2.0

    def outer(x: Any) -> Any:
        with tb.named_scope("first"):
            x = inner(x)
        with tb.named_scope("second"):
            return inner(x)

    text = tb.jit(outer).lower(1.0).compile().as_text()
    sines = {p for p in re.findall(r'op_name="([^"]*)"', text) if p.endswith("sin")}
    assert {"first/jit/inside/sin", "second/jit/inside/sin"} == sines
    (equation,) = tb.make_jaxpr(outer)(1.0).eqns[:1]
    assert "first" == str(equation.source_info.name_stack)


def test_inlined_functions_are_in_the_scopes_of_their_calls() -> None:
    """With inline=True there is no call that could name the scope."""
    inner = tb.jit(tb.named_scope("inside")(tnp.sin), inline=True)

    def outer(x: Any) -> Any:
        with tb.named_scope("first"):
            x = inner(x)
        with tb.named_scope("second"):
            return inner(x)

    stacks = [str(e.source_info.name_stack) for e in tb.make_jaxpr(outer)(1.0).eqns]
    assert ["first/inside", "second/inside"] == stacks
