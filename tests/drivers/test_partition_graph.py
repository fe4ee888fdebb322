"""Parts of a graph: even, cutting few edges, and a schedule that brings every needed message exactly once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.drivers.partition_graph import cut_edges, make_traffic, partition_graph
from coterie.graphs import Graph, make_graph


def renamed(graph: Graph, seed: int = 0) -> Graph:
    """The same graph with its nodes in random order, so that no order helps."""
    name = np.random.default_rng(seed).permutation(graph.size)
    edges = np.sort(name[graph.edges], axis=1)
    return Graph(graph.size, edges[np.lexsort(edges.T[::-1])], "file")


def barbell(half: int) -> Graph:
    """Two complete graphs joined by one edge."""
    pairs = [(i, j) for i in range(half) for j in range(i + 1, half)]
    return Graph(2 * half, np.array(sorted([*pairs, (0, half), *((i + half, j + half) for i, j in pairs)])), "file")


@pytest.mark.parametrize("metis", [True, False])
def test_known_cuts(metis: bool) -> None:
    """A ring in p stretches loses p edges, a barbell its bar, a k × k grid in two halves k edges."""
    if metis:
        pytest.importorskip("pymetis")
    ring, bar, grid = make_graph("ring", 24), renamed(barbell(8)), renamed(make_graph("grid", 144))
    assert cut_edges(ring, partition_graph(ring, 4, metis=metis)) == 4
    assert cut_edges(bar, partition_graph(bar, 2, metis=metis)) == 1
    assert cut_edges(grid, partition_graph(grid, 2, metis=metis)) <= 1.5 * 12
    evenly = np.random.default_rng(1).permutation(np.arange(144) % 2)
    assert cut_edges(grid, evenly) > 5 * 12  # a partition that does not look at edges


@given(st.integers(2, 6), st.integers(0, 100), st.booleans())
@settings(max_examples=25, deadline=None)
def test_every_class_is_shared_out_and_every_message_arrives_once(parts: int, seed: int, metis: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = make_graph("erdos-renyi", 30, seed=seed, p=0.2)
    classes = rng.integers(0, 3, graph.size)
    labels = partition_graph(graph, parts, classes, metis)
    assert labels.min() >= 0
    assert labels.max() < parts
    for c in range(3):
        assert np.bincount(labels[classes == c], minlength=parts).max() <= -(-np.sum(classes == c) // parts)

    traffic = make_traffic(graph, labels)
    wanted: dict[tuple[int, int], set[int]] = {}
    for i, j in graph.edges.tolist():
        for sender, reader in ((i, j), (j, i)):
            if labels[sender] != labels[reader]:
                wanted.setdefault((int(labels[sender]), int(labels[reader])), set()).add(sender)
    assert {pair: set(agents.tolist()) for pair, agents in traffic.needs.items()} == wanted
    assert all(len(set(a.tolist())) == len(a) for a in traffic.needs.values())
    assert sorted(pair for wave in traffic.waves for pair in wave) == sorted(wanted)
    for wave in traffic.waves:
        assert len({p for p, _ in wave}) == len({q for _, q in wave}) == len(wave)
    sent = sum(map(len, wanted.values()))
    assert sent <= min(traffic.messages, 2 * cut_edges(graph, labels))


def test_traffic_grows_with_the_boundary_not_with_the_agents() -> None:
    """A ring over 4 devices moves 8 messages a round, whether it has 40 or 40,000 agents."""
    for n in (40, 40_000):
        ring = make_graph("ring", n)
        assert make_traffic(ring, partition_graph(ring, 4)).messages == 8
