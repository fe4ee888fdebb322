"""Runs behind the figures of Zhang and Zhu: dual and primal perturbation on Adult, as printed and as corrected.

The paper's local objective is (C/B) Σ loss + ρ R + …; divided by C it is ours, with ridge ρ/C and penalty η/C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq, curve_fit

from reproduction._admm_runs import World, accuracy, every, losses, points_sent, settled, with_shape
from reproduction.pricing import cost_of, noise_for
from reproduction.study import Study

__all__ = ["DELTA", "ETA", "RHO", "ROUNDS", "SIZE", "WEIGHT", "best_level", "dual", "fit", "plain", "primal", "world"]

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
    """Loss by round, and error rate on held-out records at round 100."""
    at = np.array(AT) - 1
    return {
        "rounds": AT,
        "loss": losses(experiment, points[:, at]),
        "error": 1 - accuracy(experiment, points[:, rounds - 1], "test"),
    }


def plain(study: Study, *, records: int, seeds: int) -> dict[str, Any]:
    """No noise: what the loss comes to; all seeds give the same, but share the program of the noisy runs."""
    at, key = world(records), "non-private"
    experiment = at.experiment(RHO[key] / WEIGHT[key])
    priced = settled(
        at,
        experiment,
        "dvp",
        ROUNDS,
        penalty=ETA / WEIGHT[key],
        noise="gamma",
        as_printed=True,
        delta=DELTA,
        tolerance=TOLERANCE,
    )
    points, _ = points_sent(study, experiment, priced, 1e-12, seeds)
    return scores(experiment, points)


def dual(study: Study, *, alpha: float, version: str, records: int, seeds: int) -> dict[str, Any]:
    """Algorithm 2. As printed: level α a round, ζ = α̂. Corrected: (α, δ) for the whole run, Gaussian noise, own η."""
    at, key = world(records), "dual"
    experiment = at.experiment(RHO[key] / WEIGHT[key])
    if version == "as printed":
        priced = settled(
            at,
            experiment,
            "dvp",
            ROUNDS,
            penalty=ETA / WEIGHT[key],
            noise="gamma",
            as_printed=True,
            delta=DELTA,
            tolerance=TOLERANCE,
        )
        noise = 1 / alpha
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
    at, key = world(records), "primal"
    experiment = at.experiment(RHO[key] / WEIGHT[key])
    if version == "as printed":
        rounds, penalty = ROUNDS + 2, ETA / WEIGHT[key]  # 100 noisy exchanges, a bare one, the final step
        settings: dict[str, Any] = {"penalty": penalty, "noise": "gamma", "centre": "literal", "delta": DELTA}
        settings["tolerance"] = TOLERANCE
        priced = settled(at, experiment, "pvp", rounds, as_printed=True, **settings)
        pull = 2 * penalty * at.degree
        shrink = pull / (RHO[key] / WEIGHT[key] + pull)  # Δ_t = (2C/ρB)(1 − qᵗ), but the printed noise is constant
        shape = 1 / (1 - shrink ** np.arange(1.0, rounds + 1))
        shape[-1] = 1.0  # the final step is at level α
        priced = with_shape(priced, shape)
        noise, before = 1 / alpha, priced.cfg.replace(as_printed=False)
        coarse = with_shape(priced, 4 / np.ceil(4 / shape)).places  # four kinds of rounds: quick, an upper bound
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
