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
from typing import Any, get_args

from coterie.report.files import write_atomically, write_json
from coterie.report.markdown import cell, code, table
from reproduction.base import Entry, all_papers, judged
from reproduction.verdicts import Word

__all__ = ["collect", "explanation", "index_page", "paper_page", "write_pages"]

INTRODUCTION = """\
Every picture on these pages is drawn by this project's code from one command, `python -m reproduction figure NAME`,
next to what holds under correct accounting. *As printed* is the paper's noise with the ε it claims, *true ε* what
that run really costs, *corrected* the same claimed ε with the noise it takes. Curves average 10 seeds or
more, 5 in chapter 4 of Ding's dissertation. A verdict is *holds*, *fails* (with the reason) or *cannot be decided*, by
[one rule](#the-rule-of-the-verdicts). `make papers` makes everything anew, `make papers-quick` a small version in
`runs/papers-quick`.
What a paper got wrong is in the [errata](../errata.md), by algorithm.

Data sets are found through `COTERIE_DATA` ([data](../data.md)); figures on data that may not be redistributed need a
file of your own and say so.

## The rule of the verdicts

Each try of a claim has a margin by which it is met, the margin's standard error over the seeds, and a choice for what
the paper does not state. A try bears the claim if its margin is above 2 standard errors and speaks against it if
below −2. A claim for every setting (a theorem, a guarantee) fails at one try against it and holds if there is a
proof. Any other claim holds if all tries bear it and fails if all speak against it. In between it cannot be decided,
and neither can a claim for which no choice of ours can stand (records that are not here), nor one that may rest on
something the paper does not state and that was tried at one choice only: what a figure leaves open is listed above
its verdicts. "Almost the same" is judged at 10 % and at a factor of 2; a printed number is met within half a unit of
its last digit. (`reproduction/verdicts.py`.)"""
WORDS = get_args(Word)
PICTURE_LIMIT = 150_000  # bytes: what is committed stays small


def collect(out: Path, docs: Path, slugs: list[str]) -> None:
    """Copy the pictures and verdicts of these figures from a run's folder to where the pages look for them.

    All but the seconds that a run took: what is kept beside the pages is the same after every run.
    """
    pictures, verdicts = docs / "img" / "papers", docs / "papers" / "verdicts"
    for folder in (pictures, verdicts):
        folder.mkdir(parents=True, exist_ok=True)
    for slug in slugs:
        shutil.copyfile(out / f"{slug}.png", pictures / f"{slug}.png")
        found = json.loads((out / f"{slug}.json").read_text("utf-8"))
        write_json(verdicts / f"{slug}.json", {k: v for k, v in found.items() if k != "seconds"})
        size = (pictures / f"{slug}.png").stat().st_size
        if size > PICTURE_LIMIT:
            print(f"{slug}.png has {size:,} bytes, more than {PICTURE_LIMIT:,}", file=sys.stderr)


def write_pages(docs: Path) -> list[Path]:
    """Judge what is under docs/papers/verdicts by the rule of today, and write the index and every paper's page."""
    figures = {e.slug: e.figure for _, entries in all_papers().values() for e in entries}
    verdicts = {}
    for path in sorted((docs / "papers" / "verdicts").glob("*.json")):
        stored = json.loads(path.read_text("utf-8"))
        claims = [judged(c, figures[path.stem].left_open) for c in stored["claims"]]
        verdicts[path.stem] = {**stored, "claims": claims}
        if claims != stored["claims"]:
            write_json(path, verdicts[path.stem])
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
        rows: list[tuple[str, ...]] = []
        for e in entries:
            found = verdicts.get(e.slug)
            if found is None:
                rows.append((f"[`{e.slug}`]({slug}.md#{e.slug})", e.figure.title, "not run here", "", "", ""))
                continue
            theirs = [c for c in found["claims"] if c["who"] == "paper"]
            ours = [c for c in found["claims"] if c["who"] == "ours"]
            link = f"[`{e.slug}`]({slug}.md#{e.slug})"
            rows.append((link, e.figure.title, *(_count(theirs, w) for w in WORDS), _count(ours, "holds")))
        header = ("name", "what", "paper's claims that hold", "that fail", "undecided", "ours that hold")
        lines += ["", f"## [{paper.title}]({slug}.md)", "", f"{paper.authors} ({paper.year}).", "", table(header, rows)]
    return "\n".join(lines) + "\n"


def paper_page(slug: str, verdicts: dict[str, Any]) -> str:
    """A paper's page: every figure with its setup, picture, costs, verdict and what differs."""
    paper, entries = all_papers()[slug]
    errata = ", ".join(f"[{code(a)}](../errata.md#{a})" for a in paper.algorithms)
    errata = f" Errata: {errata}." if errata else ""
    lines = [f"# {paper.title}", "", f"{paper.authors} ({paper.year}).{errata} [All papers](index.md).", ""]
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
    theirs = [c["claim"] for c in found["claims"] if c["who"] == "paper"]
    concerned = [o for o in entry.figure.left_open if any(map(o.concerns, theirs))]
    for head, some in (
        ("Not stated", [o for o in concerned if not o.lacking]),
        ("No choice can stand for", [o for o in concerned if o.lacking]),
    ):
        items = [o.what + (f" (no verdict rests on it: {o.harmless})" if o.harmless else "") for o in some]
        lines += [f"*{head}:* {'; '.join(items)}.", ""] if items else []
    rows = [
        (
            "paper" if c["who"] == "paper" else "ours",
            c["claim"] + (f" ({c['version']})" if c["version"] else ""),
            {"holds": "holds", "fails": "**fails**"}.get(c["verdict"], f"*{c['verdict']}*"),
            c["measured"] + explanation(c),
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
    """What is told after the numbers: why a claim fails or cannot be decided, or why it holds in every setting."""
    if claim["verdict"] == "holds":
        return f". Proved: {claim['proved']}" if claim.get("proved") else ""
    if claim["verdict"] != "fails":
        return f". Open: {claim['because']}"
    if not claim["reason"]:
        return ". Not explained"
    return f". Why: {claim['reason']}" + (f" ({claim['section']})" if claim["section"] else "")


def _count(claims: list[dict[str, Any]], word: str) -> str:
    return f"{sum(c['verdict'] == word for c in claims)} of {len(claims)}" if claims else ""


def _words(text: str) -> str:
    """A paragraph without the line breaks of its source."""
    return " ".join(text.split())


def _epsilon(value: float | None, nothing: str) -> str:
    return nothing if value is None else f"{value:.4g}"


if __name__ == "__main__":
    for page in write_pages(Path(sys.argv[1] if len(sys.argv) > 1 else "docs")):
        print(page)
