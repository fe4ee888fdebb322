"""The audit that every algorithm inherits: two worlds that differ in a record, on losses that its contract accepts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coterie.algorithms.base import PRINTED, Algorithm, find
from coterie.audit.checks import examine, gather
from coterie.audit.losses import LOSSES, accepted
from coterie.audit.matrix import Case, audited, cases, covering, variations
from coterie.audit.setting import make_setting
from coterie.experiment import public_network
from coterie.plan import validate
from coterie.pricing import price
from tests.audit.seeded.hunting import FAULTS, plant
from tests.support import mostly_slow

PRIVATE = audited()


def shown(todo: list[Case]) -> list[Any]:
    return [pytest.param(c, id=f"{c.name}@{c.algorithm.slug}") for c in todo]


@pytest.mark.parametrize("case", shown(covering()))
def test_claims_hold(case: Case) -> None:
    for found in case.examine(1.0):
        assert found.passed, found


@pytest.mark.audit
@pytest.mark.parametrize("case", shown([c for a in PRIVATE for c in cases(a)]))
def test_claims_hold_everywhere(case: Case) -> None:
    for epsilon in (1.0, 8.0):
        for found in case.examine(epsilon):
            assert found.passed, (epsilon, found)


def test_the_selection_leaves_nothing_out() -> None:
    everything = [c for a in PRIVATE for c in cases(a)]
    for kind in (lambda c: c.algorithm.slug, lambda c: c.loss, lambda c: c.way):
        assert {kind(c) for c in covering()} == {kind(c) for c in everything}
    assert {c.loss for c in everything} == set(LOSSES)
    assert {c.algorithm.slug for c in everything} == {a.slug for a in PRIVATE}
    for algorithm in PRIVATE:
        assert {c.loss for c in cases(algorithm)} == set(accepted(algorithm))


def test_every_choice_among_settings_is_audited() -> None:
    """Whatever is a flag or a word in a class of settings: no list to forget it in."""
    assert any(c.choice for c in covering())
    for algorithm in PRIVATE:
        tried = {c.choice for c in cases(algorithm)} | {("scheme", c.way) for c in cases(algorithm)}
        for name, setting in algorithm.config.model_json_schema()["properties"].items():
            values = [v for part in setting.get("anyOf", [setting]) for v in part.get("enum", [])]
            values += [False, True] * (setting.get("type") == "boolean")
            for value in values:
                if name != PRINTED and value != getattr(algorithm.example, name):
                    assert (name, value) in tried, (algorithm.slug, name, value)
    stars = [c for c in cases(find("dp-admm")) if c.choice == ("variant", "star")]
    assert {int(c.setting(8.0).place.degree) for c in stars} == {1, 2}  # leaf and hub
    assert ("test", "svt") in variations(find("ipp-admm"))


@pytest.mark.parametrize("slug", [a.slug for a in PRIVATE if a.config.can_print()])
def test_what_runs_as_printed_claims_nothing(slug: str) -> None:
    algorithm = find(slug)
    settings = algorithm.example.model_dump(exclude_unset=True) | {PRINTED: True}
    tree = {
        "problem": {"loss": "logistic", "dim": 2}, "partition": {"kind": "iid", "sizes": [200] * 3},
        "graph": {"kind": (algorithm.graphs or ("ring",))[0]}, "privacy": {"epsilon": 2.0},
        "algorithm": {"name": slug, **settings}, "run": {"rounds": 6}, "data": {"source": "adult"},
    }  # fmt: skip
    plan = validate(tree)
    priced = price(plan, public_network(plan))
    assert not priced.private
    assert any("not private as claimed" in w for w in priced.warnings)


@pytest.mark.parametrize(
    "name", mostly_slow(["last message without noise", "first message without noise"], "last message without noise")
)
def test_every_charged_round_carries_noise(name: str) -> None:
    """The check sees a single bare round, wherever it is; that no algorithm has one is part of the tests above."""
    (fault,) = [f for f in FAULTS if f.name == name]
    broken = make_setting(Algorithm.of(fault.module, plant(fault)), epsilon=8.0)
    found = {f.check: f for f in examine(gather(broken))}
    assert found["noise"].verdict == "refuted"
    assert f"round {0 if 'first' in name else broken.place.rounds - 1} is charged" in found["noise"].detail


def test_pairs_come_close_to_what_is_declared() -> None:
    """A check that never sees much finds nothing: on the losses with crafted pairs nearly all of the price is seen."""
    for slug in ("gauss-avg-gd", "dp-dsgd"):
        evidence = gather(make_setting(find(slug), epsilon=1.0))
        (found,) = [f for f in examine(evidence) if f.check == "replay"]
        assert 0.99 < found.share <= 1 + 1e-6


def test_could_not_check_is_no_pass() -> None:
    """A noise that nothing can invert: the worlds cannot be made to agree, and that is red."""
    (fault,) = [f for f in FAULTS if f.name == "one draw for all coordinates"]
    broken = make_setting(Algorithm.of(fault.module, plant(fault)), epsilon=8.0)
    found = {f.check: f for f in examine(gather(broken))}
    assert found["replay"].verdict == "inconclusive"
    assert not found["replay"].passed


def test_an_algorithm_may_list_why_a_check_cannot_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = [f for f in FAULTS if f.name == "one draw for all coordinates"]
    module = plant(fault)
    monkeypatch.setattr(module, "INCONCLUSIVE", {"replay": "all coordinates share a draw"}, raising=False)
    found = {f.check: f for f in examine(gather(make_setting(Algorithm.of(fault.module, module), epsilon=8.0)))}
    assert found["replay"].passed
    assert "as listed: all coordinates share a draw" in found["replay"].detail
    assert not found["answer"].passed


def test_the_same_seed_finds_the_same() -> None:
    one, two = (gather(make_setting(find("gauss-avg-gd"), epsilon=1.0), drawn=2) for _ in range(2))
    for a, b in zip(one.tried, two.tried, strict=True):
        for name, shift in a.coupled.shift.items():
            np.testing.assert_array_equal(shift, b.coupled.shift[name])
