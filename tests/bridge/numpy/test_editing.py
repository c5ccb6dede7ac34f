"""insert and delete: what depends on positions is computed, whatever kind of number they are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import monitoring

SHAPES = ((4,), (2, 3))


@pytest.mark.parametrize("shape", SHAPES)
def test_insert_puts_rows_where_numpy_does(shape: tuple[int, ...]) -> None:
    """At one position or several, known or traced, from either end, in the order of the rows."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for axis in (None, *range(len(shape))):
        size = x.size if axis is None else shape[axis]
        positions: list[Any] = [0, -1, [size], [size, 0, size // 2, -size, 0, size]]
        for at, value in itertools.product(positions, (-1.0, np.array([-2.0]))):
            expected = np.insert(x, at, value, axis)
            np.testing.assert_array_equal(expected, tnp.insert(x, at, value, axis))
            traced = tb.jit(lambda x, at, v=value, a=axis: tnp.insert(x, at, v, a))
            np.testing.assert_array_equal(expected, traced(x, np.asarray(at)))


def test_insert_of_many_rows_at_one_position() -> None:
    """They stay together, in their order; none of them leave the array as it is."""
    x = np.arange(4.0, dtype=np.float32)
    for at, number in ((1, 3), ([4], 2), ([2], 0)):
        values = np.arange(number, dtype=np.float32) + 7
        np.testing.assert_array_equal(np.insert(x, at, values), tnp.insert(x, at, values))
    grown = tnp.insert(x, np.array([3, 1, 3, 1]), np.arange(4.0, dtype=np.float32) + 10)
    assert [0, 11, 13, 1, 2, 10, 12, 3] == grown.tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_delete_of_one_row(shape: tuple[int, ...]) -> None:
    """It is the one that NumPy removes, whether the position is known or traced."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for axis in (None, *range(len(shape))):
        size = x.size if axis is None else shape[axis]
        for at in {0, size - 1, -1, -size, size // 2}:
            expected = np.delete(x, at, axis)
            np.testing.assert_array_equal(expected, tnp.delete(x, at, axis))
            traced = tb.jit(lambda x, at, a=axis: tnp.delete(x, at, a))
            np.testing.assert_array_equal(expected, traced(x, at))


def test_positions_out_of_bounds() -> None:
    """Known ones are refused."""
    for function, at in ((tnp.delete, 4), (tnp.delete, -5)):
        with pytest.raises(IndexError, match="delete"):
            function(np.arange(4), at)
    for at in (5, -5):
        with pytest.raises(IndexError, match="insert"):
            tnp.insert(np.arange(4), at, 1)


def test_positions_compile_no_program_again() -> None:
    """A position is an argument of the program, not a part of it; so is a tolerance."""
    compiled: list[str] = []

    def listen(event: str, seconds: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    x = tnp.arange(5.0)
    calls = (
        lambda i: tnp.delete(x, i),
        lambda i: tnp.insert(x, i, 2.0),
        lambda i: tnp.isclose(x, x + 0.01, 0.002 * i + 0.001),
        lambda i: tnp.allclose(x, x + 0.01, rtol=0.002 * i + 0.001, atol=0.1 * i),
    )
    for call in calls:
        call(1)  # the first call compiles
    monitoring.register_event_duration_secs_listener(listen)
    try:
        for call, i in itertools.product(calls, (0, 2, 3)):
            call(i)
    finally:
        monitoring.unregister_event_duration_listener(listen)
    assert [] == compiled


def test_keys_are_put_in_like_numbers() -> None:
    keys, key = tb.random.split(tb.random.key(0), 3), tb.random.key(9)
    words, word = np.asarray(tb.random.key_data(keys)), np.asarray(tb.random.key_data(key))
    for at in (1, -3, [2], [0, 2]):
        for run in (tnp.insert, tb.jit(lambda x, _, v, at=at: tnp.insert(x, at, v))):
            made = run(keys, at, key)
            expected = np.insert(words, at, word, 0)
            np.testing.assert_array_equal(expected, tb.random.key_data(made))
