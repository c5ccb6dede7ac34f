"""Arguments and results of transformations: Python objects to values and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracebridge.core.dtypes.dtypes import float0, inexact, is_complex, is_inexact
from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.shown import shown
from tracebridge.core.ir.aval import ShapedArray
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.trace import is_eager
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.ir.values import Literal, python_scalar
from tracebridge.core.lax.ad_util import float0_of, zeros_of
from tracebridge.core.runtime.arrays.transfer import put_numpy
from tracebridge.core.tree.paths import keystr
from tracebridge.core.tree.treedefs import leaf_paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracebridge.core.ir.values import Value
    from tracebridge.core.tree.tree import PyTreeDef

    Root = str | tuple[str, ...]


def values_of(call: str, leaves: Sequence[Any], tree: PyTreeDef, root: Root) -> list[Value]:
    """The leaves as values; names the first one that is no array.

    ``root`` is what messages call the tree, or each part of a tuple; key paths follow it.
    """
    return [
        leaf if issubclass(type(leaf), EngineValue) else value_of(call, leaf, tree, i, root)
        for i, leaf in enumerate(leaves)
    ]


def value_of(call: str, leaf: object, tree: PyTreeDef, index: int, root: Root) -> Value:
    """Leaf ``index`` of ``tree`` as a value."""
    try:
        return as_value(leaf)
    except UnsupportedDtypeError as error:
        msg = (
            f"{call}: {name_of_leaf(tree, index, root)} is {short_repr(leaf)} of type "
            f"{type(leaf).__name__}; expected arrays, numbers, and trees of them"
        )
        raise UnsupportedDtypeError(msg, hint=way_out_of(leaf)) from error


def differentiable(values: Sequence[Value]) -> list[bool] | None:
    """Which values have tangents; None if all have. Integers and booleans have none."""
    flags = [v.aval.dtype in inexact or v.aval.tangent.dtype != float0 for v in values]
    return None if all(flags) else flags


def spread(values: Sequence[object], flags: Sequence[bool] | None) -> Sequence[Any]:
    """One entry per flag: the next of ``values`` where it is true, else None."""
    if flags is None:
        return values
    rest = iter(values)
    return [next(rest) if flag else None for flag in flags]


def name_of_leaf(tree: PyTreeDef, index: int, root: Root) -> str:
    """The name of a leaf in messages: ``root`` and its key path."""
    path = leaf_paths(tree)[index]
    if isinstance(root, str):
        return root + keystr(path)
    return root[path[0].idx] + keystr(path[1:])


def short_repr(x: object) -> str:
    """The text of ``x``, cut to one line of a message."""
    text = shown(x, None)
    return text if len(text) <= 80 and "\n" not in text else f"{text[:77].splitlines()[0]}..."


def public(value: Value) -> Any:
    """A value as users may hold it: outside traces a Literal becomes an Array of its own."""
    if type(value) is Literal and is_eager():
        return put_numpy(np.asarray(value), weak_type=value.aval.weak_type)
    return value


def tangent_or_zeros(tangent: Value | None, aval: ShapedArray) -> Any:
    """A tangent for users: symbolic zeros are instantiated, at ``aval``, a tangent aval."""
    if tangent is not None:
        return tangent if type(tangent) is not Literal else public(tangent)
    if aval.dtype == float0:
        return float0_of(aval.shape)
    return public(zeros_of(aval))


def fit_scalar(value: Value, aval: ShapedArray) -> Value:
    """A Python number given where a value of ``aval`` is expected, in its dtype.

    Only Python floats change, so that a cotangent ``1.0`` fits a bfloat16 result. None fits a
    complex one: whoever gives a real cotangent there has most likely taken it for another result.
    """
    if type(value) is not Literal or not value.aval.weak_type or aval.ndim:
        return value
    if value.aval.dtype.kind != "f" or not is_inexact(aval.dtype) or is_complex(aval.dtype):
        return value
    return Literal(python_scalar(value.value, aval.dtype), aval)
