"""The commands, one file each, found and never listed.

A command's file has `app`, a Typer app: with one command it is that command, with several a group of them; and `PANEL`,
where `coterie --help` shows it. All files are loaded for `--help`: what is slow to load is imported in the functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from coterie.found import Kinds

__all__ = [
    "COMMANDS", "DEPLOY", "LEARN", "PANELS", "PROVE", "PlanArgument", "SetOption", "console", "look_at",
    "out_of_budget", "show_whole",
]  # fmt: skip

COMMANDS = Kinds("command", __name__)
"""Every command, by name."""
PANELS = LEARN, PROVE, DEPLOY = "Learn", "Prove", "Deploy"
"""Panels of `coterie --help`, in the order in which they are shown."""
console = Console()
"""Where commands print."""
PlanArgument = Annotated[
    Path | None,
    typer.Argument(metavar="[PLAN.toml]", help="the plan, or adult, clinics, mnist; default: forty small practices"),
]
"""A command's plan."""
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a key, e.g. --set graph.kind=star")
]
"""Changes of a plan's keys, for `read_plan`."""


def out_of_budget(error: Exception) -> typer.Exit:
    """The end of a command whose draw does not fit in an account, as of an agent: one line, exit code 3."""
    Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {error}", highlight=False)
    return typer.Exit(3)


def show_whole(table: Table, console: Console) -> None:
    """Print a table as wide as it is: a name or a verdict that is cut off says nothing."""
    wide = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    before = console.width
    console.width = max(before, wide)
    try:
        console.print(table)
    finally:
        console.width = before


def look_at(plans: Sequence[Path | None], changes: list[str] | None) -> None:
    """Tell a mistake in a plan at once, before JAX is loaded."""
    from coterie.plan import read_plan

    for path in plans:
        read_plan(path, changes)
