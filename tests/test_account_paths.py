"""Whatever releases something of records draws on an account first, or the page on accounts says why it does not.

Commands and public names are walked, not listed: a new one that does neither fails here. Each that draws is tried with
an account that is too small: one line, and nothing was computed.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from sklearn.base import clone

import coterie as ct
from coterie.api.accounts import draw_fit
from coterie.api.training import train_paid
from coterie.cli import main
from coterie.commands import COMMANDS
from coterie.data.encode import Number
from coterie.estimators import (
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateConsensusClassifier,
    PrivateConsensusRegressor,
    PrivateMean,
    PrivateSearch,
)
from coterie.experiment import Experiment, prepare
from coterie.fair import PrivateFairClassifier
from coterie.fair.decentralised import fit_by_consensus, fit_by_secret_sum
from coterie.fair.mechanisms import release
from coterie.fair.metrics import private_metrics
from coterie.fair.noise import Seeded
from coterie.fair.penalised import release_direction
from coterie.fair.polynomial import Statistics
from coterie.graphs import make_graph, mixing
from coterie.plan import validate
from coterie.privacy import gdp
from coterie.privacy.ledger import BudgetExceeded
from coterie.released.judging import covered_scores
from coterie.released.quantile_bins import quantile_edges
from tests.support import mostly_slow

PAGE = (Path(__file__).parent.parent / "docs" / "account.md").read_text("utf-8")
PAYS = {"account", "charge", "pay"}
RECORDS = {"X", "sites", "parties", "holders", "statistics", "labels", "experiment", "problem"}
PACKAGES = ("api", "estimators", "fair", "released", "coupled")
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def excused() -> set[str]:
    """Names in the page's table of what draws nothing."""
    table = PAGE.split("## What draws nothing, and why")[1].split("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    assert all(len(row[2].split()) >= 4 for row in rows), "a row without words"
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[1])}


def commands() -> Iterator[tuple[str, set[str]]]:
    """Every command with the names of its options."""
    for name in COMMANDS.names:
        for one in COMMANDS.load(name).app.registered_commands:
            assert one.callback is not None
            yield name, set(inspect.signature(one.callback).parameters)


def releasing() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions and estimators that take a budget, and records or what was summed over them."""
    for package in PACKAGES:
        home = importlib.import_module(f"coterie.{package}")
        for found in pkgutil.iter_modules(home.__path__, f"coterie.{package}."):
            module = importlib.import_module(found.name)
            for name in getattr(module, "__all__", ()):
                there = getattr(module, name)
                if getattr(there, "__module__", "") != found.name or not callable(there):
                    continue
                try:
                    takes = set(inspect.signature(there).parameters)
                except ValueError:  # of a type that has none
                    continue
                if takes & {"epsilon", "budget"} and (takes & RECORDS or hasattr(there, "fit")):
                    yield name, there


def test_every_command_draws_or_the_page_says_why_not() -> None:
    drawing = {name for name, options in commands() if "account" in options}
    assert {"agent", "stats", "account"} <= drawing
    told = {name.removeprefix("coterie ") for name in excused() if name.startswith("coterie ")}
    assert told == set(COMMANDS.names) - drawing


def test_everything_from_python_draws_or_the_page_says_why_not() -> None:
    found = dict(releasing())
    assert {"train", "statistics", "PrivateMean", "release", "covered_scores", "solve"} <= set(found)
    silent = {name for name, there in found.items() if not PAYS & set(inspect.signature(there).parameters)}
    told = {name for name in excused() if not name.startswith("coterie ")}
    assert silent == told


def test_the_walk_sees_what_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: a command and a function that release and say nothing."""
    app = typer.Typer()
    app.command()(lambda plan: None)
    monkeypatch.setattr(COMMANDS.load("stats"), "app", app)
    with pytest.raises(AssertionError):
        test_every_command_draws_or_the_page_says_why_not()
    module = importlib.import_module("coterie.released.statistics")

    def leak(sites: Any, epsilon: float) -> None: ...

    leak.__module__ = module.__name__
    monkeypatch.setattr(module, "leak", leak, raising=False)
    monkeypatch.setattr(module, "__all__", [*module.__all__, "leak"])
    with pytest.raises(AssertionError):
        test_everything_from_python_draws_or_the_page_says_why_not()


# ---- each of them, with too small an account ------------------------------------------------------------------------

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"age": RNG.integers(20, 80, 240).astype(float), "sex": RNG.choice(["f", "m"], 240)})
LABEL = np.where(TABLE.age > 50, 1, 0)
CODED = np.column_stack([np.ones(240), TABLE.age / 100, TABLE.sex == "f"]) / 2
SUMS = Statistics.of(CODED, LABEL, (TABLE.sex == "f").to_numpy(int), 2)
PLAN = """[data]
source = "csv"
path = "{path}"
label = "ill"
{person}
[data.options]
bounds = {{age = [0, 100]}}
categories = {{sex = ["f", "m"]}}
classes = ["no", "yes"]
[partition]
kind = "iid"
agents = 3
[privacy]
epsilon = 1.0
delta = 1e-5
"""


def stored(path: Path, **more: Any) -> Path:
    TABLE.assign(ill=np.where(LABEL, "yes", "no"), **more).to_csv(path, index=False)
    return path


def opened(tmp_path: Path, data: Any, epsilon: float = 0.9, **rules: Any) -> ct.DataAccount:
    return ct.DataAccount.open(
        tmp_path / "a.account", ct.Budget(epsilon, 1e-5), data=data, keeper=tmp_path / "keeper", **rules
    )


def judged() -> tuple[Experiment, np.ndarray]:
    plan = validate({"data": {"source": "clinics"}, "privacy": BUDGET, "run": {"rounds": 2}})
    experiment = prepare(plan)
    return experiment, np.zeros(experiment.network.problem.dim)


SITES = [TABLE.iloc[i::3] for i in range(3)]
NUMBERS = (TABLE[["age"]].to_numpy() / 100, LABEL)
HELD = [(NUMBERS[0][i::3], LABEL[i::3]) for i in range(3)]
QUICK: dict[str, Any] = {"bounds": (0, 1), "rounds": 2, "n_agents": 3}
LINEAR = PrivateConsensusClassifier(classes=[0, 1], **QUICK)
ATTEMPTS: dict[str, tuple[Any, Callable[[ct.DataAccount], Any]]] = {
    "statistics": (TABLE, lambda a: ct.statistics(
        SITES, budget=ct.Budget(**BUDGET), bounds={"age": (0, 100)}, categories={"sex": ["f", "m"]}, account=a)),
    "quantile_edges": (TABLE, lambda a: quantile_edges(
        SITES, {"age": Number(0, 100)}, ct.Budget(**BUDGET), charge=a.pays("edges", TABLE))),
    "PrivateFairClassifier": ((TABLE, LABEL), lambda a: PrivateFairClassifier(
        sensitive_feature="sex", bounds={"age": (0, 100), "sex": ["f", "m"]}, classes=[0, 1], account=a,
    ).fit(TABLE, LABEL)),
    "PrivateMean": (TABLE[["age"]], lambda a: PrivateMean(bounds=(0, 100), account=a).fit(TABLE[["age"]])),
    "release": (CODED, lambda a: release(
        SUMS, "adfc", noise=Seeded(RNG), charge=a.pays("objective", CODED), **BUDGET)),  # type: ignore[arg-type]
    "release_direction": (CODED, lambda a: release_direction(
        SUMS, noise=Seeded(RNG), charge=a.pays("direction", CODED), **BUDGET)),
    "private_metrics": (CODED, lambda a: private_metrics(
        LABEL, LABEL, LABEL, 2, noise=Seeded(RNG), charge=a.pays("metrics", CODED), **BUDGET)),
    "fit_by_consensus": (CODED, lambda a: fit_by_consensus(
        [SUMS] * 3, mixing(make_graph("complete", 3), "uniform"), noise=Seeded(RNG), charge=a.pays("fit", CODED),
        **BUDGET)),
    "fit_by_secret_sum": (CODED, lambda a: fit_by_secret_sum(
        [SUMS] * 3, charge=a.pays("fit", CODED), **BUDGET)),
    "covered_scores": (CODED, lambda a: covered_scores(*judged(), account=a, data=CODED)),
    "train": (NUMBERS, lambda a: ct.train(
        ct.logistic(classes=[0, 1]), ct.ring(HELD), budget=ct.Budget(**BUDGET), rounds=2, account=a)),
    "train_paid": (NUMBERS, lambda a: train_paid(
        ct.logistic(classes=[0, 1]), ct.ring(HELD), None, ct.Budget(**BUDGET), rounds=2,
        pay=lambda several, unit: draw_fit(a, several, ct.ring(HELD), "paid", unit))),
    "PrivateConsensusClassifier": (NUMBERS, lambda a: LINEAR.set_params(account=a).fit(*NUMBERS)),
    "PrivateConsensusRegressor": (NUMBERS, lambda a: PrivateConsensusRegressor(
        target_bounds=(0, 1), account=a, **QUICK).fit(*NUMBERS)),
    "PrivateAdditiveClassifier": (NUMBERS, lambda a: PrivateAdditiveClassifier(
        classes=[0, 1], account=a, **QUICK).fit(*NUMBERS)),
    "PrivateAdditiveRegressor": (NUMBERS, lambda a: PrivateAdditiveRegressor(
        target_bounds=(0, 1), account=a, **QUICK).fit(*NUMBERS)),
    "PrivateSearch": (NUMBERS, lambda a: PrivateSearch(
        clone(LINEAR).set_params(account=None), {"ridge": [1e-3, 1e-1]}, epsilon=1.0, account=a).fit(*NUMBERS)),
}  # fmt: skip


def test_all_that_draw_are_tried() -> None:
    drawing = {name for name, there in releasing() if PAYS & set(inspect.signature(there).parameters)}
    assert drawing == set(ATTEMPTS)


@pytest.mark.parametrize("name", ATTEMPTS)
def test_out_of_budget_nothing_is_computed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, attempt = ATTEMPTS[name]
    account = opened(tmp_path, data, measure="renyi" if name == "fit_by_secret_sum" else None)  # discrete noise
    with monkeypatch.context() as patch:
        for home, noise in ((Experiment, "run"), (Seeded, "draw")):
            patch.setattr(home, noise, lambda *_, **__: pytest.fail("something was released"))
        with pytest.raises(BudgetExceeded, match="out of budget") as error:
            attempt(account)
    assert "\n" not in str(error.value)
    assert account.statement().draws == ()


@pytest.mark.parametrize("name", ["statistics", "PrivateFairClassifier", "private_metrics"])
def test_what_fits_is_drawn_once_at_its_price(name: str, tmp_path: Path) -> None:
    data, attempt = ATTEMPTS[name]
    account = opened(tmp_path, data, 1.3)
    attempt(account)
    (draw,) = account.statement().draws
    assert draw.epsilon == pytest.approx(1.0, rel=5e-3)
    with pytest.raises(BudgetExceeded):
        attempt(account)


def test_the_command_for_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(tmp_path / "keeper"))
    path = stored(tmp_path / "all.csv", patient=np.arange(240) // 2)
    account = opened(tmp_path, path, 1.3, unit="person")
    (tmp_path / "plan.toml").write_text(PLAN.format(path=path, person='person = "patient"'))
    words = ["stats", str(tmp_path / "plan.toml"), "--account", str(account.path), "--out", str(tmp_path / "s.json")]
    assert main(words) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "per person for all of it" in said
    assert "Drawn from the account" in said
    (draw,) = account.statement().draws
    assert (draw.unit, draw.kind) == ("person", "statistic")
    assert draw.epsilon == pytest.approx(1.0, rel=1e-3)
    assert draw.whose
    (tmp_path / "s.json").unlink()
    assert main(words) == 3
    assert capfd.readouterr().err.startswith("error: out of budget")
    assert not (tmp_path / "s.json").exists()


@pytest.mark.parametrize("honest", mostly_slow([None, 3], 3))
def test_a_person_whom_all_parties_may_know_pays_at_each(honest: int | None, tmp_path: Path) -> None:
    """√Σμ² of messages, Σμ in an opened sum."""
    account = opened(tmp_path, TABLE, 30.0, unit="person")
    who = np.arange(240) // 2  # both records of a person are at different sites
    told = ct.statistics(
        SITES, budget=ct.Budget(**BUDGET), bounds={"age": (0, 100)}, honest=honest, account=account,
        people=[who[i::3] for i in range(3)],
    )  # fmt: skip
    assert told.records == sum(len(set(who[i::3])) for i in range(3))
    spent = (account.contents().spent.units / 2**96) ** 0.5
    assert spent == pytest.approx((3 if honest else 3**0.5) * float(gdp.mu_for(1.0, 1e-5)), rel=1e-3)


def test_statistics_of_people_count_each_once(tmp_path: Path) -> None:
    """One person with many records moves the released vector by no more than any other person."""
    who = np.where(np.arange(240) < 200, 0, np.arange(240))
    sites = [TABLE.iloc[i::2] for i in range(2)]
    told = ct.statistics(
        sites, budget=ct.Budget(1e6, 1e-5), bounds={"age": (0, 100)}, seed=0, people=[who[i::2] for i in range(2)]
    )
    means = [s.groupby(who[i::2]).age.mean() for i, s in enumerate(sites)]
    assert told.mean("age").value == pytest.approx(float(pd.concat(means).mean()), abs=0.05)


def test_everybody_is_not_who_shared_noise_is_against(tmp_path: Path) -> None:
    account = opened(tmp_path, TABLE, 9.0, against="everybody")
    with pytest.raises(ct.InputError, match="holds against everybody, and noise that parties share does not"):
        ct.statistics(SITES, budget=ct.Budget(**BUDGET), bounds={"age": (0, 100)}, honest=2, account=account)
    assert account.statement().draws == ()


@pytest.mark.filterwarnings("ignore")  # of labels that are read from the records
def test_what_no_account_pays_for(tmp_path: Path) -> None:
    account = opened(tmp_path, (TABLE, LABEL), 9.0)
    model = PrivateFairClassifier(sensitive_feature="sex", bounds={"age": (0, 100), "sex": ["f", "m"]}, account=account)
    for given in ({"classes": [0, 1], "method": "lr"}, {"classes": [0, 1], "as_printed": True}, {}):
        with pytest.raises(ct.InputError, match="no account can pay for it"):
            clone(model).set_params(**given).fit(TABLE, LABEL)
    with pytest.raises(ct.InputError, match="charge and account both pay"):
        ct.statistics(SITES, budget=ct.Budget(**BUDGET), bounds={"age": (0, 100)}, account=account, charge=print)
    assert account.statement().draws == ()


SEEDED: dict[str, Callable[[ct.DataAccount], Any]] = {
    "seed = 7": lambda a: ct.statistics(
        SITES, budget=ct.Budget(**BUDGET), bounds={"age": (0, 100)}, account=a, seed=7),
    "seed = 0": lambda a: ct.train(
        ct.logistic(classes=[0, 1]), ct.ring(HELD), budget=ct.Budget(**BUDGET), rounds=2, seed=0, account=a),
    "random_state = 3": lambda a: clone(LINEAR).set_params(account=a, random_state=3).fit(*NUMBERS),
    "random_state = 4": lambda a: PrivateSearch(
        clone(LINEAR).set_params(account=None), {"ridge": [0.1]}, epsilon=1.0, account=a, random_state=4).fit(*NUMBERS),
    "random_state = 5": lambda a: PrivateFairClassifier(
        sensitive_feature="sex", bounds={"age": (0, 100), "sex": ["f", "m"]}, classes=[0, 1], account=a, random_state=5,
    ).fit(TABLE, LABEL),
    "seed = 6": lambda a: covered_scores(*judged(), account=a, data=CODED, seed=6),
}  # fmt: skip


@pytest.mark.parametrize("told", SEEDED)
def test_no_account_pays_for_noise_that_somebody_knows(told: str, tmp_path: Path) -> None:
    data = {"table": TABLE, "labelled": (TABLE, LABEL), "numbers": NUMBERS, "coded": CODED}
    account = opened(tmp_path, data, 9.0)
    with pytest.raises(ct.InputError, match=f"{told}: whoever knows the seed can take the noise off"):
        SEEDED[told](account)
    assert account.statement().draws == ()


@pytest.mark.slow
def test_covered_scores_say_whose_the_records_are(tmp_path: Path) -> None:
    """The first draw fixes it; one that says otherwise is refused, and one that does not say it too."""
    path = stored(tmp_path / "all.csv", patient=np.arange(240) // 2)
    text = PLAN.format(path=path, person='person = "patient"')
    experiment = prepare(validate(tomllib.loads(text) | {"run": {"rounds": 2}}))
    point = np.zeros(experiment.network.problem.dim)
    account = opened(tmp_path, path, 9.0, unit="person")
    covered_scores(experiment, point, account=account, data=path)
    (draw,) = account.statement().draws
    assert draw.whose
    assert draw.unit == "person"
    assert draw.epsilon == pytest.approx(1.0, rel=5e-3)  # dealt out by person: nobody is at two
    covered_scores(experiment, point, account=account, data=path, people=[f"p{i // 2}" for i in range(240)])
    with pytest.raises(ct.InputError, match="other people's"):
        covered_scores(experiment, point, account=account, data=path, people=np.arange(240))
    assert len(account.statement().draws) == 2
