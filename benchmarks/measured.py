"""Stored measurements, and the page that is made of them: `python -m benchmarks.measured`.

A benchmark takes its options by `arguments` and ends with `finish`, which prints its rows and, if `--keep` was given,
stores them: one small file in benchmarks/measured/ with the machine, the commit, the load, the command that was run and
every row with its ratio to a peer or limit of the same run, and the spread of that ratio. README.md is made of these
files and of the benchmarks' own first lines, and nothing of it is written by hand; `tests/test_measured.py` holds it to
them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

__all__ = [
    "Row", "arguments", "beside", "command", "commands", "finish", "keep", "page", "paired", "show", "spread", "table",
]  # fmt: skip

HERE = Path(__file__).parent
FOLDER, PAGE = HERE / "measured", HERE / "README.md"
HEAD = """# Benchmarks

<!-- made by `python -m benchmarks.measured` from benchmarks/measured/*.json: nothing here is written by hand -->

Every number is a ratio to something measured in the same run: to a peer that does the same, or to a limit or goal. A
ratio of costs (time, memory, bytes, runs, loss) is theirs over ours, so above 1 ours costs less; other ratios, and
those to what a model said of ours, are ours over what is beside it. One without a range was counted, or measured once.
Each part names the command that measures it anew (`--keep` stores it), the machine, the load when it ended, and the
commit.
"""


@dataclass(frozen=True)
class Row:
    """One thing that was measured, what it was held against in the same run, and their ratio: median, least, most."""

    what: str
    ours: str
    peer: str
    ratio: float
    least: float
    most: float


def paired(
    ours: Callable[[], object], peer: Callable[[], object], repeats: int, clock: Callable[[], float] = time.process_time
) -> tuple[float, float, tuple[float, float, float]]:
    """Median seconds of both, taking turns, and (median, least, most) of peer over ours, turn by turn."""

    def took(work: Callable[[], object]) -> float:
        start = clock()
        work()
        return max(clock() - start, 1e-9)

    both = [(took(ours), took(peer)) for _ in range(repeats)]
    ratios = [b / a for a, b in both]
    return (
        statistics.median(a for a, _ in both), statistics.median(b for _, b in both),
        (statistics.median(ratios), min(ratios), max(ratios)),
    )  # fmt: skip


def spread(ours: Sequence[float], peer: Sequence[float]) -> tuple[float, float, float]:
    """(median, least, most) of peer over ours, turn by turn."""
    ratios = [b / a for a, b in zip(ours, peer, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def beside(
    what: str, ours: Sequence[float], name: str, peer: Sequence[float] | float, say: str = "{:.3g}", cost: bool = True
) -> Row:
    """A row of what was measured turn by turn, by its medians; a cost's ratio is theirs over ours, another's is not."""
    theirs = [peer] * len(ours) if isinstance(peer, int | float) else peer
    ratio = spread(ours, theirs) if cost else spread(theirs, ours)
    return Row(what, say.format(statistics.median(ours)), f"{name} {say.format(statistics.median(theirs))}", *ratio)


def show(rows: Sequence[Row]) -> None:
    """Print rows."""
    for row in rows:
        print(
            f"{row.what}: {row.ours}; {row.peer}; ratio {row.ratio:.4g} ({row.least:.4g} to {row.most:.4g})", flush=True
        )


def _machine() -> str:
    """Processors, interpreter and, where it was used, JAX with its device."""
    mine, all_ = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(), os.cpu_count()
    cores = f"{all_} cores" if mine == all_ else f"{mine} of {all_} cores"
    told = f"{platform.machine()}, {cores}, Python {platform.python_version()}"
    if (jax := sys.modules.get("jax")) is not None:
        kind = jax.devices()[0].device_kind
        told += f", jax {jax.__version__}" + ("" if kind == "cpu" else f" on {kind}")
    return told


def arguments(said: str | None) -> argparse.ArgumentParser:
    """A benchmark's parser, of its docstring, with `--keep`."""
    parser = argparse.ArgumentParser(description=said, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="store what was measured")
    return parser


def command() -> str:
    """The command that is running; a place on this machine is called PATH in it."""
    spec = sys.modules["__main__"].__spec__
    module = spec.name if spec is not None else f"benchmarks.{Path(sys.argv[0]).stem}"
    return " ".join(["python -m", module, *("PATH" if a.startswith("/") else shlex.quote(a) for a in sys.argv[1:])])


def finish(asked: argparse.Namespace, title: str, rows: Sequence[Row], note: str = "", of: str = "") -> None:
    """Print rows, and store them if `--keep` was given; `of` tells files of one benchmark apart."""
    show(rows)
    if asked.keep:
        ran = command()
        keep("_".join(filter(None, (ran.split()[2].removeprefix("benchmarks."), of))), title, rows, ran, note)


def keep(name: str, title: str, rows: Sequence[Row], command: str, note: str = "") -> Path:
    """Store what was measured; returns the file."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True).stdout
    changed = subprocess.run(["git", "status", "--porcelain", "coterie"], cwd=HERE.parent, capture_output=True).stdout
    content = {
        "title": title,
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit.strip() + (" and changes" if changed else ""),
        "machine": _machine(),
        "load": round(os.getloadavg()[0], 1),
        "note": note,
        "rows": [asdict(row) for row in rows],
    }
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def table(path: Path) -> str:
    """A stored measurement as a section of the page."""
    told = json.loads(path.read_text("utf-8"))
    lines = [
        f"## {told['title']}",
        "",
        "| what | ours | beside it | ratio, median (least to most) |",
        "|---|---|---|---|",
    ]
    for row in told["rows"]:
        middle, least, most = (_short(row[key]) for key in ("ratio", "least", "most"))
        range_ = "" if row["least"] == row["most"] else f" ({least} to {most})"
        lines.append(f"| {row['what']} | {row['ours']} | {row['peer']} | {middle}{range_} |")
    facts = f"`{told['command']}`; {told['machine']}, load {told['load']}; commit {told['commit']}, {told['date']}."
    return "\n".join([*lines, "", " ".join(filter(None, (facts, told["note"]))), ""])


def commands() -> list[tuple[str, str]]:
    """(module, what it measures) of every benchmark: of what says in its docstring how it is called."""
    found = []
    for path in sorted(HERE.glob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        if f"python -m benchmarks.{path.stem}" in said and path != Path(__file__):
            first = said.partition("\n")[0]
            found.append((path.stem, re.sub(r"(: | \(|: `make [^`]*`, or )`python -m .*$", "", first).rstrip(".")))
    return found


def page() -> str:
    """The whole page."""
    listed = [f"| `python -m benchmarks.{name}` | {what} |" for name, what in commands()]
    rest = (
        "`make bench` runs those of one core, `make bench-peers` other packages in environments of their own. Older "
        "numbers, and what was learnt from them, are in [older measurements](history.md).\n"
    )
    parts = (table(path) for path in sorted(FOLDER.glob("*.json")))
    return "\n".join([HEAD, "| command | what |\n|---|---|", *listed, "", rest, *parts])


def main() -> None:
    """Write the page, or with `--check` exit with 1 where it is not what the files say."""
    if "--check" in sys.argv[1:]:
        fresh = PAGE.read_text("utf-8") == page()
        sys.exit(0 if fresh else "benchmarks/README.md is stale: python -m benchmarks.measured")
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
