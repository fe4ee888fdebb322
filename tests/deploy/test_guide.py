"""docs/deploy.md, followed word by word by three parties on one machine, one of them early, to the report; then an
amended agreement under which one of them runs from Python."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from coterie.cli import main
from coterie.deploy.trial import free_ports

GUIDE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text("utf-8")
PARTIES = ("harbour", "hill", "river")
OUTCOMES = ("no", "yes")


def blocks(section: str, language: str) -> list[str]:
    """The blocks of a section, as printed."""
    text = GUIDE.partition(f"\n## {section}")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(section: str) -> list[list[str]]:
    """The `coterie` commands of a section."""
    lines = [line for block in blocks(section, "sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("coterie ")]


def for_party(command: list[str], name: str) -> list[str]:
    """The example's party, its file and its ports replaced by this one's."""
    return [part.replace("harbour", name).replace("patients", name) for part in command]


def plan(ports: list[int]) -> str:
    """The page's plan with three of its five parties, on this machine as it says."""
    (text,) = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    head = text.partition("[[deploy.parties]]")[0].replace("[400, 400, 400, 400, 400]", "[400, 400, 400]")
    places = {
        "harbour": f'title = "Klinikum Süd"\naddress = "127.0.0.1:{ports[0]}"',
        "hill": f'address = "127.0.0.1:{ports[1]}"',
        "river": "",
    }
    return head + "".join(f'[[deploy.parties]]\nname = "{name}"\n{place}\n' for name, place in places.items())


def write_table(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = ["age,pressure,bmi,smoker,outcome"]
    for _ in range(500):
        numbers = rng.integers(20, 90), rng.integers(90, 180), rng.integers(18, 40), rng.integers(0, 2)
        rows.append(",".join(map(str, (*numbers, OUTCOMES[int(numbers[0] + rng.normal(0, 15) > 55)]))))
    path.write_text("\n".join(rows) + "\n")


def started(command: list[str], name: str) -> subprocess.Popen[bytes]:
    with Path(f"{name}.err").open("w") as errors:
        here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        words = [sys.executable, "-m", "coterie.cli", *for_party(command, name)]
        return subprocess.Popen(words, stderr=errors, stdout=subprocess.DEVNULL, env=here)


@pytest.mark.slow
def test_a_new_user_comes_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("plan.toml").write_text(plan(free_ports(2)))
    for i, name in enumerate(PARTIES):
        write_table(Path(f"{name}-all.csv"), i)
        for line in blocks("0. Records", "sh")[0].splitlines():
            subprocess.run(line.replace("patients", name), shell=True, check=True)
        assert [len(Path(f"{name}{end}.csv").read_text().splitlines()) for end in ("", "-test")] == [401, 101]
    authority, *keys = commands("2. Keys")
    assert main(authority) == 0
    for name in PARTIES:
        for command in keys:
            if command[1] == "install":  # "sends back the certificate and its own authority/ca.json"
                Path("ca.json").write_bytes(Path("authority/ca.json").read_bytes())
            assert main(for_party(command, name)) == 0, command
    for command in commands("3. An agreement"):
        assert main(command) == 0, command
    (look,) = commands("4. Look before you start")
    for name in PARTIES:
        assert main(for_party(look, name)) == 0
    (run,) = commands("5. Run")
    processes = {}
    for name in PARTIES:
        processes[name] = started(run, name)
        if name == "harbour":  # early, until it says for whom it waits
            deadline = time.monotonic() + 120
            while "waits for hill" not in Path("harbour.err").read_text():
                assert time.monotonic() < deadline
                time.sleep(0.2)
            capsys.readouterr()
            status, show, verify, _ = commands("Watching a run")
            for command in (status, show, verify):
                assert main(command) == 0, command
            assert "waiting for hill (not up yet" in (said := capsys.readouterr().out)
            assert "running, round 0" in said
    try:
        assert [p.wait(180) for p in processes.values()] == [0, 0, 0]
    finally:
        for p in processes.values():
            p.kill()
    for name in PARTIES:
        assert main(for_party(verify, name)) == 0
        stored = [json.loads(line)["event"] for line in Path(f"{name}-state/log.jsonl").read_text().splitlines()]
        assert stored.count("sent") == 40
        assert stored[-1] == "end"
    for name in PARTIES:
        for command in commands("6. The report"):
            assert main(for_party(command, name)) == 0, command
    page = Path("harbour-state/report.html").read_text("utf-8")
    for words in ("Klinikum Süd", "Was it worth it?", "What it does not protect against", "It holds.", "40 of 40"):
        assert words in page, words
    go_on_from_python(capsys)


def go_on_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    """The same three under an amended agreement, one of them by the page's Python."""
    *plans, run = commands("Somebody leaves")
    for command in plans:
        assert main(command) == 0, command
    others = [started(run, name) for name in PARTIES if name != "harbour"]
    (script,) = blocks("From Python", "python")
    capsys.readouterr()
    try:
        mine = script.replace("agreement.json", "next.json").replace("patients", "harbour")
        exec(compile(mine, "deploy.md", "exec"), {})
        assert [p.wait(180) for p in others] == [0, 0]
    finally:
        for p in others:
            p.kill()
    before, after, *_ = capsys.readouterr().out.splitlines()
    assert before.startswith("Spent(epsilon=0.0")
    assert "in_all=Budget(epsilon=0.9" in before or "in_all=Budget(epsilon=1" in before  # what the first run cost
    assert "harbour's model" in after
    assert "ε = 0.5" in after
    page = Path("harbour-state/report.html").read_text("utf-8")
    assert "a record that was in all of them" in page
    assert sorted(p.name for p in Path("for-others").iterdir()) == ["agreement.json", "certificate.json", "model.npz"]
    for name in PARTIES:
        assert main(["verify", f"{name}-state/certificate.json"]) == 0
