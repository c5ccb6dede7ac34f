"""What the operators of arrays and tracers do: the functions that fill the array namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.dtypes.canonicalize import default_int
from tracebridge.core.ir.foreign import refuse_tensor
from tracebridge.core.ir.typeof import is_array_like
from tracebridge.core.ir.value import Value
from tracebridge.core.runtime.calls.staged_functions import StagedFunction, unary
from tracebridge.numpy import elementwise_arithmetic as m
from tracebridge.numpy import elementwise_logic as logic
from tracebridge.numpy import elementwise_round as rounding
from tracebridge.numpy import linear_products
from tracebridge.numpy._universal import without_keywords
from tracebridge.numpy.elementwise_powers import power


def _operator(
    function: Callable[[Any, Any], Any], refused: Callable[[object], bool] = lambda _: False
) -> Callable[[Any, Any], Any]:
    """A binary operator: NotImplemented for operands that are no arrays, but for ``refused``."""
    function = without_keywords(function)

    def run(x: Value, y: Value) -> Any:
        try:
            return function(x, y)
        except TypeError:
            if is_array_like(y) or refused(y):
                raise
            refuse_tensor(x, y)
            return NotImplemented

    return run


def _is_repeated(y: object) -> bool:
    """Whether Python would take an integer array for a count, and repeat the sequence ``y``.

    A subclass that says itself what a product with it is, such as a NamedTuple of arrays, does.
    """
    return any(
        [isinstance(y, t) and type(y).__rmul__ is t.__rmul__ for t in (list, tuple, str, bytes)]
    )


def _equality(
    function: Callable[[Any, Any], Any], refused: tuple[type, ...]
) -> Callable[[Any, Any], Any]:
    """Like ``_operator``; tensors are just not equal."""

    def run(x: Value, y: Value) -> Any:
        try:
            return function(x, y)
        except TypeError:
            if is_array_like(y) or isinstance(y, refused):
                raise
            return NotImplemented

    return run


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``other op x`` for a staged ``function(other, x)``."""
    function = without_keywords(function)

    def run(x: Value, y: Value) -> Any:
        try:
            return function(y, x)
        except TypeError:
            if is_array_like(y):
                raise
            refuse_tensor(x, y)
            return NotImplemented

    return run


def _invert(x: Value) -> Any:
    return lax.bitwise_not(x)


_invert_fast = unary(StagedFunction(_invert, "invert"))


def _round(x: Value, ndigits: int | None = None) -> Any:
    """Integers if ``ndigits`` is not given, as Python's ``round`` gives them."""
    if ndigits is None:
        return lax.convert_element_type(rounding.round(x), default_int())
    return rounding.round(x, ndigits)


OPERATORS: dict[str, Any] = {
    "add": _operator(m.add),
    "radd": _reflected(m.add),
    "sub": _operator(m.subtract),
    "rsub": _reflected(m.subtract),
    "mul": _operator(m.multiply, _is_repeated),
    "rmul": _reflected(m.multiply),
    "truediv": _operator(m.true_divide),
    "rtruediv": _reflected(m.true_divide),
    "floordiv": _operator(m.floor_divide),
    "rfloordiv": _reflected(m.floor_divide),
    "mod": _operator(m.remainder),
    "rmod": _reflected(m.remainder),
    "divmod": _operator(m.divmod),
    "rdivmod": _reflected(m.divmod),
    "pow": _operator(power),
    "rpow": _reflected(power),
    "matmul": _operator(linear_products.matmul),
    "rmatmul": _reflected(linear_products.matmul),
    "and_": _operator(logic.bitwise_and),
    "rand": _reflected(logic.bitwise_and),
    "or_": _operator(logic.bitwise_or),
    "ror": _reflected(logic.bitwise_or),
    "xor": _operator(logic.bitwise_xor),
    "rxor": _reflected(logic.bitwise_xor),
    "lshift": _operator(logic.left_shift),
    "rlshift": _reflected(logic.left_shift),
    "rshift": _operator(logic.right_shift),
    "rrshift": _reflected(logic.right_shift),
    # Python would compare identities, and say False for a list of equal numbers.
    "eq": _equality(logic.equal, (list, tuple, set, dict)),
    "ne": _equality(logic.not_equal, (list, tuple, set, dict)),
    "lt": _operator(logic.less),
    "le": _operator(logic.less_equal),
    "gt": _operator(logic.greater),
    "ge": _operator(logic.greater_equal),
    "neg": without_keywords(m.negative),
    "pos": m.positive,
    "abs": m.absolute,
    "invert": _invert_fast,
    "round_": _round,
}
