"""What shared noise is worth on Adult: `python -m benchmarks.shared_adult [--splits 5] [--keep]`.

Twenty parties of 2,000 records on a ring, δ = 1e-4, 11 of them honest, everything else as it comes. On each split of
the data (`data.seed`): all records in one place without privacy, noise shared over secret sums, the same with a tenth
of the parties missing from every round (15 must answer), local noise over secret sums, local noise sent to neighbours.
Test accuracy of the parties' model, and how far it is below the pooled one.
"""

from __future__ import annotations

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.measured import arguments, beside, finish
from coterie.drivers.references import pooled
from coterie.experiment import prepare
from coterie.plan import Plan, validate
from coterie.pricing import price

SHARED: dict[str, Any] = {"kind": "secret-sum", "noise": "central", "honest": 11}
EXCHANGES: dict[str, dict[str, Any]] = {
    "shared noise": SHARED,
    "shared, a tenth missing": SHARED | {"threshold": 15, "away": 0.1},
    "local noise, sums": {"kind": "secret-sum"},
    "local noise, ring": {"kind": "broadcast"},
}


def plan_of(split: int, epsilon: float, exchange: dict[str, Any]) -> Plan:
    """The plan of one cell."""
    return validate(
        {
            "name": "adult, twenty parties",
            "data": {"source": "adult", "test_fraction": 0.1, "seed": split, "options": {"money": "log"}},
            "partition": {"kind": "iid", "agents": 20, "records": 2000},
            "graph": {"kind": "ring"},
            "problem": {"loss": "logistic"},
            "exchange": exchange,
            "privacy": {"epsilon": epsilon, "delta": 1e-4},
        }
    )


def cell(split: int, epsilon: float, exchange: dict[str, Any], seeds: int) -> tuple[float, float]:
    """Test accuracy of the pooled optimum, and the mean over the parties and seeds of their own models'."""
    experiment = prepare(plan_of(split, epsilon, exchange))
    priced, test, problem = price(experiment.plan, experiment.network), experiment.test, experiment.network.problem
    assert test is not None
    features, targets = jnp.asarray(test.features), jnp.asarray(test.targets)
    score = lambda x: float(problem.score(jnp.asarray(x), features, targets))  # noqa: E731
    trace = experiment.run(priced, list(range(seeds)), every=priced.rounds)
    points = trace.points.reshape(-1, trace.points.shape[-1])
    optimum = pooled(experiment.layout(priced.rounds, priced.shape))
    return score(optimum), float(np.mean([score(x) for x in points]))


def main() -> int:
    """Print and store what splits gave; exit code 1 if shared noise does not reach what it is for."""
    parser = arguments(__doc__)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5, help="repetitions of the noise on each split")
    parser.add_argument("--epsilon", type=float, default=0.1)
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in EXCHANGES}
    for split in range(args.splits):
        for name, exchange in EXCHANGES.items():
            found[name].append(cell(split, args.epsilon, exchange, args.seeds))
        row = "  ".join(f"{name} {found[name][-1][1]:.4f}" for name in EXCHANGES)
        print(f"split {split}: pooled {found['shared noise'][-1][0]:.4f}  {row}", flush=True)
    whole = [optimum for optimum, _ in found["shared noise"]]
    score = {name: [own for _, own in cells] for name, cells in found.items()}
    shared = score["shared noise"]
    rows = [beside(name, own, "pooled, no privacy", whole, "{:.4f}", cost=False) for name, own in score.items()]
    rows += [
        beside("shared noise", shared, name, score[name], "{:.4f}", cost=False) for name in EXCHANGES if "local" in name
    ]
    note = f"Test accuracy, ε = {args.epsilon:g}, {args.splits} splits, {args.seeds} draws of the noise on each."
    finish(args, "Shared noise, Adult", rows, note)
    below, above = np.mean(whole) - np.mean(shared), np.mean(shared) - np.mean(score["local noise, ring"])
    print(f"{below:.4f} below pooled (at most .018); {above:.4f} above local noise (at least .015)")
    return 0 if below <= 0.018 and above >= 0.015 else 1


if __name__ == "__main__":
    sys.exit(main())
