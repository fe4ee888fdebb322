"""Runs behind Ding's chapter 4: networks trained over slow links by machines of changing speed, on a virtual clock."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

import numpy as np

from coterie.experiment import Experiment, prepare, public_network
from coterie.plan import validate
from coterie.pricing import Priced, price, settle
from coterie.privacy.rdp import zcdp_epsilon, zcdp_rho
from reproduction.base import Version
from reproduction.pricing import cost_of
from reproduction.study import Study

__all__ = [
    "BITS",
    "DELTA",
    "METHODS",
    "SEEDS",
    "ahead",
    "printed_multiplier",
    "race",
    "remark6_sigma",
    "sdm_multiplier",
    "true_epsilon",
]

DELTA, BITS = 1e-5, 3
SEEDS = 5  # ± one standard deviation, and the standard errors of verdicts, are over so many
GRID = 2.0 / 2**BITS  # η: three bits over ±1
HIDDEN = {"mnist": 50, "cifar10": 40}

METHODS: tuple[tuple[str, str, Version], ...] = (  # label, algorithm, version
    ("DSGD", "dsgd", "reference"),
    ("QuanTimed-DSGD", "quantimed", "reference"),
    ("SDM", "sdm", "as printed"),
    ("SDM, no sampling", "sdm", "as printed"),
    ("SDM", "sdm", "corrected"),
    ("Q-DPSGD-1", "qdpsgd1", "as printed"),
    ("Q-DPSGD-1", "qdpsgd1", "corrected"),
    ("Q-DPSGD-2", "qdpsgd2", "as printed"),
    ("Q-DPSGD-2", "qdpsgd2-grad", "corrected"),
)


def remark6_sigma(epsilon: float, count: int, rounds: int, delta: float = DELTA) -> float:
    """σ of Remark 6, noise std over K on a mean gradient: σ² = 16 T (2 ln(1/δ)/ε + 1) / (m² ε)."""
    return math.sqrt(16 * rounds * (2 * math.log(1 / delta) / epsilon + 1) / (count**2 * epsilon))


def printed_multiplier(epsilon: float, count: int, rounds: int, batch: int) -> float:
    """ν = σB/2: Remark 6 over the sensitivity 2K/B; Remark 10 over Lemma 19's 2αhK/B + 2η√p gives the same."""
    return remark6_sigma(epsilon, count, rounds) * batch / 2


def sdm_multiplier(epsilon: float, count: int, rounds: int, batch: int, keep: float, sampled: bool) -> float:
    """SDM's noise over its sensitivity 2K/B for a total ε, by the flat factor c that its theorem gives a mask.

    The dissertation does not say how SDM's ε was counted. `sampled`: c times the cost of Theorem 11, whose noise it is
    then by √c. Otherwise c times a Gaussian's of every round, as if no batch were drawn.
    """
    if sampled:
        return keep**0.5 * printed_multiplier(epsilon, count, rounds, batch)
    return math.sqrt(keep * rounds / (2 * zcdp_rho(epsilon, DELTA)))


def plan_of(
    algorithm: dict[str, Any], epsilon: float | None, data: str, agents: int, records: int, rounds: int, hidden: int,
    other: bool = False,
) -> Any:  # fmt: skip
    """The dissertation's setting: random graph with edge probability .4, W = I − L/λ_max, one hidden sigmoid layer.

    `other`: Metropolis weights, and another split, graph and start.
    """
    tree: dict[str, Any] = {
        "data": {"source": data, "test_fraction": 0.1, "seed": int(other)},
        "partition": {"kind": "iid", "agents": agents, "records": records},
        "graph": {"kind": "erdos-renyi", "p": 0.4, "mixing": "metropolis" if other else "laplacian"},
        "problem": {"loss": "mlp", "hidden": [hidden], "activation": "sigmoid", "ridge": 0.0},
        "algorithm": algorithm,
        "run": {"rounds": rounds, "every": max(1, rounds // (20 if rounds > 200 else 8)), "dtype": "float32"},
    }
    if epsilon is not None:
        tree["privacy"] = {"epsilon": epsilon, "delta": DELTA}
    return validate(tree)


@lru_cache(maxsize=1)
def world(data: str, agents: int, records: int, rounds: int, hidden: int, other: bool) -> Experiment:
    """Data, graph and network; the algorithm of its plan does not matter."""
    return prepare(plan_of({"name": "dsgd"}, None, data, agents, records, rounds, hidden, other))


def settings(name: str, version: str, batch: int, other: bool = False) -> dict[str, Any]:
    """What the plan says of an algorithm; everything else is its default, which is the dissertation's.

    `other`: a grid over ±2.
    """
    out: dict[str, Any] = {"name": name, "batch": batch}
    if version == "as printed" and name != "sdm":
        out["as_printed"] = True
    if name == "qdpsgd2":
        out["grid"] = GRID
    elif other and name not in ("dsgd", "sdm"):
        out["range"] = 2.0
    return out


def race(
    study: Study, *, name: str, version: str, data: str, epsilons: list[float], batch: int, agents: int, records: int,
    rounds: int, hidden: int, seeds: int, sampled: bool = True, other: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Train loss and test accuracy against virtual seconds: (budgets, seeds, points); and what the runs cost.

    `sampled`: how SDM's ε is counted (`sdm_multiplier`). `other`: other choices where the dissertation is silent.
    """
    experiment = world(data, agents, records, rounds, hidden, other)
    out: dict[str, list[Any]] = {"loss": [], "score": [], "true": [], "noise": []}
    wanted: list[float | None] = [*epsilons] or [None]
    for epsilon in wanted:
        plan = plan_of(settings(name, version, batch, other), epsilon, data, agents, records, rounds, hidden, other)
        if version == "as printed":
            assert epsilon is not None
            priced, cost = _as_printed(plan, experiment, epsilon, records, rounds, batch, sampled)
        else:
            priced = price(plan, experiment.network)
            cost = math.inf if priced.spending is None else priced.spending.worst.epsilon
        trace = study.simulate(experiment, priced, seeds)
        out["loss"].append(trace.curves["train_loss"])
        out["score"].append(trace.curves["test_score"])
        out["true"].append(cost)
        out["noise"].append(float(np.max(priced.noise)))
    return {k: np.array(v) for k, v in out.items()} | {
        "time": trace.curves["time"].mean(0), "megabytes": float(trace.bytes.sum(1).mean()) / 1e6, "hidden": hidden,
    }  # fmt: skip


def _as_printed(
    plan: Any, experiment: Experiment, epsilon: float, records: int, rounds: int, batch: int, sampled: bool
) -> tuple[Priced, float]:
    settled = settle(plan, experiment.network)
    noise = printed_multiplier(epsilon, records, rounds, batch)
    if settled.algorithm.slug == "sdm":
        noise = sdm_multiplier(epsilon, records, rounds, batch, float(getattr(settled.cfg, "keep")), sampled)  # noqa: B009
    cost = cost_of(settled.algorithm, settled.cfg, settled.places, noise, DELTA)
    return dataclasses.replace(settled, noise=np.full(len(experiment.network.sizes), noise)), cost


def true_epsilon(study: Study, *, claimed: float, rounds: list[int], scheme: str, records: int) -> dict[str, Any]:
    """What Q-DPSGD-1 with the noise of Remark 6 costs, for several lengths of the run; and what Theorem 11 says."""
    true, printed = [], []
    for count in rounds:
        algorithm = settings("qdpsgd1", "as printed", 20) | {"scheme": scheme}
        plan = plan_of(algorithm, claimed, "mnist", 10, records, count, 1)
        settled = settle(plan, public_network(plan))
        noise = printed_multiplier(claimed, records, count, 20)
        true.append(cost_of(settled.algorithm, settled.cfg, settled.places, noise, DELTA))
        printed.append(zcdp_epsilon(8 * count / (records * noise / 10) ** 2, DELTA))
    return {"true": true, "printed": printed}


def ahead(time: np.ndarray, loss: np.ndarray, other_time: np.ndarray, other_loss: np.ndarray) -> float:
    """The share of the first curve's time, after its start, in which it lies below the second."""
    fine = np.linspace(time[0], time[-1], 400)[1:]
    return float(np.mean(np.interp(fine, time, loss) < np.interp(fine, other_time, other_loss)))
