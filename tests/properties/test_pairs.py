"""Every pair of transformations composes: wrappers that change no value, one around another.

Each wrapper turns a function of arrays into one that computes the same by another way. Around and
inside every other one, values, gradients, tangents and maps have to stay those of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tests.strategies as some
import tracebridge as tb
import tracebridge.numpy as tnp
from tests.strategies import Program
from tracebridge import lax

Function = Callable[..., Any]


@pytest.fixture(autouse=True, scope="module")
def _double() -> Iterator[None]:
    """Rounding errors of 64 bits hide little."""
    with tb.enable_x64(True):
        yield


def _custom_jvp(f: Function) -> Function:
    g = tb.custom_jvp(lambda *xs: f(*xs))
    g.defjvp(lambda xs, ts: tb.jvp(f, xs, ts))
    return g


def _custom_vjp(f: Function) -> Function:
    g = tb.custom_vjp(lambda *xs: f(*xs))
    g.defvjp(lambda *xs: (f(*xs), xs), lambda xs, ct: tb.vjp(f, *xs)[1](ct))
    return g


def _scan_result(f: Function) -> Function:
    return lambda *xs: lax.scan(lambda c, _: (c, f(*xs)), 0.0, None, length=2)[1][1]


def _scan_inputs(f: Function) -> Function:
    def run(*xs: Any) -> Any:
        twice = tuple([tnp.stack([x, x]) for x in xs])
        return lax.scan(lambda c, row: (c, f(*row)), 0.0, twice, reverse=True)[1][0]

    return run


def _scan_carry(f: Function) -> Function:
    def run(*xs: Any) -> Any:
        start = tnp.zeros_like(f(*xs))
        return lax.scan(lambda c, _: (f(*xs), None), start, None, length=1)[0]

    return run


def _cond(f: Function) -> Function:
    def other(*xs: Any) -> Any:
        return f(*xs) * 2.0

    return lambda *xs: lax.cond(tnp.sum(xs[0]) > -1e6, f, other, *xs)


def _vmap_mapped(f: Function) -> Function:
    return lambda *xs: tb.vmap(f)(*[tnp.stack([x, x]) for x in xs])[1]


def _vmap_last_axis(f: Function) -> Function:
    def run(*xs: Any) -> Any:
        first = tnp.stack([xs[0], xs[0]], axis=-1)
        axes = (-1, *[None] * (len(xs) - 1))
        return tb.vmap(f, in_axes=axes, out_axes=-1)(first, *xs[1:])[..., 0]

    return run


def _jvp(f: Function) -> Function:
    return lambda *xs: tb.jvp(f, xs, tuple([tnp.ones_like(x) for x in xs]))[0]


WRAPPERS: dict[str, Callable[[Function], Function]] = {
    "jit": tb.jit,
    "checkpoint": tb.checkpoint,
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
    "scan result": _scan_result,
    "scan inputs": _scan_inputs,
    "scan carry": _scan_carry,
    "cond": _cond,
    "vmap": _vmap_mapped,
    "vmap of last axis": _vmap_last_axis,
    "jvp": _jvp,
    "linearize": lambda f: lambda *xs: tb.linearize(f, *xs)[0],
    "vjp": lambda f: lambda *xs: tb.vjp(f, *xs)[0],
}
# These differentiate forwards, and a custom_vjp function has a rule for reverse mode only.
NEEDS_FORWARD = frozenset({"jvp", "custom_jvp"})


def subject(x: Any, y: Any) -> Any:
    """Contraction, elementwise functions, a running sum, a broadcast."""
    return tnp.cumsum(tnp.tanh(x @ y) * tnp.sin(x), axis=0) + y[0] * 0.5


def scalar(f: Function) -> Function:
    """A function whose gradient tells all elements apart."""

    def run(*xs: Any) -> Any:
        out = f(*xs)
        weights = 1.0 + tnp.arange(out.size, dtype=out.dtype).reshape(out.shape)
        return tnp.sum(tnp.sin(out) * weights)

    return run


def same(actual: Any, expected: Any) -> None:
    """Equal up to rounding, in every leaf."""
    leaves = [tb.tree.leaves(tree) for tree in (actual, expected)]
    assert len(leaves[1]) == len(leaves[0])
    for one, two in zip(*leaves, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def check(f: Function, g: Function, args: tuple[Any, ...], *, forward: bool) -> None:
    """``g`` is ``f``, also under jit, grad, vmap and jvp."""
    nums = tuple(range(len(args)))
    same(g(*args), f(*args))
    gradient = tb.grad(scalar(f), nums)(*args)
    same(tb.jit(tb.grad(scalar(g), nums))(*args), gradient)
    rows = tuple([np.stack([a, a + 0.25]) for a in args])
    same(tb.jit(tb.vmap(g))(*rows), tnp.stack([f(*[r[i] for r in rows]) for i in range(2)]))
    if forward:
        ones = tuple([np.ones_like(a) for a in args])
        tangent = tb.jvp(f, args, ones)[1]
        same(tb.jit(lambda xs, ts: tb.jvp(g, xs, ts)[1])(args, ones), tangent)


@pytest.mark.parametrize("inner", WRAPPERS)
@pytest.mark.parametrize("outer", WRAPPERS)
def test_pairs(outer: str, inner: str) -> None:
    """outer(inner(f)) = f."""
    random = np.random.default_rng(0)
    args = (random.normal(size=(3, 3)), random.normal(size=(3, 3)))
    g = WRAPPERS[outer](WRAPPERS[inner](subject))

    if inner == "custom_vjp" and outer in NEEDS_FORWARD:
        with pytest.raises(tb.errors.CustomRuleError, match="custom_vjp"):
            tb.grad(scalar(g))(*args)
        return
    check(subject, g, args, forward="custom_vjp" not in (outer, inner))


@given(
    program=some.programs(),
    seed=some.seeds,
    names=st.lists(st.sampled_from(sorted({*WRAPPERS} - {"jvp", "custom_vjp"})), max_size=4),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
def test_towers(program: Program, seed: int, names: list[str]) -> None:
    """Any tower of wrappers on a random program."""
    args = program.arguments(seed)
    g: Function = program
    for name in names:
        g = WRAPPERS[name](g)

    check(program, g, tuple(args), forward=True)


TRANSPARENT = sorted({*WRAPPERS} - {"jvp", "custom_jvp", "custom_vjp"})


@given(
    program=some.programs(max_steps=3),
    seed=some.seeds,
    names=st.lists(st.sampled_from(TRANSPARENT), max_size=3),
    forward=st.booleans(),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
def test_rules_of_functions_are_used(
    program: Program, seed: int, names: list[str], forward: bool
) -> None:
    """Under any tower, of any random function: a rule that triples derivatives triples them."""
    args = tuple(program.arguments(seed))
    nums = tuple(range(len(args)))

    def tripled(tree: Any) -> Any:
        return tb.tree.map(lambda leaf: 3.0 * leaf, tree)

    if forward:
        f = tb.custom_jvp(lambda *xs: program(*xs))
        f.defjvp(lambda xs, ts: (f(*xs), tripled(tb.jvp(program, xs, ts)[1])))
    else:
        f = tb.custom_vjp(lambda *xs: program(*xs))
        f.defvjp(lambda *xs: (f(*xs), xs), lambda xs, ct: tripled(tb.vjp(program, *xs)[1](ct)))
    g: Function = f
    for name in names:
        g = WRAPPERS[name](g)
    expected = tripled(tb.grad(scalar(program), nums)(*args))

    same(g(*args), program(*args))
    same(tb.grad(scalar(g), nums)(*args), expected)
    same(tb.jit(tb.grad(scalar(g), nums))(*args), expected)
