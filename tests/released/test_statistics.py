"""Statistics: one noisy sum, errors as stated, bounds for later plans, and nothing that a plan has not stated."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import coterie as ct
from coterie.algorithms.base import find
from coterie.audit.checks import examine, gather
from coterie.audit.setting import make_setting
from coterie.cli import app
from coterie.data.encode import Category, Number
from coterie.deploy.data import Records
from coterie.deploy.party import Terms
from coterie.deploy.trial import deployed_plan
from coterie.errors import InputError
from coterie.experiment import assemble
from coterie.privacy.accountants import account
from coterie.privacy.events import Event
from coterie.released.table_statistics import TableStatistics
from coterie.released.table_sums import TableSums
from coterie.testing.losses import PROBLEM_CHECKS
from tests.deploy.test_everything import run_parties

BOUNDS, LEVELS = {"age": (0.0, 100.0), "weight": (30.0, 150.0)}, {"sex": ["f", "m", "x"]}


def frame(n: int = 20_000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.normal(48, 16, n).clip(0, 100)
    weight = (40 + 0.5 * age + rng.normal(0, 9, n)).clip(30, 150)
    weight[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({"age": age, "weight": weight, "sex": rng.choice(["f", "m", "x"], n, p=[0.5, 0.45, 0.05])})


def coded(table: pd.DataFrame) -> np.ndarray:
    weight = np.where(table.weight.isna(), -1.0, (table.weight - 30) / 120)
    return np.stack([table.age / 100, weight, table.sex.map({"f": 0, "m": 1, "x": 2})], axis=1).astype(float)


SHAPE = TableSums((0, 0, 3), (False, True, False), 20)


def made(point: np.ndarray, records: int) -> TableStatistics:
    rules = (Number(0, 100), Number(30, 150), Category(("f", "m", "x")))
    return TableStatistics(SHAPE, point, ("age", "weight", "sex"), rules, records)


@cache
def whole() -> np.ndarray:
    with jax.enable_x64(True):
        rows = jnp.asarray(coded(frame()))
        return np.asarray(SHAPE.each(rows, jnp.zeros(len(rows)))).mean(0)


@pytest.mark.parametrize("check", PROBLEM_CHECKS)
def test_the_problem_is_what_it_says(check: str) -> None:
    PROBLEM_CHECKS[check](TableSums((0, 3), (True, False), 4))


@pytest.mark.parametrize(
    "levels", [(0, 3), *(pytest.param(v, marks=pytest.mark.slow) for v in ((0, 0, 0), (0,), (2, 3)))]
)
def test_the_worst_pair_reaches_what_is_declared(levels: tuple[int, ...]) -> None:
    problem = TableSums(levels, (False,) * len(levels), 6)
    grid = [np.array([0.0, 1.0, 0.5, 0.2, 0.8]) if not many else np.arange(many, dtype=float) for many in levels]
    rows = np.stack([g.ravel() for g in np.meshgrid(*grid)], axis=1)
    with jax.enable_x64(True):
        own = np.asarray(problem.each(jnp.asarray(rows), jnp.zeros(len(rows))))
    largest = max(float(np.max(np.linalg.norm(own - row, axis=1))) for row in own)
    assert (
        (0.9 if levels.count(0) != 1 else 0.85) * 2 * problem.half_gap < largest <= 2 * problem.half_gap * (1 + 1e-12)
    )


@pytest.mark.slow
def test_the_audit_finds_nothing() -> None:
    for finding in examine(
        gather(make_setting(find("release"), epsilon=1.0, problem=TableSums((0, 3), (True, False), 4)))
    ):
        assert finding.passed, finding


def test_without_noise_the_numbers_are_the_tables_own() -> None:
    table, told = frame(), made(np.append(whole(), 0.0), 20_000)
    assert told.mean("age").value == pytest.approx(table.age.mean(), rel=1e-9)
    assert told.mean("weight").value == pytest.approx(table.weight.mean(), rel=1e-9)
    assert told.std("age").value == pytest.approx(table.age.std(ddof=0), rel=1e-9)
    assert told.std("weight").value == pytest.approx(table.weight.std(ddof=0), rel=1e-9)
    assert told.quantile("age", 0.5).value == pytest.approx(table.age.median(), abs=1.0)
    assert told.histogram("sex")["m"].value == pytest.approx((table.sex == "m").mean(), rel=1e-9)
    assert told.counts("weight")["missing"].value == pytest.approx(table.weight.isna().sum(), rel=1e-9)
    full = TableSums((0, 0), (False, False), 20)
    rows = np.stack([table.age / 100, table.weight.fillna(90).sub(30) / 120], axis=1)
    with jax.enable_x64(True):
        point = np.asarray(full.each(jnp.asarray(rows), jnp.zeros(len(rows)))).mean(0)
    two = TableStatistics(full, np.append(point, 0.0), ("a", "b"), (Number(0, 1), Number(0, 1)))
    assert two.correlation("a", "b").value == pytest.approx(np.corrcoef(rows.T)[0, 1], rel=1e-9)


@cache
def coverage(short: float = 1.0) -> dict[str, float]:
    """In how many of 1,000 runs exact values lie within two stated errors (a quantile: in its interval)."""
    table, rng, sigma = frame(), np.random.default_rng(3), 4e-4
    full = TableSums((0, 0), (False, False), 20)
    rows = np.stack([table.age / 100, table.weight.fillna(90).sub(30) / 120], axis=1)
    with jax.enable_x64(True):
        plain = np.asarray(full.each(jnp.asarray(rows), jnp.zeros(len(rows)))).mean(0)
    truth = {
        "mean": table.age.mean(), "gaps": table.weight.mean(), "std": table.age.std(ddof=0),
        "spread": table.weight.std(ddof=0), "level": (table.sex == "x").mean(),
        "correlation": np.corrcoef(rows.T)[0, 1],
    }  # fmt: skip
    inside, median, runs = dict.fromkeys(truth, 0), 0, 1000
    for _ in range(runs):
        told = made(np.append(whole() + sigma * rng.standard_normal(SHAPE.size), short * sigma), 20_000)
        two = TableStatistics(
            full, np.append(plain + sigma * rng.standard_normal(full.size), short * sigma), ("a", "b"),
            (Number(0, 1), Number(0, 1)),
        )  # fmt: skip
        found = {
            "mean": told.mean("age"), "gaps": told.mean("weight"), "std": told.std("age"), "spread": told.std("weight"),
            "level": told.histogram("sex")["x"], "correlation": two.correlation("a", "b"),
        }  # fmt: skip
        for name, number in found.items():
            assert number.value is not None
            assert number.error is not None
            inside[name] += abs(number.value - truth[name]) <= 2 * number.error
        at = told.quantile("age", 0.5)
        median += at.low <= table.age.median() <= at.high
    return {name: count / runs for name, count in inside.items()} | {"median": median / runs}


def test_errors_are_as_stated() -> None:
    found = coverage()
    assert found.pop("median") >= 0.95
    for name, share in found.items():
        assert 0.935 <= share <= 0.975, (name, share)


@pytest.mark.slow
def test_errors_that_are_too_small_are_seen() -> None:
    found = coverage(0.85)
    found.pop("median")
    for name, share in found.items():
        assert share < 0.935, (name, share)


@pytest.mark.parametrize("honest", [pytest.param(None, marks=pytest.mark.slow), 4], ids=["local", "shared"])
def test_statistics_of_several_parties(honest: int | None) -> None:
    table, heard = frame(), list[tuple[list[Event], float]]()
    sites = [table.iloc[rows] for rows in np.array_split(np.arange(len(table)), 5)]
    told = ct.statistics(
        sites, budget=ct.Budget(1.0, 1e-5), bounds=BOUNDS, categories=LEVELS, gaps=["weight"], honest=honest, seed=2,
        charge=lambda events, delta: heard.append((list(events), delta)),
    )  # fmt: skip
    ((events, delta),) = heard
    assert len(events) == 1
    assert 0.99 < account(events, delta).epsilon <= 1.0
    for name, exact in (("age", table.age.mean()), ("weight", table.weight.mean())):
        number = told.mean(name)
        assert number.value is not None
        assert number.error is not None
        assert abs(number.value - exact) < 4 * number.error < 3
    low, high = told.bounds("age")
    assert low <= table.age.quantile(0.01) < table.age.quantile(0.99) <= high
    assert 0 < high - low <= 100
    said = told.as_json()
    assert said["marked"] == "covered by ε"
    assert said["epsilon"] <= 1.0
    assert {"f", "m", "x"} == set(said["columns"]["sex"]["histogram"])


def test_between_machines() -> None:
    table = frame(3000)
    tree: dict[str, Any] = {
        "name": "statistics", "data": {"source": "clinics"}, "graph": {"kind": "complete"}, "privacy": {"epsilon": 2.0},
        "problem": {"loss": "statistics", "levels": [0, 0, 3], "gaps": [False, True, False]},
        "algorithm": {"name": "release"},
    }  # fmt: skip
    from coterie.data import ALL_PUBLIC
    from coterie.plan import validate

    rows, parts = SHAPE.admit(coded(table), np.zeros(3000))[0], np.array_split(np.arange(3000), 4)
    plan = validate(tree)
    names = [f"p{k}" for k in range(4)]
    experiment = assemble(plan, SHAPE, rows, np.zeros(3000), list(parts), names=names, origins=ALL_PUBLIC)
    terms = Terms.of(deployed_plan(plan, experiment))
    assert terms.network.problem == SHAPE
    _, sent, _, answers = run_parties(terms, [Records(rows[part], np.zeros(len(part)), None, ()) for part in parts])
    assert sent.all()
    told = made(answers[0], 3000)
    number = told.mean("age")
    assert number.value is not None
    assert number.error is not None
    assert abs(number.value - table.age.mean()) < 4 * number.error


PLAN = """
[data]
source = "csv"
path = "{path}"
label = "ill"
[data.options]
classes = ["no", "yes"]
bounds = {{ age = [0, 100], weight = [30, 150] }}
categories = {{ sex = ["f", "m", "x"] }}
optional = ["weight"]
[partition]
kind = "iid"
agents = 5
[graph]
kind = "complete"
[problem]
loss = "logistic"
[privacy]
epsilon = 1.0
"""


def test_the_command_reads_what_the_plan_states_and_writes_all_of_it(tmp_path: Path) -> None:
    table = frame(5000).assign(ill=lambda t: np.where(t.age > 50, "yes", "no"))
    table.to_csv(tmp_path / "all.csv", index=False)
    (tmp_path / "plan.toml").write_text(PLAN.format(path=tmp_path / "all.csv"))
    ran = CliRunner().invoke(app, ["stats", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "stats.json")])
    assert ran.exit_code == 0, ran.output
    assert "covered by ε: (1, 1e-05) per record for all of it" in " ".join(ran.output.split())
    told = pd.read_json(tmp_path / "stats.json", typ="series")
    assert set(told["columns"]) == {"age", "weight", "sex", "ill"}
    age, ill = told["columns"]["age"], told["columns"]["ill"]["histogram"]
    assert abs(age["mean"]["value"] - table.age.mean()) < 4 * age["mean"]["standard_error"]
    assert abs(ill["yes"]["value"] - (table.ill == "yes").mean()) < 4 * ill["yes"]["standard_error"]
    assert "missing" in told["columns"]["weight"]["histogram"]


def test_mistakes_are_refused_by_name(tmp_path: Path) -> None:
    sites = [frame(50)] * 3
    budget = ct.Budget(1.0, 1e-5)
    for words, options in (
        ("public ranges", {}),
        ("gaps names 'weight'", {"bounds": {"age": (0, 1)}, "gaps": ["weight"]}),
        ("column 'height' is missing", {"bounds": {"height": (0, 1)}}),
        ("'sex' must be numeric", {"bounds": {"sex": (0, 1)}}),
    ):
        with pytest.raises(InputError, match=words):
            ct.statistics(sites, budget=budget, **options)  # type: ignore[arg-type]
    told = made(np.append(whole(), 0.01), 100)
    with pytest.raises(InputError, match="has levels"):
        told.quantile("sex", 0.5)
    with pytest.raises(InputError, match="between 0 and 1"):
        told.quantile("age", 1.0)
    assert "may have gaps" in told.correlation("age", "weight").why
    with pytest.raises(InputError, match="more than 20000"):
        TableSums((0,) * 300, (False,) * 300, 20)
    ran = CliRunner().invoke(app, ["stats", "clinics"])
    assert ran.exit_code != 0
