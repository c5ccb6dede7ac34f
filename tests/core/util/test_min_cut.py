"""The cheapest cut: against all cuts of small graphs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tracebridge.core.util.min_cut import FlowNetwork


@pytest.mark.parametrize("seed", range(40))
def test_no_cut_is_cheaper(seed: int) -> None:
    """Random graphs of six nodes, with edges that may not be cut among them."""
    random = np.random.default_rng(seed)
    n = 6
    edges = [
        (int(a), int(b), float(random.integers(0, 9)))
        for a, b in random.integers(0, n, (12, 2))
        if a != b
    ]
    edges += [(int(a), int(b), math.inf) for a, b in random.integers(1, n - 1, (2, 2)) if a != b]
    network = FlowNetwork(n)
    for edge in edges:
        network.add(*edge)

    side = network.source_side(0, n - 1)

    def price(side: list[bool]) -> float:
        return sum([c for a, b, c in edges if side[a] and not side[b]])

    every = [[True, *s, False] for s in itertools.product([False, True], repeat=n - 2)]
    assert side[0]
    assert not side[n - 1]
    assert price(side) == min(map(price, every))


def test_no_cut_at_all() -> None:
    """A path without capacities is an error, not an endless loop."""
    network = FlowNetwork(3)
    network.add(0, 1, math.inf)
    network.add(1, 2, math.inf)

    with pytest.raises(ValueError, match="no finite cut"):
        network.source_side(0, 2)


def test_long_chains_need_no_recursion() -> None:
    network = FlowNetwork(0)
    nodes = [network.node() for _ in range(20_000)]
    for a, b in itertools.pairwise(nodes):
        network.add(a, b, 2.0)
    network.add(nodes[0], nodes[-1], 1.0)

    assert sum(network.source_side(nodes[0], nodes[-1])) == 1
