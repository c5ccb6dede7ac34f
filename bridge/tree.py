"""Functions of pytrees: nested tuples, lists, dicts and registered classes with leaves."""

from __future__ import annotations

from tracebridge.core.errors.filtering import shield as _shield
from tracebridge.core.tree.registry import static
from tracebridge.core.tree.tree import (
    all,
    broadcast,
    flatten_with_path,
    leaves,
    leaves_with_path,
    map,
    map_with_path,
    reduce,
    reduce_associative,
    structure,
    transpose,
    unflatten,
)
from tracebridge.core.tree.tree import checked_flatten as flatten

__all__ = [
    "all",
    "broadcast",
    "flatten",
    "flatten_with_path",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "reduce",
    "reduce_associative",
    "static",
    "structure",
    "transpose",
    "unflatten",
]

_shield(globals(), __name__)
