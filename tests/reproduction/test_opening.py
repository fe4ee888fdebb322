"""Opening Σ A_i x_i as printed for consensus gives every x_i to one node; the sum of all x_i gives none."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.graphs import Graph, make_graph
from reproduction.opening import check_opening, revealed

GRAPHS = [("path", 5), ("ring", 6), ("star", 5), ("complete", 4), ("grid", 6)]


def incidence(graph: Graph) -> np.ndarray:
    """One row x_i − x_j for each edge: the constraint matrix of consensus."""
    rows = np.zeros((len(graph.edges), graph.size))
    for k, (i, j) in enumerate(graph.edges):
        rows[k, i], rows[k, j] = 1, -1
    return rows


@pytest.mark.parametrize(("kind", "size"), GRAPHS)
def test_the_printed_scheme_gives_every_point_to_one_node(kind: str, size: int) -> None:
    """Xiao, Ye, Devadas (1) with consensus constraints: one curious node solves for everybody, to rounding."""
    matrix, d = incidence(make_graph(kind, size)), 3
    points = np.random.default_rng(0).normal(size=(size, d))
    opened = matrix @ points  # what Algorithm 3 opens in every round
    for node in (0, size - 1):
        rest = np.delete(np.arange(size), node)
        solved = np.linalg.lstsq(matrix[:, rest], opened - np.outer(matrix[:, node], points[node]), rcond=None)[0]
        assert np.abs(solved - points[rest]).max() < 1e-12
        found = revealed([matrix[:, [i]] for i in range(size)], node)
        assert sorted(found) == rest.tolist()


@pytest.mark.parametrize("size", [3, 5, 8])
def test_the_global_sum_gives_no_point_to_anybody(size: int) -> None:
    """Every other point can be anything: a second network with the same sum and the same own point differs in all."""
    ours, d = [np.eye(2)] * size, 2
    assert all(revealed(ours, node) == {} for node in range(size))
    check_opening(ours)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(size, d))
    for node in range(size):
        rest = np.delete(np.arange(size), node)
        move = rng.normal(size=(size - 1, d))
        other = points.copy()
        other[rest] += move - move.mean(0)
        np.testing.assert_allclose(other.sum(0), points.sum(0))
        assert (np.abs(other[rest] - points[rest]).max(1) > 1e-3).all()


@pytest.mark.parametrize(("kind", "size"), GRAPHS[:3])
def test_incidence_laplacian_and_neighbourhood_sums_are_refused(kind: str, size: int) -> None:
    graph = make_graph(kind, size)
    laplacian = graph.laplacian().toarray()
    closed = (laplacian != 0).astype(float)
    for matrix in (incidence(graph), laplacian, closed, closed - np.eye(size)):
        with pytest.raises(InputError, match="differences of the opened rows isolate it"):
            check_opening([matrix[:, [i]] for i in range(size)])


def test_two_parties_cannot_hide_from_each_other() -> None:
    assert sorted(revealed([np.eye(1)] * 2, observer=0)) == [1]
    with pytest.raises(InputError, match="same number of rows"):
        revealed([np.eye(1), np.eye(2)], 0)


def test_a_coupling_that_hides_and_one_that_does_not() -> None:
    """One shared budget hides three generators; two budgets of which one binds a single generator do not."""
    check_opening([[[1.0]], [[2.0]], [[0.5]], [[1.0]]])
    with pytest.raises(InputError, match="values of party 0 alone"):
        check_opening([[[1.0], [1.0]], [[1.0], [0.0]], [[1.0], [0.0]]])
