"""Runs behind Ding's chapter 3: PP-ADMM and IPP-ADMM with printed and with corrected noise, and the baselines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from coterie.algorithms.pp_admm import classic_gaussian
from coterie.pricing import Priced
from coterie.privacy.rdp import zcdp_epsilon
from reproduction._admm_runs import World, accuracy, claimed_by, every, losses, noise_of_baseline, points_sent, settled
from reproduction._pr_admm_runs import BASELINES, GAMMA
from reproduction.claims import ding_rho
from reproduction.pricing import cost_of, noise_for
from reproduction.study import Study

__all__ = [
    "AGENTS",
    "CAP",
    "DELTA",
    "RECORDS",
    "ROUNDS",
    "STATED",
    "TUNED",
    "Printed",
    "as_claimed",
    "ipp",
    "other",
    "pp",
    "printed_pp",
]

AGENTS, RECORDS, ROUNDS, CAP, DELTA = 5, 7000, 30, 15, 1e-4
STATED, TUNED = 0.5, 0.05  # η as stated, and one with which 30 rounds are enough
RIDGE, CURVATURE, DEGREE = 1e-3, 0.25, 2
TEST_SHARE = 0.1  # of the budget for the tests of IPP-ADMM: not stated


class Printed(NamedTuple):
    """PP-ADMM's noise as printed, in the paper's terms and in ours."""

    objective: float  # σ_i1
    output: float  # σ_i2
    ridge: float  # λ̂/N
    multiplier: float
    split: float


def printed_pp(
    epsilon: float, splits: float, beta: float, eta: float, releases: int = ROUNDS, share: float = 1.0,
    degree: int = DEGREE,
) -> Printed:  # fmt: skip
    """σ_i1 and σ_i2 for a total ε (§3.5.2): ρ = ε²/(4 ln 1/δ), split over the releases, ε_i3 = .99 ε_i1.

    The regularizer is raised to the printed λ̂ ≥ 2.8 N c₁/((ε_i1 − ε_i3) n). `share` of ρ goes to the releases.
    """
    rho = share * ding_rho(epsilon, DELTA) / releases
    first = zcdp_epsilon(rho * (1 - splits), DELTA)
    ridge = max(RIDGE, 2.8 * CURVATURE / (0.01 * first * RECORDS))
    objective = classic_gaussian(0.99 * first, DELTA) * 2 / RECORDS
    output = beta / ((2 * rho * splits) ** 0.5 * (ridge + 2 * eta * degree))
    a, b = objective * RECORDS / 2, output * (ridge + 2 * eta * degree) / (2 * beta)  # in units of what a record moves
    return Printed(objective, output, ridge, a * b / np.hypot(a, b), a**2 / (a**2 + b**2))


def world(table: str = "", degree: int = DEGREE, coding: str = "onehot") -> World:
    """Five agents: the random graph is not described, and neither is the coding."""
    return World(AGENTS, RECORDS, degree, table, coding)


def scores(experiment: Any, points: np.ndarray, sent: np.ndarray) -> dict[str, Any]:
    """Loss by round, final error rates, messages sent by an agent."""
    at = every(ROUNDS, 30)
    return {
        "rounds": at,
        "loss": losses(experiment, points[:, np.array(at) - 1]),
        "test": 1 - accuracy(experiment, points[:, -1], "test"),
        "train": 1 - accuracy(experiment, points[:, -1], "train"),
        "sent": sent.mean(axis=1),
    }


def pp(
    study: Study, *, version: str, epsilon: float, splits: float, beta: float, eta: float, seeds: int, table: str = "",
    degree: int = DEGREE, coding: str = "onehot",
) -> dict[str, Any]:  # fmt: skip
    """PP-ADMM with the noise of one version; "reference": none."""
    old = printed_pp(epsilon, splits, beta, eta, degree=degree)
    ridge = old.ridge if version == "as printed" else RIDGE
    at = world(table, degree, coding)
    experiment = at.experiment(ridge)
    split = old.split if version == "as printed" else splits
    priced = settled(at, experiment, "pp-admm", ROUNDS, penalty=eta, split=split, tolerance=beta)
    noise, true = 0.0, float("inf")
    if version != "reference":
        corrected = version == "corrected"
        noise = noise_for(priced.algorithm, priced.cfg, priced.places, epsilon, DELTA) if corrected else old.multiplier
        true = cost_of(priced.algorithm, priced.cfg, priced.places, noise, DELTA)
    points, trace = points_sent(study, experiment, priced, noise, seeds)
    return scores(experiment, points, trace.sent) | {"true": true, "ridge": ridge}


def ipp(
    study: Study, *, version: str, epsilon: float, clip: float, threshold: float, splits: float, beta: float,
    eta: float, seeds: int, table: str = "", degree: int = DEGREE, coding: str = "onehot", share: float = TEST_SHARE,
) -> dict[str, Any]:  # fmt: skip
    """IPP-ADMM with at most 15 messages an agent, as printed (tests on the point that is sent) or rebuilt."""
    printed = version == "as printed"
    ridge = printed_pp(epsilon, splits, beta, eta, CAP, 1 - share, degree).ridge if printed else RIDGE
    at = world(table, degree, coding)
    experiment = at.experiment(ridge)
    settings: dict[str, Any] = {"broadcasts": CAP, "clip": clip, "threshold": threshold, "test_share": share}
    settings["tolerance"] = beta
    priced = settled(at, experiment, "ipp-admm", ROUNDS, penalty=eta, split=splits, as_printed=printed, **settings)
    if printed:
        noise = (ROUNDS / (2 * ding_rho(epsilon, DELTA))) ** 0.5
        for _ in range(4):  # the printed total falls almost as 1/noise
            noise *= claimed_by(priced, noise, DELTA) / epsilon
    else:
        noise = noise_for(priced.algorithm, priced.cfg, priced.places, epsilon, DELTA)
    true = cost_of(priced.algorithm, priced.cfg, priced.places, noise, DELTA)
    points, trace = points_sent(study, experiment, priced, noise, seeds)
    return scores(experiment, points, trace.sent) | {"true": true, "ridge": ridge}


def other(
    study: Study, *, version: str, method: str, epsilon: float, eta: float, seeds: int, table: str = "",
    degree: int = DEGREE, coding: str = "onehot",
) -> dict[str, Any]:  # fmt: skip
    """A baseline with its own noise, as printed (`as_claimed`), or calibrated by the exact cost of its rounds."""
    at = world(table, degree, coding)
    experiment = at.experiment(RIDGE)
    printed = version == "as printed"
    slug, settings = ("dvp", GAMMA | {"as_printed": True}) if printed and method == "DVP" else BASELINES[method]
    priced = settled(at, experiment, slug, ROUNDS, penalty=eta, **settings)
    if printed:
        noise = as_claimed(priced, epsilon)
    else:
        noise = noise_for(priced.algorithm, priced.cfg, priced.places, epsilon, DELTA)
    true = cost_of(priced.algorithm, priced.cfg, priced.places, noise, DELTA)
    points, trace = points_sent(study, experiment, priced, noise, seeds)
    return scores(experiment, points, trace.sent) | {"true": true}


def as_claimed(priced: Priced, epsilon: float) -> float:
    """The noise at which the dissertation's accounting of a baseline, as far as stated, is ε: ρ = ε²/(4 ln 1/δ)."""
    return noise_of_baseline(priced, DELTA, ding_rho(epsilon, DELTA), epsilon)
