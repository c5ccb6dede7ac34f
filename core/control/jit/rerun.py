"""Running a jitted function again without jit, to find the operation that gave a NaN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tracebridge.core.config.scopes import scope
from tracebridge.core.control.calls.inline_rules import user_value
from tracebridge.core.errors.runtime_errors import NonFiniteError
from tracebridge.core.ir.effects import Effects
from tracebridge.core.runtime.arrays.array import Array

T = TypeVar("T")


def explained(run: Callable[[], T], call: Any, leaves: Sequence[Any], effects: Effects) -> T:
    """``run()``; if its results are not finite, the error of the operation to blame.

    ``call`` has the function, ``leaves`` are its arguments as values. A program with effects
    does not run again.
    """
    try:
        return run()
    except NonFiniteError as error:
        failure = error
    # Outside the handler: the new error needs no mention of the first one.
    alive = not any([type(leaf) is Array and leaf.is_deleted() for leaf in leaves])
    if alive and not effects:
        args, kwargs = call.tree.unflatten([user_value(leaf) for leaf in leaves])
        with scope("disable_jit", True):
            call.fun(*args, **kwargs)
    raise failure
