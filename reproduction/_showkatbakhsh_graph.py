"""Fig. 3 of Showkatbakhsh et al.: the graph; and what the budgets of their figures are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from reproduction._showkatbakhsh_runs import AGENTS, DIM, EPSILON, MANY, RECORDS, SHARES, descend, first_node
from reproduction.base import Budget, Claim, Result, Series
from reproduction.study import Study
from reproduction.verdicts import compared, least

__all__ = ["budgets", "fig3"]


def budgets(epsilon: float, delta: float, cost: float) -> list[Budget]:
    """Algorithm 1 as printed, with its last message noised, and ours."""
    return [
        Budget("Algorithm 1", "as printed", epsilon, float("inf"), delta, "x_i(T) is sent bare"),
        Budget("Algorithm 1, last message noised", "as printed", epsilon, cost, delta, "exact Gaussian total"),
        Budget("dp-consensus-gd", "corrected", epsilon, epsilon, delta, "exact calibration, uniform schedule"),
    ]


def error(samples: np.ndarray, seeds: int) -> float:
    """Standard error of the mean over all graphs, whose runs share their seeds."""
    return float(samples.reshape(-1, seeds).mean(axis=0).std(ddof=1) / seeds**0.5)


def fig3(study: Study) -> Result:
    chances, graphs = study.pick([0.1, 0.3, 0.6, 1.0], [0.1, 1.0]), study.pick(10, 1)
    stages, seeds, drawn = {"short": 10, "long": 200}, 50, study.pick(40, 4)  # `drawn`: graphs of the closed form
    delta = 1 / (AGENTS * RECORDS)
    series, cost = [], 0.0
    node: dict[tuple[str, float], np.ndarray] = {}
    apart: dict[tuple[str, float], np.ndarray] = {}
    mean: dict[tuple[str, float], np.ndarray] = {}
    for name, stage in stages.items():
        for chance in chances:
            found = [
                study.part(
                    descend, stage=stage, budgets=[[EPSILON, delta]], printed=True, seeds=seeds, chance=chance, graph=g
                )
                for g in range(graphs if chance < 1 else 1)
            ]
            cost = float(found[0]["epsilon"][0])
            for store, key in ((node, "node"), (apart, "apart"), (mean, "mean")):
                store[name, chance] = np.concatenate([f[key][0] for f in found])
        for label, store in (("first node, x_1(T)", node), ("its distance from x̄(T)", apart), ("x̄(T)", mean)):
            values = [store[name, c] for c in chances]
            middle = [float(v.mean()) for v in values]
            half = [float(v.std() / len(v) ** 0.5) for v in values]
            series.append(
                Series(
                    name, label, "as printed", chances, middle, [m - h for m, h in zip(middle, half, strict=True)],
                    [m + h for m, h in zip(middle, half, strict=True)], seeds * graphs, marked=True,
                )
            )  # fmt: skip
    first = {name: [float(node[name, c].mean()) for c in chances] for name in stages}
    closed = {
        (share, p, t): {
            c: [first_node(t, share, int(p), c, g, EPSILON, delta) for g in range(drawn if c < 1 else 1)]
            for c in chances
        }
        for share in SHARES
        for p in (float(DIM), MANY)
        for t in stages.values()
    }
    gone = [float(apart["short", c].mean()) for c in chances]
    flat = [float(mean["long", c].mean()) for c in chances]
    shown = [[np.mean(v) for v in closed[c, float(DIM), stages["short"]].values()] for c in SHARES[:2]]
    away = [
        abs(np.mean(node[name, c]) - np.mean(closed[1.0, float(DIM), t][c][:graphs])) / error(node[name, c], seeds)
        for name, t in stages.items()
        for c in chances
    ]
    claims = [
        Claim(
            "the first node's error falls as the graph gets denser",
            [
                least(
                    [compared(exact[dense], exact[sparse]) for sparse, dense in pairwise(chances)],
                    c=f"{c:g}",
                    p=f"{p:g}",
                    T=str(t),
                )
                for (c, p, t), exact in closed.items()
            ],
            f"T = {stages['short']}: "
            + ", ".join(f"{v:.2e}" for v in first["short"])
            + f" for p_c = {', '.join(map(str, chances))}; closed form with 0.5 and 0.9 of Theorem 2's c: "
            + " and ".join(f"{ends[0]:.2e} to {ends[-1]:.2e}" for ends in shown),
            {f"p_c {c:g}": v for c, v in zip(chances, first["short"], strict=True)},
        ),
        Claim(
            "simulation and closed form agree",
            max(away) < 4,
            f"at most {max(away):.1f} standard errors apart, over T and p_c",
            {"standard errors": max(away)},
            who="ours",
        ),
        Claim(
            "only the distance between nodes falls: the error of their mean does not depend on the graph",
            bool(np.all(np.diff(gone) < 0)) and max(flat) / min(flat) < 1.15,
            f"distance {gone[0]:.1e} to {gone[-1]:.1e}; error of the mean at T = {stages['long']} from {min(flat):.2e} "
            f"to {max(flat):.2e}",
            {"sparse": gone[0], "dense": gone[-1], "mean least": min(flat), "mean most": max(flat)},
            who="ours",
        ),
    ]
    cost = float(
        study.part(descend, stage=10, budgets=[[EPSILON, delta]], printed=True, seeds=seeds, chance=1.0)["epsilon"][0]
    )
    return Result(series, claims, budgets(EPSILON, delta, cost))
