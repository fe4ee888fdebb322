"""Deployed runs are audited from their files: a right one passes, and each broken one is found by its check."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import cli
from coterie.algorithms.base import Law
from coterie.algorithms.laws import Grid
from coterie.audit.recorded import PartyFound, audit_folder
from coterie.deploy.agreement import read_agreement
from coterie.deploy.frames import MESSAGE, open_frame, seal
from coterie.deploy.keys import load_party
from coterie.deploy.ledger import DurableLedger
from coterie.deploy.noise import SystemSource
from coterie.deploy.pairs import PairSecrets, with_secrets
from coterie.deploy.party import Party, Records, Terms, read_records, wire_of
from coterie.deploy.trial import sign_trial
from coterie.errors import InputError
from coterie.plan import Plan, validate
from coterie.privacy.events import Event, Free
from coterie.privacy.ledger import Budget

NAMES = ("ada", "ben", "cleo")
ROUNDS, DIM = 8, 30
Source = Callable[[int, Mapping[str, Law]], dict[str, Any]]


def plan(algorithm: str, **settings: Any) -> Plan:
    return validate(
        {
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [12] * 3},
            "graph": {"kind": "complete"},
            "problem": {"loss": "logistic", "dim": DIM, "ridge": 0.1},
            "algorithm": {"name": algorithm, **settings},
            "privacy": {"epsilon": 2.0, "delta": 1e-5},
            "run": {"rounds": ROUNDS},
            "deploy": {"parties": [{"name": n, "address": f"{n}.example:443"} for n in NAMES]},
        }
    )


def record(folder: Path, plan: Plan, source: Source = SystemSource().draw, charge: Callable[[int, list[Event]],
           list[Event]] = lambda t, e: e, resend: int | None = None) -> Path:  # fmt: skip
    """Real parties and ledgers in lockstep; `resend`: ben's neighbours get another draw of that round than his row."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 12, DIM))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    shards = [Records(f, rng.integers(0, 2, 12), ("no", "yes"), ()) for f in x]
    path, sites = sign_trial(plan, shards, folder)
    keys = {s.name: load_party(s.keys) for s in sites}
    agreement = read_agreement(path, keys["ada"].authority)
    terms = Terms.of(agreement.plan)
    parties = [Party.of(terms, i, read_records(plan, s.data)) for i, s in enumerate(sites)]
    wire, book = wire_of(terms, parties[0].count), []
    for i, site in enumerate(sites):
        site.state.mkdir()
        events = [e for r in terms.charges(i) for e in r]
        book.append(
            DurableLedger(site.state / "ledger.db", budget=Budget(2.0, 1e-5), plan_hash=agreement.plan_hash,
                          agent=site.name, plan=events, create=True)
        )  # fmt: skip
    carries = [p.begin() for p in parties]
    held: list[dict] = [{} for _ in NAMES]
    for t in range(ROUNDS):
        sent = []
        for i, party in enumerate(parties):

            def say(draw: dict[str, Any], i: int = i, party: Party = party, t: int = t) -> tuple:
                carry, numbers, _ = party.turn(t, carries[i], draw)
                payload = wire.encode(numbers, i, t)
                return carry, seal(keys[NAMES[i]].frame_key, agreement.plan_hash, i, t, payload, MESSAGE)

            laws, own = terms.draws(i), type("Given", (), {"draw": staticmethod(source)})()
            drawing = with_secrets(own, laws, agreement, keys[NAMES[i]])
            other = say(drawing.draw(t, laws))[1]
            carry, frame = say(drawing.draw(t, laws))
            carries[i] = carry
            book[i].release(t, charge(t, terms.charges(i)[t]), frame, party.pack(carry), held[i])
            sent.append(other if (i, t) == (1, resend) else frame)
        opened = [open_frame(f, agreement.frame_keys, agreement.plan_hash, wire, i) for i, f in enumerate(sent)]
        for i, party in enumerate(parties):
            held[i] = {NAMES[j]: opened[j].receipt for j in party.neighbours}
            for slot, j in enumerate(party.neighbours):
                carries[i] = party.heard(carries[i], slot, t, opened[j].numbers)
    for ledger in book:
        ledger.close()
    return folder


def failed(found: list[PartyFound]) -> dict[str, list[str]]:
    """The checks that fail, by party."""
    return {f.name: names for f in found if (names := [g.check for g in f.findings if not g.passed])}


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("right") / "run", plan("gauss-avg-gd"))


@pytest.mark.parametrize("algorithm", ["gauss-avg-gd", pytest.param("pr-admm", marks=pytest.mark.slow),
                                       pytest.param("hmv-dgd", marks=pytest.mark.slow),
                                       pytest.param("dp-consensus-gd", marks=pytest.mark.slow)])  # fmt: skip
def test_a_right_run_passes(algorithm: str, right: Path, tmp_path: Path) -> None:
    folder = right if algorithm == "gauss-avg-gd" else record(tmp_path / "run", plan(algorithm))
    found = audit_folder(folder)
    assert not failed(found), [f.findings for f in found]
    assert [f.name for f in found] == list(NAMES)
    for party in found:
        assert party.rounds == ROUNDS
        assert party.residuals is not None
        assert party.residuals.shape[1] == DIM
        assert [f.check for f in party.findings] == ["ledger", "frames", "noise"]
        assert "reproduced" in party.findings[2].detail


def halved(t: int, laws: Mapping[str, Law]) -> dict[str, Any]:
    return {k: Grid(v.steps // 2, v.unit) for k, v in SystemSource().draw(t, laws).items()}


def bare_at_the_end(t: int, laws: Mapping[str, Law]) -> dict[str, Any]:
    return {k: Grid(v.steps * (t < ROUNDS - 1), v.unit) for k, v in SystemSource().draw(t, laws).items()}


class Stuck:
    """The same draw again and again."""

    drawn: dict[str, Any] | None = None

    def __call__(self, t: int, laws: Mapping[str, Law]) -> dict[str, Any]:
        self.drawn = self.drawn or SystemSource().draw(t, laws)
        return self.drawn


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"source": halved}, {n: ["noise"] for n in NAMES}),
        pytest.param({"source": bare_at_the_end}, {n: ["noise"] for n in NAMES}, marks=pytest.mark.slow),
        pytest.param({"source": Stuck()}, {n: ["noise"] for n in NAMES}, marks=pytest.mark.slow),
        ({"resend": 3}, {"ada": ["frames"], "cleo": ["frames"]}),
        pytest.param(
            {"charge": lambda t, e: [Free()] if t == 2 else e}, {n: ["ledger"] for n in NAMES}, marks=pytest.mark.slow
        ),
    ],
    ids=["half the noise", "last message bare", "one draw for all rounds", "drawn anew on retry", "a dropped charge"],
)
def test_broken_runs_are_found(options: dict[str, Any], expected: dict[str, list[str]], tmp_path: Path) -> None:
    found = failed(audit_folder(record(tmp_path / "run", plan("gauss-avg-gd"), **options)))
    for name, checks in expected.items():
        assert checks[0] in found.get(name, []), found


@pytest.mark.slow
def test_shared_noise_that_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of own noise; the same secret in every round; one that only one of two neighbours uses."""
    shared = plan("decor", mixing=1)
    assert not failed(audit_folder(record(tmp_path / "right", shared)))
    assert failed(audit_folder(record(tmp_path / "short", shared, halved)))["ada"] == ["secrets"]
    real = PairSecrets.secret
    with monkeypatch.context() as m:
        m.setattr(PairSecrets, "secret", lambda self, other, round, *rest: real(self, other, 0, *rest))
        assert failed(audit_folder(record(tmp_path / "stuck", shared)))["ada"] == ["noise"]
    with monkeypatch.context() as m:
        m.setattr(PairSecrets, "secret", lambda self, other, *rest: real(self, other, *rest) * (self._me < other))
        assert "secrets" in failed(audit_folder(record(tmp_path / "left", shared)))["ada"]


def test_other_records_do_not_explain_the_integers(right: Path, tmp_path: Path) -> None:
    shutil.copytree(right, tmp_path / "run")
    shutil.copy(right / "ben" / "data.npz", tmp_path / "run" / "ada" / "data.npz")
    ada, *others = audit_folder(tmp_path / "run")
    assert all(f.passed for f in others)
    # with noise as large as this, other records look like a little more of it: only the scale could tell
    assert ada.residuals is not None
    own = audit_folder(right)[0].residuals
    assert own is not None
    assert np.any(ada.residuals != own)


def changed(ledger: Path) -> None:
    """One bit of the file is another."""
    data = bytearray(ledger.read_bytes())
    data[-100] ^= 1
    ledger.write_bytes(bytes(data))


def test_what_is_missing_is_said(right: Path, tmp_path: Path) -> None:
    shutil.copytree(right, tmp_path / "run")
    (tmp_path / "run" / "ada" / "data.npz").unlink()
    shutil.rmtree(tmp_path / "run" / "cleo" / "state")
    ada, ben = audit_folder(tmp_path / "run")
    assert ada.findings[-1].detail == "not recomputed: no records"
    assert ben.findings[-1].detail == "not recomputed: no ledger of cleo"
    with pytest.raises(InputError, match=r"agreement\.json"):
        audit_folder(tmp_path)


def test_the_command(right: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["audit", str(right), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [f["party"] for f in found] == list(NAMES)
    assert all(f["passed"] for f in found)
    shutil.copytree(right, tmp_path / "run")
    changed(tmp_path / "run" / "ada" / "state" / "ledger.db")
    assert cli.main(["audit", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 1
    assert "REFUTED" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "out" / "recorded.json").read_text("utf-8"))) == 3
    assert cli.main(["audit", str(right), "dvp"]) == 2
    assert "by themselves" in capsys.readouterr().err
