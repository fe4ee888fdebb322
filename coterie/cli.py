"""The command line. Every user's mistake is one line on standard error and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from coterie import programs
from coterie.arguments import numbers
from coterie.commands import agent, host, keys, ledger, plan
from coterie.errors import InputError, naming_extras

__all__ = ["PlanArgument", "SetOption", "app", "main", "run_app"]

app = typer.Typer(
    help="Train one model over data that stays where it is: parties on a graph, no server, every message paid for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(keys.app, name="keys")
app.add_typer(ledger.app, name="ledger")
app.add_typer(plan.app, name="plan")
# typer brings its own copy of click, or uses the installed one: BadParameter < UsageError < ClickException in both
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
out_console = Console()
PlanArgument = Annotated[
    Path | None, typer.Argument(metavar="[PLAN.toml]", help="the plan; default: five clinics on a ring")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a key, e.g. --set graph.kind=star")
]


@app.callback()
def _root(context: typer.Context) -> None:
    """Train one model over data that stays where it is."""
    programs.forget_old()
    if context.invoked_subcommand != "agent":  # a deployed party keeps none
        programs.keep()


@app.command()
def run(
    plan: PlanArgument = None,
    out: Annotated[Path | None, typer.Option(help="folder for result, model, certificate and report")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="independent repetitions, in one batch")] = None,
    set_: SetOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar")] = False,
    key: Annotated[Path | None, typer.Option(help="PEM file of an Ed25519 private key: sign the certificate")] = None,
    devices: Annotated[str | None, typer.Option(help="spread the agents over devices: a number, or `all`")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="folder for the run's state; started again, it goes on")
    ] = None,
    every_rounds: Annotated[int, typer.Option(min=1, help="rounds between checkpoints")] = 100,
    coordinator: Annotated[str | None, typer.Option(help="HOST:PORT of process 0, if there are several")] = None,
    process_id: Annotated[int | None, typer.Option(help="number of this process, from 0")] = None,
    processes: Annotated[int | None, typer.Option(help="how many processes run this command")] = None,
) -> None:
    """Simulate a plan and compare it with pooled data and with every agent alone.

    Ctrl-C ends the run after the round in progress and keeps what is done.

    Example: coterie run --set algorithm.name=admm --set graph.kind=star --seeds 5 --out runs/star
    """
    from coterie.commands import run as command
    from coterie.drivers.cluster import Spread

    spread = Spread.read(devices=devices, coordinator=coordinator, process_id=process_id, processes=processes,
                         checkpoint=checkpoint, every_rounds=every_rounds)  # fmt: skip
    command.run(plan, out, seeds, set_ or [], quiet, out_console, key, spread)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def spawn(
    context: typer.Context,
    processes: Annotated[int, typer.Argument(metavar="N", min=1, help="how many processes")],
) -> None:
    """Start `coterie run` in N processes on this machine that share one run; options are those of `coterie run`.

    A process that is lost ends the others; with --checkpoint the same command then goes on where it was.

    Example: coterie spawn 2 plan.toml --checkpoint runs/state --every-rounds 50 --out runs/big
    """
    from coterie.commands import spawn as command

    raise typer.Exit(command.spawn(processes, context.args))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="what `coterie run` or `coterie fair` wrote")],
) -> None:
    """Write DIR/report.html: one page about a run that needs no network, for people who will not read a plan.

    Example: coterie report runs/default
    """
    from coterie.commands import report as command

    command.run(folder, out_console)


@app.command()
def verify(
    certificate: Annotated[Path, typer.Argument(metavar="certificate.json", help="what `coterie run --out` wrote")],
    key: Annotated[str | None, typer.Option(help="public key that must have signed it: PEM file or 64 digits")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="reject what could not be derived anew or compared")] = False,
) -> None:
    """Recompute every total of a certificate from its events, trusting nobody. Exit code 1: it does not hold.

    Example: coterie verify runs/default/certificate.json
    """
    from coterie.commands import verify as command

    if command.run(certificate, key, strict, out_console):
        raise typer.Exit(1)


@app.command()
def init(
    out: Annotated[Path, typer.Argument(metavar="[PLAN.toml]", help="the file to write")] = Path("plan.toml"),
    data: Annotated[str | None, typer.Option(help="CSV or Parquet file, or the name of a data set")] = None,
    label: Annotated[str | None, typer.Option(help="label column")] = None,
    site: Annotated[str | None, typer.Option(help="column that says who holds a record")] = None,
    bounds: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=LOW:HIGH", help="public range of a column")
    ] = None,
    agents: Annotated[int | None, typer.Option(min=2, help="number of parties")] = None,
    graph: Annotated[str | None, typer.Option(help="who talks to whom")] = None,
    epsilon: Annotated[float | None, typer.Option(help="privacy budget of each party")] = None,
    delta: Annotated[float | None, typer.Option(help="δ")] = None,
    algorithm: Annotated[str | None, typer.Option(help="see `coterie algorithms`")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace an existing file")] = False,
) -> None:
    """Write a commented plan: asks for what the flags leave open, or takes the defaults where nobody can answer.

    Example: coterie init study.toml --data patients.csv --label readmitted --site clinic --bounds age=0:120
    """
    from coterie.commands import init as command

    given = {"data": data, "label": label, "site": site, "agents": agents, "graph": graph, "epsilon": epsilon,
             "delta": delta, "algorithm": algorithm}  # fmt: skip
    command.init(out, given, bounds or [], force, out_console)


@app.command()
def algorithms(
    name: Annotated[str | None, typer.Argument(help="show one algorithm's settings and errata")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """List the algorithms, or show one: its settings, its paper, and what the paper got wrong."""
    from coterie.commands import algorithms as command

    command.show(name, as_json, out_console)


@app.command()
def graph(
    plan: PlanArgument = None,
    out: Annotated[Path | None, typer.Option(help="write the picture graph.png into this folder")] = None,
    set_: SetOption = None,
) -> None:
    """Describe a plan's graph: degrees, spectrum, how fast it mixes."""
    _look_at([plan], set_)
    from coterie.commands import graph as command

    command.show(plan, out, set_ or [], out_console)


@app.command()
def account(
    plan: PlanArgument = None,
    set_: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """What a plan costs every agent, by every valid accountant, without reading any data.

    Sizes are public and fix the noise: the plan must state them (partition.sizes, or agents and records).
    """
    from coterie.commands import privacy as command

    command.account_plan(plan, set_ or [], as_json, out_console)


@app.command()
def calibrate(
    rounds: Annotated[int, typer.Option(help="number of releases")],
    epsilon: Annotated[float, typer.Option(help="ε of all of them together")],
    delta: Annotated[float, typer.Option(help="δ")],
    sensitivity: Annotated[float, typer.Option(help="L2 sensitivity of one release")] = 1.0,
    schedule: Annotated[str, typer.Option(help="uniform, periodic, iteration, power, optimal")] = "uniform",
    option: Annotated[list[str] | None, typer.Option(help="schedule parameter, e.g. rate=0.9")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """Gaussian noise for a budget: from (ε, δ), rounds and sensitivity to the standard deviation of every round.

    Example: coterie calibrate --rounds 50 --epsilon 1 --delta 1e-5 --schedule periodic --option rate=0.9
    """
    from coterie.commands import privacy as command

    command.calibrate(rounds, epsilon, delta, sensitivity, schedule, option or [], as_json, out_console)


@app.command()
def compare(
    plans: Annotated[list[Path] | None, typer.Argument(metavar="[PLAN.toml]...", help="plans to compare")] = None,
    algorithms: Annotated[str, typer.Option(help="comma-separated: run the plan with each of these")] = "",
    epsilons: Annotated[str, typer.Option(help="comma-separated budgets, in place of the plans'")] = "0.1,0.5,1,5,10",
    seeds: Annotated[int | None, typer.Option(min=1, help="repetitions; default: the plans', or 10")] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for table, pictures and finished cells (resumes there)")
    ] = None,
    set_: SetOption = None,
    engine: Annotated[str, typer.Option(help="local, local:N processes, ray, or ray://HOST:PORT")] = "local",
) -> None:
    """Compare methods at the same (ε, δ), adjacency and adversary. Stopped? Run it again: finished cells are kept.

    Example: coterie compare --algorithms pr-admm,dvp,dp-dsgd --epsilons 0.1,1,10 --seeds 10 --out runs/compare
    """
    _look_at(plans or [None], set_)
    from coterie.commands import compare as command

    names = [a.strip() for a in algorithms.split(",") if a.strip()]
    command.run(plans or [], names, numbers("--epsilons", epsilons), seeds, out, set_ or [], out_console, engine)


@app.command()
def fair(
    plan: Annotated[Path | None, typer.Argument(metavar="[PLAN.toml]", help="default: Adult, sex protected")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for fair.json, fair.csv and pictures")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="independent repetitions")] = None,
    set_: SetOption = None,
) -> None:
    """Private and fair classification: accuracy, fairness and ε of every method, beside what was printed.

    Example: coterie fair --seeds 10 --out runs/fair
    """
    from coterie.commands import fair as command

    command.run(plan, out, seeds, set_ or [], out_console)


@app.command()
def audit(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ALGORITHM | PLAN.toml | FOLDER]...",
            help="default: every private algorithm; a folder is a deployed run that left ledgers",
        ),
    ] = None,
    epsilons: Annotated[str, typer.Option(help="comma-separated budgets of the algorithms")] = "1,8",
    delta: Annotated[float, typer.Option(help="δ of these budgets")] = 1e-5,
    trials: Annotated[int | None, typer.Option(min=1, help="transcripts per world; default 1000")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for audit.json and tradeoff.png")] = None,
    wire: Annotated[bool, typer.Option("--wire", help="attack the integers that deployed parties send")] = False,
) -> None:
    """Attack our own implementation, on every loss that an algorithm accepts: what it must spend at least.

    Exit code 1: a claim is refuted, or something could not be checked.

    Example: coterie audit pr-admm dvp --epsilons 1,8 --trials 5000 --out runs/audit
    """
    _look_at([Path(t) for t in targets or [] if t.endswith(".toml")], None)
    from coterie.commands import audit as command

    budgets = numbers("--epsilons", epsilons)
    if command.run(targets or [], budgets, delta, trials, as_json, out, out_console, wire):
        raise typer.Exit(1)


app.command()(agent.agent)


@app.command()
def launch(
    plan: PlanArgument = None,
    out: Annotated[Path, typer.Option(help="new folder for all parties' keys, data, ledgers and models")] = Path(
        "runs/launch"
    ),
    set_: SetOption = None,
) -> None:
    """Rehearse a deployment: all parties of a plan on this machine, one process each, over mutual TLS.

    Example: coterie launch --set run.rounds=20 --out runs/rehearsal
    """
    _look_at([plan], set_)
    from coterie.commands import deploy as command

    raise typer.Exit(command.launch(plan, out, set_ or [], out_console))


def _look_at(plans: Sequence[Path | None], changes: list[str] | None) -> None:
    """Tell a mistake in a plan at once, before JAX is loaded."""
    from coterie.plan import read_plan

    for path in plans:
        read_plan(path, changes)


app.command()(host.host)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_app(app, arguments)


def run_app(app: typer.Typer, arguments: list[str] | None) -> int:
    """Run commands; a user's mistake is one line and exit code 2, Ctrl-C is 130."""
    errors = Console(stderr=True, soft_wrap=True)
    try:
        with naming_extras():
            return int(app(args=arguments, standalone_mode=False) or 0)
    except (InputError, USAGE_ERROR) as error:
        text = str(error) if isinstance(error, InputError) else error.format_message()  # type: ignore[attr-defined]
        if text.strip():  # empty where `coterie` alone has shown its help
            errors.print(f"[bold red]error:[/] {escape(' '.join(text.split()))}", highlight=False)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        errors.print("interrupted: nothing was written")
        return 130


def script() -> None:
    """Entry point of the `coterie` command."""
    sys.exit(main())


if __name__ == "__main__":
    script()
