"""How a call of a staged function that was recorded is run again, from arguments like those."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.scalars import scalar_array
from tracebridge.core.util.caching import BoundedCache

Replay = tuple[Callable[..., Any], int]
"""A function and the number of arguments that it takes, or 0 if it takes the tuple of all."""

MOST_POSITIONAL = 8
_DEPTH = 16
# What an argument that is no array may be: a value that says all, and equal ones do.
_SIMPLE = frozenset({bool, int, str, type(None), type, float})
_FACTORIES: BoundedCache[Any] = BoundedCache("templates of remembered calls", 512)


def is_simple(x: Any) -> bool:
    """Whether an argument is a value of which equal ones mean the same."""
    kind = type(x)
    if kind is tuple:
        return all([type(v) is int for v in x])
    # 0.0 and -0.0 are equal, NaN is equal to nothing.
    return kind in _SIMPLE and (kind is not float or not (math.isnan(x) or x == 0))


def replay_of(
    recorded: tuple[Callable[..., Any], Sequence[Any], Any],
    args: Sequence[Any],
    out: object,
    *,
    whole: bool = False,
) -> Replay | None:
    """How to get ``out`` again from arguments like ``args``; ``whole``: from the tuple of all.

    None if ``out`` is not what the recorded call gave, or not of arguments alone. Of the
    arguments nothing is kept.
    """
    run, given, result = recorded
    finish = None if result is out else _finish(result, out)
    if finish is None and result is not out:
        return None
    places: list[int] = []
    constants: list[Any] = []
    scalars = getattr(run, "scalars", None) or (None,) * len(given)
    for g, aval in zip(given, scalars, strict=True):
        if type(g) is Array:
            places.append(next((i for i, x in enumerate(args) if x is g), -1))
            constants.append(None)
            if places[-1] < 0:
                return None
        elif is_simple(g) or type(g) is float:
            # It follows from what the call is remembered by: an array once, for the program.
            places.append(-1)
            constants.append(g if aval is None else scalar_array(g, aval))
        else:
            return None
    run = getattr(run, "inner", run)
    n = max(places, default=-1) + 1
    if whole or n > MOST_POSITIONAL:
        n = 0
    if n and finish is None and places == [*range(len(given))]:
        return run, n
    key = tuple(places), n, finish is not None
    factory = _FACTORIES.get(key)
    if factory is None:
        factory = _compile_factory(*key)
        _FACTORIES.set(key, factory)
    return factory(run, constants, finish), n


def _compile_factory(places: tuple[int, ...], n: int, finished: bool) -> Any:
    """What makes a function of ``n`` arguments, or of the tuple of all, without a loop."""
    item, parameters = "args[{}]", "args"
    if n:
        item, parameters = "a{}", ", ".join(map("a{}".format, range(n)))
    operands = ", ".join([f"c{k}" if i < 0 else item.format(i) for k, i in enumerate(places)])
    lines = ["def factory(run, constants, finish):"]
    lines += [f"    c{k} = constants[{k}]" for k, i in enumerate(places) if i < 0]
    call = f"finish(run({operands}))" if finished else f"run({operands})"
    lines += [f"    def again({parameters}):", f"        return {call}", "    return again"]
    scope: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<tracebridge remembered call>", "exec"), scope)  # noqa: S102 - the source is made of integers above
    return scope["factory"]


def maker_of(out: tuple[Any, ...]) -> Any:
    """What makes such a tuple, which may have names, of a list."""
    return getattr(type(out), "_make", tuple)


def _finish(result: Any, out: object) -> Callable[[Any], Any] | None:
    """How ``out``, one of the results or a tuple of some, is made of what the call gave.

    In a tuple there may be simple values, which follow from what the call is remembered by.
    """
    results = result if type(result) is list else [result]
    wanted = out if isinstance(out, tuple) else (out,)
    picks = [next((i for i, r in enumerate(results) if r is x), -1) for x in wanted]
    if not all([i >= 0 or is_simple(x) for i, x in zip(picks, wanted, strict=True)]):
        return None
    if not isinstance(out, tuple):
        return operator.itemgetter(picks[0]) if picks[0] >= 0 else None
    make = maker_of(out)
    if result is results and picks == [*range(len(results))]:
        return make
    rest = [None if i >= 0 else x for i, x in zip(picks, wanted, strict=True)]

    def made(given: Any) -> Any:
        xs = given if type(given) is list else (given,)
        return make([x if i < 0 else xs[i] for i, x in zip(picks, rest, strict=True)])

    return made


def is_plain_nest(x: object, depth: int = _DEPTH) -> bool:
    """Whether an argument is an array, a simple value, or lists and tuples of such ones.

    Deeper nests than ``depth`` are not: they may hold themselves.
    """
    if type(x) is list or type(x) is tuple:
        return depth > 0 and all([is_plain_nest(y, depth - 1) for y in x])
    return type(x) is Array or is_simple(x)
