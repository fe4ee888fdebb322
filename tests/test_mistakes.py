"""What people get wrong: each mistake is one line on standard error and exit code 2, before anything runs.

Everything happens in this process, so that a hundred and more of them are cheap. Of the Python interface a mistake is
an `InputError`, which is a `ValueError`, of one line.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import coterie as ct
from coterie import cli
from coterie.drivers import simulate
from coterie.errors import InputError
from coterie.estimators import PrivateConsensusClassifier
from coterie.experiment import Experiment

JARGON = re.compile(
    r"constrained|pydantic|type=|instance of|Errno|Traceback|Input should|unable to parse|float_|NoneType"
)
TABLE = "site,age,y\n" + "".join(f"{'ab'[k % 2]},{k},{'yes' if k % 3 else 'no'}\n" for k in range(60))
PLAN = """
[data]
source = "csv"
path = "t.csv"
label = "y"
site = "site"
[data.options]
classes = ["no", "yes"]
sites = ["a", "b"]
bounds = { age = [0, 100] }
[privacy]
epsilon = 1.0
"""
MISTAKES = r"""
run --set privacy.epsilon=1e9
run --set run.rounds=10000000000000
run --set run.rounds=1.5
run --set run.rounds=0
run --set run.rounds=-3
run --set run.rounds=many
run --set run.seeds=1e12
run --set run.seeds=100000000000
run --seeds 0
run --seeds 99999999999
run --set privacy.epsilon=0
run --set privacy.epsilon=-1
run --set privacy.epsilon=nan
run --set privacy.epsilon=inf
run --set privacy.epsilon=one
run --set privacy.epsilon=[1,2]
run --set privacy.epsilon=[]
run --set privacy.delta=0
run --set privacy.delta=1
run --set privacy.delta=2
run --set privacy.delta=nan
run --set privacy.epsilonn=1
run --set privacy=1
run --set graph.kind=rinng
run --set graph.kind=
run --set graph.kind=3
run --set partition.agents=1
run --set partition.agents=99999999999999
run --set partition.kind=iid --set partition.agents=1000000000000
run --set partition.kind=iid --set partition.agents=0
run --set algorithm.name=nosuch
run --set algorithm.name=no.such.module
run --set algorithm.step=-1
run --set algorithm.clip=nan
run --set algorithm.momentum=2
run --set data.source=csv
run --set data.source=csv --set data.path=missing.csv --set data.label=y
run --set data.source=csv --set data.path=folder --set data.label=y
run --set data.test_fraction=1
run --set data.test_fraction=-0.1
run --set data.seed=-1
run --set data.options.records=-5
run --set data.options.records=1e30
run --set data.options.sites=lots
run --set problem.loss=nosuch
run --set problem.ridge=-1
run --set run.metric=wrong
run --set run.references=some
run --references some
run --splits 0
run --set run.dtype=float16
run --set nokey
run --set =3
run --set a.b.c.d=1
run missing.toml
run folder
run file
run empty.toml --set run.rounds=0
run notoml.toml
run latin.toml
run --out file
run --out file/below
run --out /proc/nothing
run --devices none
run --devices 0
run --coordinator nowhere
run --process-id 3
run --nosuch
run clinics extra words
nosuchcommand
run --set privacy.epsilon=[1,-2]
run ok.toml --set data.label=nolabel
run ok.toml --set data.site=nosite
run ok.toml --set 'data.options.bounds.age=["old","new"]'
run ok.toml --set data.options.bounds.age=[100,0]
run ok.toml --set data.options.bounds.age=[0,0]
run ok.toml --set data.options.bounds.age=5
run ok.toml --set data.options.bounds.nosuch=[0,1]
run ok.toml --set 'data.options.classes=["no"]'
run ok.toml --set 'data.options.classes=["no","no"]'
run ok.toml --set 'data.options.classes=["maybe","perhaps"]'
run ok.toml --set 'data.options.sites=["a"]'
run ok.toml --set data.path=empty.csv
run ok.toml --set data.path=head.csv
run ok.toml --set data.path=missing.csv
run ok.toml --set data.path=folder
run ok.toml --set data.person=age
run ok.toml --set data.unit=person
run ok.toml --set data.codebook=missing.toml
run ok.toml --set 'data.options.categories={age=["a"]}'
run ok.toml --set data.label=age
run ok.toml --set data.label=site
run ok.toml --set graph.kind=file
run ok.toml --set graph.kind=regular --set graph.degree=9
run ok.toml --set exchange.kind=secret-sum --set exchange.honest=9
run ok.toml --set exchange.kind=pigeon
run ok.toml --set algorithm.name=admm
run ok.toml --set algorithm.name=alone
run ok.toml --set run.covered=maybe
compare missing.toml
compare clinics --algorithms nosuch
compare clinics --algorithms dp-dsgd,dp-dsgd
compare clinics --algorithms alone
compare clinics --epsilons one
compare clinics --epsilons ""
compare clinics --epsilons=-1
compare clinics --epsilons 0
compare clinics --epsilons nan
compare clinics --epsilons 1e9
compare clinics --algorithms dp-dsgd --epsilons 1,1
compare clinics --seeds 0
compare clinics --seeds 100000000
compare clinics --out file
compare clinics --engine rocket
compare clinics --engine local:0
compare clinics --engine local:x
compare clinics --engine ray
fair missing.toml
fair folder
fair notoml.toml
graph missing.toml
graph --set graph.kind=x
init missing.csv
init folder
init empty.csv
init t.csv p.toml --label nolabel
init t.csv p.toml --label y --site nosite
init t.csv p.toml --label y --bounds age
init t.csv p.toml --label y --bounds age=old:new
init t.csv p.toml --label y --bounds age=9:1
init t.csv p.toml --label y --bounds nosuch=0:1
init t.csv p.toml --label y --epsilon -1
init t.csv p.toml --label y --epsilon 1e9
init t.csv p.toml --label y --epsilon nan
init t.csv p.toml --label y --delta 2
init t.csv p.toml --label y --agents 1
init t.csv p.toml --label y --graph rinng
init t.csv p.toml --label y --algorithm nosuch
init t.csv file/p.toml --label y
init t.csv folder --label y
init t.csv empty.toml --label y --site site
init --data nosuch q.toml
report
report missing
report folder
report file
report res
spawn
spawn 0
spawn two
stats missing.toml
stats --set privacy.epsilon=0
account plan missing.toml
account plan --set run.rounds=0
account open file --epsilon 1 --delta 1e-5
account open x/y
account charge missing --epsilon 1
account epoch missing
audit nosuch
audit missing.toml
audit --epsilons one
audit dp-dsgd --epsilons 0
audit dp-dsgd --epsilons nan
audit dp-dsgd --delta 2
audit dp-dsgd --trials 0
audit dp-dsgd --trials 100000000000000
calibrate
calibrate --epsilon 0 --delta 1e-5 --rounds 1
calibrate --epsilon 1e9 --delta 1e-5 --rounds 1
calibrate --epsilon 1 --delta -1 --rounds 1
calibrate --epsilon 1 --delta 1e-5 --rounds 0
calibrate --epsilon 1 --delta 1e-5 --rounds 100000000000000
calibrate --epsilon nan --delta 1e-5
calibrate --epsilon 1 --delta 1e-5 --sensitivity -1
calibrate --epsilon 1 --delta 1e-5 --sensitivity inf
verify
verify missing.json
verify folder
verify bad.json
verify list.json
verify file
verify list.json --key nothex
verify list.json --key folder
algorithms nosuch
plan check missing.toml
plan check folder
plan check --set run.seeds=0
agent missing.json --keys folder --data t.csv --state s
keys show missing
ledger show missing
ledger verify missing
plan verify missing
plan verify bad.json
plan verify list.json
plan sign missing.toml --authority folder --out x
launch missing.toml
launch --out file
account show missing
account close missing
run clinics --set graph.kind=star --set graph.p=0.5
run clinics --set data.path=t.csv
run clinics --set data.label=y
run clinics --set 'name=3'
run clinics --set run.every=0
run clinics --set run.specificity=1
run clinics --set problem.classes=1
run clinics --set partition.sizes=[1,2]
run clinics --set partition.outsiders=nobody
run clinics --set algorithm.nosuch=1
run clinics --set privacy.schedule=nosuch
run clinics --set exchange.bits=0
run clinics --set deploy.deadline=0
run clinics --splits -1
run utf16.toml
run ok.toml --set data.codebook=utf16.toml
run ok.toml --set privacy.epsilon=true
run ok.toml --set run.rounds=true
run ok.toml --set algorithm.step=true
run ok.toml --set data.path=utf16.csv
run ok.toml --set data.path=semicolons.csv
run ok.toml --set data.path=twice.csv
run ok.toml --set data.path=dates.csv
run ok.toml --set data.options.bounds.age=[nan,1]
run ok.toml --checkpoint file --devices 1
run ok.toml --checkpoint /proc/nothing --devices 1
init t.xlsx p.toml --label y
init semicolons.csv p.toml --label y
init twice.csv p.toml --label y
stats ok.toml --out folder
stats ok.toml --out /proc/nothing/at.all
stats ok.toml --next /proc/nothing/at.all
report res --out folder
predict res t.csv --out folder
predict res t.csv --out /proc/nothing/at.all
export res --card folder
export res --onnx /proc/nothing/at.all
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with things that are not what they should be."""
    where = tmp_path_factory.mktemp("mistakes")
    texts = {
        "file": "x", "empty.toml": "", "notoml.toml": "a = = b", "t.csv": TABLE, "empty.csv": "",
        "head.csv": "site,age,y\n", "bad.json": "{", "list.json": "[]", "ok.toml": PLAN,
    }  # fmt: skip
    for name, text in texts.items():
        (where / name).write_text(text, "utf-8")
    for name, text in {"utf16.toml": PLAN, "utf16.csv": TABLE}.items():
        (where / name).write_text(text, "utf-16")
    (where / "bom.toml").write_text(PLAN, "utf-8-sig")
    (where / "bom.csv").write_text(TABLE, "utf-8-sig")
    (where / "semicolons.csv").write_text(TABLE.replace(",", ";"))
    (where / "twice.csv").write_text(TABLE.replace("site,age,y", "age,age,y"))
    (where / "dates.csv").write_text(TABLE.replace(",1,", ",2020-01-01,"))
    (where / "latin.toml").write_bytes('name = "Süd"'.encode("latin-1"))
    (where / "folder").mkdir()
    (where / "res").mkdir()
    (where / "res" / "result.json").write_text('{"schema": 99, "plan": {}}')
    return where


@pytest.fixture(autouse=True)
def nothing_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In that folder, and where a run began the mistake was found too late."""

    def too_late(*_: object, **__: object) -> None:
        raise AssertionError("it began to run")

    monkeypatch.chdir(place)
    monkeypatch.setenv("COTERIE_ACCOUNTS", str(place / "folder"))
    monkeypatch.setattr(Experiment, "run", too_late)
    monkeypatch.setattr(simulate, "simulate", too_late)


def listed() -> list[str]:
    """The command lines."""
    return [line for line in MISTAKES.splitlines() if line.strip()]


def test_there_are_more_than_a_hundred() -> None:
    assert len(set(listed())) == len(listed()) >= 150


@pytest.mark.parametrize("line", listed())
def test_a_mistake_is_one_line(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()}
    assert cli.main(shlex.split(line)) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1, told
    assert len(told) > 20
    assert not JARGON.search(told), told
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("line", ["run ok.toml", "run bom.toml", "run ok.toml --set data.path=bom.csv"])
def test_a_good_command_is_none_of_them(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="it began to run"):
        cli.main(shlex.split(line))
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"coterie \d+\.\d+\.\d+", capsys.readouterr().out.splitlines()[-1])


@pytest.mark.skipif(os.geteuid() != 0, reason="a folder without rights needs no root")
def test_a_folder_that_cannot_be_written_is_said_before_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--out", "/proc/nothing"]) == 2
    assert "cannot be written" in capsys.readouterr().err


@contextlib.contextmanager
def another_user(folder: Path) -> Iterator[None]:
    """Nobody may look into the folder: a superuser is somebody else for a while."""
    owner, mode = os.geteuid(), folder.stat().st_mode
    folder.chmod(0)
    try:
        os.seteuid(65534 if owner == 0 else owner)
        yield
    finally:
        os.seteuid(owner)
        folder.chmod(mode)


@pytest.mark.parametrize(
    "line",
    [
        "ledger show closed/ledger.db", "ledger verify closed/ledger.db", "account show closed/a.account",
        "account open closed/a.account --epsilon 1 --delta 1e-5 --data t.csv", "predict closed/model t.csv",
        "plan verify closed/agreement.json --ca closed/ca.json", "audit closed/state", "verify closed/certificate.json",
        "report closed/state", "run closed/plan.toml",
    ],
)  # fmt: skip
def test_a_file_in_another_users_folder_is_one_line(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "closed").mkdir(exist_ok=True)
    cli.main(shlex.split(line))  # with what it loads: the other user need not be allowed to read this package
    capsys.readouterr()
    with another_user(place / "closed"):
        assert cli.main(shlex.split(line)) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1, told
    assert "closed" in told
    assert not JARGON.search(told), told


X, Y = np.full((6, 2), 0.1), np.array([1, -1, 1, -1, 1, -1])
SITES = [(X, Y)] * 3


FRAME = pd.DataFrame({"s": list("abcabc"), "a": X[:, 0], "y": Y})


class Tensor:
    """What torch says of a tensor whose gradient is kept."""

    shape = (6, 2)

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.\nUse tensor.detach().numpy() instead.")


class Polar:
    """A frame of another package."""

    columns = ("s", "a", "y")

    def to_pandas(self) -> pd.DataFrame:
        return FRAME


def train(net: object, **more: object) -> object:
    """A run that would begin, if nothing were wrong."""
    return ct.train(ct.logistic(), net, ct.dp_dsgd(), ct.Budget(1.0, 1e-5), seed=0, rounds=2, **more)  # type: ignore[arg-type]


def price(net: object, task: object = None) -> object:
    """What a run would cost: it is here that parts are put together."""
    return ct.price(task or ct.logistic(), net, ct.dp_dsgd(), ct.Budget(1.0, 1e-5))  # type: ignore[arg-type]


CALLS: dict[str, Callable[[], object]] = {
    "ring of nothing": lambda: ct.ring([]),
    "ring of one": lambda: ct.ring([(X, Y)]),
    "lengths differ": lambda: ct.train(
        ct.logistic(), ct.ring([(X, Y), (X[:3], Y), (X, Y)]), ct.dp_dsgd(), ct.Budget(1.0, 1e-5)
    ),
    "widths differ": lambda: ct.ring([(X, Y), (X[:, :1], Y)]),
    "records are NaN": lambda: ct.train(
        ct.logistic(), ct.ring([(X * np.nan, Y)] * 3), ct.dp_dsgd(), ct.Budget(1.0, 1e-5)
    ),
    "records too long": lambda: ct.train(ct.logistic(), ct.ring([(X * 99, Y)] * 3), ct.dp_dsgd(), ct.Budget(1.0, 1e-5)),
    "epsilon 0": lambda: ct.price(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), ct.Budget(0.0, 1e-5)),
    "epsilon 1e9": lambda: ct.price(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), ct.Budget(1e9, 1e-5)),
    "epsilon nan": lambda: ct.price(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), ct.Budget(float("nan"), 1e-5)),
    "epsilon text": lambda: ct.price(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), ct.Budget("one", 1e-5)),
    "delta 1": lambda: ct.price(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), ct.Budget(1.0, 1.0)),
    "no budget": lambda: ct.price(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), None),
    "negative step": lambda: ct.dp_dsgd(step=-1),
    "negative clip": lambda: ct.dp_dsgd(clip=-1),
    "negative ridge": lambda: price(ct.ring(SITES), ct.logistic(ridge=-1)),
    "rounds 1e13": lambda: ct.price(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), ct.Budget(1.0, 1e-5), rounds=10**13),
    "bounds as text": lambda: price(ct.ring(SITES, bounds=("low", "high"))),
    "bounds reversed": lambda: price(ct.ring(SITES, bounds=(1, 0))),
    "missing folder": lambda: ct.load("nowhere"),
    "names twice": lambda: ct.ring(SITES, names=["a", "a", "b"]),
    "sizes of nobody": lambda: ct.ring(sizes=[], features=2),
    "sizes below one": lambda: ct.ring(sizes=[3, 0, 3], features=2),
    "a site without records": lambda: price(ct.ring([(X, Y), (X[:0], Y[:0])])),
    "a frame without label": lambda: train(ct.ring(FRAME, site="s", names=list("abc"))),
    "a frame that is not of pandas": lambda: ct.ring(Polar(), site="s", label="y"),
    "two columns of one name": lambda: ct.ring(FRAME.set_axis(["s", "a", "a"], axis=1), site="s", label="a"),
    "dates in an array": lambda: train(ct.ring([(X.astype("M8[D]"), Y)] * 3, bounds=(0, 1))),
    "spans of time": lambda: train(ct.ring([(X.astype("m8[s]"), Y)] * 3, bounds=(0, 1))),
    "dates for an estimator": lambda: PrivateConsensusClassifier(bounds=(0, 1)).fit(X.astype("M8[D]"), Y),
    "dates in a frame": lambda: PrivateConsensusClassifier(bounds=(0, 1)).fit(
        FRAME.assign(s=X.astype("M8[D]")[:, 0]), Y
    ),
    "sparse records": lambda: train(ct.ring([(csr_array(X), Y)] * 3)),
    "a tensor that is differentiated": lambda: train(ct.ring([(Tensor(), Y)] * 3)),
    "pixels without bounds": lambda: train(ct.ring([(np.full((6, 2), 200, np.uint8), Y)] * 3)),
    "labels as text": lambda: train(ct.ring([(X, Y.astype(str))] * 3)),
    "delta as text": lambda: ct.price(ct.logistic(), ct.ring(SITES), ct.dp_dsgd(), ct.Budget(1.0, "1e-5")),  # type: ignore[arg-type]
    "bounds are NaN": lambda: price(ct.ring(SITES, bounds=(float("nan"), 1))),
    "a checkpoint that cannot be": lambda: train(ct.ring(SITES), checkpoint="/proc/nothing"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_mistake_in_python_is_one_line(name: str) -> None:
    with pytest.raises(InputError) as told:
        CALLS[name]()
    assert isinstance(told.value, ValueError)
    assert len(str(told.value).strip().splitlines()) == 1
    assert not JARGON.search(str(told.value)), told.value
