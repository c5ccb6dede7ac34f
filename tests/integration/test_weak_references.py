"""Objects of the engine that programs hold on to can be held weakly, and go when nothing uses them.

Caches of other libraries keep arrays and tracers alike by weak references.
"""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp


def _transformed(transform: Callable[[Any], Any]) -> list[Any]:
    """Weak references to the arguments that a function got under ``transform``."""
    seen: list[Any] = []

    def fun(x: Any) -> Any:
        seen.append(weakref.ref(x))
        assert seen[-1]() is x
        return tnp.sum(x * x)

    transform(fun)
    return seen


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: tb.jit(f)(tnp.ones(3)),
    "grad": lambda f: tb.grad(f)(tnp.ones(3)),
    "jvp": lambda f: tb.jvp(f, (tnp.ones(3),), (tnp.ones(3),)),
    "vmap": lambda f: tb.vmap(f)(tnp.ones((2, 3))),
    "linearize": lambda f: tb.linearize(f, tnp.ones(3)),
    "checkpoint": lambda f: tb.checkpoint(f)(tnp.ones(3)),
    "hessian": lambda f: tb.hessian(f)(tnp.ones(3)),
    "jit of vmap of grad": lambda f: tb.jit(tb.vmap(tb.grad(f)))(tnp.ones((2, 3))),
    "scan": lambda f: tb.lax.scan(lambda c, x: (c + f(x), None), 0.0, tnp.ones((4, 3))),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_tracers_are_held_weakly(transform: Callable[[Any], Any]) -> None:
    """A tracer can be held weakly, whatever made it, and does not outlive its trace."""
    seen = _transformed(transform)
    gc.collect()

    assert seen
    assert [None] * len(seen) == [ref() for ref in seen]


def test_results_of_transformations_are_held_weakly() -> None:
    """Pullbacks, linear functions, programs and stages go with their last strong reference."""
    x = tnp.ones(3)
    makers: list[Callable[[], Any]] = [
        lambda: tb.vjp(tnp.sin, x)[1],
        lambda: tb.linearize(tnp.sin, x)[1],
        lambda: tb.linear_transpose(lambda v: 2.0 * v, x),
        lambda: tb.make_jaxpr(tnp.sin)(x),
        lambda: tb.jit(lambda v: v + 1.0).trace(x),
        lambda: tb.jit(lambda v: v + 1.0).lower(x),
        lambda: tb.jit(lambda v: v + 1.0).lower(x).compile(),
        lambda: tb.sharding.PartitionSpec("x"),
        lambda: tb.custom_derivatives.SymbolicZero(tb.typeof(x)),
    ]
    for make in makers:
        made = make()
        ref = weakref.ref(made)

        assert made is ref()
        del made
        gc.collect()
        assert ref() is None


def test_held_objects_still_pickle() -> None:
    """Room for weak references changes nothing of pickling."""
    spec = tb.sharding.PartitionSpec("x", None)

    assert spec == pickle.loads(pickle.dumps(spec))
