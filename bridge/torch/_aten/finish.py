"""The last step of a graph."""

from __future__ import annotations

import threading
from typing import Any, final

import torch
from torch import fx
from torch._ops import HigherOrderOperator

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


def finished(root: torch.nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """The module of a graph that has its results, without what nothing uses."""
    graph.eliminate_dead_code()
    graph.lint()
    if any([node.target in _CHECKED for node in graph.nodes]):
        graph._tracer_cls = LoopTracer
    return fx.GraphModule(root, graph)
