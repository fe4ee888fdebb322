"""`coterie graph`: a plan's graph in numbers and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from coterie.commands import LEARN, PlanArgument, SetOption, console

__all__ = ["PANEL", "app"]

PANEL = LEARN
app = typer.Typer()


@app.command()
def command(
    plan: PlanArgument = None,
    out: Annotated[Path | None, typer.Option(help="write the picture graph.png into this folder")] = None,
    set_: SetOption = None,
) -> None:
    """Describe a plan's graph: degrees, spectrum, how fast it mixes."""
    from coterie.plan import read_plan

    asked = read_plan(plan, set_)  # a mistake in it is told before the rest is loaded
    from coterie.experiment import prepare
    from coterie.report import plots
    from coterie.report.files import check_out, write_atomically

    if out is not None:
        check_out(out)
    network = prepare(asked).network
    shown = Table(box=None, show_header=False)
    for key, value in network.transport.describe().items():
        shown.add_row(key.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
    if asked.exchange.sums is None:
        gap = network.mixing.spectrum().gap
        shown.add_row("mixing rule", asked.graph.mixing)
        shown.add_row("spectral gap", "not computed (too large)" if gap is None else f"{gap:.4g}")
        if gap:
            shown.add_row("rounds to average to 1 %", f"{4.6 / gap:.0f}")
    else:
        shown.add_row("mixing", "none: secret sums are over everybody, this graph carries their words")
    console.print(shown)
    if out is not None:
        write_atomically(out / "graph.png", lambda p: plots.network(network, p))
        console.print(f"wrote {out / 'graph.png'}", highlight=False)
