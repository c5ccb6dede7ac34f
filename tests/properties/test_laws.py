"""Laws that tie the transformations to each other, on random programs."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.strategies as some
import tracebridge as tb
import tracebridge.numpy as tnp
from tests.strategies import Program, run_jaxpr
from tracebridge.core.interpreters.dce import dce_jaxpr
from tracebridge.core.interpreters.inline import inline_calls
from tracebridge.core.interpreters.linearize import linearize_jaxpr
from tracebridge.core.interpreters.partial_eval import partial_eval_jaxpr
from tracebridge.core.interpreters.staging import close_jaxpr
from tracebridge.core.interpreters.transpose import transpose_jaxpr

few = settings(max_examples=9)


@pytest.fixture(autouse=True, scope="module")
def _double() -> Iterator[None]:
    """Laws hold up to rounding: 64 bits leave little room for errors to hide in."""
    with tb.enable_x64(True):
        yield


def close(actual: Any, expected: Any, atol: float = 1e-9) -> None:
    """Equal up to rounding, and of one shape (NumPy's check lets scalars stand for arrays)."""
    assert np.shape(expected) == np.shape(actual)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=atol)


def dot(xs: Any, ys: Any) -> float:
    """Inner product of two lists of arrays."""
    return sum(float(np.sum(np.asarray(x) * np.asarray(y))) for x, y in zip(xs, ys, strict=True))


def total(program: Program) -> Any:
    """A scalar function that depends on every element of the result, differently."""

    def f(*args: Any) -> Any:
        out = program(*args)
        weights = 1.0 + tnp.arange(out.size, dtype=out.dtype).reshape(out.shape)
        return tnp.sum(tnp.sin(out) * weights)

    return f


# evaluation --------------------------------------------------------------------------------------


@given(program=some.programs(modes=""), seed=some.seeds)
def test_eager_and_jit_are_numpy(program: Program, seed: int) -> None:
    """f(x) = jit(f)(x) = the same program in NumPy."""
    args = program.arguments(seed)
    expected = program.numpy(*args)
    close(program(*args), expected)
    close(tb.jit(program)(*args), expected)


@given(program=some.programs(modes=""), seed=some.seeds)
def test_jaxpr_is_the_function(program: Program, seed: int) -> None:
    """Evaluating make_jaxpr(f) gives f, also with calls inlined and constants made inputs."""
    args = program.arguments(seed)
    jaxpr = program.jaxpr()
    expected = program.all(*args)
    closed, hoisted = close_jaxpr(jaxpr)
    for got in (
        run_jaxpr(jaxpr, *args),
        run_jaxpr(inline_calls(jaxpr), *args),
        run_jaxpr(closed, *hoisted, *args),
    ):
        assert len(expected) == len(got)
        for one, two in zip(expected, got, strict=True):
            close(two, one)


@given(array=some.arrays(dtype=some.dtypes))
def test_jit_of_identity(array: np.ndarray) -> None:
    """Arrays of every dtype pass unchanged."""
    out = tb.jit(lambda x: x)(array)
    assert array.dtype == out.dtype
    np.testing.assert_array_equal(array, np.asarray(out))


# vmap --------------------------------------------------------------------------------------------


@given(data=st.data(), program=some.programs(modes=""), seed=some.seeds)
def test_vmap_is_stack(data: st.DataObject, program: Program, seed: int) -> None:
    """vmap(f) = stack of f over the elements, for any in_axes and out_axes."""
    ranks = [len(s) for s in program.in_shapes]
    in_axes = data.draw(some.axis_specs(ranks))
    size = 2
    batched, single = program.arguments(seed, (size,)), program.arguments(seed)
    elements = [
        [single[i] if axis is None else batched[i][k] for i, axis in enumerate(in_axes)]
        for k in range(size)
    ]
    args = [
        single[i] if axis is None else np.moveaxis(batched[i], 0, axis)
        for i, axis in enumerate(in_axes)
    ]
    results = [program.numpy(*e) for e in elements]
    rank = np.ndim(results[0])
    out_axes = data.draw(st.integers(-rank - 1, rank))
    mapped = tb.vmap(program, in_axes=in_axes, out_axes=out_axes)
    expected = np.stack(results, axis=out_axes)
    close(mapped(*args), expected)
    close(tb.jit(mapped)(*args), expected)


@few
@given(program=some.programs(max_steps=3, modes=""), seed=some.seeds)
def test_vmap_of_vmap(program: Program, seed: int) -> None:
    """Mapping two axes one after the other is mapping both."""
    args = program.arguments(seed, (2, 3))
    rows = [[program.numpy(*[a[i, j] for a in args]) for j in range(3)] for i in range(2)]
    close(tb.vmap(tb.vmap(program))(*args), np.array(rows))


@few
@given(program=some.programs(max_steps=4, modes="r"), seed=some.seeds)
def test_vmap_of_grad(program: Program, seed: int) -> None:
    """vmap(grad(f)) = stack of grad(f)."""
    gradient = tb.grad(total(program))
    args = program.arguments(seed, (2,))
    expected = np.stack([np.asarray(gradient(*[a[k] for a in args])) for k in range(2)])
    close(tb.vmap(gradient)(*args), expected)


# derivatives -------------------------------------------------------------------------------------


@given(program=some.programs(), seed=some.seeds)
def test_jvp_and_vjp_are_adjoint(program: Program, seed: int) -> None:
    """<ct, jvp(t)> = <vjp(ct), t>, under jit too; linearize = jvp."""
    args = [tnp.asarray(a) for a in program.arguments(seed)]
    tangents = [tnp.asarray(a) for a in program.arguments(seed + 1)]
    out, out_tangent = tb.jvp(program, args, tangents)
    primal, pullback = tb.vjp(program, *args)
    linear_out, push = tb.linearize(program, *args)
    ct = tnp.asarray(some.array(out.shape, seed + 2))
    cts = pullback(ct)
    close(primal, out)
    close(linear_out, out)
    close(push(*tangents), out_tangent)
    close(dot(cts, tangents), dot([ct], [out_tangent]))
    jitted = tb.jit(lambda xs, c: tb.vjp(program, *xs)[1](c))(args, ct)
    for eager, compiled in zip(cts, jitted, strict=True):
        close(compiled, eager)
    transposed = tb.linear_transpose(push, *tangents)(ct)
    for one, two in zip(cts, transposed, strict=True):
        close(two, one)


@given(program=some.programs(modes="f"), seed=some.seeds)
def test_jvp_is_the_derivative(program: Program, seed: int) -> None:
    """jvp is the slope of the program in NumPy (where it has no kink nearby)."""
    args, tangents = program.arguments(seed), program.arguments(seed + 1)
    step = 1e-5

    def at(t: float) -> np.ndarray:
        return program.numpy(*[a + t * d for a, d in zip(args, tangents, strict=True)])

    right, left = (at(step) - at(0.0)) / step, (at(0.0) - at(-step)) / step
    _, slope = tb.jvp(program, args, tangents)
    bound = 1e-4 + 1e-3 * np.abs(slope)
    smooth = np.abs(right - left) < 0.1 * bound
    error = np.abs(np.asarray(slope) - (right + left) / 2)
    assert np.all((error < bound) | ~smooth)


@given(program=some.programs(modes="r"), seed=some.seeds)
def test_vjp_is_the_derivative(program: Program, seed: int) -> None:
    """<vjp(ct), t> is the slope of <ct, f> in NumPy (where it has no kink nearby)."""
    args, tangents = program.arguments(seed), program.arguments(seed + 1)
    out, pullback = tb.vjp(program, *args)
    ct = some.array(out.shape, seed + 2)
    step = 1e-5

    def at(t: float) -> float:
        moved = [a + t * d for a, d in zip(args, tangents, strict=True)]
        return float(np.sum(program.numpy(*moved) * ct))

    right, left = (at(step) - at(0.0)) / step, (at(0.0) - at(-step)) / step
    found = dot(pullback(tnp.asarray(ct)), tangents)
    bound = 1e-4 + 1e-3 * abs(found)
    assert abs(found - (right + left) / 2) < bound or abs(right - left) >= 0.1 * bound


@few
@given(program=some.programs(max_steps=4), seed=some.seeds)
def test_second_derivatives_agree(program: Program, seed: int) -> None:
    """Forward over reverse = reverse over reverse = reverse over forward, and it is symmetric."""
    f = total(program)
    args = [tnp.asarray(a) for a in program.arguments(seed)]
    argnums = tuple(range(len(args)))
    us, vs = ([tnp.asarray(a) for a in program.arguments(seed + k)] for k in (1, 2))
    gradient = tb.grad(f, argnums)

    def along(*xs: Any) -> Any:
        return sum(tnp.sum(g * v) for g, v in zip(gradient(*xs), vs, strict=True))

    def slope(*xs: Any) -> Any:
        return tb.jvp(f, list(xs), vs)[1]

    _, forward_reverse = tb.jvp(gradient, args, vs)
    reverse_reverse = tb.grad(along, argnums)(*args)
    reverse_forward = tb.grad(slope, argnums)(*args)
    jitted = tb.jit(tb.grad(along, argnums))(*args)
    for expected, *others in zip(
        forward_reverse, reverse_reverse, reverse_forward, jitted, strict=True
    ):
        scale = 1.0 + float(np.max(np.abs(expected), initial=0.0))
        for other in others:
            close(other, expected, atol=1e-9 * scale)
    _, other_side = tb.jvp(gradient, args, us)
    scale = 1.0 + abs(dot(us, forward_reverse))
    close(dot(us, forward_reverse), dot(vs, other_side), atol=1e-8 * scale)


@few
@given(steps=st.integers(1, 4), seed=some.seeds, reverse=st.booleans())
def test_scan_is_the_unrolled_loop(steps: int, seed: int, reverse: bool) -> None:
    """Values and gradients of scan are those of the Python loop, for every unroll."""
    start, xs, w = (
        tnp.asarray(some.array(s, seed + k)) for k, s in enumerate([(3,), (steps, 3), (3, 3)])
    )

    def body(w: Any, carry: Any, x: Any) -> Any:
        carry = tnp.tanh(w @ carry + x)
        return carry, tnp.sum(carry * x)

    def looped(w: Any, start: Any, xs: Any) -> Any:
        ys, order = [None] * steps, range(steps)
        for k in reversed(order) if reverse else order:
            start, ys[k] = body(w, start, xs[k])
        return tnp.sum(start * start) + tnp.sum(tnp.sin(tnp.stack(ys)))

    def scanned(unroll: Any, w: Any, start: Any, xs: Any) -> Any:
        out, ys = tb.lax.scan(partial(body, w), start, xs, reverse=reverse, unroll=unroll)
        return tnp.sum(out * out) + tnp.sum(tnp.sin(ys))

    every = (0, 1, 2)
    value, grads = tb.value_and_grad(looped, every)(w, start, xs)
    for unroll in (1, 2, True):
        got, got_grads = tb.value_and_grad(partial(scanned, unroll), every)(w, start, xs)
        close(got, value)
        for one, two in zip(grads, got_grads, strict=True):
            close(two, one)


# interpreters ------------------------------------------------------------------------------------


@given(data=st.data(), program=some.programs(modes=""), seed=some.seeds)
def test_dce_keeps_results(data: st.DataObject, program: Program, seed: int) -> None:
    """The used results stay, with the inputs that are still needed and no more equations."""
    jaxpr = program.jaxpr()
    used = tuple(
        data.draw(st.lists(st.booleans(), min_size=len(jaxpr.outs), max_size=len(jaxpr.outs)))
    )
    args = program.arguments(seed)
    smaller, used_in = dce_jaxpr(jaxpr, used)
    kept = [a for a, u in zip(args, used_in, strict=True) if u]
    expected = [v for v, u in zip(program.all(*args), used, strict=True) if u]
    assert len(smaller.equations) <= len(jaxpr.equations)
    for one, two in zip(expected, run_jaxpr(smaller, *kept), strict=True):
        close(two, one)


@given(data=st.data(), program=some.programs(modes=""), seed=some.seeds)
def test_known_then_unknown_is_the_whole(data: st.DataObject, program: Program, seed: int) -> None:
    """Partial evaluation: the known half, then the rest, gives the results of the whole."""
    jaxpr = program.jaxpr()
    n = jaxpr.n_in
    unknown_in = tuple(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    save = data.draw(st.sampled_from([None, lambda app: app.primitive.name in ("mul", "sin")]))
    args = program.arguments(seed)
    split = partial_eval_jaxpr(jaxpr, unknown_in, saveable=save)
    known_in = [a for a, u in zip(args, unknown_in, strict=True) if not u]
    known = run_jaxpr(split.known, *known_in)
    n_known = split.unknown_out.count(False)
    residuals = known[n_known:]
    assert split.n_residuals == len(residuals)
    rest = [a for a, u in zip(args, unknown_in, strict=True) if u]
    unknown = iter(run_jaxpr(split.unknown, *residuals, *rest))
    results = iter(known[:n_known])
    got = [next(unknown if u else results) for u in split.unknown_out]
    for one, two in zip(program.all(*args), got, strict=True):
        close(two, one)


@few
@given(program=some.programs(max_steps=4), seed=some.seeds)
def test_linearized_jaxpr_is_jvp_and_transposes_to_vjp(program: Program, seed: int) -> None:
    """The linear half of a Jaxpr is its jvp; transposed it is its vjp."""
    jaxpr = tb.make_jaxpr(program)(*program.arguments(0)).jaxpr
    args, tangents = program.arguments(seed), program.arguments(seed + 1)
    n = jaxpr.n_in
    split = linearize_jaxpr(jaxpr, (True,) * n, instantiate=True)
    out, *computed = run_jaxpr(split.primal, *args)
    assert split.n_residuals == len(computed)
    residuals = [*[args[i] for i in split.forwarded], *computed]
    expected, expected_tangent = tb.jvp(program, args, tangents)
    close(out, expected)
    (tangent,) = run_jaxpr(split.linear, *residuals, *tangents)
    close(tangent, expected_tangent)
    is_linear = (False,) * len(residuals) + (True,) * n
    backward, present = transpose_jaxpr(split.linear, is_linear)
    ct = some.array(out.shape, seed + 2)
    assert (True,) * n == present
    cts = run_jaxpr(backward, *residuals, ct)
    for one, two in zip(tb.vjp(program, *args)[1](tnp.asarray(ct)), cts, strict=True):
        close(two, one)


# trees -------------------------------------------------------------------------------------------


@given(tree=some.pytrees(some.arrays(dtype=st.just("float32"))))
def test_trees_go_through(tree: Any) -> None:
    """jit, vmap's axis trees and pickling keep the structure of a tree and its leaves."""
    leaves, treedef = tb.tree.flatten(tree)
    assert treedef == pickle.loads(pickle.dumps(treedef))
    assert treedef == tb.tree.structure(tb.tree.unflatten(treedef, leaves))
    doubled = tb.jit(lambda t: tb.tree.map(lambda x: x * 2.0, t))(tree)
    assert treedef == tb.tree.structure(doubled)
    for one, two in zip(leaves, tb.tree.leaves(doubled), strict=True):
        np.testing.assert_array_equal(one * np.float32(2), np.asarray(two))
    cost, grads = tb.value_and_grad(
        lambda t: sum((tnp.sum(x * x) for x in tb.tree.leaves(t)), start=tnp.float32(0))
    )(tree)
    assert treedef == tb.tree.structure(grads)
    expected = sum((float(np.sum(np.square(x, dtype="float64"))) for x in leaves), start=0.0)
    np.testing.assert_allclose(cost, expected, rtol=1e-5)
    tb.tree.map(lambda x, g: np.testing.assert_allclose(g, 2 * x, rtol=1e-6), tree, grads)
    assert tb.tree.reduce(operator.add, tb.tree.map(lambda _: 1, tree), 0) == len(leaves)
