"""Fits from Python draw on an account: before a round is computed, what the dearest party pays, or not at all."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import coterie as ct
from coterie.api import joining
from coterie.estimators import (
    PrivateConsensusClassifier,
    PrivateConsensusRegressor,
    PrivateMean,
    PrivateSearch,
    forget_fits,
)
from coterie.experiment import Experiment
from coterie.privacy import gdp
from coterie.privacy.ledger import BudgetExceeded
from coterie.privacy.people import at_parties

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.5, 0.5, (90, 2))
Y = np.where(X[:, 0] > 0, 1, -1)
SITES = [(X[i::3], Y[i::3]) for i in range(3)]
QUICK: dict[str, Any] = {"rounds": 3}


@pytest.fixture(autouse=True)
def _no_fit_before() -> None:
    """What other tests have fitted in this process is not what is asked here."""
    forget_fits()


@pytest.fixture
def account(tmp_path: Path) -> ct.DataAccount:
    return ct.DataAccount.open(tmp_path / "a.account", ct.Budget(2.0, 1e-5), data=(X, Y), keeper=tmp_path / "keeper")


def fit(account: Any, epsilon: Any = 1.0, **options: Any) -> ct.Trained:
    budget = [ct.Budget(e, 1e-5) for e in epsilon] if isinstance(epsilon, list) else ct.Budget(epsilon, 1e-5)
    method = ct.dp_dsgd(mixing=1, momentum=0.5)
    return ct.train(ct.logistic(), ct.ring(SITES), method, budget, account=account, **(QUICK | options))


def mu_spent(account: ct.DataAccount) -> float:
    return float(account.contents().spent.units / 2**96) ** 0.5


def test_a_fit_draws_what_it_costs_before_a_round_is_computed(
    account: ct.DataAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Experiment.run

    def watched(self: Experiment, *given: Any, **options: Any) -> Any:
        seen.append(len(account.statement().draws))
        return real(self, *given, **options)

    monkeypatch.setattr(Experiment, "run", watched)
    run = fit(account)
    assert seen == [1]
    (draw,) = account.statement().draws
    assert draw.epsilon == pytest.approx(run.epsilon, rel=1e-6)
    assert (draw.kind, draw.what) == ("fit", "fit python")
    with pytest.raises(BudgetExceeded, match="out of budget"):
        fit(account.path if account.keeper is None else account, 1.9)
    assert seen == [1]  # refused before anything was computed
    fit(None, 1.9)  # a simulation of which nothing is published need not draw
    assert len(account.statement().draws) == 1


def test_the_party_that_pays_most_and_every_seed(account: ct.DataAccount) -> None:
    fit(account, [0.2, 0.6, 0.4])
    assert mu_spent(account) == pytest.approx(float(gdp.mu_for(0.6, 1e-5)), rel=1e-6)
    fit(account, 0.3, seeds=4)
    more = float(gdp.mu_for(0.3, 1e-5)) * 2  # four times μ²
    assert mu_spent(account) == pytest.approx(np.hypot(float(gdp.mu_for(0.6, 1e-5)), more), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"references": True, "test": (X[:9], Y[:9])}, "references are computed from the records without noise"),
        ({"account": 3}, "account must be a ct.DataAccount or the path of one or None, got 3"),
    ],
)
def test_what_no_account_pays_for(account: ct.DataAccount, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ct.InputError, match=reason) as error:
        fit(**({"account": account} | options))
    assert "\n" not in str(error.value)
    assert account.statement().draws == ()


def test_records_and_settings_that_it_refuses(account: ct.DataAccount) -> None:
    with pytest.raises(ct.InputError, match="dgd is not private: no account can pay for it"):
        ct.train(ct.logistic(), ct.ring(SITES), ct.dgd(), account=account, **QUICK)
    fewer = ct.ring([(x[1:], y[1:]) for x, y in SITES])
    with pytest.raises(ct.InputError, match="is for other records"):
        ct.train(ct.logistic(), fewer, ct.dp_dsgd(), ct.Budget(0.1, 1e-5), account=account, **QUICK)
    leaking = ct.ring(SITES, leaks=["scaled by the records' own range"])
    with pytest.raises(ct.InputError, match="own range: no account can pay for it"):
        ct.train(ct.logistic(), leaking, ct.dp_dsgd(), ct.Budget(0.1, 1e-5), account=account, **QUICK)
    assert account.statement().draws == ()


@pytest.mark.slow
def test_estimators_draw_for_the_records_as_they_were_given(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": RNG.integers(20, 60, 80), "bmi": RNG.uniform(18, 40, 80)})
    label, keeper = np.where(frame.age > 40, "old", "young"), tmp_path / "keeper"
    data = {"labelled": (frame, label), "numbers": (frame[["bmi"]], frame.age), "ages": frame[["age"]]}
    account = ct.DataAccount.open(tmp_path / "a.account", ct.Budget(3.0, 1e-5), data=data, keeper=keeper)
    given = {"epsilon": 0.5, "rounds": 3, "account": account, "n_agents": 3}
    model = PrivateConsensusClassifier(bounds=(0, 100), classes=["young", "old"], **given)
    assert clone(model).account is not None
    model.fit(frame, label)
    PrivateConsensusRegressor(bounds=(0, 100), target_bounds=(0, 100), **given).fit(frame[["bmi"]], frame.age)
    PrivateMean(bounds=(0, 100), **given).fit(frame[["age"]])
    found = account.statement()
    assert [d.what for d in found.draws] == [
        "fit PrivateConsensusClassifier", "fit PrivateConsensusRegressor", "fit PrivateMean"
    ]  # fmt: skip
    assert found.spent == pytest.approx(float(gdp.epsilon_of(3**0.5 * gdp.mu_for(0.5, 1e-5), 1e-5)), rel=1e-3)
    with pytest.raises(ct.InputError, match="is for other records"):
        PrivateMean(bounds=(0, 100), **given).fit(frame[["bmi"]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ct.InputError, match="no account can pay for it"):  # labels read from the records
            PrivateConsensusClassifier(bounds=(0, 100), **given).fit(frame, label)


def test_a_search_draws_once_for_all_of_it(account: ct.DataAccount) -> None:
    model = PrivateConsensusClassifier(bounds=(-1, 1), classes=[-1, 1], rounds=3, n_agents=3)
    grid = {"ridge": [1e-3, 1e-1]}
    PrivateSearch(model, grid, epsilon=0.8, account=account).fit(X, Y)
    (draw,) = account.statement().draws
    assert draw.epsilon == pytest.approx(0.8, rel=1e-6)
    with pytest.raises(ct.InputError, match="no account can add the price of a hidden choice"):
        PrivateSearch(model, grid, epsilon=0.1, adversary="model", account=account).fit(X, Y)
    with pytest.raises(ct.InputError, match="give the account to the search"):
        PrivateSearch(clone(model).set_params(account=account), grid, epsilon=0.1).fit(X, Y)
    assert len(account.statement().draws) == 1


def test_a_joined_party_hands_its_account_to_the_agent(
    account: ct.DataAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    class Done:
        returncode, stderr, pid = 0, (), 0

        def __init__(self, command: list[str], env: dict[str, str], **_: Any):
            started.append((command, env))

        def poll(self) -> int:
            return 0

    monkeypatch.setattr(joining.subprocess, "Popen", Done)
    monkeypatch.setattr(joining, "_listen", lambda *_: None)
    here = Path("x")
    for given in (account, None):
        party = joining.JoinedParty(here, None, "ada", here, here, None, None, given)  # type: ignore[arg-type]
        party._run(Path("p.csv"), (), False)
    (command, env), (bare, _) = started
    assert command[command.index("--account") + 1] == str(account.path)
    assert env["COTERIE_ACCOUNTS"] == str(account.keeper)
    assert "--account" not in bare


@pytest.mark.slow
def test_a_person_who_may_be_at_every_party_pays_at_each(tmp_path: Path) -> None:
    def drawn(**given: Any) -> tuple[float, PrivateMean]:
        folder = tmp_path / f"{len(given)}"
        folder.mkdir()
        account = ct.DataAccount.open(
            folder / "a", ct.Budget(4.0, 1e-5), data=X, unit="person", keeper=folder / "keeper"
        )
        model = PrivateMean(bounds=(-1, 1), account=account, rounds=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, people=np.tile(np.arange(45), 2), **given)
        (draw,) = account.statement().draws
        return draw.epsilon, model

    each, model = drawn(agents=np.repeat([0, 1], 45))  # everybody at both
    events = [[entry.event for entry in ledger.entries] for ledger in model.ledger_.values()]
    assert each == pytest.approx(at_parties(events, 1e-5), rel=1e-6)
    assert each > 1.4
    assert model.protects_ is not None
    assert model.protects_["unit"] == "person"
    assert model.protects_["person_at_two_parties"] == pytest.approx(each, rel=1e-6)  # two parties, and all pay
    dealt, model = drawn()  # here nobody is at two
    assert dealt == pytest.approx(model.epsilon_spent_, rel=1e-6)


def test_whose_the_records_are_is_the_same_in_every_fit(tmp_path: Path) -> None:
    """Sites that share people, one table with other names, in another order: all say the same. Another is refused."""
    who = np.array([f"p{i % 40}" for i in range(90)])
    account = ct.DataAccount.open(
        tmp_path / "a", ct.Budget(9.0, 1e-5), data=(X, Y), unit="person", keeper=tmp_path / "keeper"
    )
    net = ct.ring(SITES, people=[who[i::3] for i in range(3)])
    ct.train(ct.logistic(), net, ct.dp_dsgd(mixing=1), ct.Budget(0.2, 1e-5), account=account, **QUICK)
    model = PrivateConsensusClassifier(epsilon=0.2, bounds=(-1, 1), classes=[-1, 1], rounds=3, account=account)
    order = RNG.permutation(90)
    model.fit(X[order], Y[order], people=np.array([hash(w) for w in who[order]]))
    for people in (np.arange(90), np.where(who == "p0", "p1", who)):
        with pytest.raises(ct.InputError, match="the same records being other people's"):
            model.fit(X, Y, people=people)
    assert len(account.statement().draws) == 2


def test_noise_that_neighbours_share_is_not_counted_on_for_life(account: ct.DataAccount) -> None:
    run = ct.train(
        ct.logistic(), ct.complete(SITES), ct.decor(curious=1), ct.Budget(0.3, 1e-5), account=account, **QUICK
    )
    assert run.made is not None
    alone = run.made.priced.alone
    assert alone is not None
    (draw,) = account.statement().draws
    assert draw.epsilon == pytest.approx(alone.account.epsilon, rel=1e-6)
    assert draw.epsilon > 1.2 * run.epsilon
