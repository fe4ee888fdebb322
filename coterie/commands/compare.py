"""`coterie compare`: methods against each other at the same budgets, as a table and three pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.arguments import budgets, choose, names
from coterie.commands import LEARN, SetOption, console, look_at, show_whole

if TYPE_CHECKING:
    from coterie.comparison import Cell, PairedMethods

__all__ = ["PANEL", "STUDY", "app"]

PANEL = LEARN
app = typer.Typer()
FORMS = ("svg", "pdf")
PAIRED = (
    "The best method of each ε against the others: mean difference of the same seeds, the 95 % interval of this one, "
    "and p of the paired t-test, corrected for their number (Holm):"
)
STUDY = (
    "for study, not a release: scores are computed on the data without noise, and ε is that of one run, not of all "
    "these runs together"
)


def run(
    paths: list[Path], algorithms: list[str], epsilons: list[float], seeds: int | None, out: Path | None,
    changes: list[str], console: Console, engine: str = "local", forms: Sequence[str] = (),
) -> None:  # fmt: skip
    """Run what is missing, then show and write everything."""
    from coterie.comparison import compare, methods_of, paired
    from coterie.plan import read_plan, stated_seeds
    from coterie.report import plots
    from coterie.report.files import check_out, write_atomically, write_json

    plans = [(p.stem, read_plan(p, changes)) for p in paths] or [("default", read_plan(None, changes))]
    if out is not None:
        check_out(out)
    methods = methods_of(plans, algorithms)
    seeds = seeds or stated_seeds([plan for _, plan in plans], 10)
    tell = lambda line: console.print(f"  {escape(line)}", highlight=False)  # noqa: E731
    cells, references = compare(methods, epsilons, seeds, out, tell, engine)
    show_whole(table(cells, references), console)
    compared = paired(cells)
    for line in [PAIRED, *told_pairs(compared)] if compared else []:
        console.print(line, highlight=False)
    for told in dict.fromkeys(f"{c['method']}: {w}" for c in cells for w in c["warnings"]):
        console.print(f"[yellow]warning:[/] {escape(told)}", highlight=False)
    console.print(STUDY, highlight=False)
    if out is None:
        return
    content = {"evaluation": STUDY, "cells": cells, "references": references, "paired": compared}
    write_json(out / "comparison.json", content)
    write_atomically(out / "comparison.csv", lambda p: p.write_text(as_csv(cells), "utf-8"))
    write_atomically(out / "comparison.md", lambda p: p.write_text(as_markdown(cells, references, compared), "utf-8"))
    drawn = {
        "score-vs-epsilon": plots.score_against_epsilon,
        "loss-vs-round": plots.loss_against_round,
        "score-vs-bytes": plots.score_against_bytes,
    }
    if any(c["time_curve"] for c in cells):
        drawn["loss-vs-time"] = plots.loss_against_time
    pictures = {f"{name}.{form}": draw for name, draw in drawn.items() for form in ("png", *forms)}
    for name in drawn:  # of an earlier run, which may have drawn for print too
        for form in FORMS:
            (out / f"{name}.{form}").unlink(missing_ok=True)
    for name, draw in pictures.items():
        write_atomically(out / name, partial(draw, cells, references))
    console.print(
        f"wrote comparison.json, comparison.csv, comparison.md, {', '.join(pictures)} to {out}", highlight=False
    )


def table(cells: list[Cell], references: dict[str, dict[str, float]]) -> Table:
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


def told_pairs(compared: list[PairedMethods]) -> list[str]:
    """What the paired test says, a line for each budget and two methods; ∞ stands for no privacy."""
    return [
        f"ε = {'∞' if p['epsilon'] is None else format(p['epsilon'], 'g')}: {p['one']} − {p['other']} = "
        f"{p['difference']:+.4f} ({p['low']:+.4f} to {p['high']:+.4f}), p = {p['p']:.2g}"
        + ("" if p["clear"] else ": cannot tell")
        for p in compared
    ]


def as_markdown(cells: list[Cell], references: dict[str, dict[str, float]], compared: list[PairedMethods]) -> str:
    """The same table for a page, and the paired test."""
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
    lines += ["", *read] if read else []
    if compared:
        lines += ["", PAIRED, "", *(f"- {line}" for line in told_pairs(compared))]
    return "\n".join(lines) + "\n"


def as_csv(cells: list[Cell]) -> str:
    """One line for each method, budget and seed."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["method", "epsilon", "seed", "score", "loss", "true_epsilon", "delta", "accountant", "adversary",
                     "private", "paper_claim", "bytes", "rounds"])  # fmt: skip
    for c in cells:
        for k, (score, loss) in enumerate(zip(c["score"]["per_seed"], c["loss"]["per_seed"], strict=True)):
            writer.writerow([c["method"], c["epsilon"], k, score, loss, c["true_epsilon"], c["delta"], c["accountant"],
                             c["adversary"], c["private"], c["paper_claim"], c["bytes"],
                             c["total_rounds"]])  # fmt: skip
    return text.getvalue()


@app.command()
def command(
    plans: Annotated[list[Path] | None, typer.Argument(metavar="[PLAN.toml]...", help="plans to compare")] = None,
    algorithms: Annotated[str | None, typer.Option(help="comma-separated: run the plan with each of these")] = None,
    epsilons: Annotated[str, typer.Option(help="comma-separated budgets, in place of the plans'")] = "0.1,0.5,1,5,10",
    seeds: Annotated[int | None, typer.Option(min=1, max=10**4, help="repetitions; default: the plans', or 10")] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for table, pictures and finished cells (resumes there)")
    ] = None,
    set_: SetOption = None,
    pictures: Annotated[str | None, typer.Option(help="also draw for print: svg, pdf, or svg,pdf")] = None,
    engine: Annotated[
        str, typer.Option(help="local (a process per core or two), local:N, ray, or ray://HOST:PORT")
    ] = "local",
) -> None:
    """Compare methods at the same (ε, δ), adjacency and adversary. Stopped? Run it again: finished cells are kept.

    Example: coterie compare clinics --algorithms pr-admm,dvp,dp-dsgd --epsilons 0.1,1,10 --seeds 10 --out runs/compare
    """
    look_at(plans or [None], set_)
    chosen = [] if algorithms is None else names("--algorithms", algorithms)
    forms = [] if pictures is None else names("--pictures", pictures)
    for form in forms:
        choose("--pictures", form, FORMS)
    run(plans or [], chosen, budgets("--epsilons", epsilons), seeds, out, set_ or [], console, engine, forms)
