"""checkpoint: the same values and derivatives, computed again instead of kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.strategies as some
import tracebridge as tb
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tests.strategies import Program
from tracebridge.ad_checkpoint import checkpoint_name
from tracebridge.core.interpreters.staging import StagingTrace
from tracebridge.core.lowering.module import lower_module
from tracebridge.interpreters import ad

P = tb.checkpoint_policies
POLICIES = [
    None,
    P.everything_saveable,
    P.nothing_saveable,
    P.dots_saveable,
    P.save_by_cost,
    P.save_only_these_names("a"),
    P.save_anything_except_these_names("a"),
    lambda prim, *_, **__: prim.name in ("sin", "mul"),
]


def counts(fun: Callable[..., Any], *args: Any) -> dict[str, int]:
    """Sines, cosines and products in a value with its gradient, as they are compiled."""
    jaxpr = tb.make_jaxpr(tb.jit(tb.value_and_grad(fun)))(*args).jaxpr
    return {
        name: len(equations_of(jaxpr, name, inside=True)) for name in ("sin", "cos", "dot_general")
    }


def close(got: Any, expected: Any) -> None:
    """Trees of arrays agree."""
    one, two = tb.tree.leaves(got), tb.tree.leaves(expected)
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-6)


def sines(x: Any) -> Any:
    """A chain of three."""
    return tnp.sin(tnp.sin(tnp.sin(x)))


few = settings(max_examples=6, deadline=None)


@few
@given(program=some.programs(), seed=some.seeds, policy=st.sampled_from(POLICIES))
def test_changes_no_value(program: Program, seed: int, policy: Any) -> None:
    """Values, vjp and jvp of random programs are those without checkpoint."""
    args = program.arguments(seed)
    tangents = program.arguments(seed + 1)
    ours = tb.checkpoint(program, policy=policy)

    out, pullback = tb.vjp(program, *args)
    again, ours_pullback = tb.vjp(ours, *args)
    close(again, out)
    close(ours_pullback(tnp.ones_like(out)), pullback(tnp.ones_like(out)))
    close(tb.jvp(ours, args, tangents), tb.jvp(program, args, tangents))


@few
@given(program=some.programs(max_steps=3), seed=some.seeds, policy=st.sampled_from(POLICIES))
def test_composes(program: Program, seed: int, policy: Any) -> None:
    """Under jit, vmap of grad, grad of vmap, and forward over reverse."""
    args = program.arguments(seed)
    batches = program.arguments(seed, leading=(2,))
    total = lambda *xs: tnp.sum(program(*xs))
    ours = tb.checkpoint(total, policy=policy)

    close(tb.jit(tb.grad(ours))(*args), tb.grad(total)(*args))
    close(tb.vmap(tb.grad(ours))(*batches), tb.vmap(tb.grad(total))(*batches))
    many = lambda f: lambda *xs: tnp.sum(tb.vmap(f)(*xs))
    close(tb.grad(many(ours))(*batches), tb.grad(many(total))(*batches))
    close(tb.jacfwd(tb.grad(ours))(*args), tb.jacfwd(tb.grad(total))(*args))
    close(tb.jacrev(tb.jacfwd(ours))(*args), tb.jacrev(tb.jacfwd(total))(*args))


@pytest.mark.parametrize("policy", POLICIES)
def test_grad_of_grad_of_grad(policy: Any) -> None:
    """Differentiated three times."""
    f = tb.checkpoint(lambda x: sines(x) * x, policy=policy)
    plain = lambda x: sines(x) * x

    close(tb.grad(tb.grad(tb.grad(f)))(0.7), tb.grad(tb.grad(tb.grad(plain)))(0.7))
    close(tb.jit(tb.grad(tb.grad(f)))(0.7), tb.grad(tb.grad(plain))(0.7))


def test_recomputes_what_is_not_kept() -> None:
    """Without a policy the sines of the chain are computed twice, with everything kept once."""
    assert counts(sines, 1.0) == {"sin": 3, "cos": 3, "dot_general": 0}
    # The last sine is not needed on the way back.
    assert counts(tb.checkpoint(sines), 1.0)["sin"] == 3 + 2
    assert counts(tb.checkpoint(sines), 1.0)["cos"] == 3
    kept = tb.checkpoint(sines, policy=P.everything_saveable)
    assert counts(kept, 1.0) == {"sin": 3, "cos": 3, "dot_general": 0}


def layers(w: Any, x: Any) -> Any:
    """Two products with names between them."""
    x = checkpoint_name(tnp.sin(x @ w), "a")
    return tnp.sum(tnp.sin(tnp.sin(x @ w)))


def test_policies_say_what_is_kept() -> None:
    """Products are computed once if they are kept; a kept name spares what leads to it."""
    w, x = tnp.ones((3, 3)), tnp.ones((2, 3))
    dots = counts(layers, w, x)["dot_general"]
    made = lambda policy: counts(tb.checkpoint(layers, policy=policy), w, x)

    assert made(None)["dot_general"] == dots + 2
    assert made(P.dots_saveable)["dot_general"] == dots
    assert made(P.dots_with_no_batch_dims_saveable)["dot_general"] == dots
    # The cosine of the first layer needs the first product again.
    assert made(P.save_only_these_names("a"))["dot_general"] == dots + 2
    assert made(P.save_only_these_names("a"))["sin"] == made(None)["sin"] - 1
    both = P.save_from_both_policies(P.dots_saveable, P.save_only_these_names("a"))
    assert made(both)["dot_general"] == dots
    assert made(both)["sin"] == made(P.dots_saveable)["sin"] - 1
    only_sin = tb.checkpoint(layers, policy=lambda prim, *_, **__: prim is tb.lax.sin_p)
    assert counts(only_sin, w, x)["sin"] == counts(layers, w, x)["sin"]


def test_batched_products() -> None:
    """Products with batch dimensions are computed again by the policy that leaves them out."""
    f = lambda a, b: tnp.sum(tnp.sin(tnp.sin(a @ b)))
    a, b = tnp.ones((2, 3, 3)), tnp.ones((2, 3, 3))
    dots = counts(f, a, b)["dot_general"]
    made = lambda policy: counts(tb.checkpoint(f, policy=policy), a, b)["dot_general"]

    assert made(P.dots_saveable) == dots
    assert made(P.dots_with_no_batch_dims_saveable) == dots + 1


def test_policies_see_into_calls_and_loops() -> None:
    """Inside jit, scan and another checkpoint a policy judges the single operations."""
    w, x = tnp.ones((3, 3)), tnp.ones((3,))
    in_jit = lambda w, x: tnp.sum(tb.jit(lambda w, x: tnp.sin(tnp.sin(x @ w)))(w, x))
    dots = counts(in_jit, w, x)["dot_general"]
    assert counts(tb.checkpoint(in_jit, policy=P.dots_saveable), w, x)["dot_general"] == dots

    body = lambda w: lambda c, _: (tnp.sin(c @ w), None)
    looped = lambda w, x: tnp.sum(tb.lax.scan(body(w), x, None, length=3)[0])
    for policy in POLICIES:
        ours = tb.checkpoint(looped, policy=policy)
        close(tb.grad(ours, (0, 1))(w, x), tb.grad(looped, (0, 1))(w, x))
    made = lambda policy: counts(tb.checkpoint(looped, policy=policy), w, x)["dot_general"]
    assert made(P.dots_saveable) == counts(looped, w, x)["dot_general"]
    assert made(P.everything_saveable) == counts(looped, w, x)["dot_general"]
    assert made(None) == counts(looped, w, x)["dot_general"] + 1
    nested = tb.checkpoint(tb.checkpoint(layers, policy=P.dots_saveable), policy=P.dots_saveable)
    plain = counts(layers, w, x)["dot_general"]
    assert counts(nested, w, x)["dot_general"] == plain


def test_policies_see_into_branches() -> None:
    """What a branch may keep is kept, whatever the other one does."""
    w, x = tnp.ones((3, 3)), tnp.ones((3,))
    body = lambda w, x: tnp.sin(tnp.sin(x @ w) @ w)
    chosen = lambda w, x: tnp.sum(tb.lax.cond(x.sum() > 0, body, lambda w, x: x, w, x))
    for policy in POLICIES:
        ours = tb.checkpoint(chosen, policy=policy)
        close(tb.grad(ours, (0, 1))(w, x), tb.grad(chosen, (0, 1))(w, x))
    made = lambda policy: counts(tb.checkpoint(chosen, policy=policy), w, x)
    plain = counts(chosen, w, x)

    assert plain["dot_general"] == made(P.dots_saveable)["dot_general"]
    assert plain == made(P.everything_saveable)
    assert plain["dot_general"] < made(None)["dot_general"]


def test_only_what_is_wanted_of_a_call_is_computed_again() -> None:
    """The rule of a function calls one that gives a value and its derivative."""

    @tb.custom_jvp
    def f(x: Any) -> Any:
        return tnp.sin(x)

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        value, slope = tb.jit(lambda x: (tnp.sin(x), tnp.cos(x)))(*primals)
        return value, slope * tangents[0]

    ours = tb.checkpoint(lambda x: f(x), policy=P.nothing_saveable)

    way_back = tb.make_jaxpr(tb.linearize(ours, 1.0)[1])(1.0).jaxpr
    assert not equations_of(way_back, "sin", inside=True)
    assert 1 == len(equations_of(way_back, "cos", inside=True))


def test_scan_over_checkpointed_layers() -> None:
    """A loop whose body is checkpointed keeps one carry per step."""
    w = tnp.ones((4, 3, 3)) * 0.3
    layer = lambda x, w: (tnp.tanh(tnp.tanh(x @ w) @ w), None)
    loss = lambda layer: lambda w, x: tnp.sum(tb.lax.scan(layer, x, w)[0])
    ours, plain = loss(tb.checkpoint(layer, prevent_cse=False)), loss(layer)
    x = tnp.ones((2, 3))

    close(tb.jit(tb.grad(ours, (0, 1)))(w, x), tb.grad(plain, (0, 1))(w, x))
    close(tb.jacfwd(tb.grad(ours))(w[:1], x), tb.jacfwd(tb.grad(plain))(w[:1], x))


def test_custom_rules_inside() -> None:
    """Functions with vjp rules, which have no forward mode, are reached in reverse mode."""
    calls: list[str] = []

    @tb.custom_vjp
    def f(x: Any) -> Any:
        calls.append("fun")
        return tnp.sin(x)

    def fwd(x: Any) -> Any:
        calls.append("fwd")
        return tnp.sin(x), tnp.cos(x)

    f.defvjp(fwd, lambda c, ct: (ct * c * 10.0,))
    g = tb.checkpoint(lambda x: f(x) * x)

    expected = 10.0 * np.cos(0.5) * 0.5 + np.sin(0.5)
    for policy in (None, P.everything_saveable):
        g = tb.checkpoint(lambda x: f(x) * x, policy=policy)
        np.testing.assert_allclose(tb.grad(g)(0.5), expected, rtol=1e-6)
        np.testing.assert_allclose(tb.jit(tb.grad(g))(0.5), expected, rtol=1e-6)
        np.testing.assert_allclose(tb.vmap(tb.grad(g))(tnp.full(2, 0.5))[1], expected, rtol=1e-6)
    assert {"fun", "fwd"} == set(calls)

    @tb.custom_jvp
    def h(x: Any) -> Any:
        return tnp.sin(x)

    h.defjvp(lambda p, t: (h(p[0]), t[0] * 3.0))
    assert float(tb.grad(tb.checkpoint(lambda x: h(x) + x))(0.5)) == 4.0
    assert float(tb.grad(tb.grad(tb.checkpoint(lambda x: h(x) * x)))(0.0)) == 6.0


def nest(depth: int) -> Callable[[Any], Any]:
    """``depth`` checkpoints, one within the other."""
    if depth == 0:
        return tnp.sin
    inner = nest(depth - 1)
    return tb.checkpoint(lambda x: tnp.sin(inner(x)))


@pytest.mark.parametrize("policy", [None, P.dots_saveable])
def test_nests_trace_in_linear_time(monkeypatch: pytest.MonkeyPatch, policy: Any) -> None:
    """Twice the depth stages about twice the equations; the values are right."""
    staged = [0]
    process = StagingTrace.process

    def counted(self: Any, app: Any, args: Any) -> Any:
        staged[0] += 1
        return process(self, app, args)

    def cost(depth: int) -> int:
        staged[0] = 0
        f = nest(depth) if policy is None else tb.checkpoint(nest(depth), policy=policy)
        tb.make_jaxpr(tb.jit(tb.grad(f)))(0.3)
        return staged[0]

    monkeypatch.setattr(StagingTrace, "process", counted)
    cost(2)
    small, large = cost(8), cost(16)
    monkeypatch.undo()

    assert large < 2.3 * small

    def plain(x: Any) -> Any:
        for _ in range(9):
            x = tnp.sin(x)
        return x

    close(tb.jit(tb.grad(nest(8)))(0.3), tb.grad(plain)(0.3))
    close(tb.grad(nest(8))(0.3), tb.grad(plain)(0.3))


def test_recursion() -> None:
    """A chain halved again and again gives the gradient of the chain."""

    def halves(funs: list[Any]) -> Any:
        if len(funs) == 1:
            return funs[0]
        one, two = halves(funs[: len(funs) // 2]), halves(funs[len(funs) // 2 :])
        return lambda x: one(tb.checkpoint(two)(x))

    chain = halves([tnp.sin, tnp.cos] * 4)
    close(tb.grad(chain)(0.4), tb.grad(lambda x: _in_turn([tnp.sin, tnp.cos] * 4, x))(0.4))


def _in_turn(funs: list[Any], x: Any) -> Any:
    for f in reversed(funs):
        x = f(x)
    return x


def deep(wrap: Callable[..., Any]) -> Callable[..., Any]:
    """Eight blocks that each make much more than they take."""

    def block(w: Any, x: Any) -> Any:
        y = x
        for _ in range(6):
            y = tnp.sin(y @ w)
        return y

    def loss(w: Any, x: Any) -> Any:
        for _ in range(8):
            x = wrap(block)(w, x)
        return tnp.sum(x)

    return loss


def temporary_bytes(loss: Callable[..., Any]) -> int:
    """Memory for intermediate values of the compiled gradient."""
    compiled = tb.jit(tb.grad(loss)).lower(tnp.ones((16, 16)), tnp.ones((1024, 16))).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_lowers_peak_memory() -> None:
    """A deep chain needs a fraction of the memory, unless everything may be kept."""
    plain = temporary_bytes(deep(lambda f: f))
    ours = temporary_bytes(deep(tb.checkpoint))
    kept = temporary_bytes(deep(lambda f: tb.checkpoint(f, policy=P.everything_saveable)))

    assert ours < 0.5 * plain
    assert kept > 0.9 * plain


@pytest.mark.parametrize(
    ("platform", "mark"), [("cpu", "stablehlo.case"), ("cuda", "optimization_barrier")]
)
def test_prevent_cse_sets_the_second_computation_apart(platform: str, mark: str) -> None:
    """Only the part that computes again is marked, and only with prevent_cse."""

    def text(f: Callable[..., Any], x: Any = 1.0) -> str:
        return lower_module(tb.make_jaxpr(f)(x).jaxpr, "f", platform).as_text()

    assert mark not in text(tb.checkpoint(sines))
    assert text(tb.grad(tb.checkpoint(sines))).count(mark) == 1
    free = tb.checkpoint(sines, prevent_cse=False)
    assert mark not in text(tb.grad(free))
    close(tb.jit(tb.grad(free))(1.0), tb.grad(sines)(1.0))


def test_the_choice_does_not_depend_on_constants() -> None:
    """The cotangent of a loss is 1, which XLA knows: another operand decides."""
    text = tb.jit(tb.grad(tb.checkpoint(sines))).lower(1.0).as_text("hlo")

    assert "conditional" in text


@pytest.mark.parametrize("x", [np.nan, np.inf, -3e38, 0.0, 1e-40])
def test_any_number_chooses_the_computation(x: float) -> None:
    """Whatever the operands are, the compiled gradient is the plain one; complex ones too."""
    f = lambda x: tnp.sum(x * x * 2.0)
    for v in (tnp.full((2,), x), tnp.full((), x)):
        np.testing.assert_array_equal(tb.jit(tb.grad(tb.checkpoint(f)))(v), tb.grad(f)(v))
        pulled = tb.jit(lambda v: tb.vjp(tb.checkpoint(lambda v: v * 1.0), v)[1](v)[0])
        np.testing.assert_array_equal(pulled(v), v)
    g = lambda z: tnp.real(tnp.sum(z * z))
    z = tnp.asarray([1.0 + 2.0j, 3.0])
    close(tb.jit(tb.grad(tb.checkpoint(g)))(z), tb.grad(g)(z))


def test_primitives_that_can_only_be_evaluated() -> None:
    """Outside of compiled programs a checkpoint asks for no lowering, and repeats evaluations."""
    called: list[int] = []
    add_one = tb.extend.core.Primitive("add_one_by_evaluation")
    add_one.def_abstract_eval(lambda x: x)
    add_one.def_impl(lambda x: called.append(1) or x + 1)
    ad.primitive_jvps[add_one] = lambda x, t: (add_one.bind(*x), add_one.bind(*x) * t[0])
    f = tb.checkpoint(add_one.bind)
    g = tb.checkpoint(lambda x: add_one.bind(f(x)))

    y, pull = tb.vjp(g, 2.0)
    assert (4.0, 2) == (float(y), len(called))
    assert 12.0 == float(pull(1.0)[0])
    assert 2 + 3 == len(called)


def test_effects_are_repeated_with_the_computation() -> None:
    """The equation has the effects of its program, and unused results go away."""
    jaxpr = tb.make_jaxpr(lambda x: tb.checkpoint(lambda x: (tnp.sin(x), tnp.cos(x)))(x)[0])(1.0)
    from_inside = tb.make_jaxpr(tb.grad(lambda x: tb.checkpoint(lambda x: (tnp.sin(x), x))(x)[0]))

    assert len(equations_of(jaxpr, "checkpoint", inside=True)) == 1
    assert len(equations_of(from_inside(1.0), "cos", inside=True)) == 1


def test_linear_functions_and_unused_results() -> None:
    """linear_transpose passes through; a result without derivative has none."""
    double = tb.checkpoint(lambda x: 2.0 * x)
    assert float(tb.linear_transpose(double, 1.0)(3.0)[0]) == 6.0

    f = tb.checkpoint(lambda x: (x * x, tnp.asarray(3)))
    out, pullback, aux = tb.vjp(f, 2.0, has_aux=True)
    assert (float(out), float(pullback(1.0)[0]), int(aux)) == (4.0, 4.0, 3)


def _called(fun: Callable[..., Any], x: Any) -> Any:
    """The program of the call within a function."""
    (call,) = tb.make_jaxpr(fun)(x).jaxpr.equations
    return call[0].params["jaxpr"]


@pytest.mark.parametrize("wrap", [tb.checkpoint, tb.jit])
def test_functions_made_anew_are_one_program(wrap: Callable[..., Any]) -> None:
    """Of one line, with arguments of the same names; others have their own numbers and names."""

    def made(scale: float, key: str) -> Callable[[Any], Any]:
        return lambda x: wrap(lambda tree: tnp.sin(tree[key]) * scale)({key: x})

    first, again = _called(made(2.0, "a"), 1.0), _called(made(2.0, "a"), 1.0)
    scaled, named = _called(made(3.0, "a"), 1.0), _called(made(2.0, "b"), 1.0)

    assert first is again
    assert first is not scaled
    assert [("tree['a']",), ("tree['b']",)] == [j.debug_info.arg_names for j in (first, named)]
    close(tb.grad(made(3.0, "a"))(1.0), 3 * np.cos(1.0))
    close(tb.grad(made(2.0, "a"))(1.0), 2 * np.cos(1.0))


def test_programs_do_not_hold_policies_made_anew() -> None:
    """A policy that is made for one call goes away with it."""

    def call(x: Any) -> Any:
        policy = lambda prim, *_, **__: prim.name == "sin"
        alive.append(weakref.ref(policy))
        return tb.checkpoint(sines, policy=policy)(x)

    alive: list[weakref.ref[Any]] = []
    close(tb.grad(call)(1.0), tb.grad(sines)(1.0))
    tb.clear_caches()
    gc.collect()
    assert [None] == [ref() for ref in alive]
