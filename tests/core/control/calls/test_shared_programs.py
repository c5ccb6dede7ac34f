"""Functions made anew for each call: what their common program keeps, and what it names."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax, tree_util
from tracebridge.experimental import checkify

X = tnp.arange(4.0)


class Held:
    """What a node holds beside its array."""


@tree_util.register_pytree_node_class
class Node:
    """An array and something else."""

    def __init__(self, value: Any, held: Any) -> None:
        self.value, self.held = value, held

    def tree_flatten(self) -> tuple[tuple[Any], Any]:
        """The array, and the rest."""
        return (self.value,), self.held

    @classmethod
    def tree_unflatten(cls, held: Any, children: tuple[Any]) -> Node:
        """The same again."""
        return cls(*children, held)


def _out_of_jit(held: Any) -> Callable[[Any], Any]:
    return lambda x: tb.jit(lambda y: Node(2 * y, held))(x).value


def _into_jit(held: Any) -> Callable[[Any], Any]:
    return lambda x: tb.jit(lambda node: 2 * node.value)(Node(x, held))


def _of_checkpoint(held: Any) -> Callable[[Any], Any]:
    return lambda x: tb.checkpoint(lambda y: Node(2 * y, held))(x).value


def _of_scan(held: Any) -> Callable[[Any], Any]:
    def step(node: Node, _: Any) -> tuple[Node, None]:
        return Node(2 * node.value, node.held), None

    return lambda x: lax.scan(step, Node(x, held), None, length=1)[0].value


WAYS = [_out_of_jit, _into_jit, _of_checkpoint, _of_scan]


@pytest.mark.parametrize("way", WAYS)
def test_programs_keep_nothing_that_nodes_of_users_hold(way: Any) -> None:
    """What is beside the arrays of a node ends with the function that had it."""
    held = Held()
    seen = weakref.ref(held)

    np.testing.assert_array_equal(2 * np.arange(4.0), tb.jit(way(held))(X))
    del held
    gc.collect()

    assert seen() is None


@pytest.mark.parametrize("way", [_out_of_jit, _of_checkpoint])
def test_results_may_be_nodes_that_hold_ndarrays(way: Any) -> None:
    """Structures that cannot be compared are no reason for two calls to fail."""

    def twice(x: Any) -> Any:
        return way(np.arange(3))(x) + way(np.arange(3))(x)

    np.testing.assert_array_equal(4 * np.arange(4.0), tb.jit(twice)(X))


def _log_here(x: Any) -> Any:
    return tnp.log(x)


def _log_there(x: Any) -> Any:
    return tnp.log(x)


@pytest.mark.parametrize("transform", [tb.jit, tb.checkpoint])
@pytest.mark.parametrize("partial", [False, True])
def test_errors_name_the_function_that_a_closure_calls(transform: Any, partial: bool) -> None:
    """Closures of one line may call functions of different lines."""

    def made(inner: Any) -> Any:
        if partial:
            return transform(functools.partial(lambda f, x: f(x), inner))
        return transform(lambda x: inner(x))

    found: list[Any] = []
    for inner in (_log_here, _log_there):
        checked = checkify.checkify(lambda x, f=inner: made(f)(x), errors=checkify.float_checks)
        found.append(checked(-1.0)[0].get())

    assert [name in text for name, text in zip(("here", "there"), found, strict=True)] == [True] * 2


class Policy:
    """A policy that is an object."""

    def __call__(self, *_: object, **__: object) -> bool:
        """Keep nothing."""
        return False

    method = __call__


def _policy(made: object, *_: object, **__: object) -> bool:
    del made
    return False


def _wrapped() -> Any:
    kept = [False]

    @functools.wraps(_policy)
    def policy(*_: object, **__: object) -> bool:
        return kept[0]

    return policy


MAKERS = {
    "partial": lambda: functools.partial(_policy, 1),
    "object": Policy,
    "wrapped": _wrapped,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_policies_made_anew_are_not_kept(make: Callable[[], Any]) -> None:
    """A program that many calls share would remember something for each policy."""
    seen: list[Any] = []
    for _ in range(3):
        policy = make()
        seen.append(weakref.ref(policy))

        def loss(x: Any, policy: Any = policy) -> Any:
            return tb.checkpoint(lambda y: tnp.sin(tnp.sin(y)).sum(), policy=policy)(x)

        tb.make_jaxpr(tb.grad(loss))(X)
        del policy, loss
    gc.collect()

    assert [None] * 3 == [ref() for ref in seen]


def test_functions_may_wrap_themselves() -> None:
    """A circle of wrapped functions has an end."""

    def double(x: Any) -> Any:
        return 2 * x

    double.__wrapped__ = double  # type: ignore[attr-defined]  # as a mistaken decorator does
    outer = tb.jit(lambda x: tb.jit(lambda y: double(y))(x) + tb.checkpoint(double)(x))

    assert (4.0, 4.0) == (float(outer(1.0)), float(tb.grad(outer)(1.0)))
    assert 2.0 == tb.jit(double)(1.0)
