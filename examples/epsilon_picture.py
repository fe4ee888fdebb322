"""Accuracy against ε, between every clinic alone and all records in one place: the picture of the README.

Run it: python -m examples.epsilon_picture docs/img/clinics-epsilon.png. Five synthetic clinics on a ring, the embedded
plan at ten budgets, 20 seeds of noise each. About a minute on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from coterie.experiment import prepare, price
from coterie.plan import read_plan

BUDGETS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
SEEDS = 20
INK, BLUE, GREY = "#1f2933", "#0b7285", "#868e96"


def measure() -> tuple[np.ndarray, dict[str, float]]:
    """Final test accuracy, one row for each budget and one column for each seed; and the two references."""
    experiment = prepare(read_plan(None))
    scores = []
    for epsilon in BUDGETS:
        priced = price(read_plan(None, [f"privacy.epsilon={epsilon}"]), experiment.network)
        trace = experiment.run(priced, seeds=range(SEEDS), every=priced.rounds)
        scores.append(trace.curves["test_score"][:, -1])
    return np.array(scores), {name: r["test_score"] for name, r in experiment.references().items()}


def draw(scores: np.ndarray, references: dict[str, float], path: Path) -> None:
    """The picture: median over seeds, and the band between the first and the ninth decile."""
    low, middle, high = np.quantile(scores, [0.1, 0.5, 0.9], axis=1)
    figure, axes = plt.subplots(figsize=(7.6, 3.9), layout="constrained")
    axes.fill_between(BUDGETS, low, high, color=BLUE, alpha=0.18, lw=0)
    axes.plot(BUDGETS, middle, color=BLUE, lw=2.2, marker="o", ms=4.5)
    words = {"pooled": "all records in one place, no privacy", "alone": "every clinic alone, nothing shared"}
    for name, value in references.items():
        axes.axhline(value, color=GREY, lw=1.2, ls=(0, (5, 3)))
        axes.text(BUDGETS[-1], value + 0.004, f"{words[name]}: {value:.3f}", ha="right", va="bottom", color=INK)
    at = BUDGETS.index(1.0)
    axes.annotate(
        f"together, ε = 1: {middle[at]:.3f}", (1.0, middle[at]), (1.25, middle[at] - 0.045), color=BLUE,
        weight="bold", arrowprops={"arrowstyle": "-", "color": BLUE},
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(BUDGETS, [f"{b:g}" for b in BUDGETS])
    axes.minorticks_off()
    axes.set_ylim(None, references["pooled"] + 0.026)
    axes.set_xlabel("ε of every clinic for the whole run (smaller: more private; δ = 1e-5)")
    axes.set_ylabel("test accuracy")
    axes.set_title(
        f"Five clinics on a ring, no server (median and middle 80 % of {SEEDS} seeds)", loc="left", fontsize=11
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e9ecef", lw=0.8)
    axes.set_axisbelow(True)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    draw(*measure(), Path(sys.argv[1] if len(sys.argv) > 1 else "clinics-epsilon.png"))
