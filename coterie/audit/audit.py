"""Attack one algorithm: thousands of transcripts in two worlds, the best score there is, and a bound that holds.

Which attack to use and the threshold are fixed on a pilot with other seeds before the trials that count. Where the
transcripts can be explained the score is their log-likelihood ratio; else it is a direction in the space of all
messages, learned from the pilot (Fisher's discriminant, which is the likelihood ratio of Gaussian transcripts).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import numpy as np

from coterie.audit import bounds
from coterie.audit.losses import Pair
from coterie.audit.setting import Setting, attacks_on, place_of, worlds
from coterie.audit.transcripts import IMPOSSIBLE, Explanation, Transcripts, explain, explainable, features, play
from coterie.errors import InputError
from coterie.privacy.accountants import delta_of
from coterie.privacy.base import flat
from coterie.privacy.events import Event

__all__ = ["Scored", "Verdict", "audit", "discriminant", "find_attack", "scored", "watch"]

PIECE = 250  # transcripts per compiled call; one piece of each world is a pilot
EXACT = 1e-5  # how far from the draws the (standard) noise that was found may be
FEW = 2  # pairs drawn at random that are tried beside the crafted ones
SHIFT = 1_000_003  # from the seed of the trials to that of the pilot


@dataclass(frozen=True)
class Verdict:
    """What the transcripts say about a claim."""

    algorithm: str
    printed: bool  # whether it ran what a paper printed
    epsilon: float
    delta: float
    claimed_by: str
    lower_bound: float  # ε that must be spent, at `confidence`
    mu: float | None
    mu_bound: float
    confidence: float
    trials: int
    exact: bool  # the score was the exact likelihood ratio
    error: float  # how far the noise that explains transcripts was from the draws, at most (nan: not explained)
    largest_ratio: float  # largest |log-likelihood ratio| seen, if exact
    pure_limit: float  # what a pure claim allows it to be
    attack: str
    violated: bool
    reasons: list[str] = field(default_factory=list)
    scores: tuple[np.ndarray, np.ndarray] | None = None  # (first world, second world), for plots

    def as_json(self) -> dict[str, object]:
        """Everything but the scores; infinite and undefined numbers are None."""
        out = {k: v for k, v in vars(self).items() if k != "scores"}
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in out.items()}


@dataclass(frozen=True)
class Watched:
    """One piece of transcripts of one world and, where possible, how both worlds explain them."""

    seen: Transcripts
    told: tuple[Explanation, Explanation] | None

    @property
    def ratio(self) -> np.ndarray:
        """Log-likelihood ratio of each transcript, larger = more like the second world."""
        assert self.told is not None
        return self.told[1].log_likelihood - self.told[0].log_likelihood

    @property
    def apart(self) -> np.ndarray:
        """By how much the noises differ that explain each message in the two worlds: (transcript, round, number)."""
        assert self.told is not None
        return np.asarray(self.told[1].noise) - np.asarray(self.told[0].noise)


def watch(setting: Setting, attack: Pair, world: int, piece: int = 0, seed: int = 0) -> Watched:
    """Play one piece of transcripts and explain it."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 2 * piece + world), PIECE)
        shards, neighbours = worlds(setting, attack), attack.neighbours(setting.degree)
        args = (setting.algorithm, setting.cfg, place_of(setting, attack))
        seen = play(*args, shards[world], neighbours, keys)
        if setting.slip or not explainable(*args, shards[0]):
            return Watched(seen, None)
        told = tuple(explain(*args, s, neighbours, seen) for s in shards)
        return Watched(seen, told)  # type: ignore[arg-type]


def error_of(setting: Setting, watched: Watched, world: int) -> float:
    """How far the noise that explains this world's transcripts in it is from what was drawn, at most."""
    if watched.told is None:
        return float("nan")
    told, draws = watched.told[world], watched.seen.draws
    noise, scale, width = (np.asarray(x) for x in (told.noise, told.scale, told.width))
    entered = scale != 0
    blur = np.asarray(draws["weight"]).reshape(noise.shape) * width if "weight" in draws else 0.0
    apart = []
    for drawn in draws.values():
        if np.size(drawn) == noise.size:
            off = np.abs(noise - np.asarray(drawn).reshape(noise.shape) - blur / np.where(entered, scale, 1.0))
            apart.append(np.max(np.where(entered, off, 0.0), axis=2))
    return float(np.max(np.min(apart, axis=0)))


def _hides(setting: Setting, pilot: tuple[Watched, Watched]) -> bool:
    """Whether agents decide to speak in a way that has no likelihood here."""
    decides = "test" in setting.algorithm.draws(setting.cfg, setting.place)
    return decides and any(np.isnan(t.edge).any() for w in pilot for t in w.told or ())


def _power(setting: Setting, pilot: tuple[Watched, Watched]) -> float:
    """How far apart the worlds are: distance of their noise explanations, or of the discriminant's means."""
    if pilot[0].told is None:
        first, second = (features(w.seen) for w in pilot)
        score, _ = discriminant(first, second)
        a, b = score(first), score(second)
        return float(abs(b.mean() - a.mean()) / (np.sqrt((a.var() + b.var()) / 2) + 1e-300))
    ratios = np.concatenate([w.ratio for w in pilot])
    if not np.all(np.isfinite(ratios)):
        return -1.0
    if np.any(np.abs(ratios) > IMPOSSIBLE / 2):
        return np.inf
    apart = np.abs(np.concatenate([w.apart for w in pilot]))
    apart = apart.reshape(len(apart), -1)
    return float(np.mean(apart.sum(1) if "laplace" in setting.laws else np.sqrt((apart**2).sum(1))))


Score = Callable[[np.ndarray], np.ndarray]


def discriminant(first: np.ndarray, second: np.ndarray) -> tuple[Score, float]:
    """Fisher's direction between two clouds and the midpoint; numbers that are sure in both worlds decide at once."""
    gap = second.mean(0) - first.mean(0)
    spread = (np.cov(first.T) + np.cov(second.T)).reshape(len(gap), len(gap)) / 2
    scale = np.sqrt(np.diag(spread))
    sure = scale <= 1e-9 * (1 + np.abs(first.mean(0)))
    tells = sure & (np.abs(gap) > 1e-6 * (1 + np.abs(first.mean(0))))
    if tells.any():
        direction = np.where(tells, gap, 0.0)
    else:
        some = np.where(sure, 1.0, scale)
        even = spread / np.outer(some, some) * np.outer(~sure, ~sure) + np.diag(0.01 + sure)
        direction = np.linalg.solve(even, gap / some * ~sure) / some
    score = lambda x: x @ direction  # noqa: E731
    return score, float((score(first).mean() + score(second).mean()) / 2)


def find_attack(setting: Setting, seed: int = 0) -> tuple[Pair, tuple[Watched, Watched]]:
    """The attack with the most power, and a pilot of it (transcripts of both worlds)."""
    pilots = {a: (watch(setting, a, 0, seed=seed), watch(setting, a, 1, seed=seed)) for a in attacks_on(setting, FEW)}
    best = max(pilots, key=lambda a: _power(setting, pilots[a]))
    return best, pilots[best]


@dataclass(frozen=True)
class Scored:
    """A pilot: the attack and the score that it found best, and the scores of its own transcripts."""

    attack: Pair
    of: Callable[[Watched], np.ndarray]  # larger = more like the second world
    middle: float
    exact: bool  # the score is the exact likelihood ratio
    error: float
    first: np.ndarray
    second: np.ndarray

    def scores(self, setting: Setting, world: int, piece: int, seed: int) -> np.ndarray:
        """Of one piece of fresh transcripts."""
        return self.of(watch(setting, self.attack, world, piece, seed))


def scored(setting: Setting, attack: Pair | None, seed: int, extra: int = 1) -> Scored:
    """Look at transcripts of a pilot's seed for the best attack (unless given) and the best score.

    `extra`: pieces beside the first that a learned score is fitted on.
    """
    if attack is None:
        attack, pilot = find_attack(setting, seed)
    else:
        pilot = (watch(setting, attack, 0, seed=seed), watch(setting, attack, 1, seed=seed))
    error = max(error_of(setting, w, k) for k, w in enumerate(pilot))
    if pilot[0].told is not None:
        exact = bool(error <= EXACT) and not _hides(setting, pilot)
        return Scored(attack, lambda w: w.ratio, 0.0, exact, error, pilot[0].ratio, pilot[1].ratio)
    more = [[pilot[k], *(watch(setting, attack, k, p, seed) for p in range(1, extra + 1))] for k in (0, 1)]
    rows = [np.concatenate([features(w.seen) for w in world]) for world in more]
    score, middle = discriminant(*rows)
    of = lambda w: score(features(w.seen))  # noqa: E731
    return Scored(attack, of, middle, False, error, score(rows[0]), score(rows[1]))


def audit(
    setting: Setting,
    trials: int = 1000,
    *,
    confidence: float = 1 - 1e-5,
    seed: int = 0,
    attack: Pair | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> Verdict:
    """Attack the setting with `trials` transcripts per world and compare what they prove with what is claimed.

    A true claim is called violated with a chance of at most 1 − `confidence`. `progress` hears the share of the work
    that is done.
    """
    if trials < 1:
        raise InputError(f"trials must be >= 1, got {trials}")
    count = -(-trials // PIECE)
    paper = setting.claimed_by == "paper"
    pilot = scored(setting, attack, seed + SHIFT, count if paper else 1)
    progress(0.2)
    threshold = pilot.middle
    if paper:
        tried = [pilot.first, pilot.second]
        if pilot.exact or not np.isnan(pilot.error):
            for k in (0, 1):
                more = [pilot.scores(setting, k, p, seed + SHIFT) for p in range(1, count)]
                tried[k] = np.concatenate([tried[k], *more])
        threshold = _threshold(tried[0], tried[1], setting.delta, confidence)
    progress(0.4)
    scores = []
    for world in (0, 1):
        parts = []
        for piece in range(count):
            parts.append(pilot.scores(setting, world, piece, seed))
            progress(0.4 + 0.6 * (world * count + piece + 1) / (2 * count))
        scores.append(np.concatenate(parts)[:trials])
    return _judge(setting, scores[0], scores[1], threshold, confidence, pilot.exact, pilot.error, pilot.attack.name)


def _threshold(first: np.ndarray, second: np.ndarray, delta: float, confidence: float) -> float:
    """The threshold at which the pilot proves most."""
    pooled = np.concatenate([first, second])
    grid = np.unique(
        np.quantile(pooled, np.concatenate([np.geomspace(1e-4, 0.5, 60), 1 - np.geomspace(1e-4, 0.5, 60)]))
    )
    grid = np.concatenate([grid, [0.0]])
    proved = [bounds.epsilon_bound(bounds.rates(first, second, t, confidence), delta) for t in grid]
    return float(grid[int(np.argmax(proved))])


def pure_limit(events: list[Event]) -> float:
    """Σ pure ε of all events (∞ where one has none)."""
    return float(sum(np.sum(flat(e).pure() * flat(e).times) for e in events)) if events else np.inf


def _judge(
    setting: Setting, first: np.ndarray, second: np.ndarray, threshold: float, confidence: float, exact: bool,
    error: float, attack: str,
) -> Verdict:  # fmt: skip
    """Compare what the scores prove with what is claimed."""
    r = bounds.rates(first, second, threshold, confidence)
    mu_low = bounds.mu_bound(r)
    ratio = float(np.max(np.abs(np.concatenate([first, second])))) if exact else float("nan")
    ratio = np.inf if ratio > IMPOSSIBLE / 2 else ratio
    reasons = []
    if setting.claimed_by == "paper":
        pure = setting.epsilon if setting.delta == 0 else np.inf
        lower = bounds.epsilon_bound(r, setting.delta)
    elif setting.mu is not None:
        pure, lower = np.inf, bounds.epsilon_of_mu(mu_low, setting.delta)
        if mu_low > setting.mu:
            reasons.append(f"the attack needs μ ≥ {mu_low:.3f}, the claim is {setting.mu:.3f}")
    else:
        pure, lower = pure_limit(setting.events), bounds.epsilon_bound(r, setting.delta)
        if bounds.violates(r, lambda e: delta_of(setting.events, e, fast=True)):
            reasons.append("the attack is better than the claimed trade-off curve allows at some ε")
    if exact and np.isfinite(pure) and ratio > pure * (1 + 1e-6) + 1e-9:
        reasons.append(f"a transcript has log-likelihood ratio {ratio:.4g}, a pure claim allows {pure:.4g}")
    if lower > setting.epsilon:
        reasons.append(f"ε ≥ {lower:.3g} is needed, {setting.epsilon:.3g} is claimed")
    return Verdict(
        algorithm=setting.algorithm.slug,
        printed=setting.cfg.printed,
        epsilon=setting.epsilon,
        delta=setting.delta,
        claimed_by=setting.claimed_by,
        lower_bound=lower,
        mu=setting.mu,
        mu_bound=mu_low,
        confidence=confidence,
        trials=len(first),
        exact=exact,
        error=error,
        largest_ratio=ratio,
        pure_limit=pure,
        attack=attack,
        violated=bool(reasons),
        reasons=reasons,
        scores=(first - threshold, second - threshold),
    )
