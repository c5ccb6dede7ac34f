"""Calls of universal functions with the keywords ``out`` and ``where``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracebridge.core.dtypes.dtypes import is_bool
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.filtering import hide_internal_frames
from tracebridge.core.ir.value import Value
from tracebridge.core.lax.ad_util import full_of, zeros_of
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.arrays.array_like import ArrayLike
from tracebridge.core.runtime.calls.staged_functions import StagedFunction
from tracebridge.numpy._promote import broadcast_shape, broadcast_to, check_no_out, select
from tracebridge.numpy._ranges import wrapped
from tracebridge.numpy._staging import binary_function, named, unary_function, value_of

KEYWORDS = """

    Args:
        out: must be ``None``: arrays are immutable.
        where: boolean array that is broadcast with the operands: elements where it is false are 0,
            and depend on nothing."""


def universal_unary(
    implementation: Callable[[Value], Value], name: str, doc: str
) -> Callable[..., Array]:
    """The universal function of one array that ``implementation`` (on values) describes."""
    plain = unary_function(implementation, name, doc)
    chosen = _staged_choice(plain, name)

    def call(x: ArrayLike, /, *, out: None = None, where: ArrayLike | None = None) -> Array:
        if out is None and where is None:
            return plain(x)
        return chosen((x,), out, where)

    return _public(call, plain, name, doc)


def universal_binary(
    implementation: Callable[[Any, Any], Any], name: str, doc: str, *, modular: bool = False
) -> Callable[..., Array]:
    """The universal function of two arrays that ``implementation`` (on values) describes.

    ``modular``: of integers it is arithmetic modulo the number of values of the dtype, so that a
    Python integer is as good as what it is congruent to.
    """
    plain = binary_function(implementation, name, doc, wrapped if modular else None)
    chosen = _staged_choice(plain, name)

    def call(
        x1: ArrayLike, x2: ArrayLike, /, *, out: None = None, where: ArrayLike | None = None
    ) -> Array:
        if out is None and where is None:
            return plain(x1, x2)
        return chosen((x1, x2), out, where)

    return _public(call, plain, name, doc)


def without_keywords(function: Callable[..., Any]) -> Callable[..., Any]:
    """A universal function for callers that pass no keywords: one Python call less."""
    return getattr(function, "plain", function)


def apply_where(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], where: ArrayLike
) -> Any:
    """``function`` of the elements where a mask is true, and 0 elsewhere.

    The function does not see the other elements, so that they have no derivatives either.
    """
    mask, values = value_of(where), [value_of(a) for a in args]
    if not is_bool(mask.aval.dtype):
        msg = f"{name}: where= is {mask.aval.str_short()}, expected an array of bool"
        raise UnsupportedDtypeError(msg, hint="where=x != 0 for the elements that are not zero")
    results = function(*[_masked(name, mask, v, full_of(v.aval, 1)) for v in values])
    if isinstance(results, list | tuple):
        return tuple([_outside(name, mask, r) for r in results])
    return _outside(name, mask, results)


def _outside(name: str, mask: Value, result: Any) -> Any:
    value = value_of(result)
    return _masked(name, mask, value, zeros_of(value.aval))


def _masked(name: str, mask: Value, value: Value, other: Value) -> Any:
    """``value`` where the mask is true and ``other`` elsewhere, broadcast."""
    shape = broadcast_shape(name, [mask.aval.shape, value.aval.shape])
    return select(broadcast_to(mask, shape), value, other)


def _staged_choice(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``plain`` with keywords; one program for each kind of arguments."""
    staged = StagedFunction(lambda mask, *values: apply_where(name, plain, values, mask), name)

    def choose(args: tuple[Any, ...], out: object, where: Value | None) -> Any:
        try:
            check_no_out(name, out)
            return staged((where, *args))
        except Exception as error:
            hide_internal_frames(error)
            raise

    return choose


def _public(call: Any, plain: Any, name: str, doc: str) -> Any:
    text, examples, rest = doc.partition("\n\n    >>>")
    public = named(call, name, f"{text}{KEYWORDS}{examples}{rest}")
    public.plain = plain
    return public
