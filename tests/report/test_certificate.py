"""Certificates: a true one holds, every change is found, and what cannot be found without a signature is listed."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from coterie.algorithms._sampling import DeadlineGaussian
from coterie.algorithms.base import all_algorithms
from coterie.cli import main
from coterie.errors import InputError
from coterie.exchange.central import EVERYBODY_ELSE
from coterie.exchange.statement import EVERY_MESSAGE
from coterie.privacy import events as ev
from coterie.privacy.codec import to_rows
from coterie.report import certificate as c
from coterie.report import sealing
from coterie.report.verification import Verified, parse, public_key, verify
from tests.report.certificates import (
    PLAN,
    STATED,
    changed,
    claimed,
    finished,
    make,
    rejection,
    resealed,
    walk,
    whom,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return finished(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def true(folder: Path) -> dict[str, Any]:
    return parse((folder / "certificate.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """PEM files of a private key, its public key, and somebody else's private key."""
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    where = tmp_path_factory.mktemp("keys")
    mine, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    for name, key in (("mine", mine), ("other", other)):
        pem = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        (where / f"{name}.pem").write_bytes(pem)
    public = mine.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    (where / "public.pem").write_bytes(public)
    return where / "mine.pem", where / "public.pem", where / "other.pem"


# ---- a true certificate ----------------------------------------------------------------------------------------------


def test_a_true_certificate_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder / "certificate.json")]) == 0
    said = capsys.readouterr().out
    assert "holds" in said
    assert "simulated, not private on a wire" in said
    assert "warning" not in said
    assert main(["verify", str(folder / "certificate.json"), "--strict"]) == 0


def test_its_totals_satisfy_the_gaussian_identity(true: dict[str, Any]) -> None:
    """δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) with μ² = Σ times (Δ/σ)², straight from the listed numbers."""
    for group in true["agents"]:
        mu = np.sqrt(sum(e["times"] * (e["sensitivity"] / e["sigma"]) ** 2 for e in group["events"]))
        eps = group["totals"]["gdp"]
        delta = norm.cdf(mu / 2 - eps / mu) - np.exp(eps) * norm.cdf(-mu / 2 - eps / mu)
        assert delta == pytest.approx(true["claim"]["delta"], rel=1e-9)
        assert eps == pytest.approx(group["budget"], rel=1e-6)  # the whole budget is used
        assert min(group["totals"].values()) == group["epsilon"] <= group["budget"]
    assert true["claim"]["epsilon"] == pytest.approx(2.0)


def test_it_holds_no_more_than_public_things(folder: Path, true: dict[str, Any]) -> None:
    """Nothing in it depends on what a record says: other patients of the same clinics give the same certificate."""
    other = folder.parent / "other.toml"
    other.write_text(PLAN.replace("sites = 4 }", "sites = 4, strength = 3.0 }"))
    assert main(["run", str(other), "--out", str(folder.parent / "other"), "--quiet", "--references", "none"]) == 0
    twin = parse((folder.parent / "other" / "certificate.json").read_text("utf-8"))
    differ = {key for key in true if true[key] != twin[key]}
    assert differ == {"plan", "plan_sha256", "files", "digest"}  # the option itself, and the released model


# ---- tampering -------------------------------------------------------------------------------------------------------


def other_value(value: Any, rng: random.Random) -> Any:
    """Another value of the same type: numbers by a small relative change, texts by a letter, lists by an entry."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice((-1, 1))
    if isinstance(value, float):
        return value * (1 + rng.choice((-1, 1)) * 10.0 ** rng.uniform(-10, -0.5)) if value else 1e-9
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        return value[:at] + rng.choice("0a \u03b5") + value[at + rng.randrange(2) :]
    if isinstance(value, list):
        return value[:-1] if value and rng.random() < 0.5 else [*value, copy.deepcopy(value[-1]) if value else 0]
    if isinstance(value, dict):
        if value and rng.random() < 0.5:
            gone = rng.choice(list(value))
            return {k: v for k, v in value.items() if k != gone}
        return {**value, "extra": rng.choice((0, 1.5, "x", None, True))}
    return rng.choice((0, 1.0, "x", [], {}))  # for null


def tamper(tree: dict[str, Any], rng: random.Random) -> tuple[tuple, dict[str, Any]]:
    """One field changed at random: its value, its type, removed, or a key added beside it."""
    while True:
        path = rng.choice(list(walk(tree)))
        kind = rng.random()
        if kind < 0.7:
            out = changed(tree, path, lambda v: other_value(v, rng))
        elif kind < 0.8:
            out = changed(tree, path, lambda v: rng.choice((None, 0, "x", [], {}, False)))
        else:
            out = changed(tree, path, lambda v: v)
            at = out
            for key in path[:-1]:
                at = at[key]
            if kind < 0.9 or not isinstance(at, dict):
                del at[path[-1]]
            else:
                at[f"{path[-1]}_"] = at[path[-1]]
        if sealing.canonical(out) != sealing.canonical(tree):
            return path, out


def test_1000_of_1000_changes_are_rejected(true: dict[str, Any]) -> None:
    rng = random.Random(11)
    missed = [path for path, fake in (tamper(true, rng) for _ in range(1000)) if rejection(fake) is None]
    assert missed == []


def test_signed_certificates_cannot_be_changed_at_all(true: dict[str, Any], keys: tuple[Path, Path, Path]) -> None:
    mine, public, other = keys
    signed, key = resealed(true, mine), public_key(str(public))
    assert rejection(signed, key=key) is None
    assert key == public_key(signed["signer"])
    rng = random.Random(3)
    for _ in range(300):
        _, fake = tamper(signed, rng)
        stated = {k: fake[k] for k in fake if k not in ("digest", "signature")}
        fake = {**fake, "digest": sealing.sha256(sealing.canonical(stated))}  # the adversary's best without the key
        if fake != signed:
            assert rejection(fake) is not None
    assert "signer" in str(rejection(resealed(true, other), key=key))
    assert "no signature" in str(rejection(true, key=key))
    assert rejection({**signed, "signature": signed["signature"].upper()}) is not None


def test_fewer_events_with_totals_to_match_are_rejected(true: dict[str, Any]) -> None:
    """The whole arithmetic redone for half of the messages: only the derivation from the plan can tell."""
    fake = copy.deepcopy(true)
    for group in fake["agents"]:
        group["events"] = group["events"][: len(group["events"]) // 2]
        group.update(c.totals(group["events"], fake["claim"]["delta"]))
    fake["claim"], fake["protects"] = claimed(fake), whom(fake)
    assert fake["claim"]["epsilon"] < 0.9 * true["claim"]["epsilon"]
    assert "events" in str(rejection(resealed(fake)))


def test_a_larger_size_with_everything_to_match_is_rejected() -> None:
    """Sizes that the plan states cannot be inflated to explain less noise."""
    true = make({**STATED, "algorithm": {"name": "pr-admm"}})
    assert rejection(true) is None
    lie = copy.deepcopy(true)
    grown = make({**STATED, "partition": {"kind": "iid", "sizes": [400, 400, 600]}, "algorithm": {"name": "pr-admm"}})
    lie["agents"], lie["claim"] = grown["agents"], grown["claim"]
    assert "agents.records" in str(rejection(resealed(lie)))


def test_overspending_is_rejected(true: dict[str, Any]) -> None:
    fake = copy.deepcopy(true)
    fake["plan"]["privacy"]["epsilon"] = [0.99, 2.0, 1.0, 1.0]
    fake["plan_sha256"] = sealing.sha256(sealing.canonical(fake["plan"]))
    fake["agents"][0]["budget"] = 0.99
    assert fake["agents"][0]["members"] == [[0, 0]]
    fake["claim"], fake["protects"] = claimed(fake), whom(fake)
    assert fake["claim"]["private"] is False
    assert "agents[0].noise_multiplier" in str(rejection(resealed(fake)))  # that of another budget
    fake["claim"]["private"] = True
    assert "claim.private" in str(rejection(resealed(fake)))


def test_other_code_is_a_warning_and_its_arithmetic_is_still_checked(true: dict[str, Any], folder: Path) -> None:
    old = changed(true, ("made_with", "code_sha256"), lambda v: "0" * 64)
    verdict = verify(resealed(old), folder=folder)
    assert isinstance(verdict, Verified)
    assert not verdict.derived
    assert len(verdict.warnings) == 1
    assert "other code" in str(rejection(resealed(old), folder=folder, strict=True))
    changed_rule = changed(old, ("algorithm", "settings", "step"), lambda v: 2 * v)
    assert len(verify(resealed(changed_rule), folder=folder).warnings) == 2
    wrong = changed(old, ("agents", 0, "totals", "gdp"), lambda v: 0.999 * v)
    assert "totals.gdp" in str(rejection(resealed(wrong)))


# ---- kinds of runs ---------------------------------------------------------------------------------------------------


def test_runs_without_a_guarantee_are_rejected() -> None:
    none = make({k: v for k, v in STATED.items() if k != "privacy"} | {"algorithm": {"name": "dsgd"}})
    assert none["claim"]["epsilon"] == "inf"
    assert "no privacy" in str(rejection(none))
    printed = make({**STATED, "algorithm": {"name": "dp-consensus-gd", "as_printed": True}})
    assert "no privacy" in str(rejection(printed))


QUICK = ("dvp", "ldp-admm", "pp-admm", "priv-rcd", "sdm")
SLOW = sorted(a.slug for a in all_algorithms().values() if a.private and a.slug not in QUICK)


@pytest.mark.parametrize("slug", [*QUICK, *(pytest.param(slug, marks=pytest.mark.slow) for slug in SLOW)])
def test_every_private_algorithm_has_a_certificate_that_holds(slug: str) -> None:
    graphs = all_algorithms()[slug].graphs or ("path",)
    true = make({**STATED, "graph": {"kind": graphs[0]}, "algorithm": {"name": slug}})
    verdict = verify(true, strict=True)
    assert verdict.derived
    first = true["agents"][0]["events"][0]
    number = next(n for n, v in first.items() if isinstance(v, float) and v)
    fake = changed(true, ("agents", 0, "events", 0, number), lambda v: v * (1 + 1e-4))
    assert rejection(resealed(fake)) is not None


def test_a_budget_for_opened_sums_is_the_claim_and_the_messages_own_price_stands_beside_it() -> None:
    """Noise for the sums only: ε if everybody else colludes is beyond the budget, the sums' is within; both checked."""
    tree = {
        **STATED,
        "algorithm": {"name": "gauss-avg-gd"},
        "exchange": {"kind": "secret-sum", "honest": 3, "noise": "central"},
    }
    true = make(tree)
    claim, (other, cap) = true["claim"], true["other_claims"]
    assert claim["private"]
    assert claim["epsilon"] == true["central"]["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert "opened sums" in claim["adversary"]
    assert claim["name"] == "central, at least 3 honest parties"
    assert other["adversary"] == cap["adversary"] == EVERYBODY_ELSE
    assert 1.5 < other["epsilon"] < cap["epsilon"]
    assert not other["private"]
    verify(true, strict=True)
    swapped = {**true, "claim": other, "other_claims": [claim, cap]}
    assert "claim" in str(rejection(resealed(swapped)))
    beside = make({**tree, "exchange": {"kind": "secret-sum", "honest": 3}})
    assert beside["claim"]["adversary"] == EVERY_MESSAGE  # local noise: the sums cost less, and stand second
    assert beside["claim"]["epsilon"] > beside["other_claims"][0]["epsilon"]
    assert rejection(beside, strict=True) is None


def test_each_statement_says_whom_one_has_to_trust(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    true = parse((folder / "certificate.json").read_text("utf-8"))
    said = {row["statement"]: row["trust"] for row in true["statements"]}
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert set(result["privacy"]["assumptions"]) <= set(said)
    assert said[f"noise: {c.SIMULATED}"].startswith("nobody can")
    assert any(trust.startswith("nobody: recomputed") for trust in said.values())
    wire = make({**STATED, "algorithm": {"name": "pr-admm"}}, noise=c.SECURE)
    assert "program" in {row["statement"]: row["trust"] for row in wire["statements"]}[f"noise: {c.SECURE}"]
    assert main(["verify", str(folder / "certificate.json")]) == 0
    printed = "".join(capsys.readouterr().out.split())
    for text in (*said, *said.values()):
        assert "".join(text.split())[:20] in printed


def test_a_graph_from_a_file_travels_with_the_certificate(tmp_path: Path) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n1 2\n")
    true = make({**STATED, "graph": {"kind": "file", "path": str(path)}, "algorithm": {"name": "pr-admm"}})
    path.unlink()
    assert true["public"]["edges"] == [[0, 1], [1, 2]]
    assert rejection(true, strict=True) is None
    fake = changed(true, ("public", "edges"), lambda v: [[0, 1], [0, 2]])
    assert rejection(resealed(fake)) is not None


def test_ten_thousand_agents_are_one_group() -> None:
    tree = {
        **STATED,
        "partition": {"kind": "iid", "agents": 10_000, "records": 50},
        "graph": {"kind": "ring"},
        "algorithm": {"name": "dp-dsgd"},
    }
    true = make(tree)
    assert [g["members"] for g in true["agents"]] == [[[0, 9999]]]
    assert len(json.dumps(true)) < 5000
    assert rejection(true, strict=True) is None


def test_the_page_describes_every_field(true: dict[str, Any]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "certificate.md").read_text("utf-8")
    described = set(re.findall(r"^\| `([\w.\[\]]+)`", text, re.MULTILINE))
    for table in ("claim", "public", "algorithm", "run"):
        assert {f"{table}.{key}" for key in true[table]} <= described
    assert {f"agents[].{key}" for key in true["agents"][0]} <= described
    assert set(true) - {"claim", "public", "algorithm", "run", "agents"} <= described


# ---- the form --------------------------------------------------------------------------------------------------------

positive = st.floats(1e-6, 1e6)
EVENTS = st.one_of(
    st.builds(ev.Gaussian, positive, positive, times=st.integers(1, 9), tv=st.floats(0, 1e-9)),
    st.builds(ev.MaskedGaussian, positive, positive, st.floats(0.01, 1)),
    st.builds(ev.SampledGaussian, positive, st.floats(0.01, 1), scheme=st.sampled_from(["poisson"])),
    st.builds(ev.SampledGaussian, positive, st.floats(0.01, 1), discrete=st.booleans()),
    st.builds(ev.DiscreteGaussian, positive, positive, dim=st.none() | st.integers(1, 5)),
    st.builds(ev.L2Laplace, positive, positive, dim=st.integers(1, 5)),
    st.builds(ev.Laplace, positive, positive, dim=st.integers(1, 5), linf=st.none() | positive),
    st.builds(ev.LaplaceUniform, positive, positive, positive),
    st.builds(ev.Pure, positive, slack=st.floats(0, 1e-6)),
    st.builds(ev.ObjectivePerturbation, positive, positive, positive, monotone=st.booleans()),
    st.builds(DeadlineGaussian, positive, st.floats(10, 100), batch=st.integers(1, 9), discrete=st.booleans()),
    st.just(ev.Free(times=3)),
    st.just(ev.NonPrivate()),
)


@given(st.lists(EVENTS, max_size=6))
@settings(max_examples=60, deadline=None)
def test_events_survive_the_file_without_loss(events: list[ev.Event]) -> None:
    rows = to_rows(events)
    again = c.decode(parse(json.dumps({"rows": rows}))["rows"])
    assert to_rows(again) == rows
    charged = sum(int(np.sum(e.times)) for e in events)
    assert sum(row["times"] for row in rows) == charged


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "Gauss", "times": 1},
        {"kind": "Event", "times": 1},
        {"kind": ["Gaussian"], "times": 1},
        {"kind": "L2Laplace", "times": 1, "sensitivity": 1.0, "rate": 1.0, "dim": "2"},
        {"kind": "L2Laplace", "times": 1, "sensitivity": 1.0, "rate": 1.0, "dim": True},
        {"kind": "Gaussian", "times": 1, "sensitivity": 1.0},
        {"kind": "Gaussian", "times": 1, "sensitivity": 1.0, "sigma": "nan"},
        {"kind": "Gaussian", "times": 1, "sensitivity": 1.0, "sigma": True},
        {"kind": "Gaussian", "times": 1, "sensitivity": 1.0, "sigma": 1.0, "epsilon": 0.0},
    ],
)
def test_odd_events_are_refused(row: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        c.decode([{**row, "adjacency": "replace-one"}])


def test_an_event_without_its_adjacency_is_refused() -> None:
    whole = {"kind": "Gaussian", "times": 1, "sensitivity": 1.0, "sigma": 1.0, "adjacency": "replace-one"}
    assert to_rows(c.decode([whole])) == [whole]
    for name in ("adjacency", "kind"):
        with pytest.raises(InputError, match=f"expected a privacy event in JSON.*{name}"):
            c.decode([{k: v for k, v in whole.items() if k != name}])
    with pytest.raises(InputError, match="not a whole number"):
        c.decode([{**whole, "times": 1.5}])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 100_000, "\x00"]
)  # fmt: skip
def test_unreadable_input_is_exit_code_2(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(text)
    assert main(["verify", str(path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_command_names_the_first_thing_that_is_wrong(
    true: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(resealed(changed(true, ("agents", 1, "totals", "rdp"), lambda v: v / 2))))
    assert main(["verify", str(path)]) == 1
    assert "agents[1].totals.rdp" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "none.json")]) == 2
    assert main(["verify", str(path), "--key", "nowhere.pem"]) == 2


def test_run_signs_with_a_key(folder: Path, keys: tuple[Path, Path, Path], tmp_path: Path) -> None:
    mine, public, _ = keys
    plan, out = str(folder.parent / "plan.toml"), str(tmp_path / "signed")
    assert main(["run", plan, "--out", out, "--key", str(mine), "--quiet", "--seeds", "1", "--references", "none"]) == 0
    assert main(["verify", f"{out}/certificate.json", "--key", str(public), "--strict"]) == 0
    assert main(["verify", str(folder / "certificate.json"), "--key", str(public)]) == 1
    assert main(["run", plan, "--key", str(mine)]) == 2  # nothing to sign
    assert main(["run", plan, "--out", out, "--key", str(public)]) == 2
