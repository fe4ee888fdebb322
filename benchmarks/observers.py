"""What single observers learn, measured: another account refuted, ours reached, shared noise, and a search.

python -m benchmarks.observers [refute|averaging|shared|search|large]... [--keep]    (default: all)

An attack gives a lower bound of μ, several times with other draws: beside it what an account claims, or proves.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

import jax
import networkx as nx
import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from benchmarks.measured import Row, arguments, beside, finish, paired
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
SEEDS = range(0, 3_000_000, 1_000_000)  # of an attack, which counts up from each


def hill(p: jax.Array, f: jax.Array, y: jax.Array) -> jax.Array:
    """Not convex: a party with features 1 steps away from zero, by eight times its distance."""
    return y * p[0] - 4 * f[0] * p[0] ** 2


def refute() -> list[Row]:
    """v – a – u, two rounds, noise of one sensitivity: what the matrix-factorisation account claims, and what is so."""
    graph, algorithm = make_graph("path", 3), find("dp-dsgd")
    weights, still = mixing(graph, "metropolis"), (np.zeros(1), 0.0)
    cfg = algorithm.config(step=1.0, momentum=0.0, clip=1.0, mixing=1, tail=0.0)
    seen, scale = view(weights.dense(), [0]), np.ones((3, 2))
    claimed, rows = factorised(seen, 2, np.ones(2), scale), []
    for words, gain in (
        ("a's gradient is -8x", 1.0),
        ("a has no gradient", 0.0),
        ("a's gradient is x, step 1/L", -0.125),
    ):
        seat = Vantage(
            algorithm, cfg, Custom.make(hill, np.zeros(1)), graph, weights, 60, 2, 1.0, (0,), 2,
            ((np.zeros(1), 1.0), (np.zeros(1), -1.0)), {0: [still], 1: [(np.full(1, gain), 0.0)], 2: [still]},
        )  # fmt: skip
        found = [attack(seat, trials=20_000, seed=seed) for seed in SEEDS]
        bound = reacting(seen, 2, np.ones(2), scale, np.array([1.0, abs(1 + 8 * gain), 1.0]))
        mu, epsilon = [one.mu for one in found], [one.epsilon(DELTA) for one in found]
        if not bound:  # no ratio to it
            print(f"{words}: μ of an attack {max(mu):g}, claimed {claimed:.3g}, proved 0")
            continue
        rows += [
            beside(f"{words}: μ of an attack", mu, "claimed by the other account", claimed, cost=False),
            beside(f"{words}: ε of it", epsilon, "claimed by it", float(epsilon_of(claimed, DELTA)), cost=False),
            beside(f"{words}: μ of an attack", mu, "proved here", float(bound), cost=False),
        ]
    return rows


def averaging() -> list[Row]:
    """Means by gossip on a path of 8, the observer at its end: the attack over the exact account, hop by hop."""
    graph, algorithm = make_graph("path", 8), find("gossip-mean")
    weights = mixing(graph, "metropolis")
    scale = np.ones((8, 8))
    scale[:, 1:] = 0.5
    exact, rows = linear(view(weights.dense(), [0]), np.ones(8), scale), []
    for hops in range(1, 6):
        seat = Vantage(
            algorithm, algorithm.config(again=0.5), Mean(1), graph, weights, 4, 8, exact[hops] / 2, (0,), hops,
            ((np.ones(1), 0.0), (-np.ones(1), 0.0)),
        )  # fmt: skip
        mu = [attack(seat, trials=10_000, seed=seed).mu for seed in SEEDS]
        rows.append(beside(f"averaging, hops away {hops}: μ of an attack", mu, "exact", 2.0, cost=False))
    return rows


def shared() -> list[Row]:
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
    alone = float(np.sum(weights.dense() ** 2) / 100)
    rows = [
        beside(f"variance of noise, {where}", [float(x.var()) for x in np.split(values, 4)], *peer, cost=False)
        for where, values, *peer in (
            ("the parties' average", draws.mean(1), "by the account", left / 100),
            ("one message", draws, "local noise", 1.0),
            ("after mixing", draws @ weights.dense(), "local noise", alone),
        )
    ]
    pairs = itertools.combinations(range(100), 2)
    worst = max(((int(np.argmax(s)), q) for q in pairs for s in [hidden_share(graph.edges, 100, ratio, q)]
                 if s.max() > left * (1 - 1e-9)), key=lambda found: found[1])  # fmt: skip
    seat = Vantage(
        algorithm, cfg, Mean(1), graph, weights, 4, 1, 0.5, worst[1], worst[0],
        ((np.ones(1), 0.0), (-np.ones(1), 0.0)), everything=True,
    )  # fmt: skip
    mu = [attack(seat, pilot=8000, trials=10_000, seed=seed).mu for seed in SEEDS]
    rows.append(beside(f"the worst pair {worst[1]} against {worst[0]}: μ of an attack", mu, "charged", 2.0, cost=False))
    ring = worst_hidden_share(make_graph("ring", 100).edges, 100, ratio, 2)
    rows.append(beside("share of local noise on the average, a ring", [ring], "4-regular", left, cost=False))
    local, ours = trained("dp-dsgd", {}), trained("decor", {"ratio": ratio, "curious": 2})
    for k, what in enumerate(("accuracy", "parties disagree by")):
        what = f"{what}, clinics, 100 parties of 80 records, ε = 1, shared noise"
        rows.append(beside(what, ours[k], "local noise", local[k], "{:.4f}", cost=k == 1))
    return rows


def trained(name: str, settings: dict[str, float]) -> tuple[list[float], list[float]]:
    """Accuracy, and how far parties disagree, over seeds of the noise."""
    plan = validate({
        "data": {"source": "clinics", "options": {"sites": 100, "records": 10_000}},
        "partition": {"kind": "iid", "agents": 100}, "graph": {"kind": "regular", "degree": 4},
        "problem": {"loss": "logistic"}, "algorithm": {"name": name, **settings}, "privacy": {"epsilon": 1.0},
        "run": {"seeds": 5, "references": "none"},
    })  # fmt: skip
    experiment = prepare(plan)
    done = experiment.run(price(plan, experiment.network), range(5))
    return done.curves["test_score"][:, -1].tolist(), done.curves["consensus_gap"][:, -1].tolist()


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


def search() -> list[Row]:
    """Convex quadratics with steps up to 2/L (gains from -1 to 1) that show more than the linear formula says."""
    rng, best = np.random.default_rng(0), (0.0, "")
    over: list[float] = []
    tight: list[float] = []
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
                    over.append(-found.fun / formula)
                    tight.append(-found.fun / proved)
                    if over[-1] > best[0]:
                        gains = {int(i): round(float(g), 2) for i, g in zip(seen.rest, found.x, strict=True)}
                        best = over[-1], (
                            f"edges {graph.edges.tolist()}, observer {own}, party {party}, {rounds} rounds, "
                            f"gains {gains}: mu^2 {-found.fun:.4f}, formula {formula:.4f}, proved {proved:.4f}"
                        )  # fmt: skip
    print(best[1])
    what = f"most that {len(over)} searches found"
    return [
        Row(f"{what}, times the μ² of the linear formula", f"{max(over):.3f}", "formula 1",
            statistics.median(over), min(over), max(over)),
        Row(f"{what}, times the μ² that is proved", f"{max(tight):.3f}", "proof 1",
            statistics.median(tight), min(tight), max(tight)),
    ]  # fmt: skip


def large() -> list[Row]:
    """One observer of a thousand parties over a thousand rounds."""
    graph = make_graph("regular", 1000, degree=4)
    seen = view(mixing(graph, "metropolis").dense(), [0])
    rows = 1000 * len(seen.seen)
    matrix, right = np.eye(rows) + 1 / rows, np.ones((rows, len(seen.rest)))

    def bare() -> None:
        solve_triangular(cholesky(matrix, lower=True, check_finite=False), right, lower=True, check_finite=False)

    ours, peer, ratio = paired(lambda: linear(seen, np.ones(1000), np.ones((1000, 1000))), bare, 3)
    what = f"an account of {rows:,} numbers that are seen of 1,000 parties"
    return [Row(what, f"{ours:.1f} s", f"SciPy's Cholesky factor and solve of that size {peer:.1f} s", *ratio)]


PARTS = {"refute": refute, "averaging": averaging, "shared": shared, "search": search, "large": large}


def main() -> None:
    """Print and store what was asked for."""
    parser = arguments(__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="default: all")
    args = parser.parse_args()
    rows = []
    for name in args.parts or PARTS:
        print(f"--- {name}: {PARTS[name].__doc__}", flush=True)
        rows += PARTS[name]()
    finish(args, "What single observers learn", rows, "Searches: median, least and most over all of them.")


if __name__ == "__main__":
    main()
