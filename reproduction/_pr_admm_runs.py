"""Runs behind the figures of PR-ADMM: five agents on a ring, Adult, printed and corrected noise, and the baselines."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from coterie.algorithms import pr_admm
from coterie.algorithms.pr_admm import paper_threshold
from coterie.drivers.references import pooled
from coterie.pricing import Priced
from coterie.privacy.gdp import mu_for
from coterie.privacy.rdp import zcdp_rho
from coterie.privacy.schedules import make
from reproduction._admm_runs import (
    World,
    accuracy,
    every,
    losses,
    noise_claiming,
    noise_of_baseline,
    points_sent,
    settled,
)
from reproduction.bounds import objective_gap_bound
from reproduction.pricing import cost_of, noise_for
from reproduction.study import Study

__all__ = [
    "ACCOUNTS",
    "AGENTS",
    "DELTA",
    "ITER",
    "NEVER",
    "PER",
    "RIDGE",
    "ROUNDS",
    "baseline",
    "bound_by_rounds",
    "gap",
    "pr",
]

AGENTS, ROUNDS, DELTA, RIDGE = 5, 50, 1e-4, 1e-3
NEVER = 1e9  # a threshold that nobody crosses: the same program as with one
PER: dict[str, Any] = {"decay": "periodic", "options": {"rate": 0.925, "period": 1}, "threshold": 0.1}
ITER: dict[str, Any] = {"decay": "iteration", "options": {"rate": 0.015}, "threshold": 1.0}
# of a baseline's ε: its true cost; its rounds, pure by its own theorem, as zCDP; that theorem's own total
ACCOUNTS = ("exact", "zCDP", "own theorem")
GAMMA: dict[str, Any] = {"noise": "gamma"}
BASELINES: dict[str, tuple[str, dict[str, Any]]] = {  # with growth 1 M-ADMM is DVP, draw for draw
    "DVP": ("m-admm", GAMMA | {"growth": 1.0}),
    "M-ADMM": ("m-admm", GAMMA),
    "R-ADMM": ("r-admm", GAMMA),
    "MR-ADMM": ("mr-admm", GAMMA),
    "DP-ADMM": ("dp-admm", {"decay": 0.5}),
}


def moves(priced: Priced) -> tuple[float, float]:
    """How far one record can move the minimiser, and how far the paper says (it forgets 1/n)."""
    with jax.enable_x64(True):
        cfg, places = priced.cfg, priced.places
        assert isinstance(cfg, pr_admm.Stepping)
        return float(pr_admm.sensitivity(cfg, places, 0)[0]), float(pr_admm.printed_sensitivity(cfg, places)[0])


def solving(eta: float, degree: int, ridge: float) -> int:
    """Gradient steps that leave 1/1000 of the way to a subproblem's minimiser, at most 300: the paper's is exact."""
    bend = 0.25  # of the logistic loss on rows of norm 1
    return min(300, math.ceil(math.log(1e-3) / math.log(bend / (2 * (ridge + 2 * eta * degree) + bend))))


def pr(
    study: Study, *, decay: str, options: dict[str, float], threshold: float, epsilon: float, version: str, eta: float,
    records: int, seeds: int, degree: int = 2, coding: str = "onehot", ridge: float = RIDGE,
) -> dict[str, Any]:  # fmt: skip
    """PR-ADMM with the noise of one version ("reference": none): loss by round, final accuracies, noise, true ε."""
    world = World(AGENTS, records, degree, coding=coding)
    experiment = world.experiment(ridge)
    priced = settled(
        world, experiment, "pr-admm", ROUNDS, penalty=eta, threshold=threshold, schedule=decay, options=options,
        steps=solving(eta, degree, ridge),
    )  # fmt: skip
    place = priced.places
    real, declared = moves(priced)
    noise = 0.0
    if version == "corrected":
        noise = noise_for(priced.algorithm, priced.cfg, place, epsilon, DELTA)
    elif version == "as printed":
        noise = noise_claiming(priced, epsilon, DELTA, as_printed=True) * declared / real
    points, _ = points_sent(study, experiment, priced, noise, seeds)
    at = every(ROUNDS)
    true = cost_of(priced.algorithm, priced.cfg, place, noise, DELTA) if noise else float("inf")
    return {
        "rounds": at,
        "loss": losses(experiment, points[:, np.array(at) - 1]),
        "test": accuracy(experiment, points[:, -1], "test"),
        "train": accuracy(experiment, points[:, -1], "train"),
        "sigma": noise * real * priced.shape,
        "true": true,
    }


def baseline(
    study: Study, *, method: str, epsilon: float, eta: float, records: int, seeds: int, account: str = "exact",
    degree: int = 2, coding: str = "onehot", ridge: float = RIDGE,
) -> dict[str, Any]:  # fmt: skip
    """A baseline with its own noise, for one of `ACCOUNTS`; and what the run costs."""
    world = World(AGENTS, records, degree, coding=coding)
    experiment = world.experiment(ridge)
    printed = account != "exact"
    slug, settings = ("dvp", GAMMA | {"as_printed": True}) if printed and method == "DVP" else BASELINES[method]
    priced = settled(world, experiment, slug, ROUNDS, penalty=eta, **settings)
    if printed:
        noise = noise_of_baseline(priced, DELTA, zcdp_rho(epsilon, DELTA) if account == "zCDP" else None, epsilon)
    else:
        noise = noise_for(priced.algorithm, priced.cfg, priced.places, epsilon, DELTA)
    points, _ = points_sent(study, experiment, priced, noise, seeds)
    at = every(ROUNDS)
    return {
        "rounds": at,
        "loss": losses(experiment, points[:, np.array(at) - 1]),
        "test": accuracy(experiment, points[:, -1], "test"),
        "train": accuracy(experiment, points[:, -1], "train"),
        "true": cost_of(priced.algorithm, priced.cfg, priced.places, noise, DELTA),
    }


def gap(study: Study, *, decay: str, options: dict[str, float], epsilon: float, eta: float, records: int,
        seeds: int) -> dict[str, Any]:  # fmt: skip
    """Σ f_i(x̄_i) − f* of the running mean of the *unreleased* points, and Theorem 5/6, repaired and as printed."""
    world = World(AGENTS, records)
    experiment = world.experiment(RIDGE)
    priced = settled(
        world, experiment, "pr-admm", ROUNDS, penalty=eta, threshold=NEVER, schedule=decay, options=options,
        steps=solving(eta, world.degree, RIDGE),
    )  # fmt: skip
    noise = noise_for(priced.algorithm, priced.cfg, priced.places, epsilon, DELTA)
    points, trace = points_sent(study, experiment, priced, noise, seeds)
    sigma = noise * moves(priced)[0] * priced.shape
    assert trace.draws is not None
    exact = points - sigma[:, None, None] * trace.draws["noise"]
    at = every(ROUNDS, 13)
    means = np.stack([exact[:, :k].mean(axis=1) for k in at], axis=1)
    best = pooled(experiment.layout(1))

    def total(x: np.ndarray) -> np.ndarray:
        return AGENTS * (losses(experiment, x) + RIDGE / 2 * np.mean(np.sum(x**2, axis=-1), axis=-1))

    degrees, dim, far = np.full(AGENTS, 2.0), points.shape[-1], float(np.linalg.norm(best))
    proved = [objective_gap_bound(eta, degrees, sigma[:k, None], far, dim) for k in at]
    laplacian, signless, connectivity = 2 + 2 * np.cos(np.pi / 5), 4.0, 2 - 2 * np.cos(2 * np.pi / 5)  # of the ring
    width = paper_threshold(
        eta, far, 1 + RIDGE * far, edges=1 / 2**0.5, signless_max=signless, laplacian_max=laplacian,
        connectivity=connectivity,
    )  # fmt: skip
    spread = 1 / (1 - options["rate"]) if decay == "periodic" else 1 / options["rate"]
    noisy = dim * signless**2 * AGENTS * sigma[0] ** 2 * spread / (2 * connectivity)
    return {
        "rounds": at,
        "gap": total(means) - total(np.broadcast_to(best, (AGENTS, dim))),
        "proved": proved,
        "printed": [eta / k * (2 * width**2 + noisy) for k in at],
    }


def bound_by_rounds(decay: str, options: dict[str, float], rounds: list[int], epsilon: float, eta: float,
                    records: int, dim: int) -> list[float]:  # fmt: skip
    """The noise part of the repaired bound after K rounds that together cost (ε, δ), for each K."""
    move = 2 / records / (RIDGE + 4 * eta)
    found = []
    for k in rounds:
        sigma = move * k**0.5 / float(mu_for(epsilon, DELTA)) * make(decay, k, **options)
        found.append(objective_gap_bound(eta, np.full(AGENTS, 2.0), sigma[:, None], 0.0, dim))
    return found
