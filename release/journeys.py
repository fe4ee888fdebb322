"""A new user's minutes: the journeys of README and the three doors, run from a clean clone, in processor time.

    python release/journeys.py [--door NAME]... [--write]

Clones what is committed into an empty folder, builds its environment, then runs what each door's page shows, commands
and Python, in the page's order, as a person would type it, and says what each took: processor seconds of it and its
children. `--door` (readme, data, research, approve; may be repeated) walks only these. With `--write` a door that was
walked to its end goes into the table of docs/minutes.md at once, beside what stands there of the others. Stops at the
first step that fails.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMES = {"readme": "README", "data": "I have data", "research": "I do research", "approve": "I must approve"}
PAGES = {name: f"docs/i-{words[2:].lower().replace(' ', '-')}.md" for name, words in NAMES.items() if name != "readme"}
MINUTES = ROOT / "docs" / "minutes.md"
BLOCK = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)
ROW = re.compile(r"^\| (?!\*\*|journey|---)(.*?) \| (.*) \| ([\d.]+) \|$", re.MULTILINE)
SHOWN = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)

Step = tuple[str, float]  # in words, and its processor seconds


def shown(page: Path) -> list[tuple[str, list[str]]]:
    """(words, command) of all that a page shows, in its order."""
    found = list[tuple[str, list[str]]]()
    for kind, block in SHOWN.findall(page.read_text("utf-8")):
        if kind == "python":
            found.append((f"its {len(block.splitlines())} lines of Python", ["python", "-c", block]))
        else:
            lines = [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]
            found += [(f"`{line.partition('  #')[0].strip()}`", ["sh", "-ec", line]) for line in lines]
    return found


def steps_of(door: str, clone: Path) -> list[tuple[str, list[str]]]:
    """What somebody types who enters by this door, once the environment is there."""
    if door != "readme":
        return shown(clone / PAGES[door])
    again = ("`make run`, once installed", ["make", "run"])
    return [again, *(step for step in shown(clone / "README.md") if step[0].startswith("its "))]


def spent(command: list[str], clone: Path) -> float:
    """Run a command in the clone; processor seconds of it and all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path = f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "MAKE", "XLA", "COTERIE"))
    }
    apart = {"XDG_CACHE_HOME": str(clone / ".cache"), "COTERIE_ACCOUNTS": str(clone / ".accounts")}
    done = subprocess.run(command, cwd=clone, env={**kept, **apart, "PATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def walk(door: str, clone: Path) -> list[Step]:
    """Every step of a door and what it took."""
    steps = list[Step]()
    for words, command in steps_of(door, clone):
        steps.append((words, spent(command, clone)))
        print(f"{steps[-1][1]:7.1f} s  {NAMES[door]}: {words}", flush=True)
    return steps


def table(measured: dict[str, list[Step]]) -> str:
    """The steps, what each journey comes to, and which were not measured."""
    lines = ["| journey | step | processor seconds |", "| --- | --- | --- |"]
    there = [name for name in NAMES.values() if name in measured]
    lines += [f"| {name} | {words} | {seconds:.0f} |" for name in there for words, seconds in measured[name]]
    for name in there:
        total = sum(round(seconds) for _, seconds in measured[name])  # of what is shown
        lines.append(f"| **{name}** | all of it | **{total}** ({total / 60:.1f} minutes) |")
    if left := [name for name in NAMES.values() if name not in measured]:
        lines += ["", f"Not measured yet: {', '.join(left)}."]
    return "\n".join(lines) + "\n"


def keep(door: str, steps: list[Step]) -> None:
    """Put a door's steps into the page, beside what it holds of the others."""
    page = MINUTES.read_text("utf-8")
    measured = dict[str, list[Step]]()
    for name, words, seconds in ROW.findall(page):
        measured.setdefault(name, []).append((words, float(seconds)))
    made = table({**measured, NAMES[door]: steps})
    MINUTES.write_text(BLOCK.sub(lambda m: m[1] + made + m[2], page), "utf-8")


def main() -> None:
    """Clone, install, walk."""
    parser = argparse.ArgumentParser(description="what a new user's first steps cost, in processor seconds")
    parser.add_argument("--door", action="append", choices=list(NAMES), help="walk only this one; may be repeated")
    parser.add_argument("--write", action="store_true", help="into docs/minutes.md")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "coterie"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        installing = ("`make run`, installing", spent(["make", "run"], clone))
        print(f"{installing[1]:7.1f} s  {installing[0]}", flush=True)
        for door in asked.door or NAMES:
            steps = [installing] * (door == "readme") + walk(door, clone)
            print(table({NAMES[door]: steps}), flush=True)
            if asked.write:
                keep(door, steps)


if __name__ == "__main__":
    main()
