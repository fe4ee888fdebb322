"""`coterie report`: one self-contained page about a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import LEARN, console

__all__ = ["PANEL", "app"]

PANEL = LEARN
app = typer.Typer()


@app.command()
def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="what `coterie run` or `coterie fair` wrote")],
) -> None:
    """Write DIR/report.html: one page about a run that needs no network, for people who will not read a plan.

    Example: coterie report runs/default
    """

    from coterie.report import html
    from coterie.report.result import write_atomically

    page = html.page_of(folder)
    write_atomically(folder / "report.html", lambda p: p.write_text(page, "utf-8"))
    console.print(f"wrote {folder / 'report.html'}", highlight=False, soft_wrap=True)
