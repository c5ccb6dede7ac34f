"""The last steps of a graph."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload

_hop = torch.ops.higher_order
# They check that they are called with tensors, whoever calls them.
_CHECKED: Any = (_hop.while_loop, _hop.cond, _hop.scan)
_patching = threading.RLock()


@final
class LoopTracer(fx.Tracer):
    """Reads the code of a pickled module again: torch's own tracer refuses loops and branches."""

    def trace(self, *args: Any, **kwargs: Any) -> fx.Graph:
        """The graph of a module."""
        kinds = [type(operator) for operator in _CHECKED]
        with _patching:
            checked = [kind.__call__ for kind in kinds]
            try:
                for kind in kinds:
                    kind.__call__ = HigherOrderOperator.__call__
                return super().trace(*args, **kwargs)
            finally:
                for kind, own in zip(kinds, checked, strict=True):
                    kind.__call__ = own


def of_their_own(outs: Sequence[fx.Proxy], copy: Callable[[fx.Proxy], Any]) -> list[Any]:
    """Results, copied where they would share memory with inputs, constants or one another."""
    given: set[fx.Node] = set()
    fresh: list[Any] = []
    for out in outs:
        root, repeated = _root(out.node)
        shared = repeated or root in given or root.op in ("placeholder", "get_attr")
        given.add(root)
        fresh.append(copy(out) if shared else out)
    return fresh


def _root(node: fx.Node) -> tuple[fx.Node, bool]:
    """The node whose memory a node shows, and whether elements of it are shown repeatedly."""
    repeated = False
    while node.op == "call_function" and node.args:
        if isinstance(node.target, OpOverload):
            returns = node.target._schema.returns
            if not returns or returns[0].alias_info is None:
                break
            repeated |= node.target is torch.ops.aten.expand.default
        elif node.target is operator.getitem:
            whole = node.args[0]
            assert isinstance(whole, fx.Node)
            target = whole.target
            if whole.op == "call_function" and target is not operator.getitem:
                # One of the results of an operation: a view only if those are views.
                returns = target._schema.returns if isinstance(target, OpOverload) else ()
                if target is not getattr and not (returns and returns[0].alias_info):
                    break
        elif node.target is not getattr:
            break
        (node, *_) = node.all_input_nodes
    return node, repeated


def finished(root: torch.nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """The module of a graph that has its results, without what nothing uses."""
    graph.eliminate_dead_code()
    graph.lint()
    if any([node.target in _CHECKED for node in graph.nodes]):
        graph._tracer_cls = LoopTracer
    return fx.GraphModule(root, graph)
