"""What the engine keeps for all users of a number cannot be deleted by one of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge import lax

# Some of these give the engine's own scalar.
RESULTS: dict[str, Callable[[], Any]] = {
    "stop_gradient": lambda: lax.stop_gradient(2.0),
    "scan": lambda: lax.scan(lambda c, _: (c, None), 2.0, None, length=0)[0],
    "while": lambda: lax.while_loop(lambda c: c < 0, lambda c: c, 2.0),
    "fori": lambda: lax.fori_loop(0, 0, lambda i, c: c, 2.0),
    "jit": lambda: tb.jit(lambda: 2.0)(),
    "grad": lambda: tb.grad(lambda v: v * 2.0)(1.0),
    "asarray": lambda: tnp.asarray(2.0),
    "device_put": lambda: tb.device_put(2.0),
}


DELETE_ALL = """
import numpy as np
import tracebridge as tb, tracebridge.numpy as tnp

def work():
    x = tnp.arange(4.0)
    y = [x * 2.0 + 1.0, x.sum(), x[1], x[1:3], x.at[0].set(2.0), tnp.linspace(0, 1, 5)]
    return [np.array(a) for a in (*y, tb.grad(lambda v: (v * 2.0).sum())(x), x[np.array([0, 1])])]

expected = work()
x = tnp.ones(3)
for array in tb.live_arrays():
    array.delete()
assert x.is_deleted()
for a, b in zip(expected, work(), strict=True):
    np.testing.assert_array_equal(a, b)
print("works on")
"""


def test_deleting_all_living_arrays(subprocess_environment: dict[str, str]) -> None:
    """The engine works on: what it keeps is not among them."""
    done = subprocess.run(
        [sys.executable, "-c", DELETE_ALL],
        check=True, capture_output=True, text=True, timeout=120, env=subprocess_environment,
    )  # fmt: skip

    assert done.stdout == "works on\n"


@pytest.mark.parametrize("name", RESULTS)
def test_deleting_a_result(name: str) -> None:
    """The number is as good as before for everyone else."""
    RESULTS[name]().delete()

    assert float(RESULTS[name]()) == 2.0
    np.testing.assert_array_equal(np.asarray(tnp.ones(2) * 2.0), [2.0, 2.0])


def test_own_arrays_are_listed_and_deleted() -> None:
    """An array of one number is the user's if the user made it."""
    x = tnp.array(2.0)

    assert any([a is x for a in tb.live_arrays()])
    x.delete()
    assert x.is_deleted()


@pytest.mark.parametrize("read", [np.asarray, lambda x: x.tolist(), lambda x: x.item(0)])
def test_a_donated_array_that_was_read(read: Callable[[Any], Any]) -> None:
    """It cannot be read again, and keeps nothing; an ndarray that is held keeps its values."""
    x = tnp.arange(4096.0)
    held = read(x)
    tb.jit(lambda v: v + 1, donate_argnums=0)(x).block_until_ready()

    with pytest.raises(tb.errors.DeletedArrayError, match="donated"):
        np.asarray(x)
    assert getattr(x, "_host", None) is None
    np.testing.assert_array_equal(held, read(tnp.arange(4096.0)))
