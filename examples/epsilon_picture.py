"""What joining is worth against ε, on own patients: the picture of the README.

Run it: python -m examples.epsilon_picture docs/img/practices-epsilon.svg. The embedded plan, forty small practices with
shared noise, at eight budgets and 20 seeds of noise each. About two minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from coterie.experiment import prepare
from coterie.plan import read_plan
from coterie.pricing import price
from coterie.worth.judge import judge

BUDGETS = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0)
SEEDS = 20
INK, BLUE, GREY = "#1f2933", "#0b7285", "#868e96"


def measure() -> tuple[np.ndarray, dict[str, float]]:
    """Accuracy on own test records, mean of the practices, a row for each budget and a column for each seed."""
    experiment = prepare(read_plan(None))
    owned, test = experiment.own_test, experiment.test
    assert owned is not None
    assert test is not None
    scores, worth = [], None
    for epsilon in BUDGETS:
        priced = price(read_plan(None, [f"privacy.epsilon={epsilon}"]), experiment.network)
        points = experiment.run(priced, seeds=range(SEEDS), every=priced.rounds).points
        worth = worth or judge(experiment, points[:1], measure="accuracy").worth
        right = (np.einsum("td,sad->sat", test.features, points) > 0) == (test.targets > 0)
        scores.append([np.mean([seed[i, rows].mean() for i, rows in enumerate(owned)]) for seed in right])
    assert worth is not None
    return np.array(scores), {name: worth["mean"][name] for name in ("pooled", "alone")}


def draw(scores: np.ndarray, references: dict[str, float], path: Path) -> None:
    """The picture: median over seeds, and the band between the first and the ninth decile."""
    low, middle, high = np.quantile(scores, [0.1, 0.5, 0.9], axis=1)
    figure, axes = plt.subplots(figsize=(5.2, 3.7), layout="constrained")  # narrow: its text is read on a phone too
    axes.fill_between(BUDGETS, low, high, color=BLUE, alpha=0.18, lw=0)
    axes.plot(BUDGETS, middle, color=BLUE, lw=2.2, marker="o", ms=4.5)
    words = {"pooled": "all records in one place, no privacy", "alone": "every practice alone, which costs no ε"}
    for name, value in references.items():
        axes.axhline(value, color=GREY, lw=1.2, ls=(0, (5, 3)))
        above = name == "pooled"
        at = value + (0.004 if above else -0.004)
        axes.text(
            BUDGETS[-1], at, f"{words[name]}: {value:.3f}", ha="right", va="bottom" if above else "top", color=INK
        )
    at = BUDGETS.index(1.0)
    axes.text(1.08, middle[at] - 0.012, f"together, ε = 1: {middle[at]:.3f}", color=BLUE, weight="bold")
    axes.set_xscale("log")
    axes.set_xticks(BUDGETS, [f"{b:g}" for b in BUDGETS])
    axes.minorticks_off()
    axes.set_ylim(None, references["pooled"] + 0.026)
    axes.set_xlabel("ε of every practice, whole run (δ = 1e-5, 21 of 40 honest)")
    axes.set_ylabel("accuracy on own patients")
    axes.set_title(
        f"Forty practices of 25 to 75 patients, shared noise,\nno server (median and middle 80 % of {SEEDS} seeds)",
        loc="left", fontsize=10,
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e9ecef", lw=0.8)
    axes.set_axisbelow(True)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(*measure(), Path(sys.argv[1] if len(sys.argv) > 1 else "practices-epsilon.svg"))
