"""Static arguments: splitting them off a call, and the keys under which calls are remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from tracebridge._api.argnums import positional_names, signature_of
from tracebridge.core.errors.tracer_errors import NonHashableStaticArgumentError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of

_PLAIN = frozenset({int, bool, str, bytes, type(None)})


def static_key(value: Any) -> Any:
    """A hashable key of a static argument; tells 1, 1.0 and True apart, and 0.0 and -0.0."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is tuple:
        return tuple([static_key(v) for v in value])
    if kind is float or kind is complex:
        return kind, repr(value)
    return kind, value


def check_hashable(call: str, argument: str, value: Any) -> None:
    """Raise NonHashableStaticArgumentError unless ``value`` can be part of a key."""
    try:
        hash(value)
    except TypeError as error:
        raise NonHashableStaticArgumentError(value, argument=argument, call=call) from error


@final
class Splitter:
    """Splits the static arguments of ``fun`` off a call."""

    __slots__ = ("_fun", "_layouts", "_parameters", "call", "names", "nums")

    def __init__(
        self, call: str, fun: Any, nums: tuple[int, ...], names: tuple[str, ...]
    ) -> None:
        self.call = f"{call}({name_of(fun)})"
        self.nums = nums
        self.names = frozenset(names)
        self._fun = fun
        self._layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._parameters: list[str] | None = None

    def layout(self, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Static and dynamic positions of a call with ``n`` positional arguments."""
        found = self._layouts.get(n)
        if found is None:
            # A position beyond the call belongs to an argument given by keyword or by default.
            static = sorted({i if i >= 0 else i + n for i in self.nums if -n <= i < n})
            dynamic = [i for i in range(n) if i not in static]
            found = self._layouts[n] = (tuple(static), tuple(dynamic))
        return found

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]:
        """``(function of the dynamic arguments, dynamic args, dynamic kwargs, key)``.

        Raises:
            NonHashableStaticArgumentError: names the argument.
        """
        if not self.nums and not self.names:
            return self._fun, args, kwargs, ()
        static, dynamic = self.layout(len(args))
        constants = [args[i] for i in static]
        named = {k: v for k, v in kwargs.items() if k in self.names} if kwargs else {}
        key: Any = tuple([static_key(v) for v in constants])
        if named:
            key = (key, *[(k, static_key(named[k])) for k in sorted(named)])
        try:
            hash(key)
        except TypeError:
            self._explain(static, constants, named)
            raise
        rest = {k: v for k, v in kwargs.items() if k not in named} if named else kwargs
        bound = bind_statics(self._fun, len(args), static, constants, named)
        # The number of positional arguments tells calls apart whose static values agree.
        return bound, tuple([args[i] for i in dynamic]), rest, (len(args), key)

    def _explain(
        self, static: tuple[int, ...], constants: list[Any], named: dict[str, Any]
    ) -> None:
        for i, value in zip(static, constants, strict=True):
            check_hashable(self.call, self.parameter(i), value)
        for name, value in named.items():
            check_hashable(self.call, repr(name), value)

    def parameter(self, position: int) -> str:
        """The name of a positional argument for messages."""
        if self._parameters is None:
            signature = signature_of(self._fun)
            self._parameters = [] if signature is None else positional_names(signature)
        known = self._parameters
        return f"{position} ({known[position]!r})" if position < len(known) else str(position)


def bind_statics(
    fun: Any, n: int, static: tuple[int, ...], constants: list[Any], named: dict[str, Any]
) -> Callable[..., Any]:
    """``fun`` as a function of its other arguments; ``n`` is the number of positional ones."""

    def bound(*dynamic: Any, **kwargs: Any) -> Any:
        fixed, free = iter(constants), iter(dynamic)
        args = [next(fixed) if i in static else next(free) for i in range(n)]
        return fun(*args, **named, **kwargs)

    bound.__name__ = name_of(fun)
    return bound


def check_all_given(call: str, option: str, nums: tuple[int, ...], n_args: int) -> None:
    """Raise ArgumentSpecError if a call does not give the positional arguments ``nums``."""
    missing = [i for i in nums if not -n_args <= i < n_args]
    if missing:
        raise ArgumentSpecError(
            f"{call}: {option}={nums}, but the call has {n_args} positional arguments",
            hint="give these arguments by position, or name them in the option for names",
        )
