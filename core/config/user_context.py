"""Contexts that users make: values of a thread on which traced functions may depend."""

from __future__ import annotations

import itertools
from typing import Any, final

from tracebridge.core.config.scopes import StateScope
from tracebridge.core.config.state import State, settled_state, with_value
from tracebridge.core.errors.config_errors import OptionValueError

_NUMBERS = itertools.count()


@final
class UserContext:
    """A value that is part of what compiled functions are remembered by.

    ``context(value)`` is a context manager, also a decorator, that puts a value in force for the
    current thread; ``context.value`` is the value in force.
    """

    __slots__ = ("_name", "default")

    def __init__(self, default: Any) -> None:
        self._name = f"user context {next(_NUMBERS)}"
        self.default = default

    @property
    def value(self) -> Any:
        """The value in force in this thread."""
        current = settled_state()
        found = None if current is None else current.values.get(self._name)
        return self.default if found is None else found[1]

    def __call__(self, value: object) -> UserScope:
        """Put ``value`` in force in a ``with`` block.

        Raises:
            OptionValueError: the value cannot be hashed.
        """
        try:
            hash(value)
        except TypeError as error:
            msg = f"user context: the value {value!r} of type {type(value).__name__} has no hash"
            raise OptionValueError(msg, hint="use a number, a string or a tuple of them") from error
        return UserScope(self._name, value)

    def __repr__(self) -> str:
        return f"UserContext(value={self.value!r})"


@final
class UserScope(StateScope):
    """A ``with`` block in which a user's context has a value."""

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: Any) -> None:
        super().__init__()
        self._name = name
        self._value = value

    def again(self) -> UserScope:
        """A block like this one, for the next call of a decorated function."""
        return UserScope(self._name, self._value)

    def changed(self, current: State | None) -> State | None:
        # The type is kept beside the value: 1, 1.0 and True are equal in Python.
        return with_value(current, self._name, (type(self._value), self._value))


def make_user_context(default_value: object = None) -> UserContext:
    """A value of a thread on which compiled functions may depend: they are traced for each value.

    Args:
        default_value: the value outside of all blocks.

    Returns:
        An object ``context``: ``context(value)`` is a context manager, ``context.value`` the
        value in force. Values can be hashed.

    >>> import tracebridge as tb
    >>> scale = tb.make_user_context(1)
    >>> @tb.jit
    ... def f(x):
    ...     return x * scale.value
    >>> with scale(3):
    ...     print(f(2.0))
    6.0
    >>> print(f(2.0))
    2.0
    """
    return UserContext(default_value)
