"""`coterie graph`: a plan's graph in numbers and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from coterie.commands import LEARN, PlanArgument, SetOption, console, look_at

__all__ = ["PANEL", "app"]


PANEL = LEARN
app = typer.Typer()


def show(path: Path | None, out: Path | None, changes: list[str], console: Console) -> None:
    """Describe the graph and how fast its mixing matrix averages."""
    from coterie.experiment import prepare
    from coterie.plan import read_plan
    from coterie.report import plots
    from coterie.report.result import check_out, write_atomically

    plan = read_plan(path, changes)
    if out is not None:
        check_out(out)
    network = prepare(plan).network
    shown = Table(box=None, show_header=False)
    for key, value in network.graph.describe().items():
        shown.add_row(key.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
    spectrum = network.mixing.spectrum()
    shown.add_row("mixing rule", plan.graph.mixing)
    gap = spectrum.gap
    shown.add_row("spectral gap", "not computed (too large)" if gap is None else f"{gap:.4g}")
    if gap:
        shown.add_row("rounds to average to 1 %", f"{4.6 / gap:.0f}")
    console.print(shown)
    if out is not None:
        write_atomically(out / "graph.png", lambda p: plots.network(network, p))
        console.print(f"wrote {out / 'graph.png'}", highlight=False)


@app.command()
def command(
    plan: PlanArgument = None,
    out: Annotated[Path | None, typer.Option(help="write the picture graph.png into this folder")] = None,
    set_: SetOption = None,
) -> None:
    """Describe a plan's graph: degrees, spectrum, how fast it mixes."""
    look_at([plan], set_)

    show(plan, out, set_ or [], console)
