r"""Attack on what really leaves a deployed party: the integers of its frames, with the noise that it really draws.

Same adversary as in `coterie.audit.audit`: it knows every record but one and is all neighbours, who stand far away
where both candidates saturate the sensitivity. Here the transcript is bytes. `coterie.deploy.party.Party` computes
the integers, `coterie.deploy.noise.SystemSource` draws from the operating system, `Wire` encodes. The likelihood is
exact and discrete: a party that is run again on the same history without noise says which integer r_w a world w would
have started from, and k − r_w is then noise,

    log P_w(k) = −Σ (k − r_w)²/(2 · GRID_VARIANCE) + const      (Laplace: −Σ |k − r_w|/GRID_LAPLACE_SCALE + const),

with the same constant in both worlds, since both laws live on all integers. μ of the claim is that of the *charged*
events: rounding to the grid and the discreteness of the noise are in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from coterie.algorithms.base import find
from coterie.algorithms.laws import Grid, LaplaceLaw, Law
from coterie.audit import bounds
from coterie.audit.setting import ANGLE, FAR, RIDGE
from coterie.audit.transcripts import IMPOSSIBLE
from coterie.deploy.noise import UNITS, Source, SystemSource
from coterie.deploy.party import Carry, Party, Records, Terms
from coterie.deploy.work import Turns, wire_of
from coterie.drivers.budget import run_events
from coterie.errors import InputError
from coterie.plan import validate
from coterie.privacy.accountants import account, total_mu

__all__ = ["WireVerdict", "Worlds", "audit_wire", "explain_bytes", "make_worlds", "speak"]

PIECE = 1000  # transcripts per compiled call
NAMES = ("target", "left", "right")


@dataclass(frozen=True)
class Worlds:
    """The attacked party with either record, and what its neighbours always say (a point)."""

    terms: Terms
    parties: tuple[Party, Party]
    point: np.ndarray
    epsilon: float
    delta: float
    mu: float | None  # of the charged events, if Gaussian

    @property
    def law(self) -> tuple[str, Law, float]:
        """Name, law and grid unit of the noise."""
        ((name, law),) = self.terms.draws(0).items()
        return name, law, UNITS[type(law)]

    @cached_property
    def crowd(self) -> _Crowd:
        """Both parties, compiled for many runs at once."""
        return _Crowd(self)

    def said(self, t: int) -> np.ndarray:
        """The neighbours' integers of round t."""
        steps, limit = self.terms.steps.size[1:, t], self.terms.steps.limit[1:, t]
        return np.clip(np.rint(self.point[None] / steps[:, None]), -limit[:, None], limit[:, None]).astype(np.int64)


@dataclass(frozen=True)
class WireVerdict:
    """What the bytes say about a deployed claim."""

    algorithm: str
    epsilon: float
    delta: float
    mu: float | None
    mu_bound: float
    lower_bound: float  # ε that must be spent, at `confidence`
    confidence: float
    trials: int
    violated: bool
    scores: Any = None

    def as_json(self) -> dict[str, object]:
        """Everything but the scores."""
        return {k: v for k, v in vars(self).items() if k != "scores"}


def make_worlds(
    slug: str, *, epsilon: float = 8.0, delta: float = 1e-5, rounds: int = 20, records: int = 4,
    settings: dict[str, object] | None = None,
) -> Worlds:  # fmt: skip
    """Two parties of a deployed plan that differ in one record: ±cos θ·u + sin θ·v among zero vectors."""
    algorithm = find(slug)
    example = algorithm.example.model_dump(exclude_none=True)
    plan = validate(
        {
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [records] * len(NAMES)},
            "graph": {"kind": (algorithm.graphs or ("complete",))[0]},
            "problem": {"loss": "logistic", "dim": 2, "ridge": RIDGE},
            "algorithm": {"name": slug, **example, **(settings or {})},
            "privacy": {"epsilon": epsilon, "delta": delta},
            "run": {"rounds": rounds},
            "deploy": {"parties": [{"name": n, "address": f"{n}.example:443"} for n in NAMES]},
        }
    )
    terms = Terms.of(plan)
    draws = terms.draws(0)
    if len(draws) != 1:
        raise InputError(f"{slug} draws secret coins besides its noise: bytes have no exact likelihood")
    turns, pair = Turns.of(terms, 0), []
    for sign in (1.0, -1.0):
        features = np.zeros((records, 2))
        features[0] = sign * np.cos(ANGLE), np.sin(ANGLE)
        pair.append(Party(turns, Records(features, np.ones(records, int), ("no", "yes"), ())))
    events = run_events(terms.priced.algorithm, terms.priced.cfg, terms.place(0))
    said = account(events, delta).epsilon
    mu = total_mu(
        [replace(e, tv=0.0 * e.tv) for e in events]
    )  # the tables' error, 1e-32 a number, is beyond any attack
    return Worlds(terms, (pair[0], pair[1]), np.array([0.0, -FAR]), said, delta, mu)


class _Crowd:
    """Many runs of the party in either world at once: the same `turn`, compiled over an axis of transcripts."""

    def __init__(self, worlds: Worlds):
        self.worlds = worlds
        with jax.enable_x64(True):
            self._turn = jax.jit(jax.vmap(worlds.parties[0].turns.turn, (None, None, 0, 0)))

    def begin(self, count: int) -> Carry:
        return jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), self.worlds.parties[0].begin())

    def turn(self, world: int, t: int, carry: Carry, draw: dict[str, object]) -> tuple[Carry, np.ndarray]:
        with jax.enable_x64(True):
            kept, numbers, _ = self._turn(self.worlds.parties[world].shard, t, carry, draw)
            return Carry(kept, carry.heard, carry.when), np.asarray(numbers)

    def hear(self, t: int, carry: Carry) -> Carry:
        pairs = zip(self.worlds.said(t), carry.heard, strict=True)
        heard = tuple(np.broadcast_to(said.astype(last.dtype), last.shape) for said, last in pairs)
        return Carry(carry.kept, heard, np.full_like(carry.when, t))


def speak(worlds: Worlds, world: int, count: int, source: Source | None = None) -> bytes:
    """What `count` runs of the party send, as the frames' payloads: (run, round, number), little-endian integers."""
    source = source or SystemSource()
    crowd, rounds = worlds.crowd, worlds.terms.rounds
    wire, (name, law, _) = wire_of(worlds.terms, worlds.parties[world].count), worlds.law
    carry, sent = crowd.begin(count), np.empty((count, rounds), object)
    for t in range(rounds):
        carry, numbers = crowd.turn(world, t, carry, source.draw(t, {name: type(law)(count, *law.shape)}))
        sent[:, t] = [wire.encode(row, 0, t) for row in numbers]
        carry = crowd.hear(t, carry)
    return b"".join(sent.ravel())


def explain_bytes(worlds: Worlds, world: int, sent: bytes) -> np.ndarray:
    """The noise in grid steps, (run, round, number), that this world must have drawn to send these bytes.

    NaN in a round that carries no noise and from which this world would have sent something else.
    """
    party, rounds = worlds.parties[world], worlds.terms.rounds
    wire, (name, law, unit) = wire_of(worlds.terms, party.count), worlds.law
    numbers = np.frombuffer(sent, wire.dtype).reshape(-1, rounds, wire.count).astype(np.int64)
    count, crowd = len(numbers), worlds.crowd
    carry, out = crowd.begin(count), np.empty(numbers.shape)
    zero = np.zeros((count, *law.shape), np.int64)
    for t in range(rounds):
        rest = numbers[:, t] - crowd.turn(world, t, carry, {name: Grid(zero, unit)})[1]
        carry, again = crowd.turn(world, t, carry, {name: Grid(rest.reshape(zero.shape), unit)})
        out[:, t] = np.where(np.any(again != numbers[:, t], axis=1, keepdims=True), np.nan, rest)
        carry = crowd.hear(t, carry)
    return out


def ratio(worlds: Worlds, sent: bytes) -> np.ndarray:
    """Log-likelihood ratio of each run, larger = more like the second world.

    A message that one world explains without any noise at all is taken as that world's: fresh noise is zero in every
    number of a message with a probability below 10⁻⁵ per number.
    """
    _, law, unit = worlds.law
    likely = []
    for world in (0, 1):
        noise = explain_bytes(worlds, world, sent) / unit
        weight = np.sum(-np.abs(noise) if isinstance(law, LaplaceLaw) else -(noise**2) / 2, axis=2)
        weight = np.where(np.isnan(weight), -IMPOSSIBLE, weight) + IMPOSSIBLE * np.all(noise == 0, axis=2)
        likely.append(np.sum(weight, axis=1))
    return likely[1] - likely[0]


def audit_wire(
    worlds: Worlds, trials: int = 1000, *, confidence: float = 0.99, source: Source | None = None
) -> WireVerdict:
    """Attack the deployed party with `trials` runs per world; no threshold is chosen: the middle is 0 by symmetry."""
    if trials < 1:
        raise InputError(f"trials must be >= 1, got {trials}")
    scores = []
    for world in (0, 1):
        pieces = [min(PIECE, trials - low) for low in range(0, trials, PIECE)]
        scores.append(np.concatenate([ratio(worlds, speak(worlds, world, n, source)) for n in pieces]))
    r = bounds.rates(scores[0], scores[1], 0.0, confidence)
    mu_low = bounds.mu_bound(r)
    if worlds.mu is not None:
        lower, violated = bounds.epsilon_of_mu(mu_low, worlds.delta), mu_low > worlds.mu
    else:
        lower = bounds.epsilon_bound(r, worlds.delta)
        violated = lower > worlds.epsilon
    return WireVerdict(worlds.terms.priced.algorithm.slug, worlds.epsilon, worlds.delta, worlds.mu, mu_low, lower,
                       confidence, trials, violated, tuple(scores))  # fmt: skip
