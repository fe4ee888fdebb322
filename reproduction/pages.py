"""docs/papers: one page per paper from the verdicts of full runs, and an index.

Pictures and verdicts that a run left are copied beside the pages first, so the pages can be made again, and checked,
from the checkout alone: `python -m reproduction.pages docs`.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from coterie.report.markdown import cell, code, table
from coterie.report.result import write_atomically
from reproduction.base import Entry, all_papers

__all__ = ["collect", "explanation", "index_page", "paper_page", "write_pages"]

INTRODUCTION = """\
Every picture on these pages is drawn by this project's code from one command, `python -m reproduction figure NAME`,
next to what holds under correct accounting. *As printed* is the paper's noise with the ε it claims, *true ε* what
that run really costs, *corrected* the same claimed ε with the noise it takes. Curves average 10 seeds or more. A
claim that our data do not bear out is listed as such, with the reason. `make papers` makes everything anew, `make
papers-quick` a small version in `runs/papers-quick`.
What a paper got wrong is in the [errata](../errata.md), by algorithm.

Data sets are found through `COTERIE_DATA` ([data](../data.md)); figures on data that may not be redistributed need a
file of your own and say so."""
PICTURE_LIMIT = 150_000  # bytes: what is committed stays small


def collect(out: Path, docs: Path, slugs: list[str]) -> None:
    """Copy the pictures and verdicts of these figures from a run's folder to where the pages look for them."""
    for slug in slugs:
        for name, folder in ((f"{slug}.png", docs / "img" / "papers"), (f"{slug}.json", docs / "papers" / "verdicts")):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(out / name, folder / name)
        size = (docs / "img" / "papers" / f"{slug}.png").stat().st_size
        if size > PICTURE_LIMIT:
            print(f"{slug}.png has {size:,} bytes, more than {PICTURE_LIMIT:,}", file=sys.stderr)


def write_pages(docs: Path) -> list[Path]:
    """Write the index and every paper's page from the verdicts under docs/papers/verdicts."""
    verdicts = {p.stem: json.loads(p.read_text("utf-8")) for p in sorted((docs / "papers" / "verdicts").glob("*.json"))}
    texts = {"index": index_page(verdicts)} | {slug: paper_page(slug, verdicts) for slug in all_papers()}
    written = []
    for name, text in texts.items():
        path = docs / "papers" / f"{name}.md"
        write_atomically(path, partial(_write, text))
        written.append(path)
    return written


def _write(text: str, path: Path) -> None:
    path.write_text(text, "utf-8")


def index_page(verdicts: dict[str, Any]) -> str:
    """Every figure of every paper in one line."""
    lines = [
        "# Figures of the papers, as printed and as corrected",
        "",
        INTRODUCTION,
    ]
    for slug, (paper, entries) in all_papers().items():
        rows = []
        for e in entries:
            found = verdicts.get(e.slug)
            if found is None:
                rows.append((f"[`{e.slug}`]({slug}.md#{e.slug})", e.figure.title, "not run here", ""))
                continue
            theirs = [c for c in found["claims"] if c["who"] == "paper"]
            ours = [c for c in found["claims"] if c["who"] == "ours"]
            count = lambda claims: f"{sum(c['holds'] for c in claims)} of {len(claims)}" if claims else ""  # noqa: E731
            link = f"[`{e.slug}`]({slug}.md#{e.slug})"
            rows.append((link, e.figure.title, count(theirs), count(ours)))
        header = ("name", "what", "paper's claims that hold", "ours")
        lines += ["", f"## [{paper.title}]({slug}.md)", "", f"{paper.authors} ({paper.year}).", "", table(header, rows)]
    return "\n".join(lines) + "\n"


def paper_page(slug: str, verdicts: dict[str, Any]) -> str:
    """A paper's page: every figure with its setup, picture, costs, verdict and what differs."""
    paper, entries = all_papers()[slug]
    errata = ", ".join(f"[{code(a)}](../errata.md#{a})" for a in paper.algorithms)
    lines = [f"# {paper.title}", "", f"{paper.authors} ({paper.year}). Errata: {errata}. [All papers](index.md).", ""]
    lines += [_words(paper.summary)]
    for e in entries:
        lines += ["", f"## {e.slug}", "", f"**{e.figure.title}.** {_words(e.figure.setup)}", ""]
        lines += [code(f"python -m reproduction figure {e.slug}"), ""]
        lines += _found(e, verdicts.get(e.slug))
        lines += ["", f"*What differs and why.* {_words(e.figure.differs)}"]
    return "\n".join(lines) + "\n"


def _found(entry: Entry, found: dict[str, Any] | None) -> list[str]:
    if found is None:
        need = " and ".join(code(n) for n in entry.figure.needs) or "a run"
        return [f"Not run for this page: it needs {need}. {entry.figure.supply}".strip()]
    lines = [f"![{entry.figure.title}](../img/papers/{entry.slug}.png)", ""]
    if found["quick"]:
        lines += ["(A quick run with few seeds.)", ""]
    if found["budgets"]:
        costs = [
            (b["label"], b["version"], _epsilon(b["claimed"], "none"), _epsilon(b["true"], "∞: no guarantee"),
             f"{b['delta']:g}", b["note"])
            for b in found["budgets"]
        ]  # fmt: skip
        lines += [table(("run", "version", "claimed ε", "true ε", "at δ", "how"), costs), ""]
    for t in found["tables"]:
        lines += [f"{t['title']}:", "", table(t["header"], t["rows"]), ""]
    rows = [
        (
            "paper" if c["who"] == "paper" else "ours",
            c["claim"] + (f" ({c['version']})" if c["version"] else ""),
            "holds" if c["holds"] else "**does not hold**",
            c["measured"] + ("" if c["holds"] else f". {explanation(c)}"),
        )
        for c in found["claims"]
    ]
    return [*lines, _claims(rows)]


def _claims(rows: list[tuple[str, str, str, str]]) -> str:
    """The verdict table; its third column is our own markup."""
    lines = ["| who | claim | verdict | measured |", "| --- | --- | --- | --- |"]
    lines += [f"| {who} | {cell(text)} | {holds} | {cell(measured)} |" for who, text, holds, measured in rows]
    return "\n".join(lines)


def explanation(claim: dict[str, Any]) -> str:
    """Why a claim does not hold, and where that is derived."""
    if not claim["reason"]:
        return "Not explained"
    return f"Why: {claim['reason']}" + (f" ({claim['section']})" if claim["section"] else "")


def _words(text: str) -> str:
    """A paragraph without the line breaks of its source."""
    return " ".join(text.split())


def _epsilon(value: float | None, nothing: str) -> str:
    return nothing if value is None else f"{value:.4g}"


if __name__ == "__main__":
    for page in write_pages(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
        print(page)
