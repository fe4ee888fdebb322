"""`coterie host`: one port for the agents of several agreements."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from coterie.commands import DEPLOY
from coterie.names import host_and_port

__all__ = ["PANEL", "app"]

PANEL = DEPLOY
app = typer.Typer()


@app.command()
def command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="where the agents are: `agent --behind FOLDER`")],
    listen: Annotated[str, typer.Option(help="host:port to bind")],
) -> None:
    """Listen on one port for the agents of several agreements; none of them is touched by another's failure.

    Example: coterie host ~/coterie/door --listen 0.0.0.0:7101
    """
    from coterie.deploy.host import Host

    host_and_port(listen)
    door = Host(listen, folder)
    stop = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    door.start()
    typer.echo(f"listening at {listen} for the agents behind {folder}")
    signal.sigwait(stop)
    door.close()
