"""fori_loop: a loop over integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import tracebridge.core.lax as lax
from tracebridge.core.config.values import option
from tracebridge.core.control.calls.bodies import Wrapped, flatten_values
from tracebridge.core.control.calls.carry import unchanged
from tracebridge.core.control.loops.while_loop import run_while
from tracebridge.core.control.scan.forward import run_scan
from tracebridge.core.dtypes.dtypes import is_float, is_integer
from tracebridge.core.errors.dtype_errors import DtypeMismatchError
from tracebridge.core.errors.transform_errors import ArgumentSpecError
from tracebridge.core.ir.tracer import known_value
from tracebridge.core.ir.typeof import as_value


def fori_loop(
    lower: object,
    upper: object,
    body_fun: Callable[[Any, Any], Any],
    init_val: object,
    *,
    unroll: int | bool | None = None,
) -> Any:
    """Apply ``body_fun(i, value)`` for each integer from ``lower`` to ``upper - 1``.

    Between known integers the loop is a scan, so that both modes of differentiation work. With a
    traced bound it is a while_loop, which has forward mode only.

    Args:
        lower: the first integer. Floats of integral value are taken too.
        upper: the integer behind the last one; not above ``lower`` for no step at all.
        body_fun: ``(i, value) -> value``, of the same structure, shapes and dtypes.
        init_val: the first value, a tree of arrays and numbers.
        unroll: steps per round of the compiled loop, True for all; needs known bounds.

    Returns:
        The last value.

    Raises:
        DtypeMismatchError: the bounds are no real numbers, or of different dtypes.
        ArgumentSpecError: ``unroll`` without known bounds.

    >>> import tracebridge as tb
    >>> print(tb.lax.fori_loop(1, 5, lambda i, total: total + i, 0))
    10
    """
    if not callable(body_fun):
        msg = f"fori_loop: body_fun is {body_fun!r} of type {type(body_fun).__name__}"
        raise ArgumentSpecError(msg, expected="a function (i, value)")
    first, last = _bounds(lower, upper)
    start, stop = _known(first), _known(last)
    if start is None or stop is None:
        if unroll is not None and unroll is not False and unroll != 1:
            msg = f"fori_loop: unroll={unroll} needs known bounds"
            raise ArgumentSpecError(msg)
        state = (first, last, init_val)
        return run_while("fori_loop", _goes_on, body_fun, _WHILE_STEP, state)[2]
    if option("disable_jit"):
        return _python_loop(body_fun, range(start, stop), init_val)
    steps = max(stop - start, 0)
    rounds = 1 if unroll is None else unroll
    state = (start, init_val)
    return run_scan("fori_loop", body_fun, _SCAN_STEP, state, None, steps, unroll=rounds)[0][1]


def _python_loop(body_fun: Callable[[Any, Any], Any], steps: range, init_val: object) -> Any:
    """The loop step by step, as option disable_jit asks for, over arrays as in the traced loop."""
    value = _arrays(init_val)
    for i in steps:
        value = _arrays(body_fun(i, value))
    return value


def _arrays(tree: object) -> Any:
    values, treedef = flatten_values("fori_loop", "the value", tree)
    return treedef.unflatten(unchanged(values))


def _bounds(lower: object, upper: object) -> tuple[Any, Any]:
    """Both bounds as values of one integer or float dtype."""
    first, last = as_value(lower), as_value(upper)
    for role, value in (("lower", first), ("upper", last)):
        dtype = value.aval.dtype
        if not (is_integer(dtype) or is_float(dtype)) or value.aval.ndim:
            msg = f"fori_loop: {role} is {value.aval.str_short()}, expected an integer scalar"
            raise DtypeMismatchError(msg)
    a, b = first.aval, last.aval
    if a.dtype != b.dtype:
        same_kind = is_integer(a.dtype) == is_integer(b.dtype)
        if a.weak_type and same_kind:
            first = lax.convert_element_type(first, b.dtype)
        elif b.weak_type and same_kind:
            last = lax.convert_element_type(last, a.dtype)
        else:
            msg = f"fori_loop: lower is {a.str_short()} and upper is {b.str_short()}"
            raise DtypeMismatchError(msg, expected="bounds of one dtype")
    return first, last


def _known(bound: Any) -> int | None:
    """The integer that a bound is, if that can be told now."""
    value = known_value(bound)
    if value is None:
        return None
    if is_integer(bound.aval.dtype):
        return operator.index(value)
    number = float(value)
    return int(number) if number.is_integer() else None


def _goes_on(state: tuple[Any, Any, Any]) -> Any:
    i, stop, _ = state
    return lax.lt(i, stop)


def _while_step(
    body_fun: Callable[[Any, Any], Any], state: tuple[Any, Any, Any]
) -> tuple[Any, Any, Any]:
    i, stop, value = state
    return lax.add(i, 1), stop, body_fun(i, value)


def _scan_step(
    body_fun: Callable[[Any, Any], Any], state: tuple[Any, Any], _: None
) -> tuple[tuple[Any, Any], None]:
    i, value = state
    return (lax.add(i, 1), body_fun(i, value)), None


_WHILE_STEP = Wrapped(_while_step, lambda state: (state[0], state[2]))
_SCAN_STEP = Wrapped(_scan_step, lambda state, _: state)
