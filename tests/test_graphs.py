"""Topologies against NetworkX, spectra against dense eigenvalues, mixing rules against their definitions."""

import time

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.graphs import KINDS, RULES, Graph, Mixing, connected_chance, from_outside, make_graph, mixing
from coterie.graphs.graph import lanczos
from coterie.settings import Settings
from tests.support import mostly_slow

MADE = [kind for kind in KINDS.names if not from_outside(kind)]  # every kind that is found


def example(kind: str, size: int = 12, seed: int = 0) -> Graph:
    if kind == "listed":
        pairs = [(2, 0), *((i, i + 1) for i in range(size - 1)), (1, 0)]  # in any order, and one twice
        return make_graph(kind, size, pairs=pairs)
    settings: Settings = KINDS.load(kind).EXAMPLE
    return make_graph(kind, size, **settings.model_dump() | ({"seed": seed} if hasattr(settings, "seed") else {}))


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(0, 1)], "do not connect all 3"),
        ([(0, 1), (1, 3)], r"\[1, 3\] does not join two of the nodes 0 to 2"),
        ([(0, 0), (0, 1), (1, 2)], r"\[0, 0\] does not join"),
    ],
)
def test_listed_pairs_that_are_no_graph(pairs: list[tuple[int, int]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_graph("listed", 3, pairs=pairs)


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("size", [8, 12])
def test_edges_are_canonical_and_connected(kind: str, size: int) -> None:
    graph = example(kind, size)
    i, j = graph.edges.T
    assert np.all(i < j)
    assert np.all(np.diff(i.astype(int) * size + j) > 0)
    assert graph.connected
    assert nx.is_connected(graph.to_networkx())
    for node in range(size):
        assert graph.neighbours(node).tolist() == sorted(graph.to_networkx()[node])
        assert graph.degrees[node] == len(graph.neighbours(node))
    np.testing.assert_array_equal(graph.laplacian().toarray(), nx.laplacian_matrix(graph.to_networkx()).toarray())


@pytest.mark.parametrize(
    ("kind", "size", "params", "peer"),
    [
        ("ring", 7, {}, nx.cycle_graph(7)),
        ("path", 7, {}, nx.path_graph(7)),
        ("star", 7, {}, nx.star_graph(6)),
        ("complete", 6, {}, nx.complete_graph(6)),
        ("grid", 12, {}, nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4))),
        ("grid", 12, {"rows": 2}, nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, 6))),
        ("small-world", 10, {"k": 4, "p": 0.0}, nx.watts_strogatz_graph(10, 4, 0.0)),
        ("ring", 2, {}, nx.path_graph(2)),
    ],
)
def test_structured_kinds_equal_networkx(kind: str, size: int, params: dict, peer: nx.Graph) -> None:
    graph = make_graph(kind, size, **params).to_networkx()
    assert {frozenset(e) for e in graph.edges} == {frozenset(e) for e in peer.edges}


@settings(max_examples=60, deadline=None)
@given(size=st.integers(4, 24), degree=st.integers(3, 23), seed=st.integers(0, 99))
def test_regular_graphs_are_regular(size: int, degree: int, seed: int) -> None:
    if degree >= size or degree * size % 2:
        with pytest.raises(InputError, match="degree"):
            make_graph("regular", size, degree=degree, seed=seed)
        return
    graph = make_graph("regular", size, degree=degree, seed=seed)
    assert set(graph.degrees) == {degree}


def test_gnm_is_uniform_over_connected_graphs() -> None:
    """16 labelled trees on 4 nodes, equally likely (chi-squared, 15 degrees of freedom: 99.9 % < 37.7)."""
    draws = [make_graph("gnm", 4, edges=3, seed=seed).edges.tobytes() for seed in range(3200)]
    counts = np.unique(draws, return_counts=True)[1]
    assert len(counts) == 16
    assert np.sum((counts - 200) ** 2 / 200) < 37.7


def triangles(graph: Graph) -> int:
    return sum(nx.triangles(graph.to_networkx()).values()) // 3


def test_regular_is_near_uniform() -> None:
    """Triangles of a 4-regular graph: Poisson, mean 3³/6 = 4.5 (Bollobás 1980); a lattice has many more."""
    counts = [triangles(make_graph("regular", 150, degree=4, seed=seed)) for seed in range(200)]
    assert abs(np.mean(counts) - 4.5) < 0.6  # four standard errors
    assert 0.6 < np.var(counts) / 4.5 < 1.4
    assert triangles(make_graph("small-world", 150, k=4, p=0.3)) > 30


@settings(max_examples=40, deadline=None)
@given(size=st.integers(2, 30), seed=st.integers(0, 99), data=st.data())
def test_gnm_has_the_asked_number_of_edges(size: int, seed: int, data: st.DataObject) -> None:
    pairs = size * (size - 1) // 2
    edges = data.draw(st.integers(min(pairs, 3 * size), pairs))
    assert len(make_graph("gnm", size, edges=edges, seed=seed).edges) == edges


@settings(max_examples=60, deadline=None)
@given(size=st.integers(4, 16), p=st.floats(0, 1), seed=st.integers(0, 99), data=st.data())
def test_small_world_keeps_its_edge_count(size: int, p: float, seed: int, data: st.DataObject) -> None:
    k = 2 * data.draw(st.integers(1, size // 4))
    assert len(make_graph("small-world", size, k=k, p=p, seed=seed).edges) == size * k // 2


def test_erdos_renyi_edge_count_follows_p() -> None:
    """Mean edges of G(30, 0.4) is 174, standard error of 200 draws 0.72 (nearly every draw is connected)."""
    counts = [len(make_graph("erdos-renyi", 30, p=0.4, seed=seed).edges) for seed in range(200)]
    assert abs(np.mean(counts) - 174) < 3
    assert abs(np.std(counts) / np.sqrt(435 * 0.24) - 1) < 0.2


def test_seed_decides_the_graph() -> None:
    """And without one, the settings do."""
    for kind in MADE:
        first, again, other = (example(kind, seed=seed).edges.tolist() for seed in (1, 1, 2))
        assert first == again
        assert (first != other) == ("seed" in KINDS.load(kind).Settings.model_fields), kind


def test_connected_chance_by_enumeration() -> None:
    """All 2^10 graphs on 5 nodes; and the spec's value for ER(10, 0.1)."""
    pairs = [(i, j) for i in range(5) for j in range(i)]
    total = 0.0
    for mask in range(1024):
        edges = [pair for bit, pair in enumerate(pairs) if mask >> bit & 1]
        graph = nx.empty_graph(5)
        graph.add_edges_from(edges)
        total += nx.is_connected(graph) * 0.3 ** len(edges) * 0.7 ** (10 - len(edges))
    assert connected_chance(5, 0.3) == pytest.approx(total, abs=1e-12)
    assert connected_chance(10, 0.1) == pytest.approx(0.0064, abs=5e-5)
    assert connected_chance(200, 0.03) == pytest.approx(np.exp(-200 * 0.97**199), rel=0.05)


def test_rare_connected_draw_is_found_and_hopeless_one_is_refused_at_once() -> None:
    assert make_graph("erdos-renyi", 10, p=0.1, seed=3).connected
    started = time.perf_counter()
    with pytest.raises(InputError, match=r"probability about .*p of 2.8e-05 or more.*'gnm'"):
        make_graph("erdos-renyi", 10**6, p=1e-6)
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    ("kind", "size", "params", "message"),
    [
        ("torus", 5, {}, "unknown graph kind 'torus'; there are complete, erdos-renyi"),
        ("ring", 1, {}, "graph size must be an integer from 2 .* got 1"),
        ("ring", None, {}, "size must be an integer"),
        ("ring", 5.0, {}, "size must be an integer"),
        ("ring", 5, {"degree": 2}, "unknown key ring.degree; there are none"),
        ("regular", 5, {}, "regular.degree is needed"),
        ("regular", 5, {"degree": 3}, "product must be even"),
        ("regular", 5, {"degree": 5}, "degree must be an integer from 1 to 4"),
        ("regular", 6, {"degree": 1}, "no connected regular graph"),
        ("erdos-renyi", 5, {"p": 1.5}, "erdos-renyi.p: input should be less than or equal to 1 .got 1.5."),
        ("erdos-renyi", 5, {"p": 0}, "no connected erdos-renyi"),
        ("gnm", 5, {"edges": 3}, "edges must be an integer from 4 to 10"),
        ("gnm", 5, {"edges": 11}, "edges must be an integer from 4 to 10"),
        ("small-world", 9, {"k": 3, "p": 0.1}, "even k"),
        ("small-world", 5, {"k": 4, "p": 0.1}, "k must be an integer from 2 to 2"),
        ("grid", 7, {}, "single line"),
        ("grid", 12, {"rows": 5}, "cannot have 5 equal rows"),
        ("complete", 10**6, {}, "more than 50,000,000"),
        ("file", None, {}, "file.path is needed"),
    ],
)
def test_wrong_parameters(kind: str, size: int, params: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make_graph(kind, size, **params)
    assert "\n" not in str(caught.value)


def test_file_with_names_comments_header_and_both_directions(tmp_path) -> None:
    path = tmp_path / "graph.csv"
    path.write_text("source,target\nOslo, Rome # far\nRome,Oslo\n\nRome,Bern\n")
    graph = make_graph("file", path=path)
    assert graph.names == ("Oslo", "Rome", "Bern")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    path.write_text("10 2\n2 1\n")
    assert make_graph("file", 3, path=path).names == ("1", "2", "10")
    assert make_graph("file", 3, path=path).edges.tolist() == [[0, 1], [1, 2]]


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        ("0 1\n1 2 3\n", None, "line 2: expected two nodes, got '1 2 3'"),
        ("0 1\n\n1,\n", None, "line 3: expected two nodes"),
        ("0 1\n1 1\n", None, "line 2: node 1 has an edge to itself"),
        ("0 1\n2 3\n", None, "not connected"),
        ("0 1\n", 3, "has 2 nodes, but 3 are wanted"),
        ("# nothing\n", None, "has no edges"),
    ],
)
def test_bad_files(tmp_path, text: str, size: int | None, message: str) -> None:
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        make_graph("file", size, path=path)
    with pytest.raises(InputError, match="cannot read graph file"):
        make_graph("file", path=tmp_path / "absent.txt")


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("size", [8, 15, 24])
def test_laplacian_extremes_and_description(kind: str, size: int) -> None:
    params = {"regular": {"degree": 4}, "gnm": {"edges": 3 * size}}.get(kind)
    graph = example(kind, size) if params is None else make_graph(kind, size, **params)
    values = np.linalg.eigvalsh(nx.laplacian_matrix(graph.to_networkx()).toarray().astype(float))
    low, high, _ = graph.laplacian_extremes
    assert low == pytest.approx(values[1], abs=1e-12)
    assert high == pytest.approx(values[-1], abs=1e-12)
    facts = graph.describe()
    assert facts["diameter"] == nx.diameter(graph.to_networkx())
    assert facts["degree_mean"] == pytest.approx(2 * len(graph.edges) / size)


@pytest.mark.parametrize("rule", RULES.names)
@pytest.mark.parametrize("kind", MADE)
def test_mixing_rules(kind: str, rule: str) -> None:
    graph = example(kind)
    if rule == "uniform" and kind != "complete":
        with pytest.raises(InputError, match="needs a complete graph"):
            mixing(graph, rule)
        return
    matrix = mixing(graph, rule)
    dense = matrix.dense()
    peer, degrees = graph.to_networkx(), graph.degrees
    laplacian = nx.laplacian_matrix(peer).toarray().astype(float)
    largest = np.linalg.eigvalsh(laplacian)[-1]
    expected = {
        "laplacian": np.eye(12) - laplacian / largest,
        "two-thirds": np.eye(12) - 2 * laplacian / (3 * largest),
        "uniform": np.full((12, 12), 1 / 12),
        "metropolis": np.array(
            [[peer.has_edge(i, j) / (1 + max(degrees[i], degrees[j])) for j in range(12)] for i in range(12)]
        ),
    }[rule]
    if rule == "metropolis":
        np.fill_diagonal(expected, 1 - expected.sum(axis=1))
    np.testing.assert_allclose(dense, expected, atol=1e-13)
    assert dense.min() >= -1e-16
    values = np.linalg.eigvalsh(dense)
    spectrum = matrix.spectrum()
    assert spectrum.beta == pytest.approx(np.sort(np.abs(values))[-2], abs=1e-12)
    assert spectrum.gap == pytest.approx(1 - spectrum.beta, abs=1e-12)
    assert (spectrum.lambda_min, spectrum.lambda_2) == pytest.approx((values[0], values[-2]), abs=1e-12)
    x = np.random.default_rng(0).standard_normal((12, 3))
    np.testing.assert_allclose(matrix.matrix() @ x, dense @ x, atol=1e-13)


@pytest.mark.parametrize("rule", ["metropolis", "laplacian", "two-thirds"])
def test_spectrum_by_iteration_equals_dense(rule: str) -> None:
    graph = make_graph("erdos-renyi", 700, p=0.03, seed=2)
    matrix = mixing(graph, rule)
    values = np.linalg.eigvalsh(matrix.dense())
    spectrum = matrix.spectrum()
    assert spectrum.method == "lanczos"
    assert spectrum.beta == pytest.approx(max(values[-2], -values[0]), abs=1e-8)
    assert spectrum.lambda_min == pytest.approx(values[0], abs=1e-8)


def test_spectrum_out_of_reach_says_so_and_bounds_kappa() -> None:
    """A ring read as an unknown graph is too slow for Lanczos: λ₂ is None, κ is the bound d_i + d_j = 4."""
    ring = make_graph("ring", 5000)
    unknown = Graph(5000, ring.edges, "file")
    assert lanczos(unknown.laplacian(), 0.0, "SA") is None
    assert unknown.laplacian_extremes == (None, 4.0, "bound")
    spectrum = mixing(unknown, "laplacian").spectrum()
    assert spectrum.beta is None
    assert spectrum.method == "out of reach for 5000 nodes"
    exact = mixing(ring, "laplacian").spectrum()
    assert exact.gap == pytest.approx(np.sin(np.pi / 5000) ** 2, rel=1e-12)


def test_kappa() -> None:
    graph = make_graph("star", 6)  # λ_max = 6, largest degree 5
    assert mixing(graph, "laplacian", kappa=5.0).self_weights[0] == 0
    with pytest.raises(InputError, match="< 0: use a larger kappa"):
        mixing(graph, "laplacian", kappa=4.0)
    assert mixing(graph, "laplacian", kappa=4.0, negative=True).self_weights[0] == pytest.approx(-0.25)
    with pytest.raises(InputError, match="kappa must be > 3"):
        mixing(graph, "laplacian", kappa=3.0, negative=True)
    with pytest.raises(InputError, match=r"unknown key metropolis\.kappa"):
        mixing(graph, "metropolis", kappa=3.0)
    with pytest.raises(InputError, match="unknown mixing rule 'magic'"):
        mixing(graph, "magic")


def test_checks_refuse_broken_matrices() -> None:
    good = mixing(make_graph("path", 4), "metropolis")
    lopsided = good.edge_weights.copy()
    lopsided[0] += 1e-9
    with pytest.raises(InputError, match="not symmetric"):
        Mixing(good.graph, "x", good.self_weights, lopsided).check()
    with pytest.raises(InputError, match="not doubly stochastic"):
        Mixing(good.graph, "x", good.self_weights * (1 + 1e-9), good.edge_weights).check()
    apart = Graph(4, np.array([[0, 1], [2, 3]]), "file")
    with pytest.raises(InputError, match="not connected"):
        mixing(apart, "metropolis")


@pytest.mark.parametrize("kind", mostly_slow(["ring", "path", "star", "grid"], "grid"))
def test_a_million_nodes_is_normal(kind: str) -> None:
    started = time.perf_counter()
    graph = make_graph(kind, 10**6)
    matrix = mixing(graph, "metropolis")
    assert matrix.self_weights.shape == (10**6,)
    assert matrix.edge_weights.shape == graph.indices.shape == (2 * len(graph.edges),)
    gap = matrix.spectrum().gap
    if kind == "ring":
        assert gap == pytest.approx(4 / 3 * (np.pi / 1e6) ** 2, rel=1e-9)
    if kind == "grid":  # Metropolis is not a multiple of the Laplacian there
        assert gap is None
        assert mixing(graph, "laplacian").spectrum().gap == pytest.approx(np.pi**2 / 1e6 / 8, rel=1e-3)
    assert time.perf_counter() - started < 60  # about 1 s on a free core; anything quadratic takes hours


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "params"),
    [("regular", {"degree": 4}), ("small-world", {"k": 6, "p": 0.1}), ("erdos-renyi", {"p": 3e-5})],
)
def test_a_million_random_nodes(kind: str, params: dict) -> None:
    graph = make_graph(kind, 10**6, **params)
    assert graph.connected
    assert mixing(graph, "laplacian").spectrum().beta is None
