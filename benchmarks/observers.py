"""What single observers learn, measured: another account refuted, ours reached, shared noise, and a search.

python -m benchmarks.observers [refute|averaging|shared|search|large]...    (default: all)
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator

import jax
import networkx as nx
import numpy as np
from scipy.optimize import minimize

from coterie.algorithms.base import find
from coterie.audit.observers import Vantage, attack
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.experiment import prepare
from coterie.graphs import Graph, from_edges, make_graph, mixing
from coterie.losses.mean import Mean
from coterie.plan import validate
from coterie.pricing import price
from coterie.privacy.gdp import epsilon_of
from coterie.privacy.observers import Outlook, factorised, hidden_share, linear, reacting, view, worst_hidden_share
from coterie.problems import Custom

__all__ = ["main"]

DELTA = 1e-5


def hill(p: jax.Array, f: jax.Array, y: jax.Array) -> jax.Array:
    """Not convex: a party with features 1 steps away from zero, by eight times its distance."""
    return y * p[0] - 4 * f[0] * p[0] ** 2


def refute() -> None:
    """v – a – u, two rounds, noise of one sensitivity: what the matrix-factorisation account claims, and what is so."""
    graph, algorithm = make_graph("path", 3), find("dp-dsgd")
    weights, still = mixing(graph, "metropolis"), (np.zeros(1), 0.0)
    cfg = algorithm.config(step=1.0, momentum=0.0, clip=1.0, mixing=1, tail=0.0)
    seen, scale = view(weights.dense(), [0]), np.ones((3, 2))
    claimed = factorised(seen, 2, np.ones(2), scale)
    for words, gain in (
        ("a's gradient is -8x", 1.0),
        ("a has no gradient", 0.0),
        ("a's gradient is x, step 1/L", -0.125),
    ):
        seat = Vantage(
            algorithm, cfg, Custom.make(hill, np.zeros(1)), graph, weights, 60, 2, 1.0, (0,), 2,
            ((np.zeros(1), 1.0), (np.zeros(1), -1.0)), {0: [still], 1: [(np.full(1, gain), 0.0)], 2: [still]},
        )  # fmt: skip
        found = attack(seat, trials=20_000)
        bound = reacting(seen, 2, np.ones(2), scale, np.array([1.0, abs(1 + 8 * gain), 1.0]))
        print(
            f"{words}: claimed mu {claimed:.3f}, eps {epsilon_of(claimed, DELTA):.2f}; attack mu >= {found.mu:.3f}, "
            f"eps >= {found.epsilon(DELTA):.2f}; proved mu <= {bound:.3f}"
        )


def averaging() -> None:
    """Means by gossip on a path of 8, the observer at its end: the attack over the exact account, hop by hop."""
    graph, algorithm = make_graph("path", 8), find("gossip-mean")
    weights = mixing(graph, "metropolis")
    scale = np.ones((8, 8))
    scale[:, 1:] = 0.5
    exact = linear(view(weights.dense(), [0]), np.ones(8), scale)
    for hops in range(1, 6):
        seat = Vantage(
            algorithm, algorithm.config(again=0.5), Mean(1), graph, weights, 4, 8, exact[hops] / 2, (0,), hops,
            ((np.ones(1), 0.0), (-np.ones(1), 0.0)),
        )  # fmt: skip
        found = attack(seat, trials=10_000)
        print(f"{hops} hops: mu = 2 by the account; attack mu >= {found.mu:.3f}, {found.mu / 2:.3f} of it")


def shared() -> None:
    """A random 4-regular graph of 100 and two curious parties, and a ring: what shared noise leaves on the average."""
    graph, ratio = make_graph("regular", 100, degree=4), 10.0
    left = worst_hidden_share(graph.edges, 100, ratio, 2)
    weights, algorithm = mixing(graph, "metropolis"), find("decor")
    cfg = algorithm.config(step=1.0, momentum=0.0, clip=1.0, mixing=1, tail=0.0, ratio=ratio, curious=2, left=left)
    with jax.enable_x64(True):
        parts = np.split(np.arange(400), 100)
        layout = make_layout(Mean(1), np.zeros((400, 1)), np.zeros(400), parts, graph, weights, rounds=1)
    trace = simulate(algorithm, layout, [Run(s, cfg, 1.0) for s in range(4000)], rounds=1, record=True)
    assert trace.draws is not None
    draws = trace.draws["noise"][:, 0, :, 0]  # in units of local noise at the same ε
    mixed = draws @ weights.dense()
    alone = float(np.sum(weights.dense() ** 2) / 100)
    print(
        f"4-regular 100, 2 curious: average noise variance over local {left:.4f} by the account, "
        f"{draws.mean(1).var() * 100:.4f} measured; one message's noise {draws.var():.2f} of local; "
        f"after mixing {mixed.var() / alone:.2f} of local"
    )
    pairs = itertools.combinations(range(100), 2)
    worst = max(((int(np.argmax(s)), q) for q in pairs for s in [hidden_share(graph.edges, 100, ratio, q)]
                 if s.max() > left * (1 - 1e-9)), key=lambda found: found[1])  # fmt: skip
    seat = Vantage(
        algorithm, cfg, Mean(1), graph, weights, 4, 1, 0.5, worst[1], worst[0],
        ((np.ones(1), 0.0), (-np.ones(1), 0.0)), everything=True,
    )  # fmt: skip
    found = attack(seat, pilot=8000, trials=10_000)
    print(f"charged mu = 2 a round; the worst pair {worst[1]} against {worst[0]}: attack mu >= {found.mu:.3f}")
    print(
        f"ring of 100, both neighbours curious: {worst_hidden_share(make_graph('ring', 100).edges, 100, ratio, 2):.3f}"
    )
    for name in ("dp-dsgd", "decor"):
        settings = {"ratio": ratio, "curious": 2} if name == "decor" else {}
        plan = validate({
            "data": {"source": "clinics", "options": {"sites": 100, "records": 10_000}},
            "partition": {"kind": "iid", "agents": 100}, "graph": {"kind": "regular", "degree": 4},
            "problem": {"loss": "logistic"}, "algorithm": {"name": name, **settings}, "privacy": {"epsilon": 1.0},
            "run": {"seeds": 5, "references": "none"},
        })  # fmt: skip
        experiment = prepare(plan)
        priced = price(plan, experiment.network)
        done = experiment.run(priced, range(5))
        score, gap = (done.curves[key][:, -1] for key in ("test_score", "consensus_gap"))
        print(
            f"clinics, 100 parties of 80 records, eps = 1, {name}: accuracy {score.mean():.4f} ± {score.std():.4f}, "
            f"parties disagree by {gap.mean():.3f}"
        )


def exact_of(seen: Outlook, gain: np.ndarray, party: int, rounds: int) -> float:
    """μ² where everybody multiplies what it hears by its gain, at the worst signs of the record's shifts: exact."""
    k, n, me = len(seen.seen), len(seen.rest), int(np.flatnonzero(seen.rest == party)[0])
    moved, rows = gain[:, None] * seen.mixing, [np.eye(n)[seen.seen]]
    for _ in range(rounds - 1):
        rows.append(rows[-1] @ moved)
    noise, shift = np.zeros((k * rounds, n * rounds)), np.zeros((k * rounds, rounds))
    for t in range(rounds):
        for s in range(t + 1):
            noise[t * k : (t + 1) * k, s * n : (s + 1) * n] = rows[t - s]
            shift[t * k : (t + 1) * k, s] = rows[t - s][:, me]
    square = shift.T @ np.linalg.solve(noise @ noise.T, shift)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=rounds)))
    return float(np.max(np.einsum("ki,ij,kj->k", signs, square, signs)))


def graphs(most: int) -> Iterator[Graph]:
    """Every connected graph of 3 to `most` nodes."""
    for found in nx.graph_atlas_g():
        if 3 <= len(found) <= most and nx.is_connected(found):
            yield from_edges(len(found), np.array(sorted(tuple(sorted(e)) for e in found.edges)))


def search() -> None:
    """Convex quadratics with steps up to 2/L (gains from -1 to 1) that show more than the linear formula says."""
    rng, best, tightest, tried = np.random.default_rng(0), (0.0, ""), 0.0, 0
    for graph in graphs(5):
        seen_all = mixing(graph, "metropolis").dense()
        for own, rounds in itertools.product(range(graph.size), (3, 5)):
            seen = view(seen_all, [own])
            for party in set(seen.rest.tolist()) - set(seen.rest[seen.seen].tolist()):
                scale = np.ones((graph.size, rounds))
                formula = factorised(seen, party, np.ones(rounds), scale) ** 2
                if formula < 1e-12:  # too far for so many rounds
                    continue
                proved = reacting(seen, party, np.ones(rounds), scale, np.ones(graph.size)) ** 2
                goal = lambda g: -exact_of(seen, g, party, rounds)  # noqa: B023, E731
                for start in (np.ones(len(seen.rest)) * 0.9, rng.uniform(-1, 1, len(seen.rest))):
                    found = minimize(
                        goal, start, method="L-BFGS-B", bounds=[(-1, 1)] * len(start), options={"maxiter": 30}
                    )
                    tried += 1
                    tightest = max(tightest, -found.fun / proved)
                    if -found.fun / formula > best[0]:
                        gains = {int(i): round(float(g), 2) for i, g in zip(seen.rest, found.x, strict=True)}
                        best = -found.fun / formula, (
                            f"edges {graph.edges.tolist()}, observer {own}, party {party}, {rounds} rounds, "
                            f"gains {gains}: mu^2 {-found.fun:.4f}, formula {formula:.4f}, proved {proved:.4f}"
                        )  # fmt: skip
    print(f"{tried} searches; most over the linear formula: {best[0]:.3f} x its mu^2 ({best[1]})")
    print(f"most over what is proved: {tightest:.4f} of it")


def large() -> None:
    """One observer of a thousand parties over a thousand rounds."""
    graph = make_graph("regular", 1000, degree=4)
    weights = mixing(graph, "metropolis").dense()
    began = time.process_time()
    found = linear(view(weights, [0]), np.ones(1000), np.ones((1000, 1000)))
    print(f"n = T = 1000, 4 neighbours: {time.process_time() - began:.1f} s; least share {found[1:].min() ** 2:.2e}")


PARTS = {"refute": refute, "averaging": averaging, "shared": shared, "search": search, "large": large}


def main(asked: list[str]) -> None:
    """Print what was asked for."""
    for name in asked or PARTS:
        print(f"--- {name}: {PARTS[name].__doc__}", flush=True)
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
