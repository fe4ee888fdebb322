"""Opened sums, attacked from the seats of colluders: exact arithmetic, right ones hold, faults are refuted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import cli
from coterie.audit.coalition import local_rest, main_rest
from coterie.audit.sum_hall import SumHall
from coterie.audit.sum_worlds import SumWorlds, sum_worlds, sums_of_plan
from coterie.audit.sums import audit_sums, listen
from coterie.errors import InputError
from coterie.plan import validate
from coterie.privacy.secure import DiscreteGaussianTable
from coterie.sums.noise import Layers
from coterie.sums.words import to_signed
from tests.deploy.shared_house import shared_plan


@pytest.fixture(scope="module")
def five() -> SumWorlds:
    """Five parties on a ring, any one of whom colludes, any one of whom may be missing."""
    return sum_worlds("gauss-avg-gd", epsilon=8.0, rounds=6)


# ---- what the coalition computes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parties", "exchange", "drops"),
    [
        (5, {"noise": "central", "honest": 4, "threshold": 4}, (0, 1)),
        (7, {"noise": "central", "honest": 6, "threshold": 5}, (2, 0, 1)),
        (4, {"noise": "central", "honest": 2}, (0,)),  # N − 2 collude, and nobody may be missing
    ],
)
def test_what_colluders_are_left_with_is_the_message_and_the_noise_that_they_may_not_know(
    parties: int, exchange: dict[str, Any], drops: Sequence[int]
) -> None:
    """Real parties, masks, votes, shares and openings; every number that is drawn is written down and compared."""
    worlds = sum_worlds("gauss-avg-gd", rounds=len(drops), parties=parties, exchange=exchange)
    hall = SumHall(worlds, 10)
    c, rng = hall.terms.colluders, np.random.default_rng(0)
    colluders = range(parties - c, parties)
    for t, dropped in enumerate(drops):
        vectors = [rng.normal(size=hall.terms.size) for _ in range(parties)]
        hall.open(t, vectors, range(1, 1 + dropped))
        outcome = hall.seats[-1].outcome(t)
        assert outcome is not None
        assert outcome.members == (0, *range(1 + dropped, parties))
        layers, own = hall.terms.noise(t), to_signed(hall.terms.code.encode(vectors[0]))
        slot = hall.seats[-1].known(hall.seats[-1].row(("final", t), bytes) or b"").slot
        level = layers.keep(dropped)
        honest = [i for i in outcome.members if i not in colluders]
        kept = np.sum([hall.seats[i].drawn[slot][k] for i in honest for k in range(level + 1)], axis=0)
        main, local = main_rest(hall, t, colluders, vectors), local_rest(hall, t)
        np.testing.assert_array_equal(main.numbers, own + kept)
        np.testing.assert_array_equal(local.numbers, own + hall.seats[0].drawn[slot][0])
        assert main.variance == pytest.approx(float(layers.honest(dropped, c)))
        assert main.variance == pytest.approx(float(layers.variance))  # σ², whoever is missing
        assert local.variance == float(layers.variances[0])


def test_scores_are_normal_with_the_shift_that_is_claimed(five: SumWorlds) -> None:
    """Under world 1 the log-likelihood ratio of a Gaussian shift μ has mean μ²/2 and variance μ²."""
    runs = 3000
    heard = listen(five, runs)
    assert set(heard.missing) == {0, 1}
    for scores, claim in ((heard.main, five.main), (heard.local, five.local)):
        first, second = scores[:runs], scores[runs:]
        mu = np.sqrt(np.mean(second) - np.mean(first))
        assert 0.95 * claim.mu < mu < 1.03 * claim.mu
        for part in (first, second):
            assert np.std(part) / mu == pytest.approx(1, abs=5 / np.sqrt(2 * runs))


# ---- verdicts --------------------------------------------------------------------------------------------------------


def test_both_claims_hold_and_half_the_noise_does_not(five: SumWorlds, monkeypatch: pytest.MonkeyPatch) -> None:
    for verdict in audit_sums(five, 2000):
        assert not verdict.violated
        assert verdict.mu is not None
        assert verdict.mu_bound > 0.75 * verdict.mu
    real = Layers.variances.fget
    assert real is not None
    monkeypatch.setattr(Layers, "tables", property(lambda layers: _tables(*(v / 4 for v in real(layers)))))
    assert all(verdict.violated for verdict in audit_sums(five, 400))


@cache
def _tables(*variances: Fraction) -> tuple[DiscreteGaussianTable, ...]:
    return tuple(DiscreteGaussianTable.from_variance(v) for v in variances)


@pytest.mark.slow
@pytest.mark.parametrize("drops", [(0,), (1,)])
def test_thirty_thousand_runs_find_nine_tenths_of_what_is_claimed(drops: Sequence[int]) -> None:
    for verdict in audit_sums(sum_worlds("gauss-avg-gd", epsilon=8.0), 30_000, drops=drops):
        assert verdict.mu is not None
        print(f"\n{verdict.algorithm}, {drops} missing: μ_LB/μ = {verdict.mu_bound / verdict.mu:.4f}")
        assert not verdict.violated
        assert verdict.mu_bound > 0.9 * verdict.mu


# ---- how it is asked for ---------------------------------------------------------------------------------------------


def test_a_plan_keeps_its_parties_graph_and_claims() -> None:
    plan = shared_plan(6, "dp-dsgd", "star", exchange={"noise": "central", "honest": 5, "threshold": 4})
    worlds = sums_of_plan(plan)
    terms = worlds.terms(1)
    assert (terms.parties, terms.colluders, terms.threshold, terms.dropouts) == (6, 1, 4, 2)
    assert len(terms.neighbours[0]) == 5
    assert worlds.main.epsilon == pytest.approx(2.0, rel=1e-3)
    assert worlds.local.mu == pytest.approx(np.sqrt(5) * worlds.main.mu, rel=1e-3)
    heard = listen(worlds, 5)
    assert heard.missing == [0, 1, 2]
    local = validate(plan.model_dump(exclude_none=True) | {"exchange": {"kind": "secret-sum"}})
    with pytest.raises(InputError, match="central"):
        sums_of_plan(local)


def test_the_command(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    arguments = ["audit", "gauss-avg-gd", "--wire", "--shared", "--epsilons", "8", "--trials", "200", "--json"]
    assert cli.main(arguments) == 0
    main, local = json.loads(capsys.readouterr().out)
    assert main["algorithm"] == "gauss-avg-gd, any 1 of 5 collude"
    assert local["algorithm"] == "gauss-avg-gd, everybody else colludes"
    assert 2 < main["lower_bound"] < 8 < local["lower_bound"] < local["epsilon"]
    assert cli.main(["audit", "gauss-avg-gd", "--shared"]) == 2
    assert "--wire" in capsys.readouterr().err
