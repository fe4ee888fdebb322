"""Runs behind the figures of Zhang and Zhu: dual and primal perturbation on Adult, as printed and as corrected.

The paper's local objective is (C/B) Σ loss + ρ R + …; divided by C it is ours, with ridge ρ/C and penalty η/C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq, curve_fit

from coterie.pricing import Priced
from reproduction._admm_runs import World, accuracy, every, losses, points_sent, settled, with_shape
from reproduction.pricing import cost_of, noise_for
from reproduction.study import Study

__all__ = [
    "DELTA", "ETA", "RHO", "ROUNDS", "SIZE", "WEIGHT", "again", "best_level", "dual", "fit", "plain", "primal", "world",
]  # fmt: skip

ROUNDS, ETA, DELTA, TOLERANCE = 100, 0.5, 1e-5, 1e-10
RHO = {"non-private": 1e-10, "dual": 10**-2.5, "primal": 1e-1}  # Table 1
WEIGHT = {"non-private": 1750.0, "dual": 1750.0, "primal": 146.0}  # Table 2: C^R
SIZE = {True: 2000, False: 4000}  # records of an agent, quick or not
AT = every(ROUNDS, 34)
OMEGA = (0.02, 6.0, 9.0, 1.0)  # of the utility of privacy, (29)


def world(records: int) -> World:
    """Five agents, all connected: P and N_p are not stated."""
    return World(5, records, 4)


def scores(experiment: Any, points: np.ndarray, rounds: int = ROUNDS) -> dict[str, Any]:
    """Loss by round, and error rates at round 100: on held-out records and on each agent's own."""
    at = np.array(AT) - 1
    return {
        "rounds": AT,
        "loss": losses(experiment, points[:, at]),
        "error": 1 - accuracy(experiment, points[:, rounds - 1], "test"),
        "own error": 1 - accuracy(experiment, points[:, rounds - 1], "train"),
    }


def experiment_of(at: World, key: str) -> Any:
    """The records with the ridge ρ/C of a method."""
    return at.experiment(RHO[key] / WEIGHT[key])


def printed_dual(at: World, experiment: Any, key: str = "dual", eta: float = ETA) -> Priced:
    """Algorithm 2 with the paper's noise."""
    common: dict[str, Any] = {"noise": "gamma", "as_printed": True, "delta": DELTA, "tolerance": TOLERANCE}
    return settled(at, experiment, "dvp", ROUNDS, penalty=eta / WEIGHT[key], **common)


def printed_primal(at: World, experiment: Any, eta: float = ETA) -> Priced:
    """Algorithm 3 with the paper's noise: 100 noisy exchanges, a bare one, the final step."""
    key, rounds = "primal", ROUNDS + 2
    penalty = eta / WEIGHT[key]
    settings: dict[str, Any] = {"penalty": penalty, "noise": "gamma", "centre": "literal", "delta": DELTA}
    priced = settled(at, experiment, "pvp", rounds, as_printed=True, tolerance=TOLERANCE, **settings)
    pull = 2 * penalty * at.degree
    shrink = pull / (RHO[key] / WEIGHT[key] + pull)  # Δ_t = (2C/ρB)(1 − qᵗ), but the printed noise is constant
    shape = 1 / (1 - shrink ** np.arange(1.0, rounds + 1))
    shape[-1] = 1.0  # the final step is at level α
    return with_shape(priced, shape)


def plain(study: Study, *, records: int, seeds: int) -> dict[str, Any]:
    """No noise: what the loss comes to; all seeds give the same, but share the program of the noisy runs."""
    at, key = world(records), "non-private"
    experiment = experiment_of(at, key)
    points, _ = points_sent(study, experiment, printed_dual(at, experiment, key), 1e-12, seeds)
    return scores(experiment, points)


def dual(study: Study, *, alpha: float, version: str, records: int, seeds: int) -> dict[str, Any]:
    """Algorithm 2. As printed: level α a round, ζ = α̂. Corrected: (α, δ) for the whole run, Gaussian noise, own η."""
    at = world(records)
    experiment = experiment_of(at, "dual")
    if version == "as printed":
        priced, noise = printed_dual(at, experiment), 1 / alpha
    else:
        priced = settled(
            at, experiment, "dvp", ROUNDS, noise="gaussian", epsilon=alpha, delta=DELTA, tolerance=TOLERANCE
        )
        noise = noise_for(priced.algorithm, priced.cfg, priced.places, alpha, DELTA)
    points, _ = points_sent(study, experiment, priced, noise, seeds)
    cost = lambda delta: cost_of(priced.algorithm, priced.cfg, priced.places, noise, delta)  # noqa: E731
    found = scores(experiment, points)
    pure = cost(0.0) if version == "as printed" else float("inf")
    return found | {
        "final": found["loss"][:, -1],
        "pure": pure,
        "true": cost(DELTA),
        "penalty": penalty_of(priced.cfg),
    }


def primal(study: Study, *, alpha: float, version: str, records: int, seeds: int) -> dict[str, Any]:
    """Algorithm 3: 100 rounds and the final step. As printed the last exchange before it has no noise."""
    at = world(records)
    experiment = experiment_of(at, "primal")
    if version == "as printed":
        priced = printed_primal(at, experiment)
        noise, before = 1 / alpha, priced.cfg.replace(as_printed=False)
        coarse = with_shape(priced, 4 / np.ceil(4 / priced.shape)).places  # four kinds of rounds: an upper bound
        true = cost_of(priced.algorithm, before, coarse, noise, DELTA, ROUNDS)
        pure = cost_of(priced.algorithm, before, priced.places, noise, 0.0, ROUNDS)
    else:
        priced = settled(
            at, experiment, "pvp", ROUNDS + 1, noise="gaussian", epsilon=alpha, delta=DELTA, tolerance=TOLERANCE
        )
        noise, pure = noise_for(priced.algorithm, priced.cfg, priced.places, alpha, DELTA), float("inf")
        true = cost_of(priced.algorithm, priced.cfg, priced.places, noise, DELTA)
    points, _ = points_sent(study, experiment, priced, noise, seeds)
    final = losses(experiment, points[:, -1])
    found = scores(experiment, points)
    return found | {"final": final, "pure": pure, "true": true, "penalty": penalty_of(priced.cfg)}


def again(
    study: Study, *, method: str, alpha: float, seeds: int, agents: int, degree: int, coding: str, records: int,
    eta: float,
) -> dict[str, Any]:  # fmt: skip
    """A method as printed where what the paper leaves open is chosen otherwise; without its price."""
    at = World(agents, records, degree, coding=coding)
    experiment = experiment_of(at, method)
    priced = (printed_dual if method == "dual" else printed_primal)(at, experiment, eta=eta)
    points, _ = points_sent(study, experiment, priced, 1 / alpha, seeds)
    return scores(experiment, points) | {"final": losses(experiment, points[:, -1])}


def penalty_of(cfg: Any) -> float:
    """η of a configuration whose settings were filled in."""
    return float(cfg.penalty)


def fit(levels: np.ndarray, loss: np.ndarray) -> tuple[float, float, float]:
    """(c₄, c₅, c₆) of c₄ e^{−c₅ α} + c₆ by least squares."""
    start = (max(float(np.ptp(loss)), 1e-3), 5.0, float(loss.min()))
    found, _ = curve_fit(
        lambda a, c4, c5, c6: c4 * np.exp(-c5 * a) + c6, levels, loss, p0=start, bounds=(0, [1e3, 1e2, 1e2])
    )
    return tuple(map(float, found))  # type: ignore[return-value]


def best_level(c4: float, c5: float, sign: float = 1.0) -> float:
    """α* of the trade-off, where the slope of c₄e^{−c₅α} − U_priv(α) crosses 0 upwards; `sign` −1: as printed."""
    w1, _, w3, w4 = OMEGA

    def slope(a: float) -> float:
        return w1 * (w3 + sign * 2 * w4 * a) - c4 * c5 * (w3 * a + w4 * a**2) * float(np.exp(-c5 * a))

    return float(brentq(slope, 1.0 / c5, 1.0))
