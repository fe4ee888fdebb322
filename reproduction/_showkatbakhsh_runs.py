"""Mean estimation by `dp-consensus-gd`, as printed and as corrected, and what theory says of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import truncnorm

from coterie.algorithms import dp_consensus_gd
from coterie.algorithms.base import find
from coterie.algorithms.batches import rows
from coterie.algorithms.dp_consensus_gd import showkatbakhsh_alpha
from coterie.drivers.layout import Layout, make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.graphs import Mixing, make_graph, mixing
from coterie.losses.mean import Mean
from coterie.privacy import schedules
from reproduction.base import Version
from reproduction.pricing import cost_of, noise_for
from reproduction.study import Study

__all__ = [
    "AGENTS",
    "CHANCE",
    "DIM",
    "EPSILON",
    "MANY",
    "RADIUS",
    "RECORDS",
    "SHARES",
    "VERSIONS",
    "closed_form",
    "descend",
    "first_node",
    "gap",
    "layout",
    "mean_error",
    "mean_path",
    "node_path",
    "repeats",
    "scales",
    "slope_of",
    "slopes_of",
    "thm2_bound",
    "thm2_printed",
    "weights",
]

RADIUS, DIM, AGENTS, RECORDS, CHANCE = 5.0, 2, 10, 100, 0.6
EPSILON = 4.0
MANY = 20.0  # a number of coordinates that closed forms have too
SHARES = (0.5, 0.9, 1.0)  # of Theorem 2's c: the step of the experiments is not stated
ALGORITHM = find("dp-consensus-gd")

# ---- theory ----------------------------------------------------------------------------------------------------------


def mean_error(scales: ArrayLike, agents: int, dim: int, last: bool) -> float:
    r"""E‖x̄ − x*‖² of the agents' mean for quadratics of equal curvature without projection: (p/N) Σ_t (t/T)² M_t².

    `scales` M_1 … M_T; the sum ends at T − 1 for x̄(T) itself and at T (`last`) for the released consensus value.
    """
    m = np.asarray(scales, float)
    t = np.arange(1, len(m) + 1)
    terms = (t / len(m)) ** 2 * m**2
    return float(dim / agents * np.sum(terms if last else terms[:-1]))


def mean_path(scales: ArrayLike, agents: int, dim: int, constant: float, start: float) -> float:
    r"""E‖x̄(T) − x*‖² as in `mean_error`, for the step `constant`/t and ‖x(0) − x*‖² = `start`.

    e(t) = (1 − c/t)(e(t − 1) + noise(t − 1)), the first step without noise.
    """
    m, c = np.asarray(scales, float), constant
    error = start
    for t in range(1, len(m) + 1):
        error = (1 - c / t) ** 2 * (error + (dim / agents * m[t - 2] ** 2 if t > 1 else 0.0))
    return float(error)


def node_path(mix: np.ndarray, scales: ArrayLike, constant: float, means: np.ndarray) -> float:
    r"""E‖x_1(T) − d̄‖² of the first node, as in `mean_path`, for the weights `mix` and the nodes' own `means` (N, p).

    e(t) = (1 − c/t) W (e(t − 1) + noise(t − 1)) + (c/t) h, h the distances of the nodes' means from d̄ and x(0) = 0:
    mean and covariance of e, whose noise is independent in nodes and coordinates.
    """
    m, c, dim = np.asarray(scales, float), constant, means.shape[1]
    centre = means.mean(axis=0)
    offset = np.tile(-centre, (len(means), 1))
    spread = np.zeros((len(means), len(means)))
    for t in range(1, len(m) + 1):
        noisy = spread + (m[t - 2] ** 2 * np.eye(len(means)) if t > 1 else 0.0)
        offset = (1 - c / t) * mix @ offset + c / t * (means - centre)
        spread = (1 - c / t) ** 2 * mix @ noisy @ mix.T
    return float(np.sum(offset[0] ** 2) + dim * spread[0, 0])


def thm2_bound(scales: ArrayLike, dim: int, constant: float, slope: float, beta: float) -> float:
    r"""Theorem 2 with its constants repaired: a bound on E‖x̄(T) − x*‖² for η_t = c/t and noise M_1 … M_T.

    (1/T) { p Σ_{t<T} t M_t² + c²G² H_T + (2βcG/(1 − β)) Σ_{s<T} (cG/s + √p M_s) }, c `constant`, G `slope` (of the
    agents' f_i on the set), β `beta`, H_T = Σ_{t≤T} 1/t. Proof: with S(t) = Σ_i E‖x_i(t) − x*‖² the paper's (26) reads
    t S(t) ≤ (t − 1) S(t − 1) + pN (t − 1) M²_{t−1} + N c²G²/t + 2cG√N d_t, d_t = E‖z − 1 ⊗ z̄‖; projections do not
    expand and W contracts by β, so d_t ≤ β (d_{t−1} + √N G c/(t − 1) + √(pN) M_{t−1}), d_1 = 0. Sum over t.
    """
    m = np.asarray(scales, float)
    t = np.arange(1, len(m) + 1)
    spread = 2 * beta * constant * slope / (1 - beta) * np.sum((constant * slope / t + np.sqrt(dim) * m)[:-1])
    steps = constant**2 * slope**2 * np.sum(1 / t)
    return float((dim * np.sum((t * m**2)[:-1]) + steps + spread) / len(m))


def thm2_printed(
    rounds: int, dim: int, constant: float, slope: float, beta: float, kappa: float, start: float
) -> float:
    """Theorem 2 as printed: C_T/T + C_log ln T/T + C T^{−1/4} + 2pc²/κ, with `start` = ‖x(0) − x*‖²."""
    c, g, t = constant, slope, rounds
    cross = 2 * np.sqrt(2 * dim) * g / np.sqrt(kappa) * (4 + 3 / (1 - beta)) * c**2
    logs = g**2 * (1 + 1 / (1 - beta)) * c**2
    return float(start / t + logs * np.log(t) / t + cross / t**0.25 + 2 * dim * c**2 / kappa)


def gap(records: int = RECORDS) -> float:
    """How far one record moves an agent's mean: the diagonal 2R√p of the box over |D_i|."""
    return 2 * RADIUS * DIM**0.5 / records


def first_node(stage: int, share: float, dim: int, chance: float, graph: int, epsilon: float, delta: float) -> float:
    """The closed form of the first node's normalised error as printed, with a share of Theorem 2's step size."""
    means = data(RECORDS, dim).reshape(AGENTS, RECORDS, dim).mean(axis=1)
    mix = weights(chance, graph).dense()
    noise = share * (dim / DIM) ** 0.5 * scales(stage, showkatbakhsh_alpha(epsilon, delta), "printed")
    return node_path(mix, noise, share, means) / float(np.sum(means.mean(axis=0) ** 2))


def scales(rounds: int, spent: float, schedule: str, records: int = RECORDS) -> np.ndarray:
    """M_1 … M_T: the printed 2√T form, or uniform over the sensitivity; `spent` is Σ Δ²/M²."""
    t = np.arange(1.0, rounds + 1)
    squared = 2 * rounds**0.5 * t**-1.5 if schedule == "printed" else rounds / t**2
    return gap(records) * np.sqrt(squared / spent)


def closed_form(
    share: float, rounds: int, epsilon: float, delta: float, size: float, records: int = RECORDS, dim: float = DIM
) -> float:
    """The closed form of the normalised error as printed, with a share of Theorem 2's step size.

    In p coordinates noise has p times the squared sensitivity and p coordinates, ‖d̄‖² p coordinates: p times as much.
    """
    noise = share * (dim / DIM) ** 0.5 * scales(rounds, showkatbakhsh_alpha(epsilon, delta), "printed", records)
    return mean_path(noise, AGENTS, DIM, share, size) / size


def slopes_of(
    deltas: list[float], epsilons: list[float], stage: int, size: float
) -> dict[tuple[float, float], dict[float, float]]:
    """Log-log slopes in ε for shares of the step size, numbers of coordinates and each δ."""
    return {
        (c, p): {d: slope_of(epsilons, [closed_form(c, stage, e, d, size, dim=p) for e in epsilons]) for d in deltas}
        for c in SHARES
        for p in (float(DIM), MANY)
    }


# ---- runs ------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def data(records: int, dim: int = DIM) -> np.ndarray:
    """All agents' records: N(0.7R, 1) in each coordinate, cut to the box."""
    centre = 0.7 * RADIUS
    low, high = -RADIUS - centre, RADIUS - centre
    rng = np.random.default_rng(0)
    return truncnorm.rvs(low, high, loc=centre, size=(AGENTS * records, dim), random_state=rng)


@lru_cache(maxsize=256)
def weights(chance: float, seed: int) -> Mixing:
    """W = I − 2L/(3λ_max(L)) of a connected Erdős-Rényi graph."""
    return mixing(make_graph("erdos-renyi", AGENTS, seed=seed, p=chance), "two-thirds")


def layout(stage: int, records: int, chance: float, seed: int, schedule: str) -> Layout:
    """The agents on their graph for T = `stage` gradient steps and one round of averaging."""
    w, parts = weights(chance, seed), np.split(np.arange(AGENTS * records), AGENTS)
    shape = schedules.make(schedule, stage + 1)
    with jax.enable_x64(True):
        return make_layout(
            Mean(DIM, RADIUS),
            data(records),
            np.zeros(AGENTS * records),
            parts,
            w.graph,
            w,
            rounds=stage + 1,
            shape=shape,
        )


def descend(
    study: Study, *, stage: int, budgets: list[list[float]], printed: bool, seeds: int, records: int = RECORDS,
    chance: float = CHANCE, graph: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """Normalised squared errors, (budgets, seeds): of the mean, of the first node, and of the first from the mean.

    Printed: M_t of Theorem 2 with κ of (14), the last message bare. Corrected: exact calibration, uniform over the
    sensitivity, every message noised. `epsilon`: what the noise costs, `bare` messages noised too.
    """
    place = layout(stage, records, chance, graph, "power" if printed else "uniform")
    cfg = dp_consensus_gd.Config(step=1.0, stage_one=stage, as_printed=printed)
    safe, places = cfg.replace(as_printed=False), place.arrays.place
    with jax.enable_x64(True):
        one = rows(places, 0)
    if printed:
        noise = [dp_consensus_gd.printed_noise(cfg, one, e, d) for e, d in budgets]
    else:
        noise = [noise_for(ALGORITHM, safe, places, e, d) for e, d in budgets]
    runs = [Run(s, cfg, z) for z in noise for s in range(seeds)]
    trace = study.whole(simulate(ALGORITHM, place, runs, rounds=stage + 1, every=stage + 1, record=True), stage + 1)
    sent = trace.messages.y[:, stage - 1]  # (runs, agents, dim): what left after the last gradient step
    truth = data(records).mean(axis=0)
    middle, first = sent.mean(axis=1), sent[:, 0]
    size = float(truth @ truth)
    square = lambda v: (np.sum(v**2, axis=-1) / size).reshape(len(budgets), seeds)  # noqa: E731
    return {
        "mean": square(middle - truth),
        "node": square(first - truth),
        "apart": square(first - middle),
        "size": size,
        "epsilon": [cost_of(ALGORITHM, safe, places, z, d) for z, (_, d) in zip(noise, budgets, strict=True)],
    }


def slope_of(x: ArrayLike, y: ArrayLike) -> float:
    """Slope of the least-squares line through ln x, ln y."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


def repeats(study: Study) -> int:
    """Mean estimation is cheap: more seeds than elsewhere."""
    return study.pick(100, 20)


VERSIONS: tuple[tuple[Version, bool], ...] = (("as printed", True), ("corrected", False))
