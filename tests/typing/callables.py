"""What a type checker knows about the public functions. Checked by test_typing.py, never run."""

from __future__ import annotations

from typing import Any, assert_type

import tracebridge as tb


def loss(w: tb.Array, x: tb.Array) -> tb.Array:
    """A typed function of two arrays."""
    return w if x.ndim else x


def arguments_are_kept(w: tb.Array) -> None:
    """The transformed functions take what the function takes."""
    assert_type(tb.vmap(loss)(w, x=w), tb.Array)
    assert_type(tb.grad(loss)(w, w), Any)
    assert_type(tb.value_and_grad(loss)(w, w), tuple[Any, Any])
    assert_type(tb.vmap(tb.vmap(loss))(w, w), tb.Array)


def results_are_known(w: tb.Array) -> None:
    """Properties of arrays and results of queries have types."""
    assert_type(w.ndim, int)
    assert_type(tb.process_index(), int)
    assert_type(tb.default_backend(), str)
    assert_type(tb.tree.leaves({"a": w}), list[Any])


def mistakes_are_found(w: tb.Array) -> None:
    """A wrong call is an error before it runs: each line needs its exemption."""
    tb.vmap(loss)(w)  # pyright: ignore[reportCallIssue] - x is missing
    tb.grad(loss)(w, "text")  # pyright: ignore[reportArgumentType] - no array
    tb.value_and_grad(loss)(w, w, w)  # pyright: ignore[reportCallIssue] - one too many
    tb.vmap(3)  # pyright: ignore[reportArgumentType] - no function
