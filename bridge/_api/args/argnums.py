"""Which arguments an option is about: positions and names, resolved once and checked."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracebridge.core.errors.argument_errors import ArgumentTypeError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.debug_info import name_of, parameter_names

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_callable(call: str, fun: Callable[..., object]) -> None:
    """Raise unless ``fun`` is a function that a transformation can take.

    Raises:
        TypeError: not callable, a ``staticmethod`` object, or a generator function.
    """
    if isinstance(fun, staticmethod):
        msg = (
            f"{call}: got a staticmethod object, expected a function. "
            f"Put @staticmethod above the line of {call}"
        )
        raise ArgumentTypeError(msg)
    if not callable(fun):
        msg = f"{call}: got {fun!r} of type {type(fun).__name__}, expected a function"
        raise ArgumentTypeError(msg)
    if _is_generator(fun):
        msg = (
            f"{call}: {name_of(fun)} is a generator function, expected a function that returns. "
            "Return a list of the values instead of yielding them"
        )
        raise ArgumentTypeError(msg)


def _is_generator(fun: Callable[..., object]) -> bool:
    while True:
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif inspect.ismethod(fun):
            fun = fun.__func__
        else:
            return inspect.isgeneratorfunction(fun)


def signature_of(fun: Callable[..., object]) -> inspect.Signature | None:
    """The signature of a callable; None for builtins that have none."""
    try:
        return inspect.signature(fun)
    except (ValueError, TypeError):
        return None


def indices(call: str, option: str, value: Any) -> tuple[int, ...]:
    """Positions as a tuple of ints.

    Raises:
        TypeError: not an int and not a collection of ints.
    """
    try:
        return (operator.index(value),)
    except TypeError:
        pass
    try:
        return tuple([operator.index(i) for i in value])
    except TypeError:
        msg = f"{call}: {option} is {value!r}, expected an int or a sequence of ints"
        raise ArgumentTypeError(msg) from None


def names(call: str, option: str, value: Any) -> tuple[str, ...]:
    """Names as a tuple of strings.

    Raises:
        TypeError: not a string and not a collection of strings.
    """
    if isinstance(value, str):
        return (value,)
    found = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(n, str) for n in found):
        msg = f"{call}: {option} is {value!r}, expected a string or a sequence of strings"
        raise ArgumentTypeError(msg)
    return found


def positional_names(signature: inspect.Signature) -> list[str]:
    """Names of the parameters that can be given by position."""
    return [p.name for p in signature.parameters.values() if p.kind in _POSITIONAL]


def resolve(
    call: str, fun: Callable[..., object], kind: str, argnums: object, argnames: Any
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """``{kind}_argnums`` and ``{kind}_argnames`` of ``fun``, sorted, each without repeats.

    If one of the two is None it is derived from the other by the signature. Negative positions
    count from the last parameter of the signature.

    Raises:
        TypeError: a position is no int or a name is no string.
        ArgumentSpecError: the function has no such argument.
    """
    if argnums is None and argnames is None:
        return (), ()
    nums = None if argnums is None else indices(call, f"{kind}_argnums", argnums)
    argument_names = None if argnames is None else names(call, f"{kind}_argnames", argnames)
    if not nums and not argument_names:
        return (), ()
    signature = signature_of(fun)
    if signature is None:
        if kind == "donate" and argument_names:
            raise ArgumentSpecError(
                f"{call}: {kind}_argnames={argnames!r}, but {name_of(fun)} has no signature that "
                "tells where these arguments are",
                hint=f"use {kind}_argnums",
            )
        return tuple(sorted(set(nums or ()))), tuple(sorted(set(argument_names or ())))
    if nums:
        nums = _checked_positions(call, fun, f"{kind}_argnums", nums, signature)
    if argument_names:
        _check_names(call, fun, f"{kind}_argnames", argument_names, signature)
    parameters = positional_names(signature)
    if nums is None:
        nums = tuple([i for i, name in enumerate(parameters) if name in (argument_names or ())])
    elif argument_names is None:
        by_keyword = {p.name for p in signature.parameters.values() if p.kind in _NAMED}
        argument_names = tuple(
            [
                parameters[i]
                for i in nums
                if 0 <= i < len(parameters) and parameters[i] in by_keyword
            ]
        )
    return tuple(sorted(set(nums))), tuple(sorted(set(argument_names or ())))


def _checked_positions(
    call: str,
    fun: Callable[..., object],
    option: str,
    nums: tuple[int, ...],
    signature: inspect.Signature,
) -> tuple[int, ...]:
    """The positions, none negative where the number of parameters is fixed."""
    kinds = {p.kind for p in signature.parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return nums
    n = len(positional_names(signature))
    for i in nums:
        if not -n <= i < n:
            raise ArgumentSpecError(
                f"{call}: {option} contains {i}, but {name_of(fun)}{signature} takes {n} "
                f"positional arguments",
                expected=f"positions from {-n} to {n - 1}" if n else "no position at all",
            )
    return tuple([i % n for i in nums])


def _check_names(
    call: str,
    fun: Callable[..., object],
    option: str,
    names: tuple[str, ...],
    signature: inspect.Signature,
) -> None:
    parameters = signature.parameters
    known = [p.name for p in parameters.values() if p.kind in _NAMED]
    unknown = [name for name in names if name not in known]
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        # Other names may come in **kwargs; those of parameters without a keyword are a mistake.
        unknown = [name for name in unknown if name in parameters]
    if unknown:
        raise ArgumentSpecError(
            f"{call}: {option} contains {', '.join(map(repr, unknown))}, but "
            f"{name_of(fun)}{signature} has no such argument",
            expected=f"names among {', '.join(map(repr, known))}" if known else "no name at all",
        )


def check_disjoint(
    call: str,
    statics: tuple[tuple[int, ...], tuple[str, ...]],
    donated: tuple[tuple[int, ...], tuple[str, ...]],
) -> None:
    """Raise ArgumentSpecError if an argument is both static and donated."""
    both: list[Any] = [*sorted(set(statics[0]) & set(donated[0]))]
    both += sorted(set(statics[1]) & set(donated[1]))
    if both:
        raise ArgumentSpecError(
            f"{call}: argument {both[0]!r} is both static and donated",
            hint="static arguments are compiled in and have no buffer: donate others",
        )


def derivative_argnums(call: str, argnums: object) -> tuple[int, ...]:
    """The positions that ``grad`` and its kin differentiate, in the order given.

    Raises:
        TypeError: not an int and not a sequence of ints.
        ArgumentSpecError: a position is given twice.
    """
    found = indices(call, "argnums", argnums)
    _check_distinct(call, argnums, found)
    return found


def _check_distinct(call: str, argnums: object, positions: Sequence[int]) -> None:
    """Derivatives by one argument can't be shared out among several places."""
    if len(set(positions)) < len(positions):
        msg = f"{call}: argnums={argnums} names one argument twice"
        raise ArgumentSpecError(msg, hint="name it once, and use its derivative twice")


def argument_names_at(fun: Callable[..., object], positions: Sequence[int]) -> tuple[str, ...]:
    """What messages call the arguments at ``positions``: their parameters, if these are known."""
    known = parameter_names(fun)
    n = len(known)
    return tuple([f"argument {known[i] if -n <= i < n else f'args[{i}]'}" for i in positions])


def check_argument_count(
    call: str, fun: Callable[..., object], argnums: object, highest: int, n_args: int
) -> None:
    """Raise unless the call gives the positional arguments that ``argnums`` names.

    ``highest`` is the number of arguments that are needed.
    """
    if n_args and isinstance(argnums, tuple | list) and any([i < 0 for i in argnums]):
        _check_distinct(f"{call}({name_of(fun)})", argnums, [i % n_args for i in argnums])
    if n_args < highest:
        msg = (
            f"{call}({name_of(fun)}): argnums={argnums} needs at least {highest} positional "
            f"arguments, got {n_args}"
        )
        raise ArgumentSpecError(
            msg, hint="give the arguments to differentiate by position, not by keyword"
        )
