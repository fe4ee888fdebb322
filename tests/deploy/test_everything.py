"""Every private algorithm, deployed: the integers of five parties are those of a simulation with the same draws."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from coterie.algorithms._sampling import PIECES, Pace
from coterie.algorithms.base import Law, all_algorithms, find
from coterie.algorithms.laws import Grid, Shared
from coterie.cli import main
from coterie.deploy.agreement import read_agreement
from coterie.deploy.frames import open_frame
from coterie.deploy.keys import load_party, read_authority
from coterie.deploy.noise import SystemSource
from coterie.deploy.pairs import PairSecrets, SharedSource
from coterie.deploy.party import Party, Records, Terms, wire_of
from coterie.deploy.shared import SharedParty, join
from coterie.deploy.trial import deployed_plan, make_trial, shards_of, start_agent
from coterie.deploy.work import Turns, Work
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.errors import InputError
from coterie.exchange.additive import SumsHere
from coterie.exchange.kinds import quantized
from coterie.experiment import Experiment, prepare
from coterie.losses.base import find_loss
from coterie.plan import Plan, read_plan
from coterie.problems import SolverSettings
from tests.deploy.recorded_agent import load_draws
from tests.support import CLINICS, mostly_slow

ROUNDS = 6
PRIVATE = [slug for slug, algorithm in all_algorithms().items() if algorithm.wire is not None]
# settings under which what is special about an algorithm happens within a few rounds
SPECIAL = {
    "qdpsgd1": ("algorithm.bits=10",),
    "qdpsgd2-grad": ("algorithm.bits=10",),
    "ipp-admm": ("algorithm.broadcasts=3", "algorithm.threshold=0.01"),
}
VARIANTS = [
    *((slug, SPECIAL.get(slug, ())) for slug in PRIVATE),
    ("ipp-admm", ("algorithm.broadcasts=3", "algorithm.test=svt", "algorithm.threshold=0.01")),
    ("dp-admm", ("graph.kind=star", "algorithm.variant=star")),
    ("ldp-admm", ("problem.within=box", "problem.within_options.low=-0.02", "problem.within_options.high=0.03")),
    ("dp-dsgd", ("problem.within=simplex", "problem.within_options.total=0.5")),
    ("qdpsgd1", ("algorithm.bits=3", "algorithm.scheme=poisson", "algorithm.range=0.5")),
    ("pvp", ("algorithm.centre=own",)),
    ("qdpsgd1", ("algorithm.bits=10", "algorithm.scheme=clock")),
    ("qdpsgd2", ("algorithm.scheme=clock", "algorithm.batch=50")),
]
LOSSES = {
    "hinge": ("problem.loss=hinge",),
    "softmax": ("problem.loss=softmax",),
    "mlp": ("problem.loss=mlp", "problem.hidden=[3]", "problem.ridge=0"),
}
SMALL = (("gauss-avg-gd", "mlp"), ("gauss-avg-gd", "softmax"))  # in every run of the tests
SUMMED = [slug for slug in PRIVATE if find(slug).reads != "individuals"]
COARSE = ("exchange.kind=quantized", "exchange.bits=6", "exchange.bound=4")
NEAREST = (*COARSE, "exchange.rounding=nearest")
ROUNDED = [
    ("dp-dsgd", COARSE),
    ("dp-dsgd", NEAREST),
    ("pr-admm", COARSE),
    ("ipp-admm", (*COARSE, *SPECIAL["ipp-admm"])),
    ("ldp-dgd", NEAREST),
    ("priv-rcd", ("exchange.kind=quantized", "exchange.bits=32")),
]


def planned(slug: str, settings: tuple[str, ...] = (), rounds: int = ROUNDS) -> tuple[Plan, Experiment]:
    """The plan of five clinics as it would be deployed, and its records."""
    kinds = find(slug).graphs
    graph = () if not kinds or any(s.startswith("graph.") for s in settings) else (f"graph.kind={kinds[0]}",)
    plan = read_plan(CLINICS, [f"algorithm.name={slug}", f"run.rounds={rounds}", *graph, *settings])
    experiment = prepare(plan)
    return deployed_plan(plan, experiment), experiment


class AnySpeed(SystemSource):
    """As deployed, on machines that get more or less of a batch done in time."""

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        pace = np.array(np.random.default_rng(round).integers(1, PIECES + 1) / PIECES)
        return super().draw(round, laws) | {name: pace for name, law in laws.items() if isinstance(law, Pace)}


def some_pairs(terms: Terms) -> list[PairSecrets]:
    """What every party shares with its neighbours, from keys of the parties' own."""
    graph = terms.network.graph
    keys = [X25519PrivateKey.generate() for _ in range(graph.size)]
    public = [key.public_key().public_bytes_raw() for key in keys]
    near = [{int(j): public[j] for j in graph.neighbours(node)} for node in range(graph.size)]
    return [PairSecrets.between(bytes(32), node, key, near[node]) for node, key in enumerate(keys)]


def run_parties(terms: Terms, shards: list[Records]) -> tuple[np.ndarray, np.ndarray, dict[str, Any], np.ndarray]:
    """(round, party, number) integers as they travel, whether each was sent, everybody's draws, and the answers."""
    parties = [Party.of(terms, node, records) for node, records in enumerate(shards)]
    sources = [SharedSource(AnySpeed(), pairs) for pairs in some_pairs(terms)]
    carries, said, sent, drawn = [p.begin() for p in parties], [], [], []
    for t in range(terms.rounds):
        drawn.append([source.draw(t, p.turns.laws) for source, p in zip(sources, parties, strict=True)])
        turns = [p.turn(t, c, d) for p, c, d in zip(parties, carries, drawn[-1], strict=True)]
        carries, numbers = [kept for kept, _, _ in turns], []
        for node, (_, whole, spoke) in enumerate(turns):
            wire = parties[node].wire
            payload = wire.encode(whole if spoke else 0 * whole, node, t)
            assert len(payload) == wire.bytes
            numbers.append(wire.decode(payload))
        for node, party in enumerate(parties):
            for slot, j in enumerate(party.neighbours):
                if turns[int(j)][2]:
                    carries[node] = party.heard(carries[node], slot, t, numbers[int(j)])
        said.append(numbers)
        sent.append([spoke for _, _, spoke in turns])
    answers = np.stack([p.answer(c) for p, c in zip(parties, carries, strict=True)])
    return np.array(said), np.array(sent), _columns(drawn), answers


def _columns(drawn: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Draws as a simulation replays them: (round, party, …)."""
    first = drawn[0][0]
    return {
        name: Grid(np.array([[d[name].steps for d in row] for row in drawn]), law.unit)
        if isinstance(law, Grid)
        else np.array([[d[name] for d in row] for row in drawn])
        for name, law in first.items()
    }


def replayed(terms: Terms, experiment: Experiment, drawn: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(round, party, number) integers of a simulation with these draws, and its answers."""
    values, points = simulated(terms, experiment, drawn)
    return np.rint(values / terms.steps.size.T[:, :, None]), points


def simulated(terms: Terms, experiment: Experiment, drawn: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The same as the numbers that messages have."""
    fixed = partial(make_layout, how=SolverSettings(fixed=True))  # as deployed: its work says nothing of records
    layout = experiment.laid(fixed, terms.rounds, terms.priced.shape)
    bare = replace(layout.arrays.place, factor=False)
    layout = replace(layout, arrays=replace(layout.arrays, place=bare))
    run = Run(0, terms.priced.cfg, terms.priced.noise)
    told = simulate(
        terms.priced.algorithm, layout, [run], rounds=terms.rounds, replay=drawn, record=True, every=terms.rounds,
        exchange=terms.exchange,
    )  # fmt: skip
    fields = terms.priced.algorithm.travels or tuple(vars(told.messages))
    parts = [np.asarray(getattr(told.messages, f))[0] for f in fields]
    return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=2), told.points[0]


def is_replayed(terms: Terms, experiment: Experiment) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Hold what the parties send to a simulation with the same draws; what they sent, whether, and the draws."""
    said, sent, drawn, answers = run_parties(terms, shards_of(experiment))
    expected, points = replayed(terms, experiment, drawn)
    assert np.abs(np.where(sent[:, :, None], said - expected, 0)).max() == 0
    assert np.allclose(answers, points, rtol=1e-9, atol=1e-12)
    return said, sent, drawn


# In every run of the tests, one of each kind: noise that neighbours share (decor), Gaussian noise and a memory of each
# neighbour (pr-admm), Laplace noise and a set for the answer (ldp-admm), silence and a solver
# (ipp-admm), a message's own bits and a batch by the clock (qdpsgd1), a hub (dp-admm); and whatever is not named here.
SETTLED = (
    "dp-consensus-gd", "dp-dsgd", "dvp", "gauss-avg-gd", "hmv-dgd", "ldp-dgd", "ldp-dgd-range", "m-admm", "mr-admm",
    "p-admm", "pp-admm", "priv-rcd", "pvp", "qdpsgd2", "qdpsgd2-grad", "r-admm", "sdm",
)  # fmt: skip
OTHER_VARIANTS = (
    ("qdpsgd1", SPECIAL["qdpsgd1"]), ("ipp-admm", SPECIAL["ipp-admm"]), ("dp-admm", ()), ("ldp-admm", ()), VARIANTS[-4],
)  # fmt: skip


@pytest.mark.parametrize(
    ("slug", "settings"),
    [
        pytest.param(*v, id=f"{v[0]}-{len(v[1])}",
                     marks=pytest.mark.slow if v[0] in SETTLED or v in OTHER_VARIANTS else ())
        for v in VARIANTS
    ],
)  # fmt: skip
def test_deployed_integers_are_those_of_the_simulation(slug: str, settings: tuple[str, ...]) -> None:
    plan, experiment = planned(slug, settings)
    terms = Terms.of(plan)
    said, sent, drawn = is_replayed(terms, experiment)
    # broken twin: one step more of one draw is another message
    name = "output" if "output" in drawn else next(n for n, g in drawn.items() if isinstance(g, Grid))
    moved = drawn[name].steps.copy()
    moved[0] += 1 << 20
    other, _ = replayed(terms, experiment, {**drawn, name: Grid(moved, drawn[name].unit)})
    assert np.any(np.where(sent[:, :, None], said - other, 0) != 0) or not sent[0].any()


def _fits(slug: str, loss: str) -> bool:
    """Whether an algorithm's proof goes with a loss."""
    try:
        find(slug).check(find(slug).config(), find_loss(loss).example)
    except InputError:
        return False
    return True


OTHERS = [
    pytest.param(slug, loss, marks=() if (slug, loss) in SMALL else pytest.mark.slow)
    for loss in LOSSES for slug in PRIVATE if _fits(slug, loss)
]  # fmt: skip


@pytest.mark.parametrize(("slug", "loss"), OTHERS)
def test_other_losses_are_those_of_the_simulation(slug: str, loss: str) -> None:
    """Numbers that come out of a kink, of several classes or of layers, under the same draws."""
    plan, experiment = planned(slug, (*LOSSES[loss], *SPECIAL.get(slug, ())), rounds=3)
    assert type(experiment.network.problem) is type(find_loss(loss).example)
    said, sent, _ = is_replayed(Terms.of(plan), experiment)
    assert said[sent].any() or not sent.any()


@pytest.mark.parametrize("slug", [pytest.param(s, marks=() if s == "dvp" else pytest.mark.slow) for s in SUMMED])
def test_opened_sums_are_those_of_the_simulation(slug: str) -> None:
    """With noise on every message: only what all of them add up to is opened, and everything follows from that."""
    plan, experiment = planned(slug, (*SPECIAL.get(slug, ()), "exchange.kind=secret-sum"), rounds=3)
    terms, source = Terms.of(plan), AnySpeed()
    assert terms.sum is not None
    assert not terms.sum.shared
    parties = [join(Turns.of(terms, node), records) for node, records in enumerate(shards_of(experiment))]
    carries, drawn, opened = [cast(SharedParty, p).begin() for p in parties], [], []
    sums = SumsHere(terms.sum, parties[0].count)
    for t in range(terms.rounds):
        kept = _Kept(source)
        carries = [cast(SharedParty, p).utter(t, c, kept) for p, c in zip(parties, carries, strict=True)]
        drawn.append(kept.drawn)
        total = sums.open([c.value for c in carries]).values
        opened.append(np.rint(total * 2.0**terms.sum.code.fraction_bits))
        carries = [cast(SharedParty, p).told(c, total, 5) for p, c in zip(parties, carries, strict=True)]
    answers = np.stack([cast(SharedParty, p).result(c) for p, c in zip(parties, carries, strict=True)])
    values, points = simulated(terms, experiment, _columns(drawn))
    np.testing.assert_array_equal(opened, np.rint(values * 2.0**terms.sum.code.fraction_bits).sum(axis=1))
    np.testing.assert_allclose(answers, points, rtol=1e-9, atol=1e-9)


class _Kept:
    """Draws of one round, party after party, kept."""

    def __init__(self, source: SystemSource):
        self.source, self.drawn = source, list[dict[str, Any]]()

    def draw(self, round: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        self.drawn.append(self.source.draw(round, laws))
        return self.drawn[-1]


@pytest.mark.parametrize(
    ("slug", "settings"), mostly_slow(ROUNDED, ROUNDED[0]), ids=[f"{s}-{len(v)}" for s, v in ROUNDED]
)
def test_messages_of_few_bits_are_those_of_the_simulation(slug: str, settings: tuple[str, ...]) -> None:
    """Noised, then rounded by the exchange's rule: few bits travel, at the price of the noise alone."""
    plan, experiment = planned(slug, settings)
    terms, whole = Terms.of(plan), Terms.of(planned(slug, tuple(s for s in settings if "exchange" not in s))[0])
    chosen = plan.exchange.chosen("kind")
    assert isinstance(chosen, quantized.Settings)
    bits = chosen.bits
    said, sent, drawn = is_replayed(terms, experiment)
    wire = wire_of(terms, said.shape[2])
    assert wire.bytes == -(-said.shape[2] * bits // 8) <= wire_of(whole, said.shape[2]).bytes
    assert (said.min() >= -(2 ** (bits - 1)), said.max() < 2 ** (bits - 1)) == (True, True)
    assert sent.any()
    assert said.any()
    assert terms.charges(1) == whole.charges(1)  # post-processing
    dither = {n: np.array(u)[::-1] for n, u in drawn.items() if n.startswith("rounding")}
    assert bool(dither) == (chosen.rounding == "stochastic")
    if dither:  # broken twin: the same noise, rounded by other coins
        other, _ = replayed(terms, experiment, {**drawn, **dither})
        assert (np.where(sent[:, :, None], said - other, 0) != 0).any()


@pytest.mark.parametrize(
    ("slug", "settings", "reason"),
    [
        ("qdpsgd1", COARSE, "encodes its messages itself"),
        ("dp-dsgd", (*COARSE, "exchange.bound=2000000"), "largest number in a message"),
        ("dp-dsgd", ("exchange.kind=secret-sum", "exchange.rounding=nearest"), "exchange.rounding belongs to"),
    ],
    ids=["own bits", "no room", "sums"],
)
def test_what_cannot_be_rounded_is_refused_in_one_line(slug: str, settings: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as refused:
        Terms.of(planned(slug, settings)[0])
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("slug", PRIVATE)
def test_five_processes_send_the_integers_of_the_simulation(slug: str, tmp_path: Path) -> None:
    """Over mutual TLS, with ledgers: every frame of every party."""
    trial = make_trial(planned(slug, SPECIAL.get(slug, ()))[1].plan, tmp_path / "trial")
    processes = [start_agent(trial.agreement, site, "tests.deploy.recorded_agent") for site in trial.sites]
    codes = [process.wait(300) for process in processes]
    assert codes == [0] * 5, "\n".join((s.data.parent / "errors.txt").read_text() for s in trial.sites)
    terms = Terms.of(trial.plan)
    agreement = read_agreement(trial.agreement, read_authority(trial.agreement.parent / "authority"))
    drawn = [load_draws(site.state, terms.rounds) for site in trial.sites]
    for node, site in enumerate(trial.sites):  # own noise was recorded: what neighbours share follows from their keys
        pairs, laws = PairSecrets.of(agreement, load_party(site.keys)), terms.draws(node)
        for (t, draw), (name, law) in itertools.product(enumerate(drawn[node]), laws.items()):
            if isinstance(law, Shared):
                draw[name] = Grid(draw[name].steps + pairs.total(t, name, law), draw[name].unit)
    frames = []
    for node, site in enumerate(trial.sites):
        wire = wire_of(terms, Work.of(terms, node)[0].count)
        with contextlib.closing(sqlite3.connect(f"file:{site.state / 'ledger.db'}?mode=ro", uri=True)) as db:
            rows = [row for (row,) in db.execute("SELECT frame FROM release ORDER BY round")]
        frames.append([open_frame(f, agreement.frame_keys, agreement.plan_hash, wire, node) for f in rows])
        assert main(["verify", str(site.state / "certificate.json"), "--strict"]) == 0
    said = np.array([[party[t].numbers for party in frames] for t in range(terms.rounds)])
    sent = np.array([[not party[t].silent for party in frames] for t in range(terms.rounds)])
    columns = _columns([[party[t] for party in drawn] for t in range(terms.rounds)])
    expected, points = replayed(terms, trial.experiment, columns)
    np.testing.assert_array_equal(said, np.where(sent[:, :, None], expected, 0))
    models = np.stack([np.load(site.state / "model.npz")["point"] for site in trial.sites])
    np.testing.assert_allclose(models, points, rtol=1e-9, atol=1e-12)
