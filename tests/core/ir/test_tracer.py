"""What traced values say when they are asked for what only arrays have."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import tracebridge as tb
import tracebridge.numpy as tnp
from tracebridge.errors import ConcretizationTypeError

METHODS = (
    "delete",
    "devices",
    "is_deleted",
    "on_device_size_in_bytes",
    "tobytes",
    "tolist",
    "unsafe_buffer_pointer",
)
PROPERTIES = (
    "addressable_shards",
    "committed",
    "global_shards",
    "is_fully_addressable",
    "is_fully_replicated",
)
TRANSFORMATIONS: dict[str, Callable[[Any], Any]] = {
    "jit": lambda f: tb.jit(f)(tnp.ones(3)),
    "vmap": lambda f: tb.vmap(f)(tnp.ones((2, 3))),
    "jvp": lambda f: tb.jvp(f, (tnp.ones(3),), (tnp.ones(3),)),
    "vjp": lambda f: tb.vjp(f, tnp.ones(3)),
}


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_buffers_are_not_there_while_tracing(transformation: str) -> None:
    """Methods and properties that read a buffer raise ConcretizationTypeError, with their name."""

    def f(x: Any) -> Any:
        for name in METHODS:
            with pytest.raises(ConcretizationTypeError, match=rf"{name}\(\) was called"):
                getattr(x, name)()
        with pytest.raises(ConcretizationTypeError, match="addressable_data"):
            x.addressable_data(0)
        for name in PROPERTIES:
            with pytest.raises(ConcretizationTypeError, match=name):
                getattr(x, name)
        return x

    TRANSFORMATIONS[transformation](f)


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("name", ["sharding", "device", "block_until_ready", "copy_to_host_async"])
def test_tracers_lack_what_programs_ask_for_first(transformation: str, name: str) -> None:
    """`hasattr` tells tracers from arrays, and the error of a use shows what to do instead."""

    def f(x: Any) -> Any:
        assert not hasattr(x, name)
        with pytest.raises(AttributeError, match="way out: "):
            getattr(x, name)
        with pytest.raises(AttributeError, match=r"no attribute 'shaarding'$"):
            _ = x.shaarding
        return x

    assert hasattr(tnp.ones(3), name)
    TRANSFORMATIONS[transformation](f)


def test_structs_of_tracers_have_no_place() -> None:
    """A struct can be made like a traced value."""
    structs: list[tb.ShapeDtypeStruct] = []
    tb.jit(lambda x: structs.append(tb.ShapeDtypeStruct.like(x)))(tnp.ones((2, 3)))

    assert [tb.ShapeDtypeStruct((2, 3), "float32")] == structs
    assert structs[0].sharding is None


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_tracers_can_not_be_pickled(transformation: str) -> None:
    """Pickle names the traced value; copy and deepcopy give the value itself."""

    def f(x: Any) -> Any:
        with pytest.raises(ConcretizationTypeError, match="pickle asked for its elements"):
            pickle.dumps([x])
        return copy.copy(x) + copy.deepcopy({"x": x})["x"]

    TRANSFORMATIONS[transformation](f)
