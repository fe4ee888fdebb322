"""What deploy/ offers is true: options, paths and exit codes in the unit, the container and the compose file.

Nothing here needs a running systemd or a container engine: units are checked by `systemd-analyze`, commands are run.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main

from coterie.cli import app, main
from coterie.deploy.process import EXIT
from coterie.deploy.trial import free_ports

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "coterie-agent@.service"
FINAL = {EXIT[kind] for kind in ("input", "budget", "rolled back", "ended", "disputed")}  # starting again ends again
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")


def agent_options() -> set[str]:
    """What `coterie agent` takes."""
    command = typer.main.get_command(app).commands["agent"]  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in parameter.opts if option.startswith("--")}


def unit() -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(interpolation=None, delimiters="=")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())
    return {name: dict(parser[name]) for name in parser.sections()}


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert isinstance(content, dict)
    return content


def plan_parties() -> dict[str, str | None]:
    """The parties of deploy/three.toml and their addresses."""
    plan = tomllib.loads((DEPLOY / "three.toml").read_text())
    return {party["name"]: party.get("address") for party in plan["deploy"]["parties"]}


# ---- systemd ---------------------------------------------------------------------------------------------------------


def test_the_unit_restarts_what_can_go_on_and_nothing_else() -> None:
    service = unit()["Service"]
    assert service["Restart"] == "on-failure"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == FINAL
    assert int(service["SuccessExitStatus"]) == EXIT["stopped"]
    assert {EXIT[kind] for kind in ("ledger", "gave up")} | FINAL | {EXIT["done"], EXIT["stopped"]} == set(
        EXIT.values()
    )


def test_the_unit_calls_the_agent_as_it_is() -> None:
    service = unit()["Service"]
    _, command, agreement, *rest = shlex.split(service["ExecStart"])
    assert (command, agreement) == ("agent", "/etc/coterie/%i/agreement.json")
    assert {word for word in rest if word.startswith("--")} <= agent_options()
    home = f"/var/lib/{service['StateDirectory']}/"  # the one place that it may write
    given = dict(zip(rest[::2], rest[1::2], strict=False))
    assert all(given[option].startswith(home) for option in ("--data", "--keys", "--state"))
    assert service["ReadOnlyPaths"] == f"-{given['--data']}"
    shown = re.search(r"OPTIONS=(.*)", UNIT.read_text())
    assert shown is not None
    assert {word for word in shown[1].split() if word.startswith("--")} <= agent_options()


@needs_systemd
def test_the_unit_is_one_for_systemd_and_is_closed(tmp_path: Path) -> None:
    program = tmp_path / "coterie"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / "coterie-agent@harbour.service"
    copy.write_text(UNIT.read_text().replace("/opt/coterie/bin/coterie", str(program)))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True)
    about = [line for line in verified.stderr.splitlines() if copy.name in line]
    assert (verified.returncode, about) == (0, [])
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager"]
    closed = subprocess.run([*command, str(copy)], capture_output=True, text=True)
    assert closed.returncode == 0, closed.stdout[-2000:]  # an exposure of at most 2.0 of 10
    copy.write_text(copy.read_text().replace("ProtectSystem=strict", "ProtectSystem=sometimes"))  # a twin
    wrong = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True)
    assert copy.name in wrong.stderr


# ---- containers ------------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    return [(a, b) for a, _, b in (line.partition(" ") for line in lines if line and not line.startswith("#"))]


def test_the_container_copies_what_is_there() -> None:
    copied = [word for kind, words in instructions() if kind == "COPY" and "--from" not in words
              for word in words.split()[:-1]]  # fmt: skip
    assert all((ROOT / word).exists() for word in copied)
    kept = (ROOT / ".containerignore").read_text().splitlines()
    assert kept == ["*", *(f"!{word}" for word in copied)]  # data and keys beside it do not get into an image
    assert (ROOT / ".dockerignore").read_text().splitlines() == kept
    found = dict(instructions())
    assert json.loads(found["ENTRYPOINT"]) == ["/opt/coterie/bin/coterie"]
    assert found["USER"] != "root"


@pytest.mark.slow
def test_the_container_s_commands_install_an_agent(tmp_path: Path) -> None:
    """Its RUN lines, with the two folders elsewhere; COPY as it says."""
    source, home = tmp_path / "source", tmp_path / "opt"

    def moved(text: str) -> str:
        return text.replace("/opt/coterie", str(home)).replace("/source", str(source))

    for kind, words in instructions():
        if kind == "COPY" and "--from" not in words:
            *files, into = moved(words).split()
            for file in files:
                place = Path(into) / file if into.endswith("/") else Path(into)
                place.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if (ROOT / file).is_dir() else shutil.copy)(ROOT / file, place)
        elif kind == "RUN":
            command = re.sub(r"^python ", f"{sys.executable} ", moved(words))
            subprocess.run(command, shell=True, check=True, capture_output=True)
    entry = json.loads(moved(dict(instructions())["ENTRYPOINT"]))
    alone = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "MPLCONFIGDIR": str(tmp_path)}
    said = subprocess.run([*entry, "agent", "--help"], capture_output=True, text=True, env=alone, cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")


def engine() -> str | None:
    """A container engine that works here."""
    for tool in filter(shutil.which, ("podman", "docker")):
        if subprocess.run([tool, "info"], capture_output=True, check=False).returncode == 0:
            return tool
    return None


@pytest.mark.slow
def test_the_image_builds_and_knows_the_agent() -> None:
    tool = engine()
    if tool is None:
        pytest.skip("no container engine: its commands are run by the test above")
    build = [tool, "build", "-q", "-f", str(DEPLOY / "Containerfile"), "-t", "coterie-test", str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    run = [
        tool,
        "run",
        "--rm",
        "--read-only",
        "--tmpfs",
        "/tmp",
        "--cap-drop",
        "ALL",
        "coterie-test",
        "agent",
        "--help",
    ]
    assert subprocess.run(run, capture_output=True, check=False).returncode == 0


def test_the_compose_file_fits_the_agent_and_its_plan() -> None:
    services, parties = compose()["services"], plan_parties()
    assert set(services) == set(parties)
    for name, service in services.items():
        command, agreement, *rest = service["command"]
        given = dict(zip(rest[::2], rest[1::2], strict=True))
        assert command == "agent"
        assert set(given) <= agent_options()
        assert given["--me"] == name
        inside = service["volumes"][0].rpartition(":")[2]
        assert all(path.startswith(f"{inside}/") for path in
                   (agreement, given["--data"], given["--keys"], given["--state"]))  # fmt: skip
        host, _, port = (parties[name] or "").rpartition(":")
        assert (host, service.get("expose", [])) == ((name, [port]) if host else ("", []))
        assert given.get("--listen") == (f"0.0.0.0:{port}" if host else None)
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["ulimits"]["core"] == 0
        assert service["build"]["dockerfile"] == "deploy/Containerfile"


class Rehearsal:
    """deploy/prepare.sh has been run, and every service's command can be, on this machine's loopback."""

    def __init__(self, folder: Path):
        self.folder, self.bin, text = folder / "parties", folder / "bin", (DEPLOY / "three.toml").read_text()
        self.ports = {old: str(new) for old, new in zip(("7101", "7102"), free_ports(2), strict=True)}
        for name, (old, new) in zip(("harbour", "hill"), self.ports.items(), strict=True):
            text = text.replace(f"{name}:{old}", f"127.0.0.1:{new}")
        plan = folder / "three.toml"
        plan.write_text(text.replace("rounds = 40", "rounds = 3").replace("deadline = 60", "deadline = 20"))
        self.bin.mkdir()
        command = f'#!/bin/sh\nexec {sys.executable} -W ignore -m coterie.cli "$@"\n'
        (self.bin / "coterie").write_text(command)
        (self.bin / "coterie").chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        subprocess.run(["sh", str(DEPLOY / "prepare.sh"), str(self.folder), str(plan)], check=True,
                       capture_output=True, env=self.environment)  # fmt: skip
        rng = np.random.default_rng(0)
        for name in plan_parties():
            rows = [f"{rng.integers(20, 90)},{rng.integers(90, 180)},{rng.integers(18, 40)},{rng.integers(0, 2)},"
                    f"{rng.choice(['no', 'yes'])}" for _ in range(200)]  # fmt: skip
            table = "\n".join(["age,pressure,bmi,smoker,outcome", *rows]) + "\n"
            (self.folder / name / "data.csv").write_text(table)

    def run(self, prefix: dict[str, list[str]] | None = None) -> list[int]:
        """Exit codes of all services."""
        started = []
        for name, service in compose()["services"].items():
            words = [w.replace("/party", str(self.folder / name)) for w in service["command"]]
            words = [re.sub(r"0\.0\.0\.0:(\d+)", lambda m: f"127.0.0.1:{self.ports[m[1]]}", w) for w in words]
            with (self.folder / f"{name}.errors").open("w") as errors:
                command = [*(prefix or {}).get(name, []), str(self.bin / "coterie"), *words]
                started.append(
                    subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=errors)
                )
        try:
            return [process.wait(300) for process in started]
        finally:
            for process in started:
                process.kill()

    def errors(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("*.errors"))


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path)


def test_what_prepares_a_rehearsal_signs_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of deploy/prepare.sh, in this process: the plan that is handed out can be signed."""
    monkeypatch.chdir(tmp_path)
    text = (DEPLOY / "prepare.sh").read_text().replace("$plan", str(DEPLOY / "three.toml"))
    commands = [shlex.split(line) for line in text.splitlines() if line.strip().startswith("coterie ")]
    (tmp_path / "certificates").mkdir()
    for first, *words in commands[:1]:
        assert (first, main(words)) == ("coterie", 0)
    for name in plan_parties():
        for _, *words in commands[1:-1]:
            assert main([word.replace("$name", name) for word in words]) == 0
    assert main(commands[-1][1:]) == 0
    assert (tmp_path / "agreement.json").is_file()


@pytest.mark.slow
def test_the_compose_file_s_commands_run_to_the_end(rehearsal: Rehearsal) -> None:
    """One of the three has no address: it only dials out."""
    assert plan_parties()["lake"] is None
    assert rehearsal.run() == [0, 0, 0], rehearsal.errors()
    for name in plan_parties():
        assert (rehearsal.folder / name / "state" / "model.npz").exists()
