"""Functions of pytrees: nested tuples, lists, dicts and registered classes with leaves."""

from __future__ import annotations

from tracebridge.core.tree.registry import static as static
from tracebridge.core.tree.tree import all as all  # noqa: A004  (the public name)
from tracebridge.core.tree.tree import broadcast as broadcast
from tracebridge.core.tree.tree import checked_flatten as flatten
from tracebridge.core.tree.tree import flatten_with_path as flatten_with_path
from tracebridge.core.tree.tree import leaves as leaves
from tracebridge.core.tree.tree import leaves_with_path as leaves_with_path
from tracebridge.core.tree.tree import map as map  # noqa: A004  (the public name)
from tracebridge.core.tree.tree import map_with_path as map_with_path
from tracebridge.core.tree.tree import reduce as reduce
from tracebridge.core.tree.tree import reduce_associative as reduce_associative
from tracebridge.core.tree.tree import structure as structure
from tracebridge.core.tree.tree import transpose as transpose
from tracebridge.core.tree.tree import unflatten as unflatten

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
