"""No record in any file or socket, by any way to train: `make test-faults`. The everyday version: tests/test_leaks.py.

Every byte that a process hands to the kernel (files, also those removed again; sockets; pipes) is traced and searched,
and so is every file that it leaves.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coterie.deploy.party import Terms, read_records
from coterie.deploy.trial import free_ports, sign_trial
from coterie.experiment import prepare
from coterie.plan import Plan, validate
from tests.faults.planted_drivers import FEATURES, ONNX, SLOPES, WAYS
from tests.leaks import Search, Secrets, planted_numbers
from tests.test_leaks import RECORDS, keys_of, plan_of, surroundings, toml, write_table

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]
WRITES = "write,pwrite64,pwritev,pwritev2,writev,sendto,sendmsg,sendmmsg"
MANY = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


def traced(folder: Path, name: str, module: str, *arguments: str, cached: bool = True) -> subprocess.Popen[bytes]:
    """A process whose writes are all in NAME.trace."""
    trace = [
        "strace",
        "-f",
        "-qq",
        "-xx",
        "-s",
        str(1 << 26),
        "-e",
        f"trace={WRITES}",
        "-o",
        str(folder / f"{name}.trace"),
    ]
    env = surroundings(folder) | ({"JAX_COMPILATION_CACHE_DIR": str(folder / "programs"), **MANY} if cached else {})
    with (folder / f"{name}.printed").open("wb") as printed:
        return subprocess.Popen(
            [*trace, sys.executable, "-m", module, *arguments], cwd=folder, env=env, stdout=printed, stderr=printed
        )


def ended(folder: Path, processes: dict[str, subprocess.Popen[bytes]], seconds: float = 600) -> None:
    """All of them, well."""
    try:
        codes = {name: process.wait(seconds) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    said = {name: (folder / f"{name}.printed").read_text()[-1500:] for name, code in codes.items() if code}
    assert not said, said


@pytest.mark.parametrize("how", [way for way in WAYS if way != "join"])
def test_ways_to_train_in_python(how: str, tmp_path: Path) -> None:
    ended(tmp_path, {how: traced(tmp_path, how, "tests.faults.planted_drivers", how)})
    found = Search(FEATURES, SLOPES).files(tmp_path)
    if how == "stores":  # a store is records: as it is written, and as it lies there
        assert found.pop("stores.trace").endswith("hexadecimal")
        found = {name: how for name, how in found.items() if not name.startswith("store/")}
    if how == "kept":  # the records to predict, as they are written
        assert found.pop("rows.csv") == "decimal"
        assert found.pop("kept.trace") == "decimal in hexadecimal"
        kept = {p.name for p in tmp_path.iterdir()}
        assert {"checkpoint", "run.pickle", "estimators.pickle", "saved", "said.csv", "MODEL.md", *ONNX[1:]} <= kept
    assert found == {}
    assert how in ("stores", "released") or len(list((tmp_path / "programs").glob("*-cache"))) > 10


HELD_OUT = ("--set", "data.test_fraction=0.2")
COMMANDS = {
    "plain": ("run", "--seeds", "2"),
    "covered": ("run", *HELD_OUT, "--set", "run.covered=true"),
    "additive": ("run", *HELD_OUT),
    "stats": ("stats", "--bins", "8", "--set", "privacy.epsilon=50"),
    "quantiles": (
        "stats",
        "--next",
        "trained.toml",
        "--set",
        "problem.bins.age=quantiles",
        "--set",
        "privacy.epsilon=50",
    ),
    "admm": ("run", "--set", "algorithm.name=pr-admm"),
    "spread": ("run", "--devices", "2", "--checkpoint", "state", "--every-rounds", "2"),
    "compare": ("compare", "--algorithms", "dp-dsgd,pr-admm", "--epsilons", "1", "--seeds", "1"),
    "launch": ("launch",),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name: str, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = write_table(table, seed=1, records=90)
    binned = name in ("additive", "quantiles")
    problem = {"problem": {"loss": "logistic", "model": "additive"}} if binned else {}
    plan = plan_of([24, 24, 24], table, graph={"kind": "ring"}, **problem)
    (tmp_path / "plan.toml").write_text(toml(plan))
    command, *options = COMMANDS[name]
    out = "stats.json" if command == "stats" else "runs"
    ended(tmp_path, {name: traced(tmp_path, name, "coterie.cli", command, "plan.toml", *options, "--out", out)})
    if name == "quantiles":  # the second of the two plans
        ended(tmp_path, {"next": traced(tmp_path, "next", "coterie.cli", "run", "trained.toml", "--out", "runs")})
    if binned:
        given = ("export", "runs", "--card", "MODEL.md", *ONNX)
        ended(tmp_path, {"export": traced(tmp_path, "export", "coterie.cli", *given)})
        assert {"MODEL.md", *ONNX[1:]} <= {p.name for p in tmp_path.iterdir()}
    scaled = [] if binned else [read_records(plan, table).features]  # vectors of bins are public, in model.onnx
    search = Search(rows, *scaled)
    found = search.files(tmp_path)
    assert found.pop("table.csv") == "decimal"
    if name == "launch":  # a rehearsal writes every party's file
        assert found.pop("launch.trace").endswith("hexadecimal")
        assert [found.pop(f"runs/agent-{k}/data.npz", None) for k in range(3)] == ["float64"] * 3
    assert found == {}
    if name == "launch":  # the audit of what it left reads the records again
        ended(tmp_path, {"audit": traced(tmp_path, "audit", "coterie.cli", "audit", "runs")})
        assert {p for p in search.files(tmp_path) if not p.startswith(("runs/agent-", "launch", "table"))} == set()


def fair_plan(table: Path) -> tuple[Plan, np.ndarray]:
    """Two columns of numbers, a label and a group, at three sites."""
    age, hours = planted_numbers((90,), 18, 90, seed=7), planted_numbers((90,), 1, 80, seed=8)
    lines = [f"{a!r},{h!r},{'yes' if a > 50 else 'no'},{'fm'[k % 2]},{'abc'[k % 3]}"
             for k, (a, h) in enumerate(zip(age.tolist(), hours.tolist(), strict=True))]  # fmt: skip
    table.write_text("\n".join(["age,hours,pays,sex,site", *lines]) + "\n")
    options = {
        "protected": "sex", "classes": ["no", "yes"], "sites": list("abc"), "constant": True, "missing": "error",
        "bounds": {"age": [18, 90], "hours": [1, 80]}, "categories": {"sex": ["f", "m"]},
    }  # fmt: skip
    tree = {
        "data": {"source": "csv", "path": str(table), "label": "pays", "site": "site", "options": options},
        "graph": {"kind": "complete"}, "problem": {"loss": "fair"}, "algorithm": {"name": "fair-release"},
        "privacy": {"epsilon": 2.0, "delta": 1e-5},
    }  # fmt: skip
    return validate(tree), np.concatenate([age, hours])


def coupled_plan(table: Path) -> tuple[Plan, np.ndarray]:
    """Three plants, each with the coefficients of twelve contracts."""
    slopes, bends = planted_numbers((36,), 16, 26, seed=9), planted_numbers((36,), 0.011, 0.039, seed=10)
    lines = [
        f"{'abc'[k % 3]},{b!r},{s!r}" for k, (b, s) in enumerate(zip(bends.tolist(), slopes.tolist(), strict=True))
    ]
    table.write_text("\n".join(["party,curvature,slope", *lines]) + "\n")
    plant = {"low": 50, "high": 300, "curvature": [0.01, 0.04], "slope": [15, 27]}
    tree = {
        "data": {"source": "coefficients", "path": str(table), "site": "party", "options": {"sites": list("abc")}},
        "graph": {"kind": "complete"}, "problem": {"loss": "coupled", "total": 450.0, "variables": [plant] * 3},
        "algorithm": {"name": "coupled-admm"}, "privacy": {"epsilon": 1.0, "delta": 1e-5}, "run": {"rounds": 6},
    }  # fmt: skip
    return validate(tree), np.concatenate([slopes, bends])


@pytest.mark.parametrize("make", [fair_plan, coupled_plan], ids=["fair", "coupled"])
def test_plans_of_other_kinds_between_parties(make: Callable[[Path], tuple[Plan, np.ndarray]], tmp_path: Path) -> None:
    plan, planted = make(tmp_path / "table.csv")
    (tmp_path / "plan.toml").write_text(toml(plan))
    ended(tmp_path, {"launch": traced(tmp_path, "launch", "coterie.cli", "launch", "plan.toml", "--out", "runs")})
    found = Search(planted, np.asarray(prepare(plan).features)).files(tmp_path)
    assert found.pop("table.csv") == "decimal"
    assert found.pop("launch.trace").endswith("hexadecimal")  # a rehearsal writes every party's file
    assert [name for name in found if not re.fullmatch(r"runs/\w+(-\d)?/data\.\w+", name)] == []
    assert len(found) == 3


def test_a_party_from_python(tmp_path: Path) -> None:
    """Its records are in memory, and go to the process beside through memory."""
    tables = [tmp_path / f"{name}.csv" for name in ("ada", "ben")]
    rows = [write_table(table, seed=k) for k, table in enumerate(tables, 2)]
    parties = [{"name": t.stem, "address": f"127.0.0.1:{p}"} for t, p in zip(tables, free_ports(2), strict=True)]
    plan = plan_of([RECORDS] * 2, deploy={"parties": parties})
    records = [read_records(plan, table) for table in tables]
    agreement, sites = sign_trial(plan, records, tmp_path / "trial")
    for site in sites:
        site.data.unlink()
    agreement.rename(tmp_path / "trial" / "agreement.json")
    given = ["--me", "ben", "--data", "ben.csv", "--keys", str(sites[1].keys), "--state", str(sites[1].state)]
    ended(tmp_path, {
        "join": traced(tmp_path, "join", "tests.faults.planted_drivers", "join", cached=False),
        "ben": traced(tmp_path, "ben", "coterie.cli", "agent", "trial/agreement.json", *given, cached=False),
    })  # fmt: skip
    found = Search(*rows, *(r.features for r in records)).files(tmp_path)
    assert found == {"ada.csv": "decimal", "ben.csv": "decimal"}
    assert (sites[0].state / "model.npz").is_file()


def test_a_partys_life(tmp_path: Path) -> None:
    """People, an account, two agreements of which one amends the other, and every look at what they leave."""
    names = ("ada", "ben")
    tables = [tmp_path / f"{name}.csv" for name in names]
    rows = [write_table(table, seed=k, people=True) for k, table in enumerate(tables, 2)]
    ports = zip(names, free_ports(2), strict=True)
    plan = plan_of([RECORDS // 2] * 2, deploy={"parties": [{"name": n, "address": f"127.0.0.1:{p}"} for n, p in ports]})
    tree = plan.model_dump(mode="json", exclude_unset=True)
    plan = validate(tree | {"data": tree["data"] | {"person": "patient", "records_per_person": 2}})
    records = [read_records(plan, table) for table in tables]
    agreement, sites = sign_trial(plan, records, tmp_path / "trial")
    for site in sites:
        site.data.unlink()
    done: list[str] = []

    def commands(*lines: str) -> None:
        """These at the same time."""
        started = {f"{len(done)}-{k}": shlex.split(line) for k, line in enumerate(lines)}
        done.extend(lines)
        ended(tmp_path, {n: traced(tmp_path, n, "coterie.cli", *words, cached=False) for n, words in started.items()})

    def agents(signed: Path) -> None:
        given = "agent {} --me {} --data {}.csv --keys {} --state {} --account {}.account"
        commands(*(given.format(signed, s.name, s.name, s.keys, s.state, s.name) for s in sites))

    opened = "account open {0}.account --data {0}.csv --epsilon 9 --delta 1e-4 --may {0} --unit person"
    commands(*(opened.format(name) for name in names))
    agents(agreement)
    authority = tmp_path / "trial" / "authority"
    commands(f"plan amend {agreement} --ca {authority} --set privacy.epsilon=0.5 --out amended.toml")
    certificates = " ".join(f"--certs {s.keys / 'certificate.pem'}" for s in sites)
    commands(f"plan sign amended.toml {certificates} --ca {authority} --out next.json")
    agents(tmp_path / "next.json")
    state = sites[0].state
    commands(f"report {state}", f"ledger show {state / 'ledger.db'}", "account show ada.account")
    commands(f"report {state} --data ada.csv --test ben.csv --out home.html")
    found = Search(*rows, *(r.features for r in records)).files(tmp_path)
    assert found == {"ada.csv": "decimal", "ben.csv": "decimal"}
    assert {"model.npz", "report.html", "earlier"} <= {p.name for p in state.iterdir()}
    page = (Path(__file__).parents[2] / "docs" / "deploy-approval.md").read_text("utf-8")
    assert [p.name for p in state.iterdir() if f"`{p.name}`" not in page and f"`{p.name}/`" not in page] == []


SHARED = {"kind": "secret-sum", "noise": "central", "honest": 2}
OTHER = {
    "one release": {"problem": {"loss": "moments", "dim": 5}, "run": {}},
    "additive": {"problem": {"loss": "logistic", "model": "additive"}},
    "additive release": {"problem": {"loss": "moments", "model": "additive"}, "run": {}},
    "in a set": {"problem": {"loss": "logistic", "dim": 5, "within": "box",
                             "within_options": {"low": -0.1, "high": 0.1}}},
}  # fmt: skip
DEPLOYED = {
    "dp-dsgd": ("dp-dsgd", {"kind": "broadcast"}, ""),
    "one release": ("release", {"kind": "secret-sum", "noise": "central", "honest": 2}, ""),
    "additive": ("dp-dsgd", {"kind": "broadcast"}, ""),
    "additive release": ("release", {"kind": "secret-sum", "noise": "central", "honest": 2}, ""),
    "in a set": ("dp-dsgd", {"kind": "broadcast"}, ""),
    "noise of neighbours": ("decor", {"kind": "broadcast"}, ""),
    "noise of neighbours, a key into the log": ("decor", {"kind": "broadcast"}, "key"),
    "pr-admm": ("pr-admm", {"kind": "broadcast"}, ""),
    "local noise": ("dp-dsgd", {"kind": "secret-sum"}, ""),
    "shared noise": ("dp-dsgd", SHARED, ""),
    "shared noise, into the ledger": ("dp-dsgd", SHARED, "state"),
    "shared noise, into a frame": ("dp-dsgd", SHARED, "frame"),
}


@pytest.mark.parametrize("case", DEPLOYED)
def test_deployed_parties(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that leak on purpose are found, in the file or socket where they do."""
    algorithm, exchange, leak = DEPLOYED[case]
    monkeypatch.setenv("COTERIE_LEAK", leak)
    tables = [tmp_path / f"{name}.csv" for name in ("ada", "ben", "cleo")]
    rows = [write_table(table, seed=k) for k, table in enumerate(tables, 2)]
    ports = zip(tables, free_ports(3), strict=True)
    plan = plan_of(
        [RECORDS] * 3, graph={"kind": "complete"}, exchange=exchange, algorithm={"name": algorithm},
        **{"deploy": {"parties": [{"name": t.stem, "address": f"127.0.0.1:{p}"} for t, p in ports]},
           "run": {"rounds": 8}} | OTHER.get(case, {}),
    )  # fmt: skip
    records = [read_records(plan, table) for table in tables]
    agreement, sites = sign_trial(plan, records, tmp_path / "trial")
    for site in sites:
        site.data.unlink()  # they read their tables

    def start(k: int, name: str, **options: bool) -> subprocess.Popen[bytes]:
        site = sites[k]
        given = ["--me", site.name, "--data", str(tables[k]), "--keys", str(site.keys), "--state", str(site.state)]
        return traced(tmp_path, name, "tests.deploy.tapped_agent", "agent", str(agreement), *given, **options)

    first = start(0, "crashed", cached=True)  # it waits for the others, and is made to leave a core if it can
    try:
        while not (sites[0].state / "status.json").exists():
            assert first.poll() is None, (tmp_path / "crashed.printed").read_text()
            signal.sigtimedwait([], 0.1)
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGABRT)
    finally:
        assert first.wait(60) != 0
    ended(tmp_path, {site.name: start(k, site.name, cached=k == 1) for k, site in enumerate(sites)})
    found = Search(*rows, *(r.features for r in records)).files(tmp_path)
    assert [found.pop(t.name) for t in tables] == ["decimal"] * 3
    secrets = keys_of(agreement, sites, Terms.of(plan).draws(0))
    assert ("noise of ada and ben in round 0" in secrets) == (algorithm == "decor")
    held = Secrets(secrets).files(tmp_path)
    homes = [f"trial/{site.name}/keys/" for site in sites]
    assert {f"{home}{kind}.key" for home in homes for kind in ("tls", "frame")} <= set(held)
    told = [name for name in held if not name.startswith(tuple(homes))]
    if leak == "key":
        assert any(name.endswith("log.jsonl") for name in told), held
        return
    assert told == []
    if leak:
        where = "ledger.db" if leak == "state" else "sent/"
        assert any(where in name for name in found), found
        return
    assert found == {}
    assert not list(tmp_path.rglob("core*")), "a core dump"
    assert not (tmp_path / "programs").exists() or not list((tmp_path / "programs").iterdir())
    assert len(list((tmp_path / "sent").iterdir())) >= 3


def test_a_file_that_is_removed_again_is_seen(tmp_path: Path) -> None:
    code = "import os, sys; from tests.faults.planted_drivers import FEATURES as x\nx.tofile('f'); os.remove('f')\n"
    (tmp_path / "writer.py").write_text(code)
    ended(tmp_path, {"writer": traced(tmp_path, "writer", "writer")})
    assert Search(FEATURES).files(tmp_path) == {"writer.trace": "float64 in hexadecimal"}
