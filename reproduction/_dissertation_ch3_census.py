"""Fig. 13 of Ding's chapter 3: the error on census records of the user's."""

from __future__ import annotations

import numpy as np

from reproduction._dissertation_ch3_compare import bare_run, curves, measure, words
from reproduction.base import Claim, Result, Series
from reproduction.study import Study
from reproduction.verdicts import compared, least

__all__ = ["TABLES", "fig13"]

TABLES = {"US": "ipums-us.csv", "Brazil": "ipums-brazil.csv"}


def fig13(study: Study) -> Result:
    """The error on data of the user's."""
    epsilons: list[float] = study.pick([0.5, 1.0, 1.5, 2.0, 10.0], [1.0, 10.0])
    series, claims = [], []
    for country, table in TABLES.items():
        found = curves(study, epsilons, table=table)
        bare = float(bare_run(study, table=table)["test"][0])
        for (name, v), runs in found.items():
            series.append(Series.over(country, name, v, epsilons, np.array([r["test"] for r in runs]).T, marked=True))
        series.append(Series(country, "non-private", "reference", [epsilons[0], epsilons[-1]], [bare, bare]))
        good = np.array([r["test"].mean() for r in found["PP-ADMM", "corrected"]])
        lazy = np.array([r["test"].mean() for r in found["IPP-ADMM", "corrected"]])
        claims += [
            Claim(
                f"{country}: PP-ADMM gets close to the best achievable error over a wide range of ε",
                least([compared(measure(r, "test"), [bare], 0.02) for r in found["PP-ADMM", "corrected"]]),
                f"error {words(epsilons, good)}; non-private {bare:.3f}",
                {"pp": float(good[0]), "bare": bare},
                version="corrected",
                reason="the smallest ε needs too much noise at this size",
            ),
            Claim(
                f"{country}: IPP-ADMM has a lower error than PP-ADMM",
                least(
                    [
                        compared(measure(a, "test"), measure(b, "test"))
                        for a, b in zip(found["IPP-ADMM", "corrected"], found["PP-ADMM", "corrected"], strict=True)
                    ]
                ),
                f"error of IPP-ADMM {words(epsilons, lazy)}",
                {"pp": float(good[0]), "ipp": float(lazy[0])},
                version="corrected",
                reason="fewer messages make less progress",
            ),
        ]
    return Result(series, claims)
