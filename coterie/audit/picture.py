"""The trade-off curves of an audit: what a claim allows, and what the attack did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import norm

from coterie.audit.audit import Verdict
from coterie.audit.setting import Setting
from coterie.privacy.accountants import delta_of

__all__ = ["allowed", "tradeoff_curves"]


def allowed(setting: Setting, false_alarms: np.ndarray) -> np.ndarray:
    """The smallest rate of misses that the claim allows at each rate of false alarms.

    >>> from coterie.algorithms.base import find
    >>> from coterie.audit import make_setting
    >>> setting = make_setting(find("gauss-avg-gd"), epsilon=1.0)
    >>> allowed(setting, np.array([0.0, 1.0])).round(6).tolist()
    [1.0, 0.0]
    """
    alpha = np.asarray(false_alarms, float)
    if setting.mu is not None:
        return norm.cdf(norm.ppf(1 - alpha) - setting.mu)
    if setting.claimed_by == "paper":
        curve = [(setting.epsilon, setting.delta)]
    else:
        grid = np.concatenate([[0.0], np.geomspace(0.02, 2 * setting.epsilon + 4, 24)])
        curve = [(float(e), delta_of(setting.events, float(e), fast=True)) for e in grid]
    lines = [np.maximum(1 - d - np.exp(e) * alpha, np.exp(-e) * (1 - d - alpha)) for e, d in curve]
    return np.clip(np.max(lines, axis=0), 0.0, 1.0)


def tradeoff_curves(found: list[tuple[Setting, Verdict]], path: Path) -> None:
    """One panel per audit: the claimed curve, and below or above it the attack's."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from coterie.report.plots import ALONE, INK, RUN, style

    columns = min(4, len(found))
    lines = -(-len(found) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.2 * columns, 3.0 * lines), layout="constrained", squeeze=False
    )
    alpha = np.linspace(0, 1, 201)
    for axis, (setting, verdict) in zip(axes.flat, found, strict=False):
        assert verdict.scores is not None
        first, second = verdict.scores
        thresholds = np.quantile(np.concatenate([first, second]), np.linspace(0, 1, 201))
        alarms = [np.mean(first > t) for t in thresholds]
        misses = [np.mean(second <= t) for t in thresholds]
        axis.plot(alpha, 1 - alpha, color=INK, linewidth=0.6, linestyle=":")
        axis.plot(alpha, allowed(setting, alpha), color=RUN, label=f"claimed, ε = {verdict.epsilon:.3g}")
        colour = ALONE if verdict.violated else INK
        axis.plot(alarms, misses, color=colour, linewidth=1.0, label=f"attack, ε ≥ {verdict.lower_bound:.3g}")
        axis.set_title(verdict.algorithm + (" as printed" if verdict.printed else ""), fontsize=9, color=INK)
        axis.set_xlabel("false alarms", fontsize=8)
        axis.set_ylabel("misses", fontsize=8)
        axis.legend(frameon=False, fontsize=7)
        style(axis)
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    figure.savefig(path, dpi=130, format="png")
    plt.close(figure)
