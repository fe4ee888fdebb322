"""Audits between worlds that differ in a whole person: the claim holds, and a build that clips records does not."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from coterie.algorithms.base import find
from coterie.audit.audit import audit
from coterie.audit.checks import examine, gather
from coterie.audit.matrix import cases
from coterie.audit.planned import of_plan
from coterie.audit.setting import ATTACKS, CROWD, Setting, make_setting, worlds
from coterie.audit.sum_worlds import sum_worlds
from coterie.audit.sums import audit_sums
from coterie.cli import main
from coterie.errors import InputError
from coterie.losses.logistic import Logistic
from coterie.problems import of_people
from tests.audit.seeded.hunting import put_in
from tests.audit.seeded.people import PEOPLE

TRIALS = 500


def setting() -> Setting:
    algorithm = find("dp-dsgd")
    return make_setting(
        algorithm, algorithm.example.replace(clip=0.3), epsilon=8.0, rounds=6, problem=of_people(Logistic(2))
    )


def test_the_worlds_differ_in_a_person_and_in_how_many_records_it_has() -> None:
    with jax.enable_x64(True):
        first, second = worlds(setting(), ATTACKS[0])
    assert CROWD == 40
    assert first.people is not None
    assert second.people is not None
    assert first.people.many.tolist() == [CROWD, 1, 1, 1]
    assert second.people.many.tolist() == [1, 1, 1, 1]
    assert first.features.shape == second.features.shape


def test_the_claim_holds_for_a_person_with_forty_records() -> None:
    attacked = setting()
    assert all(finding.passed for finding in examine(gather(attacked, drawn=4)))
    verdict = audit(attacked, TRIALS)
    assert not verdict.violated
    assert verdict.lower_bound > 0.5 * attacked.epsilon  # the attack sees the person: it is no empty pass


@pytest.mark.slow
def test_a_build_that_clips_every_record_is_refuted_by_its_transcripts() -> None:
    """The fault is planted in the product; what it sends to a reader of messages is enough."""
    fault = next(f for f in PEOPLE if "every record of a person is clipped" in f.name)
    with put_in(fault):
        verdict = audit(setting(), TRIALS)
    assert verdict.violated
    assert verdict.lower_bound > 2 * 8.0


def test_the_opened_sums_of_deployed_parties_hide_a_person() -> None:
    of = sum_worlds("gauss-avg-gd", epsilon=8.0, rounds=4, person=True)
    assert of.plan.by_person
    assert not any(verdict.violated for verdict in audit_sums(of, 200))


def test_a_plan_by_person_is_audited_by_person(tmp_path: Path) -> None:
    text = """
[data]
source = "csv"
path = "none.csv"
label = "y"
person = "who"
[data.options]
classes = ["no", "yes"]
features = ["a", "b"]
bounds = {a = [0, 1], b = [0, 1]}
[partition]
kind = "iid"
sizes = [40, 40, 50]
[problem]
loss = "logistic"
dim = 2
[privacy]
epsilon = 1.0
[run]
rounds = 5
"""
    (tmp_path / "plan.toml").write_text(text)
    _, looked = of_plan(tmp_path / "plan.toml")
    assert all(one.setting.problem.per_person for one in looked)
    assert "40 people" in looked[0].words
    (tmp_path / "plan.toml").write_text(text.replace('person = "who"\n', 'person = "who"\nunit = "record"\n'))
    assert not any(one.setting.problem.per_person for one in of_plan(tmp_path / "plan.toml")[1])


def test_what_has_no_proof_for_people_is_not_audited_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert all(case.person and case.problem.per_person for case in cases(find("dp-dsgd"), person=True))
    with pytest.raises(InputError, match="dvp has no proof for people"):
        cases(find("dvp"), person=True)
    assert main(["audit", "dp-dsgd", "--person", "--wire"]) == 2
    assert "--person is for transcripts of algorithms" in capsys.readouterr().err
