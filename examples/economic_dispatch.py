"""Economic dispatch: twenty power plants meet a demand at least cost without showing what their fuel costs them.

Run it: python -m examples.economic_dispatch [picture.png]. Plant i makes x_i MW between its limits at a cost of
a_i/2 x_i² + b_i x_i per hour. Public: limits, kind of fuel, a_i, and the range that b_i lies in for that fuel. Private:
b_i, the mean price of the plant's fuel contracts. The optimum is known exactly by bisection on the price.

After a private run the plants' sum misses the demand by a little. `balance` repairs that by a public rule that needs
the sum only, so it costs no privacy, and the cost that is plotted is that of a dispatch that meets the demand.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from coterie.coupled import Coupled, quadratic_agent, solve

FUELS = {  # name: (a, middle of b, half its range), $/MW²h and $/MWh
    "hydro": (0.010, 6.0, 0.5),
    "coal": (0.012, 16.0, 2.0),
    "gas": (0.016, 24.0, 4.0),
    "oil": (0.030, 38.0, 6.0),
}
PLANTS = ["hydro"] * 4 + ["coal"] * 6 + ["gas"] * 7 + ["oil"] * 3
DEMAND, DELTA, ROUNDS, SEEDS = 2900.0, 1e-5, 400, 10
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
CONTRACTS = 200


def make(records: int = 1, known: bool = True) -> Coupled:
    """The plants. `records` contracts make up each b_i; with `known` False, b_i is the middle of its public range."""
    rng = np.random.default_rng(1)
    plants = []
    for fuel in PLANTS:
        a, middle, half = FUELS[fuel]
        low, width, off = rng.uniform(20, 60), rng.uniform(120, 260), rng.uniform(-1, 1)
        b, limits = middle + (half * off if known else 0.0), (middle - half, middle + half)
        plants.append(quadratic_agent(a, b, low=low, high=low + width, slope_range=limits, records=records))
    return Coupled(plants, DEMAND)


def optimum(problem: Coupled) -> tuple[np.ndarray, float]:
    """The best dispatch and its price: x_i(λ) = clip((λ − b_i)/a_i) rises with λ, so one root finds both."""
    a, b, low, high = _table(problem)

    def made(price: float) -> np.ndarray:
        return np.clip((price - b) / a, low, high)

    price = float(brentq(lambda p: made(p).sum() - problem.total[0], b.min(), (a * high + b).max(), xtol=1e-13))
    return made(price), price


def balance(problem: Coupled, points: Sequence[np.ndarray]) -> np.ndarray:
    """The dispatch moved to meet the demand: up in proportion to what each can add, or down to what each can leave."""
    _, _, low, high = _table(problem)
    x = np.concatenate(points)
    short = problem.total[0] - x.sum()
    room = high - x if short > 0 else x - low
    return x + short * room / room.sum() if short else x


def excess(problem: Coupled, dispatch: np.ndarray) -> float:
    """How much more than the optimum a dispatch costs, in percent."""
    best = problem.objective(optimum(problem)[0][:, None])
    return 100 * (problem.objective(dispatch[:, None]) / best - 1)


def study(records: int, epsilons: Sequence[float] = EPSILONS, seeds: int = SEEDS) -> np.ndarray:
    """Excess cost in percent, (epsilons, seeds)."""
    problem = make(records)
    return np.array(
        [
            [
                excess(problem, balance(problem, solve(problem, rounds=ROUNDS, epsilon=e, delta=DELTA, seed=s).points))
                for s in range(seeds)
            ]
            for e in epsilons
        ]
    )


def draw(curves: dict[str, np.ndarray], public: float, path: Path) -> None:
    """Excess cost against ε with the range over seeds, beside what public knowledge alone gives."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    for (name, values), colour in zip(curves.items(), ("#c8553d", "#1f6fb4"), strict=True):
        axis.plot(EPSILONS, values.mean(axis=1), "o-", ms=3.5, color=colour, label=name)
        axis.fill_between(EPSILONS, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, linewidth=0)
    axis.axhline(public, color="#333333", linestyle="--", linewidth=1, label="no exchange: middle of the public ranges")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
    axis.set_xlabel(f"ε of every plant for the whole run (δ = {DELTA:g}, one plant's cost function replaced)")
    axis.set_ylabel("cost above the optimum (%)")
    axis.set_title(
        f"Economic dispatch, {len(PLANTS)} plants, {ROUNDS} rounds: mean and range of {SEEDS} seeds", size=10
    )
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(path: Path | None = None) -> None:
    """Print how near the optimum a run without noise comes, then cost against ε; draw it where a path is given."""
    problem = make()
    best, price = optimum(problem)
    answer = solve(problem, rounds=ROUNDS)
    cost = problem.objective(best[:, None])
    print(f"optimum {cost:.2f} $/h at {price:.4f} $/MWh; without noise after {ROUNDS} rounds:")
    print(
        f"  largest error {np.max(np.abs(np.concatenate(answer.points) - best)):.1e} MW, price {answer.price[0]:.4f},"
    )
    print(f"  cost above optimum {problem.objective(answer.points) - cost:.1e} $/h")
    public = excess(problem, optimum(make(known=False))[0])
    curves = {f"one of {CONTRACTS} contracts hidden": study(CONTRACTS), "the whole cost function hidden": study(1)}
    print(f"cost above optimum in percent ({SEEDS} seeds); {public:.3f} with no exchange at all")
    print("      ε" + "".join(f"   {name}" for name in curves))
    for k, epsilon in enumerate(EPSILONS):
        print(f"{epsilon:7.2f}" + "".join(f"   {v[k].mean():{len(n)}.3f}" for n, v in curves.items()))
    if path is not None:
        draw(dict(reversed(curves.items())), public, path)


def _table(problem: Coupled) -> tuple[np.ndarray, ...]:
    """(a, b, low, high), a number per plant."""
    rows = [(p.cost.curvature[0], p.cost.slope[0], p.low[0], p.high[0]) for p in problem.agents]  # type: ignore[attr-defined]
    return tuple(np.array(rows).T)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
