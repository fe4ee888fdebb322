"""`coterie fair`: accuracy, fairness and privacy of the fair classifiers, as tables and pictures."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.commands import LEARN, SetOption, console

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.fair.study import FairCell, Metric, SeedSpread

__all__ = ["PANEL", "app", "as_csv", "draw", "tables"]

PANEL = LEARN
app = typer.Typer()


def run(path: Path | None, out: Path | None, seeds: int | None, changes: list[str], console: Console) -> None:
    """Run the study, then show and write everything."""
    from coterie.fair.study import prepare
    from coterie.fair.study import run as run_study
    from coterie.fair.study_plan import read_fair_plan
    from coterie.report.files import check_out, write_atomically, write_json

    plan = read_fair_plan(path, changes + ([f"seeds={seeds}"] if seeds else []))
    if out is not None:
        check_out(out)
    study = prepare(plan)
    for name, made in study.codings.items():
        console.print(f"coding {name}: {made.x.shape[0]} records, {made.x.shape[1]} features", highlight=False)
    for label in dict.fromkeys(r.name for r in plan.runs if r.as_printed):
        console.print(f"[yellow]warning:[/] {escape(label)} runs as printed: what it spends is proved here, not there")
    cells = run_study(study, lambda line: console.print(f"  {escape(line)}", highlight=False))
    for table in tables(cells):
        console.print(table)
    console.print("metrics are of held-out records, for evaluation only: they are not part of any release")
    if out is None:
        return
    write_json(out / "fair.json", {"plan": json.loads(plan.model_dump_json(exclude_none=True)), "cells": cells})
    write_atomically(out / "fair.csv", lambda p: p.write_text(as_csv(cells), "utf-8"))
    written = ["fair.json", "fair.csv"]
    for panel in dict.fromkeys(c["panel"] for c in cells):
        name = "".join(ch if ch.isalnum() else "-" for ch in panel.lower()).strip("-") + ".png"
        mine = [c for c in cells if c["panel"] == panel]
        write_atomically(out / name, partial(draw, mine, panel))
        written.append(name)
    console.print(f"wrote {', '.join(written)} to {out}", highlight=False)


def _axis(cells: list[FairCell]) -> Literal["wanted_delta", "epsilon"]:
    """What a panel varies: δ where it lists several, else ε."""
    return "wanted_delta" if len({c["wanted_delta"] for c in cells}) > 1 else "epsilon"


def tables(cells: list[FairCell]) -> list[Table]:
    """One table for each panel: runs down, budgets across, accuracy above risk difference."""
    out = []
    for panel in dict.fromkeys(c["panel"] for c in cells):
        mine = [c for c in cells if c["panel"] == panel]
        axis = _axis(mine)
        known = {point for c in mine if c["epsilon"] is not None and (point := c[axis]) is not None}
        points = sorted(known, reverse=axis != "epsilon")
        title = f"{panel}: test accuracy / risk difference, mean ± std over seeds"
        shown = Table(header_style="bold", title=title, title_justify="left", show_lines=True)
        shown.add_column("run")
        for point in points:
            shown.add_column(f"{'ε' if axis == 'epsilon' else 'δ'} = {point:g}", justify="right")
        shown.add_column("no privacy", justify="right")
        for label in dict.fromkeys(c["label"] for c in mine):
            row = [c for c in mine if c["label"] == label]
            at = {c[axis]: c for c in row if c["epsilon"] is not None}
            free = next((c for c in row if c["epsilon"] is None), None)
            shown.add_row(escape(label), *(_text(at.get(p)) for p in points), _text(free))
        out.append(shown)
    return out


def _text(cell: FairCell | None) -> str:
    if cell is None:
        return ""
    lines = [_pm(cell["accuracy"]), _pm(cell["risk_difference"])]
    if cell["printed"]:
        lines.append(f"paper: {cell['printed'][0]:.3f} ± {cell['printed'][1]:.3f}")
    if cell["claimed_epsilon"] is not None:
        lines.append(f"spends ε {cell['spent_epsilon']:.3g}")
    return "\n".join(lines)


def _pm(value: SeedSpread) -> str:
    return "undefined" if value["mean"] is None else f"{value['mean']:.4f} ± {value['std']:.4f}"


def as_csv(cells: list[FairCell]) -> str:
    """One line per cell."""
    from coterie.fair.study import METRICS

    text = io.StringIO()
    writer = csv.writer(text)
    plain = ["panel", "label", "method", "coding", "as_printed", "attribute", "ratio", "penalty", "over", "epsilon",
             "delta", "spent_epsilon", "claimed_epsilon", "attribute_epsilon"]  # fmt: skip
    writer.writerow([*plain, *(f"{m}_{s}" for m in METRICS for s in ("mean", "std")), "paper_risk_difference"])
    for c in cells:
        values = [value for m in METRICS for value in (c[m]["mean"], c[m]["std"])]
        stated: Mapping[str, object] = c
        writer.writerow([*(stated[k] for k in plain), *values, c["printed"][0] if c["printed"] else None])
    return text.getvalue()


def draw(cells: list[FairCell], panel: str, path: Path) -> None:
    """Accuracy and risk difference of one panel against its budget, and against each other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    axis = _axis(cells)
    colours = plt.get_cmap("tab20").colors  # type: ignore[attr-defined]
    for number, label in enumerate(dict.fromkeys(c["label"] for c in cells)):
        mine = [c for c in cells if c["label"] == label]
        colour = colours[(2 * number) % 20 + number // 10 % 2]
        private = sorted((c for c in mine if c["epsilon"] is not None), key=lambda c: c[axis] or 0.0)
        dash = "--" if any(c["as_printed"] for c in mine) else "-"
        metrics: tuple[Metric, ...] = ("accuracy", "risk_difference")
        for place, metric in zip(axes, metrics, strict=False):
            good = [c for c in private if c[metric]["mean"] is not None]
            if good:
                place.errorbar(
                    [c[axis] for c in good], [c[metric]["mean"] for c in good], [c[metric]["std"] for c in good],
                    color=colour, linestyle=dash, marker="o", ms=4, capsize=2, label=label,
                )  # fmt: skip
            for c in mine:
                if c["epsilon"] is None and c[metric]["mean"] is not None:
                    place.axhline(c[metric]["mean"], color=colour, linestyle=":", label=f"{label} (no privacy)")
        good = [c for c in mine if c["risk_difference"]["mean"] is not None]
        axes[2].plot(
            [c["risk_difference"]["mean"] for c in good], [c["accuracy"]["mean"] for c in good],
            color=colour, linestyle=dash, marker="o", ms=4,
        )  # fmt: skip
        paper = [(c[axis], c["printed"][0]) for c in private if c["printed"]]
        if paper:
            axes[1].plot(*zip(*paper, strict=True), "x", color=colour)
    crosses = " (×: as the paper prints)" if any(c["printed"] for c in cells) else ""
    for place, words in zip(axes, ("test accuracy", f"risk difference{crosses}"), strict=False):
        place.set_xscale("log")
        place.set_xlabel("ε" if axis == "epsilon" else "δ")
        place.set_ylabel(words)
    axes[2].set_xlabel("risk difference")
    axes[2].set_ylabel("test accuracy")
    for place in axes:
        place.spines[["top", "right"]].set_visible(False)
        place.grid(alpha=0.25, linewidth=0.6)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside right center")
    figure.suptitle(panel)
    figure.savefig(path, dpi=130, format="png")
    plt.close(figure)


@app.command()
def command(
    plan: Annotated[Path | None, typer.Argument(metavar="[PLAN.toml]", help="default: Adult, sex protected")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for fair.json, fair.csv and pictures")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="independent repetitions")] = None,
    set_: SetOption = None,
) -> None:
    """Private and fair classification: accuracy, fairness and ε of every method, beside what was printed.

    Example: coterie fair --seeds 10 --out runs/fair
    """
    run(plan, out, seeds, set_ or [], console)
