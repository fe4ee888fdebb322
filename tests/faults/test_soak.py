"""A small soak, and that each of its checks can fail. The long one is `make soak`; figures: docs/deploy-soak.md."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest

from coterie.deploy.party import Terms
from coterie.deploy.trial import Site
from coterie.plan import validate
from tests.faults import soak_checks
from tests.faults.soak import Size, Soak, Story
from tests.faults.soaked_agent import LINE

SMALL = Size(
    parties=3, rounds=60, kills=1, floods=1, connections=300, hold=3.0, certificates=20.0, sample=0.5, tick=0.15
)


@pytest.mark.faults
def test_a_small_soak_and_what_its_checks_find(tmp_path: Path) -> None:
    """Three parties, 60 rounds: one is killed, one flooded, certificates end after 20 s and are replaced."""
    run = Soak(SMALL, tmp_path / "run")
    story, tap = run.run(disturbed=True), tmp_path / "run" / "tap"
    report = soak_checks.judge(story, run.trial, tap, SMALL.witnesses, [])
    assert report["wrong"] == []
    assert (report["kills"], report["floods"]) == (1, 1)
    assert report["certificates"] > 3  # beyond the first ones
    assert report["disturbed"]["seconds down"] > 0

    terms, name = Terms.of(run.trial.plan), run.names[1]
    with (tap / f"{name}.frames").open("ab") as file:
        file.write(LINE.pack(7, bytes(32)))
    assert any("I1: 2 payloads of p1 in round 7" in what for what in soak_checks.ledgers(run.trial, terms, tap))
    lines = (tap / f"{name}.draws").read_text().splitlines()
    assert soak_checks.apart(run.trial, terms, tap) < soak_checks.CLOSE
    lines[30] = lines[31].replace("[31,", "[30,", 1)  # another draw than the one that was released
    (tap / f"{name}.draws").write_text("\n".join(lines) + "\n")
    assert soak_checks.apart(run.trial, terms, tap) > soak_checks.CLOSE
    shutil.copy(run.sites["p0"].state / "model.npz", run.sites["p1"].state / "model.npz")
    assert soak_checks.budgets(run.trial, terms) == []
    dearer = run.trial.plan.model_dump(mode="json", exclude_none=True) | {"privacy": {"epsilon": 2.0, "delta": 1e-5}}
    assert len(soak_checks.budgets(run.trial, Terms.of(validate(dearer)))) == 3  # charged as another plan says


def test_growth_is_found() -> None:
    steady = {"rss early": 1000.0, "rss late": 1040.0, "fds early": 20.0, "fds late": 24.0,
              "ledger bytes per round early": 880.0, "ledger bytes per round late": 881.0}  # fmt: skip
    assert soak_checks.too_much(steady) == []
    for key, value in (("rss late", 1060.0), ("fds late", 29.0), ("ledger bytes per round late", 900.0)):
        assert len(soak_checks.too_much(steady | {key: value})) == 1


def test_an_old_certificate_or_none_is_found() -> None:
    assert soak_checks.renewed(Story(shown=[("p0", True)])) == []
    assert len(soak_checks.renewed(Story(shown=[("p0", True), ("p1", False)]))) == 1
    assert len(soak_checks.renewed(Story())) == 1


def test_the_pace_leaves_out_the_time_in_which_somebody_is_down(tmp_path: Path) -> None:
    """Ten rounds a second, but for 30 seconds in which one of two parties was killed and came back."""
    sites, start = {}, dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    for name in ("p0", "p1"):
        sites[name] = Site(name, tmp_path, tmp_path, tmp_path / name)
        sites[name].state.mkdir()
        with (sites[name].state / "log.jsonl").open("w") as log:
            for t in range(200):
                when = start + dt.timedelta(seconds=t / 10 + 30 * (t >= 100))
                log.write(json.dumps({"time": when.isoformat(), "event": "sent", "round": t}) + "\n")
    story = Story(kills=[("p1", start.timestamp() + 9.95)])
    found = soak_checks.pace(story, sites)
    assert found["rounds per second"] == pytest.approx(10, rel=1e-3)
    assert found["seconds down"] == pytest.approx(30.05, rel=1e-3)
    assert soak_checks.pace(Story(), sites)["rounds per second"] < 5  # the twin: nobody is known to have been down
