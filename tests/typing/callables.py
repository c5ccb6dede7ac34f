"""What a type checker knows about the public functions. Checked by test_typing.py, never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import tracebridge as tb
from tracebridge.stages import Lowered


def loss(w: tb.Array, x: tb.Array) -> tb.Array:
    """A typed function of two arrays."""
    return w if x.ndim else x


@tb.jit
def scaled(x: tb.Array, by: float = 1.0) -> tb.Array:
    """A compiled function."""
    return x if by else x


@tb.jit(static_argnames="n")
def repeated(x: tb.Array, n: int) -> list[tb.Array]:
    """A compiled function with options."""
    return [x] * n


class Model:
    """Compiled functions are methods too."""

    @tb.jit
    def score(self, x: tb.Array) -> tb.Array:
        """Without options."""
        return x

    @tb.jit(static_argnums=0)
    def label(self, x: tb.Array) -> tuple[tb.Array, int]:
        """With options."""
        return x, 1


@tb.custom_gradient
def square(x: tb.Array) -> tuple[tb.Array, Callable[[Any], Any]]:
    """The rule is no part of the result."""
    return x, lambda g: g


def arguments_are_kept(w: tb.Array) -> None:
    """The transformed functions take what the function takes."""
    assert_type(tb.vmap(loss)(w, x=w), tb.Array)
    assert_type(tb.grad(loss)(w, w), Any)
    assert_type(tb.value_and_grad(loss)(w, w), tuple[Any, Any])
    assert_type(tb.vmap(tb.vmap(loss))(w, w), tb.Array)
    assert_type(tb.hessian(loss)(w, w), Any)
    assert_type(square(w), tb.Array)


def compiled_functions_keep_types(w: tb.Array) -> None:
    """Called, decorated with and without options, as methods, and inside other transformations."""
    assert_type(tb.jit(loss)(w, x=w), tb.Array)
    assert_type(tb.jit(loss, donate_argnums=0)(w, w), tb.Array)
    assert_type(scaled(w, by=2.0), tb.Array)
    assert_type(repeated(w, n=2), list[tb.Array])
    assert_type(Model().score(w), tb.Array)
    assert_type(Model().label(w), tuple[tb.Array, int])
    assert_type(tb.vmap(tb.jit(loss))(w, w), tb.Array)
    assert_type(tb.jit(tb.vmap(loss))(w, w), tb.Array)
    assert_type(tb.jit(loss).lower(w, w), Lowered)


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
    tb.jit(loss)(w)  # pyright: ignore[reportCallIssue] - x is missing
    scaled(w, by="two")  # pyright: ignore[reportArgumentType] - no number
    repeated(w)  # pyright: ignore[reportCallIssue] - n is missing
    Model().score()  # pyright: ignore[reportCallIssue] - x is missing
    tb.jit(loss, static_argnum=1)  # pyright: ignore[reportCallIssue] - no such option
    tb.hessian(loss)(w)  # pyright: ignore[reportCallIssue] - x is missing


def misspelt_names_are_found(w: tb.Array) -> None:
    """The lazy package hides no name from a type checker, and invents none."""
    tb.jitt(loss)  # pyright: ignore[reportAttributeAccessIssue] - it is jit
    tb.numpy.sinn(w)  # pyright: ignore[reportAttributeAccessIssue] - it is sin
    tb.lax.scann(w)  # pyright: ignore[reportAttributeAccessIssue] - it is scan
    tb.jit(loss).lowr(w)  # pyright: ignore[reportAttributeAccessIssue] - it is lower
