"""What a certificate lists is what it charges for: one run's model, and every round once."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.api.trained import Trained
from coterie.deploy.party import Terms
from coterie.experiment import prepare
from coterie.plan import validate
from coterie.pricing import price
from coterie.privacy import events as ev
from coterie.privacy import gdp
from coterie.privacy.codec import to_rows
from coterie.privacy.ledger import Entry
from coterie.report import certificate as c
from coterie.report import sealing
from coterie.report.released import MODEL
from coterie.report.verification import parse
from tests.deploy.house import small_plan
from tests.report.certificates import STATED, changed, claimed, finished, make, rejection, resealed, roundtrip, whom
from tests.support import mostly_slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return finished(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def true(folder: Path) -> dict[str, Any]:
    return parse((folder / "certificate.json").read_text("utf-8"))


# ---- what is released ------------------------------------------------------------------------------------------------


def test_the_released_model_is_of_one_run(folder: Path, true: dict[str, Any]) -> None:
    """Two seeds were run; the file whose hash is certified holds the first alone, and what all would cost is told."""
    with np.load(folder / MODEL) as model:
        points = model["points"]
        assert set(model.files) == {"points", "average", "feature_names", "plan", "rounds", "seed"}
        assert model["seed"] == true["run"]["seed"] == 0
        assert model["rounds"] == 6
        assert str(model["plan"]) == true["plan_sha256"]
    assert points.shape == (4, 3)
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert result["seeds"] == [0, 1]
    both = float(gdp.epsilon_of(2**0.5 * float(gdp.mu_for(2.0, 1e-5)), 1e-5))
    assert result["privacy"]["all_seeds_epsilon"] == pytest.approx(both, rel=1e-6)
    assert result["privacy"]["epsilon"] == true["claim"]["epsilon"] == pytest.approx(2.0)


def test_a_file_of_several_runs_is_rejected(folder: Path, true: dict[str, Any], tmp_path: Path) -> None:
    """Whatever a certificate lists it charges for: the models of two seeds, or anything else beside, are not paid."""
    with np.load(folder / MODEL) as model:
        kept = dict(model)
    wrong = {
        "several seeds": kept | {"points": np.stack([kept["points"]] * 2)},
        "something else": kept | {"more": kept["points"]},
        "too few agents": kept | {"points": kept["points"][1:]},
        "more rounds": kept | {"rounds": 7},
        "another seed": kept | {"seed": 1},
        "another plan": kept | {"plan": "0" * 64},
        "objects": kept | {"feature_names": np.array([None] * 3)},
    }
    for name, arrays in wrong.items():
        np.savez_compressed(tmp_path / MODEL, **arrays)  # type: ignore[arg-type]
        fake = resealed({**true, "files": {MODEL: sealing.sha256((tmp_path / MODEL).read_bytes())}})
        found = rejection(fake, folder=tmp_path)
        assert "files.model.npz" in str(found), name
    (tmp_path / MODEL).write_bytes(b"another")
    assert "files.model.npz" in str(rejection(true, folder=tmp_path))
    fake = resealed({**true, "files": {MODEL: sealing.sha256(b"another")}})
    assert "files.model.npz" in str(rejection(fake, folder=tmp_path))
    metrics = {**true["files"], "result.json": sealing.sha256((folder / "result.json").read_bytes())}
    assert "files" in str(rejection(resealed({**true, "files": metrics}), folder=folder))
    unlisted = resealed({**true, "files": {}})
    assert "does not list it" in str(rejection(unlisted, folder=folder, strict=True))
    assert "not beside" in str(rejection(true, folder=tmp_path / "none", strict=True))


def test_an_interrupted_run_charges_the_message_that_nobody_heard(tmp_path: Path) -> None:
    """After k rounds were heard, the answer may hold a message of round k + 1: it is charged."""
    plan = validate({**STATED, "data": {"source": "clinics", "options": {"records": 160, "features": 3, "sites": 3}},
                     "partition": {"kind": "site"}, "run": {"rounds": 8}})  # fmt: skip
    experiment = prepare(plan)
    priced = price(plan, experiment.network)
    trace = experiment.run(priced, [0])
    trace.completed = 3
    Trained.of(experiment, priced, trace, [0]).save(tmp_path)
    sealed = parse((tmp_path / "certificate.json").read_text("utf-8"))
    assert {g["rounds"] for g in sealed["agents"]} == {4}
    assert rejection(sealed, strict=True, folder=tmp_path) is None
    lie = changed(sealed, ("agents",), lambda v: [{**g, "rounds": 3} for g in v])
    assert "rounds" in str(rejection(resealed(lie), folder=tmp_path))


# ---- rounds ----------------------------------------------------------------------------------------------------------


def deployed(algorithm: str, rounds: int, **more: Any) -> tuple[Terms, dict[str, Any]]:
    """Terms between three parties, and the certificate of party 1 with its ledger's charges in so many rounds."""
    terms = Terms.of(small_plan(rounds, algorithm, graph="complete"))
    body = c.certificate(terms.plan, terms.network, terms.priced, noise=c.SECURE, **more)
    return terms, roundtrip(sealing.seal(body))


def paid(terms: Terms, rounds: Sequence[int]) -> dict[int, list[ev.Event]]:
    """What party 1 is charged in these rounds."""
    every = terms.charges(1)
    return {1: terms.charged([Entry(t, event, 0.0) for t in rounds for event in every[t]])}


@pytest.mark.parametrize("algorithm", mostly_slow(["pr-admm", "priv-rcd", "hmv-dgd"], "priv-rcd"))
def test_a_deployed_certificate_lists_every_round_once(algorithm: str) -> None:
    """Missing, doubled and exchanged rounds fail, whatever the arithmetic says; so does an end that is not told."""
    terms, _ = deployed(algorithm, 5)
    whole = range(5)
    assert rejection(deployed(algorithm, 5, charged=paid(terms, whole))[1], strict=True) is None
    for rounds in ([0], [0, 1, 2, 3], [1, 2, 3, 4], [0, 1, 2, 2, 3, 4], [0, 0, 1, 2, 3], [], [*whole, *whole]):
        listed = paid(terms, rounds)
        if to_rows(listed[1]) == to_rows(paid(terms, whole)[1]):
            continue  # a round that is free: what is charged is the same
        _, fake = deployed(algorithm, 5, charged=listed)
        assert "agents[1].events" in str(rejection(fake, strict=True)), rounds
    assert len(to_rows(paid(terms, [0])[1])) >= 1


def test_a_party_that_stopped_early_is_certified_for_its_rounds_if_it_says_so() -> None:
    terms, whole = deployed("pr-admm", 5)
    _, early = deployed("pr-admm", 5, charged=paid(terms, range(2)), completed=2)
    assert rejection(early, strict=True) is None
    assert [g["rounds"] for g in early["agents"]] == [5, 2]  # the others are charged all that was planned
    mine = early["agents"][1]
    assert mine["members"] == [[1, 1]]
    assert mine["epsilon"] < early["agents"][0]["epsilon"]
    for rounds in (1, 3, 5, 6):
        assert rejection(resealed(changed(early, ("agents", 1, "rounds"), lambda v: rounds))) is not None  # noqa: B023
    _, more = deployed("pr-admm", 5, charged=paid(terms, range(3)), completed=2)
    assert rejection(more) is not None
    assert "has no model" in str(rejection(resealed({**early, "files": {"model.npz": "0" * 64}})))
    two = copy.deepcopy(early)
    two["agents"][0]["rounds"] = 4
    assert "agents.rounds" in str(rejection(resealed(two)))
    wire = changed(whole, ("run",), lambda v: {"noise": c.SIMULATED, "seed": 0})
    assert rejection(resealed(wire)) is not None


@pytest.mark.parametrize("slug", ["ipp-admm", "priv-rcd", "dp-dsgd"])
def test_a_simulation_that_stopped_early_is_charged_for_its_rounds(slug: str) -> None:
    """Silence and epochs included; an early end is the same for all, and a prefix of the plan."""
    tree = {**STATED, "graph": {"kind": "complete"}, "algorithm": {"name": slug}, "run": {"rounds": 7}}
    whole, early = make(tree), make(tree, completed=4)
    assert rejection(early, strict=True) is None
    assert {g["rounds"] for g in early["agents"]} == {4}
    assert early["claim"]["epsilon"] < whole["claim"]["epsilon"]
    lie = copy.deepcopy(whole)
    for group, short in zip(lie["agents"], early["agents"], strict=True):
        group |= {k: v for k, v in short.items() if k != "rounds"}
    lie["claim"], lie["protects"] = claimed(lie), whom(lie)
    assert "events" in str(rejection(resealed(lie)))
    uneven = copy.deepcopy(whole)
    uneven["agents"][0] = early["agents"][0]
    assert "all agents at once" in str(rejection(resealed(uneven)))
