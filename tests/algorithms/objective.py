"""Objective perturbation seen from outside, in NumPy: densities in closed form, noise recovered from transcripts."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.special import expit

from coterie.algorithms.base import Place
from coterie.algorithms.batches import rows
from coterie.drivers.references import pooled
from tests.support import network

EXACT = {"tolerance": 1e-30, "share": 1e-12}  # settings under which the whole budget is the objective's


def place_with(dim: int, records: int, degree: int, ridge: float, rounds: int, noise: float = 0.0) -> Place:
    """One agent's place with these public numbers (logistic loss, records in the unit ball)."""
    with jax.enable_x64(True):
        place = _base(dim, ridge, rounds)
        fresh = [jnp.asarray(x, float) for x in (records, degree, 1 / records, noise)]
        return eqx.tree_at(lambda p: (p.count, p.degree, p.unit, p.noise), place, fresh)


@cache
def optimum() -> np.ndarray:
    """The pooled optimum of the standard small network, which does not depend on its rounds."""
    return np.tile(pooled(network()), (5, 1))


@cache
def _base(dim: int, ridge: float, rounds: int) -> Place:
    return rows(network(2, 3, dim, graph="path", ridge=ridge, rounds=rounds).arrays.place, 0)


def world(u: np.ndarray, x: np.ndarray, unit: float, curvature: float) -> tuple[np.ndarray, np.ndarray]:
    """∇ and ∇² at x of unit Σ log(1 + e^{−⟨u_r, x⟩}) + curvature/2 ‖x‖², u_r = label · record."""
    p = expit(-u @ x)
    return -unit * p @ u + curvature * x, unit * (u.T * (p * (1 - p))) @ u + curvature * np.eye(x.size)


def log_ratio(
    pair: tuple[np.ndarray, np.ndarray], x: np.ndarray, history: np.ndarray, unit: float, curvature: float, scale: float
) -> float:
    """ln q(x | D)/q(x | D') of a release tilted by noise of density ∝ exp(−‖b‖/scale); b = history − ∇(x)."""
    out = []
    for u in pair:
        gradient, hessian = world(u, x, unit, curvature)
        out.append(-np.linalg.norm(history - gradient) / scale + np.linalg.slogdet(hessian)[1])
    return out[0] - out[1]


def adversarial(dim: int, records: int, angle: float = 0.02) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Two data sets that differ in one record, and a point where both records' slopes are saturated and apart by 2."""
    rest = np.zeros((records - 1, dim))
    u, v, x = np.zeros((3, dim))
    if dim == 1:
        u[0], x[0] = 1.0, -40.0  # the other record is all zeros: a gap of 1
    else:
        u[:2], v[:2], x[1] = (np.cos(angle), np.sin(angle)), (-np.cos(angle), np.sin(angle)), -40 / np.sin(angle)
    return (np.vstack([rest, u]), np.vstack([rest, v])), x


def worst(scale: float, ridge: float, unit: float, curvature: float, dim: int, records: int) -> float:
    """The log-ratio on the adversarial pair, b far out in the direction of the gap."""
    pair, x = adversarial(dim, records)
    gradients = [world(u, x, unit, curvature + ridge)[0] for u in pair]
    gap = gradients[1] - gradients[0]
    away = 1e5 * gap / np.linalg.norm(gap)
    forward = log_ratio(pair, x, gradients[0] - away, unit, curvature + ridge, scale)
    backward = log_ratio(pair[::-1], x, gradients[1] + away, unit, curvature + ridge, scale)
    return max(forward, backward)


def scale_p_value(norms: np.ndarray, dim: int, scale: float) -> float:
    """Two-sided p-value of norms being Gamma(dim, scale) by their sum, which is Gamma(dim · count, scale)."""
    law = stats.gamma(dim * norms.size, scale=scale)
    return 2 * min(law.cdf(norms.sum()), law.sf(norms.sum()))


def recovered_tilts(
    messages: np.ndarray,
    near: np.ndarray,
    slopes: np.ndarray,
    degree: np.ndarray,
    penalty: float,
    step: float,
    ridge: float = 0.0,
) -> np.ndarray:
    """b of every round and agent, from broadcasts (rounds, agents, dim), neighbours' sums and ∇f_i at the messages.

    Anyone who sees the messages can follow the dual; only ∇f_i needs the data.
    """
    n = degree[:, None]
    zero = np.zeros_like(messages[:1])
    before, near_before = np.concatenate([zero, messages[:-1]]), np.concatenate([zero, near[:-1]])
    dual = np.concatenate([zero, np.cumsum(step * (n * messages - near), axis=0)[:-1]])
    linear = dual - penalty * (n * before + near_before)
    return -(slopes + linear + (2 * penalty * n + ridge) * messages)
