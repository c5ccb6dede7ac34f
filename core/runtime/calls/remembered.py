"""Public functions that remember which executable a call of a kind has run.

A function of NumPy's API looks at its arguments, chooses axes and dtypes, and calls one staged
function (``staged_functions.py``). Eagerly that takes half as long as the program itself. What it
chooses depends on the types of its arrays and on the values of all other arguments; so the next
call with the same ones runs the same executable at once.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.config.state import state
from tracebridge.core.config.values import on_global_change
from tracebridge.core.errors.filtering import hide_internal_frames, hiding
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.runtime.calls.dispatch import raise_for
from tracebridge.core.runtime.calls.staged_functions import recording
from tracebridge.core.util.caching import register_table

P = ParamSpec("P")
R = TypeVar("R")

MOST = 512  # calls that one function remembers
# What an argument that is no array may be: a value that says all, and equal ones do.
_SIMPLE = frozenset({bool, int, str, type(None), type, float})
_TABLES: list[dict[Any, Any]] = []


def remembered(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a public function whose choices depend on no element of an array.

    Calls outside of traces and blocks with options are remembered if they are one call of a
    staged function with their first arguments, all arrays among them, whose result they return.
    The function itself stays as it is: what users get, its boundary, remembers.
    """
    boundary = functools.partial(_boundary, fn)
    fn.boundary = boundary  # type: ignore[attr-defined]  # read by `hiding`
    return fn


def _boundary(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``fn`` for users; its errors say ``name``."""
    slow: Any = hiding(_without_boundary(fn), name)
    table = register_table(f"calls of {fn.__name__}", {})
    _TABLES.append(table)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if state() is not None:
                return slow(*args, **kwargs)
            try:
                if kwargs:
                    run, n = table[_key(args, kwargs)]
                elif len(args) == 1 and type(args[0]) is Array:
                    run, n = table[args[0]._sig]
                else:
                    run, n = table[
                        tuple([a._sig if type(a) is Array else (type(a), a) for a in args])
                    ]
            except (KeyError, TypeError):
                run, n = None, 0
            # Outside the handler, so that errors of the slow path have no KeyError as context.
            if run is None:
                return _remember(table, slow, args, kwargs)
            try:
                return run(args[0]) if n == 1 else run(*args[:n])
            except XlaRuntimeError as error:
                raise_for(args, name, error)
                raise
        except Exception as error:
            hide_internal_frames(error)
            raise

    del call.boundary  # type: ignore[attr-defined]  # this is it
    return call


def _without_boundary(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, of which `hiding` makes an ordinary boundary."""
    plain = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    plain.__kwdefaults__ = fn.__kwdefaults__
    plain.__module__, plain.__qualname__ = fn.__module__, fn.__qualname__
    return plain


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The key of a call with keywords; without them ``call`` writes the same in line."""
    values = (*args, *kwargs.values())
    kinds = [a._sig if type(a) is Array else (type(a), a) for a in values]
    return len(args), *kwargs, *kinds


def _remember(
    table: dict[Any, Any], slow: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    arrays = [a for a in args if type(a) is Array]
    others = [a for a in (*args, *kwargs.values()) if type(a) is not Array]
    several = len(arrays) + len(others) == len(args) + len(kwargs)
    if not arrays or not several or not all(map(_is_simple, others)):
        return slow(*args, **kwargs)
    with recording() as calls:
        out = slow(*args, **kwargs)
    if len(calls) == 1:
        run, given, result = calls[0]
        n = len(given)
        same = n <= len(args) and all([a is b for a, b in zip(given, args, strict=False)])
        if same and result is out and not any([type(a) is Array for a in args[n:]]):
            if len(table) >= MOST:
                table.clear()
            if kwargs:
                table[_key(args, kwargs)] = run, n
            elif len(args) == 1:
                table[arrays[0]._sig] = run, n
            else:
                kinds = [a._sig if type(a) is Array else (type(a), a) for a in args]
                table[tuple(kinds)] = run, n
    return out


def _is_simple(x: Any) -> bool:
    """Whether an argument is a value of which equal ones mean the same."""
    kind = type(x)
    if kind is tuple:
        return all([type(v) is int for v in x])
    # 0.0 and -0.0 are equal, NaN is equal to nothing.
    return kind in _SIMPLE and (kind is not float or (x == x and x != 0))  # noqa: PLR0124


def _forget() -> None:
    for table in _TABLES:
        table.clear()


on_fork(_forget)


@on_global_change
def _option_changed(name: str, value: object) -> None:
    del name, value
    _forget()
