"""Certificates: a true one holds, every change is found, and what cannot be found without a signature is listed."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
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
from coterie.deploy.party import Terms
from coterie.errors import InputError
from coterie.exchange.statement import EVERY_MESSAGE
from coterie.experiment import prepare, price, public_network
from coterie.plan import validate
from coterie.privacy import events as ev
from coterie.privacy import gdp
from coterie.privacy.ledger import Entry
from coterie.report import certificate as c
from coterie.report.released import MODEL
from coterie.report.result import build_result, write_run
from coterie.report.verification import Rejected, Verdict, parse, public_key, verify
from tests.deploy.house import small_plan

PLAN = """
name = "small"
[data]
source = "clinics"
options = { records = 160, features = 3, sites = 4 }
[algorithm]
name = "dp-dsgd"
[privacy]
epsilon = [1.0, 2.0, 1.0, 1.0]
schedule = "periodic"
schedule_options = { rate = 0.9, period = 1 }
[run]
rounds = 6
seeds = 2
"""
STATED = {
    "problem": {"loss": "logistic", "dim": 3},
    "partition": {"kind": "iid", "sizes": [40, 40, 60]},
    "graph": {"kind": "path"},
    "data": {"source": "adult"},
    "privacy": {"epsilon": 1.0},
    "run": {"rounds": 4},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    where = tmp_path_factory.mktemp("certificate")
    (where / "plan.toml").write_text(PLAN)
    assert main(["run", str(where / "plan.toml"), "--out", str(where / "run"), "--quiet"]) == 0
    return where / "run"


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


def make(tree: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A sealed certificate of a plan that states its sizes."""
    plan = validate(tree)
    network = public_network(plan)
    return roundtrip(c.seal(c.certificate(plan, network, price(plan, network), **more)))


def roundtrip(content: dict[str, Any]) -> dict[str, Any]:
    return parse(json.dumps(content))


def resealed(content: dict[str, Any], key: Path | None = None) -> dict[str, Any]:
    """What an adversary who can compute a digest makes of a changed certificate."""
    return roundtrip(c.seal({k: v for k, v in content.items() if k not in ("digest", "signature", "signer")}, key))


def claimed(content: dict[str, Any]) -> dict[str, Any]:
    """The claim that the listed events support, whatever the plan asks for."""
    return c.claims(content["agents"], content["central"], content["claim"]["delta"], False, False)[0]


def rejection(content: dict[str, Any], **more: Any) -> str | None:
    try:
        verify(content, **more)
    except Rejected as reason:
        return str(reason)
    return None


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
    assert main(["run", str(other), "--out", str(folder.parent / "other"), "--quiet"]) == 0
    twin = parse((folder.parent / "other" / "certificate.json").read_text("utf-8"))
    differ = {key for key in true if true[key] != twin[key]}
    assert differ == {"plan", "plan_sha256", "files", "digest"}  # the option itself, and the released model


# ---- what is released ------------------------------------------------------------------------------------------------


def test_the_released_model_is_of_one_run(folder: Path, true: dict[str, Any]) -> None:
    """Two seeds were run; the file whose hash is certified holds the first alone, and what all would cost is told."""
    with np.load(folder / MODEL) as model:
        points = model["points"]
        assert set(model.files) == {"points", "average", "feature_names", "plan", "rounds", "seed"}
        assert model["seed"] == true["run"]["seed"] == 0
        assert model["rounds"] == 6
        assert str(model["plan"]) == true["plan_sha256"]
    assert points.shape == (4, 3)
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert result["seeds"] == [0, 1]
    both = float(gdp.epsilon_of(2**0.5 * float(gdp.mu_for(2.0, 1e-5)), 1e-5))
    assert result["privacy"]["all_seeds_epsilon"] == pytest.approx(both, rel=1e-6)
    assert result["privacy"]["epsilon"] == true["claim"]["epsilon"] == pytest.approx(2.0)


def test_a_file_of_several_runs_is_rejected(folder: Path, true: dict[str, Any], tmp_path: Path) -> None:
    """Whatever a certificate lists it charges for: the models of two seeds, or anything else beside, are not paid."""
    with np.load(folder / MODEL) as model:
        kept = dict(model)
    wrong = {
        "several seeds": kept | {"points": np.stack([kept["points"]] * 2)},
        "something else": kept | {"more": kept["points"]},
        "too few agents": kept | {"points": kept["points"][1:]},
        "more rounds": kept | {"rounds": 7},
        "another seed": kept | {"seed": 1},
        "another plan": kept | {"plan": "0" * 64},
        "objects": kept | {"feature_names": np.array([None] * 3)},
    }
    for name, arrays in wrong.items():
        np.savez_compressed(tmp_path / MODEL, **arrays)  # type: ignore[arg-type]
        fake = resealed({**true, "files": {MODEL: c.sha256((tmp_path / MODEL).read_bytes())}})
        found = rejection(fake, folder=tmp_path)
        assert "files.model.npz" in str(found), name
    (tmp_path / MODEL).write_bytes(b"another")
    assert "files.model.npz" in str(rejection(true, folder=tmp_path))
    fake = resealed({**true, "files": {MODEL: c.sha256(b"another")}})
    assert "files.model.npz" in str(rejection(fake, folder=tmp_path))
    metrics = {**true["files"], "result.json": c.sha256((folder / "result.json").read_bytes())}
    assert "files" in str(rejection(resealed({**true, "files": metrics}), folder=folder))
    unlisted = resealed({**true, "files": {}})
    assert "does not list it" in str(rejection(unlisted, folder=folder, strict=True))
    assert "not beside" in str(rejection(true, folder=tmp_path / "none", strict=True))


def test_an_interrupted_run_charges_the_message_that_nobody_heard(tmp_path: Path) -> None:
    """After k rounds were heard, the answer may hold a message of round k + 1: it is charged."""
    plan = validate({**STATED, "data": {"source": "clinics", "options": {"records": 160, "features": 3, "sites": 3}},
                     "partition": {"kind": "site"}, "run": {"rounds": 8}})  # fmt: skip
    experiment = prepare(plan)
    priced = price(plan, experiment.network)
    trace = experiment.run(priced, [0])
    trace.completed = 3
    result = build_result(experiment, priced, trace, [0], experiment.references())
    write_run(tmp_path, result, trace, experiment, priced)
    sealed = parse((tmp_path / "certificate.json").read_text("utf-8"))
    assert {g["rounds"] for g in sealed["agents"]} == {4}
    assert rejection(sealed, strict=True, folder=tmp_path) is None
    lie = changed(sealed, ("agents",), lambda v: [{**g, "rounds": 3} for g in v])
    assert "rounds" in str(rejection(resealed(lie), folder=tmp_path))


# ---- tampering -------------------------------------------------------------------------------------------------------


def walk(tree: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all fields, tables and lists included."""
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield (*path, key)
        yield from walk(tree[key], (*path, key))


def changed(tree: dict[str, Any], path: tuple, change: Callable[[Any], Any]) -> dict[str, Any]:
    out = copy.deepcopy(tree)
    at = out
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = change(at[path[-1]])
    return out


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
        if c.canonical(out) != c.canonical(tree):
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
        fake = {**fake, "digest": c.sha256(c.canonical(stated))}  # the adversary's best without the key
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
    fake["claim"] = claimed(fake)
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
    fake["plan_sha256"] = c.sha256(c.canonical(fake["plan"]))
    fake["agents"][0]["budget"] = 0.99
    assert fake["agents"][0]["members"] == [[0, 0]]
    fake["claim"] = claimed(fake)
    assert fake["claim"]["private"] is False
    assert "claim.private" in str(rejection(resealed(fake)))
    fake["claim"]["private"] = True
    assert "claim.private" in str(rejection(resealed(fake)))


def test_other_code_is_a_warning_and_its_arithmetic_is_still_checked(true: dict[str, Any], folder: Path) -> None:
    old = changed(true, ("made_with", "code_sha256"), lambda v: "0" * 64)
    verdict = verify(resealed(old), folder=folder)
    assert isinstance(verdict, Verdict)
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
    graphs = getattr(all_algorithms()[slug].module, "GRAPHS", ("path",))
    true = make({**STATED, "graph": {"kind": graphs[0]}, "algorithm": {"name": slug}})
    verdict = verify(true, strict=True)
    assert verdict.derived
    first = true["agents"][0]["events"][0]
    number = next(n for n, v in first.items() if isinstance(v, float) and v)
    fake = changed(true, ("agents", 0, "events", 0, number), lambda v: v * (1 + 1e-4))
    assert rejection(resealed(fake)) is not None


def deployed(algorithm: str, rounds: int, **more: Any) -> tuple[Terms, dict[str, Any]]:
    """Terms between three parties, and the certificate of party 1 with its ledger's charges in so many rounds."""
    terms = Terms.of(small_plan(rounds, algorithm, graph="complete"))
    body = c.certificate(terms.plan, terms.network, terms.priced, noise=c.SECURE, **more)
    return terms, roundtrip(c.seal(body))


def paid(terms: Terms, rounds: Sequence[int]) -> dict[int, list[ev.Event]]:
    """What party 1 is charged in these rounds."""
    every = terms.charges(1)
    return {1: terms.charged([Entry(t, event, 0.0) for t in rounds for event in every[t]])}


@pytest.mark.parametrize("algorithm", ["pr-admm", "priv-rcd", "hmv-dgd"])
def test_a_deployed_certificate_lists_every_round_once(algorithm: str) -> None:
    """Missing, doubled and exchanged rounds fail, whatever the arithmetic says; so does an end that is not told."""
    terms, _ = deployed(algorithm, 5)
    whole = range(5)
    assert rejection(deployed(algorithm, 5, charged=paid(terms, whole))[1], strict=True) is None
    for rounds in ([0], [0, 1, 2, 3], [1, 2, 3, 4], [0, 1, 2, 2, 3, 4], [0, 0, 1, 2, 3], [], [*whole, *whole]):
        listed = paid(terms, rounds)
        if c.encode(listed[1]) == c.encode(paid(terms, whole)[1]):
            continue  # a round that is free: what is charged is the same
        _, fake = deployed(algorithm, 5, charged=listed)
        assert "agents[1].events" in str(rejection(fake, strict=True)), rounds
    assert len(c.encode(paid(terms, [0])[1])) >= 1


def test_a_party_that_stopped_early_is_certified_for_its_rounds_if_it_says_so() -> None:
    terms, whole = deployed("pr-admm", 5)
    _, early = deployed("pr-admm", 5, charged=paid(terms, range(2)), completed=2)
    assert rejection(early, strict=True) is None
    assert [g["rounds"] for g in early["agents"]] == [5, 2]  # the others are charged all that was planned
    mine = early["agents"][1]
    assert mine["members"] == [[1, 1]]
    assert mine["epsilon"] < early["agents"][0]["epsilon"]
    for rounds in (1, 3, 5, 6):
        assert rejection(resealed(changed(early, ("agents", 1, "rounds"), lambda v: rounds))) is not None  # noqa: B023
    _, more = deployed("pr-admm", 5, charged=paid(terms, range(3)), completed=2)
    assert rejection(more) is not None
    assert "has no model" in str(rejection(resealed({**early, "files": {"model.npz": "0" * 64}})))
    two = copy.deepcopy(early)
    two["agents"][0]["rounds"] = 4
    assert "agents.rounds" in str(rejection(resealed(two)))
    wire = changed(whole, ("run",), lambda v: {"noise": c.SIMULATED, "seed": 0})
    assert rejection(resealed(wire)) is not None


@pytest.mark.parametrize("slug", ["ipp-admm", "priv-rcd", "dp-dsgd"])
def test_a_simulation_that_stopped_early_is_charged_for_its_rounds(slug: str) -> None:
    """Silence and epochs included; an early end is the same for all, and a prefix of the plan."""
    tree = {**STATED, "graph": {"kind": "complete"}, "algorithm": {"name": slug}, "run": {"rounds": 7}}
    whole, early = make(tree), make(tree, completed=4)
    assert rejection(early, strict=True) is None
    assert {g["rounds"] for g in early["agents"]} == {4}
    assert early["claim"]["epsilon"] < whole["claim"]["epsilon"]
    lie = copy.deepcopy(whole)
    for group, short in zip(lie["agents"], early["agents"], strict=True):
        group |= {k: v for k, v in short.items() if k != "rounds"}
    lie["claim"] = claimed(lie)
    assert "events" in str(rejection(resealed(lie)))
    uneven = copy.deepcopy(whole)
    uneven["agents"][0] = early["agents"][0]
    assert "all agents at once" in str(rejection(resealed(uneven)))


def test_a_budget_for_opened_sums_is_the_claim_and_the_messages_own_price_stands_beside_it() -> None:
    """Noise for the sums only: the default adversary's ε is beyond the budget, the sums' is within; both checked."""
    tree = {
        **STATED,
        "graph": {"kind": "complete", "mixing": "uniform"},
        "algorithm": {"name": "gauss-avg-gd"},
        "exchange": {"kind": "secret-sum", "honest": 3, "noise": "central", "fraction_bits": 18},
    }
    true = make(tree)
    claim, (other,) = true["claim"], true["other_claims"]
    assert claim["private"]
    assert claim["epsilon"] == true["central"]["epsilon"] == pytest.approx(1.0, rel=1e-3)
    assert "opened sums" in claim["adversary"]
    assert claim["name"] == "central, at least 3 honest parties"
    assert other["adversary"] == EVERY_MESSAGE
    assert other["epsilon"] > 1.5
    assert not other["private"]
    verify(true, strict=True)
    swapped = {**true, "claim": other, "other_claims": [claim]}
    assert "claim" in str(rejection(resealed(swapped)))
    beside = make({**tree, "exchange": {"kind": "secret-sum", "honest": 3, "fraction_bits": 17}})
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
    _, wire = deployed("pr-admm", 3)
    drawn = {row["statement"]: row["trust"] for row in wire["statements"]}
    assert "program" in drawn[f"noise: {c.SECURE}"]
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
    rows = c.encode(events)
    again = c.decode(parse(json.dumps({"rows": rows}))["rows"])
    assert c.encode(again) == rows
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
        c.encode(c.decode([row]))


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
    assert main(["run", plan, "--out", out, "--key", str(mine), "--quiet", "--seeds", "1"]) == 0
    assert main(["verify", f"{out}/certificate.json", "--key", str(public), "--strict"]) == 0
    assert main(["verify", str(folder / "certificate.json"), "--key", str(public)]) == 1
    assert main(["run", plan, "--key", str(mine)]) == 2  # nothing to sign
    assert main(["run", plan, "--out", out, "--key", str(public)]) == 2
