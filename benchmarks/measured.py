"""Stored measurements, and the page that is made of them: `python -m benchmarks.measured` writes its part of README.md.

A benchmark calls `keep`: one small file in benchmarks/measured/ with the machine, the commit, the load, the command and
every row with its ratio to a peer or limit of the same run, and the spread of that ratio. Nothing in the part of the
page between the two marks is written by hand; `tests/test_measured.py` holds it to the files.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["Row", "keep", "page", "paired", "show", "spread", "table"]

HERE = Path(__file__).parent
FOLDER, PAGE = HERE / "measured", HERE / "README.md"
BEGIN, END = "<!-- measured: made by python -m benchmarks.measured -->", "<!-- end of measured -->"


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


def show(rows: Sequence[Row]) -> None:
    """Print rows."""
    for row in rows:
        print(
            f"{row.what}: {row.ours}; {row.peer}; ratio {row.ratio:.4g} ({row.least:.4g} to {row.most:.4g})", flush=True
        )


def _machine() -> str:
    """Processors, interpreter and, where it was used, JAX with its device."""
    told = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    if (jax := sys.modules.get("jax")) is not None:
        kind = jax.devices()[0].device_kind
        told += f", jax {jax.__version__}" + ("" if kind == "cpu" else f" on {kind}")
    return told


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


def table(path: Path) -> str:
    """A stored measurement as a section of the page."""
    told = json.loads(path.read_text("utf-8"))
    lines = [
        f"### {told['title']}",
        "",
        "| what | ours | beside it | ratio, median (least to most) |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {r['what']} | {r['ours']} | {r['peer']} | {r['ratio']:.3g} ({r['least']:.3g} to {r['most']:.3g}) |"
        for r in told["rows"]
    ]
    facts = f"`{told['command']}`; {told['machine']}, load {told['load']}; commit {told['commit']}, {told['date']}."
    return "\n".join([*lines, "", " ".join(filter(None, (facts, told["note"]))), ""])


def page(text: str) -> str:
    """The page with its measured part made anew."""
    body = "\n".join(table(path) for path in sorted(FOLDER.glob("*.json")))
    if not re.search(f"{BEGIN}.*{END}", text, re.DOTALL):
        raise SystemExit(f"README.md has no part between {BEGIN} and {END}")
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{body}\n{END}", text, flags=re.DOTALL)


def main() -> None:
    """Write the page, or with `--check` exit with 1 where it is not what the files say."""
    text = PAGE.read_text("utf-8")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if page(text) == text else "benchmarks/README.md is stale: python -m benchmarks.measured")
    PAGE.write_text(page(text), "utf-8")


if __name__ == "__main__":
    main()
