"""Ten clinics estimate a common mean without showing a record: error against ε.

Run it: python examples/mean_estimation.py. Every clinic holds 100 records of two measurements, scaled by public
ranges into [−1, 1]². They sit on a small-world graph and use `dp-consensus-gd`: noisy gradient steps, then averaging
rounds that cost nothing. All budgets and all seeds run as one compiled batch.
"""

from __future__ import annotations

import jax
import numpy as np

from coterie.algorithms.base import find
from coterie.algorithms.dp_consensus_gd import Config
from coterie.drivers.budget import calibrate_agents
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.mean import Mean
from coterie.privacy.gdp import mu_for

AGENTS, RECORDS, ROUNDS, STAGE_ONE, SEEDS = 10, 100, 80, 40, 200
EPSILONS, DELTA = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0), 1e-5


def main() -> None:
    """Make data, fix the noise of each budget from public numbers alone, run, and print what it costs in accuracy."""
    rng = np.random.default_rng(0)
    records = np.clip(rng.normal([0.3, -0.2], 0.35, (AGENTS * RECORDS, 2)), -1, 1)
    parts = np.split(np.arange(len(records)), AGENTS)
    graph = make_graph("small-world", AGENTS, k=4, p=0.2, seed=1)
    algorithm, problem = find("dp-consensus-gd"), Mean(dim=2, radius=1.0)
    cfg = Config(step=1.0, stage_one=STAGE_ONE)  # c = 1: the loss ½‖x − v‖² has curvature 1

    with jax.enable_x64(True):
        layout = make_layout(problem, records, np.zeros(len(records)), parts, graph, mixing(graph), rounds=ROUNDS)
    noise = {e: calibrate_agents(algorithm, cfg, layout.arrays.place, e, DELTA) for e in EPSILONS}
    runs = [Run(seed, cfg, noise[e]) for e in EPSILONS for seed in range(SEEDS)]
    trace = simulate(algorithm, layout, runs, rounds=ROUNDS, every=ROUNDS)

    truth = records.mean(axis=0)
    squared = np.sum((trace.points - truth) ** 2, axis=-1).reshape(len(EPSILONS), SEEDS, AGENTS)
    print(f"{AGENTS} agents × {RECORDS} records, δ = {DELTA:g}; pooled mean {truth.round(4)}")
    print("      ε   error of an agent   theory   noise of one agent alone")
    for epsilon, error in zip(EPSILONS, np.sqrt(squared.mean(axis=(1, 2))), strict=True):
        gap = 2 * problem.half_gap / RECORDS  # how far one record moves an agent's mean
        alone = np.sqrt(2) * gap / float(mu_for(epsilon, DELTA))  # its noisy mean, sent once
        print(f"{epsilon:7.2f}   {error:17.5f}   {alone / np.sqrt(AGENTS):6.5f}   {alone:24.5f}")


if __name__ == "__main__":
    main()
