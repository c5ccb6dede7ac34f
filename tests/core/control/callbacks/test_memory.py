"""Callbacks die with the programs that call them, in every form of program."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax

X = np.ones(3, np.float32)
Fun = Callable[[Any], Any]

FORMS: dict[str, Callable[[Fun], Any]] = {
    "eager": lambda f: f(X),
    "jit": lambda f: tb.jit(f)(X),
    "nested jit": lambda f: tb.jit(lambda x: tb.jit(f)(x) + 1)(X),
    "make_jaxpr": lambda f: tb.make_jaxpr(f)(X),
    "aot": lambda f: tb.jit(f).lower(X).compile()(X),
    "grad": lambda f: tb.grad(lambda x: tnp.sum(f(lax.stop_gradient(x)) * x))(X),
    "vmap": lambda f: tb.vmap(f)(X),
    "scan": lambda f: lax.scan(lambda c, _: (f(c), None), X, None, length=2),
    "while": lambda f: lax.while_loop(lambda c: c[0] * 2 < 9, lambda c: f(c) + 1, tnp.ones(3)),
    "condition": lambda f: lax.while_loop(lambda c: f(c)[0] < 3, lambda c: c + 1, tnp.ones(3)),
    "cond": lambda f: lax.cond(True, f, lambda x: x * 2 + 1 - x, X),
    "checkpoint": lambda f: tb.grad(lambda x: tnp.sum(tb.checkpoint(f)(x) * x))(X),
}


@pytest.mark.parametrize("kind", ["pure", "debug"])
@pytest.mark.parametrize("form", FORMS)
def test_callbacks_are_freed(form: str, kind: str) -> None:
    """Programs with functions of their own leave none of the functions behind."""
    alive: list[weakref.ref[Any]] = []

    def once() -> None:
        def host(x: Any) -> Any:
            return np.asarray(x)

        def pure(x: Any) -> Any:
            spec = tb.ShapeDtypeStruct(x.shape, "float32")
            given = lax.stop_gradient(x)
            return tb.pure_callback(host, spec, given, vmap_method="expand_dims")

        def debug(x: Any) -> Any:
            tb.debug.callback(host, x)
            return x

        alive.append(weakref.ref(host))
        FORMS[form](pure if kind == "pure" else debug)

    for _ in range(3):
        once()
    tb.effects_barrier()
    # jaxlib lets go of Python objects with a transfer after its threads have ended with them.
    for _ in range(200):
        gc.collect()
        tb.device_put(X)
        if all(ref() is None for ref in alive):
            break
        time.sleep(0.01)

    assert [ref() for ref in alive] == [None] * 3
