r"""Audits that stop as soon as they may: a bet against the claim, settled after every pair of transcripts.

A claim with curve δ(·) says of every set S of transcripts, every ε and both orders of the worlds

    P₁(S) ≤ e^ε P₀(S) + δ(ε),   so   Y = 1[x₁ ∈ S] − e^ε 1[x₀ ∈ S] − δ(ε)   has mean ≤ 0

for a pair x₀, x₁ of transcripts of the two worlds. Staking the share λ of one's wealth on Y in every pair keeps the
expected wealth at 1 or below, whatever λ ∈ [0, 1/(e^ε + δ)]; so does an average over many such players. By Ville's
inequality the wealth ever reaches 1/`level` with probability at most `level` if the claim holds: looking after every
pair costs nothing, and a gross fault is found after a dozen pairs instead of thousands of transcripts (betting: Shafer
2021; Waudby-Smith and Ramdas 2024; for auditing: González et al. 2025, arXiv 2509.07055).

The players are fixed before the trials: sets {score > c} and {score < c} of a score and cuts c learned on a pilot with
other seeds, ε from 0 to beyond the claim, and stakes from small to nearly all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coterie.audit.audit import PIECE, SHIFT, Scored, scored
from coterie.audit.losses import Pair
from coterie.audit.setting import Setting
from coterie.errors import InputError
from coterie.privacy.accountants import delta_of

__all__ = ["LEVEL", "Sequential", "sequential"]

LEVEL = 1e-5  # how often an audit of a true claim may call it refuted
STAKES = (0.02, 0.1, 0.3, 0.6, 0.95)  # shares of the largest stake that cannot lose more than everything
CUTS, PLAYERS = 15, 16


@dataclass(frozen=True)
class Sequential:
    """What the bets say."""

    algorithm: str
    epsilon: float
    delta: float
    refuted: bool
    pairs: int  # of transcripts that were looked at
    most: int
    wealth: float  # the largest reached
    level: float
    attack: str

    @property
    def verdict(self) -> str:
        """In words."""
        if self.refuted:
            return f"refuted after {self.pairs} pairs of transcripts"
        return f"not refuted by {self.pairs} pairs of transcripts (wealth {self.wealth:.2g} of {1 / self.level:.0e})"


def sequential(
    setting: Setting, most: int = 1000, *, level: float = LEVEL, seed: int = 0, attack: Pair | None = None
) -> Sequential:
    """Bet against the setting's claim until the wealth is 1/level or `most` pairs have been seen."""
    if most < 1:
        raise InputError(f"most must be >= 1, got {most}")
    if not 0 < level < 1:
        raise InputError(f"level must be in (0, 1), got {level}")
    pilot = scored(setting, attack, seed + SHIFT)
    players = _players(setting, pilot)
    wealth, best, used = np.zeros(len(players.stake)), 0.0, 0
    for piece in range(math.ceil(most / PIECE)):
        first, second = (pilot.scores(setting, world, piece, seed)[: most - used] for world in (0, 1))
        path = wealth + np.cumsum(players.gains(first, second), axis=0)  # logarithms
        total = _mean_exp(path)
        over = np.flatnonzero(total >= -math.log(level))
        if over.size:
            best, used = float(total[over[0]]), used + int(over[0]) + 1
            return _said(setting, True, used, most, best, level, pilot)
        best, used, wealth = max(best, float(total.max())), used + len(first), path[-1]
    return _said(setting, False, used, most, best, level, pilot)


def _said(
    setting: Setting, refuted: bool, pairs: int, most: int, best: float, level: float, pilot: Scored
) -> Sequential:
    with np.errstate(over="ignore"):
        wealth = float(np.exp(min(best, 700.0)))
    return Sequential(
        setting.algorithm.slug, setting.epsilon, setting.delta, refuted, pairs, most, wealth, level, pilot.attack.name
    )


@dataclass(frozen=True)
class _Players:
    """One row a player: its set, its ε, what the claim grants it, and its stake."""

    cut: np.ndarray
    above: np.ndarray  # bool: the second world shows in high scores; else the first one in low scores
    factor: np.ndarray  # e^ε
    delta: np.ndarray
    stake: np.ndarray

    def gains(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Logarithms of 1 + λY, (pair, player)."""
        one = np.where(self.above, second[:, None] > self.cut, first[:, None] < self.cut)
        other = np.where(self.above, first[:, None] > self.cut, second[:, None] < self.cut)
        return np.log1p(self.stake * (one - self.factor * other - self.delta))


def _players(setting: Setting, pilot: Scored) -> _Players:
    """Those that the pilot's scores suggest."""
    pooled = np.concatenate([pilot.first, pilot.second])
    cuts = np.unique(np.quantile(pooled, np.linspace(0.02, 0.98, CUTS)))
    rows = []
    for share in (0.0, 0.25, 0.5, 1.0, 1.5):
        epsilon = share * setting.epsilon
        delta = _granted(setting, epsilon)
        if delta >= 1:
            continue
        for cut in cuts:
            for above in (True, False):
                for stake in STAKES:
                    rows.append((cut, above, math.exp(epsilon), delta, stake / (math.exp(epsilon) + delta)))
    table = np.array(rows)
    everybody = _Players(table[:, 0], table[:, 1] > 0, *table[:, 2:].T)
    earned = everybody.gains(pilot.first, pilot.second).mean(0)
    table = table[np.argsort(-earned)[:PLAYERS]]  # those whom the pilot would have made rich share the stake
    return _Players(table[:, 0], table[:, 1] > 0, *table[:, 2:].T)


def _granted(setting: Setting, epsilon: float) -> float:
    """δ that the claim grants at ε; a paper's claim is one point of the curve."""
    if setting.claimed_by == "paper":
        return setting.delta if epsilon >= setting.epsilon else 1.0
    return delta_of(setting.events, epsilon, fast=True)


def _mean_exp(logs: np.ndarray) -> np.ndarray:
    """log of the mean of exp over the last axis."""
    top = logs.max(axis=1)
    return top + np.log(np.mean(np.exp(logs - top[:, None]), axis=1))
