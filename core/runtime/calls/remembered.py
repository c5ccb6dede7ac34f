"""Public functions that remember which executable a call of a kind has run.

A function of NumPy's API looks at its arguments, chooses axes and dtypes, and calls one staged
function (``staged_functions.py``). Eagerly that takes half as long as the program itself. What it
chooses depends on the types of its arrays and on the values of all other arguments; so the next
call with the same ones runs the same executable at once.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from tracebridge.core._jaxlib.xla import XlaRuntimeError
from tracebridge.core.config.state import state
from tracebridge.core.config.values import on_global_change
from tracebridge.core.errors.filtering import hide_internal_frames, hiding
from tracebridge.core.errors.user_warnings import warned
from tracebridge.core.runtime.arrays.array import Array, new_array
from tracebridge.core.runtime.backends.clients import on_fork
from tracebridge.core.runtime.calls.dispatch import raise_for
from tracebridge.core.runtime.calls.recording import recording
from tracebridge.core.runtime.calls.replays import is_plain_nest, is_simple, maker_of, replay_of
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.core.tree.tree import flatten
from tracebridge.core.util.caching import register_table

P = ParamSpec("P")
R = TypeVar("R")

BOUNDARY = "boundary"  # which `hiding` looks for
MOST = 512  # calls that one function remembers
_TABLES: list[dict[Any, Any]] = []
_options = [object()]  # another one after each change; calls remember none but those in force


def remembered(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a public function whose choices depend on no element of an array.

    Calls outside of traces and blocks with options are remembered if they are one call of a
    staged function with their first arguments, all arrays among them, whose result they return.
    The function itself stays as it is: what users get, its boundary, remembers.
    """
    setattr(fn, BOUNDARY, functools.partial(_boundary, fn, False))
    return fn


def one_program(fn: Callable[P, R]) -> Callable[P, R]:
    """The same for a function of several steps, which then run as one program.

    It returns an array, or a tuple of arrays.
    """
    setattr(fn, BOUNDARY, functools.partial(_boundary, fn, True))
    return fn


def _boundary(fn: Callable[..., Any], whole: bool, name: str) -> Callable[..., Any]:
    """``fn`` for users; its errors say ``name``."""
    slow: Any = hiding(without_boundary(fn), name)
    first = _whole(slow, fn.__name__) if whole else slow
    table = register_table(f"calls of {fn.__name__}", {})
    nests = register_table(f"calls of {fn.__name__} with lists of arrays", {})
    _TABLES.extend((table, nests))

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if state() is not None:
                return slow(*args, **kwargs)
            every: Any = args
            try:
                run = leaves = None
                if nests:
                    leaves, key = _nest(args, kwargs)
                    run = nests.get(key)
                if run is not None:
                    every, n = leaves, 0
                elif kwargs:
                    run, n = table[_key(args, kwargs)]
                    if n != 1 or not args:
                        every = (*args, *kwargs.values())
                elif len(args) == 1:
                    (a,) = args
                    run, n = table[a._sig if type(a) is Array else None]
                elif len(args) == 2:
                    a, b = args
                    run, n = table[
                        a._sig if (kind := type(a)) is Array else _value(kind, a),
                        b._sig if (kind := type(b)) is Array else _value(kind, b),
                    ]
                else:
                    run, n = table[_kinds(args)]
            except Exception:  # noqa: BLE001 - no such call, or what objects of users raise as keys
                run, n = None, 0
            # Outside the handler, so that errors of the slow path have no KeyError as context.
            if run is None:
                return _remember((table, nests), slow, first, args, kwargs)
            try:
                return run(every[0]) if n == 1 else run(*every[:n]) if n else run(every)
            except XlaRuntimeError as error:
                raise_for(every, name, error)
                raise
        except Exception as error:
            hide_internal_frames(error)
            raise

    delattr(call, BOUNDARY)  # this is it
    return call


def _whole(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``fn`` of arrays by position and of simple values, as one staged function."""
    makers: dict[Any, Any] = {}  # what makes the tuple that calls of a form return

    def body(*xs: Any) -> Any:
        *values, form, named = xs
        arrays = iter(values)
        out = fn(*[next(arrays) if x is ... else x for x in form], **dict(named))
        if isinstance(out, tuple):
            makers[form, named] = maker_of(out)
        return out

    staged = StagedFunction(body, name, exact=True)

    def call(*args: Any, **kwargs: Any) -> Any:
        arrays = [a for a in args if type(a) is Array]
        form = tuple([... if type(a) is Array else a for a in args])
        statics = form, tuple(kwargs.items())
        out = staged(arrays, statics)
        return makers[statics](out) if type(out) is list else out

    return call


def without_boundary(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, of which `hiding` makes an ordinary boundary."""
    plain = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    plain.__kwdefaults__ = fn.__kwdefaults__
    plain.__module__, plain.__qualname__ = fn.__module__, fn.__qualname__
    return plain


def _kinds(args: Sequence[Any]) -> tuple[Any, ...]:
    """The key of a call without keywords of several arguments."""
    return tuple(
        [
            a._sig if (kind := type(a)) is Array
            else (kind, a) if kind is not tuple
            else _value(kind, a)
            for a in args
        ]
    )  # fmt: skip


def _value(kind: type, a: Any) -> tuple[Any, ...]:
    """The key of an argument that is no array: (1, 0) equals (True, 0.0)."""
    return (kind, a) if kind is not tuple else (kind, a, *map(type, a))


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The key of a call with keywords."""
    if len(kwargs) == 1 and len(args) == 1:
        ((name, b),), (a,) = kwargs.items(), args
        if type(a) is Array and (kind := type(b)) is not tuple and kind is not Array:
            return a._sig, name, kind, b
    return len(args), *kwargs, *_kinds((*args, *kwargs.values()))


def _nest(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """The leaves of a call with lists or tuples of arrays, and its key."""
    leaves, treedef = flatten((args, kwargs) if kwargs else args)
    kinds = [a._sig if type(a) is Array else (type(a), a) for a in leaves]
    return leaves, (treedef, len(kwargs), *kinds)


def _remember(
    tables: tuple[dict[Any, Any], dict[Any, Any]],
    slow: Callable[..., Any],
    first: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The result of a new kind of call: of ``first`` if its arguments allow, else of ``slow``."""
    every: Sequence[Any] = (*args, *kwargs.values())
    treedef: Any = None
    key: Any = None
    if not all([type(a) is Array or is_simple(a) for a in every]):
        if not all(map(is_plain_nest, every)):
            return slow(*args, **kwargs)
        every, key = _nest(args, kwargs)
        treedef, first = key[0], slow  # which takes arrays by place
    arrays = [a for a in every if type(a) is Array]
    if not arrays:
        return slow(*args, **kwargs)
    others = [a for a in every if type(a) is not Array]
    if any([type(a) is float for a in others]) or any([type(a) is Array for a in kwargs.values()]):
        first = slow  # as a program it would be compiled for each number, and takes arrays by place
    warnings, options, n, names = warned[0], _options[0], len(args), tuple(kwargs)
    apart = _apart(every) if len({id(a) for a in arrays}) < len(arrays) else every
    with recording() as recorder:
        if treedef is None:
            out = first(*apart[:n], **dict(zip(names, apart[n:], strict=True)))
        else:
            tree = treedef.unflatten(apart)
            nested, named = tree if kwargs else (tree, {})
            out = first(*nested, **named)
    calls = recorder.calls
    again = replay_of(calls[0], apart, out, whole=treedef is not None) if len(calls) == 1 else None
    if apart is not every:  # some functions return an argument as it is
        out = _restored(out, every, apart)
    if warned[0] is not warnings:
        # Every call warns. A program is staged once, which is no way to do that.
        again = None if first is slow else (_slowly(slow, n, names), 0)
    if again is None or options is not _options[0]:
        return out
    table = tables[treedef is not None]
    if len(table) >= MOST:
        table.clear()
    if treedef is not None:
        table[key] = again[0]
    elif kwargs:
        table[_key(args, kwargs)] = again
    elif len(args) == 1:
        table[arrays[0]._sig] = again
    else:
        table[_kinds(args)] = again
    return out


def _slowly(
    slow: Callable[..., Any], n: int, names: tuple[str, ...]
) -> Callable[[tuple[Any, ...]], Any]:
    return lambda every: slow(*every[:n], **dict(zip(names, every[n:], strict=True)))


def _apart(values: Sequence[Any]) -> Sequence[Any]:
    """The same values as different objects: they tell which argument a function has passed on."""
    seen: set[int] = set()
    found: list[Any] = []
    for x in values:
        again = type(x) is Array and id(x) in seen and not x.is_deleted()
        seen.add(id(x))
        found.append(new_array(x._buf, x._sig) if again else x)
    return tuple(found)


def _restored(out: Any, every: Sequence[Any], apart: Sequence[Any]) -> Any:
    """The result with the arguments themselves where it has other objects for them."""
    if isinstance(out, tuple):
        return maker_of(out)([_restored(x, every, apart) for x in out])
    return next((x for x, twin in zip(every, apart, strict=True) if twin is out), out)


def _forget() -> None:
    _options[0] = object()
    for table in _TABLES:
        table.clear()


on_fork(_forget)


@on_global_change
def _option_changed(name: str, value: object) -> None:
    del name, value
    _forget()
