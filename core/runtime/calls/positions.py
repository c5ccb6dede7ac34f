"""Eager calls of functions that take positions, which are one program each.

A slice at a computed position compares the position with 0 and with the end, axis by axis: a dozen
operations. Outside of traces they are one staged function of the arrays and the positions, which
may be numbers: no program is compiled for each of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracebridge.core.config.state import state
from tracebridge.core.dtypes.dtypes import is_float
from tracebridge.core.dtypes.finfo import finfo
from tracebridge.core.errors.filtering import hide_internal_frames, hiding
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.remembered import BOUNDARY, without_boundary
from tracebridge.core.runtime.calls.scalars import scalar_array
from tracebridge.core.runtime.calls.staged_functions import StagedFunction

_LIMIT = 1 << 31  # integers beyond are left to what says that they are too large
_SIMPLE = frozenset({int, bool, type(None)})


def takes_positions(fn: Callable[..., object], places: range) -> None:
    """Let ``fn`` be one program when users call it eagerly.

    Its arguments number ``places`` are arrays, or positions: numbers, or lists of arrays and
    numbers. Others are values that programs are made for.
    """
    setattr(fn, BOUNDARY, functools.partial(_boundary, fn, places))


def _boundary(fn: Callable[..., Any], places: range, name: str) -> Callable[..., Any]:
    """``fn`` for users; its errors say ``name``."""
    slow: Any = hiding(without_boundary(fn), name)
    staged = StagedFunction(functools.partial(_body, fn), fn.__name__)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        taken = _taken_apart(args, kwargs, places) if state() is None else None
        if taken is not None:
            try:
                return staged(*taken)
            except Exception:  # noqa: BLE001 - the function itself says what is wrong
                taken = None
        try:
            return slow(*args, **kwargs)
        except Exception as error:
            hide_internal_frames(error)
            raise

    delattr(call, BOUNDARY)  # this is it
    return call


def _body(fn: Callable[..., Any], *xs: Any) -> Any:
    """The call of ``fn`` that ``_taken_apart`` has seen."""
    *values, form, named = xs
    given = iter(values)
    args: list[Any] = []
    for kind, x in form:
        if kind is Array:
            args.append(next(given))
        else:
            args.append([next(given) for _ in range(x)] if kind is list else x)
    return fn(*args, **{name: x for name, _, x in named})


def _element(x: Any, array: Array) -> Any:
    """A Python number as an element of an array of floats; others are left as they are."""
    aval = array.aval
    if type(x) is int and abs(x) >= _LIMIT:
        return x
    if aval.weak_type or not is_float(aval.dtype) or abs(x) > float(finfo(aval.dtype).max):
        return x
    return scalar_array(x, aval.update(shape=()))


def _taken_apart(
    args: tuple[Any, ...], kwargs: dict[str, Any], places: range
) -> tuple[list[Any], tuple[Any, ...]] | None:
    """Arrays and numbers of a call, and what else makes its program; None of unusual arguments."""
    if len(args) < len(places) or type(args[0]) is not Array:
        return None
    given: list[Any] = []
    form: list[tuple[Any, Any]] = []
    for i, x in enumerate(args):
        kind = type(x)
        if i in places:
            several = kind is list or kind is tuple
            is_written = 0 < i < len(places) - 1 and (kind is float or kind is int)
            given.extend(x if several else (_element(x, args[0]) if is_written else x,))
            form.append((list, len(x)) if several else (Array, None))
        elif kind in _SIMPLE:
            form.append((kind, x))
        elif (kind is tuple or kind is list) and all([type(n) is int for n in x]):
            form.append((tuple, tuple(x)))
        else:
            return None
    if not all([type(x) is Array or (type(x) is int and abs(x) < _LIMIT) for x in given]):
        return None
    if not all([type(x) in _SIMPLE for x in kwargs.values()]):
        return None
    return given, (tuple(form), tuple([(name, type(x), x) for name, x in kwargs.items()]))
