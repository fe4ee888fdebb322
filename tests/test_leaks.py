"""No record in any file that a run leaves, nor in anything it sends: planted records are looked for everywhere.

The small version: one `coterie run`, one deployed pair, three parties of secret sums in one process. Everything else:
tests/faults/test_leaks.py.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from coterie.algorithms.laws import Law, Shared
from coterie.cli import main
from coterie.data import split
from coterie.deploy.agreement import read_agreement
from coterie.deploy.keys import load_party
from coterie.deploy.ledger import read
from coterie.deploy.pairs import PairSecrets
from coterie.deploy.party import Records, Terms, read_records
from coterie.deploy.shared import SharedParty
from coterie.deploy.sharing import sealing_key
from coterie.deploy.sum_agent import SumAgent
from coterie.deploy.trial import Site, free_ports, sign_trial
from coterie.experiment import prepare
from coterie.plan import Plan, validate
from coterie.sums.party import SumParty
from tests.deploy import tapped_agent
from tests.deploy.memory import MemoryLink
from tests.deploy.recorded_agent import load_draws
from tests.deploy.shared_house import SharedHouse, SharedSetting, shared_plan
from tests.deploy.test_process import differ
from tests.leaks import Search, Secrets, planted_numbers

COLUMNS = {"age": (0.0, 100.0), "pressure": (80.0, 200.0), "bmi": (10.0, 60.0), "dose": (0.0, 3.0)}
RECORDS = 24


def write_table(path: Path, seed: int, records: int = RECORDS, people: bool = False) -> np.ndarray:
    """A table of planted numbers and a label; of people with two records each."""
    columns = [planted_numbers((records,), *ends, seed=10 * seed + k) for k, ends in enumerate(COLUMNS.values())]
    rows = np.stack(columns, axis=1)
    labels = np.where(rows[:, 0] > 50, "yes", "no")
    lines = [",".join([*map(repr, row.tolist()), label]) for row, label in zip(rows, labels, strict=True)]
    head = ",".join([*COLUMNS, "outcome"])
    if people:
        head, lines = f"{head},patient", [f"{line},{k // 2}" for k, line in enumerate(lines)]
    path.write_text("\n".join([head, *lines]) + "\n")
    return rows


def plan_of(sizes: list[int], path: Path | None = None, **tables: object) -> Plan:
    """The guide's plan, for tables of `write_table`."""
    return validate(
        {
            "name": "planted",
            "data": {
                "source": "csv", "label": "outcome",
                "options": {
                    "classes": ["no", "yes"], "features": [*COLUMNS], "bounds": COLUMNS, "constant": True,
                    "optional": [],
                },
                **({} if path is None else {"path": str(path)}),
            },
            "partition": {"kind": "iid", "sizes": sizes},
            "graph": {"kind": "path"},
            "problem": {"loss": "logistic", "dim": 5, "ridge": 0.01},
            "algorithm": {"name": "dp-dsgd"},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "run": {"rounds": 4},
        }
        | tables
    )  # fmt: skip


def surroundings(folder: Path) -> dict[str, str]:
    """Everything that a process might write to, below one folder; a cache that stores every program."""
    places = {"HOME": "home", "XDG_CACHE_HOME": "cache", "TMPDIR": "temporary", "COTERIE_TAP": "sent"}
    for place in places.values():
        (folder / place).mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    return kept | {k: str(folder / v) for k, v in places.items()} | {"PYTHONPATH": str(Path(__file__).parents[1])}


def coterie(folder: Path, *arguments: str, module: str = "coterie.cli") -> subprocess.Popen[str]:
    """The command, with what it prints in files of the folder."""
    with (folder / f"printed-{arguments[0]}-{len(list(folder.glob('printed-*')))}").open("w") as printed:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments], cwd=folder, env=surroundings(folder), stdout=printed,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


def toml(plan: Plan) -> str:
    """A plan as a file, every value as JSON writes it (TOML understands that, tables inline)."""
    tree = plan.model_dump(mode="json", exclude_none=True)

    def value(x: object) -> str:
        if isinstance(x, dict):
            return "{" + ", ".join(f"{json.dumps(k)} = {value(v)}" for k, v in x.items()) + "}"
        return "[" + ", ".join(map(value, x)) + "]" if isinstance(x, list) else json.dumps(x)

    return "\n".join(f"{key} = {value(x)}" for key, x in tree.items())


def keys_of(agreement: Path, sites: Sequence[Site], laws: Mapping[str, Law] | None = None) -> dict[str, bytes]:
    """Every private key of these parties, what two neighbours make of theirs, and the numbers of these laws that both
    draw from it."""
    found, keys = {}, {site.name: load_party(site.keys) for site in sites}
    for name, own in keys.items():
        tls = load_pem_private_key(own.tls_key_pem, None)
        assert isinstance(tls, EllipticCurvePrivateKey)
        found[f"TLS key of {name}"] = tls.private_numbers().private_value.to_bytes(32, "big")
        found[f"frame key of {name}"] = own.frame_key.private_bytes_raw()
        found[f"sealing key of {name}"] = sealing_key(own).private_bytes_raw()
        pairs = PairSecrets.of(agreed := read_agreement(agreement, own.authority), own)
        for other in agreed.neighbours(name):
            node = agreed.index(other)
            found[f"secret of {name} and {other}"] = pairs._agreed[node]
            for round, (draw, law) in itertools.product(range(4), (laws or {}).items()):
                if isinstance(law, Shared):
                    drawn = pairs.secret(node, round, draw, law).ravel()[:4]
                    found[f"{draw} of {name} and {other} in round {round}"] = drawn.tobytes()
    return found


def test_a_simulation_leaves_no_record(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = write_table(table, seed=1, records=60)
    plan = plan_of([24, 24], table)
    (tmp_path / "plan.toml").write_text(toml(plan))
    run = coterie(tmp_path, "run", "plan.toml", "--out", "runs/planted", "--set", "data.test_fraction=0.2", "--quiet")
    assert run.wait(300) == 0, (tmp_path / "printed-run-0").read_text()
    search = Search(rows, read_records(plan, table).features)
    assert search.files(tmp_path) == {"table.csv": "decimal"}
    programs = list((tmp_path / "cache" / "coterie" / "programs").iterdir())
    assert len(programs) > 10  # the search was not in vain
    assert {stat.S_IMODE(p.stat().st_mode) for p in programs} == {0o600}
    assert stat.S_IMODE(programs[0].parent.stat().st_mode) == 0o700


def test_a_deployed_party_leaves_and_sends_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T4 beside it, on what two processes said: round 1 within a grid unit, the answer within 1e-6, the same draws."""
    both = tmp_path / "both.csv"
    numbers = write_table(both, seed=2, records=60)  # four fifths of them are for training
    admm = {"name": "pr-admm"}
    experiment = prepare(plan_of([RECORDS] * 2, both, algorithm=admm))
    head, *lines = both.read_text().splitlines()
    both.unlink()
    training, _ = split(experiment.dataset, experiment.plan.data.test_fraction, seed=experiment.plan.data.seed)
    parts = [training[part] for part in experiment.parts]
    tables, rows = [tmp_path / "ada.csv", tmp_path / "ben.csv"], [numbers[part] for part in parts]
    for table, part in zip(tables, parts, strict=True):
        table.write_text("\n".join([head, *(lines[k] for k in part)]) + "\n")
    parties = [
        {"name": t.stem, "address": f"127.0.0.1:{p}"} for t, p in zip(tables, free_ports(2), strict=True)
    ]  # fmt: skip
    plan = plan_of([RECORDS] * 2, deploy={"parties": parties}, algorithm=admm)
    records = [read_records(plan, table) for table in tables]
    agreement, sites = sign_trial(plan, records, tmp_path / "trial")
    for site in sites:
        site.data.unlink()  # they read their tables
    old = tmp_path / "cache" / "coterie" / "jax"
    surroundings(tmp_path)
    old.mkdir(parents=True)
    (old / "jit__compute_turn-cache").write_bytes(zlib.compress(rows[0].tobytes()))
    monkeypatch.setenv("COTERIE_DRAWN", str(tmp_path / "drawn"))
    agents = [
        coterie(
            tmp_path, "agent", str(agreement), "--me", site.name, "--data", str(table), "--keys", str(site.keys),
            "--state", str(site.state), module="tests.deploy.tapped_agent",
        )
        for site, table in zip(sites, tables, strict=True)
    ]  # fmt: skip
    try:
        codes = [agent.wait(300) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    printed = "".join(p.read_text() for p in sorted(tmp_path.glob("printed-*")))
    assert codes == [0, 0], printed
    assert f"in {old}: removed" in printed
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []  # no program is kept
    told = ["--data", "ada.csv", "--test", "ben.csv"]  # the page for its owner: worth, and still no record
    assert coterie(tmp_path, "report", str(sites[0].state), *told).wait(300) == 0
    search = Search(*rows, *(r.features for r in records))
    assert search.files(tmp_path) == {"ada.csv": "decimal", "ben.csv": "decimal"}
    keys = {f"trial/{name}/keys/{kind}.key": f"{said} key of {name} in base64"
            for name in ("ada", "ben") for kind, said in (("tls", "TLS"), ("frame", "frame"))}  # fmt: skip
    assert Secrets(keys_of(agreement, sites)).files(tmp_path) == keys
    sizes = [p.stat().st_size for p in (tmp_path / "sent").iterdir()]
    assert min(sizes) > 500, sizes
    left = {p.name for site in sites for p in site.state.iterdir()}
    page = (Path(__file__).parents[1] / "docs" / "deploy-approval.md").read_text()
    assert {"ledger.db", "log.jsonl", "certificate.json", "report.html"} <= left
    assert [name for name in left if f"`{name}`" not in page] == []  # whoever approves is told of every file
    terms = Terms.of(plan)
    drawn = [load_draws(tmp_path / "drawn" / str(agent.pid), terms.rounds) for agent in agents]
    steps, part = differ(terms, experiment.layout(terms.rounds, terms.priced.shape), drawn, sites)
    assert steps <= 1
    assert part <= 1e-6
    for site in sites:
        assert len(read(site.state / "ledger.db").rows) == terms.rounds
        assert main(["verify", str(site.state / "certificate.json"), "--strict"]) == 0


@pytest.fixture(scope="module")
def planted_sums(tmp_path_factory: pytest.TempPathFactory) -> SharedSetting:
    records = [
        Records(planted_numbers((12, 3), 0.05, 0.5, seed=30 + k), np.arange(12) % 2, ("no", "yes"), ())
        for k in range(3)
    ]
    return SharedSetting(shared_plan(3, rounds=2), tmp_path_factory.mktemp("sums") / "trial", records)


@pytest.mark.parametrize("leak", tapped_agent.LEAKS)
def test_a_party_of_secret_sums_leaves_and_sends_no_record(
    leak: str, planted_sums: SharedSetting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With shared noise the message itself is bare: what is stored and sent of it is masked. The twins are found."""
    for kind, name in ((SharedParty, "pack"), (SumAgent, "__init__"), (SumParty, "say_done")):
        monkeypatch.setattr(kind, name, getattr(kind, name))  # as it is, after the twin
    tapped_agent.LEAKS[leak]()
    sent, write = bytearray(), MemoryLink.write

    async def noted(link: MemoryLink, data: bytes) -> None:
        sent.extend(data)
        await write(link, data)

    monkeypatch.setattr(MemoryLink, "write", noted)
    house = SharedHouse(planted_sums, tmp_path / "house")
    house.run()
    assert len(house.models) == 3
    search = Search(*(r.features for r in planted_sums.records))
    (tmp_path / "sent").write_bytes(sent)
    found = search.files(tmp_path)
    assert len(sent) > 10_000
    if not leak:
        assert found == {}
    else:
        assert set(found.values()) == {"float64"}
        assert all(("sent" if leak == "frame" else "ledger.db") in name for name in found), found
        assert found


CONSTANTS = """
import sys, jax, jax.numpy as jnp, numpy as np
from pathlib import Path
from coterie.deploy.party import Party, Terms, read_records
from coterie.deploy.noise import SystemSource
from coterie.plan import read_plan

with jax.enable_x64(True):
    plan = read_plan(Path("plan.toml"), [])
    party = Party.of(Terms.of(plan), 0, read_records(plan, Path("table.csv")))
    turn = jax.jit(lambda *rest: party.turns.turn(party.shard, *rest))  # the records are no argument
    turn(0, party.begin(), SystemSource().draw(0, party.turns.laws))
"""


def test_records_that_are_constants_of_a_program_are_found(tmp_path: Path) -> None:
    rows = write_table(tmp_path / "table.csv", seed=4)
    parties = [{"name": n, "address": f"{n}.example:7000"} for n in ("ada", "ben")]
    plan = plan_of([RECORDS] * 2, deploy={"parties": parties})
    (tmp_path / "plan.toml").write_text(toml(plan))
    cached = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", CONSTANTS], cwd=tmp_path, env=surroundings(tmp_path) | cached, capture_output=True,
        text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = Search(rows, read_records(plan, tmp_path / "table.csv").features).files(tmp_path / "programs")
    assert found
    assert {how.split()[0] for how in found.values()} == {"float64"}
    assert {how.split()[-1] for how in found.values()} <= {"zlib", "zstd"}


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("width", [4, 8])
def test_the_search_finds_floats(order: str, width: int) -> None:
    planted = planted_numbers((12, 3), -1, 1, seed=5)
    search, noise = Search(planted), np.random.default_rng(0).bytes(10_007)
    data = noise + planted.astype(f"{order}f{width}").tobytes() + noise
    assert search.found(data) == f"float{8 * width}"
    assert search.found(zlib.compress(data)) == f"float{8 * width} in zlib"
    assert search.found(b"head" + gzip.compress(zlib.compress(data))) == f"float{8 * width} in zlib in gzip"
    assert search.found(data.hex().encode()) == f"float{8 * width} in hexadecimal"
    others = planted_numbers((1000, 300), -1, 1, seed=6).astype(f"{order}f{width}").tobytes()
    assert search.found(others + noise) is None


def test_the_search_finds_text() -> None:
    planted = planted_numbers((12, 3), -1, 1, seed=5)
    search = Search(planted)
    assert search.found(repr(float(planted[3, 1])).encode()) == "decimal"
    assert search.found(" ".join(f"{x:.8g}" for x in planted[3]).encode()) == "decimal"
    assert search.found(json.dumps(planted_numbers((1000, 30), -1, 1, seed=6).tolist()).encode()) is None


def test_the_search_finds_keys() -> None:
    """Whole or half, as bytes, as text, in a file of lines, packed."""
    secret, noise = (np.random.default_rng(k).bytes(n) for k, n in ((1, 32), (2, 10_007)))
    search = Secrets({"key": secret})
    lines = [base64.encodebytes(noise[:k] + secret + noise[:k]) for k in range(60)]  # a line has 57 bytes
    for data in (secret, secret[:16], secret[16:], noise + secret.hex().encode(), *lines):
        assert str(search.found(data)).startswith("key")
        assert str(search.found(noise + zlib.compress(data))).startswith("key")
    assert search.found(noise + secret[8:23]) is None
