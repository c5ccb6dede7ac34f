"""Axes along which programs can be divided: shards give what the whole gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge._derived.flow import Division, Split, divisions_of, is_divided, shard_avals
from tracebridge.core.errors.base import TracebridgeError
from tracebridge.core.interpreters.staging import stage
from tracebridge.core.ir.debug_info import DebugInfo
from tracebridge.core.ir.jaxpr import Jaxpr
from tracebridge.tree_util import tree_leaves

pytestmark = pytest.mark.torch


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = tnp.einsum("bqhd,bkhd->bhqk", q, k)
    return tnp.einsum("bhqk,bkhd->bqhd", tnp.tanh(scores), v)


def layer_norm(x: Any, g: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / tnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * g


def convolution(x: Any, w: Any) -> Any:
    return tb.lax.conv_general_dilated(x, w, (1,), "SAME")


@tb.custom_vjp
def ruled(x: Any) -> Any:
    return x * 2


ruled.defvjp(lambda x: (ruled(x), None), lambda _, g: (g / tnp.max(tnp.abs(g), axis=0),))

# Function, shapes, the ways to divide it, and the ways to divide its gradient.
CASES: dict[str, tuple[Any, list[tuple[int, ...]], list[Any], list[Any]]] = {
    "layer": (
        lambda x, w, b: tb.nn.gelu(x @ w + b),
        [(4, 2), (2, 6), (6,)],
        [((0, None, None), (0,)), ((None, 1, 0), (1,))],
        [((0, None, None), (0, None, None)), ((None, 1, 0), (None, 1, 0))],
    ),
    "product": (
        lambda x, w: x @ w,
        [(4, 2), (2, 6)],
        [((0, None), (0,)), ((1, 0), (None,)), ((None, 1), (1,))],
        # The cotangent is a function of the result here: a sum of terms has none.
        [((0, None), (0, None)), ((None, 1), (None, 1))],
    ),
    "gram": (lambda x: x @ x.T, [(4, 6)], [((1,), (None,))], []),
    "scaled": (
        lambda x: tnp.sum(x * 3, axis=0) / 2,
        [(4, 6)],
        [((0,), (None,)), ((1,), (0,))],
        [((1,), (1,))],
    ),
    "means": (lambda x: tnp.tanh(x - x.mean(0)), [(4, 6)], [((1,), (1,))], [((1,), (1,))]),
    "softmax": (lambda x: tb.nn.softmax(x), [(4, 6)], [((0,), (0,))], [((0,), (0,))]),
    "log_softmax": (lambda x: tb.nn.log_softmax(x), [(4, 6)], [((0,), (0,))], [((0,), (0,))]),
    "norm": (layer_norm, [(4, 6), (6,)], [((0, None), (0,))], [((0, None), (0, None))]),
    "attention": (
        attention,
        [(2, 3, 4, 5)] * 3,
        [
            ((0, 0, 0), (0,)),
            ((1, None, None), (1,)),
            ((2, 2, 2), (2,)),
            ((None, None, 3), (3,)),
            ((None, 1, 1), (None,)),
        ],
        [
            ((0, 0, 0), (0, 0, 0)),
            ((1, None, None), (1, None, None)),
            ((2, 2, 2), (2, 2, 2)),
            ((None, None, 3), (None, None, 3)),
        ],
    ),
    "convolution": (
        convolution,
        [(2, 4, 8), (6, 4, 3)],
        [((0, None), (0,)), ((1, 1), (None,)), ((None, 0), (1,))],
        [((0, None), (0, None)), ((None, 0), (None, 0))],
    ),
    "orders": (
        lambda x: tnp.sort(x, axis=1)[:, ::-1] * tnp.argmax(x, axis=1)[:, None],
        [(4, 6)],
        [((0,), (0,))],
        [],
    ),
    "moved": (
        lambda x: (
            tnp.pad(tnp.cumsum(x.reshape(x.shape[0], 2, 3), axis=1), ((0, 0), (1, 0), (0, 0))).T
        ),
        [(4, 6)],
        [((0,), (2,))],
        [((0,), (0,))],
    ),
    "joined": (
        lambda x, y: tnp.concatenate([x, y], axis=1)[:, 1:],
        [(4, 2), (4, 3)],
        [((0, 0), (0,))],
        [((0, 0), (0, 0))],
    ),
    "rule": (ruled, [(4, 6)], [((0,), (0,)), ((1,), (1,))], [((1,), (1,))]),
    # Whatever reads a size, or counts along an axis, or is the same in all processes.
    "size": (lambda x: x * x.shape[0], [(4, 6)], [((1,), (1,))], [((1,), (1,))]),
    "fixed": (lambda x: x.reshape(4, 6) * 2, [(4, 6)], [], []),
    "count": (lambda x: x * tnp.arange(x.shape[1]), [(4, 6)], [((0,), (0,))], [((0,), (0,))]),
    "table": (
        lambda x: x * np.arange(6.0, dtype="float32"),
        [(4, 6)],
        [((0,), (0,))],
        [((0,), (0,))],
    ),
    "whole result": (lambda x, w: (x * 2, w * 2), [(4, 6), (1,)], [], []),
    "bias of a sum": (
        lambda x, w, b: x @ w + b,
        [(4, 4), (4, 2), (2,)],
        [((0, None, None), (0,)), ((None, 1, 0), (1,))],
        [((0, None, None), (0, None, None)), ((None, 1, 0), (None, 1, 0))],
    ),
    "twice": (lambda x: x[:, None] * x[None, :], [(4,)], [], []),
    "empty": (lambda x: tnp.reshape(x * 2, (0, 9)), [(0, 3, 3)], [], []),
}


def gradient(f: Any) -> Any:
    """Gradients by all arguments, for cotangents that are functions of the results."""

    def of(*xs: Any) -> Any:
        ys, back = tb.vjp(f, *xs)
        return back(tb.tree_util.tree_map(lambda y: y * 0.5 + 1, ys))

    return of


def traced(f: Any, avals: Any) -> Jaxpr:
    return stage(lambda *xs: tree_leaves(f(*xs)), avals, DebugInfo("f"))


def cut(xs: Any, ins: Any, rows: range) -> list[Any]:
    """The shards of arguments."""
    return [x if d is None else np.take(x, rows, d) for x, d in zip(xs, ins, strict=True)]


def can_be(f: Any, program: Jaxpr, division: Division, sizes: Any) -> bool:
    """Whether the programs of all shards are the same."""
    for n in sizes:
        try:
            shard = traced(f, shard_avals(program.in_avals, [(division, n)]))
        except TracebridgeError:
            return False
        if not is_divided(program, shard, [(division, n)]):
            return False
    return True


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("name", list(CASES))
def test_shards(name: str, order: int) -> None:
    """Divided programs give parts or terms of the results, and no others are divided."""
    f, shapes, *expected = CASES[name]
    f = gradient(f) if order else f
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    program = traced(f, [tb.typeof(x) for x in xs])
    found: list[Split] = []
    calls = [xs]
    for division in divisions_of(program):
        ins = division.split.ins
        n = next(x.shape[d] for x, d in zip(xs, ins, strict=True) if d is not None)
        half = -(-n // 2)
        if can_be(f, program, division, (half, n - half)):
            found.append(division.split)
            calls += [cut(xs, ins, range(half)), cut(xs, ins, range(half, n))]
    # All in one program: most of the time is the compiler's.
    whole, *parts = tb.jit(lambda calls: [tree_leaves(f(*xs)) for xs in calls])(calls)
    for split, one, other in zip(found, parts[::2], parts[1::2], strict=True):
        for y, a, b, d in zip(whole, one, other, split.outs, strict=True):
            joined = a + b if d is None else np.concatenate([a, b], d)
            np.testing.assert_allclose(joined, y, rtol=2e-4, atol=2e-5)

    assert sorted(expected[order], key=str) == sorted(map(tuple, found), key=str)


def test_of_other_programs() -> None:
    """A constant, a parameter, an operand or a result that differs makes another program."""
    x = tb.typeof(tnp.ones((4, 6)))
    program = traced(lambda x: tnp.sum(x * 3, axis=1), [x])
    (division,) = [d for d in divisions_of(program) if d.split.ins == (0,)]
    sizes = [(division, 2)]
    shard = shard_avals([x], sizes)

    assert is_divided(program, traced(lambda x: tnp.sum(x * 3, axis=1), shard), sizes)
    for other in (
        lambda x: tnp.sum(x * 4, axis=1),
        lambda x: tnp.sum(x + 3, axis=1),
        lambda x: tnp.sum(x * x, axis=1),
        lambda x: tnp.sum(x * 3, axis=1) * 2,
        lambda x: tnp.max(x * 3, axis=1),
    ):
        assert not is_divided(program, traced(other, shard), sizes)
    assert not is_divided(program, traced(lambda x: tnp.sum(x * 3, axis=1), [x]), sizes)
