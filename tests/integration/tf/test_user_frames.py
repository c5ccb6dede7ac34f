"""Errors under ``to_tf`` show the frames of the user."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors import filtering
from tracebridge.tf import to_tf

T = tf.ones(3)


def of_user(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def of_ours(*_: Any, **__: Any) -> Any:
    return tnp.ones(3) + tnp.ones(4)


def in_backward(f: Callable[..., Any]) -> Any:
    g = tb.custom_vjp(lambda x: x)
    g.defvjp(lambda x: (x, None), f)
    with tf.GradientTape() as tape:
        tape.watch(T)
        y = to_tf(g)(T)
    return tape.gradient(y, T)


CALLS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "to_tf": lambda f: to_tf(f)(T),
    "keywords": lambda f: to_tf(f)(x=T),
    "tf.function": lambda f: tf.function(to_tf(f))(T),
    "inside tf.function": lambda f: tf.function(lambda x: to_tf(f)(x), autograph=False)(T),
    "backward": in_backward,
}


@pytest.fixture(autouse=True)
def _filtering_on() -> Iterator[None]:
    before = filtering.mode
    filtering.set_mode("auto")
    yield
    filtering.set_mode(before)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("function", [of_user, of_ours])
def test_errors_under_to_tf_show_the_users_frames(name: str, function: Any) -> None:
    """No frame of the engine; eagerly none of TensorFlow either."""
    with pytest.raises((ZeroDivisionError, tb.errors.BroadcastError)) as caught:
        CALLS[name](function)

    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [] == [f for f in frames if filtering.is_internal_file(f.filename)]
    if name in {"to_tf", "keywords"}:
        assert [] == [f for f in frames if "/tensorflow/" in f.filename]
    assert function.__name__ == frames[-1].name


def test_autograph_leaves_the_engine_alone() -> None:
    """A function made inside a tf.function: what TensorFlow reports has no line of the engine."""
    with pytest.raises(Exception, match="in user code") as caught:
        tf.function(lambda x: to_tf(of_user)(x))(T)

    lines = [line for line in str(caught.value).splitlines() if "File " in line]
    assert [] == [line for line in lines if __file__ not in line]
