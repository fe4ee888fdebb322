"""Attack one algorithm: worst neighbouring records, hostile neighbours, thousands of transcripts, a bound.

The worlds differ in one record of a shard whose other records are zero vectors, which add neither gradient nor
curvature. Two canaries are tried (spec 06 §4, 01 §0): the *antipodal* pair ±cos θ·e₁ + sin θ·e₂, whose margins are both
very negative at points −M·e₂, where the gradients differ by 2 cos θ and the loss has no curvature left; and the *flip*
of one label, which is all that a clipped algorithm needs. Neighbours answer with −M·e₂, or echo. Which pair and
environment to use, and the threshold, are fixed on a pilot with other seeds before the trials that count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coterie.algorithms.base import Algorithm, Config, Place, Public
from coterie.audit import bounds
from coterie.audit.transcripts import NEIGHBOURS, Environment, Explanation, explain, play, projection
from coterie.drivers.layout import make_places, rows
from coterie.errors import InputError
from coterie.graphs import make_graph, mixing
from coterie.privacy.accountants import account, delta_of, total_mu
from coterie.privacy.base import flat
from coterie.privacy.budget import calibrate_agents, run_events
from coterie.privacy.events import Event, NonPrivate
from coterie.problems import Linear, Settings, Shard

__all__ = ["Setting", "Verdict", "audit", "make_setting"]

ANGLE, FAR = 0.05, 400.0
PIECE = 250  # transcripts per compiled call; one piece is the pilot


@dataclass(frozen=True)
class Setting:
    """One agent with its price: everything of an audit but the records."""

    algorithm: Algorithm
    cfg: Config
    place: Place
    epsilon: float  # what is claimed for the whole run
    delta: float
    events: list[Event]  # the claim, as events
    records: int
    claimed_by: str

    @property
    def mu(self) -> float | None:
        """μ of the claim, if it is Gaussian."""
        return None if any(isinstance(e, NonPrivate) for e in self.events) else total_mu(self.events)


@dataclass(frozen=True)
class Verdict:
    """What the transcripts say about a claim."""

    algorithm: str
    as_printed: bool
    epsilon: float
    delta: float
    claimed_by: str
    lower_bound: float  # ε that must be spent, at `confidence`
    mu: float | None
    mu_bound: float
    confidence: float
    trials: int
    exact: bool  # the score was the exact likelihood ratio
    largest_ratio: float  # largest |log-likelihood ratio| seen
    pure_limit: float  # what a pure claim allows it to be
    attack: str
    violated: bool
    reasons: list[str] = field(default_factory=list)
    scores: Any = None  # (first world, second world), for plots


def make_setting(
    algorithm: Algorithm,
    cfg: Config | None = None,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    rounds: int = 6,
    records: int = 4,
    as_printed: bool = False,
    noise: float | None = None,
) -> Setting:
    """Price one agent of a small network for a budget (or at a given noise multiplier)."""
    if not algorithm.private:
        raise InputError(f"{algorithm.slug} makes no privacy claim: there is nothing to audit")
    cfg = cfg or getattr(algorithm.module, "AUDIT", None) or algorithm.EXAMPLE
    kind = getattr(algorithm.module, "GRAPHS", ("ring",))[0]
    graph = make_graph(kind, NEIGHBOURS + 1)  # agent 0 has two neighbours in every kind
    weights = mixing(graph, "metropolis")
    problem = Linear(2)
    sizes = np.full(3, records)
    public = Public(
        agents=3, rounds=rounds, dim=2, count_min=records, count_max=records, degree_min=int(graph.degrees.min()),
        degree_max=int(graph.degrees.max()), laplacian_max=float(graph.laplacian_extremes[1]),
        mixing_gap=weights.spectrum().gap, ridge=0.05, lipschitz=problem.lipschitz, smoothness=problem.smoothness,
        epsilon=epsilon, delta=delta,
    )  # fmt: skip
    if algorithm.has("tune"):
        cfg = algorithm.tune(cfg, public)
    if as_printed and "as_printed" not in type(cfg).model_fields:
        raise InputError(f"{algorithm.slug} has no printed version that differs")
    with jax.enable_x64(True):
        places = make_places(problem, sizes, graph, weights, rounds=rounds, ridge=0.05)
        start = jnp.asarray([0.0, -FAR])
        places = eqx.tree_at(lambda p: p.start, places, start)
        if noise is None:
            noise = float(calibrate_agents(algorithm, cfg, places, epsilon, delta)[0])
        place = eqx.tree_at(lambda p: p.noise, rows(places, 0), jnp.asarray(noise))
        claimed_by = "accountant"
        if as_printed:
            cfg = cfg.replace(as_printed=True)
            claimed_by = "paper"
            epsilon = float(algorithm.claim(cfg, place, delta)) if algorithm.has("claim") else epsilon
            events = run_events(algorithm, cfg.replace(as_printed=False), place)
        else:
            events = run_events(algorithm, cfg, place)
            epsilon = account(events, delta).epsilon
    return Setting(algorithm, cfg, place, epsilon, delta, events, records, claimed_by)


def _shards(records: int, pair: str) -> tuple[Shard, Shard]:
    canaries = {
        "antipodal": ([np.cos(ANGLE), np.sin(ANGLE)], [-np.cos(ANGLE), np.sin(ANGLE)]),
        "flip": ([1.0, 0.0], [-1.0, 0.0]),
    }[pair]
    out = []
    for canary in canaries:
        features = np.zeros((records, 2))
        features[0] = canary
        numbers = jnp.ones(records), jnp.asarray(records), jnp.asarray(1.0 / records), jnp.asarray(0.05)
        out.append(Shard(Linear(2), jnp.asarray(features), *numbers, Settings(tolerance=1e-11, max_steps=100)))
    return out[0], out[1]


ATTACKS: dict[str, tuple[str, float, bool]] = {  # name -> (pair, how far away the neighbours are, whether they echo)
    "antipodal records, neighbours far away": ("antipodal", FAR, False),
    "flipped label, neighbours far away": ("flip", FAR, False),
    "antipodal records, neighbours echo": ("antipodal", 0.0, True),
    "flipped label, neighbours at zero": ("flip", 0.0, False),
}


@dataclass(frozen=True)
class _Scored:
    first: np.ndarray  # scores of the first world's transcripts, larger = more like the second world
    second: np.ndarray
    exact: bool
    gap: float  # how far apart the worlds' noise explanations are: the power of the attack, free of sampling error


def _score(setting: Setting, attack: str, trials: int, seed: int) -> _Scored:
    """Score transcripts of both worlds, in pieces of one compiled shape."""
    pair, away, echo = ATTACKS[attack]
    shards = _shards(setting.records, pair)
    environment = Environment(jnp.asarray([0.0, -away]), jnp.asarray(echo))
    args = (setting.algorithm, setting.cfg, setting.place)
    lean = projection(np.array([-1.0, 0.0]))
    scores: tuple[list, list] = [], []
    gaps, exact = [], True
    for world in (0, 1):
        for piece in range(-(-trials // PIECE)):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 2 * piece + world), PIECE)
            seen = play(*args, shards[world], environment, keys)
            told: list[Explanation | None] = [explain(*args, s, environment, seen) for s in shards]
            if told[0] is None or told[1] is None:
                exact = False
                scores[world].append(lean(seen))
            else:
                scores[world].append(np.asarray(told[1].log_likelihood - told[0].log_likelihood))
                apart = np.asarray(told[1].noise - told[0].noise).reshape(PIECE, -1)
                gaps.append(np.sqrt(np.mean(np.sum(apart**2, axis=1))))
    first, second = (np.concatenate(s)[:trials] for s in scores)
    if not exact:
        spread = np.sqrt((first.var() + second.var()) / 2) + 1e-300
        gaps = [abs(second.mean() - first.mean()) / spread]
    return _Scored(first, second, exact, float(np.nan_to_num(np.mean(gaps), nan=-1.0, posinf=-1.0)))


def audit(setting: Setting, trials: int = 1000, *, confidence: float = 0.99, seed: int = 0) -> Verdict:
    """Attack the setting with `trials` transcripts per world and compare what they prove with what is claimed."""
    with jax.enable_x64(True):
        pilots = {name: _score(setting, name, PIECE, seed + 1_000_003) for name in ATTACKS}
        best = max(pilots, key=lambda name: pilots[name].gap)
        pilot = pilots[best]
        threshold = 0.0 if pilot.exact else float((pilot.first.mean() + pilot.second.mean()) / 2)
        sign = 1.0 if pilot.second.mean() >= pilot.first.mean() else -1.0
        scored = _score(setting, best, trials, seed)
    first, second = sign * scored.first, sign * scored.second
    r = bounds.rates(first, second, sign * threshold, confidence)
    mu_low = bounds.mu_bound(r)
    ratio = float(np.max(np.abs(np.concatenate([first, second])))) if scored.exact else float("nan")
    pure = float(sum(np.sum(flat(e).pure() * flat(e).times) for e in setting.events)) if setting.events else np.inf
    reasons = []
    if setting.mu is not None:
        lower = bounds.epsilon_of_mu(mu_low, setting.delta)
        if setting.claimed_by == "accountant" and mu_low > setting.mu:
            reasons.append(f"the attack needs μ ≥ {mu_low:.3f}, the claim is {setting.mu:.3f}")
    else:
        lower = bounds.epsilon_bound(r, setting.delta)
        if setting.claimed_by == "accountant" and bounds.violates(r, lambda e: delta_of(setting.events, e, fast=True)):
            reasons.append("the attack is better than the claimed trade-off curve allows at some ε")
        if scored.exact and np.isfinite(pure) and ratio > pure * (1 + 1e-6) + 1e-9:
            reasons.append(f"a transcript has log-likelihood ratio {ratio:.4g}, a pure claim allows {pure:.4g}")
            lower = max(lower, ratio if setting.delta == 0 else lower)
    if lower > setting.epsilon:
        reasons.append(f"ε ≥ {lower:.3g} is needed, {setting.epsilon:.3g} is claimed")
    return Verdict(
        algorithm=setting.algorithm.slug,
        as_printed=bool(getattr(setting.cfg, "as_printed", False)),
        epsilon=setting.epsilon,
        delta=setting.delta,
        claimed_by=setting.claimed_by,
        lower_bound=lower,
        mu=setting.mu,
        mu_bound=mu_low,
        confidence=confidence,
        trials=trials,
        exact=scored.exact,
        largest_ratio=ratio,
        pure_limit=pure,
        attack=best,
        violated=bool(reasons),
        reasons=reasons,
        scores=(first, second),
    )
