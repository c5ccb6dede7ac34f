"""The arguments of checkpoint, its errors, and what saved_residuals says."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.ad_checkpoint import (
    Offloadable,
    Recompute,
    Saveable,
    checkpoint_name,
    print_saved_residuals,
    saved_residuals,
)
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.tracer_errors import (
    ConcretizationTypeError,
    TracerBoolConversionError,
    UnexpectedTracerError,
)
from tracebridge.core.errors.transform_errors import (
    ArgumentSpecError,
    CustomRuleError,
    TreeMismatchError,
)

P = tb.checkpoint_policies


def test_forms() -> None:
    """A decorator, with and without options; name and documentation are those of the function."""

    @tb.checkpoint
    def f(x: Any) -> Any:
        """Doc."""
        return x * x

    @tb.remat(prevent_cse=False)
    def g(x: Any, *, scale: float) -> Any:
        return x * x * scale

    assert (f.__name__, f.__doc__) == ("f", "Doc.")
    assert float(tb.grad(f)(3.0)) == 6.0
    assert float(tb.grad(lambda x: g(x, scale=2.0))(3.0)) == 12.0


def test_trees_closures_and_methods() -> None:
    """Arguments and results are trees; values closed over are differentiated."""

    class Model:
        w = 3.0

        @tb.checkpoint
        def apply(self, x: Any) -> Any:
            return x * self.w

    def f(d: Any) -> Any:
        inner = tb.checkpoint(lambda p: {"y": tnp.sin(p["x"] * d["w"])})
        return inner({"x": d["x"]})["y"]

    slope = tb.grad(f)({"w": 2.0, "x": 0.5})
    np.testing.assert_allclose(slope["w"], 0.5 * np.cos(1.0), rtol=1e-6)
    np.testing.assert_allclose(slope["x"], 2.0 * np.cos(1.0), rtol=1e-6)
    with pytest.raises(UnsupportedDtypeError, match="argument self is"):
        Model().apply(2.0)


def test_static_arguments() -> None:
    """By number and by name; each value is traced once."""
    traced: list[bool] = []

    def f(x: Any, flip: bool) -> Any:
        traced.append(flip)
        return -x * x if flip else x * x

    for g in (tb.checkpoint(f, static_argnums=1), tb.checkpoint(f, static_argnames="flip")):
        assert [float(tb.grad(g)(3.0, True)), float(tb.grad(g)(3.0, False))] == [-6.0, 6.0]
        assert float(tb.grad(lambda x, g=g: g(x, flip=True))(1.0)) == -2.0
        g(3.0, True)
    assert (traced.count(True), traced.count(False)) == (2, 1)
    with pytest.raises(ArgumentSpecError, match="static_argnums contains 5"):
        tb.checkpoint(f, static_argnums=5)


def test_static_arguments_need_not_be_hashable() -> None:
    """They may have changed since the last call, so that each call is traced for itself."""
    factors = [2.0]

    @functools.partial(tb.checkpoint, static_argnums=(1,))
    def f(x: Any, factors: list[float], *, power: int = 1) -> Any:
        return sum([k * x**power for k in factors])

    assert float(tb.grad(f)(3.0, factors)) == 2.0
    factors.append(5.0)
    assert float(tb.grad(f)(3.0, factors)) == 7.0
    assert float(tb.jit(lambda x: tb.grad(f)(x, factors))(3.0)) == 7.0


def test_the_same_call_is_traced_once() -> None:
    """Calls in a loop, or of functions around it, find the trace."""
    traced: list[int] = []

    @tb.checkpoint
    def f(x: Any) -> Any:
        traced.append(1)
        return tnp.sin(x)

    for x in (1.0, 2.0, 3.0):
        tb.grad(f)(x)
        tb.jit(lambda x: f(x))(x)

    assert len(traced) == 1


def test_prevent_cse_per_argument() -> None:
    """One boolean for each positional argument, or a tree of them."""
    f = tb.checkpoint(lambda x, y: tnp.sin(x * y["a"] * y["b"]), prevent_cse=(True, False))
    jaxpr = tb.make_jaxpr(f)(1.0, {"a": 2.0, "b": 3.0}).jaxpr
    assert jaxpr.equations[0][0].params["prevent_cse"] == (True, False, False)
    np.testing.assert_allclose(
        tb.jit(tb.grad(f))(1.0, {"a": 2.0, "b": 3.0}), 6.0 * np.cos(6.0), rtol=1e-6
    )
    with pytest.raises(TreeMismatchError, match="is no prefix of the arguments"):
        tb.checkpoint(lambda x, y: x * y, prevent_cse=(True,))(1.0, 2.0)


def _branch(x: Any) -> Any:
    return tnp.sin(tnp.sin(x)) if tnp.sin(x) > 0 else x * x


@pytest.mark.parametrize("x", [1.0, -1.0])
def test_concrete_functions_choose_by_numbers(x: float) -> None:
    """Python control flow sees the numbers; the derivatives are those without a checkpoint."""
    ours = tb.checkpoint(_branch, concrete=True)

    assert float(_branch(x)) == float(ours(x))
    for d in (tb.grad, lambda f: tb.grad(tb.grad(f)), tb.jacfwd):
        np.testing.assert_allclose(d(ours)(x), d(_branch)(x), rtol=1e-6)
    jitted = tb.grad(lambda y: tb.checkpoint(_branch, concrete=True)(tb.jit(tnp.sin)(y)))
    assert np.isfinite(jitted(x))


def test_concrete_functions_keep_their_arguments_only() -> None:
    """That they look at numbers keeps nothing more for the way back."""
    y = 3.0

    def f(x: Any, y: Any) -> Any:
        z = tnp.sin(x)
        while z > y:
            z = tnp.sin(z)
        return z * int(y + 0.5)

    def names(g: Any) -> list[str]:
        return [where for _, where in saved_residuals(g, 1.0, y)]

    ours = tb.checkpoint(lambda x, y: tnp.sin(tnp.sin(x)), concrete=True)
    assert all("argument" in where for where in names(ours))
    _, pullback = tb.vjp(tb.checkpoint(f, concrete=True), 1.0, y)
    np.testing.assert_allclose(pullback(1.0)[0], 3 * np.cos(1.0), rtol=1e-6)


def test_concrete_functions_have_no_numbers_under_jit_and_vmap() -> None:
    """There the error is the usual one; effects are never run to find a number."""
    ours = tb.checkpoint(_branch, concrete=True)
    for call in (lambda: tb.jit(ours)(1.0), lambda: tb.vmap(ours)(np.ones(2, np.float32))):
        with pytest.raises(TracerBoolConversionError):
            call()

    def with_effect(x: Any) -> Any:
        y = tb.experimental.io_callback(np.sin, x, x)
        return x if y > 0 else -x

    with pytest.raises(TracerBoolConversionError):
        tb.checkpoint(with_effect, concrete=True)(np.float32(1.0))


def test_concrete_traces_are_not_mixed_up() -> None:
    """Each call looks at its own numbers, also of a function that was traced without them."""
    f = tb.checkpoint(lambda x: x * 2 if x > 0 else x * 3, concrete=True)

    assert [2.0, 3.0, 2.0] == [float(tb.grad(f)(x)) for x in (1.0, -1.0, 4.0)]
    leaked: list[Any] = []
    tb.checkpoint(lambda x: leaked.append(x * 2) or x, concrete=True)(1.0)
    with pytest.raises((UnexpectedTracerError, TracerBoolConversionError)):
        bool(leaked[0])


def test_options_are_checked() -> None:
    """Wrong options say what was expected."""
    with pytest.raises(ArgumentSpecError, match="policy is 3"):
        tb.checkpoint(tnp.sin, policy=3)
    with pytest.raises(ArgumentSpecError, match="prevent_cse is 1"):
        tb.checkpoint(tnp.sin, prevent_cse=1)
    with pytest.raises(TypeError, match="expected a function"):
        tb.checkpoint(3)

    class Unhashable:
        __hash__ = None

        def __call__(self, *_: Any, **__: Any) -> bool:
            return True

    with pytest.raises(ArgumentSpecError, match="not hashable"):
        tb.checkpoint(tnp.sin, policy=Unhashable())
    with pytest.raises(ConcretizationTypeError):
        tb.grad(tb.checkpoint(lambda x: x if x > 0 else -x))(1.0)
    with pytest.raises(CustomRuleError, match="returned 'yes' for sin"):
        tb.grad(tb.checkpoint(tnp.sin, policy=lambda *_, **__: "yes"))(1.0)


def test_policy_arguments_are_checked() -> None:
    """Names are strings, memories are known, policies are functions."""
    with pytest.raises(ArgumentSpecError, match="contains 3"):
        P.save_only_these_names("a", 3)
    with pytest.raises(ArgumentSpecError, match="two policies"):
        P.save_from_both_policies(P.dots_saveable, None)
    with pytest.raises(ArgumentSpecError, match="offload_dst is 'disk'"):
        P.offload_dot_with_no_batch_dims("device", "disk")
    options = {"offload_src": "device", "offload_dst": "pinned_host"}
    with pytest.raises(ArgumentSpecError, match="to be saved in place and to be offloaded"):
        P.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"], names_which_can_be_offloaded=["a"], **options
        )
    with pytest.raises(ArgumentSpecError, match="is the string 'a'"):
        P.save_and_offload_only_these_names(
            names_which_can_be_saved="a", names_which_can_be_offloaded=[], **options
        )
    with pytest.raises(TypeError, match="name is 3"):
        checkpoint_name(1.0, 3)


def test_policies_are_equal_by_what_they_say() -> None:
    """Policies made twice are one key."""
    assert P.save_only_these_names("a", "b") == P.save_only_these_names("b", "a")
    assert P.save_only_these_names("a") != P.save_any_names_but_these("a")
    assert hash(P.save_only_these_names("a")) == hash(P.save_only_these_names("a"))
    both = [P.save_from_both_policies(P.dots_saveable, P.save_only_these_names("a"))] * 2
    assert both[0] == both[1]
    assert P.checkpoint_dots is P.dots_saveable


def f(w: Any, x: Any) -> Any:
    """A product, a named sine, an exponential."""
    y = checkpoint_name(tnp.sin(w @ x), "first")
    return tnp.sum(tnp.exp(y))


W, X = tnp.ones((3, 2)), tnp.ones(2)


def origins(policy: Any) -> list[str]:
    """What is kept under a policy, without the places."""
    kept = saved_residuals(tb.checkpoint(f, policy=policy), W, X)
    return [text.split(" from ")[0] for _, text in kept if "argument" not in text]


def test_saved_residuals() -> None:
    """Lists what is kept, with its aval and the line it comes from."""
    kept = saved_residuals(f, W, X)
    assert [("f32[3,2]", "from the argument w"), ("f32[2]", "from the argument x")] == [
        (a.str_short(), text) for a, text in kept[:2]
    ]
    assert all("test_checkpoint.py" in text for _, text in kept[2:])
    assert any(text.startswith("output of cos from") for _, text in kept)

    assert origins(None) == []
    assert origins(P.dots_saveable) == ["output of dot_general"]
    assert origins(P.save_only_these_names("first")) == ["named 'first'"]
    assert origins(lambda *_, **__: Recompute) == []
    assert origins(lambda prim, *_, **__: Saveable if prim is tb.lax.exp_p else Recompute) == [
        "output of exp"
    ]
    moved = origins(P.offload_dot_with_no_batch_dims("device", "pinned_host"))
    assert moved == ["output of dot_general"]
    last = saved_residuals(
        tb.checkpoint(f, policy=lambda *_, **__: Offloadable("device", "pinned_host")), W, X
    )[-1][1]
    assert last.endswith(", moved to pinned_host")


def test_saved_residuals_of_calls_and_constants() -> None:
    """Values inside jit are named by the operation; arrays closed over are constants."""
    kept = saved_residuals(tb.jit(lambda x: tnp.sin(tnp.sin(x))), X)
    assert [text.split(" from ")[0] for _, text in kept] == ["output of cos", "output of cos"]
    constant = tnp.arange(2.0)
    assert "from a constant" in [text for _, text in saved_residuals(lambda x: x * constant, X)]
    assert saved_residuals(lambda x: x + 1.0, X) == []


def chosen_by_cost(w: Any) -> Any:
    h = tnp.tanh(w @ w)
    y = h * h + 2 * h

    def step(c: Any, x: Any) -> Any:
        return tnp.tanh(c * x), None

    return tnp.sum(tnp.sin(y) * y) + tnp.sum(tb.lax.scan(step, w, y[:4])[0])


def test_residuals_by_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """The cheapest cut is kept; who asks is told why, also for what is computed again."""
    w = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    checkpointed = tb.checkpoint(chosen_by_cost, policy=P.save_by_cost)

    print_saved_residuals(checkpointed, w)
    lines = capsys.readouterr().out.splitlines()
    kept = [x for x in lines if ", kept" in x.partition("again")[0] or "argument" in x]
    redone = [x for x in lines if ", computed again" in x]

    assert [x.split(" from ")[0] for x in kept[:3]] == [
        "f32[256,256]",
        "f32[256,256] output of tanh",
        "f32[4,256,256] output of scan",
    ]
    assert sorted([*kept, *redone]) == sorted(lines)
    assert {x.split()[3] for x in redone} >= {"mul", "add", "cos"}
    got, want = tb.grad(checkpointed)(w), tb.grad(chosen_by_cost)(w)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-3)


def test_print_saved_residuals(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per value."""
    print_saved_residuals(lambda d: d["a"] * d["b"], {"a": 2.0, "b": X})

    assert capsys.readouterr().out.splitlines() == [
        "f32[] from the argument d['a']",
        "f32[2] from the argument d['b']",
    ]


def test_offloaded_values_come_back() -> None:
    """On CPU, which has one memory, offloading keeps values in place."""
    policy = P.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["first"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    ours = tb.checkpoint(f, policy=policy)
    jaxpr = str(tb.make_jaxpr(tb.grad(ours))(W, X))

    assert "to_memory[kind=pinned_host]" in jaxpr
    assert "to_memory[kind=device]" in jaxpr
    np.testing.assert_allclose(tb.jit(tb.grad(ours))(W, X), tb.grad(f)(W, X), rtol=1e-6)


def test_names_are_kept_by_all_transformations() -> None:
    """checkpoint_name is the identity, for trees too."""
    named = lambda x: checkpoint_name({"a": x, "b": 2.0 * x}, "n")
    assert float(named(3.0)["b"]) == 6.0
    assert float(tb.grad(lambda x: named(x)["b"])(3.0)) == 2.0
    assert tb.vmap(named)(tnp.arange(2.0))["b"].tolist() == [0.0, 2.0]
    assert float(tb.linear_transpose(lambda x: named(x)["b"], 1.0)(1.0)[0]) == 2.0
    assert str(tb.make_jaxpr(named)(1.0)).count("name[name=n]") == 2
