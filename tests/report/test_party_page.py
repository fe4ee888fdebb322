"""The page of a deployed party: what its folder says, nothing that the log says of records, and its worth at home."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.cli import main
from coterie.deploy.data import Records, read_records, write_records
from coterie.deploy.journal import Log, for_owner, listening, log
from coterie.deploy.process import open_party
from coterie.deploy.trial import Site, free_ports, sign_trial
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy import gdp
from coterie.report.party import party_page
from coterie.report.released import party_model
from coterie.report.sealing import plan_hash
from coterie.worth.judge import own_worth
from coterie.worth.verdict import sentence
from tests.deploy.house import small_plan, small_records

EVIL = "<script>alert(1)</script> & Söhne"


def titled_plan() -> Plan:
    places = tuple(f"127.0.0.1:{p}" for p in free_ports(3))
    tree = small_plan(4, addresses=places).model_dump(mode="json", exclude_none=True)
    for party, title in zip(tree["deploy"]["parties"], ("Klinikum Süd", EVIL, None), strict=True):
        party |= {} if title is None else {"title": title}
    return validate({k: v for k, v in tree.items() if k != "run"} | {"run": {"rounds": 4}})


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A party that has sent two of four rounds, and whose log has lines of every kind."""
    agreement, sites = sign_trial(titled_plan(), small_records(), tmp_path_factory.mktemp("page") / "t")
    site = sites[0]
    with open_party(agreement, site.keys, site.data, site.state) as party:
        for t in range(2):
            party.ledger.release(t, party.party.charges[t], b"f" * 100, b"", {})
            party.note("sent", round=t, seconds=0.25 * (t + 1))
        party.note("late", round=1, parties=["cleo"])
        party.note("refusals", counts=["ben: speaks another protocol (2)"])
        party.note("refusals", counts=["ben: speaks another protocol (3)"])  # all so far, not three more
        log.warning("not up yet: nothing listens", extra={"about": "ben"})
        for_owner.warning("7 of 12 values of 'ben' lie beyond", extra={"about": "ben"})  # a column like a neighbour
        for_owner.warning("5 of 12 records lie outside")
    return site


def test_the_page_says_what_the_folder_says(ada: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(ada.state)]) == 0
    page = ada.state / "report.html"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text("utf-8")
    assert "<h1>Klinikum Süd</h1>" in text
    for words in (
        "Not finished.", "2 of 4", "of 2 that was agreed", "What this protects against", "There is none yet",
        "What it does not protect against", "1 round went on without cleo", "ben: speaks another protocol, 3 times",
        "not up yet: nothing listens", "Rounds took 0.375 s (median); the longest, round 1, 0.5 s.", "1 start.",
    ):  # fmt: skip
        assert words in text, words
    capsys.readouterr()
    assert main(["ledger", "show", str(ada.state / "ledger.db"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    spent, told = shown["spent"], shown["protects"]
    assert (told["unit"], told["record"], told["person"]) == ("record", pytest.approx(spent), None)
    for k, epsilon in told["of_records"].items():  # k records move Gaussian noise's mean k times as far
        by_hand = float(gdp.epsilon_of(int(k) * gdp.mu_for(spent, shown["delta"]), shown["delta"]))
        assert by_hand * (1 - 1e-6) <= epsilon <= by_hand * 1.01
    assert main(["ledger", "show", str(ada.state / "ledger.db")]) == 0
    line = f"ε is for one record; a person with several records at one party: ε = {told['of_records']['2']:.3g} with 2,"
    assert line in " ".join(capsys.readouterr().out.split())
    whole = float(gdp.epsilon_of(2 * gdp.mu_for(2.0, shown["delta"]), shown["delta"]))
    assert f"For the whole plan, a person with several records at one party: ε = {whole:.3g} with 2," in text
    assert f"ε = {spent:.3g}</span> spent" in text
    assert "Was it worth it? Not judged." in text
    assert "There is no model yet." in text
    assert "For you alone" not in text


def test_what_the_log_says_of_records_is_not_repeated(ada: Site) -> None:
    assert "lie beyond" in (ada.state / "log.jsonl").read_text()  # the owner has been told
    text = party_page(ada.state)
    assert "lie beyond" not in text
    assert "lie outside" not in text


def test_names_are_shown_and_never_run(ada: Site) -> None:
    text = party_page(ada.state)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; Söhne" in text
    assert len(re.findall("<script", text)) == 1


def test_worth_is_what_the_same_models_are_worth_elsewhere(ada: Site, tmp_path: Path) -> None:
    plan = titled_plan()
    point = np.array([1.5, -0.5, 0.25])
    agreed = json.loads((ada.state / "agreement.json").read_text())["plan"]
    signed = plan_hash(validate(agreed))
    (ada.state / "model.npz").write_bytes(party_model(point, plan=signed, rounds=4, epsilon=1.0, delta=1e-5))
    try:
        mine = read_records(plan, ada.data)
        rng = np.random.default_rng(5)
        x = rng.normal(size=(40, 3))
        test = Records(x / np.linalg.norm(x, axis=1, keepdims=True), (x[:, 0] > 0).astype(int), ("no", "yes"), ())
        write_records(tmp_path / "test.npz", test)
        given = ["--data", str(ada.data), "--test", str(tmp_path / "test.npz"), "--out", str(tmp_path / "page.html")]
        assert main(["report", str(ada.state), *given]) == 0
        text = (tmp_path / "page.html").read_text("utf-8")
        from coterie.deploy.terms import Terms

        terms = Terms.of(plan)
        problem, clip = terms.network.problem, terms.priced.algorithm.clips(terms.priced.cfg)
        signs = [(r.features, np.where(r.targets == 1, 1.0, -1.0)) for r in (mine, test)]
        worth = own_worth(problem, "Klinikum Süd", *signs, point, clip=clip)
        (row,) = worth["parties"]
        right = np.mean((test.features @ point > 0) == (test.targets == 1))
        assert row["private"] == pytest.approx(right)
        assert (row["records"], row["test_records"]) == (12, 40)
        assert worth["mean"]["gain"] == pytest.approx(row["private"] - row["alone"])
        said = re.search(r"Was it worth it\? (?:Yes|No|Cannot tell)\.</strong> (.*?)</p>", text, re.DOTALL)
        assert said is not None
        spent = re.search(r"ε = ([\d.]+)", said[1])
        assert spent is not None
        assert said[1].removesuffix(" <em>At home only.</em>") == sentence(worth, f"ε = {spent[1]}").replace(
            "'", "&#39;"
        )
        assert text.index("For you alone") < text.index("<h2>")  # in its first lines
        wrong = Records(test.features[:, :2], test.targets, test.classes, ())
        with pytest.raises(InputError, match="the plan says 3 features, the test records have 2"):
            party_page(ada.state, mine, wrong)
        with pytest.raises(InputError, match="12 records for this party, its file has 40"):
            party_page(ada.state, test, test)
        with pytest.raises(InputError, match=r"give this party's own records too \(--data\)"):
            party_page(ada.state, None, test)
    finally:
        (ada.state / "model.npz").unlink()


def test_one_party_is_told_of_itself() -> None:
    row = {"name": "Klinikum Süd", "verdict": "gains", "gain": 0.1, "low": 0.05, "high": 0.15}
    worth: dict[str, Any] = {"metric": "accuracy", "better": "more", "of": 1, "parties": [row], "mean": row}
    assert sentence(worth, "ε = 1") == (
        "Joining pays at ε = 1: +0.100 accuracy on own test records over staying alone, Klinikum Süd (95 % interval "
        "+0.050 to +0.150)."
    )
    row |= {"verdict": None}
    assert sentence(worth, "ε = 1") == "Cannot tell whether joining pays at ε = 1: too few test records at hand."


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda s: (s / "agreement.json").unlink(), r"holds no agreement\.json"),
        (lambda s: (s / "agreement.json").write_text((s / "agreement.json").read_text().replace('"three"', '"four"')),
         "is not the agreement of the ledger beside it"),
    ],
)  # fmt: skip
def test_files_that_do_not_belong_together_are_refused(ada: Site, spoil: Any, reason: str) -> None:
    whole = (ada.state / "agreement.json").read_bytes()
    try:
        spoil(ada.state)
        with pytest.raises(InputError, match=reason):
            party_page(ada.state)
    finally:
        (ada.state / "agreement.json").write_bytes(whole)


def test_a_certificate_that_does_not_hold_is_called_so(ada: Site) -> None:
    (ada.state / "certificate.json").write_text('{"claim": {"epsilon": 0.1}}')
    try:
        text = party_page(ada.state)
        assert "The certificate does not hold." in text
        assert "It holds." not in text
    finally:
        (ada.state / "certificate.json").unlink()


def test_options_of_a_party_are_refused_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "--test", "x.csv"]) == 2
    assert "holds no ledger.db" in capsys.readouterr().err


def test_a_line_of_records_is_marked(tmp_path: Path) -> None:
    note = Log(tmp_path / "log.jsonl")
    with listening(note):
        for_owner.warning("a value", extra={"about": "ben"})
        log.warning("a caller", extra={"about": "ben"})
    note.close()
    first, second = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert first["of"] == "records"
    assert "of" not in second
