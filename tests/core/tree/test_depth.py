"""Trees that are too deep or contain themselves, and leaf predicates that raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.errors.argument_errors import TreeDepthError
from tracebridge.interpreters import batching


def remaining() -> int:
    """How many calls this thread may nest from here."""
    count = 0

    def deeper() -> None:
        nonlocal count
        count += 1
        deeper()

    with pytest.raises(RecursionError):
        deeper()
    return count


def deep() -> Any:
    found: Any = 1.0
    for _ in range(5000):
        found = [found]
    return found


def cyclic() -> Any:
    found: list[Any] = [1.0]
    found.append(found)
    return found


def knowing_trees():
    """A jitted function that has been called with a tree by name, twice."""
    f = tb.jit(lambda a: 1.0)
    for _ in range(2):
        f(a={"x": 1.0})
    return f


def vmap_beside_registered_types(x: Any) -> Any:
    """Registered types are found by a predicate."""

    class Columns:
        pass

    batching.register_vmappable(Columns, int, int, lambda *_: 0.0, lambda *_: Columns(), None)
    try:
        return tb.vmap(lambda a: 1.0)(x)
    finally:
        batching.unregister_vmappable(Columns)


USES: dict[str, Callable[[Any], Any]] = {
    "flatten": tb.tree.flatten,
    "leaves": tb.tree.leaves,
    "structure": tb.tree.structure,
    "map": lambda x: tb.tree.map(lambda a: a, x),
    "predicate": lambda x: tb.tree.leaves(x, is_leaf=lambda a: a is None),
    "jit": lambda x: tb.jit(lambda a: 1.0)(x),
    "jit by name": lambda x: tb.jit(lambda a: 1.0)(a=x),
    "jit by name that knows trees": lambda x: knowing_trees()(a=x),
    "result of jit": lambda x: tb.jit(lambda: x)(),
    "grad": lambda x: tb.grad(lambda a: 1.0)(x),
    "vmap beside registered types": vmap_beside_registered_types,
    "vmap": lambda x: tb.vmap(lambda a: 1.0)(x),
    "device_put": tb.device_put,
    "asarray": tnp.asarray,
}


@pytest.mark.parametrize("make", [deep, cyclic])
@pytest.mark.parametrize("use", USES)
def test_too_deep(use: str, make: Callable[[], Any]) -> None:
    """A clear error, and the thread can nest calls as before."""
    before = remaining()
    with pytest.raises(TreeDepthError, match="contains itself"):
        USES[use](make())

    assert remaining() == before


def test_a_predicate_that_raises() -> None:
    """Its error comes out and costs nothing."""
    before = remaining()

    def is_leaf(node: Any) -> bool:
        if node == [1.0]:
            raise KeyError
        return False

    nested: Any = [1.0]
    for _ in range(100):
        nested = [nested]
    for _ in range(3):
        with pytest.raises(KeyError):
            tb.tree.leaves(nested, is_leaf=is_leaf)

    assert remaining() == before
