"""`coterie compare`: methods against each other at the same budgets, as a table and three pictures."""

from __future__ import annotations

import csv
import io
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.arguments import numbers
from coterie.commands import LEARN, SetOption, console, look_at
from coterie.errors import InputError

__all__ = ["PANEL", "STUDY", "app"]

PANEL = LEARN
app = typer.Typer()
STUDY = (
    "for study, not a release: scores are computed on the data without noise, and ε is that of one run, not of all "
    "these runs together"
)


def run(
    paths: list[Path], algorithms: list[str], epsilons: list[float], seeds: int | None, out: Path | None,
    changes: list[str], console: Console, engine: str = "local",
) -> None:  # fmt: skip
    """Run what is missing, then show and write everything."""
    from coterie.comparison import compare, methods_of
    from coterie.plan import read_plan, stated_seeds
    from coterie.report import plots
    from coterie.report.result import check_out, write_atomically, write_json

    if not epsilons or min(epsilons) <= 0:
        raise InputError(f"--epsilons needs positive numbers such as 0.1,1,10, got {epsilons}")
    plans = [(p.stem, read_plan(p, changes)) for p in paths] or [("default", read_plan(None, changes))]
    if out is not None:
        check_out(out)
    methods = methods_of(plans, algorithms)
    seeds = seeds or stated_seeds([plan for _, plan in plans], 10)
    tell = lambda line: console.print(f"  {escape(line)}", highlight=False)  # noqa: E731
    cells, references = compare(methods, epsilons, seeds, out, tell, engine)
    console.print(table(cells, references))
    for told in dict.fromkeys(f"{c['method']}: {w}" for c in cells for w in c["warnings"]):
        console.print(f"[yellow]warning:[/] {escape(told)}", highlight=False)
    console.print(STUDY, highlight=False)
    if out is None:
        return
    write_json(out / "comparison.json", {"evaluation": STUDY, "cells": cells, "references": references})
    write_atomically(out / "comparison.csv", lambda p: p.write_text(as_csv(cells), "utf-8"))
    write_atomically(out / "comparison.md", lambda p: p.write_text(as_markdown(cells, references), "utf-8"))
    pictures = {
        "score-vs-epsilon.png": plots.score_against_epsilon,
        "loss-vs-round.png": plots.loss_against_round,
        "score-vs-bytes.png": plots.score_against_bytes,
    }
    if any(c["time_curve"] for c in cells):
        pictures["loss-vs-time.png"] = plots.loss_against_time
    for name, draw in pictures.items():
        write_atomically(out / name, partial(draw, cells, references))
    console.print(
        f"wrote comparison.json, comparison.csv, comparison.md, {', '.join(pictures)} to {out}", highlight=False
    )


def table(cells: list[dict[str, Any]], references: dict[str, dict[str, float]]) -> Table:
    """Methods down, budgets across; the paper's own claim for the last budget beside it."""
    epsilons = sorted({c["epsilon"] for c in cells if c["epsilon"] is not None})
    metric = cells[0]["metric"] if cells else "score"
    shown = Table(header_style="bold", title=f"test {metric}, mean ± std over seeds", title_justify="left")
    shown.add_column("method")
    for e in epsilons:
        shown.add_column(f"ε = {e:g}", justify="right")
    shown.add_column("no privacy", justify="right")
    shown.add_column("paper would print (same noise)", justify="right")
    for label in dict.fromkeys(c["method"] for c in cells):
        mine = {c["epsilon"]: c for c in cells if c["method"] == label}
        text = lambda c: "" if c is None else f"{c['score']['mean']:.4f} ± {c['score']['std']:.4f}"  # noqa: E731
        claims = [f"{mine[e]['paper_claim']:.3g}" for e in epsilons if e in mine and mine[e]["paper_claim"] is not None]
        shown.add_row(label, *(text(mine.get(e)) for e in epsilons), text(mine.get(None)), ", ".join(claims))
    for name, r in references.items():
        shown.add_row(f"({name})", *[""] * len(epsilons), f"{r['test_score']:.4f}", "")
    return shown


def as_markdown(cells: list[dict[str, Any]], references: dict[str, dict[str, float]]) -> str:
    """The same table for a page."""
    epsilons = sorted({c["epsilon"] for c in cells if c["epsilon"] is not None})
    head = ["method", *(f"ε = {e:g}" for e in epsilons), "no privacy", "rounds", "MB sent"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for label in dict.fromkeys(c["method"] for c in cells):
        mine = {c["epsilon"]: c for c in cells if c["method"] == label}
        scores = [
            f"{mine[e]['score']['mean']:.4f} ± {mine[e]['score']['std']:.4f}" if e in mine else ""
            for e in (*epsilons, None)
        ]
        rounds = sorted({c["total_rounds"] for c in mine.values()})
        traffic = sorted(c["bytes"] / 1e6 for c in mine.values())
        span = lambda v, f: f"{v[0]:{f}}" if v[0] == v[-1] else f"{v[0]:{f}}–{v[-1]:{f}}"  # noqa: E731
        lines.append(f"| {label} | {' | '.join(scores)} | {span(rounds, 'd')} | {span(traffic, '.3g')} |")
    for name, r in references.items():
        lines.append(f"| ({name}) | {' | '.join([''] * len(epsilons))} | {r['test_score']:.4f} | | |")
    read = dict.fromkeys(f"{c['method']} is not private: {leak}." for c in cells for leak in c["leaks"])
    return "\n".join([*lines, *([""] if read else []), *read]) + "\n"


def as_csv(cells: list[dict[str, Any]]) -> str:
    """One line per method and budget."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["method", "epsilon", "true_epsilon", "delta", "accountant", "adversary", "private",
                     "paper_claim", "score_mean", "score_std", "loss_mean", "loss_std", "bytes", "rounds"])  # fmt: skip
    for c in cells:
        writer.writerow([c["method"], c["epsilon"], c["true_epsilon"], c["delta"], c["accountant"], c["adversary"],
                         c["private"], c["paper_claim"], c["score"]["mean"], c["score"]["std"], c["loss"]["mean"],
                         c["loss"]["std"],
                         c["bytes"], c["total_rounds"]])  # fmt: skip
    return text.getvalue()


@app.command()
def command(
    plans: Annotated[list[Path] | None, typer.Argument(metavar="[PLAN.toml]...", help="plans to compare")] = None,
    algorithms: Annotated[str, typer.Option(help="comma-separated: run the plan with each of these")] = "",
    epsilons: Annotated[str, typer.Option(help="comma-separated budgets, in place of the plans'")] = "0.1,0.5,1,5,10",
    seeds: Annotated[int | None, typer.Option(min=1, help="repetitions; default: the plans', or 10")] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for table, pictures and finished cells (resumes there)")
    ] = None,
    set_: SetOption = None,
    engine: Annotated[str, typer.Option(help="local, local:N processes, ray, or ray://HOST:PORT")] = "local",
) -> None:
    """Compare methods at the same (ε, δ), adjacency and adversary. Stopped? Run it again: finished cells are kept.

    Example: coterie compare clinics --algorithms pr-admm,dvp,dp-dsgd --epsilons 0.1,1,10 --seeds 10 --out runs/compare
    """
    look_at(plans or [None], set_)
    names = [a.strip() for a in algorithms.split(",") if a.strip()]
    run(plans or [], names, numbers("--epsilons", epsilons), seeds, out, set_ or [], console, engine)
