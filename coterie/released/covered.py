r"""Covered scores: accuracy, AUC and calibration of a public model on everybody's held-out records, with their errors.

Every number is made of a release (`coterie.released.scores`) alone, so it may leave. Its error is what the noise did:
the exact value on the held-out records lies within two standard errors with probability 95 %. How well those records
stand for others is another question, with an error of its own.

**Accuracy and calibration** (mean of p − y) are released numbers. **AUC** is a ratio of products of noisy counts P_b
and N_b over bins b,  AUC = Σ_b P_b (N_{<b} + N_b/2) / (P N).  Pairs within a bin count one half, which is too little by
about what halving the bins changes, over three (the error of the trapezium rule on the ROC curve): that much is added.
With W the matrix of both rules, AUC = PᵀWN/(1ᵀP 1ᵀN) and counts with noise s,

    variance ≈ s² (‖∂/∂P‖² + ‖∂/∂N‖²) − s⁴ ‖W‖²/(PN)²,

the last term because noisy derivatives are too long by twice what products of noise and noise add. Where all counts
belong to one group they sum to the public number of records, which takes a little noise off. What the correction may
have missed, a quarter of it, is in the error, and so is chance: in which order the P_b and N_b of a bin came varies by
P_b N_b (P_b + N_b)/12 (Mann and Whitney), and the comparison with half as many bins adds a third of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from coterie.released.scores import Scores, edges_of

__all__ = ["CoveredNumber", "CoveredScores", "ToldCovered", "ToldScores", "share_in_words"]

Floats = NDArray[np.float64]
SURE = 5.0  # a noisy total below this many of its standard deviations may be zero
MISSED = 0.25  # of the correction for bins, in the error


class ToldNumber(TypedDict, total=False):
    """One score; `refused` says why it has no value."""

    value: float | None
    standard_error: float | None
    refused: str


class ToldScores(TypedDict, total=False):
    """Scores over all records; `groups` only where there are several."""

    accuracy: ToldNumber
    calibration: ToldNumber
    auc: ToldNumber
    curve: list[dict[str, float]]
    groups: dict[str, dict[str, ToldNumber]]


class ToldCovered(ToldScores):
    """The part `covered` of result.json."""

    marked: str
    records: int
    epsilon: float
    delta: float
    claim: str
    adversary: str
    composition: str


@dataclass(frozen=True)
class CoveredNumber:
    """A number that may leave: its value and standard error, or why there is none."""

    value: float | None
    error: float | None
    why: str = ""

    def as_json(self) -> ToldNumber:
        """For result.json."""
        said: ToldNumber = {"value": self.value, "standard_error": self.error}
        return said if not self.why else {**said, "refused": self.why}


@dataclass(frozen=True, eq=False)
class CoveredScores:
    """Scores over all records, and of every group; `names` are the groups'."""

    whole: dict[str, CoveredNumber]
    groups: tuple[dict[str, CoveredNumber], ...]
    curve: tuple[dict[str, float], ...]  # of calibration: bins in which enough happened to say a share
    names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, problem: Scores, point: Floats, names: Sequence[str] = (), *, records: float = math.inf
    ) -> CoveredScores:
        """What a released point says of so many records; where that is not known, chance within bins is left out."""
        a, c, b = problem.weights
        table = point[:-1].reshape(problem.groups, -1)
        right, gap, cells = table[:, 0] / a, table[:, 1] / c, table[:, 2:].reshape(problem.groups, problem.bins, 2) / b
        noise, many = float(point[-1]), problem.groups**0.5
        whole = {
            "accuracy": CoveredNumber(float(right.sum()), many * noise / a),
            "calibration": CoveredNumber(float(gap.sum()), many * noise / c),
            "auc": auc_of(cells.sum(0), many * noise / b, whole=True, records=records),
        }
        groups = []
        for k in range(problem.groups if problem.groups > 1 else 0):
            auc = auc_of(cells[k], noise / b, whole=False, records=records)
            groups.append(_of_group(float(right[k]), float(gap[k]), cells[k], noise / a, noise / c, noise / b, auc))
        curve = _curve(cells.sum(0), many * noise / b, problem.bins)
        return cls(whole, tuple(groups), curve, tuple(names))

    def as_json(self) -> ToldScores:
        """For result.json."""
        accuracy, calibration, auc = (self.whole[name].as_json() for name in ("accuracy", "calibration", "auc"))
        said: ToldScores = {
            "accuracy": accuracy, "calibration": calibration, "auc": auc, "curve": list(self.curve),
        }  # fmt: skip
        if self.groups:
            names = self.names or tuple(f"group {k}" for k in range(len(self.groups)))
            said["groups"] = {
                name: {key: number.as_json() for key, number in group.items()}
                for name, group in zip(names, self.groups, strict=True)
            }
        return said


def share_in_words(share: float, error: float) -> str:
    """A noisy share, such as may be none at all, as the subject of a sentence."""
    return f"a share of {share:.2g} ± {error:.2g} of the records"


def auc_of(cells: Floats, noise: float, *, whole: bool, records: float = math.inf) -> CoveredNumber:
    """AUC of counts (bins × did not happen, happened), as shares of all `records`; `whole`: they sum to one."""
    bins = len(cells)
    if whole:  # the number of records is public
        cells = cells - (cells.sum() - 1) / cells.size
    below, above = cells[:, 0], cells[:, 1]
    total = above.sum(), below.sum()
    wide = noise * (bins / 2 if whole else bins) ** 0.5
    for count, what in zip(total, ("happened", "did not happen"), strict=True):
        if count <= SURE * wide:
            words = f"{share_in_words(count, wide)} {what}: too close to none for the noise"
            return CoveredNumber(None, None, words)
    fine, coarse = _rule(np.arange(bins)), _rule(np.arange(bins) // 2)
    rule, scale = fine + (fine - coarse) / 3, total[0] * total[1]
    value = float(above @ rule @ below / scale)
    slopes = np.concatenate([rule @ below / scale - value / total[0], above @ rule / scale - value / total[1]])
    square = slopes @ slopes - (slopes.sum() ** 2 / slopes.size if whole else 0.0)
    twice = noise**4 * np.sum(rule**2) / scale**2
    spread = max(noise**2 * square - twice, twice)
    missed = MISSED * float(above @ (fine - coarse) @ below) / (3 * scale)
    order = float(np.sum((above * below - noise**2) * (above + below))) / (9 * records * scale**2)
    return CoveredNumber(value, float((spread + missed**2 + max(order, 0.0)) ** 0.5))


def _rule(place: NDArray[np.int64]) -> Floats:
    """How much a pair of bins counts: one where the first is above the second, one half where they are one."""
    return 0.5 * (1 + np.sign(place[:, None] - place[None, :]))


def _of_group(
    right: float, gap: float, cells: Floats, noise_right: float, noise_gap: float, noise: float, auc: CoveredNumber
) -> dict[str, CoveredNumber]:
    """Scores of one group: its share of the records is noisy too."""
    share, wide = float(cells.sum()), noise * cells.size**0.5
    out = {"share": CoveredNumber(share, wide)}
    if share <= SURE * wide:
        why = f"{share_in_words(share, wide)} is of this group: too close to none for the noise"
        return out | {name: CoveredNumber(None, None, why) for name in ("accuracy", "calibration", "auc")}
    for name, total, own in (("accuracy", right, noise_right), ("calibration", gap, noise_gap)):
        value = total / share
        out[name] = CoveredNumber(value, float(np.hypot(own, value * wide) / share))
    return out | {"auc": auc}


def _curve(cells: Floats, noise: float, bins: int) -> tuple[dict[str, float], ...]:
    """Chances that were stated (from, to) beside the share that happened, where a bin has enough records."""
    edges, out = edges_of(bins), []
    for k, (missed, happened) in enumerate(cells):
        total, wide = missed + happened, noise * 2**0.5
        if total <= SURE * wide:
            continue
        share = happened / total
        error = noise * np.hypot(1 - share, share) / total
        out.append(
            {"from": float(edges[k]), "to": float(edges[k + 1]), "share": float(share), "standard_error": float(error)}
        )
    return tuple(out)
