"""Run one figure: parts, picture, numbers, verdict. And what its data needs."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import coterie
from coterie.data.download import KNOWN, locate
from coterie.errors import InputError
from coterie.report.files import write_atomically, write_json
from reproduction.base import Entry, Result, all_figures
from reproduction.study import Study

__all__ = ["SCHEMA", "MissingData", "check_data", "reproduce", "reproduce_all", "verdict"]

SCHEMA = 2
CSV_HEADER = ("panel", "version", "label", "x", "y", "low", "high", "seeds")


class MissingData(InputError):
    """A figure whose data is not here."""


def check_data(entry: Entry) -> None:
    """MissingData, in one line that says where to put what, unless everything the figure needs can be found."""
    for need in entry.figure.needs:
        if need in KNOWN:
            try:
                locate(need)
            except InputError as error:
                raise MissingData(f"{entry.slug} needs the data set {need!r}: {error}") from None
            continue
        folder = os.environ.get("COTERIE_DATA")
        if not folder or not (Path(folder) / need).is_file():
            where = f"it is not in COTERIE_DATA = {folder}" if folder else "COTERIE_DATA is not set"
            raise MissingData(f"{entry.slug} needs your own file {need!r}: {where}. {entry.figure.supply}".strip())


def reproduce(
    entry: Entry, out: Path, quick: bool = False, fresh: bool = False, report: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Make OUT/SLUG.png, .svg, .csv and .json; returns the verdict, as in the last of these."""
    from reproduction.drawing import save

    check_data(entry)
    study = Study(out / "parts" / entry.paper, quick, fresh, report)  # figures of a paper share parts
    result = entry.figure.make(study)
    if stray := {s.panel for s in result.series} - {p.key for p in entry.figure.panels}:
        raise TypeError(f"{entry.slug} has series for panels that it does not have: {', '.join(sorted(stray))}")
    report("drawing")
    save(entry.figure, result, out, entry.slug)
    write_atomically(out / f"{entry.slug}.csv", lambda p: p.write_text(_as_csv(result), "utf-8"))
    found = verdict(entry, result, study)
    write_json(out / f"{entry.slug}.json", found)
    return found


def reproduce_all(slugs: Sequence[str], out: Path, quick: bool, fresh: bool) -> list[tuple[str, dict[str, Any] | str]]:
    """Several figures one after the other, as one task of an engine: (slug, verdict, or which data are missing)."""
    found: list[tuple[str, dict[str, Any] | str]] = []
    for slug in slugs:
        try:
            found.append((slug, reproduce(all_figures()[slug], out, quick, fresh)))
        except MissingData as error:
            found.append((slug, str(error)))
    return found


def verdict(entry: Entry, result: Result, study: Study) -> dict[str, Any]:
    """What holds and what does not, as plain data (schema 2)."""
    return {
        "schema": SCHEMA,
        "coterie": coterie.__version__,
        "figure": entry.slug,
        "paper": entry.about.title,
        "title": entry.figure.title,
        "quick": study.quick,
        "seeds": max((s.seeds for s in result.series), default=1),
        "seconds": round(study.seconds, 1),
        "claims": [c.as_json(entry.figure.left_open) for c in result.claims],
        "budgets": [
            {
                "label": b.label, "version": b.version, "claimed": b.claimed, "true": b.true, "delta": b.delta,
                "note": b.note,
            }
            for b in result.budgets
        ],
        "tables": [
            {"title": t.title, "header": list(t.header), "rows": [list(r) for r in t.rows]} for t in result.tables
        ],
    }  # fmt: skip


def _as_csv(result: Result) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(CSV_HEADER)
    for s in result.series:
        none = [None] * len(s.x)
        for x, y, low, high in zip(s.x, s.y, s.low or none, s.high or none, strict=True):
            cells = ("" if v is None else f"{v:.8g}" for v in (x, y, low, high))
            writer.writerow([s.panel, s.version, s.label, *cells, s.seeds])
    return text.getvalue()
