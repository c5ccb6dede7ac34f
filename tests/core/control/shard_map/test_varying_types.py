"""Types inside of shard_map say along which axes devices may have different values."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tests.core.control.shard_map.grids import X, over
from tracebridge.errors import ArgumentValueError
from tracebridge.sharding import ManualAxisType
from tracebridge.sharding import PartitionSpec as P
from tracebridge.testing import assert_allclose

W = X[0]
ALL = frozenset({"x", "y"})
TOL = {"rtol": 1e-5, "atol": 1e-5}
SPLIT = P("x", "y")


def varies(f: Callable[[Any, Any], Any], *, check: bool = True) -> frozenset[Any]:
    """Along which axes the result of ``f`` varies, for shared weights and blocks of X."""
    found: list[frozenset[Any]] = []

    def inside(w: Any, b: Any) -> Any:
        found.append(tb.typeof(f(w, b)).vma)
        return b

    mapped = over(inside, (P(), SPLIT), SPLIT, (2, 4), check_vma=check)
    tb.eval_shape(mapped, np.float32(2), X)
    return found[0]


RESULTS: dict[str, tuple[Callable[[Any, Any], Any], set[str]]] = {
    "shared argument": (lambda w, b: w, set()),
    "block": (lambda w, b: b, {"x", "y"}),
    "both": (lambda w, b: w * b, {"x", "y"}),
    "made inside": (lambda w, b: tnp.ones(3), set()),
    "like a block": (lambda w, b: lax.full_like(b, 1), {"x", "y"}),
    "like a block, of numpy": (lambda w, b: tnp.zeros_like(b), {"x", "y"}),
    "position": (lambda w, b: lax.axis_index("y") * w, {"y"}),
    "sum": (lambda w, b: lax.psum(b, "x"), {"y"}),
    "maximum": (lambda w, b: lax.pmax(b, ("x", "y")), set()),
    "sums of groups": (lambda w, b: lax.psum(b, "x", axis_index_groups=[[0], [1]]), {"x", "y"}),
    "gathered": (lambda w, b: lax.all_gather(lax.psum(b, "x"), "y"), {"y"}),
    "gathered for all": (lambda w, b: lax.all_gather(b, "y", to="invarying"), {"x"}),
    "exchanged": (lambda w, b: lax.ppermute(w, "x", [(0, 1)]), {"x"}),
    "cast": (lambda w, b: lax.pcast(w, "x", to="varying"), {"x"}),
    "called": (lambda w, b: tb.jit(lambda c: c * w)(b.sum()), {"x", "y"}),
    "derived": (lambda w, b: tb.grad(lambda v: (v * b).sum())(w), set()),
    "carried": (lambda w, b: lax.fori_loop(0, 2, lambda _, c: c + b.sum(), w), {"x", "y"}),
    "given by a loop": (lambda w, b: lax.while_loop(lambda c: c < 3, lambda c: c + w, w), set()),
    "end of a loop": (
        lambda w, b: lax.while_loop(lambda c: c[0] < b.sum(), lambda c: (c[0] + 1, -c[1]), (w, w))[
            1
        ],
        {"x", "y"},
    ),
    "branch": (lambda w, b: lax.cond(True, lambda: w, lambda: lax.psum(b.sum(), "x")), {"y"}),
    "choice": (lambda w, b: lax.cond(b[0, 0] > 0, lambda: w, lambda: w + 1), {"x", "y"}),
}


@pytest.mark.parametrize("name", RESULTS)
def test_what_varies(name: str) -> None:
    """Results vary along the axes of all operands, but for those that a reduction unites."""
    f, expected = RESULTS[name]

    assert expected == varies(f)


def test_unchecked_functions_have_plain_types() -> None:
    """With check_vma=False nothing is said, and pcast changes nothing."""
    assert frozenset() == varies(lambda w, b: b, check=False)
    assert frozenset() == varies(lambda w, b: lax.pcast(w, "x", to="varying"), check=False)


def test_types_are_shown_and_kept() -> None:
    """Names in print, the other spelling, updates and pickles."""
    aval = tb.typeof(tnp.ones((2, 3))).update(manual_axis_type=ManualAxisType(varying=ALL))

    assert "f32[2,3]{V:(x,y)}" == aval.str_short()
    assert ManualAxisType(varying=ALL) == aval.mat == aval.manual_axis_type
    assert ALL == aval.update(shape=(3,)).vma
    assert aval is pickle.loads(pickle.dumps(aval))
    assert ManualAxisType().empty
    assert ManualAxisType(varying=ALL).update(varying=frozenset()).empty


def test_a_value_that_varies_cannot_be_let_to_vary() -> None:
    """pcast names the type."""
    with pytest.raises(ArgumentValueError, match=r"f32\[4,2\]\{V:\(x,y\)\} varies over 'x'"):
        varies(lambda w, b: lax.pcast(b, "x", to="varying"))


def whole(f: Callable[..., Any]) -> Any:
    """The gradient of a sum over X, with respect to the weights."""
    return tb.grad(lambda w: f(w, X).sum())(W)


def sine(w: Any, b: Any) -> Any:
    return tnp.sin(w * b)


@pytest.mark.parametrize("axes", [(), ("x",)])
def test_gradients_inside_of_shared_values_are_sums(axes: tuple[str, ...]) -> None:
    """Unasked, and not twice where the loss is summed already."""

    def gradient(w: Any, b: Any) -> Any:
        return tb.grad(lambda v: lax.psum(sine(v, b).sum(), axes))(w)

    assert_allclose(over(gradient, (P(), P("x")), P(), (8,))(W, X), whole(sine), **TOL)


def test_gradients_inside_of_blocks_stay_with_the_devices() -> None:
    """The gradient of a block varies as the block does."""

    def gradient(w: Any, b: Any) -> Any:
        return tb.grad(lambda c: sine(w, c).sum())(b)

    expected = tb.grad(lambda x: sine(W, x).sum())(X)

    assert_allclose(over(gradient, (P(), P("x")), P("x"), (8,))(W, X), expected, **TOL)


def test_gradients_inside_through_control_flow() -> None:
    """Branches that devices choose for themselves, loops, and calls."""

    def f(w: Any, b: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return tb.jit(tnp.sin)(c * w) + b, c.sum()

        c, sums = lax.scan(step, tnp.zeros_like(b), None, length=3)
        chosen = lax.cond(b[0, 0] > 0, lambda v: v * w, lambda v: v * b * w * w, c)
        return tb.checkpoint(sine)(w, chosen).sum() + sums.sum()

    def gradient(w: Any, b: Any) -> Any:
        return tb.grad(lambda v: f(v, b))(w)

    expected = tb.grad(lambda w: tb.vmap(lambda b: f(w, b[None]))(X).sum())(W)

    assert_allclose(over(gradient, (P(), P("x")), P(), (8,))(W, X), expected, rtol=1e-4, atol=1e-4)


def test_second_derivatives_of_a_gradient_inside() -> None:
    """The gradient of the whole function sums what devices share once."""
    mapped = over(lambda w, b: tb.grad(lambda v: sine(v, b).sum())(w), (P(), P("x")), P(), (8,))

    def norm(g: Callable[[Any], Any]) -> Any:
        return tb.jit(tb.grad(lambda w: (g(w) ** 2).sum()))(W)

    expected = norm(lambda w: tb.grad(lambda v: sine(v, X).sum())(w))

    assert_allclose(norm(lambda w: mapped(w, X)), expected, rtol=1e-4, atol=1e-4)


def test_parts_of_a_reduced_value_are_kept() -> None:
    """The cotangent of a value that counts as reduced is summed where the user says it."""

    def gradient(w: Any, b: Any) -> Any:
        return tb.grad(lambda v: sine(lax.pcast(v, "x", to="reduced"), b).sum())(w)[None]

    parts = over(gradient, (P(), P("x")), P("x"), (8,))(W, X)

    assert (8, 8) == parts.shape
    assert_allclose(parts.sum(0), whole(sine), **TOL)


def test_gathered_values_that_are_known_to_be_the_same() -> None:
    """Their cotangent is that of one of them."""

    def gradient(b: Any) -> Any:
        def loss(c: Any) -> Any:
            return (lax.all_gather(c, "x", tiled=True, to="invarying") ** 2).sum()

        return tb.grad(loss)(b)

    assert_allclose(over(gradient, P("x"), P("x"), (8,))(X), 2 * X, **TOL)
