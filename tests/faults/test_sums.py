"""Sums between processes over mutual TLS while parties are killed; `make test-sums` runs those of twenty parties."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import coterie
from coterie.plan import read_plan, validate
from tests.faults import summed
from tests.faults.summed import Books, Size, Summed, judge

FIVE = Size(parties=5, honest=4, threshold=4, rounds=4, kills=1, back=0.0, graph="ring", deadline=15.0)


def tampered(path: Path, number: int, change: dict[int, object]) -> None:
    """Alter one line of what was noted."""
    lines = path.read_text().splitlines()
    facts = json.loads(lines[number])
    for place, value in change.items():
        facts[place] = value
    path.write_text("\n".join([*lines[:number], json.dumps(facts), *lines[number + 1 :]]) + "\n")


@pytest.mark.faults
def test_a_ring_goes_on_after_a_death_and_what_the_checks_find(tmp_path: Path) -> None:
    """One of five is killed for good: the others open every round. Then each check is shown something wrong."""
    run = Summed(FIVE, tmp_path / "run")
    story = run.run()
    assert judge(run) == []
    ((killed, _, _),) = story.kills
    finished = run.finished()
    assert sorted([*finished, killed]) == list(run.sites)

    name = finished[0]
    path = run.tap / f"{name}.draws"
    round_, slot, rows = json.loads(path.read_text().splitlines()[0])
    tampered(path, 0, {2: [[rows[0][0] + 1, *rows[0][1:]], *rows[1:]]})
    assert summed.totals(Books(run.trial, run.tap), finished)
    assert summed.charged(Books(run.trial, run.tap)) == []
    given = run.tap / f"{name}.given"
    given.write_text(given.read_text() + json.dumps([slot, "00" * 32]) + "\n")
    assert any(f"of slot {slot} " in what and "2 sets" in what for what in summed.shares(Books(run.trial, run.tap)))
    books = Books(run.trial, run.tap)
    books.charges[run.trial.sites.index(run.sites[name])][round_] = []
    assert any("otherwise than agreed" in what for what in summed.charged(books))


@pytest.mark.faults
def test_all_are_killed_and_asked_to_stop_and_go_on(tmp_path: Path) -> None:
    """Everybody is killed in the first round; started again, all are stopped by SIGINT, then they come to the end."""
    run = Summed(
        Size(parties=3, honest=2, threshold=3, rounds=3, kills=0, graph="path", deadline=15.0), tmp_path / "run"
    )
    for name in run.sites:
        run.start(name)
    run.until(lambda: run.furthest() >= 1)
    for name in run.sites:
        run.kill(name)
    for name in run.sites:
        run.start(name)
    run.until(lambda: all(run.speaks(name, "joined") >= 2 for name in run.sites))
    codes = []
    for process in run.processes.values():
        process.send_signal(signal.SIGINT)
        codes.append(process.wait(60))
    assert set(codes) <= {0, 130}
    run.story.kills.clear()
    run.run()
    assert judge(run) == []
    assert run.finished() == list(run.sites)


@pytest.mark.faults
def test_a_network_between_processes_is_the_simulation(tmp_path: Path) -> None:
    """Weights of a small network are summed with shared noise: the integers and the model of a simulation."""
    size = Size(parties=3, honest=2, threshold=3, rounds=3, kills=0, graph="path", deadline=15.0)
    tree = summed.summed_plan(size).as_json()
    tree["problem"] = {"loss": "mlp", "hidden": [4], "ridge": 0.0}
    run = Summed(size, tmp_path / "run", validate(tree))
    run.run()
    assert judge(run) == []
    assert run.finished() == list(run.sites)
    assert summed.apart(Books(run.trial, run.tap)) < 1e-9


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.faults
def test_twenty_parties_with_adult_are_the_simulation(tmp_path: Path) -> None:
    """2,000 records each on a ring, ε = .1: what `coterie launch` starts opens the integers that a simulation opens."""
    changes = {
        "partition.agents": 20, "partition.records": 2000, "graph.kind": "ring", "algorithm.name": "dp-dsgd",
        "exchange.kind": "secret-sum", "exchange.noise": "central", "exchange.honest": 11, "exchange.threshold": 15,
        "privacy.epsilon": 0.1, "privacy.delta": 1e-4, "run.rounds": 6,
    }  # fmt: skip
    plan = read_plan(Path(coterie.__file__).parent / "plans" / "adult.toml", [f"{k}={v}" for k, v in changes.items()])
    run = Summed(Size(rounds=6, kills=0), tmp_path / "run", plan)
    run.run()
    assert judge(run) == []
    assert summed.apart(Books(run.trial, run.tap)) < 1e-9


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("seed", range(10))
def test_twenty_parties_lose_five(tmp_path: Path, seed: int) -> None:
    """c = 9, t = 15, D = 5 on a random 4-regular graph; five are killed at random moments, three of them come back."""
    run = Summed(Size(seed=seed), tmp_path / "run")
    story = run.run()
    wrong = judge(run)
    print(json.dumps(summed.facts(run, wrong)))
    assert wrong == []
    assert len(story.kills) == 5
    assert len(run.finished()) >= 15 + len(story.back) - len(story.late)
