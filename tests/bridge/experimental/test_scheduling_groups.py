"""Groups of operations for XLA's scheduler."""

from __future__ import annotations

import pytest

import tracebridge as tb
from tracebridge.experimental.scheduling_groups import scheduling_group, xla_metadata_call
from tracebridge.experimental.xla_metadata import set_xla_metadata


@scheduling_group("first")
def grouped(x, *, scale=1.0):
    """Any arguments."""
    return scale * tb.lax.sin(x)


def count(fun, text: str) -> int:
    return tb.jit(fun).lower(1.0).as_text().count(text)


def test_operations_of_the_function_are_in_the_group_and_no_others() -> None:
    """Also those of its derivative and of its batches; the values are the function's."""
    mark = 'scheduling_group = "first"'

    assert count(lambda x: tb.lax.cos(grouped(x, scale=2.0)), mark) == 2
    assert count(tb.lax.cos, mark) == 0
    assert count(tb.grad(grouped), mark) > 0
    assert count(lambda x: tb.vmap(grouped)(x + tb.numpy.ones(3)), mark) > 0
    assert float(tb.grad(grouped)(1.0)) == pytest.approx(0.5403023)
    assert grouped.__name__ == "grouped"


def test_groups_nest_and_take_further_attributes() -> None:
    """The inner name stands; attributes of both are there, and those of a block around."""

    @xla_metadata_call(scheduling_group="outer", level=3)
    def fun(x):
        return grouped(x)

    with set_xla_metadata(sure=True):
        text = tb.jit(fun).lower(1.0).as_text()

    assert 'level = "3", scheduling_group = "first", sure = "true"' in text
    assert "outer" not in text
