"""Every private algorithm, deployed: the integers of five parties are those of a simulation with the same draws."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.algorithms.base import all_algorithms, find
from coterie.algorithms.laws import Grid
from coterie.cli import main
from coterie.deploy.agreement import read_agreement
from coterie.deploy.frames import open_frame
from coterie.deploy.keys import read_authority
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Party, Records, Terms, wire_of
from coterie.deploy.trial import deployed_plan, make_trial, shards_of, start_agent
from coterie.deploy.work import Work
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.experiment import Experiment, prepare
from coterie.plan import Plan, read_plan
from coterie.problems import SolverSettings
from tests.deploy.recorded_agent import load_draws
from tests.support import CLINICS

ROUNDS = 6
PRIVATE = [slug for slug, algorithm in all_algorithms().items() if algorithm.private]
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
    ("qdpsgd1", ("algorithm.bits=3", "algorithm.scheme=poisson", "algorithm.range=0.5")),
    ("pvp", ("algorithm.centre=own",)),
]


def planned(slug: str, settings: tuple[str, ...] = (), rounds: int = ROUNDS) -> tuple[Plan, Experiment]:
    """The plan of five clinics as it would be deployed, and its records."""
    kinds = find(slug).graphs
    graph = () if not kinds or any(s.startswith("graph.") for s in settings) else (f"graph.kind={kinds[0]}",)
    plan = read_plan(CLINICS, [f"algorithm.name={slug}", f"run.rounds={rounds}", *graph, *settings])
    experiment = prepare(plan)
    return deployed_plan(plan, experiment), experiment


def run_parties(terms: Terms, shards: list[Records]) -> tuple[np.ndarray, np.ndarray, dict[str, Any], np.ndarray]:
    """(round, party, number) integers as they travel, whether each was sent, everybody's draws, and the answers."""
    source, parties = SystemSource(), [Party.of(terms, node, records) for node, records in enumerate(shards)]
    carries, said, sent, drawn = [p.begin() for p in parties], [], [], []
    for t in range(terms.rounds):
        drawn.append([source.draw(t, p.turns.laws) for p in parties])
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


def simulated(
    plan: Plan, terms: Terms, experiment: Experiment, drawn: dict[str, Any], sent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The integers that a simulation with these draws sends, (round, party, number), and its answers."""
    fixed = partial(make_layout, how=SolverSettings(fixed=True))  # as deployed: its work says nothing of records
    layout = experiment.layout(terms.rounds, terms.priced.shape, fixed)
    bare = replace(layout.arrays.place, factor=False)
    layout = replace(layout, arrays=replace(layout.arrays, place=bare))
    run = Run(0, terms.priced.cfg, terms.priced.noise)
    told = simulate(
        terms.priced.algorithm, layout, [run], rounds=terms.rounds, replay=drawn, record=True, every=terms.rounds
    )
    fields = terms.priced.algorithm.travels or tuple(vars(told.messages))
    parts = [np.asarray(getattr(told.messages, field))[0].reshape(*sent.shape, -1) for field in fields]
    whole = np.rint(np.concatenate(parts, axis=2) / terms.steps.size.T[:, :, None])
    return np.where(sent[:, :, None], whole, 0), told.points[0]


@pytest.mark.parametrize(("slug", "settings"), VARIANTS, ids=[f"{s}-{len(v)}" for s, v in VARIANTS])
def test_deployed_integers_are_those_of_the_simulation(slug: str, settings: tuple[str, ...]) -> None:
    plan, experiment = planned(slug, settings)
    terms = Terms.of(plan)
    said, sent, drawn, answers = run_parties(terms, shards_of(experiment))
    expected, points = simulated(plan, terms, experiment, drawn, sent)
    np.testing.assert_array_equal(said, expected)
    np.testing.assert_allclose(answers, points, rtol=1e-9, atol=1e-12)
    # broken twin: one step more of one draw is another message
    name = "output" if "output" in drawn else next(n for n, g in drawn.items() if isinstance(g, Grid))
    first = drawn[name]
    moved = first.steps.copy()
    moved[0] += 1 << 20
    other, _ = simulated(plan, terms, experiment, {**drawn, name: Grid(moved, first.unit)}, sent)
    assert np.any(other != expected) or not sent[0].any()


@pytest.mark.slow
@pytest.mark.parametrize("slug", PRIVATE)
def test_five_processes_send_the_integers_of_the_simulation(slug: str, tmp_path: Path) -> None:
    """Over mutual TLS, with ledgers: every frame of every party."""
    trial = make_trial(planned(slug, SPECIAL.get(slug, ()))[1].plan, tmp_path / "trial")
    processes = [start_agent(trial.agreement, site, "tests.deploy.recorded_agent") for site in trial.sites]
    codes = [process.wait(300) for process in processes]
    assert codes == [0] * 5, "\n".join((s.data.parent / "errors.txt").read_text() for s in trial.sites)
    terms = Terms.of(trial.plan)
    drawn = [load_draws(site.state, terms.rounds) for site in trial.sites]
    agreement = read_agreement(trial.agreement, read_authority(trial.agreement.parent / "authority"))
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
    expected, points = simulated(trial.plan, terms, trial.experiment, columns, sent)
    np.testing.assert_array_equal(said, expected)
    models = np.stack([np.load(site.state / "model.npz")["point"] for site in trial.sites])
    np.testing.assert_allclose(models, points, rtol=1e-9, atol=1e-12)
