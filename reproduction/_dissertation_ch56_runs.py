"""Runs behind Ding's chapters 5 and 6: the Adult study of `coterie fair`, and what the dissertation prints."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.fair.methods import METHODS
from coterie.fair.study import METRICS, prepare
from coterie.fair.study import run as run_fair
from coterie.fair.study_plan import FairPlan, FairRunPlan, read_fair_plan
from reproduction.base import Budget, Series, Version
from reproduction.study import Study
from reproduction.verdicts import Open, Outcome, least

__all__ = [
    "ACCURACY",
    "CODING",
    "EPS",
    "EPSILONS",
    "LOOSE",
    "PRINTED",
    "RARE",
    "RATIO",
    "REPAIR",
    "RUNS",
    "SETUP",
    "TABLE_EPSILONS",
    "Cells",
    "ahead",
    "at",
    "cells",
    "flat",
    "found_in",
    "impossible",
    "in_words",
    "line_of",
    "means",
    "paper_coding",
    "pick",
    "spent",
    "values",
    "variants",
]

EPSILONS = [0.01, 0.0316227766, 0.1, 1.0, 3.16227766, 10.0]
TABLE_EPSILONS = [0.01, 0.1, 1.0, 10.0]
RUNS = 10  # that the dissertation averages

# Table 1, mean and standard deviation of the risk difference at TABLE_EPSILONS
PRINTED: dict[str, dict[str, list[tuple[float, float]]]] = {
    "Adult": {
        "PFLR*": [(0.045, 0.095), (0.004, 0.009), (0.022, 0.088), (0.003, 0.001)],
        "PDFC": [(0.048, 0.108), (0.005, 0.022), (0.002, 0.011), (0.035, 0.041)],
        "ADFC": [(0.146, 0.131), (0.068, 0.028), (0.045, 0.027), (0.019, 0.003)],
    },
    "US": {
        "PFLR*": [(0.037, 0.038), (0.078, 0.021), (0.069, 0.007), (0.067, 0.003)],
        "PDFC": [(0.003, 0.034), (0.001, 0.006), (0.022, 0.047), (0.022, 0.031)],
        "ADFC": [(0.004, 0.007), (0.008, 0.003), (0.031, 0.004), (0.045, 0.002)],
    },
}


def impossible(mean: float, deviation: float, runs: int = RUNS) -> bool:
    """Whether no `runs` values ≥ 0 have this mean and sample standard deviation, given to three digits.

    Σx² ≤ (Σx)² for x ≥ 0, so the sample variance is at most (n²m² − nm²)/(n − 1) = n m².
    """
    return deviation - 5e-4 > math.sqrt(runs) * (mean + 5e-4)


# what the dissertation leaves open, one at a time: how a noisy objective is bounded, ε_s/ε_n, and for the corrected
# methods the coding, which is ours unless a panel says otherwise
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {}, "trim": {"repair": "trim"}, "ratio": {"ratio": 2.0}, "coding": {"coding": "paper"},
}  # fmt: skip


def _variant(name: str, run: FairRunPlan) -> FairRunPlan | None:
    """A run with one choice changed, or None where that changes nothing."""
    wanted = {"trim": run.as_printed, "ratio": run.attribute is not None, "coding": run.coding != "paper"}
    if METHODS[run.method].law is None and name != "base":
        return None
    if not wanted.get(name, True):
        return None
    return FairRunPlan.model_validate(run.model_dump(exclude_unset=True) | VARIANTS[name])


def cells(study: Study, *, panels: list[str], variant: str, seeds: int, epsilons: list[float]) -> dict[str, Any]:
    """Panels of the embedded Adult study, and Fig. 18 b, c as printed too, with one choice changed: its cells."""
    plan = read_fair_plan(None, [])
    runs = [r for r in plan.runs if r.panel in panels]
    runs += [
        FairRunPlan.model_validate(r.model_dump() | {"as_printed": True, "coding": "paper"})
        for r in runs
        if r.panel in ("Figure 18b", "Figure 18c")
    ]
    some = [v for r in runs if (v := _variant(variant, r)) is not None]
    return _run(study, plan, some, seeds, epsilons, variant)


def paper_coding(study: Study, *, seeds: int, epsilons: list[float]) -> dict[str, Any]:
    """Fig. 17 a with exact noise but the dissertation's coding of the records: its cells, as JSON text."""
    runs = [FairRunPlan(panel="Figure 17a", method=m, coding="paper") for m in ("fm", "relaxed-fm")]
    runs.append(FairRunPlan(panel="Figure 17a", method="relaxed-fm", coding="paper", epsilons=[math.inf]))
    return _run(study, read_fair_plan(None, []), runs, seeds, epsilons, "base")


def _run(
    study: Study, plan: FairPlan, runs: list[FairRunPlan], seeds: int, epsilons: list[float], variant: str
) -> dict[str, Any]:
    kept = [r.model_copy(update={"epsilons": _some(r.epsilons, epsilons)}) for r in runs]
    smaller = plan.model_copy(update={"runs": kept, "seeds": seeds, "epsilons": epsilons})
    out = run_fair(prepare(smaller), study.report)
    keys = ("panel", "label", "method", "as_printed", "attribute", "epsilon", "wanted_delta", "spent_epsilon", *METRICS)
    return {"cells": json.dumps([{k: v for k, v in c.items() if k in keys} | {"variant": variant} for c in out])}


def _some(own: list[float] | None, wanted: list[float]) -> list[float] | None:
    """A run's own budgets, those that were asked for and ∞."""
    return None if own is None else [e for e in own if e in wanted or math.isinf(e)]


def pick(
    found: list[dict[str, Any]], panel: str, method: str, variant: str = "base", **more: Any
) -> list[dict[str, Any]]:
    """The cells of one line, in order of ε; where the variant changes nothing, the line itself."""
    here = [c for c in found if c["panel"] == panel and c["method"] == method and c["variant"] == variant]
    if not [c for c in here if all(c[k] == v for k, v in more.items())] and variant != "base":
        return pick(found, panel, method, **more)
    return [c for c in here if all(c[k] == v for k, v in more.items())]


# ---- what figures make of cells --------------------------------------------------------------------------------------

Cells = list[dict[str, Any]]
RARE = 0.01  # a classifier that says yes to fewer is called constant


def found_in(study: Study, *panels: str) -> Cells:
    epsilons = study.pick(EPSILONS, TABLE_EPSILONS)
    out: Cells = []
    for variant in study.pick(list(VARIANTS), ["base", "trim"]):
        common: dict[str, Any] = {"seeds": study.pick(10, 2), "epsilons": epsilons}
        out += json.loads(study.part(cells, panels=list(panels), variant=variant, **common)["cells"])
    return out


def variants(found: Cells, printed: bool) -> list[str]:
    """The choices at which a claim about printed (or corrected) runs is tried."""
    there = {c["variant"] for c in found if c["as_printed"] == printed}
    return [v for v in VARIANTS if v in there]


def at(variant: str, printed: bool) -> dict[str, str]:
    """What a variant chooses."""
    chosen = {"ratio": "2" if variant == "ratio" else "10"}
    if printed:
        return chosen | {"repair": "trim" if variant == "trim" else "ridge"}
    return chosen | {"coding": "dissertation" if variant == "coding" else "ours"}


def ahead(
    some: Cells, others: Cells, metric: str = "accuracy", room: float = 0.0, where: Mapping[str, str] | None = None
) -> Outcome:
    """“The first line is above the second (less `room`) at every ε”, over the seeds of both."""
    return least(
        [
            Outcome(
                a[metric]["mean"] - b[metric]["mean"] + room,
                math.hypot(a[metric]["std"], b[metric]["std"]) / math.sqrt(RUNS),
            )
            for a, b in zip(some, others, strict=True)
        ],
        **(where or {}),
    )


def line_of(
    panel: str, label: str, version: Version, some: Cells, seeds: int, metric: str = "accuracy", **more: Any
) -> Series:
    """One line over ε, mean ± one standard deviation."""
    mean, std = (np.array([c[metric][k] for c in some]) for k in ("mean", "std"))
    x = [float(f"{c['epsilon']:.2g}") for c in some]  # 10^−1.5 as 0.032
    return Series(
        panel, label, version, x, mean.tolist(), (mean - std).tolist(), (mean + std).tolist(), seeds, True, **more
    )


def flat(panel: str, label: str, cell: dict[str, Any], x: list[float], metric: str = "accuracy") -> Series:
    return Series(panel, label, "reference", x, [cell[metric]["mean"]] * len(x))


def means(some: Cells, metric: str = "accuracy") -> np.ndarray:
    return np.array([c[metric]["mean"] for c in some])


def in_words(some: Cells, metric: str = "accuracy") -> str:
    return ", ".join(f"{c[metric]['mean']:.3f} (ε = {c['epsilon']:.2g})" for c in some)


def values(name: str, some: Cells, metric: str = "accuracy") -> dict[str, float]:
    return {f"{name} at {c['epsilon']:.2g}": c[metric]["mean"] for c in some}


def spent(label: str, some: Cells, delta: float = 1e-3, note: str = "") -> list[Budget]:
    """What printed runs are proved to cost."""
    return [
        Budget(label, "as printed", c["epsilon"], c["spent_epsilon"], delta, note)
        for c in some
        if c["epsilon"] in (0.01, 1.0, 10.0)
    ]


LOOSE = "proved bound; the printed sensitivity is too large"

SETUP = """Adult, 48,842 records, 80/20 splits, 10 seeds (of split and noise), δ = 1e-3, sex protected and not a
feature; replace-one. The dissertation's coding: one number for each of 12 attributes, scaled into [0, 1/√d], no
constant. Ours (for the panels that say so): one feature for each public category, 62 in all, centred and scaled by
public bounds. Bands: ± one standard deviation."""
RATIO = Open("ratio", "ε_s/ε_n, the noise on x_s over that on the rest (10 and 2)")
REPAIR = Open("repair", "what bounds an objective that its noise leaves unbounded (a ridge, or trimmed eigenvalues)")
CODING = Open("coding", "the coding of categories (ours and one number for each attribute)")
EPS, ACCURACY = "ε", "test accuracy"
