"""What a loader read from the records stands in every result, and whatever has some is nowhere called private."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.cli import main
from coterie.data import ALL_PUBLIC
from coterie.data.store_writer import write_store
from coterie.deploy.party import Records, Terms, read_records, write_records
from coterie.deploy.trial import make_trial
from coterie.errors import InputError
from coterie.explain import explain
from coterie.plan import validate
from coterie.report import certificate as c
from coterie.report import sealing
from coterie.report.verification import Refuted, parse, verify
from tests.report.certificates import STATED, changed, make, rejection, resealed

READ = "sick: its classes are read from the data"
PLAN = """
name = "table"
[data]
source = "csv"
path = "{path}"
label = "sick"
options = {{ {classes}optional = [], bounds = {{ weight = [0, 100], age = [0, 100] }} }}
[partition]
kind = "iid"
agents = 3
[problem]
loss = "logistic"
dim = 2
[privacy]
epsilon = 1.0
[run]
rounds = 4
references = "none"
"""


def write_plan(folder: Path, stated: bool) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"weight": rng.uniform(0, 100, 90), "age": rng.uniform(0, 100, 90)})
    frame["sick"] = np.where(frame["age"] > 50, "yes", "no")
    frame.to_csv(folder / "table.csv", index=False)
    classes = 'classes = ["no", "yes"], ' if stated else ""
    path = folder / "plan.toml"
    path.write_text(PLAN.format(path=folder / "table.csv", classes=classes))
    return path


@pytest.mark.parametrize("stated", [True, False])
def test_a_run_says_it_everywhere(tmp_path: Path, stated: bool, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["run", str(write_plan(tmp_path, stated)), "--out", str(out), "--quiet"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    result = json.loads((out / "result.json").read_text())
    sealed = parse((out / "certificate.json").read_text())
    page = (out / "report.html").read_text()
    said = [row["statement"] for row in sealed["statements"]]
    assert result["privacy"]["private"] == sealed["claim"]["private"] == stated
    assert result["privacy"]["leaks"] == sealed["public"]["leaks"] == ([] if stated else [READ])
    assert any("scaled there by public bounds" in words for words in said) == stated
    warning = f"no privacy can be claimed: {READ}"
    for place in (shown, page, *result["warnings"], *said):
        assert READ not in place or not stated
    if not stated:
        assert warning in result["warnings"]
        assert warning in shown
        assert "privacy: none that can be claimed; the messages cost ε = 1 at" in shown
        assert "Not private." in page
        assert READ in page
        assert sum(READ in words for words in said) == 1
    assert main(["verify", str(out / "certificate.json"), "--strict"]) == (0 if stated else 1)
    assert (READ in capsys.readouterr().out.replace("\n", "")) == (not stated)


def leaky() -> dict[str, Any]:
    """A certificate of Adult coded by frequencies."""
    return make({**STATED, "data": {"source": "adult", "options": {"coding": "frequency"}}})


def test_a_certificate_with_leaks_cannot_claim() -> None:
    true = leaky()
    assert true["claim"]["private"] is False
    assert "categories are coded by their frequency" in str(rejection(true))
    lie = copy.deepcopy(true)
    lie["claim"]["private"] = True
    for strict in (False, True):
        assert "claim.private" in str(rejection(resealed(lie), strict=strict))


def test_a_certificate_without_the_leaks_of_its_plan_is_rejected() -> None:
    """All of it made anew for a loader that reads nothing: only the plan can tell."""
    lie, honest = leaky(), make(STATED)
    assert rejection(honest) is None
    for name in ("claim", "public", "statements"):
        lie[name] = honest[name]
    for strict in (False, True):
        assert "public.leaks" in str(rejection(resealed(lie), strict=strict))
    lie = make(STATED)
    del lie["public"]["leaks"]
    assert "public.leaks" in str(rejection(resealed(lie)))


def test_leaks_end_the_claim_for_sums_too() -> None:
    tree = {
        **STATED, "graph": {"kind": "complete"}, "algorithm": {"name": "dp-consensus-gd"},
        "exchange": {"kind": "secret-sum", "honest": 3, "noise": "central", "fraction_bits": 11},
    }  # fmt: skip
    assert rejection(make(tree)) is None
    read = make({**tree, "data": {"source": "adult", "options": {"coding": "frequency"}}})
    assert "coded by their frequency" in str(rejection(read))
    assert [claim["private"] for claim in (read["claim"], *read["other_claims"])] == [False] * 3
    for where in (("claim",), ("other_claims", 0)):
        lie = changed(read, (*where, "private"), lambda _: True)
        assert f"{'claim' if len(where) == 1 else 'other_claims[0]'}.private" in str(rejection(resealed(lie)))


def test_prices_and_explanations_say_it_without_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for stated in (True, False):
        plan = write_plan(tmp_path, stated)
        sizes = ["--set", "partition.records=30"]
        (tmp_path / "table.csv").unlink()
        assert main(["account", str(plan), "--json", *sizes]) == 0
        block = json.loads(capsys.readouterr().out)
        assert (block["private"], block["leaks"]) == (stated, [] if stated else [READ])
        assert main(["plan", "check", str(plan), "--no-rehearsal", *sizes]) == 0
        assert ("no privacy can be claimed" in capsys.readouterr().out) == (not stated)


@pytest.mark.slow
def test_a_comparison_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, out = write_plan(tmp_path, stated=False), tmp_path / "c"
    assert main(["compare", str(plan), "--epsilons", "1", "--seeds", "1", "--out", str(out)]) == 0
    (cell,) = json.loads((out / "comparison.json").read_text())["cells"]
    assert (cell["private"], cell["leaks"]) == (False, [READ])
    assert READ in " ".join(capsys.readouterr().out.split())
    assert ",False," in (out / "comparison.csv").read_text()
    assert f"plan is not private: {READ}." in (out / "comparison.md").read_text()
    assert main(["audit", str(plan)]) == 2
    assert f"there is nothing to audit: {READ}" in capsys.readouterr().err


def test_a_store_says_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    piece = lambda: (rng.uniform(-0.5, 0.5, (40, 2)), rng.integers(0, 2, 40))  # noqa: E731
    read = replace(ALL_PUBLIC, scale=("columns are scaled by their largest values",))
    for name, origins in (("open", ALL_PUBLIC), ("read", read)):
        agents = {"a": [piece()], "b": [piece()]}
        write_store(tmp_path / name, agents, test=piece(), classes=("no", "yes"), origins=origins)
        tree = {"data": {"source": "store", "path": str(tmp_path / name)}, "privacy": {}, "run": {"rounds": 3},
                "graph": {"kind": "path"}}  # fmt: skip
        lines, network, priced = explain(validate(tree))
        assert priced.private == (origins == ALL_PUBLIC)
        assert network.leaks == origins.leaks
        assert any("largest values" in line for line in lines) == (origins != ALL_PUBLIC)
        sealed = sealing.seal(c.certificate(validate(tree), network, priced))
        try:
            verify(parse(json.dumps(sealed)), strict=True)
            held = True
        except Refuted:
            held = False
        assert held == (origins == ALL_PUBLIC)


# ---- parties ---------------------------------------------------------------------------------------------------------


def parties(**data: Any) -> dict[str, Any]:
    return {
        "data": {"source": "csv", "label": "sick", **data}, "partition": {"kind": "iid", "sizes": [30, 30, 30]},
        "problem": {"loss": "logistic", "dim": 2}, "privacy": {"epsilon": 1.0}, "run": {"rounds": 4},
        "deploy": {"parties": [{"name": n, "address": f"{n}.example:1"} for n in "abc"]},
    }  # fmt: skip


def test_parties_agree_on_nothing_that_is_read() -> None:
    """Refused from the plan alone, before anybody has a file."""
    with pytest.raises(InputError, match=f"{READ}: state it in data.options"):
        Terms.of(validate(parties()))
    with pytest.raises(InputError, match="categories of text columns"):
        Terms.of(validate(parties(options={"classes": ["no", "yes"], "categories": "data"})))
    Terms.of(validate(parties(options={"classes": ["no", "yes"]})))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"data": {"site": "ward"}}, "data.site = 'ward' is not obeyed by an agent"),
        ({"data": {"path": "mine.csv"}}, "data.path = .*mine.csv.* is not obeyed"),
        ({"data": {"test_fraction": 0.3}}, "data.test_fraction = 0.3 is not obeyed"),
        ({"run": {"every": 5}}, "run.every = 5 is not obeyed"),
        ({"run": {"dtype": "float32"}}, "run.dtype = 'float32' is not obeyed"),
    ],
)
def test_parties_agree_on_nothing_that_no_agent_obeys(change: dict[str, Any], why: str) -> None:
    tree = parties(options={"classes": ["no", "yes"]})
    for table, keys in change.items():
        tree[table] |= keys
    with pytest.raises(InputError, match=why):
        Terms.of(validate(tree))


def test_a_party_refuses_records_that_were_read_or_do_not_say(tmp_path: Path) -> None:
    plan = validate(parties(options={"classes": ["no", "yes"]}))
    x, y = np.full((30, 2), 0.1), np.zeros(30, int)
    write_records(tmp_path / "good.npz", Records(x, y, ("no", "yes"), ()))
    assert read_records(plan, tmp_path / "good.npz").leaks == ()
    write_records(tmp_path / "read.npz", Records(x, y, ("no", "yes"), ("scaled by the largest",)))
    with pytest.raises(InputError, match="scaled by the largest; only records that public rules have made"):
        read_records(plan, tmp_path / "read.npz")
    np.savez(tmp_path / "silent.npz", features=x, targets=y, classes=np.array(["no", "yes"]))
    with pytest.raises(InputError, match="does not say what was read"):
        read_records(plan, tmp_path / "silent.npz")


def test_whole_numbers_as_targets_stay_numbers(tmp_path: Path) -> None:
    """A regression target with few whole values is no class: which values occur decides nothing."""
    tree = parties(options={"bounds": {"sick": [0, 10]}})
    tree["problem"] = {"loss": "squared", "dim": 1}
    for unbounded in (False, True):
        if unbounded:
            tree["data"]["options"] = {}
        targets = []
        for last in (3, 7):
            pd.DataFrame({"u": [0.1, 0.2, 0.3], "sick": [1, 2, last]}).to_csv(tmp_path / "t.csv", index=False)
            targets.append(read_records(validate(tree), tmp_path / "t.csv").targets)
        np.testing.assert_allclose(targets[0][:2], targets[1][:2])
        np.testing.assert_allclose(targets[0], np.array([1, 2, 3]) / (1 if unbounded else 10))


def test_a_rehearsal_of_such_records_is_refused_before_keys_are_made(tmp_path: Path) -> None:
    plan = validate({"data": {"source": "adult", "options": {"coding": "frequency"}},
                     "partition": {"kind": "iid", "agents": 3}, "privacy": {}})  # fmt: skip
    with pytest.raises(InputError, match="coded by their frequency in the data: no agent would take"):
        make_trial(plan, tmp_path / "trial")
    assert not (tmp_path / "trial").exists()


def test_how_records_come_to_be_in_bounds_is_said_as_it_is(tmp_path: Path) -> None:
    """Records that are handed over without bounds are scaled by nobody."""
    rng = np.random.default_rng(0)
    held = [(x, np.where(x[:, 0] > 0, 1, -1)) for x in rng.uniform(-0.5, 0.5, (3, 40, 2))]
    said = []
    for name, bounds in (("as they are", None), ("scaled", (-1.0, 1.0))):
        parties = ct.ring(held, bounds=bounds)
        run = ct.train(ct.logistic(), parties, ct.dp_dsgd(), ct.Budget(1.0, 1e-5), rounds=2, seed=0)
        run.save(tmp_path / name)
        sealed = json.loads((tmp_path / name / "certificate.json").read_text("utf-8"))
        said += [s["statement"] for s in sealed["statements"] if s["statement"].startswith("every record's features")]
        assert main(["verify", "--strict", str(tmp_path / name / "certificate.json")]) == 0
    assert said[0].endswith("as handed over: records that are not were refused, and none was scaled")
    assert said[1].endswith("scaled there by public bounds")


def test_a_plan_cannot_tell_what_was_read_from_records_that_were_handed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So `coterie account` never says that they are private; the run itself knows, and says it."""
    (tmp_path / "plan.toml").write_text(
        'data.source = "memory"\npartition.sizes = [40, 40, 40]\nproblem.loss = "logistic"\nproblem.dim = 2\n'
        "privacy.epsilon = 1.0\n"
    )
    assert main(["account", str(tmp_path / "plan.toml")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "private cannot tell" in shown
    assert "cannot tell what was read from records handed over" in shown
    assert main(["account", "--json", str(tmp_path / "plan.toml")]) == 0
    assert json.loads(capsys.readouterr().out)["private"] is False
