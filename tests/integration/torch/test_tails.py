"""The two stages of a backward program give what the program gives."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.lax as lax
import tracebridge.numpy as tnp
from tests.equations import equations_of
from tracebridge._derived.tails import WORTH, bytes_of, split_tails

pytestmark = pytest.mark.torch

N, B = 96, 2


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def layers(ws, x):
    for w in ws:
        x = tnp.tanh(x @ w)
    return x


def tied(ws, x):
    return layers([ws[0], ws[1], ws[0], ws[1].T], x)


def embedding(ws, x):
    i = tnp.argsort(x[0])[:B]
    return ws[0][i] @ ws[1].T


def outer(ws, x):
    return tnp.stack([x[0] @ w @ x[1] for w in ws])


def mixed(ws, x):
    a, b = ws
    return tnp.where(x > 0, x @ a, tnp.exp(x @ b) * 0.1) + tnp.max(x @ a, axis=-1, keepdims=True)


def jitted(ws, x):
    return tb.jit(layers)(ws, tb.jit(tnp.cos)(x))


def remembered(ws, x):
    return tb.checkpoint(layers)(ws, x)


def narrow(ws, x):
    return layers([w.astype(tnp.bfloat16) for w in ws], x.astype(tnp.bfloat16))


SPLIT = [layers, tied, embedding, outer, mixed, jitted, narrow]


def backward(f, n=2):
    """The program of all gradients, and arguments for it."""
    ws = [normal(N, N, seed=i) / 10 for i in range(n)]
    x = normal(B, N, seed=9)
    out = tb.eval_shape(f, ws, x)
    ct = normal(*out.shape, seed=8).astype(out.dtype)
    run = lambda *args: tb.vjp(f, list(args[:n]), args[n])[1](args[n + 1])[0]
    return tb.make_jaxpr(run)(*ws, x, ct).jaxpr, [*ws, x, ct]


def evaluate(jaxpr, args):
    return tb.jit(tb.core.jaxpr_as_fun(jaxpr.as_closed()))(*args)


@pytest.mark.parametrize("f", SPLIT, ids=lambda f: f.__name__)
def test_two_stages(f):
    """The gradients are the same, and values for later take less memory than they."""
    jaxpr, args = backward(f)
    tails = split_tails(jaxpr, [0, 1], [0, 1])
    expected = evaluate(jaxpr, args)

    assert tails is not None
    assert {0, 1} == set(tails.last)
    kept = evaluate(tails.first, args)
    gradient = N * N * 4
    assert sum([bytes_of(a) for a in tails.first.out_avals]) <= WORTH * 2 * gradient
    env = [*args, *kept]
    for k, (program, places) in tails.last.items():
        (found,) = evaluate(program, [env[p] for p in places])
        np.testing.assert_allclose(found, expected[k], rtol=1e-4, atol=1e-4)


def scaled(ws, x):
    """Gradients of the size of what they are made of."""
    return x[0] * tnp.sin(ws[0]) * ws[1]


def looped(ws, x):
    """One loop gives both gradients."""
    return lax.fori_loop(0, 3, lambda _, y: tnp.tanh(y * ws[0]) + ws[1], x[:1] + ws[0])


def same(ws, x):
    """One value is both gradients."""
    return x @ (ws[0] + ws[1])


@pytest.mark.parametrize("f", [scaled, looped, same, remembered], ids=lambda f: f.__name__)
def test_not_split(f):
    """Programs where nothing would be gained."""
    jaxpr, _ = backward(f)

    assert split_tails(jaxpr, [0, 1], [0, 1]) is None


def test_no_work_is_done_twice():
    """A contraction is in one of the stages only."""
    jaxpr, _ = backward(layers, 4)
    tails = split_tails(jaxpr, range(4), range(4))

    count = lambda j: len(equations_of(j, "dot_general"))
    assert count(jaxpr) == count(tails.first) + sum([count(p) for p, _ in tails.last.values()])


def test_single_gradients_are_not_split():
    """The turn of the only one is the first."""
    jaxpr, _ = backward(layers)

    assert split_tails(jaxpr, [1], [0, 1]) is None
