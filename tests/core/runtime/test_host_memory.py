"""Memory of the host: nothing holds an ndarray that was copied, or constants that nobody needs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax

SIZE = 1 << 16

TRANSFERS: dict[str, Callable[[Any], Any]] = {
    "asarray": tnp.asarray,
    "array": tnp.array,
    "device_put": tb.device_put,
    "device_put to a mesh": lambda c: tb.device_put(
        c, tb.sharding.NamedSharding(tb.make_mesh((1,), ("x",)), tb.sharding.PartitionSpec("x"))
    ),
    "operand": lambda c: tnp.add(c, 1),
    "operator": lambda c: tnp.ones(()) * c,
    "argument": tb.jit(lambda x: x + 1),
    "scan": lambda c: lax.scan(lambda a, x: (a + x, None), 0.0, c)[0],
    "make_jaxpr": lambda c: tb.make_jaxpr(lambda x: x + np.array(c))(1.0),
}


@pytest.mark.parametrize("name", TRANSFERS)
def test_an_ndarray_that_was_copied_is_free(name: str) -> None:
    """Once the call has returned nobody of ours holds it, without another call."""
    host = np.ones(SIZE, np.float32)
    alive = weakref.ref(host)

    made = TRANSFERS[name](host)
    del host

    assert alive() is None
    del made


BORROWS: dict[str, Callable[[Any], Any]] = {
    "from_dlpack": tb.dlpack.from_dlpack,
    "device_put": lambda c: tb.device_put(c, may_alias=True),
}


@pytest.mark.parametrize("name", BORROWS)
@pytest.mark.parametrize("deleted", [True, False])
def test_borrowed_memory_goes_with_the_array(name: str, deleted: bool) -> None:
    """What an array had borrowed is free after ``delete``, or with the next call of the engine."""
    host = np.ones(SIZE, np.float32)
    alive = weakref.ref(host)

    array = BORROWS[name](host)
    del host
    if deleted:
        array.delete()
    else:
        del array
        tnp.add(1, 2)

    assert alive() is None


def closing_over(table: Any) -> dict[str, Callable[[Any], Any]]:
    """Functions of a scalar that use ``table``."""
    return {
        "jit": lambda x: (x * table).sum(),
        "grad": tb.grad(lambda x: (x * table).sum()),
        "cond": lambda x: lax.cond(x > 0, lambda x: (x * table).sum(), lambda x: x, x),
        "scan": lambda x: lax.scan(lambda a, _: ((a * table).sum(), None), x, None, length=2)[0],
        "while_loop": lambda x: lax.while_loop(lambda a: a < 3, lambda a: (a * table).sum(), x),
        "vmap": lambda x: tb.vmap(lambda a: (a * table).sum())(x[None])[0],
        "jit of jit": tb.jit(lambda x: (x * table).sum()),
    }


@pytest.mark.parametrize("name", closing_over(None))
@pytest.mark.parametrize("stage", ["lower", "compile"])
def test_stages_keep_one_copy_of_a_constant(name: str, stage: str) -> None:
    """The program has its own copy on the device; the ndarray goes with the function."""
    before = {id(a) for a in tb.live_arrays()}

    def make() -> Any:
        table = np.ones(SIZE, np.float32)
        made = tb.jit(closing_over(table)[name]).lower(1.0)
        return (made.compile() if stage == "compile" else made), weakref.ref(table)

    made, alive = make()
    gc.collect()

    assert alive() is None
    large = [a for a in tb.live_arrays() if id(a) not in before and a.size >= SIZE]
    assert 1 == len(large)
    if stage == "compile":
        made(1.0)
    assert "func" in made.as_text() if stage == "lower" else made.as_text()
