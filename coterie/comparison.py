"""Many methods at the same price: one table, all at the same (ε, δ), adjacency and adversary.

A cell is one method at one ε, all seeds. Cells of a method that differ in numbers only (noise, settings that depend on
ε) run in one compiled call: a task, which is told of a price only what a run needs, as it may run in another process.
Finished cells are stored, so a comparison that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import jax
import numpy as np
from scipy.special import stdtr, stdtrit  # Student's distribution, without scipy.stats, which takes long to load

import coterie
from coterie.algorithms.base import Config, find
from coterie.contracts import check_contract
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.engines import make_engine
from coterie.errors import InputError
from coterie.exchange.choice import Broadcast
from coterie.exchange.planned import exchange_of
from coterie.exchange.statement import ToldClaim
from coterie.exchange.sums import SumTerms
from coterie.experiment import Experiment, prepare
from coterie.plan import Plan, refuse_ignored, validate
from coterie.pricing import Priced, price
from coterie.report.files import write_json
from coterie.report.schema import MetricValue
from coterie.worth.judge import references as find_references
from coterie.written import apply_change

__all__ = ["Cell", "ComparedMethod", "PairedMethods", "compare", "methods_of", "paired", "run_points"]

FORMAT = 4  # of a stored cell: one of another format is run again
LESS = ("loss", "mse")  # of these less is better
KEEP = 4  # prepared experiments, with their data, that a process holds on to


@dataclass(frozen=True)
class ComparedMethod:
    """A named plan whose ε is the axis of the comparison."""

    label: str
    plan: Plan


class MeanCurve(TypedDict):
    """A curve over seeds."""

    mean: list[float]
    std: list[float]


@dataclass(frozen=True)
class Point:
    """What the price of a method at one ε says of its runs."""

    cfg: Config
    noise: np.ndarray
    rounds: int
    shape: np.ndarray
    terms: SumTerms | None


class Measured(TypedDict):
    """What the runs of one method at one ε led to."""

    metric: str
    score: MetricValue
    loss: MetricValue
    gap: MetricValue
    rounds: list[int]
    loss_curve: MeanCurve
    score_curve: MeanCurve
    time_curve: list[float] | None
    bytes: float
    seconds: float
    warnings: list[str]
    finite: bool


class Cell(Measured):
    """What is stored of one method at one ε."""

    method: str
    algorithm: str
    epsilon: float | None
    true_epsilon: float | None
    delta: float | None
    accountant: str | None
    adversary: str | None
    other_claims: list[ToldClaim]
    private: bool
    leaks: list[str]
    exchange: str
    paper_claim: float | None
    settings: dict[str, object]
    total_rounds: int


class PairedMethods(TypedDict):
    """The best method of a budget against another one."""

    epsilon: float | None
    one: str
    other: str
    seeds: int
    difference: float
    low: float
    high: float
    p: float
    clear: bool


def methods_of(plans: list[tuple[str, Plan]], algorithms: list[str]) -> list[ComparedMethod]:
    """Every plan as it is, or the first plan with each of the named algorithms (at that algorithm's own defaults).

    One objective for all: the ridge is that of the plan, or of its own algorithm where it states none.
    """
    for _, plan in plans:
        refuse_ignored(plan, "a comparison, whose noise is fixed beforehand", "privacy.adaptive")
    if not algorithms:
        return [ComparedMethod(label, plan) for label, plan in plans]
    if len(plans) != 1:
        raise InputError(f"--algorithms varies one plan, but {len(plans)} were given")
    base = plans[0][1].as_json()
    out = []
    for slug in algorithms:
        algorithm = find(slug)
        tree = {**base, "algorithm": {"name": slug}}
        if algorithm.private:
            tree.setdefault("privacy", {})
        else:
            tree.pop("privacy", None)
        if plans[0][1].algorithm.name == slug:
            tree["algorithm"] = base["algorithm"]
        out.append(ComparedMethod(slug, validate(tree)))
    return out


def compare(
    methods: Iterable[ComparedMethod],
    epsilons: list[float],
    seeds: int,
    store: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
    engine: str = "local",
) -> tuple[list[Cell], dict[str, dict[str, float]]]:
    """All cells, in order, and the scores of the references; `report` hears about each cell as it is done.

    What runs in one compiled call is one task of the `engine` (see `coterie.engines`); its cells are stored when it is
    done, in whatever order tasks end.
    """
    over, methods = make_engine(engine), list(methods)
    _alike([method.plan for method in methods])
    cells: dict[tuple[int, float], Cell] = {}
    tasks: list[tuple[ComparedMethod, list[Point], int]] = []
    asked: list[tuple[int, dict[float, Priced]]] = []  # of each task: which method, and what it costs at its ε
    references: dict[str, dict[str, float]] = {}
    for k, method in enumerate(methods):
        wanted = sorted(epsilons) if find(method.plan.algorithm.name).private else [math.inf]
        missing = []
        for epsilon in wanted:
            if (stored := _stored(method, epsilon, seeds, store)) is not None:
                cells[k, epsilon] = stored
                report(f"{method.label} at ε = {epsilon:g}: stored")
            else:
                missing.append(epsilon)
        experiment = _experiment(method.plan)
        references = references or find_references(experiment)
        for batch in _batches({e: price(_at(method, e), experiment.network) for e in missing}):
            points = [Point(p.cfg, p.noise, p.rounds, p.shape, p.terms) for p in batch.values()]
            tasks.append((method, points, seeds))
            asked.append((k, batch))
    for place, found in over(run_points, tasks, alike=[_program(*task) for task in tasks]):
        k, batch = asked[place]
        for (epsilon, priced), measured in zip(batch.items(), found, strict=True):
            cell = _cell(methods[k], priced, epsilon, measured)
            if store is not None:
                write_json(_where(store, methods[k], cell["epsilon"], seeds), cell)
            cells[k, epsilon] = cell
            shown = "∞" if cell["epsilon"] is None else f"{cell['epsilon']:g}"
            report(f"{methods[k].label} at ε = {shown}: {cell['metric']} {cell['score']['mean']:.4f}")
    return [cells[at] for at in sorted(cells)], references


def paired(cells: list[Cell]) -> list[PairedMethods]:
    """The best method of each budget against every other one: paired differences of the seeds' scores.

    95 % intervals and p of the paired t-test, by Holm's rule over all of them; nothing with fewer than 3 seeds.
    """
    found = list[PairedMethods]()
    for epsilon in dict.fromkeys(cell["epsilon"] for cell in cells):
        mine = sorted((c for c in cells if c["epsilon"] == epsilon), key=lambda c: -c["score"]["mean"])
        better = -1.0 if mine[0]["metric"] in LESS else 1.0
        best, *others = sorted(mine, key=lambda c: -better * c["score"]["mean"])
        for other in others:
            gap = np.subtract(best["score"]["per_seed"], other["score"]["per_seed"])
            if len(gap) < 3 or not np.isfinite(gap).all():
                continue
            mean, error = float(gap.mean()), float(gap.std(ddof=1) / np.sqrt(len(gap)))
            reach = float(stdtrit(len(gap) - 1, 0.975)) * error
            p = float(2 * stdtr(len(gap) - 1, -abs(mean) / error)) if error else float(mean == 0)
            found.append(
                {
                    "epsilon": epsilon, "one": best["method"], "other": other["method"], "seeds": len(gap),
                    "difference": mean, "low": mean - reach, "high": mean + reach, "p": p, "clear": False,
                }
            )  # fmt: skip
    order, last = sorted(range(len(found)), key=lambda k: found[k]["p"]), 0.0
    for place, k in enumerate(order):
        last = max(last, min(1.0, (len(found) - place) * found[k]["p"]))
        found[k]["p"], found[k]["clear"] = last, last < 0.05
    return found


def _alike(plans: list[Plan]) -> None:
    """Refuse, before data is read, plans that cannot run, or whose ε would not mean the same."""
    for plan in plans:
        check_contract(plan)
        if plan.privacy is not None and isinstance(plan.privacy.epsilon, list):
            raise InputError(
                f"privacy.epsilon = {plan.privacy.epsilon} gives each party its own budget, but a comparison gives all "
                "the same (--epsilons): state a single number"
            )
    sums = [plan.exchange.sums for plan in plans if plan.privacy is not None]
    sold = {("local",) if s is None or s.noise == "local" else (s.noise, s.honest, s.threshold) for s in sums}
    if len(sold) > 1:
        raise InputError(
            "plans with exchange.noise = 'central' pay for another adversary (exchange.honest, threshold) than the "
            f"others, and a comparison has one: got {sorted(map(str, sold))}"
        )


_PREPARED: dict[str, Experiment] = {}  # the last few experiments of this process: tasks share data


def _experiment(plan: Plan) -> Experiment:
    key = json.dumps([plan.as_json().get(k) for k in ("data", "partition", "graph", "problem", "run", "exchange")])
    if key not in _PREPARED:
        while len(_PREPARED) >= KEEP:
            _PREPARED.pop(next(iter(_PREPARED)))
        _PREPARED[key] = prepare(plan)
    return _PREPARED[key]


def _batches(prices: dict[float, Priced]) -> list[dict[float, Priced]]:
    """The ε whose runs share rounds and structure, and so one compiled call.

    Those whose rounds are of unlike length (`Config.COUNTS`) run apart: in a batch all wait for the longest.
    """
    batches: dict[object, dict[float, Priced]] = {}
    for epsilon, p in prices.items():
        counts = tuple(getattr(p.cfg, name) for name in p.cfg.COUNTS)
        key = (p.rounds, jax.tree.structure(p.cfg), counts, p.shape.tobytes(), p.terms)
        batches.setdefault(key, {})[epsilon] = p
    return list(batches.values())


def _program(method: ComparedMethod, points: list[Point], seeds: int) -> Hashable:
    """Equal of tasks that share a compiled program (`simulate`), as far as can be told from here."""
    name, one = method.plan.algorithm.name, points[0]
    length = () if find(name).any_length else (one.rounds, one.shape.tobytes())
    return method.label, jax.tree.structure(one.cfg), length, one.terms, len(points)


def run_points(method: ComparedMethod, points: list[Point], seeds: int) -> list[Measured]:
    """What one method leads to at several ε, in one compiled call: one task, wherever it runs."""
    experiment, algorithm = _experiment(method.plan), find(method.plan.algorithm.name)
    one, first = points[0], method.plan.run.seed
    layout = experiment.layout(one.rounds, one.shape)
    every = method.plan.run.every or max(1, one.rounds // 20)
    network = experiment.network
    exchange = exchange_of(method.plan, algorithm, network.graph, network.mixing, one.terms)
    drawn = algorithm.draws(one.cfg, layout.arrays.place)
    own = seeds if drawn or not isinstance(exchange, Broadcast) else 1  # where nothing is drawn all seeds are one run
    runs = [Run(first + s, p.cfg, p.noise) for p in points for s in range(own)]
    trace = simulate(algorithm, layout, runs, rounds=one.rounds, every=every, test=experiment.test, exchange=exchange)
    if trace.completed < one.rounds:
        raise KeyboardInterrupt
    return [_measured(experiment, trace, k * own + np.arange(seeds) % own) for k in range(len(points))]


def _at(method: ComparedMethod, epsilon: float) -> Plan:
    tree = method.plan.as_json()
    if math.isfinite(epsilon):
        apply_change(tree, f"privacy.epsilon={float(epsilon)!r}")
    return validate(tree)


def _where(store: Path, method: ComparedMethod, epsilon: float | None, seeds: int) -> Path:
    what = json.dumps([FORMAT, coterie.__version__, method.plan.as_json(), epsilon, seeds], sort_keys=True)
    return store / "cells" / f"{method.label}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.json"


def _stored(method: ComparedMethod, epsilon: float, seeds: int, store: Path | None) -> Cell | None:
    if store is None:
        return None
    path = _where(store, method, epsilon if math.isfinite(epsilon) else None, seeds)
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def _measured(experiment: Experiment, trace: Trace, at: np.ndarray) -> Measured:
    """Of the runs `at`, one for each seed."""
    curves = {k: v[at] for k, v in trace.curves.items()}
    spread = lambda v: MetricValue(mean=float(v.mean()), std=float(v.std()), per_seed=v.tolist())  # noqa: E731
    cut = int(np.sum(np.asarray(trace.extras["cut"])[at])) if "cut" in trace.extras else 0
    return {
        "metric": experiment.network.problem.metric,
        "score": spread(curves["test_score"][:, -1]),
        "loss": spread(curves["train_loss"][:, -1]),
        "gap": spread(curves["consensus_gap"][:, -1]),
        "rounds": trace.rounds.tolist(),
        "loss_curve": {"mean": curves["train_loss"].mean(0).tolist(), "std": curves["train_loss"].std(0).tolist()},
        "score_curve": {"mean": curves["test_score"].mean(0).tolist(), "std": curves["test_score"].std(0).tolist()},
        "time_curve": curves["time"].mean(0).tolist() if "time" in curves else None,
        "bytes": float((trace.bytes[at] * experiment.network.graph.degrees).sum(1).mean()),
        "seconds": trace.timing["run_s"] * len(np.unique(at)) / len(trace.points),
        "warnings": [f"{cut} numbers in messages were cut to exchange.bound"] if cut else [],
        "finite": bool(np.isfinite(trace.points[at]).all()),
    }


def _cell(method: ComparedMethod, priced: Priced, epsilon: float, measured: Measured) -> Cell:
    """What is stored."""
    claim = next(iter(priced.claims), None)
    spent = None if claim is None else claim.account
    return {
        **measured,
        # named with its adversary where that is a weaker one: two adversaries' ε never stand under one name
        "method": method.label if claim is None or claim.local else f"{method.label} ({claim.name})",
        "algorithm": priced.algorithm.slug,
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "true_epsilon": None if spent is None or not math.isfinite(spent.epsilon) else spent.epsilon,
        "delta": None if spent is None else spent.delta,
        "accountant": None if spent is None else spent.accountant,
        "adversary": None if claim is None else claim.adversary,
        "other_claims": [other.as_json() for other in priced.claims[1:]],
        "private": priced.private,
        "leaks": list(priced.leaks),
        "exchange": method.plan.exchange.kind,
        "paper_claim": priced.claim if priced.claim is not None and math.isfinite(priced.claim) else None,
        "settings": priced.cfg.model_dump(mode="json"),
        "total_rounds": priced.rounds,
        "warnings": [*priced.warnings, *measured["warnings"]],
    }
