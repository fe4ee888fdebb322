"""`coterie agent`: its options. The work is in `coterie.commands._party`, which is imported when it is needed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import coterie
from coterie.commands import DEPLOY
from coterie.errors import InputError
from coterie.lazily import loaded_for_good

__all__ = ["PANEL", "app"]

PANEL = DEPLOY
app = typer.Typer()


@app.command()
def command(
    agreement: Annotated[Path, typer.Argument(metavar="AGREEMENT", help="agreement.json, signed by the authority")],
    me: Annotated[str, typer.Option(help="this party's name")],
    data: Annotated[Path | None, typer.Option(help="this party's records: CSV, Parquet or npz; they stay here")] = None,
    state: Annotated[Path | None, typer.Option(help="folder for ledger, log, status and model")] = None,
    keys: Annotated[
        Path | None, typer.Option(help="this party's key folder; default: where `keys init` put it")
    ] = None,
    account: Annotated[
        Path | None, typer.Option(help="the data set's account: the agreement's whole charge is drawn from it first")
    ] = None,
    listen: Annotated[str | None, typer.Option(help="host:port to bind, if not the agreed address")] = None,
    behind: Annotated[Path | None, typer.Option(help="folder of a `coterie host` that listens for this one")] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="PORT", help="serve a live page and Prometheus text on this loopback port")
    ] = None,
    metrics_anywhere: Annotated[
        bool, typer.Option("--metrics-anywhere", help="allow --metrics ADDRESS:PORT that others can reach")
    ] = False,
    log_level: Annotated[
        str, typer.Option(help="least that is shown on standard error: debug, info, warning or error")
    ] = "info",
    preflight: Annotated[
        bool, typer.Option("--preflight", help="check everything first, report all problems, send and charge nothing")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="show how the agent in this folder is doing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="with --status or --preflight: machine-readable")] = False,
) -> None:
    """Run one party between organisations: its data stays, every message is charged and stored before it leaves.

    Started again after any stop it goes on where it was, and sends no second version of anything.

    Exit codes: 0 done, 1 problems (preflight), 2 input, 3 budget, 4 ledger, 5 rolled back, 6 gave up,
    7 agreement ended, 8 disputed sum, 130 stopped.

    Example: coterie agent agreement.json --me harbour --data patients.csv --state ~/coterie
    """
    folder = state or Path(f"{me}-state")
    console = Console(soft_wrap=True)
    if status:
        from coterie.commands import _party

        raise typer.Exit(_party.status(folder, as_json, console))
    if data is None:
        raise InputError("--data FILE is needed: this party's records")
    if preflight:
        from coterie.commands._preflight import preflight as check

        raise typer.Exit(check(agreement, me, data, keys, folder, account, listen, behind, as_json, console))
    if log_level in ("debug", "info"):  # importing takes seconds, and what logs is imported then
        typer.echo(f"{dt.datetime.now(dt.UTC):%H:%M:%SZ} info: {me}: loads coterie {coterie.__version__}", err=True)
    party = loaded_for_good("coterie.commands._party")
    place = None if metrics is None else party.WindowPlace.read(metrics, metrics_anywhere)
    raise typer.Exit(party.agent(agreement, me, data, keys, folder, account, listen, behind, place, log_level, console))
