"""Tree definitions as text, with names in place of the leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tracebridge.core._jaxlib.pytree import PyTreeDef
from tracebridge.core.errors.argument_errors import ArgumentValueError


def format_treedef(treedef: PyTreeDef, names: Iterable[Any] | None = None) -> str:
    """Write a definition as the Python expression of its tree: ``{'w': (a, b), 'x': None}``.

    Args:
        treedef: the definition.
        names: one name for each leaf; ``*`` by default.

    Raises:
        ValueError: the number of names is not the number of leaves.
    """
    found = ["*"] * treedef.num_leaves if names is None else [str(name) for name in names]
    if len(found) != treedef.num_leaves:
        msg = f"format_treedef: got {len(found)} names for {treedef.num_leaves} leaves"
        raise ArgumentValueError(msg)
    return _format(treedef, iter(found))


def _format(treedef: PyTreeDef, names: Iterator[str]) -> str:
    node = treedef.node_data()
    if node is None:
        return next(names)
    kind, data = node
    parts = [_format(child, names) for child in treedef.children()]
    if kind is type(None):
        return "None"
    if kind is tuple:
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if kind is list:
        return f"[{', '.join(parts)}]"
    if kind is dict:
        return "{" + _pairs([repr(key) for key in data], parts, ": ") + "}"
    fields = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and fields is not None and data is None:
        return f"{kind.__name__}({_pairs(fields, parts, '=')})"
    static = "" if data is None or data == () else f"[{data!r}]"
    return f"{kind.__name__}{static}({', '.join(parts)})"


def _pairs(keys: Iterable[str], parts: list[str], separator: str) -> str:
    return ", ".join([key + separator + part for key, part in zip(keys, parts, strict=True)])
