"""A party from Python: one way to run, goes on after whatever ended the kernel, and says what is spent at any time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.api.joining import JoinedParty, PartyModel
from coterie.cli import main
from coterie.deploy.agent import GaveUp
from coterie.deploy.agreement import sign_agreement
from coterie.deploy.keys import init_authority, init_party, install, load_authority, sign_request, write_request
from coterie.deploy.ledger import read
from coterie.deploy.reading import look
from coterie.deploy.trial import free_ports
from coterie.errors import InputError
from coterie.plan import Plan, validate
from tests.deploy.consortium import IN_A_YEAR

NAMES = ("ada", "ben", "cleo")
COLUMNS = ["age", "pressure"]
RECORDS, ROUNDS = 60, 8
ROOT = Path(__file__).parents[2]


def table_plan(**deploy: Any) -> Plan:
    """Three parties with tables; ada is a hospital with a proper name."""
    addresses = [f"127.0.0.1:{p}" for p in free_ports(3)]
    parties = [{"name": n, "address": a} for n, a in zip(NAMES, addresses, strict=True)]
    parties[0]["title"] = "Klinikum Süd"
    return validate(
        {
            "name": "readmission",
            "data": {
                "source": "csv", "label": "ill",
                "options": {"classes": ["no", "yes"], "features": COLUMNS, "optional": [], "constant": True,
                            "bounds": {"age": [0, 100], "pressure": [80, 200]}},
            },
            "partition": {"kind": "iid", "sizes": [RECORDS] * 3},
            "graph": {"kind": "ring"},
            "problem": {"loss": "logistic", "dim": 3, "ridge": 0.01},
            "algorithm": {"name": "dp-dsgd", "mixing": 1},
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "run": {"rounds": ROUNDS},
            "deploy": {"parties": parties, **deploy},
        }
    )  # fmt: skip


def make_table(seed: int, count: int = RECORDS) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, pressure = rng.integers(20, 90, count), rng.uniform(90, 180, count)
    ill = np.where(age + rng.normal(0, 10, count) > 55, "yes", "no")
    return pd.DataFrame({"age": age, "pressure": pressure, "ill": ill})


def make_parties(folder: Path, **deploy: Any) -> Path:
    """Keys, certificates and tables of everybody in one folder, and the agreement between them."""
    plan = table_plan(**deploy)
    init_authority("trial", folder / "authority")
    known = []
    for k, name in enumerate(NAMES):
        init_party(name, folder / name / "keys")
        write_request(name, folder / name / "keys", folder / f"{name}.request.json")
        sign_request(folder / f"{name}.request.json", folder / "authority", 30).write(folder / f"{name}.pem")
        known.append(install(name, folder / name / "keys", folder / f"{name}.pem", folder / "authority" / "ca.json"))
        make_table(k).to_csv(folder / name / "data.csv", index=False)
    authority, key = load_authority(folder / "authority")
    sign_agreement(plan, known, authority, key, IN_A_YEAR).write(folder / "agreement.json")
    return folder


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_parties(tmp_path_factory.mktemp("joined"), patience=2.0)


def joined(folder: Path, name: str = "ada", **options: Any) -> JoinedParty:
    given = {"keys": folder / name / "keys", "state": folder / name / "state"} | options
    return ct.join(folder / "agreement.json", **given)


# ---- what is refused -------------------------------------------------------------------------------------------------


def changed(folder: Path, into: Path) -> Path:
    tree = json.loads((folder / "agreement.json").read_text())
    tree["plan"]["privacy"]["epsilon"] = 9.0
    (into / "agreement.json").write_text(json.dumps(tree))
    return into / "agreement.json"


def test_a_party_that_does_not_fit_is_refused_before_anything_starts(parties: Path, tmp_path: Path) -> None:
    keys = parties / "ada" / "keys"
    with pytest.raises(InputError, match="was changed, or was not signed by trial"):
        ct.join(changed(parties, tmp_path), keys=keys)
    with pytest.raises(InputError, match="belong to ben, not to ada"):
        ct.join(parties / "agreement.json", me="ada", keys=parties / "ben" / "keys")
    init_party("ada", tmp_path / "keys")
    write_request("ada", tmp_path / "keys", tmp_path / "r.json")
    sign_request(tmp_path / "r.json", parties / "authority", 3).write(tmp_path / "a.pem")
    install("ada", tmp_path / "keys", tmp_path / "a.pem", parties / "authority" / "ca.json")
    with pytest.raises(InputError, match="new keys need a new agreement"):
        ct.join(parties / "agreement.json", keys=tmp_path / "keys")
    with pytest.raises(InputError, match="me, its name, or keys"):
        ct.join(parties / "agreement.json")
    with pytest.raises(InputError, match="keys must be a path"):
        ct.join(parties / "agreement.json", keys=3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="does not listen"):
        ct.join(parties / "agreement.json", keys=keys, listen="0.0.0.0:1", behind="door")
    with pytest.raises(InputError, match="not come to its last round"):
        joined(parties, state=tmp_path / "state").model()
    assert not (tmp_path / "state").exists()


TABLE = make_table(0)
BAD_RECORDS: dict[str, tuple[tuple[Any, ...], str]] = {
    "a file and labels": (("data.csv", TABLE["ill"]), "leave y out"),
    "no label": ((TABLE[COLUMNS],), "no column 'ill'"),
    "labels twice": ((TABLE, TABLE["ill"]), "leave one out"),
    "labels of others": ((TABLE[COLUMNS], TABLE["ill"][:5]), "one label for each of 60 records"),
    "rows too narrow": ((TABLE[["age"]].to_numpy(), TABLE["ill"]), "1 columns, and the plan states 2: age, pressure"),
    "one row": ((TABLE["age"].to_numpy(), TABLE["ill"]), "expected records in rows"),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_records_that_do_not_fit_are_one_line(parties: Path, tmp_path: Path, case: str) -> None:
    given, reason = BAD_RECORDS[case]
    with pytest.raises(InputError, match=reason):
        joined(parties, state=tmp_path / "state").fit(*given)
    assert not (tmp_path / "state").exists()  # no process was started


def test_before_it_begins_nothing_is_spent(parties: Path, tmp_path: Path) -> None:
    party = joined(parties, state=tmp_path / "state")
    assert party.spent() == (0.0, 1e-5, 0, 3.0, None)
    assert "ada in 'readmission', 0 rounds sent: ε = 0 of 3" in repr(party)


@pytest.mark.slow
def test_an_end_of_the_agent_is_the_exception_that_says_why(
    parties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too few records: as of the command. Nobody there: it gives up, and goes on when it is called again."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    party = joined(parties, state=tmp_path / "state")
    with pytest.raises(InputError, match="the plan says 60 records for this party, its file has 59"):
        party.fit(TABLE[:59])
    with pytest.raises(InputError, match=r"^X: column 'ill' has 'perhaps' and the like in 60 rows: expected no, yes"):
        party.fit(TABLE[COLUMNS], np.full(60, "perhaps"))
    with pytest.raises(GaveUp, match=r"nothing from ben for 2 s"):
        party.fit(TABLE[COLUMNS], TABLE["ill"], progress=False)
    assert party.spent().rounds == 0
    assert list((tmp_path / "scratch").iterdir()) == []  # records were in memory, and in no file


# ---- a whole run -----------------------------------------------------------------------------------------------------

KERNEL = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
import coterie as ct
from tests.deploy.test_joining import COLUMNS, joined, make_table
table = make_table(0)
try:
    joined(Path({folder!r})).fit(table[COLUMNS], table["ill"])
except KeyboardInterrupt:
    print("interrupted")
"""


def kernel(folder: Path) -> subprocess.Popen[str]:
    """A process as a notebook's kernel: it fits, and may be ended in any way."""
    script = KERNEL.format(root=str(ROOT), folder=str(folder))
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def agent(folder: Path, name: str) -> subprocess.Popen[bytes]:
    home = folder / name
    command = [sys.executable, "-P", "-m", "coterie.cli", "agent", str(folder / "agreement.json"), "--me", name,
               "--keys", str(home / "keys"), "--data", str(home / "data.csv"), "--state",
               str(home / "state")]  # fmt: skip
    with (folder / f"{name}.err").open("w") as errors:
        return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=errors)


def until_round(state: Path, round: int, process: subprocess.Popen[Any], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not (state / "ledger.db").exists() or len(look(state / "ledger.db").book.rows) < round:
        assert time.monotonic() < deadline
        assert process.poll() is None, "it ended before"
        time.sleep(0.05)


def until_free(state: Path, seconds: float = 60) -> None:
    """No process holds the ledger any more."""
    deadline = time.monotonic() + seconds
    while look(state / "ledger.db").running:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_a_kernel_dies_another_is_interrupted_and_the_third_has_the_model(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = make_parties(tmp_path, patience=240.0, deadline=240.0, tick=1.0)
    state = folder / "ada" / "state"
    others = [agent(folder, name) for name in NAMES[1:]]
    with contextlib.ExitStack() as stack:
        for other in others:
            stack.callback(other.kill)
        first = kernel(folder)
        until_round(state, 2, first)
        first.kill()
        first.communicate()
        until_free(state)  # the agent does not outlive its kernel
        died = len(read(state / "ledger.db").rows)
        second = kernel(folder)
        until_round(state, died + 1, second)
        second.send_signal(signal.SIGINT)
        assert second.communicate(timeout=60)[0] == "interrupted\n"
        assert second.returncode == 0
        assert not look(state / "ledger.db").running  # at once: fit returns when the agent has ended
        stopped = read(state / "ledger.db")  # and every hash and byte of it is right
        assert died < len(stopped.rows) < ROUNDS
        ends = [
            line for line in map(json.loads, (state / "log.jsonl").read_text().splitlines()) if line["event"] == "end"
        ]
        assert [end["code"] for end in ends][-1] == 130
        party, heard = joined(folder), []
        assert party.spent().rounds == len(stopped.rows)

        async def notebook() -> PartyModel:  # whose loop runs
            table = make_table(0)
            return party.fit(table[COLUMNS], table["ill"], progress=lambda facts: heard.append((facts, party.spent())))

        model = asyncio.run(notebook())
        assert [other.wait(120) for other in others] == [0, 0]
    facts, spent = heard[-1]
    assert facts["party"] == "ada"
    assert 0 < spent.epsilon <= 3.0
    assert spent.rounds >= len(stopped.rows)
    book = read(state / "ledger.db")
    assert len(book.rows) == ROUNDS  # each round once, whatever happened
    for row, before in zip(book.rows, stopped.rows, strict=False):
        assert row.hash == before.hash
    assert party.spent().epsilon == pytest.approx(3.0, rel=1e-4)
    check_model(model, party, folder)
    check_report(party, capfd)


def check_model(model: PartyModel, party: JoinedParty, folder: Path) -> None:
    with np.load(party.state / "model.npz") as stored:
        assert np.array_equal(stored["point"], model.point)
    test = make_table(77, 200)
    said = model.predict(test[COLUMNS])
    assert set(said) == {"no", "yes"}
    assert model.score(test[COLUMNS], test["ill"]) == np.mean(said == test["ill"]) > 0.8
    assert (model.predict(test[COLUMNS].to_numpy()) == said).all()  # rows without names, in the plan's order
    assert (model.predict(test[COLUMNS[::-1]]) == said).all()  # columns by their names
    chances = model.predict_proba(test[COLUMNS])
    assert np.allclose(chances.sum(axis=1), 1)
    assert (np.array(["no", "yes"])[chances.argmax(axis=1)] == said).all()
    assert main(["verify", "--strict", str(party.state / "certificate.json")]) == 0
    assert model.certificate["public"]["names"][0] == "Klinikum Süd"
    written = model.save(folder / "saved")
    assert sorted(p.name for p in written) == ["agreement.json", "certificate.json", "model.npz"]
    again = PartyModel.load(folder / "saved")
    assert (again.predict(test[COLUMNS]) == said).all()
    assert repr(again) == repr(model)
    (folder / "saved" / "model.npz").write_bytes((folder / "saved" / "model.npz").read_bytes() + b" ")
    with pytest.raises(InputError, match=r"not the file that certificate\.json names"):
        PartyModel.load(folder / "saved")


def check_report(party: JoinedParty, capfd: pytest.CaptureFixture[str]) -> None:
    test = make_table(77, 200)
    mine = make_table(0)
    page = party.report(data=mine, test=(test[COLUMNS], test["ill"]))
    text = page.read_text("utf-8")
    assert page == party.state / "report.html"
    for words in (
        "Klinikum Süd",
        "For you alone",
        "Was it worth it?",
        "It holds.",
        f"{ROUNDS} of {ROUNDS}",
        "3 starts",
    ):
        assert words in text, words
    assert "protects anybody" not in text
    plain = party.report(out=party.state / "plain.html").read_text("utf-8")
    assert "For you alone" not in plain
    assert "Was it worth it? Not judged." in plain
    with pytest.raises(InputError, match="give --test too"):
        party.report(data=mine)
