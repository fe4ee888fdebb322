"""Many methods at the same price: one table, all at the same (ε, δ), adjacency and adversary.

A cell is one method at one ε, all seeds. Cells of a method that differ in numbers only (noise, settings that depend on
ε) run in one compiled call. Finished cells are stored, so a comparison that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import coterie
from coterie.algorithms.base import find
from coterie.drivers.simulate import Run, Trace, simulate
from coterie.errors import InputError
from coterie.experiment import Experiment, Priced, prepare, price
from coterie.plan import Plan, validate
from coterie.report.result import write_json

__all__ = ["Cell", "Method", "compare", "methods_of"]


@dataclass(frozen=True)
class Method:
    """A named plan whose ε is the axis of the comparison."""

    label: str
    plan: Plan


Cell = dict[str, Any]  # what is stored of one method at one ε: see `_cell`


def methods_of(plans: list[tuple[str, Plan]], algorithms: list[str]) -> list[Method]:
    """Every plan as it is, or the first plan with each of the named algorithms (at that algorithm's own defaults)."""
    if not algorithms:
        return [Method(label, plan) for label, plan in plans]
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
        if base.get("algorithm", {}).get("name") == slug:
            tree["algorithm"] = base["algorithm"]
        out.append(Method(slug, validate(tree)))
    return out


def compare(
    methods: Iterable[Method],
    epsilons: list[float],
    seeds: int,
    store: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> tuple[list[Cell], dict[str, dict[str, float]]]:
    """All cells, in order, and the scores of the references; `report` hears about each cell as it is done."""
    cells: list[Cell] = []
    experiments: dict[str, Experiment] = {}
    references: dict[str, dict[str, float]] = {}
    for method in methods:
        private = find(method.plan.algorithm.name).private
        wanted = sorted(epsilons) if private else [math.inf]
        missing = []
        for epsilon in wanted:
            stored = _stored(method, epsilon, seeds, store)
            if stored is not None:
                cells.append(stored)
                report(f"{method.label} at ε = {epsilon:g}: stored")
            else:
                missing.append(epsilon)
        data_key = json.dumps([method.plan.as_json().get(k) for k in ("data", "partition", "graph", "problem", "run")])
        if data_key not in experiments:
            experiments[data_key] = prepare(method.plan)
            references = references or experiments[data_key].references()
        if missing:
            for cell in _run(method, experiments[data_key], missing, seeds):
                if store is not None:
                    write_json(_where(store, method, cell["epsilon"], seeds), cell)
                cells.append(cell)
                shown = "∞" if cell["epsilon"] is None else f"{cell['epsilon']:g}"
                report(f"{method.label} at ε = {shown}: {cell['metric']} {cell['score']['mean']:.4f}")
    return cells, references


def _at(method: Method, epsilon: float) -> Plan:
    tree = method.plan.as_json()
    if math.isfinite(epsilon):
        tree["privacy"] = {**tree["privacy"], "epsilon": epsilon}
    return validate(tree)


def _where(store: Path, method: Method, epsilon: float | None, seeds: int) -> Path:
    what = json.dumps([coterie.__version__, method.plan.as_json(), epsilon, seeds], sort_keys=True)
    return store / "cells" / f"{method.label}-{hashlib.sha256(what.encode()).hexdigest()[:12]}.json"


def _stored(method: Method, epsilon: float, seeds: int, store: Path | None) -> Cell | None:
    if store is None:
        return None
    path = _where(store, method, epsilon if math.isfinite(epsilon) else None, seeds)
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def _run(method: Method, experiment: Experiment, epsilons: list[float], seeds: int) -> list[Cell]:
    """Run one method at several ε; those with the same rounds and structure share a compiled call."""
    priced = [price(_at(method, e), experiment.network) for e in epsilons]
    batches: dict[Any, list[int]] = {}
    for k, p in enumerate(priced):
        batches.setdefault((p.rounds, jax.tree.structure(p.cfg), tuple(p.shape)), []).append(k)
    cells: list[Cell | None] = [None] * len(epsilons)
    first = method.plan.run.seed
    for (rounds, _, _), members in batches.items():
        runs = [Run(first + s, priced[k].cfg, priced[k].noise) for k in members for s in range(seeds)]
        layout = experiment.layout(rounds, priced[members[0]].shape)
        every = method.plan.run.every or max(1, rounds // 20)
        trace = simulate(priced[members[0]].algorithm, layout, runs, rounds=rounds, every=every, test=experiment.test)
        if trace.completed < rounds:
            raise KeyboardInterrupt
        for place, k in enumerate(members):
            cells[k] = _cell(
                method, experiment, priced[k], epsilons[k], trace, slice(place * seeds, (place + 1) * seeds)
            )
    return [c for c in cells if c is not None]


def _cell(method: Method, experiment: Experiment, priced: Priced, epsilon: float, trace: Trace, at: slice) -> Cell:
    curves = {k: v[at] for k, v in trace.curves.items()}
    spread = lambda v: {"mean": float(v.mean()), "std": float(v.std()), "per_seed": v.tolist()}  # noqa: E731
    spent = None if priced.spending is None else priced.spending.worst
    return {
        "method": method.label,
        "algorithm": priced.algorithm.slug,
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "true_epsilon": None if spent is None or not math.isfinite(spent.epsilon) else spent.epsilon,
        "delta": None if spent is None else spent.delta,
        "accountant": None if spent is None else spent.accountant,
        "paper_claim": priced.claim if priced.claim is not None and math.isfinite(priced.claim) else None,
        "metric": experiment.network.problem.metric,
        "score": spread(curves["test_score"][:, -1]),
        "loss": spread(curves["train_loss"][:, -1]),
        "gap": spread(curves["consensus_gap"][:, -1]),
        "rounds": trace.rounds.tolist(),
        "loss_curve": {"mean": curves["train_loss"].mean(0).tolist(), "std": curves["train_loss"].std(0).tolist()},
        "score_curve": {"mean": curves["test_score"].mean(0).tolist(), "std": curves["test_score"].std(0).tolist()},
        "time_curve": curves["time"].mean(0).tolist() if "time" in curves else None,
        "bytes": float((trace.bytes[at] * experiment.network.graph.degrees).sum(1).mean()),
        "settings": priced.cfg.model_dump(mode="json"),
        "total_rounds": priced.rounds,
        "seconds": trace.timing["run_s"] * (at.stop - at.start) / len(trace.points),
        "warnings": priced.warnings,
        "finite": bool(np.isfinite(trace.points[at]).all()),
    }
