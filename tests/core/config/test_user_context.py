"""Contexts that users make: compiled functions are traced for each value."""

from __future__ import annotations

import threading

import pytest

import tracebridge as tb
from tracebridge.errors import OptionValueError


def test_traced_for_each_value():
    """A new value traces again, a value seen before does not."""
    context = tb.make_user_context(default_value=1)
    calls = []

    @tb.jit
    def f(x):
        calls.append(context.value)
        return x * context.value

    assert 2.0 == f(2.0)
    for value, expected in [(3, 6.0), (5, 10.0), (3, 6.0)]:
        with context(value):
            assert expected == f(2.0)
            assert value == context.value
    assert 2.0 == f(2.0)
    assert [1, 3, 5] == calls


def test_equal_numbers_of_other_types_are_other_values():
    """1, 1.0 and True are told apart."""
    context = tb.make_user_context()
    f = tb.jit(lambda x: x + len(type(context.value).__name__))
    got = []
    for value in (1, 1.0, True):
        with context(value):
            got.append(float(f(0.0)))
    assert [3.0, 5.0, 4.0] == got


def test_blocks_nest_and_decorate():
    """The innermost block counts, two contexts are independent, options stay."""
    one, two = tb.make_user_context("a"), tb.make_user_context("b")

    @one("decorated")
    def inner():
        return one.value, two.value

    with one("x"), two("y"), one("z"), tb.enable_x64():
        assert ("z", "y") == (one.value, two.value)
        assert ("decorated", "y") == inner()
        assert "float64" == tb.lax.dtype(1.0).name
    assert ("a", "b") == (one.value, two.value)
    assert "UserContext(value='a')" == repr(one)


def test_in_loops_and_derivatives():
    """Bodies of loops and differentiated functions see the value as well."""
    context = tb.make_user_context(1.0)

    def f(x):
        return tb.lax.fori_loop(0, 3, lambda i, y: y * context.value, x)

    g = tb.jit(tb.grad(f))
    got = []
    for value in (2.0, 3.0, 2.0):
        with context(value):
            got.append(float(g(1.0)))
    assert [8.0, 27.0, 8.0] == got
    assert 1.0 == g(1.0)


def test_threads_have_their_own_value():
    """A block changes nothing for other threads."""
    context = tb.make_user_context(0)
    seen = []
    with context(1):
        thread = threading.Thread(target=lambda: seen.append(context.value))
        thread.start()
        thread.join()
    assert [0] == seen


def test_values_need_a_hash():
    """A list is refused where it is given."""
    with pytest.raises(OptionValueError, match="has no hash"):
        tb.make_user_context()([1])
