"""A new user's minutes: the journeys of README and the three doors, run from a clean clone, in processor time.

    python release/journeys.py [--write]          --write: the table of docs/minutes.md

Clones what is committed into an empty folder, runs the README's first command, then every command of every door's page,
as a person would type them, and says what each took: processor seconds of it and its children. Stops at the first that
fails; what was measured until then is written, with the doors that were not walked to their end.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOORS = {"I have data": "i-have-data.md", "I do research": "i-do-research.md", "I must approve": "i-must-approve.md"}
PAGE = ROOT / "docs" / "minutes.md"
BLOCK = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)


def commands(page: Path) -> list[str]:
    """Lines of the shell blocks of a page."""
    found = re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [line for block in found for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def examples(page: Path) -> list[str]:
    """Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def spent(command: list[str], clone: Path) -> float:
    """Run a command in the clone; processor seconds of it and all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path = f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "MAKE"))}
    apart = {"XDG_CACHE_HOME": str(clone / ".cache"), "COTERIE_ACCOUNTS": str(clone / ".accounts")}
    done = subprocess.run(command, cwd=clone, env={**kept, **apart, "PATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def walk(clone: Path) -> Iterator[tuple[str, str, float | None]]:
    """(journey, step, processor seconds) of every step; at a journey's end its name alone, without seconds."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    steps = [("README", "make run"), ("README", "make run")]
    for number, (journey, step) in enumerate(steps):
        seconds = spent(["sh", "-c", step], clone)
        print(f"{seconds:7.1f} s  {journey}: {step}", flush=True)
        yield journey, f"`{step}`, {'installing' if not number else 'once installed'}", seconds
    for journey, page in {"README": "../README.md", **DOORS}.items():
        lines = [] if journey == "README" else [(line, ["sh", "-ec", line]) for line in commands(clone / "docs" / page)]
        blocks = examples(clone / "docs" / page)
        lines += [(f"its {len(block.splitlines())} lines of Python", ["python", "-c", block]) for block in blocks]
        for words, command in lines:
            seconds = spent(command, clone)
            print(f"{seconds:7.1f} s  {journey}: {words}", flush=True)
            yield journey, words if words.startswith("its ") else f"`{words.partition('  #')[0].strip()}`", seconds
        yield journey, "", None


def table(found: list[tuple[str, str, float]], ended: set[str]) -> str:
    """The steps, what each journey comes to, and which were not walked to their end."""
    lines = ["| journey | step | processor seconds |", "| --- | --- | --- |"]
    lines += [f"| {journey} | {step} | {seconds:.0f} |" for journey, step, seconds in found]
    for journey in dict.fromkeys(journey for journey, _, _ in found):
        total = sum(seconds for who, _, seconds in found if who == journey)
        whole = "all of it" if journey in ended else "all of these"
        lines.append(f"| **{journey}** | {whole} | **{total:.0f}** ({total / 60:.1f} minutes) |")
    if left := [journey for journey in ("README", *DOORS) if journey not in ended]:
        lines += ["", f"Not measured to the end yet: {', '.join(left)}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    steps, ended = list[tuple[str, str, float]](), set[str]()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for journey, step, seconds in walk(Path(folder) / "coterie"):
                if seconds is None:
                    ended.add(journey)
                else:
                    steps.append((journey, step, seconds))
    finally:
        made = table(steps, ended)
        print(made)
        if "--write" in sys.argv:
            PAGE.write_text(BLOCK.sub(lambda m: m[1] + made + m[2], PAGE.read_text("utf-8")), "utf-8")
