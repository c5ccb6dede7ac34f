"""How wide the numbers of one program are: 64 bits for data that enters with 64 bits.

Bridges trace functions at the dtypes of foreign tensors, which keep theirs. What such a program
makes itself (constants, results of integer division, arguments from NumPy) must not be rounded to
32 bits beside them, and must not make 64 bits of a 32-bit program either: see
docs/decisions/0016-64-bits-by-data.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, Literal

from tracebridge.core.config.state import enter_scope, leave_scope, with_value
from tracebridge.core.config.values import option

INTEGERS: Final = "integers"
"""A value of ``enable_x64`` that only a bridge sets: integers have 64 bits, floats have 32."""

Width = bool | Literal["integers"]

_RANK: Final[dict[Width, int]] = {False: 0, INTEGERS: 1, True: 2}


@contextlib.contextmanager
def at_least(width: Width) -> Iterator[None]:
    """A block in which numbers are at least so wide."""
    if _RANK[option("enable_x64")] >= _RANK[width]:
        yield
        return
    change = enter_scope(with_value, "enable_x64", width)
    try:
        yield
    finally:
        leave_scope(change)


def told(value: object) -> Any:
    """The value of an option as users are told: 64 bits are on or off."""
    return False if value == INTEGERS and type(value) is str else value
