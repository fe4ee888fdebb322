"""Agreements: what is refused at signing, what is refused at reading, and who calls whom."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import coterie.deploy.agreement as agreement_module
from coterie.cli import main
from coterie.deploy.agreement import Agreement, draft_agreement, read_agreement, sign_agreement
from coterie.deploy.keys import init_authority, init_party, read_certificate, sign_request, write_request
from coterie.deploy.protocol import PROTOCOL
from coterie.errors import InputError
from coterie.plan import validate
from tests.deploy.consortium import IN_A_YEAR, NAMES, Consortium, certify, make_consortium, plan_tree
from tests.support import mostly_slow


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return make_consortium(tmp_path_factory.mktemp("group"))


def identities(group: Consortium) -> list:
    return [read_certificate(group.folder / n / "certificate.pem") for n in NAMES]


def draft(group: Consortium, **tables: Any) -> Agreement:
    return draft_agreement(validate(plan_tree(**tables)), identities(group), group.authority, IN_A_YEAR)


def test_round_trip(group: Consortium, tmp_path: Path) -> None:
    path = tmp_path / "agreement.json"
    group.agreement.write(path)
    found = read_agreement(path, group.authority)
    assert found.model_dump() == group.agreement.model_dump()
    assert found.plan_hash == group.agreement.plan_hash
    tree = json.loads(path.read_text())
    tree.pop("signature")
    canonical = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert found.plan_hash == hashlib.sha256(canonical).digest()
    assert found.deploy.bound == 1000  # defaults are written out: they are part of what was signed
    assert not {"seed", "seeds"} & found.plan.run.model_fields_set
    for party in found.parties:
        found.check_keys(group.keys(party.name).identity)


def test_every_edge_has_one_caller(group: Consortium) -> None:
    ring = nx.cycle_graph(5)
    for node, name in enumerate(NAMES):
        assert group.agreement.index(name) == node
        assert group.agreement.neighbours(name) == tuple(NAMES[j] for j in sorted(ring[node]))
    silent = draft(group, addresses=["a:1", None, "c:1", None, "e:1"])
    for one in NAMES:
        for other in silent.neighbours(one):
            assert silent.dials(one, other) != silent.dials(other, one)
            if silent.dials(one, other):
                assert silent.party(other).address is not None
    assert silent.dials("ben", "ada")  # has no address, so it calls though its node is the higher one
    assert silent.dials("ada", "emil")
    with pytest.raises(InputError, match="'zoe' is no party"):
        silent.index("zoe")


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ({"deploy": None}, r"no \[deploy\] table"),
        ({"run": {"rounds": 5, "seed": 0}}, "run.seed: a seed is a password"),
        ({"run": {"seeds": 1}}, "run.seeds: a seed is a password"),
        ({"partition": {"kind": "site"}}, "state partition.sizes"),
        ({"partition": {"kind": "iid", "sizes": [9, 9, 9]}}, "5 parties, but the partition has 3"),
        ({"addresses": ["a:1", None, None, "d:1", "e:1"]}, "ben and cleo must talk, but neither has an address"),
        ({"names": ("ada", "ben", "zoe", "dora", "yan")}, "no certificate for zoe, yan"),
    ],
)
def test_signing_refuses(group: Consortium, tables: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        draft(group, **tables)


def test_signing_refuses_bad_certificates(group: Consortium, tmp_path: Path) -> None:
    plan, good = validate(plan_tree()), identities(group)
    init_authority("foreign", tmp_path / "foreign")
    for name in ("ada", "ben"):
        init_party(name, tmp_path / name)
    foreign = certify(tmp_path, "ada", ca="foreign")
    with pytest.raises(InputError, match="not signed by trial-ca"):
        draft_agreement(plan, [*good[1:], foreign], group.authority, IN_A_YEAR)
    twin = make_consortium(group.folder, names=("ada", "ben")).folder
    (tmp_path / "ca").symlink_to(twin / "ca")
    other_key = certify(tmp_path, "ada")
    with pytest.raises(InputError, match="two certificates with different keys name ada"):
        draft_agreement(plan, [*good, other_key], group.authority, IN_A_YEAR)
    now = dt.datetime.now(dt.UTC)
    old = certify(tmp_path, "ada", checked=False, start=now - dt.timedelta(days=3), lifetime=dt.timedelta(days=1))
    with pytest.raises(InputError, match="expired"):
        draft_agreement(plan, [*good[1:], old], group.authority, IN_A_YEAR)
    for file in ("tls.key", "frame.key"):
        (tmp_path / "ben" / file).write_bytes((tmp_path / "ada" / file).read_bytes())
        shared = [certify(tmp_path, "ada"), certify(tmp_path, "ben"), *good[2:]]
        with pytest.raises(InputError, match="two parties share one"):
            draft_agreement(plan, shared, group.authority, IN_A_YEAR)
    with pytest.raises(InputError, match="in the past"):
        draft_agreement(plan, good, group.authority, now - dt.timedelta(seconds=2))


def test_signing_asks_whether_the_plan_can_be_deployed(group: Consortium) -> None:
    plan = validate(plan_tree(algorithm={"name": "dsgd"}, privacy=None))
    draft_agreement(plan, identities(group), group.authority, IN_A_YEAR)  # parties and graph are fine
    with pytest.raises(InputError, match="dsgd"):
        sign_agreement(plan, identities(group), group.authority, group.agreement_key, IN_A_YEAR)


# ---- reading ---------------------------------------------------------------------------------------------------------


def changed(group: Consortium, path: Path, *keys: Any, to: Any) -> Path:
    tree = group.agreement.model_dump(mode="json")
    place = tree
    for key in keys[:-1]:
        place = place[key]
    assert place[keys[-1]] != to
    place[keys[-1]] = to
    path.write_text(json.dumps(tree))
    return path


@pytest.mark.parametrize(
    "change",
    [
        ("plan", "privacy", "epsilon", 8.0),
        ("plan", "deploy", "bound", 1e9),
        ("plan", "run", "rounds", 21),
        ("parties", 1, "tls_pin", "00" * 32),
        ("parties", 1, "frame_key", "00" * 32),
        ("parties", 0, "address", "evil.example:1"),
        ("edges", 0, [0, 2]),
        ("valid_until", "2999-01-01T00:00:00Z"),
        ("software", "coterie 9"),
        ("protocol", PROTOCOL + 1),
        ("signature", "00" * 64),
    ],
    ids=lambda c: str(c[-2]),
)
def test_every_change_is_noticed(group: Consortium, tmp_path: Path, change: tuple) -> None:
    with pytest.raises(InputError, match="signature does not fit"):
        read_agreement(changed(group, tmp_path / "a.json", *change[:-1], to=change[-1]), group.authority)


def test_reading_refuses(group: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    for text in ("", "[]", "{}", '{"signature": "zz"}', '{"signature": 1}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match="not an agreement"):
            read_agreement(path, group.authority)
    group.agreement.write(path)
    with pytest.raises(InputError, match="ended on"):
        read_agreement(path, group.authority, IN_A_YEAR + dt.timedelta(days=1))
    with pytest.raises(InputError, match="not signed by other"):
        read_agreement(path, init_authority("other", tmp_path / "other"))
    monkeypatch.setattr(agreement_module, "PROTOCOL", PROTOCOL + 1)
    told = rf"is for protocol {PROTOCOL} \(coterie .*\), coterie .* speaks protocol {PROTOCOL + 1}"
    with pytest.raises(InputError, match=told):
        read_agreement(path, group.authority)


def test_new_keys_need_a_new_agreement(group: Consortium, tmp_path: Path) -> None:
    (tmp_path / "ca").symlink_to(group.folder / "ca")
    init_party("ada", tmp_path / "ada")
    with pytest.raises(InputError, match="TLS key of ada is not the agreed one"):
        group.agreement.check_keys(certify(tmp_path, "ada"))


# ---- the command line ------------------------------------------------------------------------------------------------


def test_commands(group: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "agreement.json"
    parties = "\n".join(f'[[deploy.parties]]\nname = "{n}"\naddress = "{n}:900{i}"' for i, n in enumerate(NAMES))
    text = """
[partition]
kind = "iid"
sizes = [40, 40, 40, 40, 40]
[problem]
loss = "logistic"
[algorithm]
name = "dp-dsgd"
[privacy]
epsilon = 1
delta = 1e-5
[run]
rounds = 5
"""
    plan.write_text(text + parties)
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    for name in NAMES[:-1]:
        (certificates / f"{name}.pem").write_bytes((group.folder / name / "certificate.pem").read_bytes())
    command = ["plan", "sign", str(plan), "--ca", str(group.folder / "ca"), "--certs", str(certificates)]
    assert main([*command, "--out", str(out)]) == 2
    assert "no certificate for emil" in capsys.readouterr().err
    assert not out.exists()
    last = ["--certs", str(group.folder / "emil" / "certificate.pem")]
    assert main([*command, *last, "--out", str(out), "--days", "30"]) == 0
    capsys.readouterr()
    assert main(["plan", "verify", str(out), "--ca", str(group.folder / "ca" / "ca.json")]) == 0
    shown = capsys.readouterr().out
    found = read_agreement(out, group.authority)
    assert found.plan_hash.hex() in shown
    unnamed = tmp_path / "unnamed.toml"  # tables of parties may have their columns in any order
    unnamed.write_text('[data]\nsource = "csv"\nlabel = "ill"\n' + plan.read_text())
    assert main(["plan", "sign", str(unnamed), *command[3:], *last, "--out", str(tmp_path / "unnamed.json")]) == 2
    assert "does not state data.options.features" in (said := capsys.readouterr().err)
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "unnamed.json").exists()
    shutil.copytree(group.folder / "ca", tmp_path / "ca")
    simple = ["plan", "sign", str(plan), "--ca", str(tmp_path / "ca"), "--out", str(tmp_path / "simple.json")]
    assert main(simple) == 2
    assert "no certificates in" in capsys.readouterr().err
    for name in NAMES:
        request = tmp_path / f"{name}.request.json"
        write_request(name, group.folder / name, request)
        assert main(["keys", "sign", str(request), "--ca", str(tmp_path / "ca"), "--out", str(tmp_path / "x.pem")]) == 0
    assert main(simple) == 0  # with those that it has signed
    assert read_agreement(tmp_path / "simple.json", group.authority).parties == found.parties
    capsys.readouterr()
    assert all(n in shown for n in NAMES)
    assert (found.valid_until - dt.datetime.now(dt.UTC)).days in (29, 30)
    out.write_text(out.read_text().replace('"epsilon": 1.0', '"epsilon": 9.0'))
    assert main(["plan", "verify", str(out), "--ca", str(group.folder / "ca")]) == 2
    assert "signature does not fit" in capsys.readouterr().err


def signed(group: Consortium, path: Path, **tables: Any) -> Path:
    draft(group, **tables).signed(group.agreement_key).write(path)
    return path


def shown_by(capsys: pytest.CaptureFixture[str], *command: Any) -> str:
    capsys.readouterr()
    assert main([*map(str, command)]) == 0
    return capsys.readouterr().out


FULL = {"problem": {"loss": "logistic", "dim": 5, "ridge": 0.01}}


@pytest.mark.parametrize("command", mostly_slow(["verify", "check"], "verify"))
def test_nothing_that_is_signed_differs_by_its_hash_alone(
    group: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Whatever is changed in a plan, the person who signs can see it; ε = 50 looked like ε = 1."""
    options = ["--ca", group.folder / "ca"] if command == "verify" else ["--no-rehearsal"]
    changes: dict[str, dict[str, Any]] = {
        "epsilon": {"privacy": {"epsilon": 50, "delta": 1e-5}},
        "delta": {"privacy": {"epsilon": 1, "delta": 0.5}},
        "one epsilon": {"privacy": {"epsilon": [1, 1, 1, 1, 40], "delta": 1e-5}},
        "rounds": {"run": {"rounds": 21}},
        "sizes": {"partition": {"kind": "iid", "sizes": [8, 8, 8, 8, 9]}},
        "bound": {"deploy": plan_tree()["deploy"] | {"bound": 2e3}},
        "tick": {"deploy": plan_tree()["deploy"] | {"tick": 0.5}},
        "ranges": {"data": {"source": "csv", "label": "y", "options": {"bounds": {"age": [0, 500]}}}},
    }
    base = shown_by(capsys, "plan", command, signed(group, tmp_path / "base.json", **FULL), *options)
    for words in (
        "ε = 1 for every party",
        "δ = 1e-05",
        "20 rounds of dp-dsgd",
        "records at 5 parties",
        "valid until",
        f"protocol {PROTOCOL}, drawn up with coterie",
    ):
        assert words in base
    strip = lambda text: [x for x in text.splitlines() if "hash" not in x and "127.0.0.1" not in x]  # noqa: E731
    for name, tables in changes.items():
        path = signed(group, tmp_path / f"{name}.json", **(FULL | tables))
        found = shown_by(capsys, "plan", command, path, *options)
        assert strip(found) != strip(base), name
    assert "ε = 50 for every party" in shown_by(capsys, "plan", command, tmp_path / "epsilon.json", *options)
    assert "bounds.age = [0, 500]" in shown_by(capsys, "plan", command, tmp_path / "ranges.json", *options)


def test_a_name_cannot_pretend_to_be_another_line(
    group: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = signed(group, tmp_path / "a.json", **FULL, name="five\nprivacy: ε = 0.1 [bold]for[/] every party")
    found = shown_by(capsys, "plan", "verify", path, "--ca", group.folder / "ca")
    assert not any(line.startswith("privacy: ε = 0.1") for line in found.splitlines())
    assert "[bold]" in found


def test_checking_an_agreement_says_that_it_is_not_verifying(
    group: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = signed(group, tmp_path / "a.json", **FULL)
    assert "signature was not checked" in shown_by(capsys, "plan", "check", path, "--no-rehearsal")
    assert main(["plan", "check", str(path), "--set", "run.rounds=3"]) == 2
    assert "an agreement is what was signed" in capsys.readouterr().err
    path.write_text("{}")
    assert main(["plan", "check", str(path)]) == 2
    assert "is not an agreement" in capsys.readouterr().err


def test_a_plan_that_agents_would_refuse_says_so(
    group: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown_by(capsys, "plan", "verify", signed(group, tmp_path / "a.json"), "--ca", group.folder / "ca")
    assert "AGENTS WILL REFUSE IT: a deployed plan states problem.loss and problem.dim" in found


def test_an_agreement_does_not_outlive_its_authority(group: Consortium) -> None:
    with pytest.raises(InputError, match="lies after the end of trial-ca"):
        draft_agreement(validate(plan_tree()), identities(group), group.authority, IN_A_YEAR + dt.timedelta(days=3650))


@pytest.mark.parametrize("days", [3651, 3_000_000, 10**12])
def test_days_have_a_limit(group: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str], days: int) -> None:
    write_request("ada", group.folder / "ada", tmp_path / "r.json")
    for command in (
        ["keys", "sign", str(tmp_path / "r.json"), "--ca", str(group.folder / "ca")],
        ["plan", "sign", "plan.toml", "--ca", str(group.folder / "ca"), "--certs", str(tmp_path)],
    ):
        assert main([*command, "--days", str(days)]) == 2
        assert (error := capsys.readouterr().err).count("\n") == 1
        assert "3650" in error


def test_a_certificate_does_not_outlive_its_authority(group: Consortium, tmp_path: Path) -> None:
    write_request("ada", group.folder / "ada", tmp_path / "r.json")
    init_authority("short", tmp_path / "short", days=10)
    sign_request(tmp_path / "r.json", tmp_path / "short", 9)
    for days in (11, 3650):
        with pytest.raises(InputError, match=f"{days} days are too many: short itself ends on"):
            sign_request(tmp_path / "r.json", tmp_path / "short", days)
    with pytest.raises(InputError, match="days must be from 1 to 3650, got 3000000"):
        sign_request(tmp_path / "r.json", tmp_path / "short", 3_000_000)


def test_without_the_extra_every_command_says_what_to_install() -> None:
    """In a process of its own, where none of its packages can be found."""
    program = """
import sys
for name in ("grpc", "cryptography", "nacl"):
    sys.modules[name] = None
from coterie.cli import main
commands = (["agent", "a.json", "--me", "ada", "--data", sys.argv[0]], ["launch", "--out", "x"],
            ["plan", "sign", "p", "--ca", "x", "--certs", "y"], ["plan", "verify", "a.json", "--ca", "x"],
            ["ledger", "show", "x"], ["ledger", "verify", "x"], ["keys", "init", "ada"],
            ["agent", "a.json", "--me", "ada", "--status"],
            ["agent", "a.json", "--me", "ada", "--data", sys.argv[0], "--preflight"])
for command in commands:
    print(main(command), file=sys.stderr)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    lines = [line for line in found.splitlines() if "Z info: ada: loads" not in line]
    assert len(lines) == 18, found
    for error, code in zip(lines[::2], lines[1::2], strict=True):
        assert code == "2"
        assert error.startswith("error: this needs ")
        assert "pip install 'coterie[deploy]'" in error
