"""Which agent goes to which device: parts of like size that cut few edges, and what then has to travel.

A part holds the same number of agents of every class (to within one), because one program runs on all devices and
pads each class to the largest part. METIS cuts best and is used where `pymetis` is installed (the `cluster` extra).
Without it agents are ordered so that neighbours come close (their own order, reverse Cuthill-McKee, or along the
Fiedler vector where the graph is small) and the order that cuts fewest edges is cut into stretches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from coterie.graphs import Graph

__all__ = ["Traffic", "cut_edges", "make_traffic", "partition_graph"]

SPECTRAL = 400  # nodes up to which a dense Fiedler vector is worth its time


def partition_graph(graph: Graph, parts: int, classes: np.ndarray | None = None, metis: bool = True) -> np.ndarray:
    """The part (0 … parts − 1) of every node; each part gets its share of every class.

    >>> from coterie.graphs import make_graph
    >>> ring = make_graph("ring", 12)
    >>> cut_edges(ring, partition_graph(ring, 3))
    3
    """
    classes = np.zeros(graph.size, int) if classes is None else classes
    if parts == 1:
        return np.zeros(graph.size, int)
    found = [_balanced(graph, labels, parts, classes) for labels in _candidates(graph, parts, metis)]
    return min(found, key=lambda labels: cut_edges(graph, labels))


def cut_edges(graph: Graph, labels: np.ndarray) -> int:
    """How many edges join two parts."""
    return int(np.sum(labels[graph.edges[:, 0]] != labels[graph.edges[:, 1]]))


def _candidates(graph: Graph, parts: int, metis: bool) -> Iterator[np.ndarray]:
    stretches = np.arange(graph.size) * parts // graph.size
    yield stretches
    if metis and (labels := _metis(graph, parts)) is not None:
        yield labels
        return
    labels = np.empty(graph.size, int)
    labels[reverse_cuthill_mckee(sp.csr_matrix(_adjacency(graph)), symmetric_mode=True)] = stretches
    yield labels
    if 2 < graph.size <= SPECTRAL and graph.connected:
        labels = np.empty(graph.size, int)
        labels[np.argsort(np.linalg.eigh(graph.laplacian().toarray())[1][:, 1], kind="stable")] = stretches
        yield labels


def _metis(graph: Graph, parts: int) -> np.ndarray | None:
    try:
        import pymetis
    except ImportError:
        return None
    lists = pymetis.CSRAdjacency(graph.indptr.astype(np.int32), graph.indices.astype(np.int32))
    return np.asarray(pymetis.part_graph(parts, lists, options=pymetis.Options(seed=0)).vertex_part)


def _adjacency(graph: Graph) -> sp.csr_array:
    ones = np.ones(len(graph.indices))
    return sp.csr_array((ones, graph.indices, graph.indptr), shape=(graph.size, graph.size))


def _balanced(graph: Graph, labels: np.ndarray, parts: int, classes: np.ndarray) -> np.ndarray:
    """Move as few agents as it takes until every class is spread evenly, each to where it has most neighbours."""
    labels = labels.copy()
    for c in np.unique(classes):
        members = np.flatnonzero(classes == c)
        most = -(-len(members) // parts)
        counts = np.bincount(labels[members], minlength=parts)
        if counts.max() <= most:
            continue
        onehot = sp.csr_array((np.ones(graph.size), (np.arange(graph.size), labels)), shape=(graph.size, parts))
        near = np.asarray((_adjacency(graph)[members] @ onehot).todense())  # neighbours of each member in every part
        own = labels[members]
        gain = near - near[np.arange(len(members)), own][:, None]
        gain[:, counts >= most] = -np.inf  # full
        gain[counts[own] <= most] = -np.inf  # may stay
        best = np.argsort(-gain.max(1), kind="stable")
        for k in best:
            if counts.max() <= most:
                break
            if counts[own[k]] <= most:
                continue
            room = np.flatnonzero(counts < most)
            to = room[np.argmax(near[k, room])]
            counts[own[k]] -= 1
            counts[to] += 1
            labels[members[k]] = to
    return labels


@dataclass(frozen=True)
class Traffic:
    """What crosses between parts in a round: `needs[p, q]` are the agents of p whose messages somebody in q reads.

    `waves` schedules the pairs so that in one wave every part sends to at most one other and hears from at most one:
    each wave is one collective permute, padded to its longest list. Pairs are taken longest first, so that lists of
    like length share a wave and little is padded.
    """

    needs: dict[tuple[int, int], np.ndarray]
    waves: tuple[tuple[tuple[int, int], ...], ...]

    def length(self, wave: int) -> int:
        """Messages that each pair of a wave carries."""
        return max(len(self.needs[pair]) for pair in self.waves[wave])

    @property
    def messages(self) -> int:
        """Messages that cross in a round, padding included."""
        return sum(self.length(k) * len(wave) for k, wave in enumerate(self.waves))


def make_traffic(graph: Graph, labels: np.ndarray) -> Traffic:
    """Who must send what to whom when agents live in these parts."""
    here, there = labels[graph.indices], labels[graph.sources]
    cut = here != there
    triples = np.unique(np.stack([here[cut], there[cut], graph.indices[cut]]), axis=1)
    pairs, starts = np.unique(triples[:2], axis=1, return_index=True)
    lists = np.split(triples[2], starts[1:])
    needs = {(int(p), int(q)): agents for (p, q), agents in zip(pairs.T, lists, strict=True)} if cut.any() else {}
    waves: list[list[tuple[int, int]]] = []
    for pair in sorted(needs, key=lambda pair: (-len(needs[pair]), pair)):
        free = (w for w in waves if all(pair[0] != p and pair[1] != q for p, q in w))
        wave = next(free, None)
        if wave is None:
            waves.append(wave := [])
        wave.append(pair)
    return Traffic(needs, tuple(map(tuple, waves)))
