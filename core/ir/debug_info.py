"""What a traced function and its arguments are called: for messages and for program names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import CellType, FunctionType, MethodType
from typing import Any, cast, final

# Flags of code objects: inspect.CO_VARARGS and CO_VARKEYWORDS, without that import.
_VARARGS, _VARKEYWORDS = 0x04, 0x08


@final
class DebugInfo:
    """Name of the traced function, where it is defined, and names of its flat arguments."""

    __slots__ = ("_arg_names", "_result_names", "name", "traced_for", "where")

    def __init__(
        self,
        name: str,
        where: str = "",
        arg_names: tuple[str, ...] | Callable[[], tuple[str, ...]] = (),
        result_names: tuple[str, ...] | Callable[[], tuple[str, ...]] = (),
        traced_for: str = "jit",
    ) -> None:
        self.name = name
        self.traced_for = traced_for
        self.where = where
        self._arg_names = arg_names
        self._result_names = result_names

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Names of the flat arguments. They may be given as a function: few traces need them."""
        names = self._arg_names
        if callable(names):
            names = self._arg_names = names()
        return names

    @property
    def label(self) -> str:
        """The name of the function, and what it was given to; for messages."""
        given_to = self.traced_for
        if given_to == "jit":
            return self.name
        # Both functions of a while_loop have a word of their own.
        given_to = "while_loop" if given_to.startswith("while_") else given_to
        return f"{self.name} (given to {given_to})"

    @property
    def func_name(self) -> str:
        """The name of the function."""
        return self.name

    @property
    def func_src_info(self) -> str:
        """The name of the function, and where it is defined."""
        return f"{self.name} at {self.where}" if self.where else self.name

    @property
    def func_filename(self) -> str | None:
        """The file in which the function is; None where it is not known."""
        return self.where.rpartition(":")[0] or None

    @property
    def func_lineno(self) -> int | None:
        """The line at which the function begins; None where it is not known."""
        line = self.where.rpartition(":")[2]
        return int(line) if line.isdecimal() else None

    @property
    def result_paths(self) -> tuple[str, ...]:
        """Names of the flat results, where they are known; given as those of the arguments are."""
        names = self._result_names
        if callable(names):
            names = self._result_names = names()
        return names

    def name_results(self, names: Callable[[], tuple[str, ...]]) -> None:
        """Say what the flat results are called, as soon as the trace has shown their structure."""
        self._result_names = names

    def settled_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of arguments and results; what they are made of is let go."""
        return self.arg_names, self.result_paths

    def argument(self, index: int) -> str:
        """The name of flat argument ``index``."""
        names = self.arg_names
        return names[index] if index < len(names) else f"argument {index}"

    def __repr__(self) -> str:
        names = f"arg_names={self.arg_names}, result_paths={self.result_paths}"
        return f"DebugInfo({self.traced_for!r}, {self.func_src_info!r}, {names})"


def name_of(fun: object) -> str:
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
    *_, fun = _layers(fun)
    code = getattr(getattr(fun, "func", fun), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _layers(fun: Any) -> Iterator[Any]:
    """A callable, the one that it wraps, and so on to the innermost one; in a circle each once."""
    passed: set[int] = set()
    while True:
        passed.add(id(fun))
        yield fun
        if not hasattr(fun, "__wrapped__") or id(fun.__wrapped__) in passed:
            return
        fun = fun.__wrapped__


def callees(fun: Any, depth: int = 3) -> tuple[Any, ...]:
    """Where the functions are that a closure, a partial function or a method holds.

    Closures of one line that compute the same may call functions of different lines.
    """
    *_, fun = _layers(fun)
    held: list[Any] = []
    if isinstance(fun, functools.partial):
        held = [fun.func, *fun.args, *fun.keywords.values()]
    elif isinstance(fun, MethodType):
        held = [fun.__self__, fun.__func__]
    elif isinstance(fun, FunctionType):
        held = [_content(cell) for cell in fun.__closure__ or ()]
    found: list[Any] = []
    for other in held:
        if isinstance(other, FunctionType | MethodType | functools.partial):
            found.append((where_is(other), callees(other, depth - 1) if depth else ()))
        elif callable(other):
            found.append(f"{type(other).__module__}.{type(other).__qualname__}")
    return tuple(found)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned yet
        return None


class Parameters(tuple[str, ...]):  # noqa: SLOT001 - a tuple takes no slots with content
    """Names of positional parameters, and what ``*args`` and ``**kwargs`` are called.

    ``named`` are the parameters that can be given by keyword.
    """

    rest: str = "args"
    keywords: str = ""
    named: frozenset[str] = frozenset()

    def at(self, index: int) -> str:
        """What positional argument ``index`` is called."""
        n = len(self)
        if index < n:
            return self[index]
        # Where the parameters are not known, or are too few, arguments are counted from the first.
        return f"{self.rest}[{index - n if self.named else index}]"

    def keyword(self, name: str) -> str:
        """What a keyword argument is called."""
        return name if name in self.named or not self.keywords else f"{self.keywords}[{name!r}]"

    def only(self, positions: Sequence[int]) -> Parameters:
        """The names of some positional arguments."""
        kept = Parameters([self.at(i) for i in positions])
        kept.keywords, kept.named = self.keywords, self.named
        return kept


def parameter_names(fun: Any) -> Parameters:
    """Names of the parameters of a callable; empty where they are not known.

    A function that binds some arguments of the one that it wraps says by ``free_parameters()``
    which are left. Others are read from the code object: ``inspect.signature`` costs more than
    tracing a small function.
    """
    for layer in _layers(fun):
        fun = layer
        if hasattr(fun, "__wrapped__") and hasattr(fun, "free_parameters"):
            return cast("Parameters", fun.free_parameters())
    if isinstance(fun, functools.partial):
        return _free_parameters(fun)
    skipped = 0 if getattr(fun, "__self__", None) is None else 1
    code = getattr(fun, "__code__", None)
    if code is None:
        code = getattr(getattr(type(fun), "__call__", None), "__code__", None)  # noqa: B004 - its code
        skipped = 1
    if code is None:
        return Parameters()
    n_named = code.co_argcount + code.co_kwonlyargcount
    variadic = iter(code.co_varnames[n_named:])
    names = Parameters(code.co_varnames[skipped : code.co_argcount])
    names.named = frozenset(code.co_varnames[:n_named])
    if code.co_flags & _VARARGS:
        names.rest = next(variadic)
    if code.co_flags & _VARKEYWORDS:
        names.keywords = next(variadic)
    return names


def _free_parameters(fun: functools.partial[Any]) -> Parameters:
    """The parameters that a partial application leaves open."""
    inner = parameter_names(fun.func)
    names = inner[len(fun.args) :]
    # Behind an argument that is given by keyword the others need keywords too.
    given = next((i for i, name in enumerate(names) if name in fun.keywords), len(names))
    found = Parameters(names[:given])
    found.rest, found.keywords, found.named = inner.rest, inner.keywords, inner.named
    return found


NO_DEBUG_INFO = DebugInfo("<unnamed>")
