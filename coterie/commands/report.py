"""`coterie report`: one self-contained page about a run, simulated or deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import LEARN, console
from coterie.errors import InputError

__all__ = ["PANEL", "app"]

PANEL = LEARN
app = typer.Typer()


@app.command()
def command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="what `coterie run` or `coterie fair` wrote, or a party's --state")
    ],
    data: Annotated[
        Path | None, typer.Option(help="of a party: its own records, as given to its agent; with --test")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="of a party: records that it kept back, to say what the model is worth to it")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="where to write; default DIR/report.html")] = None,
) -> None:
    """Write one page about a run that needs no network, for people who will not read a plan.

    Of a party: what was agreed, what it has spent, how it went, whether its certificate holds, and with --data and
    --test what the model is worth to it. That is computed at home, from its own records: such a page is for it alone.

    Example: coterie report harbour-state --data patients.csv --test test.csv
    """
    from coterie.report import html
    from coterie.report.files import check_file, write_atomically
    from coterie.report.party import is_state, write_party_page

    place = out or folder / "report.html"
    if out is not None:
        check_file(out)
    if is_state(folder):
        write_party_page(folder, place, data, test)
    elif data is not None or test is not None:
        raise InputError(f"--data and --test are for a party's folder, and {folder} holds no ledger.db")
    else:
        page = html.page_of(folder)
        write_atomically(place, lambda p: p.write_text(page, "utf-8"))
    console.print(f"wrote {place}", highlight=False, soft_wrap=True)
