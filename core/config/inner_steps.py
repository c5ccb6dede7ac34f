"""What library functions combine inside is no business of the options that judge users.

``numpy_rank_promotion`` and ``numpy_dtype_promotion`` are about arrays that a user combines. A
public function judges its own arguments, if it combines them; whatever it calls does not judge.
Staged functions are staged in such a block, so with the options at their defaults this costs two
look-ups for each body that is staged, and nothing for a call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tracebridge.core.config.state import State, enter_scope, leave_scope, state, with_value
from tracebridge.core.config.values import option

_INSIDE = "inside a library function"


@contextlib.contextmanager
def inner_steps(*, judges: bool = False) -> Iterator[None]:
    """A block in which a library function does its work.

    Args:
        judges: the options hold for what the function itself combines, if a user has called it,
            and not for what it calls.
    """
    if option("numpy_rank_promotion") == "allow" and option("numpy_dtype_promotion") == "standard":
        yield
        return
    current = state()
    inside = current is not None and _INSIDE in current.values
    change = (
        enter_scope(with_value, _INSIDE, True)
        if judges and not inside
        else enter_scope(_without_judgement)
    )
    try:
        yield
    finally:
        leave_scope(change)


def _without_judgement(current: State | None) -> State | None:
    current = with_value(current, "numpy_rank_promotion", "allow")
    return with_value(current, "numpy_dtype_promotion", "standard")
