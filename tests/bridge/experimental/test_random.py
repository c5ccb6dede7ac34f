"""Generators with a state: the numbers are those of the keys that they count off."""

from __future__ import annotations

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import random
from tracebridge.errors import ArgumentTypeError, ArgumentValueError
from tracebridge.experimental.random import StatefulPRNG, stateful_rng


def test_draws_are_those_of_folded_keys() -> None:
    """Draw number i takes the key with i folded in; the parameters' shapes are the default."""
    rng = stateful_rng(42)
    keys = iter([random.fold_in(random.key(42), i) for i in range(8)])
    bounds = np.array([[1.0], [2.0]], np.float32)

    assert bool((next(keys) == rng.key()).all())
    assert bool((random.split(next(keys), (2, 3)) == rng.key((2, 3))).all())
    np.testing.assert_array_equal(random.uniform(next(keys), (4,)), rng.random(4))
    expected = random.uniform(next(keys), (2, 1), minval=-1, maxval=bounds)
    np.testing.assert_array_equal(expected, rng.uniform(-1, bounds))
    expected = 2.0 + random.normal(next(keys), (2, 3)) * 0.5
    np.testing.assert_array_equal(expected, rng.normal(2.0, 0.5, (2, 3)))
    np.testing.assert_array_equal(random.randint(next(keys), (5,), 0, 9), rng.integers(9, size=5))
    found = rng.integers(np.array([0, 5]), 9, dtype="uint8")
    assert ("uint8", (2,)) == (str(found.dtype), found.shape)
    assert "float16" == str(rng.normal(size=2, dtype="float16").dtype)
    assert "rbg" in str(stateful_rng(0, impl="rbg").key().dtype)


def test_compiled_functions_draw_anew_in_each_call() -> None:
    """By an argument, by a closure, in loops; as in eager code."""
    plain, rng, other = (stateful_rng(7) for _ in range(3))
    expected = [float(plain.uniform()) for _ in range(7)]
    closing = tb.jit(lambda: rng.uniform())
    taking = tb.jit(lambda rng: rng.uniform())

    assert expected[:3] == [float(closing()) for _ in range(3)]
    assert expected[3:5] == [float(taking(rng)) for _ in range(2)]
    _, drawn = tb.lax.scan(lambda c, _: (c, other.uniform()), None, None, length=7)
    np.testing.assert_array_equal(np.float32(expected), drawn)
    made = tb.jit(lambda seed: stateful_rng(seed).uniform())
    assert expected[0] == float(made(7))


def test_children_are_independent() -> None:
    """vmap maps over those of split, spawn gives a list; both draw from the same keys."""
    listed, split, again = (stateful_rng(3) for _ in range(3))
    children = split.split(3)
    expected = [[float(c.uniform()) for _ in range(2)] for c in listed.spawn(3)]
    twice = tb.vmap(lambda rng, x: tnp.stack([x + rng.uniform(), rng.uniform()]))

    np.testing.assert_array_equal(np.float32(expected), twice(children, np.zeros(3, np.float32)))
    assert 6 == len({float(x) for row in expected for x in row})
    assert (2, 3) == again.split((2, 3))._base_key.shape
    with pytest.raises(ArgumentValueError, match="spawn"):
        children.key()


def test_seeds() -> None:
    """Outside of traced functions the system chooses one; trees and printing know generators."""
    assert float(stateful_rng().random()) != float(stateful_rng().random())
    assert repr(stateful_rng(0)).startswith("StatefulPRNG(_base_key=")
    assert isinstance(tb.tree.map(lambda x: x, stateful_rng(0)), StatefulPRNG)
    with pytest.raises(ArgumentTypeError, match="seed"):
        tb.jit(lambda: stateful_rng().random())()
