"""Objects whose repr or attributes raise, lists beyond the recursion limit: errors name them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax
from tracebridge.errors import TracebridgeError


class NoRepr:
    """Raises as soon as it is shown."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


class OwnAval:
    """Has an attribute of the engine's name that raises."""

    @property
    def aval(self) -> Any:
        """Raises."""
        raise ValueError("no aval")


def nested(make: Callable[[Any], Any]) -> Any:
    """A container in a container, 5000 times."""
    found = make(())
    for _ in range(5000):
        found = make(found)
    return found


def cyclic() -> list[Any]:
    """A list that contains itself."""
    found: list[Any] = []
    found.append(found)
    return found


OBJECTS: dict[str, Callable[[], Any]] = {
    "deep list": lambda: nested(lambda x: [x]),
    "deep tuple": lambda: nested(lambda x: (x,)),
    "deep dict": lambda: nested(lambda x: {"a": x}),
    "cyclic list": cyclic,
    "no repr": NoRepr,
    "own aval": OwnAval,
}
X = tnp.arange(4.0)
CALLS: dict[str, Callable[[Any], Any]] = {
    "where": lambda b: tnp.where(True, b, 2.0),
    "concatenate": lambda b: tnp.concatenate([b, X]),
    "stack": lambda b: tnp.stack([X, b]),
    "index": lambda b: X[b],
    "index in a tuple": lambda b: X[b,],
    "at": lambda b: X.at[b].set(1.0),
    "set": lambda b: X.at[0].set(b),
    "allclose": lambda b: tnp.allclose(X, b),
    "block": lambda b: tnp.block([b, X]),
    "asarray": tnp.asarray,
    "multiply": lambda b: tnp.multiply(X, b),
    "lax.add": lambda b: lax.add(X, b),
    "reshape": lambda b: X.reshape(b),
    "sum": lambda b: X.sum(axis=b),
    "astype": lambda b: X.astype(b),
    "zeros": tnp.zeros,
    "arange": tnp.arange,
    "einsum": lambda b: tnp.einsum("i,i", X, b),
    "jit": lambda b: tb.jit(lambda v: v)(b),
    "returned by jit": lambda b: tb.jit(lambda v: b)(X),
    "grad": lambda b: tb.grad(lambda v: v)(b),
    "returned by grad": lambda b: tb.grad(lambda v: b)(X[0]),
    "vmap": lambda b: tb.vmap(lambda v: v)(b),
    "typeof": tb.typeof,
    "eval_shape": lambda b: tb.eval_shape(lambda v: v, b),
    "make_jaxpr": lambda b: tb.make_jaxpr(lambda v: v)(b),
    "checkpoint": lambda b: tb.checkpoint(lambda v: v)(b),
    "device_put": tb.device_put,
    "new_ref": tb.new_ref,
    "scan": lambda b: lax.scan(lambda c, _: (c, None), b, None, length=2),
    "cond": lambda b: lax.cond(b, lambda: 1, lambda: 2),
    "operand of cond": lambda b: lax.cond(True, lambda v: v, lambda v: v, b),
    "while_loop": lambda b: lax.while_loop(lambda c: False, lambda c: c, b),
    "switch": lambda b: lax.switch(b, [lambda: 1, lambda: 2]),
    "jvp": lambda b: tb.jvp(lambda v: v, (X,), (b,)),
    "pure_callback": lambda b: tb.pure_callback(lambda v: v, b, X),
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("call", CALLS)
def test_the_error_is_ours(call: str, name: str) -> None:
    """What cannot be an operand is refused by an error of ours, whose text can be read."""
    with pytest.raises(TracebridgeError) as caught:
        CALLS[call](OBJECTS[name]())

    assert str(caught.value)
