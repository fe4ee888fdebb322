"""`python -m reproduction`, or `coterie-reproduce` where it is installed: the papers' figures, claims and choices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from coterie import programs
from coterie.arguments import numbers
from coterie.cli import run_app
from coterie.commands import PlanArgument, SetOption

app = typer.Typer(
    help="What the papers printed, drawn again by coterie: as printed, at its true cost, and as corrected.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
console = Console()


@app.callback()
def _root() -> None:
    """What the papers printed, drawn again by coterie."""
    programs.keep()


@app.command()
def figure(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="figures, papers, `all`, or `list`")],
    quick: Annotated[bool, typer.Option("--quick", help="few seeds and small sizes")] = False,
    out: Annotated[Path | None, typer.Option(help="folder; default: runs/papers")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="compute anew what is stored there")] = False,
    docs: Annotated[Path | None, typer.Option(help="also rewrite the pages under this docs folder")] = None,
    engine: Annotated[str, typer.Option(help="local, local:N processes, ray, or ray://HOST:PORT")] = "local",
) -> None:
    """Draw a paper's figure, as printed and as corrected, and say which of its claims hold.

    Example: python -m reproduction figure xiao-fig2 --quick --out runs/xiao
    """
    from reproduction import figures

    if code := figures.run(names, quick, out, fresh, docs, console, engine):
        raise typer.Exit(code)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="a folder of verdicts, such as runs/papers")],
    second: Annotated[Path, typer.Argument(help="another, such as docs/papers/verdicts")],
) -> None:
    """Say whether two runs of the figures came to the same verdicts. Exit code 1: they did not.

    Example: python -m reproduction compare runs/papers docs/papers/verdicts
    """
    from reproduction import equal

    figures, claims, different = equal.compare(first, second)
    for d in different:
        what = f"{d.figure}: {d.claim}" if d.claim else d.figure
        console.print(f"{what}: {d.first} / {d.second}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{figures} figures with {claims} claims are in both; {len(different)} differ", highlight=False)
    if different:
        raise typer.Exit(1)


@app.command()
def tradeoff(
    plan: PlanArgument = None,
    levels: Annotated[str, typer.Option(help="per-round levels α, for the plan's ε")] = "0.05,0.1,0.2,0.3,0.5,0.7,1",
    seeds: Annotated[int | None, typer.Option(min=1, help="repetitions; default: the plan's, or 5")] = None,
    max_loss: Annotated[float | None, typer.Option(help="largest tolerable loss (c₃)")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for tradeoff.json and tradeoff.png")] = None,
    set_: SetOption = None,
) -> None:
    """Choose a privacy level as Zhang and Zhu do: fit loss against α, weigh it against the utility of privacy.

    Example: python -m reproduction tradeoff --set algorithm.name=dvp --set run.rounds=30 --out runs/tradeoff
    """
    from reproduction import choose_level

    choose_level.run(plan, numbers("--levels", levels), seeds, max_loss, out, set_ or [], console)


@app.command()
def claims(
    algorithms: Annotated[list[str] | None, typer.Argument(metavar="[ALGORITHM]...", help="default: all")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="transcripts per world; default: enough for each")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for audit.json and tradeoff.png")] = None,
    table: Annotated[bool, typer.Option("--table", help="the table of docs/audit.md, with corrected methods")] = False,
) -> None:
    """Audit what the papers printed, at the noise for which they claim their ε. Exit code 1: a claim is refuted.

    Example: python -m reproduction claims dp-consensus-gd --trials 5000
    """
    from coterie.commands.audit import report
    from coterie.report.files import check_out
    from reproduction import printed

    if table:
        raise typer.Exit(printed.main())
    if out is not None:
        check_out(out)
    if report(printed.jobs(algorithms or [], trials), as_json, out, console):
        raise typer.Exit(1)


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit code. Every user's mistake is one line."""
    return run_app(app, arguments)


def script() -> None:
    """Entry point of `coterie-reproduce`."""
    sys.exit(main())


if __name__ == "__main__":
    script()
