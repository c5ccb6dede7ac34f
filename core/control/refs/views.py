"""Parts of references among the arguments of traced functions.

A part is taken apart into its reference and the arrays of its index, which a program takes as
any others; the function gets the part of the reference that it has inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from tracebridge.core.control.refs.ref import RefView
from tracebridge.core.tree.registry import register_pytree_node
from tracebridge.core.tree.tree import flatten


@final
class ViewNode:
    """Stands for a part of a reference in a tree whose leaves are references and arrays."""

    __slots__ = ("view",)

    def __init__(self, view: RefView) -> None:
        self.view = view

    def apart(self) -> tuple[tuple[Any, ...], Any]:
        """The reference and the arrays of the index; what is static in the index."""
        base, index = self.view.base, self.view.index
        parts = index if type(index) is tuple else (index,)
        arrays: list[Any] = []
        static: list[Any] = []
        for p in parts:
            if isinstance(p, slice):  # slices have no hash in all versions of Python
                static.append((slice, p.start, p.stop, p.step))
            elif p is None or p is ... or type(p) is int:
                static.append((None, p))
            else:
                static.append(())
                arrays.append(p)
        base = ViewNode(base) if isinstance(base, RefView) else base
        return (base, *arrays), (type(index) is tuple, tuple(static))


def _view(facts: Any, children: Sequence[Any]) -> Any:
    is_tuple, static = facts
    base, *arrays = children
    rest = iter(arrays)
    parts = [next(rest) if not s else slice(*s[1:]) if s[0] is slice else s[1] for s in static]
    return RefView(base, tuple(parts) if is_tuple else parts[0])


register_pytree_node(ViewNode, ViewNode.apart, _view)


def show_views(args: Any) -> None:
    """Make leaves of parts of references: the references, and the arrays of their indices."""
    leaves = args.leaves
    views = [isinstance(x, RefView) for x in leaves]
    if not any(views):
        return
    nodes = [ViewNode(x) if v else x for x, v in zip(leaves, views, strict=True)]
    if args.donated:
        counts = [flatten(n)[1].num_leaves for n in nodes]
        args.donated = tuple([sum(counts[:i]) for i in args.donated])
    args.leaves, args.tree = flatten(args.tree.unflatten(nodes))
