r"""Guessing an attribute of somebody's record, and a whole record from the model: what ε says about it, and attacks.

The adversary knows every record but one, and that this one is one of m candidates, each as likely: two that differ in
one attribute (*attribute inference*, from every message), or eight that share nothing but the label (*model inversion*,
from the answer that is handed out alone). It guesses the candidate that explains best what it saw: by the exact
likelihood ratio where there is one, else by the nearest of the candidates' pilots in units of their noise.

**What ε says.** Let A be the chance that the guess is right. To replace the record by another candidate is a step
between neighbours, so P_a(guess a) ≤ e^ε P_b(guess a) + δ for all a ≠ b. Summed over all of them,

    (m − 1) A ≤ e^ε (1 − A) + (m − 1) δ,   hence   A ≤ (e^ε + (m − 1) δ)/(e^ε + m − 1)

for every (ε, δ) on the run's curve; `most_right` is the least of these. At m = 2 and ε = 0 it is ½ + TV/2, which
nothing improves on. 1/m is what is known without the record. A guess from what the *others'* records teach about
people like this one is not bounded by anything here: whoever joins or stays away, it is as good (docs/audit.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import beta

from coterie.algorithms.base import Algorithm, Config, Place
from coterie.audit.losses import Pair, pairs
from coterie.audit.setting import ATTACKS, Setting, place_of, worlds
from coterie.audit.transcripts import Transcripts, explain, explainable, features, play
from coterie.errors import InputError
from coterie.privacy.accountants import delta_of
from coterie.problems import HeldShard
from coterie.problems.labels import SIGNS

__all__ = ["CONFIDENCE", "Inferred", "What", "candidates_of", "infer", "most_right", "without_noise"]

What = Literal["attribute", "record"]
SEEN = {"attribute": "every message", "record": "the model"}
MANY = 8  # records among which a model is inverted
PILOT = 250  # transcripts of each candidate from which the attack learns
CONFIDENCE = 1 - 1e-5
SHIFT = 1_000_003  # from the seed of the trials to that of the pilot
NOTHING = 1e-9  # a number that varies by less than this share of itself is sure
LEVELS = (0.0, *np.geomspace(0.01, 30, 60).tolist())  # ε at which a curve is looked at
Guess = Callable[[Transcripts], np.ndarray]


@dataclass(frozen=True)
class Inferred:
    """How often the guess was right, and how often it may be."""

    algorithm: str
    what: What
    seen: str
    epsilon: float
    delta: float
    candidates: int
    trials: int  # of all candidates together
    right: int
    bare: float  # share of right guesses if the same party adds no noise
    bound: float  # on the chance to be right
    confidence: float

    @property
    def share(self) -> float:
        """Of right guesses."""
        return self.right / self.trials

    @property
    def at_least(self) -> float:
        """The chance to be right is at least this, at `confidence` (Clopper-Pearson)."""
        tail = 1 - self.confidence
        return float(beta.ppf(tail, self.right, self.trials - self.right + 1)) if self.right else 0.0

    @property
    def refuted(self) -> bool:
        """Whether the guess is right more often than the claim allows."""
        return self.at_least > self.bound

    @property
    def checked(self) -> bool:
        """Whether the attack could have refuted the claim: it does where noise is missing, and trials are enough."""
        always = (1 - self.confidence) ** (1 / self.trials)  # `at_least` if every guess is right
        return self.refuted or (self.bare > self.bound and always > self.bound)

    @property
    def verdict(self) -> Literal["holds", "refuted", "could not check"]:
        """In words."""
        return "refuted" if self.refuted else "holds" if self.checked else "could not check"

    def as_json(self) -> dict[str, object]:
        """For files and scripts."""
        more = {"share": self.share, "at_least": self.at_least, "chance": 1 / self.candidates, "refuted": self.refuted}
        return {**dataclasses.asdict(self), **more, "verdict": self.verdict}


def most_right(candidates: int, curve: Callable[[float], float], *at: float) -> float:
    """A limit on the chance to guess one of m equally likely records that a mechanism with this curve δ(ε) allows.

    Each ε gives one; the least is over some of them, and over those that are given.

    >>> from coterie.privacy.gdp import delta_of
    >>> round(most_right(2, lambda epsilon: float(delta_of(1.0, epsilon))), 4)  # Φ(½)
    0.6915
    >>> round(most_right(8, lambda epsilon: 0.0 if epsilon >= 1.0 else 1.0, 1.0), 4)  # pure ε = 1: e/(e + 7)
    0.2797
    """
    if candidates < 2:
        raise InputError(f"there is nothing to guess among {candidates} candidates")
    others = candidates - 1
    allowed = [(np.exp(e) + others * min(1.0, curve(e))) / (np.exp(e) + others) for e in (*LEVELS, *at)]
    return float(min(1.0, *allowed))


def candidates_of(setting: Setting, what: What, seed: int = 0) -> list[Pair]:
    """The candidates, each the first record of a pair; rest and neighbours are those of the first pair."""
    linear = setting.problem.scored and setting.problem.labels is SIGNS and setting.place.dim == 2
    if what == "attribute":
        pair = ATTACKS[0] if linear else next(pairs(setting.problem, 1, seed))
        row, target = pair.first
        other = pair.second if linear else (np.where(np.arange(row.size) == 0, -row, row), target)
        return [pair, dataclasses.replace(pair, first=other)]
    if linear:
        angles = 2 * np.pi * np.arange(MANY) / MANY
        base = dataclasses.replace(ATTACKS[3], start=None)  # neighbours, and the start, at zero
        return [dataclasses.replace(base, first=(np.array([np.cos(a), np.sin(a)]), 1.0)) for a in angles]
    drawn = list(islice(pairs(setting.problem, 3 * MANY, seed), 3 * MANY))
    usable = [p for p in drawn if np.all(np.isfinite(p.first[0]))][:MANY]
    first = dataclasses.replace(usable[0], flags=(), point=setting.problem.start(0))
    return [dataclasses.replace(first, first=(p.first[0], first.first[1])) for p in usable]


def without_noise(setting: Setting) -> Setting:
    """The same party with its noise left out: a fault at which every attack should succeed."""
    with jax.enable_x64(True):
        return dataclasses.replace(setting, place=eqx.tree_at(lambda p: p.noise, setting.place, jnp.zeros(())))


def infer(
    setting: Setting, what: What, trials: int = 1000, *, confidence: float = CONFIDENCE, seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> Inferred:  # fmt: skip
    """Attack `trials` transcripts of each candidate, with a guess that is learned from others."""
    found = candidates_of(setting, what)
    guess = _learn(setting, what, found, seed + SHIFT)
    progress(0.3)
    right = 0
    for k in range(len(found)):
        right += _right(setting, found, k, guess, trials, seed)
        progress(0.3 + 0.5 * (k + 1) / len(found))
    bare = without_noise(setting)
    blunt = _learn(bare, what, found, seed + SHIFT)
    hits = sum(_right(bare, found, k, blunt, 10, seed) for k in range(len(found)))
    progress(1.0)
    return Inferred(
        setting.algorithm.slug, what, SEEN[what], setting.epsilon, setting.delta, len(found), trials * len(found),
        right, hits / (10 * len(found)), _bound(setting, len(found)), confidence,
    )  # fmt: skip


def _right(setting: Setting, found: Sequence[Pair], k: int, guess: Guess, trials: int, seed: int) -> int:
    """How many of so many fresh transcripts of candidate k are guessed."""
    done = 0
    for piece in range(-(-trials // PILOT)):
        count = min(PILOT, trials - piece * PILOT)
        done += int(np.sum(guess(_played(setting, found, k, PILOT, seed + 7 * piece))[:count] == k))
    return done


def _played(setting: Setting, found: Sequence[Pair], k: int, count: int, seed: int) -> Transcripts:
    """Fresh transcripts of the party with candidate k."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), k), count)
        return play(*_party(setting, found), _shard(setting, found[k]), found[0].neighbours(setting.degree), keys)


def _party(setting: Setting, found: Sequence[Pair]) -> tuple[Algorithm, Config, Place]:
    return setting.algorithm, setting.cfg, place_of(setting, found[0])


def _shard(setting: Setting, candidate: Pair) -> HeldShard:
    return worlds(setting, dataclasses.replace(candidate, second=candidate.first))[0]


def _learn(setting: Setting, what: What, found: Sequence[Pair], seed: int) -> Guess:
    """The best guess there is: by likelihood from the messages where they can be explained, else by a pilot."""
    noisy = bool(np.asarray(setting.place.noise) > 0)
    with jax.enable_x64(True):
        exact = noisy and not setting.slip and explainable(*_party(setting, found), _shard(setting, found[0]))
    if what == "attribute" and exact:

        def by_likelihood(seen: Transcripts) -> np.ndarray:
            with jax.enable_x64(True):
                near = found[0].neighbours(setting.degree)
                told = [explain(*_party(setting, found), _shard(setting, p), near, seen) for p in found]
            return np.argmax([t.log_likelihood for t in told], axis=0)

        return by_likelihood
    look = features if what == "attribute" else lambda seen: np.asarray(seen.estimate, float)
    return _nearest([look(_played(setting, found, k, PILOT, seed)) for k in range(len(found))], look)


def _nearest(pilots: Sequence[np.ndarray], look: Callable[[Transcripts], np.ndarray]) -> Guess:
    """The candidate whose pilot's mean is nearest, in units of the noise that all share (Fisher)."""
    means = np.stack([p.mean(axis=0) for p in pilots])
    spread = np.mean([np.cov(p.T).reshape(p.shape[1], p.shape[1]) for p in pilots], axis=0)
    scale = np.maximum(np.sqrt(np.diag(spread)), NOTHING * (1 + np.abs(means).max(axis=0)))
    inverse = np.linalg.inv(spread / np.outer(scale, scale) + 0.01 * np.eye(len(scale)))

    def guess(seen: Transcripts) -> np.ndarray:
        apart = (look(seen)[:, None, :] - means) / scale
        return np.argmin(np.einsum("nkd,de,nke->nk", apart, inverse, apart), axis=1)

    return guess


def _bound(setting: Setting, candidates: int) -> float:
    """What the claim allows; one about leaving records out is taken twice, for one that is replaced."""
    epsilon, delta = setting.epsilon, setting.delta
    if not setting.replaces:
        twice, more = 2 * epsilon, (1 + np.exp(epsilon)) * delta
        return most_right(candidates, lambda e: more if e >= twice else 1.0, twice)
    stated = most_right(candidates, lambda e: delta if e >= epsilon else 1.0, epsilon)
    if setting.claimed_by == "paper":
        return stated
    return min(stated, most_right(candidates, lambda e: delta_of(setting.events, e, fast=True)))
