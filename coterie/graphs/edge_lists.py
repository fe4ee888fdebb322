"""Edge lists of the topologies, as (E, 2) integer arrays in any order: closed forms, random draws, and files.

`make_graph` validates parameters, draws until connected and wraps the result; nothing here does.
"""

import math
from pathlib import Path

import numpy as np

from coterie.errors import InputError

__all__ = [
    "complete_edges",
    "connected_chance",
    "distinct",
    "gnm_edges",
    "grid_edges",
    "pair_codes",
    "path_edges",
    "read_edges",
    "regular_edges",
    "ring_edges",
    "small_world_edges",
    "star_edges",
]


def connected_chance(size: int, p: float) -> float:
    """Probability that an Erdős–Rényi graph G(size, p) is connected.

    Exact for size ≤ 200 (Gilbert 1959: condition on the component of node 0), else exp(−E[isolated nodes]).

    >>> round(connected_chance(10, 0.1), 4)
    0.0064
    """
    if size > 200:
        return math.exp(-size * (1 - p) ** (size - 1))
    chance = [0.0, 1.0]
    for n in range(2, size + 1):
        split = (math.comb(n - 1, k - 1) * chance[k] * (1 - p) ** (k * (n - k)) for k in range(1, n))
        chance.append(max(0.0, 1.0 - math.fsum(split)))
    return chance[size]


def ring_edges(size: int) -> np.ndarray:
    """0 – 1 – … – (size − 1) – 0."""
    i = np.arange(size)
    return np.column_stack([i, (i + 1) % size])


def path_edges(size: int) -> np.ndarray:
    """0 – 1 – … – (size − 1)."""
    return ring_edges(size)[:-1]


def star_edges(size: int) -> np.ndarray:
    """Node 0 in the middle."""
    return np.column_stack([np.zeros(size - 1, int), np.arange(1, size)])


def complete_edges(size: int) -> np.ndarray:
    """Everyone with everyone."""
    return np.column_stack(np.triu_indices(size, 1))


def grid_edges(size: int, rows: int) -> np.ndarray:
    """`rows` × (size / rows) lattice, numbered row by row, without wrap-around."""
    node = np.arange(size).reshape(rows, -1)
    right = np.column_stack([node[:, :-1].ravel(), node[:, 1:].ravel()])
    return np.concatenate([right, np.column_stack([node[:-1].ravel(), node[1:].ravel()])])


def regular_edges(rng: np.random.Generator, size: int, degree: int) -> np.ndarray:
    """Pair half-edges at random, keep the good pairs, pair the rest again.

    Asymptotically uniform over regular graphs (Steger & Wormald 1999), as NetworkX's generator is.
    """
    if 2 * degree >= size:  # the complement is sparser, and regular too
        absent = pair_codes(regular_edges(rng, size, size - 1 - degree), size)
        full = complete_edges(size)
        return full[~_among(pair_codes(full, size), absent)]
    edges = np.empty((0, 2), int)
    halves = np.repeat(np.arange(size), degree)
    while halves.size:
        pairs = np.sort(rng.permutation(halves).reshape(-1, 2), axis=1)
        codes = pair_codes(pairs, size)
        order = np.argsort(codes, kind="stable")
        good = np.ones(len(pairs), bool)
        good[order[1:]] = np.diff(codes[order]) > 0
        good &= (pairs[:, 0] != pairs[:, 1]) & ~_among(codes, pair_codes(edges, size))
        if not good.any():  # stuck: give back a few edges
            back = rng.permutation(len(edges)) < len(edges) - 2 * len(pairs) - 10
            edges, pairs = edges[back], np.concatenate([pairs, edges[~back]])
            good = np.zeros(len(pairs), bool)
        edges, halves = np.concatenate([edges, pairs[good]]), pairs[~good].ravel()
    return edges


def gnm_edges(rng: np.random.Generator, size: int, edges: int) -> np.ndarray:
    """`edges` distinct pairs, uniformly: top up a set of pair numbers until it is full."""
    total = size * (size - 1) // 2
    wanted = min(edges, total - edges)
    chosen = np.empty(0, np.int64)
    while len(chosen) < wanted:
        chosen = distinct(np.concatenate([chosen, rng.integers(0, total, wanted - len(chosen))]))
    if wanted < edges:
        chosen = np.setdiff1d(np.arange(total), chosen, assume_unique=True)
    j = ((1 + np.sqrt(1 + 8.0 * chosen)) / 2).astype(np.int64)  # pair number = j(j−1)/2 + i with i < j
    j -= chosen < j * (j - 1) // 2
    j += chosen >= j * (j + 1) // 2
    return np.column_stack([chosen - j * (j - 1) // 2, j])


def small_world_edges(rng: np.random.Generator, size: int, k: int, p: float) -> np.ndarray:
    """Ring lattice of k neighbours; an edge moves its far end with probability p (Watts & Strogatz 1998)."""
    i = np.repeat(np.arange(size), k // 2)
    while True:
        j = (i + np.tile(np.arange(1, k // 2 + 1), size)) % size
        moving = rng.random(len(i)) < p
        for _ in range(50):  # then start again: a node that is everyone's neighbour has no free place left
            if not moving.any():
                return np.column_stack([i, j])
            j[moving] = rng.integers(0, size, moving.sum())
            codes = pair_codes(np.column_stack([i, j]), size)
            order = np.lexsort((moving, codes))  # of two equal edges the one that did not just move stays
            moving = np.zeros(len(i), bool)
            moving[order[1:]] = np.diff(codes[order]) == 0
            moving |= i == j


def pair_codes(edges: np.ndarray, size: int) -> np.ndarray:
    """One integer per undirected edge."""
    i, j = edges[:, 0], edges[:, 1]
    return np.minimum(i, j) * size + np.maximum(i, j)


def distinct(values: np.ndarray) -> np.ndarray:
    """Sorted unique values; many times faster than np.unique's hash table on millions of integers."""
    values = np.sort(values)
    return values[np.concatenate([[True], np.diff(values) > 0])] if len(values) else values


def _among(values: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """np.isin by binary search, for the same reason."""
    if not len(pool):
        return np.zeros(len(values), bool)
    pool = np.sort(pool)
    return pool[np.searchsorted(pool, values).clip(max=len(pool) - 1)] == values


def read_edges(path: str | Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Edges and node names of a text file: two nodes a line, separated by a comma or white space.

    Blank lines, `#` comments and a `source,target` or `from,to` header are skipped; an edge may be given in
    either or both directions. Integers are numbered in increasing order, other names in order of appearance.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read graph file {path}: {getattr(error, 'strerror', None) or error}") from None
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 1):
        text = line.split("#", 1)[0].strip()
        if not text:
            continue
        nodes = [part.strip() for part in text.split(",")] if "," in text else text.split()
        if not pairs and tuple(map(str.lower, nodes)) in {("source", "target"), ("from", "to")}:
            continue
        if len(nodes) != 2 or not all(nodes):
            raise InputError(f"{path}, line {number}: expected two nodes, got {line.strip()!r}")
        if nodes[0] == nodes[1]:
            raise InputError(f"{path}, line {number}: node {nodes[0]} has an edge to itself")
        pairs.append((nodes[0], nodes[1]))
    if not pairs:
        raise InputError(f"graph file {path} has no edges")
    names = dict.fromkeys(name for pair in pairs for name in pair)
    if all(name.isdecimal() for name in names):
        names = dict.fromkeys(sorted(names, key=int))
    place = {name: index for index, name in enumerate(names)}
    return np.array([(place[a], place[b]) for a, b in pairs]), tuple(names)
