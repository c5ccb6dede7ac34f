"""Functions of ``to_tf`` as arguments of a ``tf.function``.

For an object that says nothing TensorFlow goes to the end of its ``__wrapped__`` and traces with
what is there: with the function of arrays, which knows nothing of tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import tensorflow as tf

F = TypeVar("F", bound=Callable[..., Any])


@final
class _ThisFunction(tf.types.experimental.TraceType):  # pyright: ignore[reportUntypedBaseClass] - TensorFlow has no stubs for it
    """The type of one function. TensorFlow keeps it with the graph, and not the function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._ref = weakref.ref(function)
        self._hash = hash(self._ref)

    def is_subtype_of(self, other: Any) -> bool:
        return self == other

    def most_specific_common_supertype(self, others: Sequence[Any]) -> _ThisFunction | None:
        return self if all([self == other for other in others]) else None

    def placeholder_value(self, placeholder_context: Any) -> Any:
        return self._ref()

    def __eq__(self, other: object) -> bool:
        # References whose function has ended are equal to themselves only.
        return isinstance(other, _ThisFunction) and self._ref == other._ref

    def __hash__(self) -> int:
        return self._hash


def as_itself(function: F) -> F:
    """The function, which a ``tf.function`` takes as it is."""
    ref = weakref.ref(function)

    def tracing_type(context: object) -> Any:
        found = ref()
        assert found is not None  # it is asked
        return _ThisFunction(found)

    function.__tf_tracing_type__ = tracing_type  # type: ignore[attr-defined]  # TensorFlow's protocol
    return function
