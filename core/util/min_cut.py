"""The cheapest cut of a directed graph between a source and a sink, by Dinic's method."""

from __future__ import annotations

import math
from typing import final

_EPSILON = 1e-12


@final
class FlowNetwork:
    """Nodes with numbers and edges with capacities; ``math.inf`` is an edge that is never cut.

    >>> network = FlowNetwork(4)
    >>> for edge in ((0, 1, 3.0), (1, 3, 1.0), (0, 2, 1.0), (2, 3, 2.0)):
    ...     network.add(*edge)
    >>> network.source_side(0, 3)
    [True, True, False, False]
    """

    __slots__ = ("_capacities", "_edges", "_targets")

    def __init__(self, n_nodes: int) -> None:
        # Edges come in pairs, each next to the edge that takes its flow back.
        self._targets: list[int] = []
        self._capacities: list[float] = []
        self._edges: list[list[int]] = [[] for _ in range(n_nodes)]

    def node(self) -> int:
        """A new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def add(self, start: int, end: int, capacity: float) -> None:
        """An edge."""
        for here, there, c in ((start, end, capacity), (end, start, 0.0)):
            self._edges[here].append(len(self._targets))
            self._targets.append(there)
            self._capacities.append(c)

    def source_side(self, source: int, sink: int) -> list[bool]:
        """Which nodes are on the source's side of the cheapest cut, as few as possible."""
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return [level >= 0 for level in levels]
            self._block(source, sink, levels)

    def _levels(self, source: int) -> list[int]:
        """Distances from the source along edges that have capacity left; -1 if there are none."""
        levels = [-1] * len(self._edges)
        levels[source] = 0
        reached = [source]
        for here in reached:
            for edge in self._edges[here]:
                there = self._targets[edge]
                if levels[there] < 0 and self._capacities[edge] > _EPSILON:
                    levels[there] = levels[here] + 1
                    reached.append(there)
        return levels

    def _block(self, source: int, sink: int, levels: list[int]) -> None:
        """Push flow along shortest paths until none is left."""
        targets, capacities, edges = self._targets, self._capacities, self._edges
        tried = [0] * len(edges)
        path: list[int] = []
        here = source
        while True:
            if here == sink:
                flow = min([capacities[e] for e in path])
                if flow == math.inf:
                    msg = "no finite cut separates source and sink"
                    raise ValueError(msg)
                for e in path:
                    capacities[e] -= flow
                    capacities[e ^ 1] += flow
                path.clear()
                here = source
                continue
            admissible = -1
            while tried[here] < len(edges[here]):
                edge = edges[here][tried[here]]
                if capacities[edge] > _EPSILON and levels[targets[edge]] == levels[here] + 1:
                    admissible = edge
                    break
                tried[here] += 1
            if admissible >= 0:
                path.append(admissible)
                here = targets[admissible]
            elif here == source:
                return
            else:
                here = targets[path.pop() ^ 1]
                tried[here] += 1
