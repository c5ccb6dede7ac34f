"""The last step of a graph."""

from __future__ import annotations

import torch
from torch import fx


def finished(root: torch.nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """The module of a graph that has its results, without what nothing uses."""
    graph.eliminate_dead_code()
    graph.lint()
    return fx.GraphModule(root, graph)
