"""Runs behind the figures of Xiao et al.: one network of agents on Adult, noise of a given scale, errors, widths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from coterie.algorithms import hmv_dgd, ldp_admm, ldp_dgd, ldp_dgd_range
from coterie.algorithms.base import Algorithm, Config, Place, find
from coterie.algorithms.batches import rows
from coterie.drivers.references import pooled
from coterie.drivers.simulate import Run, simulate
from coterie.experiment import Experiment, prepare
from coterie.plan import validate
from coterie.pricing import Priced, settle
from reproduction import _xiao_admm, realised
from reproduction.pricing import cost_of, noise_for
from reproduction.study import Study

__all__ = [
    "ALGORITHM_1", "CHOICES", "DIM", "EXACT", "FIXED", "INVERSE_STEP", "NOISY", "RANGE", "RECORDS", "RIDGE", "ROUNDS",
    "SENSITIVITY", "admm_repetition", "dgd_repetition", "in_choices", "near_descent", "near_repetition", "noise_scales",
    "noiseless_repetition", "price_list", "realised_loss", "repetitions", "theorem_repetition", "with_scales",
    "worst_case",
]  # fmt: skip

RECORDS, ROUNDS, INVERSE_STEP, DUAL, RIDGE = 100, 100, 10.0, 0.5, 1.0  # App. E: b_i, K, D, ζ, ridge
SENSITIVITY = 1 / RECORDS  # B_∞ as printed
DIM = 14
EXACT = Algorithm.of("exact-admm", _xiao_admm)
STATED_LABELS = "stated labels"
CHOICES: dict[str, dict[str, str]] = {  # what is left open, by the name that a part knows it by
    "ordinal": {"coding": "code book", "labels": "±1", "W": "Metropolis"},
    "frequency": {"coding": "frequency", "labels": "±1", "W": "Metropolis"},
    STATED_LABELS: {"coding": "code book", "labels": "0 and 1", "W": "I − L/λ_max"},
}
SCALES: dict[str, Callable[[Any, Place, Array], Array]] = {
    "hmv-dgd": hmv_dgd.scale, "ldp-admm": ldp_admm.scale, "ldp-dgd": ldp_dgd.scale,
    "ldp-dgd-range": ldp_dgd_range.scale,
}  # fmt: skip


def noise_scales(rounds: int = ROUNDS) -> np.ndarray:
    """1/β_k with β_k = 1.02^k, k = 1 … K."""
    return 1.02 ** -np.arange(1.0, rounds + 1)


def plan(
    agents: int, edges: int | None, algorithm: str, seed: int, rounds: int, ridge: float, coding: str = "ordinal",
    mixing: str = "metropolis", **settings: Any,
) -> Any:  # fmt: skip
    """Adult with 14 features, 100 records an agent, on a random connected graph (a complete one without `edges`)."""
    graph = {"kind": "complete"} if edges is None else {"kind": "gnm", "edges": edges, "seed": seed}
    graph |= {"mixing": mixing}
    tree: dict[str, Any] = {
        "data": {"source": "adult", "seed": seed, "options": {"coding": coding, "fnlwgt": True}},
        "partition": {"kind": "iid", "agents": agents, "records": RECORDS},
        "graph": graph,
        "problem": {"loss": "logistic", "ridge": ridge},
        "algorithm": {"name": algorithm, **settings},
        "run": {"rounds": rounds, "every": rounds},
    }
    if find(algorithm).private:
        tree["privacy"] = {"epsilon": 1.0, "delta": 1e-5}
    return validate(tree)


@lru_cache(maxsize=4)
def network(
    agents: int, edges: int | None, seed: int, ridge: float = RIDGE, coding: str = "ordinal"
) -> tuple[Experiment, np.ndarray]:
    """Graph and records of one repetition, and the optimum of all records together; `coding`: as in `CHOICES`."""
    if coding != STATED_LABELS:
        experiment = prepare(plan(agents, edges, "admm", seed, 1, ridge, coding))
    else:
        experiment = prepare(plan(agents, edges, "admm", seed, 1, ridge, mixing="laplacian"))
        counts = np.where(experiment.targets > 0, 1.0, 0.0)  # log(1 + exp(−0 · xᵀz)) does not depend on x
        experiment = dataclasses.replace(experiment, features=experiment.features * counts[:, None])
    return experiment, pooled(experiment.layout(1))


def settled(experiment: Experiment, algorithm: str, rounds: int, **settings: Any) -> Priced:
    """An algorithm with these settings on the network; no noise yet. `exact-admm` is this paper's (12)."""
    size, ridge = experiment.network.graph.size, experiment.plan.ridge
    if algorithm == EXACT.slug:
        cfg: Config = _xiao_admm.Config(**settings)
        return settle(plan(size, None, "admm", 0, rounds, ridge), experiment.network, EXACT, cfg)
    return settle(plan(size, None, algorithm, 0, rounds, ridge, **settings), experiment.network)


def with_scales(priced: Priced, scales: ArrayLike) -> Priced:
    """The same with Laplace noise of these scales, one a round, whatever unit the algorithm measures noise in."""
    wanted = np.broadcast_to(np.asarray(scales, float), (priced.rounds,))
    with jax.enable_x64(True):
        bare = eqx.tree_at(
            lambda p: (p.noise, p.shape), priced.places, (jnp.ones(len(priced.noise)), jnp.ones(priced.rounds))
        )
        one = rows(bare, 0)  # all hold the same number of records
        unit = np.ones(priced.rounds)
        if scale := SCALES.get(priced.algorithm.slug):
            unit = np.asarray(jax.vmap(lambda t: scale(priced.cfg, one, t))(jnp.arange(priced.rounds)))
        places = eqx.tree_at(lambda p: p.shape, bare, jnp.asarray(wanted / unit))
    return dataclasses.replace(priced, places=places, noise=np.ones(len(priced.noise)), shape=wanted / unit)


def released(study: Study, experiment: Experiment, priced: Priced, runs: list[Run], **options: Any) -> np.ndarray:
    """All broadcast points, (runs, rounds, agents, dim); the runs may differ in seed, noise and numeric settings."""
    layout = experiment.layout(priced.rounds, priced.shape)
    trace = simulate(
        priced.algorithm, layout, runs, rounds=priced.rounds, every=priced.rounds, record=True, **options
    )  # fmt: skip
    return np.asarray(jax.tree.leaves(study.whole(trace, priced.rounds).messages)[0])


def errors(points: np.ndarray, optimum: np.ndarray) -> np.ndarray:
    """The paper's ln(‖x_i − x*‖/d), averaged over the agents: (…, rounds)."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.mean(np.log(np.linalg.norm(points - optimum, axis=-1) / len(optimum)), axis=-1)


def worst_case(steps: ArrayLike, scales: ArrayLike, sensitivity: float = SENSITIVITY) -> np.ndarray:
    """Σ_k α_k β_k B up to each round."""
    return np.cumsum(np.asarray(steps, float) / np.asarray(scales, float) * sensitivity)


def realised_loss(widths: np.ndarray, steps: ArrayLike, scales: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(γ, loss) of every round, averaged over agents and coordinates; widths (rounds, agents, dim) as announced."""
    shift = (np.asarray(steps, float) * SENSITIVITY)[:, None, None]
    rate = (1 / np.asarray(scales, float))[:, None, None]
    gamma = realised.reduction(rate, widths, shift).mean(axis=(1, 2))
    return gamma, gamma * (shift * rate)[:, 0, 0]


def before(points: np.ndarray) -> np.ndarray:
    """The points that were public before each round: the common start 0, then what was released."""
    return np.concatenate([np.zeros_like(points[:1]), points[:-1]])


def means(graph: Any, points: np.ndarray) -> np.ndarray:
    """Mean over each agent's neighbours of points (…, agents, dim)."""
    sums = np.add.reduceat(points[..., graph.indices, :], graph.indptr[:-1], axis=-2)
    return sums / np.asarray(graph.degrees)[:, None]


def ranges(graph: Any, points: np.ndarray) -> np.ndarray:
    """Largest minus smallest over each agent and its neighbours, coordinate by coordinate."""
    around, starts = points[..., graph.indices, :], graph.indptr[:-1]
    high = np.maximum(points, np.maximum.reduceat(around, starts, axis=-2))
    return high - np.minimum(points, np.minimum.reduceat(around, starts, axis=-2))


def repetitions(study: Study, part: Callable[..., dict[str, Any]], few: int = 0, **settings: Any) -> dict[str, Any]:
    """The part over seeds, joined: a new graph and new records for each, or (quick) one network and three noises."""
    if study.quick:
        return study.part(part, seed=0, draws=list(range(study.seeds)), **settings)
    found = [study.part(part, seed=s, draws=[s], **settings) for s in range(few or study.seeds)]
    return {k: np.concatenate([np.atleast_1d(f[k]) for f in found]) for k in found[0]}


def in_choices(study: Study, part: Callable[..., dict[str, Any]], **settings: Any) -> dict[str, dict[str, Any]]:
    """The part's repetitions by what is left open (`CHOICES`): all with the first, three with each other if not quick.

    14 numbers a record are stated, and not how categories become numbers; labels 0 and 1 are stated, with which one
    class has a constant loss.
    """
    first, *others = CHOICES
    found = {first: repetitions(study, part, **settings)}
    for name in others if not study.quick else ():
        found[name] = repetitions(study, part, few=3, coding=name, **settings)
    return found


# ---- parts -----------------------------------------------------------------------------------------------------------

ALGORITHM_1: dict[str, Any] = {"inverse_step": INVERSE_STEP, "dual_step": DUAL, "tail": 0.0}
RANGE: dict[str, Any] = {"step": 0.93, "ratio": 0.93, "decay": 0.0, "average": False}
NOISY: dict[str, Any] = {"step": 0.9, "step_ratio": 0.9, "noise_ratio": 1 / 1.02}
FIXED: dict[str, dict[str, float]] = {  # what the paper compares with
    "[42]": {"random": 0.0, "output": 0.0},
    "[48]": {"random": 0.0, "output": 1.0},
    "[43]": {"random": 0.0, "output": 0.0, "inverse_step": 0.0, "by_degree": 1.0, "growth": 1.02},
}


def price_list(
    study: Study, *, algorithm: str, settings: dict[str, Any], claimed: float, delta: float
) -> dict[str, Any]:
    """What the printed noise costs, pure and at δ, up to some rounds; and the noise that the claimed ε takes."""
    experiment, _ = network(10, 40, 0)
    priced = with_scales(settled(experiment, algorithm, ROUNDS, **settings), noise_scales())
    what = (priced.algorithm, priced.cfg, priced.places)
    at = [1, 2, 5, 10, 20, 35, 50, 75, 100]
    pure = cost_of(*what, 1.0, 0.0)
    return {
        "rounds": at,
        "pure": pure,
        "at_delta": [cost_of(*what, 1.0, delta, k) for k in at],
        "factor_pure": pure / claimed,
        "factor_delta": noise_for(*what, claimed, delta),
    }


def admm_repetition(
    study: Study, *, agents: int, edges: int, seed: int, draws: list[int], factors: list[float], coding: str = "ordinal"
) -> dict[str, Any]:
    """Algorithm 1 with its noise times each factor, and the three fixed methods: errors, γ, and losses by round."""
    experiment, optimum = network(agents, edges, seed, coding=coding)
    scales = noise_scales()
    priced = with_scales(settled(experiment, "ldp-admm", ROUNDS, **ALGORITHM_1), scales)
    points = released(study, experiment, priced, [Run(k, priced.cfg, f * priced.noise) for f in factors for k in draws])
    error = errors(points, optimum).reshape(len(factors), len(draws), ROUNDS)
    out: dict[str, Any] = {f"error_{i}": e for i, e in enumerate(error)}
    gammas, losses, outside = [], [], []
    for run in points[: len(draws)]:
        public = before(run)
        width = np.abs(public - means(experiment.network.graph, public))
        gamma, loss = realised_loss(width, np.full(ROUNDS, 1 / INVERSE_STEP), scales)
        gammas.append(gamma)
        losses.append(np.cumsum(loss))
        u = np.maximum(width / scales[:, None, None], 1e-9)
        outside.append(float(np.mean(-np.expm1(-u) / u)))
    out |= {"gamma": np.array(gammas), "loss": np.array(losses), "outside": np.array(outside)}
    exact = with_scales(settled(experiment, EXACT.slug, ROUNDS), scales)
    runs = [Run(k, exact.cfg.replace(**change), exact.noise) for change in FIXED.values() for k in draws]
    others = errors(released(study, experiment, exact, runs), optimum).reshape(len(FIXED), len(draws), ROUNDS)
    return out | dict(zip(FIXED, others, strict=True))


def dgd_repetition(
    study: Study, *, agents: int, edges: int, seed: int, draws: list[int], factors: dict[str, list[float]],
    coding: str = "ordinal",
) -> dict[str, Any]:  # fmt: skip
    """Algorithm 2*, noisy descent [45] and Algorithm 1, each with its noise times each of its factors."""
    experiment, optimum = network(agents, edges, seed, coding=coding)
    graph, scales = experiment.network.graph, noise_scales()
    out: dict[str, Any] = {}
    steps = {
        "ldp-dgd-range": 0.93 ** np.arange(1, ROUNDS + 1),
        "hmv-dgd": 0.9 ** np.arange(1, ROUNDS + 1),
        "ldp-admm": np.full(ROUNDS, 1 / INVERSE_STEP),
    }
    for name, settings in (("ldp-dgd-range", RANGE), ("hmv-dgd", NOISY), ("ldp-admm", ALGORITHM_1)):
        priced = with_scales(settled(experiment, name, ROUNDS, **settings), scales)
        runs = [Run(k, priced.cfg, f * priced.noise) for f in factors[name] for k in draws]
        points = released(study, experiment, priced, runs)
        error = errors(points, optimum).reshape(len(factors[name]), len(draws), ROUNDS)
        out |= {f"{name}_{i}": e for i, e in enumerate(error)}
        if name == "hmv-dgd":
            continue
        losses = []
        for run in points[: len(draws)]:
            public = before(run)
            width = ranges(graph, public) if name == "ldp-dgd-range" else np.abs(public - means(graph, public))
            losses.append(np.cumsum(realised_loss(width, steps[name], scales)[1]))
        out[f"{name}_loss"] = np.array(losses)
    return out


def noiseless_repetition(
    study: Study, *, agents: int, edges: int, seed: int, draws: list[int], rounds: int, coding: str = "ordinal"
) -> dict[str, Any]:
    """No noise: exact ADMM and Algorithm 2 with random and with fixed weights; Algorithm 1 with both signs of λ."""
    experiment, optimum = network(agents, edges, seed, coding=coding)
    out: dict[str, Any] = {}
    exact = settled(experiment, EXACT.slug, rounds)
    kinds = {"admm_random": 1.0, "admm_fixed": 0.0}
    runs = [Run(k, exact.cfg.replace(random=r)) for r in kinds.values() for k in draws]
    found = errors(released(study, experiment, exact, runs), optimum).reshape(2, len(draws), rounds)
    out |= dict(zip(kinds, found, strict=True))
    for name, sign in (("printed_sign", True), ("corrected_sign", False)):
        priced = settled(experiment, "ldp-admm", rounds, **ALGORITHM_1, as_printed=sign)
        out[name] = errors(released(study, experiment, priced, [Run(k, priced.cfg) for k in draws]), optimum)
    everyone, optimum = network(agents, None, seed, coding=coding)
    priced = settled(everyone, "ldp-dgd", rounds, step=0.95, ratio=0.95, decay=0.0, average=False)
    half = {"noise": np.zeros((rounds, agents, DIM)), "weight": np.full((rounds, agents, DIM), 0.5)}
    out["gd_random"] = errors(released(study, everyone, priced, [Run(k, priced.cfg) for k in draws]), optimum)
    out["gd_fixed"] = errors(released(study, everyone, priced, [Run(draws[0], priced.cfg)], replay=half), optimum)
    return out


def near_descent(experiment: Experiment, rounds: int, weights: np.random.Generator | None) -> np.ndarray:
    """Algorithm 2 without noise, η_k = 0.95^k, if each agent knows its own neighbourhood only: every sent point.

    N, the mean and the two points furthest apart are those of the agent and its neighbours; on a complete graph it is
    Algorithm 2 itself. `weights`: of the random starts; None: w = ½, which is plain descent from the mean.
    """
    z = np.stack([experiment.features[p] * experiment.targets[p, None] for p in experiment.parts])
    graph, ridge = experiment.network.graph, experiment.plan.ridge
    near = [np.sort([i, *graph.indices[graph.indptr[i] : graph.indptr[i + 1]]]) for i in range(graph.size)]
    said, found = np.zeros((graph.size, z.shape[2])), []
    for k in range(rounds):
        mean, gap = np.empty_like(said), np.empty_like(said)
        for i, who in enumerate(near):
            points = said[who]
            apart = np.triu(np.abs(points[:, None] - points[None]).sum(axis=2), 1)
            a, b = np.unravel_index(np.argmax(apart), apart.shape)
            mean[i], gap[i] = points.mean(axis=0), (points[a] - points[b]) / len(who)
        margins = np.einsum("nrd,nd->nr", z, mean)
        slope = -np.einsum("nr,nrd->nd", 1 / (1 + np.exp(margins)), z) / z.shape[1] + ridge * mean
        blur = 0.0 if weights is None else (2 * weights.uniform(size=said.shape) - 1) * gap
        said = mean + blur - 0.95 ** (k + 1) * slope
        found.append(said)
    return np.array(found)


def near_repetition(
    study: Study, *, agents: int, edges: int, seed: int, draws: list[int], rounds: int, coding: str = "ordinal"
) -> dict[str, Any]:
    """`near_descent` on |E| edges with random and with fixed weights."""
    experiment, optimum = network(agents, edges, seed, coding=coding)
    random = [near_descent(experiment, rounds, np.random.default_rng([seed, k])) for k in draws]
    fixed = near_descent(experiment, rounds, None)
    return {"near_random": errors(np.array(random), optimum), "near_fixed": errors(fixed[None], optimum)}


def _objective(experiment: Experiment, x: np.ndarray) -> float:
    """Σ_i f_i at x, without ridge."""
    held = np.concatenate(experiment.parts)
    margins = experiment.targets[held] * (experiment.features[held] @ x)
    return float(len(experiment.parts) * np.mean(np.logaddexp(0, -margins)))


def target_gap(study: Study, *, seed: int) -> dict[str, Any]:
    """How far the target of `theorem_repetition` is above the minimum: Σ_i f_i there, less the least value."""
    experiment, least = network(10, None, seed, 0.0)
    return {"gap": _objective(experiment, network(10, None, seed, 0.1)[1]) - _objective(experiment, least)}


def theorem_repetition(
    study: Study, *, seed: int, draws: list[int], rounds: int, epsilon: float, constant: float
) -> dict[str, Any]:
    """Algorithm 2 with η_k = 1/(c√k) at a pure budget: Σ_i f_i at the mean of x̄ over the rounds, less a target's."""
    experiment, target = network(10, None, seed, 0.0)[0], network(10, None, seed, 0.1)[1]
    priced = settled(experiment, "ldp-dgd", rounds, step=1 / constant, decay=0.5, average=True)
    steps = 1 / (constant * np.sqrt(np.arange(1, rounds + 1)))
    move = steps * 2 * DIM**0.5 / RECORDS  # in L1 norm, by one record
    priced = with_scales(priced, rounds * move / epsilon)
    trace = study.simulate(experiment, priced, draws, test=None)
    held = np.concatenate(experiment.parts)
    rows_of = experiment.targets[held, None] * experiment.features[held]

    def total(x: np.ndarray) -> float:
        return float(10 * np.mean(np.logaddexp(0, -rows_of @ x)))

    gaps = [total(x) - total(target) for x in trace.points[:, 0]]
    return {
        "gap": np.array(gaps),
        "distance": float(np.linalg.norm(target)),
        "pure": cost_of(priced.algorithm, priced.cfg, priced.places, 1.0, 0.0),
    }
