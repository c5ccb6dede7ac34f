"""Types of values that users define: what the engine asks of a type that is no array's.

Programs may have variables of such types until they are lowered; then each value is taken apart
into arrays (interpreters/low.py). Everything that only passes values on needs no more than this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracebridge.core.errors.transform_errors import MissingRuleError
from tracebridge.core.ir.aval import NOWHERE, ShapedArray
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.util.public_path import public_path


@public_path("tracebridge.experimental.hijax")
class MappingSpec:
    """Base of entries of ``in_axes`` and ``out_axes`` for values of types that programs define."""


class UserType:
    """Base of types of users; a type is immutable, and equal to types of the same values.

    ``split``, ``vma`` and ``weak_type`` are what types of arrays say besides: here nothing.
    """

    split: Any = None
    vma: frozenset[Any] = NOWHERE
    weak_type: Any = False
    dtype: Any = None

    def lo_ty(self) -> list[Any]:
        """The types of the arrays that a value consists of."""
        raise _missing(self, "lowering", "lo_ty")

    def lower_val(self, hi_val: Any, /) -> list[Any]:
        """The arrays of a value."""
        raise _missing(self, "lowering", "lower_val")

    def raise_val(self, *lo_vals: Any) -> Any:
        """The value of these arrays, which may be traced."""
        raise _missing(self, "lowering", "raise_val")

    def to_tangent_aval(self) -> Any:
        """The type of tangents."""
        raise _missing(self, "differentiation", "to_tangent_aval")

    def to_ct_aval(self) -> Any:
        """The type of cotangents; by default that of tangents."""
        return self.to_tangent_aval()

    def vspace_zero(self) -> Any:
        """The zero of a type of tangents."""
        raise _missing(self, "differentiation", "vspace_zero")

    def vspace_add(self, x: Any, y: Any, /) -> Any:
        """The sum of two values of a type of tangents."""
        raise _missing(self, "differentiation", "vspace_add")

    def dec_rank(self, size: Any, spec: Any, /) -> Any:
        """The type of one of ``size`` elements; ``spec`` says how they lie side by side."""
        raise _missing(self, "vmap", "dec_rank")

    def inc_rank(self, size: Any, spec: Any, /) -> Any:
        """The type of ``size`` elements side by side, as ``spec`` says."""
        raise _missing(self, "vmap", "inc_rank")

    def leading_axis_spec(self) -> Any:
        """How the slices of a loop lie side by side."""
        raise _missing(self, "scan", "leading_axis_spec")

    @property
    def tangent(self) -> Any:
        """``to_tangent_aval()``, as types of arrays have it."""
        return self.to_tangent_aval()

    @property
    def strong(self) -> UserType:
        """The type itself: it is not weak."""
        return self

    def normalize(self) -> Any:
        """The type without what does not matter for the meaning of a program."""
        return self

    def strip_weak_type(self) -> UserType:
        """The type itself."""
        return self

    def update(self, **_: object) -> UserType:
        """The type itself: it has no fields that the engine could change."""
        return self

    def with_split(self, split: object) -> UserType:
        """The type itself."""
        del split
        return self

    def with_vma(self, vma: object) -> UserType:
        """The type itself."""
        del vma
        return self

    def str_short(self, short_dtypes: bool = False, **_: object) -> str:
        """The form of printed programs.

        Args:
            short_dtypes: whether names of dtypes are short ones.
        """
        del short_dtypes
        return repr(self)


def _missing(ty: UserType, what: str, method: str) -> MissingRuleError:
    kind = type(ty).__name__
    message = f"{what} asks the type {kind} for its method {method}, which it does not have"
    return MissingRuleError(kind, method, message=message, hint=f"define {method} in {kind}")


# Classes whose objects are values of such types; objects of others need not be looked at.
CLASSES: set[type] = set()


def is_mutable(x: object) -> bool:
    """Whether ``x`` is an object of users that changes."""
    return type(x) in CLASSES and bool(getattr(as_value(x).aval, "has_qdd", False))


def is_user_type(aval: object) -> bool:
    """Whether a type is one of users, not that of arrays."""
    return type(aval) is not ShapedArray


def different_types(one: Any, two: Any) -> bool:
    """Whether types differ, and one of them is a type of users; arrays are compared elsewhere."""
    return (type(one) is not ShapedArray or type(two) is not ShapedArray) and one != two


def same_type(one: Any, two: Any) -> bool:
    """Whether types are the same, up to weak types."""
    if type(one) is ShapedArray and type(two) is ShapedArray:
        return one.shape == two.shape and one.dtype == two.dtype
    return one == two


def element_of_users(aval: Any, size: Any, spec: Any) -> Any:
    """The type of one of ``size`` values that lie side by side as ``spec`` says."""
    return aval.dec_rank(size, aval.leading_axis_spec() if type(spec) is int else spec)


def low_avals(avals: Sequence[Any]) -> list[Any]:
    """The types of the arrays that values of these types consist of."""
    found: list[Any] = []
    for aval in avals:
        if type(aval) is ShapedArray:
            found.append(aval)
        else:
            found.extend(low_avals(aval.lo_ty()))
    return found


def low_values(values: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """The arrays of values of these types."""
    found: list[Any] = []
    for value, aval in zip(values, avals, strict=True):
        if type(aval) is ShapedArray:
            found.append(as_value(value))
        else:
            parts = aval.lower_val(value)
            found.extend(low_values(parts, [as_value(p).aval for p in parts]))
    return found


def high_values(values: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """The values of these types that consist of the arrays ``values``."""
    rest = iter(values)
    return [_raised(aval, rest) for aval in avals]


def _raised(aval: Any, rest: Any) -> Any:
    if type(aval) is ShapedArray:
        return next(rest)
    # What is nested is put together by the type that has it among its parts.
    n = len(low_avals(aval.lo_ty()))
    return aval.raise_val(*[next(rest) for _ in range(n)])
