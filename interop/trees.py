"""Exchange of all tensors in a pytree."""

from __future__ import annotations

from typing import Any

from tracebridge.core.errors.exchange_errors import ExchangeError
from tracebridge.core.ir.tracer import Tracer
from tracebridge.core.ir.values import Literal
from tracebridge.core.runtime.arrays.array import Array
from tracebridge.core.runtime.calls.dispatch import to_array
from tracebridge.core.tree.tree import map as tree_map
from tracebridge.interop.adapter import TensorAdapter


def import_tree(
    tree: object, adapter: TensorAdapter, *, device: object = None, copy: bool | None = None
) -> Any:
    """The tree with each tensor of the adapter's framework as an Array; other leaves stay."""
    if adapter.accepts(type(tree)):
        return adapter.import_(tree, device=device, copy=copy)

    def leaf(x: object) -> Any:
        if adapter.accepts(type(x)):
            return adapter.import_(x, device=device, copy=copy)
        return x

    return tree_map(leaf, tree)


def export_tree(tree: object, adapter: TensorAdapter, *, copy: bool | None = None) -> Any:
    """The tree with each Array as a tensor of the adapter's framework; other leaves stay."""
    if type(tree) is Array:
        return adapter.export(tree, copy=copy)

    def leaf(x: object) -> Any:
        if type(x) is Array:
            return adapter.export(x, copy=copy)
        if isinstance(x, Tracer):
            msg = f"{x!r} is traced and has no elements to give to {adapter.name}"
            raise ExchangeError(msg, hint="return it, and convert what the compiled function gives")
        return adapter.export(to_array(x), copy=copy) if type(x) is Literal else x

    return tree_map(leaf, tree)
