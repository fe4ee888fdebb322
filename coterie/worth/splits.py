"""The same question over several train/test splits: a verdict should not hang on which records were held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from coterie.experiment import prepare
from coterie.plan import Plan
from coterie.pricing import price
from coterie.worth.judge import judge
from coterie.worth.verdict import UNKNOWN, Gain, Worth, WorthMean, WorthRow, mean_scores

__all__ = ["combine", "over_splits"]


def over_splits(plan: Plan, first: Worth, report: Callable[[int], None] = lambda _: None) -> tuple[Worth, list[str]]:
    """What parties gain over all of the plan's splits, of which `first` is the first, and what must be said of them.

    `report` hears of each. A split whose run diverged has no models to judge: it is left out, with a warning.
    """
    found, warnings, asked = [first], list[str](), plan.run
    seeds = [asked.seed + k for k in range(asked.seeds)]
    for number in range(1, asked.splits):
        experiment = prepare(plan, number)
        priced = price(plan, experiment.network)
        clip = priced.algorithm.clips(priced.cfg)
        points = experiment.run(priced, seeds).points
        told = judge(experiment, points, asked.references, measure=first["metric"], clip=clip).worth
        if told is None:
            warnings.append(f"split {number + 1} of {asked.splits} diverged and is left out of what joining is worth")
        else:
            found.append(told)
        report(number + 1)
    return (combine(found) if len(found) > 1 else first), warnings


def combine(found: Sequence[Worth]) -> Worth:
    """One table of several splits' tables: means, and intervals that know that splits overlap."""
    first = found[0]
    rows = _rows([one["parties"] for one in found], together=True)
    outside = _rows([one["outsiders"] for one in found], together=False)
    means = [one["mean"] for one in found]
    each = np.array([one["gain"] for one in means if one["gain"] is not None], float)
    share = sum(row["test_records"] for row in rows) / sum(row["records"] for row in rows)
    known = Gain.of_splits(each, share)
    told = UNKNOWN if known is None else known.told()
    mean: WorthMean = {**mean_scores(means), **told}
    return {**first, "parties": rows, "outsiders": outside, "splits": len(found), "mean": mean}


def _rows(found: Sequence[Sequence[WorthRow]], together: bool) -> list[WorthRow]:
    """Row by row over the splits; intervals hold all together, or each for itself."""
    rows, known = list[WorthRow](), []
    for mine in zip(*found, strict=True):
        first: WorthRow = mine[0]
        each = np.array([one["gain"] for one in mine if one["gain"] is not None], float)
        known.append(Gain.of_splits(each, first["test_records"] / first["records"]))
        rows.append({**first, **mean_scores(mine)})
    count = sum(one is not None for one in known) if together else 1
    return [{**row, **(UNKNOWN if one is None else one.told(count))} for row, one in zip(rows, known, strict=True)]
