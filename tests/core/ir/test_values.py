"""Literals: constants of traced programs, which user code may take for arrays."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.core.ir.values import Literal
from tracebridge.errors import ArgumentTypeError


def _constant_of_a_trace() -> Any:
    """What code in a traced program gets for a constant without axes."""
    found: list[Any] = []

    @tb.jit
    def program(x: Any) -> Any:
        found.append(tnp.full((), 2.5))
        return x

    program(1.0)
    assert type(found[0]) is Literal
    return found[0]


def test_literals_answer_as_arrays() -> None:
    """What every array can tell, a constant inside a trace tells as well."""
    x, array = _constant_of_a_trace(), tnp.full((), 2.5)

    assert isinstance(x, tb.Array)
    assert array.sharding == x.sharding
    assert array.devices() == x.devices()
    assert array.device == x.device
    assert x.is_fully_addressable
    assert x.is_fully_replicated
    assert x.committed is array.committed
    assert not x.is_deleted()
    assert 2.5 == float(x.block_until_ready())
    assert 2.5 == float(x.addressable_data(0))
    assert 1 == len(x.addressable_shards)
    assert 2.5 == x.tolist()
    assert array.tobytes() == x.tobytes()
    assert "2.50" == f"{x:.2f}"
    assert np.array_equal(2.5, np.from_dlpack(x))


def test_literals_have_no_axis_to_walk() -> None:
    """Iteration over a constant is refused, as over any array without axes."""
    with pytest.raises(ArgumentTypeError):
        list(_constant_of_a_trace())


def test_literals_stay_constants() -> None:
    """A literal that was asked as an array is still a constant of programs."""
    x = _constant_of_a_trace()
    x.block_until_ready()

    assert [] == tb.make_jaxpr(lambda y: x * y)(1.0).consts
    assert 5.0 == float(tb.jit(lambda y: x * y)(2.0))
    assert 2.5 == float(tb.grad(lambda y: x * y)(2.0))


def test_literals_are_held_weakly() -> None:
    """A literal goes with its last strong reference."""
    x = _constant_of_a_trace()
    ref = weakref.ref(x)

    assert x is ref()
    del x
    gc.collect()
    assert ref() is None
