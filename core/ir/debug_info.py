"""What a traced function and its arguments are called: for messages and for program names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final


@final
class DebugInfo:
    """Name of the traced function, where it is defined, and names of its flat arguments."""

    __slots__ = ("_arg_names", "name", "result_names", "where")

    def __init__(
        self,
        name: str,
        where: str = "",
        arg_names: tuple[str, ...] | Callable[[], tuple[str, ...]] = (),
        result_names: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.where = where
        self._arg_names = arg_names
        self.result_names = result_names

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Names of the flat arguments. They may be given as a function: few traces need them."""
        names = self._arg_names
        if callable(names):
            names = self._arg_names = names()
        return names

    def argument(self, index: int) -> str:
        """The name of flat argument ``index``."""
        names = self.arg_names
        return names[index] if index < len(names) else f"argument {index}"


def name_of(fun: Any) -> str:
    """A short name of any callable."""
    while True:
        name = getattr(fun, "__name__", None)
        if isinstance(name, str):
            return name
        inner = getattr(fun, "func", None)
        if inner is None:
            return type(fun).__name__
        fun = inner


def where_is(fun: Any) -> str:
    """``file:line`` of a callable's definition, or an empty string."""
    while hasattr(fun, "__wrapped__"):
        fun = fun.__wrapped__
    code = getattr(getattr(fun, "func", fun), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def parameter_names(fun: Any) -> tuple[str, ...]:
    """Names of the positional parameters of a Python function; empty for other callables.

    Read from the code object: ``inspect.signature`` costs more than tracing a small function.
    """
    while hasattr(fun, "__wrapped__"):
        fun = fun.__wrapped__
    code = getattr(fun, "__code__", None)
    if code is None:
        return ()
    names = code.co_varnames[: code.co_argcount]
    return names if getattr(fun, "__self__", None) is None else names[1:]


NO_DEBUG_INFO = DebugInfo("<unnamed>")
