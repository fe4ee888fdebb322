r"""Attack on what really leaves a deployed party: the integers of its frames, with the noise that it really draws.

Same adversary as in `coterie.audit.audit`: it knows every record but one and is all neighbours, who stand far away
where both candidates saturate the sensitivity. Here the transcript is bytes. `coterie.deploy.party.Party` computes
the integers, `coterie.deploy.noise.SystemSource` draws from the operating system, `Wire` encodes. The likelihood is
exact and discrete: a party that is run again on the same history without noise says which integer r_w a world w would
have started from, and k − r_w is then noise,

    log P_w(k) = −Σ (k − r_w)²/(2 · GRID_VARIANCE) + const      (Laplace: −Σ |k − r_w|/GRID_LAPLACE_SCALE + const),

with the same constant in both worlds, since both laws live on all integers. μ of the claim is that of the *charged*
events: rounding to the grid and the discreteness of the noise are in it.

Where neighbours share noise, the attack is that of a coalition which the plan's claim allows, and of everybody else
together (`coterie.audit.shared_wire`): both know a part of the noise.

Where more than one draw makes a message (noise inside a solve, tests, masks, blurs, batches) integers have no
likelihood in closed form. They are then read as the numbers that they stand for and scored as a simulation's are
(`coterie.audit.transcripts`): by the likelihood of the ideal mechanism, or by a direction learned from a pilot. Any
score is good for a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import jax
import numpy as np
from jaxtyping import PyTree
from scipy.stats import chi2, gamma

from coterie.algorithms.base import Algorithm, find
from coterie.algorithms.laws import Grid, LaplaceLaw, Law, Normal, Shared
from coterie.audit import bounds
from coterie.audit.audit import discriminant
from coterie.audit.checks import RARE
from coterie.audit.neighbours import Neighbours
from coterie.audit.setting import ANGLE, FAR, RIDGE, WHOLE
from coterie.audit.shared_wire import Coalition, many
from coterie.audit.transcripts import IMPOSSIBLE, Transcripts, explain, explainable, features
from coterie.deploy.noise import UNITS, Drawn, Source, SystemSource
from coterie.deploy.party import Carry, Party, Records, Terms
from coterie.deploy.work import Turns, wire_of
from coterie.drivers.agent import greet
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
    gone: tuple[int, ...] = ()  # who pools secrets against the party, where neighbours share noise

    def coalition(self, source: Source | None) -> Coalition | None:
        """Draws of the party, and what the others know of them, where neighbours share noise; fresh secrets."""
        laws = [law for law in self.terms.draws(0).values() if isinstance(law, Shared)]
        return Coalition(len(NAMES), self.gone, float(laws[0].ratio), source) if laws else None

    @property
    def exact(self) -> bool:
        """Whether integers have a likelihood in closed form: one draw, and a message on the grid of it."""
        return len(self.terms.draws(0)) == 1 and self.terms.priced.algorithm.lattice is None

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
        count = self.parties[0].count
        point = self.point if count == self.point.size else np.full(count, np.linalg.norm(self.point))
        return np.clip(np.rint(point[None] / steps[:, None]), -limit[:, None], limit[:, None] - 1).astype(np.int64)


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
    noise: float | None = None  # scale of the noise that explains the runs, of the declared one; None: not looked for
    scores: tuple[np.ndarray, np.ndarray] | None = None

    def as_json(self) -> dict[str, object]:
        """Everything but the scores."""
        return {k: v for k, v in vars(self).items() if k != "scores"}


def make_worlds(
    slug: str, *, epsilon: float = 8.0, delta: float = 1e-5, rounds: int = 20, records: int = 4,
    settings: dict[str, object] | None = None, everybody: bool = False,
) -> Worlds:  # fmt: skip
    """Two parties of a deployed plan that differ in one record.

    `everybody`: where neighbours share noise, all of them pool what they know, not as many as the plan's claim says.
    """
    algorithm = find(slug)
    apart, pair = _attacked(algorithm, records), []
    plan = validate(
        {
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [records] * len(NAMES)},
            "graph": {"kind": (algorithm.graphs or ("complete",))[0]},
            "problem": apart.problem,
            "algorithm": {"name": slug, **apart.settings, **(settings or {})},
            "privacy": {"epsilon": epsilon, "delta": delta},
            "run": {"rounds": apart.rounds or rounds},
            "deploy": {
                "parties": [{"name": n, "address": f"{n}.example:443"} for n in NAMES],
                "bound": 1e3 if algorithm.lattice is None else 1e4,  # grids too fine to matter reach far
            },
        }
    )
    terms = Terms.of(plan)
    turns = Turns.of(terms, 0)
    for row, target in apart.pair:
        features, targets = np.tile(apart.rest, (records, 1)), np.full(records, apart.pair[0][1])
        features[0], targets[0] = row, target
        pair.append(Party(turns, Records(features, targets, apart.classes, ())))
    events, cfg = run_events(terms.priced.algorithm, terms.priced.cfg, terms.place(0)), terms.priced.cfg
    gone = tuple(range(1, 1 + getattr(cfg, "curious", 0) + getattr(cfg, "missing", 0)))
    if everybody:
        alone = terms.alone(0)
        if alone is None:
            raise InputError(f"{slug} shares no noise: its claim is against everybody else already")
        events, gone = alone, tuple(range(1, len(NAMES)))
    said = account(events, delta).epsilon
    mu = total_mu(
        [replace(e, tv=0.0 * e.tv) for e in events]
    )  # the tables' error, 1e-32 a number, is beyond any attack
    return Worlds(terms, (pair[0], pair[1]), np.array([0.0, -FAR]), said, delta, mu, gone)


@dataclass(frozen=True)
class _Attacked:
    """A small problem for an algorithm, and two records that no others are farther apart than."""

    problem: Mapping[str, object]
    settings: Mapping[str, object]
    classes: tuple[str, ...] | None
    pair: tuple[tuple[tuple[float, ...], int], tuple[tuple[float, ...], int]]
    rest: tuple[float, ...] = (0.0, 0.0)  # every other record
    rounds: int | None = None  # where the algorithm says how many there are


def _attacked(algorithm: Algorithm, records: int) -> _Attacked:
    """±cos θ·u + sin θ·v for a loss on records; for sums over groups another group and −u; for a shared resource,
    which the neighbours leave to the party, the ends of a range."""
    needs = algorithm.needs(algorithm.example)
    if needs.released:
        names = tuple(f"{label} ({group})" for group in "fm" for label in ("no", "yes"))
        pair = ((1.0, 0.0), 0), ((-1.0, 0.0), 2)
        return _Attacked({"loss": "fair", "dim": 2, "classes": 4}, {}, names, pair, rounds=3)
    if needs.coupled:
        own = {"low": -1, "high": [1, 1], "curvature": [1, 1], "slope": [-1, 1]}
        return _Attacked({"loss": "coupled", "total": -2.0, "variables": [own] * len(NAMES)}, {}, None,
                         (((1.0, 1.0, -1.0, -1.0), 0), ((1.0, 1.0, 1.0, 1.0), 0)), (1.0, 1.0, 0.0, 0.0))  # fmt: skip
    example = algorithm.example.model_dump(exclude_none=True)
    problem = {"loss": "logistic", "dim": 2, "ridge": RIDGE}
    cos, sin = float(np.cos(ANGLE)), float(np.sin(ANGLE))
    return _Attacked(problem, {**example, **_attackable(algorithm, records)}, ("no", "yes"),
                     (((cos, sin), 1), ((-cos, sin), 1)))  # fmt: skip


def _attackable(algorithm: Algorithm, records: int) -> dict[str, object]:
    """Settings under which every record is used in every round, and noise that has a law on a grid."""
    found = {k: v for k, v in WHOLE.get(algorithm.slug, {}).items() if v is not None}
    found |= {"batch": records} if algorithm.slug in WHOLE else {}
    return found | ({"noise": "gaussian"} if getattr(algorithm.example, "noise", None) == "gamma" else {})


class _Crowd:
    """Many runs of the party in either world at once: the same `turn`, compiled over an axis of transcripts."""

    def __init__(self, worlds: Worlds):
        self.worlds = worlds
        with jax.enable_x64(True):
            self._turn = jax.jit(jax.vmap(worlds.parties[0].turns.turn, (None, None, 0, 0)))

    def begin(self, count: int) -> Carry:
        return jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), self.worlds.parties[0].begin())

    def turn(self, world: int, t: int, carry: Carry, draw: Drawn) -> tuple[Carry, np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            kept, numbers, sent = self._turn(self.worlds.parties[world].shard, t, carry, draw)
            return carry.spoken(kept, numbers), np.asarray(numbers), np.asarray(sent)

    def hear(self, t: int, carry: Carry) -> Carry:
        pairs = zip(self.worlds.said(t), carry.heard, strict=True)
        heard = tuple(np.broadcast_to(said.astype(last.dtype), last.shape) for said, last in pairs)
        return carry._replace(heard=heard, when=np.full_like(carry.when, t))


def speak(worlds: Worlds, world: int, count: int, source: Source | None = None) -> bytes:
    """What `count` runs of the party send, as the frames' payloads: (run, round, number)."""
    return _speak(worlds, world, count, source)[0]


def _speak(worlds: Worlds, world: int, count: int, source: Source | None) -> tuple[bytes, np.ndarray]:
    """The payloads, and which of them are messages: (run, round)."""
    source = source or SystemSource()
    crowd, rounds = worlds.crowd, worlds.terms.rounds
    wire, laws = wire_of(worlds.terms, worlds.parties[world].count), worlds.terms.draws(0)
    drawn = {name: many(law, count) for name, law in laws.items()}
    carry, sent, spoke = crowd.begin(count), np.empty((count, rounds), object), np.empty((count, rounds), bool)
    for t in range(rounds):
        carry, numbers, spoke[:, t] = crowd.turn(world, t, carry, source.draw(t, drawn))
        sent[:, t] = [wire.encode(row, 0, t) for row in np.where(spoke[:, t, None], numbers, 0)]
        carry = crowd.hear(t, carry)
    return b"".join(sent.ravel()), spoke


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
        carry, again, _ = crowd.turn(world, t, carry, {name: Grid(rest.reshape(zero.shape), unit)})
        out[:, t] = np.where(np.any(again != numbers[:, t], axis=1, keepdims=True), np.nan, rest)
        carry = crowd.hear(t, carry)
    return out


def ratio(worlds: Worlds, sent: bytes, told: Coalition | None = None) -> np.ndarray:
    """Log-likelihood ratio of each run, larger = more like the second world; `told`: who knows a part of the noise.

    A message that one world explains without any noise at all is taken as that world's: fresh noise is zero in every
    number of a message with a probability below 10⁻⁵ per number.
    """
    _, law, unit = worlds.law
    likely = []
    for world in (0, 1):
        steps = explain_bytes(worlds, world, sent)
        none, noise = np.all(steps == 0, axis=2), steps / unit
        if told is not None:
            rest = (steps - told.known.reshape(steps.shape)) / unit / told.variance**0.5
            noise = np.where(none[:, :, None], 0.0, rest)
            none |= np.all(steps == told.bare.reshape(steps.shape), axis=2)
        weight = np.sum(-np.abs(noise) if isinstance(law, LaplaceLaw) else -(noise**2) / 2, axis=2)
        weight = np.where(np.isnan(weight), -IMPOSSIBLE, weight) + IMPOSSIBLE * none
        likely.append(np.sum(weight, axis=1))
    return likely[1] - likely[0]


def _read(worlds: Worlds, sent: bytes, spoke: np.ndarray) -> Transcripts:
    """The numbers that payloads stand for, as a simulation's transcripts: a silent round repeats the last message."""
    terms, party = worlds.terms, worlds.parties[0]
    algorithm, cfg, place = terms.priced.algorithm, terms.priced.cfg, terms.place(0)
    wire = wire_of(terms, party.count)
    whole = [wire.decode(sent[k : k + wire.bytes]) for k in range(0, len(sent), wire.bytes)]
    said = np.array(whole, float).reshape(*spoke.shape, -1) * terms.steps.size[0][None, :, None]
    first = greet(algorithm, cfg, place, party.shard)
    goes = [getattr(first, n) for n in algorithm.travels] if algorithm.travels else jax.tree.leaves(first)
    last = np.concatenate([np.ravel(x) for x in goes])
    for t in range(said.shape[1]):
        said[:, t] = last = np.where(spoke[:, t, None], said[:, t], last)
    messages: PyTree = said
    if len(leaves := jax.tree.leaves(first)) == 1:
        shaped = jax.device_put(said.reshape(*spoke.shape, *leaves[0].shape))
        messages = jax.tree.unflatten(jax.tree.structure(first), [shaped])
    return Transcripts(messages, jax.device_put(spoke), jax.device_put(np.zeros(())), {})


@dataclass(frozen=True)
class _Judged:
    """Scores of both worlds' runs, larger = more like the second; the middle, fixed before the runs that count; and
    the standard noise that explains each world's own runs, if it could be found."""

    scores: list[np.ndarray]
    middle: float
    noise: np.ndarray | None


def _judged(worlds: Worlds, trials: int, source: Source | None) -> _Judged:
    terms = worlds.terms
    args = terms.priced.algorithm, terms.priced.cfg, terms.place(0)
    sizes = [min(PIECE, trials - low) for low in range(0, trials, PIECE)]
    with jax.enable_x64(True):
        shards = [party.shard for party in worlds.parties]
        neighbours = Neighbours.at(worlds.point, degree=len(worlds.parties[0].neighbours))
        if not explainable(*args, shards[0]):
            rows = lambda world, count: features(_read(worlds, *_speak(worlds, world, count, source)))  # noqa: E731
            score, middle = discriminant(rows(0, PIECE), rows(1, PIECE))
            return _Judged([np.concatenate([score(rows(w, n)) for n in sizes]) for w in (0, 1)], middle, None)
        scores: list[list[np.ndarray]] = [[], []]
        noise: list[np.ndarray] = []
        most = (1 - 1e-9) * terms.steps.limit[0] * terms.steps.size[0]
        for world in (0, 1):
            for count in sizes:
                seen = _read(worlds, *_speak(worlds, world, count, source))
                told = [explain(*args, shard, neighbours, seen) for shard in shards]
                scores[world].append(told[1].log_likelihood - told[0].log_likelihood)
                own, said = told[world], np.abs(jax.tree.leaves(seen.messages)[0]).reshape(count, terms.rounds, -1)
                whole = np.all(said < most[:, None], axis=(1, 2))  # a number that was cut at the bound explains nothing
                clear = np.asarray(own.scale != 0) & np.asarray(own.width == 0)
                noise.append(np.asarray(own.noise)[whole][clear[whole]])
    return _Judged([np.concatenate(s) for s in scores], 0.0, np.concatenate(noise))


def _short(noise: np.ndarray, laws: Iterable[Law]) -> tuple[float, bool]:
    """The scale of standard noise, and whether it is too small to be one of 1 by chance."""
    if any(isinstance(law, Normal) for law in laws):
        return float(np.sqrt(np.mean(noise**2))), bool(chi2.cdf(np.sum(noise**2), noise.size) < RARE)
    return float(np.mean(np.abs(noise))), bool(gamma.cdf(np.sum(np.abs(noise)), noise.size) < RARE)


def audit_wire(
    worlds: Worlds, trials: int = 1000, *, confidence: float = 0.99, source: Source | None = None
) -> WireVerdict:
    """Attack the deployed party with `trials` runs per world, at a threshold that is fixed before."""
    if trials < 1:
        raise InputError(f"trials must be >= 1, got {trials}")
    scores, middle, scale, short = list[np.ndarray](), 0.0, None, False  # the middle by symmetry
    if worlds.exact:
        for world in (0, 1):
            pieces = [min(PIECE, trials - low) for low in range(0, trials, PIECE)]
            told = [worlds.coalition(source) for _ in pieces]
            parts = [ratio(worlds, speak(worlds, world, n, c or source), c) for n, c in zip(pieces, told, strict=True)]
            scores.append(np.concatenate(parts))
    else:
        found = _judged(worlds, trials, source)
        scores, middle = found.scores, found.middle
        if found.noise is not None and found.noise.size:
            scale, short = _short(found.noise, worlds.terms.draws(0).values())
    r = bounds.rates(scores[0], scores[1], middle, confidence)
    mu_low = bounds.mu_bound(r)
    if worlds.mu is not None:
        lower, violated = bounds.epsilon_of_mu(mu_low, worlds.delta), mu_low > worlds.mu
    else:
        lower = bounds.epsilon_bound(r, worlds.delta)
        violated = lower > worlds.epsilon
    slug, against = worlds.terms.priced.algorithm.slug, "" if len(worlds.gone) < len(NAMES) - 1 else ", everybody else"
    return WireVerdict(slug + against, worlds.epsilon, worlds.delta, worlds.mu, mu_low, lower, confidence,
                       trials, violated or short, scale, (scores[0], scores[1]))  # fmt: skip
