"""The theorems' left sides, measured on the product: its solver, its noise, its algorithms."""

from __future__ import annotations

from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coterie.algorithms import gauss_avg_gd, ldp_admm, qdpsgd1
from coterie.algorithms.base import find
from coterie.algorithms.laws import L2LaplaceLaw
from coterie.drivers.layout import Layout, make_layout
from coterie.drivers.references import objective, pooled
from coterie.drivers.simulate import Run, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic
from coterie.losses.mean import Mean
from coterie.problems import HeldShard, SolverSettings
from reproduction.theorems.qdpsgd import Quadratic
from reproduction.theorems.zhang_zhu import Setting

__all__ = ["admm_error", "averaged_descent", "mean_network", "population_excess", "quantized"]

PEOPLE = 20_000  # records that stand for the population


# ---- Zhang and Zhu ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _population(dim: int, norm: float) -> tuple[np.ndarray, np.ndarray]:
    """y·x of everybody, on the unit sphere, labels by a logistic law; and its best classifier f⁰, of that length."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((PEOPLE, dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    reference = norm * np.eye(dim)[0]
    y = np.where(rng.uniform(size=PEOPLE) < 1 / (1 + np.exp(-x @ reference)), 1.0, -1.0)
    return x * y[:, None], reference


def _loss(points: np.ndarray, signed: np.ndarray) -> np.ndarray:
    return np.asarray(np.mean(np.logaddexp(0, -(signed @ np.atleast_2d(points).T)), axis=0))


def population_excess(theorem: int, s: Setting, count: int, draws: int = 200, seed: int = 0) -> tuple[float, float]:
    """Mean of Ĉ(f) − Ĉ(f⁰) over data sets and noises, and its standard error; f by the product's solver."""
    signed, reference = _population(s.dim, s.norm)
    rng = np.random.default_rng(seed)
    rows = signed[rng.integers(0, PEOPLE, (draws, count))]
    with jax.enable_x64(True):
        law = L2LaplaceLaw(s.dim)
        noise = jax.vmap(lambda k: law.sample(k, jnp.float64))(jax.random.split(jax.random.key(seed), 3 * draws))
        drawn = np.asarray(noise).reshape(3, draws, s.dim) / s.rate(max(theorem, 4), count)
        linear = np.zeros((draws, s.dim))
        if theorem == 4:
            linear = drawn[0] / count  # of Z/C
        elif theorem > 4:
            others = _others(s, draws, count, seed)
            linear = -s.penalty * (s.neighbours * drawn[0] - others) / s.weight
        points = np.asarray(_solve(jnp.asarray(rows), jnp.asarray(linear), jnp.asarray(s.ridge / s.weight)))
    if theorem == 6:
        points = points + drawn[1]
    found = s.weight * (_loss(points, signed) - _loss(reference, signed))
    return float(np.mean(found)), float(np.std(found) / draws**0.5)


def _others(s: Setting, draws: int, count: int, seed: int) -> np.ndarray:
    law, keys = L2LaplaceLaw(s.dim), jax.random.split(jax.random.key(seed + 1), draws * s.neighbours)
    drawn = np.asarray(jax.vmap(lambda k: law.sample(k, jnp.float64))(keys)) / s.rate(5, count)
    return np.asarray(drawn.reshape(draws, s.neighbours, s.dim).sum(1))


@eqx.filter_jit
def _solve(rows: Float[Array, "k n d"], linear: Float[Array, "k d"], ridge: Array) -> Float[Array, "k d"]:
    def one(features: Array, tilt: Array) -> Array:
        count = features.shape[0]
        shard = HeldShard(Logistic(features.shape[1]), features, jnp.ones(count), jnp.asarray(count),
                          jnp.asarray(1 / count), ridge, SolverSettings())  # fmt: skip
        return shard.argmin(tilt, 0.0, shard.solver(jnp.zeros(features.shape[1])), 1e-9)[0]

    return jax.vmap(one)(rows, linear)


# ---- quadratics on a graph -------------------------------------------------------------------------------------------


def mean_network(centres: np.ndarray, rounds: int, graph: str = "ring", records: int = 2) -> Layout:
    """Agents whose objective is ½‖x − v_i‖² up to a constant: mean estimation with all records at v_i."""
    agents, dim = centres.shape
    links = make_graph(graph, agents)
    rows = np.repeat(centres, records, axis=0)
    parts = np.split(np.arange(agents * records), agents)
    problem = Mean(dim, radius=float(np.max(np.abs(centres))) + 1.0, boxed=False)
    with jax.enable_x64(True):
        return make_layout(problem, rows, np.zeros(len(rows)), parts, links, mixing(links), rounds=rounds, ridge=0.0)


def quantized(
    centres: np.ndarray, rounds: int, step: float, averaging: float, *, grid: float, noise: float, seeds: int
) -> tuple[float, float, Quadratic]:
    """Q-DPSGD-1 on quadratics: mean error of the last round, mean disagreement then, and what is predicted.

    `noise`: std of ζ in each coordinate. Rounding is predicted as that of numbers in the middle between grid points.
    """
    layout = mean_network(centres, rounds)
    place, clip = layout.arrays.place, 1e3
    reach = grid * 2**15  # of 16 bits
    cfg = qdpsgd1.Config(
        step=step, averaging=averaging, batch=2, scheme="fixed", bits=16, range=reach, clip=clip
    )  # fmt: skip
    multiplier = noise / (2 * clip * float(place.unit[0]))
    runs = [Run(seed, cfg, multiplier) for seed in range(seeds)]
    points = np.asarray(simulate(find("qdpsgd1"), layout, runs, rounds=rounds, every=rounds).points)
    off = points - centres.mean(0)
    apart = points - points.mean(1, keepdims=True)
    weights = np.asarray(mixing(make_graph("ring", len(centres))).dense())
    predicted = Quadratic(weights, centres, averaging, step, grid**2 / 4, noise**2)
    return float(np.mean(np.sum(off**2, 2))), float(np.mean(np.sum(apart**2, 2))), predicted


def admm_error(
    dim: int, rounds: int, epsilon: float, agents: int = 6, seeds: int = 60, inverse_step: float = 4.0
) -> tuple[float, float]:
    """LDP-ADMM at a pure ε of the whole run on quadratics: mean ‖x̄ − v̄‖² of the last round, and E‖Δ‖² of a release."""
    rng = np.random.default_rng(0)
    centres = rng.choice([-0.5, 0.5], (agents, dim))
    layout = mean_network(centres, rounds, "complete", records=50)
    cfg = ldp_admm.Config(inverse_step=inverse_step, dual_step=inverse_step / (4 * agents), tail=0.0)
    runs = [Run(seed, cfg, rounds / epsilon) for seed in range(seeds)]
    points = np.asarray(simulate(find("ldp-admm"), layout, runs, rounds=rounds, every=rounds).points)
    with jax.enable_x64(True):
        place = eqx.tree_at(lambda p: p.noise, layout.arrays.place, layout.arrays.place.noise + rounds / epsilon)
        scale = float(np.asarray(ldp_admm.scale(cfg, place, jnp.asarray(0)))[0])
    return float(np.mean(np.sum((points.mean(1) - centres.mean(0)) ** 2, 1))), 2 * dim * scale**2


def averaged_descent(
    dim: int, rank: int = 4, *, ridge: float = 0.05, sigma: float = 0.3, agents: int = 4, rounds: int = 300,
    seeds: int = 20,
) -> tuple[float, float, float]:  # fmt: skip
    """`gauss-avg-gd` on records that live in `rank` of `dim` directions, at the same noise σ whatever d is.

    Returns the mean excess of the objective, that of its loss without the ridge, and the noise's share that no
    algorithm avoids (m d σ²/2N).
    """
    rng = np.random.default_rng(0)
    x = np.zeros((agents * 40, dim))
    x[:, :rank] = rng.standard_normal((agents * 40, rank))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.where(rng.uniform(size=len(x)) < 1 / (1 + np.exp(-4 * x[:, 0])), 1.0, -1.0)
    links = make_graph("complete", agents)
    with jax.enable_x64(True):
        layout = make_layout(Logistic(dim), x, y, np.split(np.arange(len(x)), agents), links, mixing(links),
                             rounds=rounds, ridge=ridge)  # fmt: skip
        place = eqx.tree_at(lambda p: p.noise, layout.arrays.place, jnp.ones_like(layout.arrays.place.noise))
        cfg = gauss_avg_gd.Config(step=1.0)
        unit = float(np.asarray(gauss_avg_gd.sigma(cfg, place, jnp.asarray(0)))[0])
    runs = [Run(seed, cfg, sigma / unit) for seed in range(seeds)]
    points = np.asarray(simulate(find("gauss-avg-gd"), layout, runs, rounds=rounds, every=rounds).points)[:, 0]
    value, best = objective(layout), pooled(layout)
    whole = np.mean([value(p) for p in points]) - value(best)
    bare = float(np.mean(_loss(points, x * y[:, None])) - _loss(best, x * y[:, None])[0])
    return float(whole), bare, ridge * dim * sigma**2 / (2 * agents)
