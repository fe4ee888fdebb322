"""People through the product: plans, parties, estimators, deployments and results, by what each of them promises."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.algorithms._charges import run_events
from coterie.algorithms.base import all_algorithms
from coterie.algorithms.batches import rows
from coterie.cli import main
from coterie.deploy.data import Records, read_records, write_records
from coterie.deploy.party import Terms
from coterie.deploy.trial import deployed_plan
from coterie.deploy.wording import headlines
from coterie.errors import InputError
from coterie.estimators import PrivateConsensusClassifier, PrivateConsensusRegressor, PrivateMean, PrivateSearch
from coterie.experiment import Experiment, prepare, public_network
from coterie.explain import unit_block
from coterie.losses.logistic import Logistic
from coterie.plan import Plan, validate
from coterie.pricing import price
from coterie.privacy import gdp
from coterie.privacy.accountants import account
from coterie.privacy.events import Gaussian, Pure, SampledGaussian
from coterie.privacy.people import at_parties, of_group
from coterie.problems import of_people
from coterie.report.statements import assumptions
from coterie.report.units import at_home
from coterie.written import toml_of
from tests.deploy.consortium import make_consortium
from tests.deploy.test_everything import is_replayed
from tests.support import mostly_slow

PEOPLE = 90


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stays of people at three clinics; one of them has 25."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("people") / "stays.csv"
    who = np.concatenate([np.arange(PEOPLE), rng.integers(0, PEOPLE, 150), np.full(24, 5)])
    a, b = rng.uniform(-1, 1, (2, len(who)))
    sick = np.where(a - b + 0.3 * rng.normal(size=len(who)) > 0, "yes", "no")
    frame = pd.DataFrame({"who": [f"p{k}" for k in who], "clinic": [f"c{k % 3}" for k in who], "a": a, "b": b})
    frame.assign(sick=sick).sample(frac=1, random_state=0).to_csv(path, index=False)
    return path


def tree(path: Path, **changes: Any) -> dict[str, Any]:
    options = {"sites": ["c0", "c1", "c2"], "classes": ["no", "yes"], "bounds": {"a": [-1, 1], "b": [-1, 1]}}
    data = {"source": "csv", "path": str(path), "label": "sick", "site": "clinic", "person": "who", "options": options}
    plan: dict[str, Any] = {
        "data": data | changes.pop("data", {}),
        "graph": {"kind": "complete"},
        "problem": {"loss": "logistic"},
        "algorithm": {"name": "dp-dsgd"},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        "run": {"rounds": 6},
    }
    plan["data"] = {k: v for k, v in plan["data"].items() if v is not None}
    return plan | changes


def made(path: Path, **changes: Any) -> tuple[Plan, Experiment]:
    plan = validate(tree(path, **changes))
    return plan, prepare(plan)


# ---- plans -----------------------------------------------------------------------------------------------------------


def test_data_person_makes_the_person_the_unit(table: Path) -> None:
    plan, experiment = made(table)
    assert plan.by_person
    assert plan.as_json()["data"]["unit"] == "person"
    people = pd.read_csv(table)["who"].nunique()
    held = round(0.2 * people)
    assert int(experiment.network.sizes.sum()) == people - held  # sizes are numbers of people …
    assert sum(map(len, experiment.parts)) > people  # … who have more records than that
    record, other = made(table, data={"unit": "record"})
    assert not record.by_person
    assert int(other.network.sizes.sum()) == sum(map(len, other.parts))
    assert [list(p) for p in other.parts] == [list(p) for p in experiment.parts]  # the same splits


def test_charges_are_for_numbers_of_people(table: Path) -> None:
    """What a run costs is what one costs whose parties have as many records as these have people."""
    plan, experiment = made(table)
    priced = price(plan, experiment.network)
    sizes = [int(n) for n in experiment.network.sizes]
    stated = tree(table, data={"person": None}, partition={"kind": "iid", "sizes": sizes})
    stated["problem"] |= {"dim": 5}
    same = validate(stated)
    records = price(same, public_network(same))
    assert np.array_equal(priced.noise, records.noise)
    for node in range(3):
        ours, theirs = (run_events(p.algorithm, p.cfg, rows(p.places, node)) for p in (priced, records))
        assert [account([e], 1e-5).epsilon for e in ours] == [account([e], 1e-5).epsilon for e in theirs]
    batched, again = made(table, algorithm={"name": "dp-dsgd", "batch": 8})
    (event,) = run_events(*_priced(batched, again)[:2], rows(_priced(batched, again)[2], 0))
    assert np.allclose(event.rate, 8 / sizes[0])  # type: ignore[attr-defined]  # a batch is of people


def _priced(plan: Plan, experiment: Experiment) -> tuple[Any, Any, Any]:
    found = price(plan, experiment.network)
    return found.algorithm, found.cfg, found.places


def test_sizes_of_a_partition_are_numbers_of_people(table: Path) -> None:
    _, experiment = made(table, partition={"kind": "iid", "sizes": [10, 20, 30]}, data={"site": None, "options": {
        "classes": ["no", "yes"], "features": ["a", "b"], "bounds": {"a": [-1, 1], "b": [-1, 1]}}})  # fmt: skip
    assert experiment.network.sizes.tolist() == [10, 20, 30]
    assert experiment.people is not None
    assert [len(np.unique(experiment.people[p])) for p in experiment.parts] == [10, 20, 30]


REFUSED: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "unknown people": ({"data": {"person": None, "unit": "person"}}, "does not say whose a record is: state"),
    "a store": ({"data": {"source": "store", "person": "who", "label": None, "site": None, "options": {}}},
                "data.person does not apply to data.source = 'store'"),
    "a cap on records": ({"data": {"unit": "record", "records_per_person": 3}}, "records_per_person = 3 is for"),
    "a word": ({"data": {"unit": "patient"}}, "data.unit"),
    "no cap": ({"deploy": {"parties": [{"name": n, "address": f"{n}:1"} for n in "abc"]}},
               "data.records_per_person is needed where parties are deployed"),
    "no such column": ({"data": {"source": "clinics", "path": None, "label": None, "site": None, "options": {}}},
                       "data.person does not apply to data.source = 'clinics'"),
    "zero": ({"data": {"records_per_person": 0}}, "records_per_person"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_refused_in_one_line(case: str, table: Path) -> None:
    changes, words = REFUSED[case]
    with pytest.raises(InputError, match=re.escape(words)) as error:
        validate(tree(table, **{k: dict(v) for k, v in changes.items()}))
    assert "\n" not in str(error.value)


def test_sizes_of_records_cannot_be_kept_where_people_stay_together(table: Path) -> None:
    plan = validate(tree(table, data={"unit": "record"}, partition={"kind": "iid", "sizes": [10, 20, 30]}))
    with pytest.raises(InputError, match=re.escape("use data.unit = 'person'")):
        prepare(plan)


def test_methods_without_a_proof_for_people_are_refused_and_the_others_run() -> None:
    """The proof needs one score, one sign or one direction per record: a person has several."""
    without = {"dvp", "pvp", "m-admm", "r-admm", "mr-admm", "pp-admm", "ipp-admm", "priv-rcd", "quantimed"}
    problem, refused = of_people(Logistic(3)), set()
    for slug, algorithm in all_algorithms().items():
        if not algorithm.private:
            continue
        try:
            algorithm.check(algorithm.example, Logistic(3))
        except InputError:
            continue
        if algorithm.needs(algorithm.example).missing(problem):
            with pytest.raises(InputError, match="which a person with several records does not have"):
                algorithm.check(algorithm.example, problem)
            refused.add(slug)
        else:
            algorithm.check(algorithm.example, problem)
    assert refused <= without
    assert {"dvp", "pp-admm", "priv-rcd"} <= refused


def test_an_agreement_of_before_keeps_its_unit(table: Path) -> None:
    """Signed when records were the only unit: it does not become one about people by being read anew."""
    assert validate(tree(table)).by_person
    assert not validate(tree(table), foreign=True).by_person


# ---- one record each -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "exchange"),
    [
        pytest.param({"name": "dp-dsgd"}, {"kind": "broadcast"}, marks=pytest.mark.slow),
        pytest.param(
            {"name": "dp-dsgd", "batch": 8}, {"kind": "quantized", "bits": 6, "bound": 4.0}, marks=pytest.mark.slow
        ),
        pytest.param(
            {"name": "dp-dsgd"}, {"kind": "secret-sum", "noise": "central", "honest": 2}, marks=pytest.mark.slow
        ),
        pytest.param({"name": "pr-admm"}, {"kind": "broadcast"}, marks=pytest.mark.slow),
        ({"name": "p-admm"}, {"kind": "secret-sum"}),
    ],
    ids=["sgd", "batches, quantized", "shared noise", "gradient steps", "argmin, sums"],
)
def test_people_with_one_record_each_give_the_same_bits(
    table: Path, tmp_path: Path, algorithm: dict[str, Any], exchange: dict[str, Any]
) -> None:
    first = pd.read_csv(table).drop_duplicates("who")
    first.to_csv(tmp_path / "first.csv", index=False)
    runs: list[np.ndarray] = []
    for unit in ("person", "record"):
        plan, experiment = made(tmp_path / "first.csv", algorithm=algorithm, exchange=exchange, data={"unit": unit})
        priced = price(plan, experiment.network)
        runs.append(experiment.run(priced, [3], every=6).points)
    assert np.array_equal(runs[0], runs[1])
    plan, experiment = made(table, algorithm=algorithm, exchange=exchange)  # broken twin: several records
    assert not np.array_equal(runs[0], experiment.run(price(plan, experiment.network), [3], every=6).points)


# ---- Python ----------------------------------------------------------------------------------------------------------


def test_parties_and_train_take_people(table: Path) -> None:
    frame = pd.read_csv(table)
    frame["sick"] = np.where(frame["sick"] == "yes", 1, -1)
    names = ["c0", "c1", "c2"]
    parties = ct.ring(frame, site="clinic", label="sick", people="who", names=names, bounds=(-1, 1))
    assert parties.sizes == tuple(frame.groupby("clinic")["who"].nunique())
    assert "people" in repr(parties)
    run = ct.train(ct.logistic(), parties, ct.dp_dsgd(), ct.Budget(1.0, 1e-5), rounds=5, seed=0)
    assert run.result["plan"]["data"]["unit"] == "person"
    assert run.result["privacy"]["protects"]["unit"] == "person"
    cost = ct.price(ct.logistic(), ct.ring(sizes=parties.sizes, features=2, bounds=(-1, 1), people=True), ct.dp_dsgd(),
                    ct.Budget(1.0, 1e-5), rounds=5)  # fmt: skip
    assert np.allclose(cost.noise, run.made.priced.noise)  # type: ignore[union-attr]
    sites = [(part[["a", "b"]].to_numpy(), part["sick"].to_numpy()) for _, part in frame.groupby("clinic")]
    ids = [part["who"].to_numpy() for _, part in frame.groupby("clinic")]
    same = ct.train(ct.logistic(), ct.ring(sites, people=ids, bounds=(-1, 1)), ct.dp_dsgd(), ct.Budget(1.0, 1e-5),
                    rounds=5, seed=0)  # fmt: skip
    assert np.array_equal(run.points, same.points)


@pytest.mark.parametrize(
    ("people", "words"),
    [
        ([np.arange(3)], "1 lists of names for 2 sites"),
        ([np.arange(3), np.arange(5)], "site 1: people must name the person of each of 4 records"),
        ([np.arange(3), np.array(["a", None, "b", "c"], object)], "and 1 are missing"),
        ("who", "expected one list of names for each site, got a column of a frame"),
        (True, "the records of site 0 do not say whose they are"),
    ],
)
def test_people_that_are_not_said_are_refused(people: Any, words: str) -> None:
    sites = [np.zeros((3, 2)), np.zeros((4, 2))]
    with pytest.raises(InputError, match=words):
        ct.complete(sites, people=people)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coterie.estimators.fits.RepeatedFitWarning")
def test_estimators_take_people() -> None:
    rng = np.random.default_rng(0)
    who = np.concatenate([np.arange(200), rng.integers(0, 200, 200)])
    x = rng.uniform(-1, 1, (400, 2))
    y, agents = np.where(x[:, 0] > 0, "yes", "no"), who % 4
    options: dict[str, Any] = {"bounds": (-1, 1), "rounds": 10, "random_state": 0}
    of = lambda **more: PrivateConsensusClassifier(classes=["no", "yes"], **options).fit(x, y, **more)  # noqa: E731
    bare, single = of(agents=agents), of(agents=agents, people=np.random.default_rng(1).permutation(400))
    assert (bare.unit_, single.unit_) == ("record", "person")
    assert np.array_equal(bare.coef_, single.coef_)
    several = of(agents=agents, people=who)
    assert several.epsilon_spent_ == pytest.approx(1.0)
    assert not np.array_equal(bare.coef_, several.coef_)
    sites = [(x[agents == k], y[agents == k]) for k in range(4)]
    listed = PrivateConsensusClassifier(classes=["no", "yes"], **options)
    listed.fit(sites, people=[who[agents == k] for k in range(4)])
    assert np.allclose(listed.coef_, several.coef_)
    dealt = of(people=who)  # nobody says who holds what: a person's records stay at one party
    assert dealt.unit_ == "person"
    regressor = PrivateConsensusRegressor(target_bounds=(-1, 1), **options).fit(x, x[:, 0], people=who)
    assert regressor.unit_ == "person"
    with pytest.raises(InputError, match="people must name the person of each of 400 records"):
        of(people=who[:5])
    with pytest.raises(InputError, match="a person with several records does not have"):
        PrivateConsensusClassifier(algorithm="dvp", classes=["no", "yes"], **options).fit(x, y, people=who)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coterie.estimators.fits.RepeatedFitWarning")
def test_the_mean_of_people_is_over_people() -> None:
    ages = np.array([[10.0]] * 900 + [[50.0]] * 100)
    who = np.concatenate([np.zeros(900, int), np.arange(1, 101)])  # one person with nine hundred records
    options: dict[str, Any] = {"epsilon": 50.0, "bounds": (0, 100), "random_state": 0, "n_agents": 2}
    assert PrivateMean(**options).fit(ages, people=who).mean_[0] == pytest.approx((10 + 100 * 50) / 101, abs=2)
    assert PrivateMean(**options).fit(ages).mean_[0] == pytest.approx(14, abs=2)


def test_a_search_refuses_people() -> None:
    search = PrivateSearch(PrivateConsensusClassifier(), {"ridge": [0.1]})
    with pytest.raises(InputError, match="people are not for PrivateSearch"):
        search.fit(np.zeros((4, 1)), np.zeros(4), people=np.arange(4))


# ---- deployed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    mostly_slow([{"name": "dp-dsgd", "batch": 8}, {"name": "pr-admm"}], {"name": "pr-admm"}),
    ids=["sgd", "admm"],
)
def test_deployed_people_send_the_integers_of_the_simulation(table: Path, algorithm: dict[str, Any]) -> None:
    plan, experiment = made(table, algorithm=algorithm, data={"records_per_person": 3})
    terms = Terms.of(deployed_plan(plan, experiment))
    is_replayed(terms, experiment)
    outline = terms.outline(0)
    assert (outline.count, outline.per_person) == (int(experiment.network.sizes[0]), 3)


def records_of(people: np.ndarray) -> Records:
    rng = np.random.default_rng(len(people))
    return Records(
        rng.uniform(-0.5, 0.5, (len(people), 2)), rng.integers(0, 2, len(people)), ("no", "yes"), (), people=people
    )


def deployed(**data: Any) -> Plan:
    return validate(
        {
            "data": {"source": "csv", "unit": "person", "records_per_person": 4} | data,
            "partition": {"kind": "iid", "sizes": [6, 6, 9]},
            "graph": {"kind": "complete"},
            "problem": {"loss": "logistic", "dim": 2},
            "algorithm": {"name": "dp-dsgd"},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "run": {"rounds": 4},
            "deploy": {"parties": [{"name": n, "address": f"{n}.example:1"} for n in ("ada", "ben", "cleo")]},
        }
    )


def test_shapes_of_a_deployed_party_do_not_show_how_many_records_there_are() -> None:
    """Whatever a party's people have, what is compiled for it is the same, and known before a record is read."""
    import jax

    outline = Terms.of(deployed()).outline(0)
    shapes = lambda s: jax.tree.map(lambda x: (x.shape, np.dtype(x.dtype)), s)  # noqa: E731
    worlds = [np.arange(6), np.repeat(np.arange(6), 4), np.concatenate([np.arange(6), np.full(34, 3)])]
    blank = shapes(outline.blank())
    for people in worlds:
        assert shapes(outline.shard(records_of(people))) == blank
    assert outline.blank().features.shape == (9 * 4, 2)  # the largest party's people, four records each


@pytest.mark.parametrize(
    ("people", "words"),
    [(np.arange(7), "the plan says 6 people for this party, its file has 7"), (None, "does not say whose")],
)
def test_a_file_with_other_people_is_refused(people: np.ndarray | None, words: str) -> None:
    records = records_of(np.arange(7) if people is None else people)
    with pytest.raises(InputError, match=words):
        Terms.of(deployed()).outline(0).shard(records._replace(people=people))


def test_stored_records_keep_whose_they_are(tmp_path: Path) -> None:
    people = np.array(["b", "a", "b", "c", "d", "e", "f"])
    write_records(tmp_path / "r.npz", records_of(people))
    plan = deployed()
    found = read_records(plan, tmp_path / "r.npz")
    assert found.people is not None
    assert np.array_equal(found.people[:, None] == found.people, people[:, None] == people)
    assert Terms.of(plan).outline(0).shard(found).people is not None


def test_the_agreement_fixes_the_unit(tmp_path: Path) -> None:
    stated = deployed().model_dump(mode="json", exclude_none=True, exclude={"run": {"seed", "seeds"}})
    tables = {k: v for k, v in stated.items() if k != "deploy"}
    agreed = make_consortium(tmp_path, ("ada", "ben", "cleo"), **tables).agreement
    assert agreed.plan.by_person
    words = "\n".join(headlines(agreed))
    assert "for one person with all its records at a party" in words
    assert "21 people at 3 parties" in words


# ---- what an ε is for ------------------------------------------------------------------------------------------------


def test_group_privacy_of_gaussian_noise_is_exact() -> None:
    mu = float(gdp.mu_for(1.0, 1e-5))
    found = [of_group([Gaussian(mu, 1.0)], k, 1e-5) for k in (2, 5, 10, 40)]
    assert found == pytest.approx([2.15, 6.17, 14.43, 102.4], rel=0.003)
    for k, epsilon in zip((2, 5, 10, 40), found, strict=True):
        assert float(gdp.delta_of(k * mu, epsilon)) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_group_privacy_of_other_laws_covers_the_exact_one(k: int) -> None:
    """Randomised response is exactly ε-DP, and k of them exactly kε; a lemma may be loose, never short."""
    assert of_group([Pure(0.3)], k, 1e-6) == pytest.approx(0.3 * k, rel=1e-3)
    whole = of_group([SampledGaussian(2.0, 1.0)], k, 1e-5)  # no sampling: Gaussian in other words
    assert whole >= float(gdp.epsilon_of(k * 0.5, 1e-5)) * (1 - 1e-9)
    with pytest.raises(InputError, match="at least one member, got 0"):
        of_group([Pure(0.3)], 0, 1e-6)


def test_a_person_at_two_parties_adds_squares_of_messages_and_sums_of_sums(table: Path) -> None:
    plan, experiment = made(table)
    priced = price(plan, experiment.network)
    block = unit_block(plan, priced)
    mu = float(gdp.mu_for(1.0, 1e-5))
    assert block["record"] == block["person"] == pytest.approx(1.0, rel=1e-6)
    assert block["person_at_two_parties"] == pytest.approx(float(gdp.epsilon_of(2**0.5 * mu, 1e-5)), rel=1e-3)
    plan, experiment = made(table, exchange={"kind": "secret-sum", "noise": "central", "honest": 2})
    summed = unit_block(plan, price(plan, experiment.network))
    record, other = made(
        table, exchange={"kind": "secret-sum", "noise": "central", "honest": 2}, data={"unit": "record"}
    )
    many = unit_block(record, price(record, other.network))["of_records"]
    assert many["40"] == pytest.approx(102.4, rel=0.003)
    assert summed["person_at_two_parties"] == pytest.approx(float(gdp.epsilon_of(2 * mu, 1e-5)), rel=1e-3)
    plan, experiment = made(table, privacy={"epsilon": [1.0, 0.5, 0.2], "delta": 1e-5})
    mus = gdp.mu_for(np.array([1.0, 0.5]), 1e-5)
    two = unit_block(plan, price(plan, experiment.network))["person_at_two_parties"]
    assert two == pytest.approx(float(gdp.epsilon_of(np.linalg.norm(mus), 1e-5)), rel=1e-3)
    assert at_parties([[Gaussian(3.0, 1.0)], [Gaussian(4.0, 1.0)]], 1e-5) == pytest.approx(
        float(gdp.epsilon_of(5.0, 1e-5))
    )


def test_what_the_patient_with_most_records_has_is_for_the_home(table: Path) -> None:
    plan, experiment = made(table, data={"unit": "record"})
    priced = price(plan, experiment.network)
    home = at_home(experiment, priced)
    people = experiment.whose
    assert people is not None
    most = max(np.unique(people[p], return_counts=True)[1].max() for p in experiment.parts)
    assert home is not None
    assert home["most_records"] == most
    assert home["epsilon"] == pytest.approx(float(gdp.epsilon_of(most * gdp.mu_for(1.0, 1e-5), 1e-5)), rel=1e-3)
    block = unit_block(plan, priced)
    assert block["person"] is None  # without a bound on records there is none for a person
    assert block["of_records"]["40"] == pytest.approx(102.4, rel=0.003)
    assert "most" not in str(block)  # what is in every result does not depend on the records
    person, other = made(table)
    assert at_home(other, price(person, other.network)) is None


def test_statements_name_the_unit(table: Path) -> None:
    for unit, words in (
        ("person", "one person with all of its records"),
        ("record", "for one record, which one party"),
    ):
        plan, experiment = made(table, data={"unit": unit})
        priced = price(plan, experiment.network)
        said = [s.statement for s in assumptions(plan, experiment.network.problem, priced.algorithm, priced.cfg, ())]
        assert any(words in one for one in said)
        whose = "the mean gradient of every person's records" if unit == "person" else "every record's gradient"
        assert any(one.startswith(whose) for one in said)


@pytest.mark.parametrize("unit", mostly_slow(["person", "record"], "person"))
def test_a_run_says_whom_it_protects_and_its_certificate_verifies(
    unit: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = tree(table, data={"unit": unit})
    stated["run"]["references"] = "none"
    (tmp_path / "plan.toml").write_text(toml_of(stated), "utf-8")
    assert main(["run", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"per {unit}, replace-one" in said
    assert ("whom two parties know: ε = 1.4" in said) == (unit == "person")
    assert ("at home only" in said) == (unit == "record")
    result = json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))
    assert result["privacy"]["protects"]["unit"] == unit
    assert (result["at_home"] is None) == (unit == "person")
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert ("the person with the most of them" in page) == (unit == "record")
    assert main(["verify", str(tmp_path / "out" / "certificate.json")]) == 0
