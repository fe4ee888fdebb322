r"""Attack on opened sums: what colluding parties make of the frames and stores of deployed ones that share their noise.

Two worlds that differ in one record of party 0, as in `coterie.audit.wire`; everybody else stands far away, where both
candidates saturate the sensitivity. Nothing of the protocol is imitated: `SharedParty` computes the message, and real
`SumParty`s mask, commit, add, vote and open it. All runs of both worlds lie side by side in one long vector, so that
one round of the protocol serves them all; every number has noise of its own.

- **main**: c parties that answer pool what they drew, what they hold and the opened totals. They take off their own
  vectors and layers, the other honest parties' vectors (they know every record but one), and whatever of the honest
  parties' noise the product's own code draws again from secrets that were given out. Left are party 0's message and the
  noise of N − r − c parties, r of whom may be missing, differently from round to round.
- **local**: all N − 1 others do. They take every mask off party 0's words, and all noise that follows from a shared
  seed. Left are its message and layer 0.

What is left is whole numbers, and the likelihood is exact: discrete Gaussian noise of the variance v that was not taken
off, log P_w = −Σ (k − r_w)²/2v, where r_w is the integer that a world's message starts from. Sums of layers are within
log-ratio 1e-35 of that law.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.algorithms.base import find
from coterie.audit import bounds
from coterie.audit.setting import ANGLE, FAR, RIDGE
from coterie.audit.transcripts import IMPOSSIBLE
from coterie.audit.wire import WireVerdict
from coterie.deploy.agreement import Agreement, read_agreement
from coterie.deploy.keys import PartyKeys, load_party
from coterie.deploy.party import Carry, Records, Terms
from coterie.deploy.shared import SharedCarry, SharedParty, join
from coterie.deploy.sharing import sealing_key
from coterie.deploy.trial import sign_trial
from coterie.deploy.work import Turns
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy.accountants import account, total_mu
from coterie.privacy.events import Event, Free
from coterie.sums.core import Outgoing
from coterie.sums.messages import Answered, SumFrame, read_secrets, read_words
from coterie.sums.party import SumParty
from coterie.sums.secrets import Context, SlotSecrets, pair_mask, self_mask, walk
from coterie.sums.shamir import SECRET, Weights
from coterie.sums.store import Charge, Key, MemoryStore
from coterie.sums.terms import SharedTerms
from coterie.sums.words import add, subtract, to_signed

__all__ = ["Claimed", "Heard", "SumSeat", "SumWorlds", "audit_sums", "listen", "sum_worlds", "sums_of_plan"]

TARGET = 0
SHARED: dict[str, Any] = {"noise": "central", "honest": 4, "threshold": 4}  # of five parties, without a plan
PARTIES, RECORDS, ROUNDS = 5, 4, 20
PIECE = 20_000  # runs of both worlds that lie side by side
TICKS = 4000  # looks at the clock after which a round counts as stuck


@dataclass(frozen=True)
class Claimed:
    """What is claimed of the rounds against one adversary."""

    words: str
    epsilon: float
    mu: float


@dataclass(frozen=True)
class SumWorlds:
    """Party 0 with either record, and all that the parties of its sums agreed on."""

    plan: Plan
    agreement: Agreement
    keys: tuple[PartyKeys, ...]
    parties: tuple[SharedParty, SharedParty]
    point: NDArray[np.float64]  # what everybody else says
    delta: float
    main: Claimed
    local: Claimed

    @property
    def slug(self) -> str:
        """The algorithm."""
        return self.plan.algorithm.name

    @property
    def dim(self) -> int:
        """Numbers of a message."""
        return self.parties[0].count

    @property
    def rounds(self) -> int:
        """Rounds that are played."""
        return self.parties[0].rounds

    def terms(self, runs: int) -> SharedTerms:
        """The terms of a sum that serves so many runs of each world."""
        return self.parties[0].sharing.terms(self.agreement, 2 * runs * self.dim)

    @cached_property
    def crowd(self) -> _SumCrowd:
        """Party 0 in both worlds, compiled for many runs at once."""
        return _SumCrowd(self.parties)


def sum_worlds(
    slug: str, *, epsilon: float = 8.0, delta: float = 1e-5, rounds: int = ROUNDS, parties: int = PARTIES,
    exchange: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None,
    graph: Mapping[str, Any] | None = None,
) -> SumWorlds:  # fmt: skip
    """Two worlds of a deployed plan with shared noise that differ in one record of party 0."""
    algorithm = find(slug)
    if algorithm.wire is None:
        raise InputError(f"{slug} cannot be deployed, so it sends no bytes to attack")
    example = algorithm.example.model_dump(exclude_none=True)
    names = [f"party-{i}" for i in range(parties)]
    plan = validate(
        {
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [RECORDS] * parties},
            "graph": dict(graph or {"kind": "ring"}),
            "problem": {"loss": "hinge", "dim": 2, "ridge": RIDGE},  # its slope is at its bound from the start on
            "algorithm": {"name": slug, **example, **(settings or {})},
            "exchange": {"kind": "secret-sum", **(exchange or SHARED)},
            "privacy": {"epsilon": epsilon, "delta": delta},
            "run": {"rounds": rounds},
            "deploy": {"parties": [{"name": n, "address": f"{n}.example:443"} for n in names]},
        }
    )
    terms = Terms.of(plan)
    if terms.sum is None or not terms.sum.shared:
        raise InputError("an audit of opened sums needs exchange.noise = 'central'")
    turns = Turns.of(terms, TARGET)
    pair, shards = [], []
    for sign in (1.0, -1.0):
        features = np.zeros((RECORDS, 2))
        features[0] = sign * np.cos(ANGLE), np.sin(ANGLE)
        shards.append(Records(features, np.ones(RECORDS, int), ("no", "yes"), ()))
        party = join(turns, shards[-1])
        assert isinstance(party, SharedParty)
        pair.append(party)
    agreement, keys = _agreed(plan, shards[0], parties)
    sharing, c = pair[0].sharing, terms.sum.colluders
    main = _claimed(f"any {c} of {parties} collude", [e for r in turns.charges for e in r], delta)
    local = _claimed("everybody else colludes", sharing.local, delta)
    point = np.array([0.0, -FAR]) if turns.count == 2 else np.zeros(turns.count)  # where messages are no points
    return SumWorlds(plan, agreement, keys, (pair[0], pair[1]), point, delta, main, local)


def sums_of_plan(plan: Plan) -> SumWorlds:
    """The worlds of a plan with shared noise: its parties, graph, exchange, algorithm and budget, two features, and no
    more rounds than are played; the grid is chosen anew, as everybody stands far away."""
    if not plan.exchange.central or plan.privacy is None:
        raise InputError("--wire takes an algorithm, or a plan with [privacy] and exchange.noise = 'central'")
    chosen = plan.exchange.model_dump(exclude_none=True)
    exchange = {k: v for k, v in chosen.items() if k not in ("kind", "bound", "fraction_bits")}
    parties = plan.partition.agents or len(plan.partition.sizes or ())
    if plan.deploy is not None:
        parties = len(plan.deploy.parties)
    return sum_worlds(
        plan.algorithm.name, epsilon=float(np.min(plan.privacy.epsilon)), delta=plan.privacy.delta,
        rounds=min(plan.run.rounds or ROUNDS, ROUNDS), parties=parties, exchange=exchange,
        settings=dict(plan.algorithm.model_extra or {}), graph=plan.graph.model_dump(exclude_none=True),
    )  # fmt: skip


def _claimed(words: str, events: Sequence[Event], delta: float) -> Claimed:
    paid = [event for event in events if not isinstance(event, Free)]
    mu = total_mu([replace(e, tv=0.0) for e in paid])  # type: ignore[type-var]  # beyond any attack
    assert mu is not None
    return Claimed(words, account(paid, delta).epsilon, mu)


def _agreed(plan: Plan, records: Records, parties: int) -> tuple[Agreement, tuple[PartyKeys, ...]]:
    """An agreement between parties with keys of their own, as a rehearsal makes it."""
    with tempfile.TemporaryDirectory() as folder:
        path, sites = sign_trial(plan, [records] * parties, Path(folder) / "trial")
        keys = tuple(load_party(site.keys) for site in sites)
        return read_agreement(path, keys[0].authority), keys


# ---- party 0 in both worlds ------------------------------------------------------------------------------------------


class _SumCrowd:
    """Many runs of party 0 at once, in both worlds: its own `turn` and `told`, over an axis of runs."""

    def __init__(self, parties: tuple[SharedParty, SharedParty]):
        self.parties = parties
        with jax.enable_x64(True):
            self._turn = jax.jit(jax.vmap(parties[0].turns.turn, (None, None, 0, None)))
        self._bare = {name: np.zeros(law.shape) for name, law in parties[0].turns.laws.items()}

    def begin(self, runs: int) -> SharedCarry:
        return jax.tree.map(lambda x: np.broadcast_to(x, (runs, *np.shape(x))), self.parties[0].begin())  # type: ignore[no-any-return]

    def utter(self, world: int, t: int, carry: SharedCarry) -> SharedCarry:
        """The messages of round t."""
        with jax.enable_x64(True):
            kept, values, _ = self._turn(self.parties[world].shard, np.array(t), carry.inner, self._bare)
            inner = Carry(kept, carry.inner.heard, carry.inner.when)
            return SharedCarry(inner, np.asarray(values), np.full_like(carry.when, t))

    def told(self, carry: SharedCarry, total: NDArray[np.float64], answered: int) -> SharedCarry:
        """After the sum was opened."""
        with jax.enable_x64(True):
            told = jax.vmap(lambda one, sum_: self.parties[0].told(one, sum_, answered))
            return told(carry, total)  # type: ignore[no-any-return]


# ---- the parties of a sum, in one process ----------------------------------------------------------------------------


class Hoard(MemoryStore):
    """A ledger that erases no secret and no share: a colluder's."""

    def commit(self, puts: Mapping[Key, object], erase: Iterable[Key] = (), charge: Charge | None = None) -> None:
        """One transaction."""
        super().commit(puts, [key for key in erase if key[0] not in ("secret", "shares", "words", "deal")], charge)


class SumSeat(SumParty):
    """A party whose layers of noise are written down where they are drawn, by slot: what a colluder knows of itself."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.drawn: dict[int, list[NDArray[np.int64]]] = {}

    def draw_layers(self, round_: int, slot: int, chain: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """As ever."""
        self.drawn[slot] = layers = super().draw_layers(round_, slot, chain)
        return layers


class SumHall:
    """All parties on a network that loses everything from and to those who are `away`."""

    def __init__(self, worlds: SumWorlds, runs: int):
        self.terms, self.now = worlds.terms(runs), 0.0
        self.away: set[int] = set()
        self.queue: deque[Outgoing] = deque()
        self.seats = [
            SumSeat(self.terms, i, keys.frame_key, sealing_key(keys), Hoard()) for i, keys in enumerate(worlds.keys)
        ]
        for seat in self.seats:
            self._send(seat.me, seat.begin(self.now))
        self.settle(lambda: all(seat.ready and seat.batch == 0 for seat in self.seats))

    def _send(self, sender: int, out: Iterable[Outgoing]) -> None:
        if sender not in self.away:
            self.queue.extend(out)

    def settle(self, done: Callable[[], bool], look: Callable[[], None] = lambda: None) -> None:
        """Deliver frames and let time pass until something is so."""
        for _ in range(TICKS):
            while self.queue:
                to, frame = self.queue.popleft()
                if to not in self.away:
                    self._send(to, self.seats[to].handle(frame, self.now))
                look()
            if done():
                return
            self.now += self.terms.patience / 64
            for seat in self.seats:
                self._send(seat.me, seat.tick(self.now))
            look()
        stuck = {seat.me: seat.stuck or seat.refusal for seat in self.seats if seat.stuck or seat.refusal}
        raise RuntimeError(f"a sum does not open: {stuck or 'no reason'}")

    def open(self, t: int, vectors: Sequence[NDArray[np.float64]], away: Iterable[int]) -> None:
        """Round t of the sum, without those who are away."""
        self.away = set(away)
        here = [seat for seat in self.seats if seat.me not in self.away]

        def offer() -> None:
            for seat in here:
                if seat.round == t and seat.vector is None and seat.outcome(t) is None:
                    self._send(seat.me, seat.give_vector(vectors[seat.me], self.now))

        offer()
        self.settle(lambda: all(seat.outcome(t) is not None for seat in here), offer)


# ---- what a coalition makes of it ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rest:
    """What is left of something when all that is known is taken off, and the variance of the noise that is left."""

    numbers: NDArray[np.int64]
    variance: float


def _opened(seat: SumSeat, t: int) -> tuple[SumFrame, Answered, dict[int, bytes]]:
    """The set of a round and the secrets that were shown for it, by the seat's own store."""
    value = seat.known(seat.row(("final", t), bytes) or b"")
    opened = seat.row(("opened", t), SumFrame)
    assert opened is not None
    return value, Answered.read(value.body, seat.terms), read_secrets(opened.body, seat.members())[1]


def foreseen(
    seat: SumSeat, t: int, slot: int, owner: int, link: bytes, level: int
) -> dict[int, NDArray[np.int64]]:  # fmt: skip
    """An owner's layers of noise that follow from B_{owner,level}: what the product's own code draws again from it.

    It is run twice; links before the known one are guesses, other ones each time. What comes out alike is known.
    """
    where, last = Context(seat.terms.plan, slot), seat.terms.layers.last
    chain, pretender = walk(where, owner, link, level, last), copy.copy(seat)
    pretender.me = owner
    one, two = (
        SumParty.draw_layers(pretender, t, slot, [*(os.urandom(SECRET) for _ in range(level)), *chain])
        for _ in range(2)
    )
    return {k: a for k, (a, b) in enumerate(zip(one, two, strict=True)) if np.array_equal(a, b)}


def main_rest(hall: SumHall, t: int, colluders: Sequence[int], vectors: Sequence[NDArray[np.float64]]) -> Rest:
    """The opened total without what the colluders know: party 0's message and the honest parties' noise."""
    seat, code = hall.seats[colluders[0]] if colluders else hall.seats[-1], hall.terms.code
    value, answered, shown = _opened(seat, t)
    total, layers, level = seat.total(t), hall.terms.noise(t), seat.level(value)
    assert total is not None
    rest, variance = to_signed(total), 0.0
    for i in answered.members:
        if i != TARGET:
            rest = rest - to_signed(code.encode(vectors[i]))
        if i in colluders:
            rest = rest - np.sum(hall.seats[i].drawn[value.slot][: level + 1], axis=0)
        else:
            known = foreseen(seat, t, value.slot, i, shown[i], level)
            for k in range(level + 1):
                rest = rest - known.get(k, 0)
                variance += 0.0 if k in known else float(layers.variances[k])
    return Rest(rest, variance)


def local_rest(hall: SumHall, t: int) -> Rest:
    """Party 0's words without the masks and the noise that all others can take off together."""
    others = [seat for seat in hall.seats if seat.me != TARGET]
    here = next(seat for seat in others if seat.me not in hall.away)
    value, answered, shown = _opened(here, t)
    where, size, layers = Context(hall.terms.plan, value.slot), hall.terms.size, hall.terms.noise(t)
    left = answered.words
    for seat in others:
        if seat.me in answered.members:
            words = seat.used(value.slot)
            assert words is not None
            left = subtract(left, read_words(words[1]))
        drawn = seat.row(("secret", value.slot), SlotSecrets)
        if drawn is not None and seat.me in here.members():  # what it adds, party 0 takes off
            public = here.deal_of(value.slot >> 16, TARGET).public[value.slot & 0xFFFF][:32]
            left = add(left, pair_mask(where, seat.me, drawn.a, TARGET, public, answered.start, size))
    first = _first_link(others, value.slot)
    link, level = (shown[TARGET], here.level(value)) if first is None else (first, 0)
    left = subtract(left, self_mask(where, TARGET, walk(where, TARGET, link, level, layers.last)[-1], size))
    known = foreseen(here, t, value.slot, TARGET, link, level)
    rest, variance = to_signed(left), 0.0
    for k in range(layers.last + 1):
        rest = rest - known.get(k, 0)
        variance += 0.0 if k in known else float(layers.variances[k])
    return Rest(rest, variance)


def _first_link(others: Sequence[SumSeat], slot: int) -> bytes | None:
    """B_{0,0} from the shares that the others hold, where they are enough."""
    rows = {seat.me: seat.row(("shares", slot, TARGET), tuple) for seat in others}
    held = {i: row[0] for i, row in rows.items() if row is not None}
    if len(held) < others[0].terms.threshold:
        return None
    chosen = sorted(held)[: others[0].terms.threshold]
    return Weights(chosen).recover({i: held[i] for i in chosen})


# ---- the attack ------------------------------------------------------------------------------------------------------


@dataclass
class Heard:
    """Log-likelihood ratios of runs, by world: (main, local), larger = more like the second world."""

    main: NDArray[np.float64]
    local: NDArray[np.float64]
    missing: list[int] = field(default_factory=list)  # from each round's sum


def listen(worlds: SumWorlds, runs: int, drops: Sequence[int] | None = None) -> Heard:
    """Play both worlds `runs` times, and score each run from the seats of c colluders, and of everybody else.

    `drops`: how many parties are missing in each round, over and over; by default each level of the noise in turn.
    """
    hall = SumHall(worlds, runs)
    terms, crowd = hall.terms, worlds.crowd
    drops = terms.layers.levels if drops is None else drops
    colluders = range(terms.parties - terms.colluders, terms.parties)
    both = 2 * runs
    carry = [crowd.begin(both), crowd.begin(both)]
    scores = {"main": np.zeros(both), "local": np.zeros(both)}
    heard = Heard(scores["main"], scores["local"])
    other = np.tile(worlds.point, both)
    for t in range(worlds.rounds):
        carry = [crowd.utter(world, t, carry[world]) for world in (0, 1)]
        own = np.concatenate([carry[0].value[:runs], carry[1].value[runs:]])
        vectors = [own.ravel(), *[other] * (terms.parties - 1)]
        dropped = drops[t % len(drops)]
        hall.open(t, vectors, range(1, 1 + dropped))
        seat = hall.seats[-1]
        outcome = seat.outcome(t)
        assert outcome is not None
        heard.missing.append(terms.parties - len(outcome.members))
        found = {"main": main_rest(hall, t, colluders, vectors), "local": local_rest(hall, t)}
        for name, rest in found.items():
            likely = [_likely(rest, carry[world].value, terms) for world in (0, 1)]
            scores[name] += likely[1] - likely[0]
        total = terms.code.decode(outcome.total).reshape(both, worlds.dim)
        carry = [crowd.told(carry[world], total, len(outcome.members)) for world in (0, 1)]
    return heard


def _likely(rest: Rest, messages: NDArray[np.float64], terms: SharedTerms) -> NDArray[np.float64]:
    """Log-likelihood, but for a constant, of what is left, if these messages are in it."""
    noise = rest.numbers.reshape(messages.shape) - to_signed(terms.code.encode(messages))
    if rest.variance == 0:
        return np.where(np.any(noise != 0, axis=1), -IMPOSSIBLE, 0.0)
    return np.asarray(np.sum(-(noise.astype(np.float64) ** 2), axis=1) / (2 * rest.variance))


def audit_sums(
    worlds: SumWorlds, trials: int = 1000, *, confidence: float = 0.99, drops: Sequence[int] | None = None
) -> tuple[WireVerdict, WireVerdict]:
    """Attack a deployed sum with `trials` runs per world: the main claim, and the local one."""
    if trials < 1:
        raise InputError(f"trials must be >= 1, got {trials}")
    scores: dict[str, list[list[NDArray[np.float64]]]] = {"main": [[], []], "local": [[], []]}
    for low in range(0, trials, PIECE):
        runs = min(PIECE, trials - low)
        heard = listen(worlds, runs, drops)
        for name, found in (("main", heard.main), ("local", heard.local)):
            scores[name][0].append(found[:runs])
            scores[name][1].append(found[runs:])
    verdicts = []
    for name, claim in (("main", worlds.main), ("local", worlds.local)):
        first, second = (np.concatenate(part) for part in scores[name])
        mu_low = bounds.mu_bound(bounds.rates(first, second, 0.0, confidence))
        verdicts.append(
            WireVerdict(
                f"{worlds.slug}, {claim.words}",
                claim.epsilon,
                worlds.delta,
                claim.mu,
                mu_low,
                bounds.epsilon_of_mu(mu_low, worlds.delta),
                confidence,
                trials,
                mu_low > claim.mu,
                (first, second),
            )
        )
    return verdicts[0], verdicts[1]
