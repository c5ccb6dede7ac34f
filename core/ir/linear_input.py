"""What stands for a linear argument in a transposition rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.util.public_path import public_path

if TYPE_CHECKING:
    from tracebridge.core.ir.aval import ShapedArray


@public_path("tracebridge.interpreters.ad", "UndefinedPrimal")
class LinearInput(EngineValue):
    """Stands for a linear argument in a transpose rule: only its aval is known."""

    __slots__ = ("aval",)
    _trace = None

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"LinearInput({self.aval.str_short()})"


def is_linear_input(x: object) -> bool:
    """Whether a transpose rule's argument is a linear one.

    Args:
        x: an argument of the rule.

    >>> from tracebridge.interpreters import ad
    >>> ad.is_undefined_primal(1.0)
    False
    """
    return type(x) is LinearInput
