"""FlatFun: a Python function seen as a function of flat values."""

from __future__ import annotations

from typing import Any, final

from tracebridge.core.errors.dtype_errors import UnsupportedDtypeError
from tracebridge.core.errors.foreign import way_out_of
from tracebridge.core.errors.shown import shown
from tracebridge.core.ir.float0 import has_float0, hide_float0, hold_float0
from tracebridge.core.ir.operators import EngineValue
from tracebridge.core.ir.typeof import as_value
from tracebridge.core.tree.paths import named_path
from tracebridge.core.tree.tree import flatten
from tracebridge.core.tree.treedefs import leaf_paths


@final
class FlatFun:
    """``fun(*args, **kwargs)`` where the tree ``(args, kwargs)`` has structure ``in_tree``.

    Immutable: ``call`` returns the structure of the result beside it. ``parts``: whether results
    are parts of larger arrays, so that those of dtype float0 have no final shape yet.
    """

    __slots__ = ("fun", "in_tree", "name", "parts")

    def __init__(self, fun: Any, in_tree: Any, name: str, *, parts: bool = False) -> None:
        self.fun = fun
        self.parts = parts
        self.in_tree = in_tree
        self.name = name

    def call(self, *flat: Any) -> tuple[list[Any], Any]:
        """Flat results as values, and the structure of the result."""
        args, kwargs = self.in_tree.unflatten(flat)
        leaves, out_tree = flatten(self.fun(*args, **kwargs))
        if has_float0(leaves):
            put_away = hold_float0 if self.parts else hide_float0
            leaves, out_tree = put_away(leaves, out_tree)
        return [self._value(leaf, i, out_tree) for i, leaf in enumerate(leaves)], out_tree

    def _value(self, leaf: object, index: int, out_tree: Any) -> Any:
        if issubclass(type(leaf), EngineValue):
            return leaf
        try:
            return as_value(leaf)
        except UnsupportedDtypeError as error:
            place = named_path("the result", leaf_paths(out_tree)[index])
            msg = (
                f"{self.name}: {place} is {shown(leaf)} of type {type(leaf).__name__}; "
                "functions return arrays, numbers, and trees of them"
            )
            raise UnsupportedDtypeError(msg, hint=way_out_of(leaf)) from error
