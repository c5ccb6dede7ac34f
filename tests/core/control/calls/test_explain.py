"""The log of explain_cache_misses says which argument changed, and how."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp

X = tnp.ones(3)

Log = Callable[[Callable[[], Any]], list[str]]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    """A function that calls another one and gives the explanations."""

    def explained(call: Callable[[], Any]) -> list[str]:
        caplog.clear()
        with tb.explain_cache_misses(), caplog.at_level(logging.WARNING):
            call()
        return list(caplog.messages)

    return explained


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (X, tnp.ones(4), "x: f32[4] instead of f32[3] (shape (4,) instead of (3,))"),
        (X, tnp.ones(3, int), "x: i32[3] instead of f32[3] (dtype int32 instead of float32)"),
        (1.0, np.float32(1), "x: an array instead of a Python number (weak type False instead"),
        (X, 1.0, "shape () instead of (3,), a Python number instead of an array"),
        ([X], (X,), "the structure of x: different types: now a tuple of 1, before a list of 1"),
        ({"a": [X]}, {"a": [X, X]}, "the structure of x['a']: different lengths: now a list of 2"),
        ({"a": X}, {"a": X + 1, "b": X}, "the structure of x: Dict key mismatch"),
        ({"a": [X, X]}, {"a": [X, X[:2]]}, "because of x['a'][1]: f32[2] instead of f32[3]"),
    ],
    ids=["shape", "dtype", "weak type", "scalar", "types", "lengths", "keys", "leaf"],
)
def test_arguments(before: Any, now: Any, words: str, log: Log) -> None:
    """At the top, and of a function that is called within another one."""
    outer: Any = tb.jit(lambda x, other: x)
    outer(before, X)
    (message,) = log(lambda: outer(now, X))
    assert message.startswith("jit(<lambda>): compiled again, because of ")
    assert words in message

    inner: Any = tb.jit(lambda x, other: x)
    tb.make_jaxpr(lambda x: inner(x, X))(before)
    (message,) = log(lambda: tb.make_jaxpr(lambda x: inner(x, X))(now))
    assert message.startswith("jit(<lambda>): traced again, because of ")
    assert words in message


def test_number_of_arguments(log: Log) -> None:
    """Positional and keyword arguments are told apart."""
    f: Any = tb.jit(lambda x, *more, **options: x)
    f(X)
    (message,) = log(lambda: f(X, X))
    assert "the structure of the arguments: different lengths" in message
    (message,) = log(lambda: f(X, scale=X))
    assert "the structure of the keyword arguments: Dict key mismatch" in message
    (message,) = log(lambda: f(X, X[:2]))
    assert "because of more[0]: f32[2] instead of f32[3]" in message
    (message,) = log(lambda: f(X, scale=X[:2]))
    assert "because of options['scale']: f32[2] instead of f32[3]" in message


def test_static_arguments(log: Log) -> None:
    """By name, with both values; the other arguments are not mentioned."""

    def f(mode: str, x: Any, n: int = 2, *, flag: bool = False) -> Any:
        return x * n if flag else x

    g: Any = tb.jit(f, static_argnums=(0, -1), static_argnames=("mode", "n", "flag"))
    g("a", X, 2)
    (message,) = log(lambda: g("b", X, 2))
    assert message.endswith("because of static argument mode: 'b' instead of 'a'")
    (message,) = log(lambda: g("b", X, 2.0))
    assert message.endswith("because of static argument n: 2.0 instead of 2")
    (message,) = log(lambda: g("b", X, 2, flag=True))
    assert message.endswith("because of static argument flag: True, which was left out before")


def test_options_and_meshes(log: Log) -> None:
    """A changed option is named with both values."""
    f: Any = tb.jit(lambda x: x)
    f(X)
    with tb.default_matmul_precision("float32"):
        (message,) = log(lambda: f(X))
    assert "because of option default_matmul_precision='float32' instead of None" in message


def test_named_axes(log: Log) -> None:
    """A function that is mapped over another axis is traced again."""
    f: Any = tb.jit(lambda x: tb.lax.psum(x, "i"))

    def mapped(n: int) -> Any:
        return tb.vmap(f, axis_name="i")(tnp.ones((n, 2)))

    mapped(2)
    (message,) = log(lambda: mapped(3))
    assert "because of the named axes: {'i': 3} instead of {'i': 2}" in message


def test_functions_that_were_forgotten(log: Log) -> None:
    """An emptied cache is not taken for a new function."""

    def f(x: Any) -> Any:
        return x + 1

    g: Any = tb.jit(f)
    (message,) = log(lambda: g(X))
    assert message.endswith("compiled, because this is its first call")
    g.clear_cache()
    (message,) = log(lambda: g(X))
    assert "its programs were forgotten" in message


def test_new_function_objects(log: Log) -> None:
    """Made by the same lines: the commonest mistake, also within another function."""

    def outer(x: Any) -> Any:
        return tb.jit(lambda y: y * 2)(x)

    first = log(lambda: tb.make_jaxpr(outer)(X))
    second = log(lambda: tb.make_jaxpr(outer)(X))
    assert "traced, because this is its first call" in first[0]
    assert "traced again, because it is a new function object" in second[0]
    assert "test_explain.py" in second[0]


def test_functions_without_code(log: Log) -> None:
    """Builtins are explained like others."""
    f: Any = tb.jit(abs)
    assert ["jit(abs): compiled, because this is its first call"] == log(lambda: f(-1.0))
    (message,) = log(lambda: f(X))
    assert "because of args[0]: f32[3] instead of f32[]" in message


def test_only_calls_of_jit_are_compared(caplog: pytest.LogCaptureFixture) -> None:
    """A function that something else traced too is explained by its own calls alone."""

    def f(x: Any) -> Any:
        return x * 2

    with tb.explain_cache_misses(True), caplog.at_level("WARNING", logger="tracebridge"):
        tb.make_jaxpr(lambda x: tb.checkpoint(f)(x) + tb.jit(f)(x))(np.ones(2, np.float32))
        tb.make_jaxpr(lambda x: tb.checkpoint(f)(x) + tb.jit(f)(x))(np.ones(3, np.float32))

    own = [m for m in caplog.messages if "jit(f)" in m and "traced again" in m]
    assert 1 == len(own)
    assert "f32[3] instead of f32[2]" in own[0]
