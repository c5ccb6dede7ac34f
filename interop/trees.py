"""Exchange of all tensors in a pytree."""

from __future__ import annotations

from typing import Any

from tracebridge.core.ir.typeof import as_value, is_array_like
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.array import Array
from tracebridge.core.runtime.dispatch import to_array
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.interop.adapter import TensorAdapter
from tracebridge.interop.registry import adapter_of


def import_tree(
    tree: Any, adapter: TensorAdapter, *, device: Any = None, copy: bool | None = None
) -> Any:
    """The tree with each tensor of the adapter's framework as an Array; other leaves stay."""

    def leaf(x: Any) -> Any:
        if adapter_of(type(x)) is adapter:
            return adapter.import_(x, device=device, copy=copy)
        return x

    return tree_map(leaf, tree)


def export_tree(tree: Any, adapter: TensorAdapter, *, copy: bool | None = None) -> Any:
    """The tree with each Array as a tensor of the adapter's framework; other leaves stay."""

    def leaf(x: Any) -> Any:
        if type(x) is Array:
            return adapter.export(x, copy=copy)
        if type(x) is Literal or (hasattr(x, "aval") and is_array_like(x)):
            # A tracer is no array: to_array words the error.
            return adapter.export(to_array(as_value(x)), copy=copy)
        return x

    return tree_map(leaf, tree)
