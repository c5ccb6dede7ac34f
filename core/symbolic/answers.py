"""Answers about dimensions: those that hold for all values of the variables, or errors without."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracebridge.core.errors.filtering import is_called_by_engine
from tracebridge.core.errors.shape_errors import InconclusiveDimensionError
from tracebridge.core.errors.user_warnings import warn_user


def decide(a: Any, symbol: str, b: Any) -> bool:
    """The answer to ``a symbol b``, of ``<``, ``<=``, ``>`` and ``>=``.

    Raises:
        InconclusiveDimensionError: it depends on the values of the variables.
    """
    difference = a - b
    if symbol in {"<=", "<"}:
        difference = -difference
    least = 1 if symbol in {"<", ">"} else 0
    if isinstance(difference, int):
        return difference >= least
    low, high = difference.scope.bounds(difference)
    if low >= least:
        return True
    if high < least:
        return False
    raise undecided(f"{a} {symbol} {b}", difference, asked=f"'{a}' {symbol} '{b}'")


def decide_equal(a: Any, b: Any) -> bool | None:
    """Whether two dimensions are equal; None if that depends on the values of the variables."""
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    low, high = difference.scope.bounds(difference)
    if low > 0 or high < 0:
        return False
    return True if low == high else None


def equal_for_user(a: Any, b: Any) -> bool:
    """What ``a == b`` says in a line of the user, where ``a`` is an expression.

    Where nobody can say, that is False with a warning, unless the scope is strict.

    Raises:
        InconclusiveDimensionError: the answer depends on the values of the variables.
    """
    scope = a.scope
    if isinstance(b, np.ndarray) and b.ndim:
        if scope.strict:
            raise no_value(f"{a} == {b!r}")
        return False
    number: Any = b.item() if isinstance(b, np.generic | np.ndarray) else b
    if isinstance(number, float | complex):
        if number.imag or not float(number.real).is_integer():
            return False
        number = int(number.real)
    answer = decide_equal(a, number)
    if answer is not None:
        return answer
    difference = a - number
    if scope.strict:
        raise undecided(f"{a} == {b}", difference)
    if scope.may_be_zero_only_if_empty(difference):
        # There are programs for sizes of at least 1, where this has an answer.
        raise undecided(f"{a} == {b}", difference, f"{a} >= 1")
    if is_called_by_engine():  # not where somebody looks at the shapes of a program
        names = ", ".join(sorted(difference.variables()))
        warn_user(
            f"{a} == {b} counts as False, though it depends on the values of {names}: the program "
            "is wrong where it is true. Let no branch depend on it, or give the axis a known size"
        )
    return False


def undecided(
    question: str, difference: Any, constraint: str = "", asked: str = ""
) -> InconclusiveDimensionError:
    """The error of a comparison whose answer depends on the variables of ``difference``."""
    known = getattr(difference.scope, "constraints", ())
    stated = f" with constraints: {', '.join(known)}" if known else ""
    return InconclusiveDimensionError(
        f"the comparison {asked or question} is inconclusive: the answer depends on the values "
        f"of {', '.join(sorted(difference.variables()))}{stated}",
        hint=constraint_hint(constraint or question, difference.scope),
    )


def constraint_hint(constraint: str, scope: Any) -> str:
    """The way out of an undecided comparison in a scope."""
    if scope.strict:
        return "give the axis no name: then its size is known, and each size has its own program"
    return (
        f"if it always holds, state it where the shape is made, as in "
        f'symbolic_shape(..., constraints=["{constraint}"])'
    )


def no_value(what: str) -> InconclusiveDimensionError:
    """The error of a symbolic dimension that is used as a number outside of a program."""
    return InconclusiveDimensionError(
        f"{what}: a symbolic dimension has a value only inside a function that is traced for "
        "arguments of such sizes",
        hint="use it inside of a function given to jit(...).lower, eval_shape or make_jaxpr, "
        "with an argument of that size",
    )


def no_hash(dim: Any) -> InconclusiveDimensionError:
    """The error of a user's dict, set or cache with a symbolic dimension as its key."""
    return InconclusiveDimensionError(
        f"hash({dim}): whether it is among the keys of a dict or a set depends on the values of "
        f"{', '.join(sorted(dim.variables()))}",
        hint="compare sizes with < and >, or give the argument a constant size",
    )
