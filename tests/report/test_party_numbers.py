"""What a deployed party leaves as JSON says the same whatever its records are, but for lines that say they are of them.

Two folders of one party, under one agreement and with the same keys, messages and model: only the table differs.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coterie.deploy import certify
from coterie.deploy.data import read_records
from coterie.deploy.journal import EvidenceFolder, Recent
from coterie.deploy.noise import SystemSource
from coterie.deploy.process import ReadyParty, _agent, _certify, open_party
from coterie.deploy.trial import sign_trial
from coterie.deploy.watch import Watch
from coterie.plan import validate
from coterie.report.released import party_model
from coterie.report.sealing import plan_hash
from tests.test_additive import plan_of, records

CLOCKS = {"time", "at", "t", "updated", "pid", "seconds", "made", "created", "since"}  # of the machine, not of records


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a document that is no list or dictionary, with its place."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key not in CLOCKS:
                yield from leaves(part, f"{path}.{key}")
    elif isinstance(value, list):
        for k, part in enumerate(value):
            yield from leaves(part, f"{path}[{k}]")
    else:
        yield path, value


def told(state: Path, home: Path | None = None) -> tuple[dict[str, Any], list[str]]:
    """What the documents of a folder say without a mark, by file and place; and the lines that are marked."""
    out: dict[str, Any] = {}
    marked: list[str] = []
    for file in sorted(state.rglob("*.json*")):
        if file.suffix == ".json":
            out |= {f"{file.name}{path}": leaf for path, leaf in leaves(json.loads(file.read_text("utf-8")))}
            continue
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        marked += [json.dumps(line.get("text", line)) for line in lines if line.get("of") == "records"]
        open_lines = [line for line in lines if line.get("of") != "records"]
        out |= {f"{file.name}{path}": leaf for path, leaf in leaves(open_lines)}
    here = str(home or state.parent)
    return {k: v.replace(here, "") if isinstance(v, str) else v for k, v in out.items()}, marked


def in_this_process(command: list[str], *, input: bytes, **_: object) -> subprocess.CompletedProcess[str]:
    """What the process that works out a certificate does, without the seconds in which it starts."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(input)))
        certify.main()
    return subprocess.CompletedProcess(command, 0, out.getvalue())


def take_part(party: ReadyParty, state: Path, point: np.ndarray) -> None:
    """All rounds with messages that are given, the model, the status and the certificate."""
    for t, events in enumerate(party.party.charges):
        party.ledger.release(t, events, bytes([t]) * 100, b"", {})
        party.note("sent", round=t)
    plan = party.agreement.plan
    model = party_model(point, plan=plan_hash(plan), rounds=6, epsilon=party.ledger.spent(), delta=1e-5)
    (state / "model.npz").write_bytes(model)
    agent, calls = _agent(party, SystemSource(), EvidenceFolder(state / "evidence"), None, None)
    Watch(agent, calls, state, Recent()).write(ended=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify.subprocess, "run", in_this_process)
        _certify(state / "certificate.json", party)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """States of the same party with two tables."""
    place = tmp_path_factory.mktemp("numbers")
    tree = plan_of(place / "nobody has this.csv", smooth=0.5).as_json()
    del tree["data"]["path"]
    tree |= {"partition": {"kind": "iid", "sizes": [40] * 3}, "graph": {"kind": "ring"}, "run": {"rounds": 6}}
    tree["deploy"] = {"parties": [{"name": name, "address": f"{name}.example:443"} for name in ("ada", "ben", "cleo")]}
    plan = validate(tree)
    tables = [records(40, seed=k, gaps=0.2 * (k == 1)) for k in range(2)]
    tables[1].loc[:6, "age"] = 400.0
    for k, table in enumerate(tables):
        table.to_csv(place / f"{k}.csv", index=False)
    sign_trial(plan, [read_records(plan, place / "0.csv")] * 3, place / "trial")
    states = []
    for table, name in enumerate(("one", "two")):
        home = place / name
        shutil.copytree(place / "trial", home)
        shutil.copy(place / f"{table}.csv", home / "mine.csv")
        state = home / "state"
        with open_party(home / "agreement.json", home / "ada" / "keys", home / "mine.csv", state) as party:
            take_part(party, state, np.linspace(-1, 1, 10))
        states.append(state)
    return states


def test_no_number_without_a_mark_depends_on_the_records(folders: list[Path]) -> None:
    (one, _), (two, marked) = map(told, folders)
    files = {key.partition(".json")[0] for key in one}
    assert files >= {"agreement", "certificate", "status", "log"}
    assert sum(isinstance(leaf, int | float) for leaf in one.values()) > 50
    assert {key: (one.get(key), two.get(key)) for key in {*one, *two} if one.get(key) != two.get(key)} == {}
    assert marked != told(folders[0])[1]  # the owner is told of what the records are


@pytest.mark.parametrize("file", ["log.jsonl", "status.json"])
def test_a_number_of_the_records_is_seen(folders: list[Path], tmp_path: Path, file: str) -> None:
    bad = tmp_path / "state"
    shutil.copytree(folders[1], bad)
    mean = float(pd.read_csv(folders[1].parent / "mine.csv")["age"].mean())
    first, *rest = (bad / file).read_text("utf-8").splitlines()
    (bad / file).write_text("\n".join([json.dumps({**json.loads(first), "mean": mean}), *rest]), "utf-8")
    (one, _), (other, _) = told(folders[0]), told(bad, folders[1].parent)
    (found,) = (key for key in other if other[key] != one.get(key))
    assert found.startswith(file)
    assert found.endswith(".mean")
