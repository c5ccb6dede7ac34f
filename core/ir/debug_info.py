"""What a traced function and its arguments are called: for messages and for program names."""

from __future__ import annotations

from typing import Any, final


@final
class DebugInfo:
    """Name of the traced function, where it is defined, and names of its flat arguments."""

    __slots__ = ("arg_names", "name", "result_names", "where")

    def __init__(
        self,
        name: str,
        where: str = "",
        arg_names: tuple[str, ...] = (),
        result_names: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.where = where
        self.arg_names = arg_names
        self.result_names = result_names

    def argument(self, index: int) -> str:
        """The name of flat argument ``index``."""
        return self.arg_names[index] if index < len(self.arg_names) else f"argument {index}"


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
    fun = getattr(fun, "func", fun)
    code = getattr(getattr(fun, "__wrapped__", fun), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


NO_DEBUG_INFO = DebugInfo("<unnamed>")
