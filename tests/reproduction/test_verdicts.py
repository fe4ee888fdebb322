"""One rule decides every verdict: its cases one by one, and the verdicts that were once wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reproduction.base import Claim, all_figures, judged
from reproduction.verdicts import Open, Outcome, Verdict, agrees, alike, compared, decide, least, said

COMMITTED = Path(__file__).parents[2] / "docs" / "papers" / "verdicts"
YES, NO, SILENT = Outcome(1.0, 0.1), Outcome(-1.0, 0.1), Outcome(0.1, 0.1)
ROUNDS = Open("T", "the number of rounds")


@pytest.mark.parametrize(
    ("outcomes", "left_open", "always", "word"),
    [
        ([YES], (), False, "holds"),
        ([NO], (), False, "fails"),
        ([SILENT], (), False, "cannot be decided"),
        ([YES, NO], (), False, "cannot be decided"),
        ([YES, SILENT], (), False, "cannot be decided"),
        ([], (), False, "cannot be decided"),
        ([YES], (ROUNDS,), False, "cannot be decided"),  # one choice of what is not stated
        ([said(True, T="200"), said(True, T="1000")], (ROUNDS,), False, "holds"),
        ([said(False, T="200"), said(False, T="1000")], (ROUNDS,), False, "fails"),
        ([said(True, T="200"), said(False, T="1000")], (ROUNDS,), False, "cannot be decided"),
        ([YES], (Open("T", "the rounds", harmless="the answer is linear in T"),), False, "holds"),
        ([YES, NO], (), True, "fails"),  # a theorem: one counterexample
        ([NO], (ROUNDS,), True, "fails"),
        ([YES, YES], (ROUNDS,), True, "cannot be decided"),  # tries prove nothing
        ([YES, SILENT], (), True, "cannot be decided"),
    ],
)
def test_the_rule(outcomes: list[Outcome], left_open: tuple[Open, ...], always: bool, word: str) -> None:
    found = decide(outcomes, left_open, always)
    assert found.word == word
    assert bool(found.because) == (word == "cannot be decided")


def test_a_theorem_holds_by_its_proof_alone() -> None:
    assert decide([YES], (ROUNDS,), True, proved=True).word == "holds"
    assert decide([NO], (ROUNDS,), True, proved=True).word == "fails"
    assert decide([SILENT], (), True, proved=True).word == "cannot be decided"
    claim = Claim("a bound", True, "so", {"x": 1.0}, always=True)
    assert claim.as_json()["because"] == "no counterexample was found, and no proof"
    assert Claim("a bound", True, "so", {"x": 1.0}, always=True, proved="Lemma 1").as_json()["verdict"] == "holds"


def test_why_it_cannot_be_decided() -> None:
    assert decide([YES], (ROUNDS,)).because == "tried at one choice of T (not stated)"
    two = [said(True, T="200"), said(False, T="1000")]
    assert decide(two, (ROUNDS,)) == Verdict("cannot be decided", "borne out at T 200; contradicted at T 1000")


def test_what_is_not_here_decides_nothing() -> None:
    records = Open("records", "a census", lacking="its records are not here")
    assert decide([YES, YES], (records,)) == Verdict("cannot be decided", "its records are not here")
    assert decide([NO], (records,), True).word == "fails"  # a theorem needs no records


def test_a_margin_counts_from_two_standard_errors() -> None:
    assert [Outcome(m, 1.0).bears for m in (2.1, 2.0, -2.0, -2.1, float("nan"))] == [True, None, None, False, None]
    assert [Outcome(m).bears for m in (1e-9, 0.0, -1e-9)] == [True, None, False]


def test_what_is_open_bears_on_the_claims_it_names() -> None:
    item = Open("T", "rounds", bears_on=("the loss",))
    assert item.concerns("the loss falls")
    assert not item.concerns("the time grows")
    loss, time = (Claim(text, True, "so", {"x": 1.0}).as_json([item]) for text in ("the loss falls", "the time grows"))
    assert (loss["verdict"], time["verdict"]) == ("cannot be decided", "holds")
    ours = Claim("the loss falls", True, "so", {"x": 1.0}, who="ours").as_json([item])
    assert ours["verdict"] == "holds"  # what we ran is not open


def test_a_comparison_has_the_error_of_both_means() -> None:
    rng = np.random.default_rng(0)
    low, high = rng.normal(0, 1, 400), rng.normal(1, 2, 100)
    found = compared(low, high)
    assert found.error == pytest.approx(np.hypot(low.std(ddof=1) / 20, high.std(ddof=1) / 10))
    assert found.bears is True
    assert compared(high, low).bears is False
    assert compared(low, rng.normal(0, 1, 400)).bears is None
    assert compared([1.0], [1.5], room=-1.0).margin == -0.5


def test_of_several_conditions_the_worst_decides() -> None:
    assert least([YES, NO, SILENT]).bears is False
    assert least([YES, SILENT]).bears is None
    assert least([Outcome(3.0), Outcome(1.0)], T="1") == Outcome(1.0, 0.0, {"T": "1"})


def test_almost_the_same_is_decided_only_where_both_readings_agree() -> None:
    near, between, far = (decide(alike(1.0, x)).word for x in (1.05, 1.7, 3.0))
    assert (near, between, far) == ("holds", "cannot be decided", "fails")


def test_a_printed_number_is_met_to_its_last_digit() -> None:
    assert [agrees(v, "30 %").bears for v in (0.26, 0.34, 0.24, 0.41)] == [True, True, False, False]
    assert [agrees(v, "0.135").bears for v in (0.1354, 0.1356)] == [True, False]
    assert [agrees(v, "318").bears for v in (318.4, 318.6)] == [True, False]


def test_what_diverged_survives_json() -> None:
    claim = Claim("c", [Outcome(float("inf")), Outcome(float("nan"))], "m", {"x": 1.0}).as_json()
    assert json.loads(json.dumps(claim, allow_nan=False)) == claim
    assert judged(claim, ())["because"] == "borne out at as run; within the noise at as run"


def test_only_what_differs_is_told() -> None:
    tries = [said(True, graph="ring", T="1"), said(False, graph="ring", T="2")]
    assert decide(tries).because == "borne out at T 1; contradicted at T 2"
    assert decide([SILENT, SILENT]).because == "within the noise in every try"


def words(slug: str) -> dict[tuple[str, str | None], str]:
    found = json.loads((COMMITTED / f"{slug}.json").read_text("utf-8"))
    return {(c["claim"], c["version"]): c["verdict"] for c in found["claims"] if c["who"] == "paper"}


NAMED = json.loads((Path(__file__).parent / "verdicts.json").read_text("utf-8"))


@pytest.mark.parametrize(("slug", "begins", "version", "word"), NAMED)
def test_verdicts_that_were_once_wrong(slug: str, begins: str, version: str | None, word: str) -> None:
    found = [w for (text, v), w in words(slug).items() if text.startswith(begins) and v == version]
    assert found == [word]


def decided() -> list[tuple[str, dict[str, Any]]]:
    """The papers' claims about runs that have a verdict."""
    return [
        (slug, claim)
        for slug in all_figures()
        if (path := COMMITTED / f"{slug}.json").exists()
        for claim in json.loads(path.read_text("utf-8"))["claims"]
        if claim["who"] == "paper" and not claim["always"] and claim["verdict"] != "cannot be decided"
    ]


def test_no_verdict_rests_on_one_choice_of_what_is_not_stated() -> None:
    for slug, claim in decided():
        for item in all_figures()[slug].figure.left_open:
            if item.concerns(claim["claim"]) and not item.harmless:
                assert len({o["at"].get(item.key) for o in claim["outcomes"]}) > 1, (slug, claim["claim"], item.key)


NO_RUN = {  # claims whose verdict is arithmetic on what the paper states, which leaves nothing open
    ("dissertation-ch4-fig16", "they take more time"),
    (
        "dissertation-ch56-table1",
        "PDFC and ADFC have a smaller risk difference than PFLR* in most cases of the printed table",
    ),
    ("xiao-fig1", "γ falls in the width ω and in the noise rate β"),
}


def test_every_other_verdict_is_over_a_range() -> None:
    """Also where somebody forgot to say what is left open: one try decides nothing about runs."""
    found = decided()
    assert {(slug, c["claim"]) for slug, c in found} >= NO_RUN
    for slug, claim in found:
        if (slug, claim["claim"]) in NO_RUN:
            continue
        tried = {json.dumps(o["at"], sort_keys=True) for o in claim["outcomes"]}
        assert len(tried) == len(claim["outcomes"]) > 1, (slug, claim["claim"])


ONE_CHOICE = {("dissertation-ch3-fig8", "β = 10^−3.5 has the lowest error: a smaller β does not help")}


def test_what_can_be_tried_at_a_second_choice_is() -> None:
    """But for chapter 4, which trains networks, what is corrected in chapter 3, and for another solver."""
    left = ("dissertation-ch4", "dissertation-ch3-fig11", "dissertation-ch3-fig12")
    paths = [p for p in sorted(COMMITTED.glob("*.json")) if not p.stem.startswith(left)]
    found = {
        (path.stem, claim["claim"])
        for path in paths
        for claim in json.loads(path.read_text("utf-8"))["claims"]
        if (claim["because"] or "").startswith("tried at one choice")
    }
    assert len(paths) > 20
    assert found <= ONE_CHOICE


def test_what_was_varied_is_said_to_be_open() -> None:
    beside = {
        "almost",
        "method",
        "reading",
        "measure",
        "repair",
        "W",
        "η",
    }  # words of a claim, or varied with another choice
    for slug, claim in decided():
        said_open = {item.key for item in all_figures()[slug].figure.left_open} | beside
        for outcome in claim["outcomes"]:
            assert set(outcome["at"]) <= said_open, (slug, claim["claim"])
