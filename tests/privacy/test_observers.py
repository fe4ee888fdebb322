"""What single observers learn: closed forms, brute force, mistakes of other accounts, a search for counterexamples."""

import itertools
import time

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.graphs import Graph, from_edges, make_graph, mixing
from coterie.privacy import gdp
from coterie.privacy.observers import (
    Outlook,
    factorised,
    hidden_share,
    linear,
    reacting,
    view,
    worst_hidden_share,
)


def weights_of(graph: Graph) -> np.ndarray:
    return mixing(graph, "metropolis").dense()


def by_impulses(weights: np.ndarray, own: list[int], scale: np.ndarray, sensitivity: np.ndarray) -> np.ndarray:
    """μ by a pseudo-inverse of all noise, whose columns are runs with one impulse; nothing shared with the package."""
    size, rounds = scale.shape
    rest = [i for i in range(size) if i not in own]
    seen = [i for i in rest if any(weights[o, i] for o in own)]
    silent = weights.copy()
    silent[own], silent[:, own] = 0, 0

    def run(party: int, when: int) -> np.ndarray:
        y, out = np.zeros(size), []
        for t in range(rounds):
            y = silent @ y
            y[party] += t == when
            out.append(y[seen])
        return np.concatenate(out)

    noise = np.stack([scale[i, s] * run(i, s) for i in rest for s in range(rounds)], axis=1)
    inputs = np.stack([run(i, 0) if i in rest else 0 * run(rest[0], 0) for i in range(size)], axis=1)
    return sensitivity * np.linalg.norm(np.linalg.pinv(noise, rcond=1e-12) @ inputs, axis=0)


@pytest.mark.parametrize("own", [[0], [0, 5]])
@pytest.mark.parametrize("kind", ["ring", "regular"])
def test_linear_view_equals_the_pseudo_inverse(kind: str, own: list[int]) -> None:
    graph = make_graph(kind, 16, **({"degree": 4} if kind == "regular" else {}))
    weights, rng, rounds = weights_of(graph), np.random.default_rng(1), 7
    sensitivity = rng.uniform(0.5, 1, 16)
    alike = np.ones((16, rounds))
    later = np.concatenate([alike[:, :1], 0.3 * alike[:, 1:]], axis=1)
    once = np.concatenate([rng.uniform(0.5, 1, (16, 1)), 0 * alike[:, 1:]], axis=1)
    for scale in (alike, later, once, rng.uniform(0.5, 2, (16, rounds))):
        found = linear(view(weights, own), sensitivity, scale)
        assert np.abs(found - by_impulses(weights, own, scale, sensitivity)).max() <= 1e-9


def test_noise_once_is_inverted_but_for_symmetry() -> None:
    """On a ring far parties are as visible as near ones; two leaves of a star hide each other from a third."""
    once = np.zeros((16, 8))
    once[:, 0] = 1.0
    ring = linear(view(weights_of(make_graph("ring", 16)), [0]), np.ones(16), once)
    assert ring[1:] == pytest.approx(np.ones(15), abs=1e-9)
    star = linear(view(weights_of(make_graph("star", 4)), [3]), np.ones(4), once[:4])
    assert star[1] ** 2 == pytest.approx(0.5)
    assert star[0] ** 2 == pytest.approx(1.0)


@pytest.mark.parametrize("again", [1e-4, 1e-9, 1e-200])
def test_hardly_any_noise_counts_as_none(again: float) -> None:
    """Never less than with more of it, and in any units."""
    weights = mixing(make_graph("ring", 10), "metropolis").dense()
    seen, first = view(weights, [0]), np.eye(1, 12)[0]
    once = linear(seen, np.ones(10), np.tile(first, (10, 1)))
    more = linear(seen, np.ones(10), np.tile(np.where(first > 0, 1.0, 2e-3), (10, 1)))
    found = linear(seen, np.full(10, 1e-90), 1e-90 * np.tile(np.where(first > 0, 1.0, again), (10, 1)))
    assert found == pytest.approx(once, rel=1e-9)
    assert np.all(found >= more)


def test_path_in_closed_form() -> None:
    """v – a – u, two rounds: shift w g against noise 1 + (w g)², for a middle agent of Lipschitz constant g."""
    seen, scale = view(weights_of(make_graph("path", 3)), [0]), np.ones((3, 2))
    assert factorised(seen, 2, np.ones(2), scale) == pytest.approx(0.1**0.5)
    assert float(gdp.epsilon_of(0.1**0.5, 1e-5)) == pytest.approx(1.20, abs=5e-3)
    for gain in (0.5, 1.0, 9.0, 100.0):
        exact = ((gain / 3) ** 2 / (1 + (gain / 3) ** 2)) ** 0.5
        assert reacting(seen, 2, np.ones(2), scale, np.full(3, gain)) == pytest.approx(exact, rel=1e-6)


def with_gains(seen: Outlook, gain: np.ndarray, party: int, rounds: int) -> float:
    """Exact μ where everybody multiplies what it hears by its gain: the worst signs of a record's shifts."""
    turned = Outlook(seen.rest, gain[seen.rest, None] * seen.mixing, seen.seen, seen.size)
    k, me = len(seen.seen), int(np.flatnonzero(seen.rest == party)[0])
    powers = [np.eye(len(seen.rest))]
    for _ in range(rounds - 1):
        powers.append(powers[-1] @ turned.mixing)
    rows = [p[seen.seen] for p in powers]
    noise, shift = np.zeros((k * rounds, len(seen.rest) * rounds)), np.zeros((k * rounds, rounds))
    for t, s in itertools.product(range(rounds), repeat=2):
        if t >= s:
            noise[t * k : (t + 1) * k, s * len(seen.rest) : (s + 1) * len(seen.rest)] = rows[t - s]
            shift[t * k : (t + 1) * k, s] = rows[t - s][:, me]
    square = shift.T @ np.linalg.solve(noise @ noise.T, shift)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=rounds)))
    return float(np.sqrt(np.max(np.einsum("ki,ij,kj->k", signs, square, signs))))


def test_the_linear_formula_is_no_bound_for_convex_steps_and_absorption_is() -> None:
    """v – c – {u, b}: where b's step forgets what it hears (step 1/L), u loses the company that hid it."""
    graph, rounds = from_edges(4, np.array([[0, 1], [1, 2], [1, 3]])), 4
    seen, scale = view(weights_of(graph), [0]), np.ones((4, rounds))
    claimed = factorised(seen, 2, np.ones(rounds), scale)
    found = with_gains(seen, np.array([1.0, 1.0, 1.0, 0.0]), 2, rounds)
    assert found > 1.01 * claimed
    assert found <= reacting(seen, 2, np.ones(rounds), scale, np.ones(4))


def test_absorption_bounds_every_linear_step_that_was_tried() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        size, rounds = int(rng.integers(3, 7)), int(rng.integers(2, 6))
        tree = np.array([[int(rng.integers(0, i)), i] for i in range(1, size)])
        more = [(i, j) for i, j in itertools.combinations(range(size), 2) if rng.random() < 0.2]
        graph = from_edges(size, np.array(sorted({tuple(e) for e in tree.tolist()} | set(more))))
        seen, scale = view(weights_of(graph), [0]), np.ones((size, rounds))
        for party in seen.rest.tolist():
            most = rng.uniform(0.5, 3, size)
            bound = reacting(seen, party, np.ones(rounds), scale, most)
            assert with_gains(seen, most * rng.uniform(-1, 1, size), party, rounds) <= bound * (1 + 1e-9)
            assert bound <= rounds**0.5 * (1 + 1e-12)


def test_near_the_linear_formula_on_a_ring() -> None:
    """What soundness costs for steps that expand nothing: below a tenth."""
    seen, scale = view(weights_of(make_graph("ring", 16)), [0]), np.ones((16, 20))
    for party in (2, 3, 5):
        ours = reacting(seen, party, np.ones(20), scale, np.ones(16)) ** 2
        assert 1.0 <= ours / factorised(seen, party, np.ones(20), scale) ** 2 <= 1.1


def test_messages_that_share_noise_are_not_independent() -> None:
    """Ring of 16, noise once, five rounds, five hops: both published formulas are below the exact loss."""
    weights = weights_of(make_graph("ring", 16))
    powers = [np.linalg.matrix_power(weights, t) for t in range(5)]
    printed = sum(p[5, w] ** 2 / np.sum(p[w] ** 2) for p in powers for w in (1, 15))
    corrected = sum(p[5, w] / np.sum(p[w] ** 2) for p in powers for w in (1, 15))
    once = np.zeros((16, 5))
    once[:, 0] = 1.0
    exact = linear(view(weights, [0]), np.ones(16), once)[5] ** 2
    assert exact == pytest.approx(1.0)
    assert printed < 2e-3
    assert corrected < 0.1


def test_shared_noise_in_closed_form_and_by_brute_force() -> None:
    triangle = np.array([[0, 1], [0, 2], [1, 2]])
    assert hidden_share(triangle, 3, 2.0) == pytest.approx(np.full(3, (1 + 2 / 13) / 3))  # eigenvalues 1, 13, 13
    assert hidden_share(triangle, 3, 2.0, [2])[0] == pytest.approx(5 / 9)
    edges = make_graph("regular", 12, degree=4).edges
    brute = max(hidden_share(edges, 12, 3.0, q).max() for q in itertools.combinations(range(12), 2))
    assert worst_hidden_share(edges, 12, 3.0, 2) == pytest.approx(brute, rel=1e-9)
    assert worst_hidden_share(make_graph("ring", 9).edges, 9, 10.0, 2) == 1.0


@pytest.mark.parametrize("ratio", [30.0, 31.0, 1e3, 1e5, 1e7, 1e8, 1e12, 1e200])
def test_large_ratios_leave_no_less_than_the_truth(ratio: float) -> None:
    """A ring of n without a party is a path of n − 1, whose Laplacian has eigenvalues 2 − 2 cos(πk/(n − 1))."""
    for n in (8, 40):
        m, k = n - 1, np.arange(n - 1)[:, None]
        waves = np.where(k > 0, 2.0, 1.0) / m * np.cos(np.pi * k * (np.arange(m) + 0.5) / m) ** 2
        truth = float((waves / (1 + min(ratio, 1e100) ** 2 * (2 - 2 * np.cos(np.pi * k / m)))).sum(axis=0).max())
        edges = make_graph("ring", n).edges
        assert truth * (1 - 1e-12) <= worst_hidden_share(edges, n, ratio, 1) <= truth * (1 + 1e-4)
        assert truth * (1 - 1e-12) <= hidden_share(edges, n, ratio, [3]).max() <= truth * (1 + 1e-4)


def test_two_curious_neighbours_among_a_hundred() -> None:
    edges = make_graph("regular", 100, degree=4).edges
    assert 1 / 98 < worst_hidden_share(edges, 100, 10.0, 2) <= 0.02


@pytest.mark.parametrize("own", [[], [3], [0, 1, 2], [-1]])
def test_bad_observers(own: list[int]) -> None:
    with pytest.raises(InputError, match="observers must be some of the 3 parties"):
        view(np.eye(3), own)


def test_too_many_coalitions_are_refused() -> None:
    with pytest.raises(InputError, match="too many to price"):
        worst_hidden_share(make_graph("regular", 400, degree=6).edges, 400, 3.0, 5)


@pytest.mark.slow
def test_a_thousand_parties_and_rounds() -> None:
    graph = make_graph("regular", 1000, degree=4)
    began = time.process_time()
    found = linear(view(weights_of(graph), [0]), np.ones(1000), np.ones((1000, 1000)))
    assert time.process_time() - began <= 300
    assert found[graph.neighbours(0)] == pytest.approx(np.ones(4))
    assert found[1:].min() > 0
