"""Twelve departments share one budget: a coupled problem whose optimum is a formula, solved with and without noise.

Run it: python -m examples.resource_allocation. Department i wants t_i, which is private; a share x_i costs it
w_i/2 (x_i − t_i)² with a public weight w_i. Without bounds the best division is x_i = t_i + (c − Σ t)/(w_i Σ 1/w).
"""

from __future__ import annotations

import numpy as np

from coterie.coupled import Config, Coupled, quadratic_agent, solve

DEPARTMENTS, BUDGET, RANGE, DELTA = 12, 40.0, (2.0, 8.0), 1e-5


def make(records: int = 1) -> tuple[Coupled, np.ndarray]:
    """The problem and its optimum. `records`: every wish is the mean of that many requests, each within RANGE."""
    rng = np.random.default_rng(3)
    wish, weight = rng.uniform(*RANGE, DEPARTMENTS), rng.uniform(0.5, 2.0, DEPARTMENTS)
    agents = [
        quadratic_agent(
            w, -w * t, slope_range=(-w * RANGE[1], -w * RANGE[0]), records=records, start=BUDGET / DEPARTMENTS
        )
        for w, t in zip(weight, wish, strict=True)
    ]
    best = wish + (BUDGET - wish.sum()) / (weight * np.sum(1 / weight))
    return Coupled(agents, BUDGET), best


def main() -> None:
    """Print the distance from the optimum without noise, and what every ε costs."""
    problem, best = make(records=100)
    lowest = problem.objective(best[:, None])
    for method in ("first-order", "exact"):
        answer = solve(problem, Config(method=method), rounds=300)  # type: ignore[arg-type]
        error = np.max(np.abs(np.concatenate(answer.points) - best))
        residual = max(problem.kkt(answer.points, answer.price))
        print(f"{method:11s}  without noise, 300 rounds: largest error {error:.1e}, KKT residual {residual:.1e}")
    print(f"\none of 100 requests hidden, δ = {DELTA:g}\n     ε   rms error of a share   lost value   |Σ x − c|")
    for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0):
        runs = [solve(problem, rounds=300, epsilon=epsilon, delta=DELTA, seed=seed) for seed in range(10)]
        shares = np.array([np.concatenate(run.points) for run in runs])
        lost = np.mean([problem.objective(run.points) for run in runs]) - lowest
        error, off = np.sqrt(np.mean((shares - best) ** 2)), np.mean(np.abs(shares.sum(axis=1) - BUDGET))
        print(f"{epsilon:6.1f}   {error:21.4f}   {lost:10.4f}   {off:9.4f}")


if __name__ == "__main__":
    main()
