"""Names for parts of a program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any, TypeVar

from tracebridge._api.args.argnums import check_callable
from tracebridge._api.args.wraps import named_like
from tracebridge.core.config.scope_stack import Change
from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.filtering import api_boundary
from tracebridge.core.ir.debug_info import name_of
from tracebridge.core.ir.name_scopes import enter, leave_one_of

F = TypeVar("F", bound=Callable[..., Any])


class NameScope(ContextDecorator):
    """What ``named_scope`` gives: a context manager, also a decorator."""

    __slots__ = ("_name", "_open")

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[Change] = []

    def __enter__(self) -> None:
        self._open.append(enter((self._name,)))

    def __exit__(self, *_: object) -> None:
        leave_one_of(self._open)


def named_scope(name: str) -> NameScope:
    """Name the operations inside a ``with`` block, for profiles and program texts.

    Args:
        name: the name; nested scopes are joined by ``/``.

    Raises:
        TypeError: the name is no string.
        ArgumentTypeError: ``name`` is no string.

    >>> import tracebridge as tb
    >>> @tb.jit
    ... def layer(x):
    ...     with tb.named_scope("activation"):
    ...         return tb.lax.tanh(x)
    >>> 'activation/tanh' in layer.lower(1.0).as_text(debug_info=True)
    True
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be unchecked
        msg = f"named_scope: name is {name!r} of type {type(name).__name__}, expected a string"
        raise ArgumentTypeError(msg)
    return NameScope(name)


def named_call(fun: F, *, name: str | None = None) -> F:
    """A function like ``fun`` whose operations are named, for profiles and program texts.

    Args:
        fun: any function.
        name: the name; that of ``fun`` by default.

    >>> import tracebridge as tb
    >>> sine = tb.named_call(tb.lax.sin, name="first")
    >>> 'first/sin' in tb.jit(sine).lower(1.0).as_text(debug_info=True)
    True
    """
    check_callable("named_call", fun)
    scope = name_of(fun) if name is None else name
    named_scope(scope)

    @named_like(fun)
    def named(*args: object, **kwargs: object) -> Any:
        with NameScope(scope):
            return fun(*args, **kwargs)

    return api_boundary(named)  # type: ignore[return-value]  # a wrapper with the signature of fun
