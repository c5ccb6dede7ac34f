"""What a type checker knows about values in rules. Checked by test_typing.py, never run."""

from __future__ import annotations

from typing import Any, assert_type

from tracebridge.core.interpreters.staged_rules import BatchInfo
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.rule_contexts import BatchContext, LoweringContext
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.values import Literal, Value
from tracebridge.core.lowering.context import LoweringContext as Lowering
from tracebridge.core.runtime.arrays.array import Array


def kinds(array: Array, tracer: Tracer, literal: Literal) -> tuple[Value, ...]:
    """The three kinds of value are values."""
    return array, tracer, literal


def number(x: float) -> Value:
    """Numbers are none."""
    return x  # type: ignore[return-value] - the point of the test


def missing(x: Value | None) -> Value:
    """What may be missing is none."""
    return x  # type: ignore[return-value] - the point of the test


def members(x: Value) -> None:
    """Values have a type and the operators of arrays."""
    assert_type(x.aval, ShapedArray)
    assert_type(x.shape, tuple[Any, ...])
    assert_type(2.0 * x + x, Value)
    assert_type(x > 0, Value)


def contexts(info: BatchInfo, builder: Lowering) -> tuple[BatchContext, LoweringContext]:
    """The contexts that the interpreters give to rules have what rules may ask of them."""
    return info, builder
