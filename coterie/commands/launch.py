"""`coterie launch`: all parties of a trial on this machine, one process each."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from coterie.commands import DEPLOY, SetOption, console, look_at
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.deploy.trial import Trial

__all__ = ["PANEL", "app"]

PANEL = DEPLOY
app = typer.Typer()
SETTLE = 20.0  # seconds that parties get to stop by themselves


def launch(plan: Path, out: Path, changes: list[str], console: Console) -> int:
    """Start every party of a plan on this machine, one process each, and wait for their models."""
    from rich.live import Live

    from coterie.deploy.trial import make_trial, start_agent
    from coterie.plan import read_plan
    from coterie.report.files import check_out

    asked = read_plan(plan, changes)
    check_out(out)
    trial = make_trial(asked, out)
    console.print(f"{len(trial.sites)} parties, {trial.agreement}", soft_wrap=True)
    processes = {site.name: start_agent(trial.agreement, site) for site in trial.sites}
    try:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            while any(p.poll() is None for p in processes.values()):
                live.update(_progress(trial, processes))
                failed = [n for n, p in processes.items() if p.poll()]
                if failed:
                    break
                time.sleep(0.25)
    finally:
        _stop(processes.values())
    codes = {name: p.returncode for name, p in processes.items()}
    if bad := {n: c for n, c in codes.items() if c}:
        for name in bad:
            errors = (out / name / "errors.txt").read_text(encoding="utf-8").strip().splitlines()
            console.print(f"[red]{name}[/] ended with {bad[name]}: {errors[-1] if errors else 'no message'}")
        return 1
    _report(trial, console)
    return 0


def _stop(processes: Collection[subprocess.Popen]) -> None:
    """Ask all to stop, then make them."""
    for p in processes:
        if p.poll() is None:
            p.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + SETTLE
    for p in processes:
        try:
            p.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


def _progress(trial: Trial, processes: dict[str, subprocess.Popen]) -> Table:
    from coterie.deploy.watch import read_status

    table = Table(box=None)
    for column in ("party", "round", "ε spent", "neighbours", "phase"):
        table.add_column(column, justify="left" if column in ("party", "phase") else "right")
    for site in trial.sites:
        try:
            facts = read_status(site.state)
        except InputError:
            table.add_row(site.name, "", "", "", "starting")
            continue
        alive = facts["neighbours"]
        table.add_row(
            site.name, f"{facts['round']}/{facts['rounds']}", f"{facts['epsilon']:.3f} of {facts['budget']:g}",
            f"{sum(alive.values())}/{len(alive)}", facts["phase"],
        )  # fmt: skip
    return table


def _report(trial: Trial, console: Console) -> None:
    """Every party's model on the held-out records, which only a trial has."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    experiment = trial.experiment
    problem, test = experiment.network.problem, experiment.test
    assert test is not None  # a plan holds records out
    table = Table(title=f"{trial.plan.algorithm.name}, {len(trial.sites)} parties")
    for column in ("party", "ε spent", problem.metric):
        table.add_column(column, justify="left" if column == "party" else "right")
    for site in trial.sites:
        with np.load(site.state / "model.npz") as model, jax.enable_x64(True):
            features, targets = jnp.asarray(test.features), jnp.asarray(test.targets)
            score = float(problem.score(jnp.asarray(model["point"]), features, targets))
            table.add_row(site.name, f"{float(model['epsilon']):.4f}", f"{score:.4f}")
    console.print(table)
    console.print(f"models, ledgers and logs: {trial.agreement.parent}", soft_wrap=True)


@app.command()
def command(
    plan: Annotated[Path, typer.Argument(metavar="[PLAN.toml]", help="the plan, or the name of one")] = Path(
        "clinics"
    ),  # each is a process: forty practices would fill the memory
    out: Annotated[Path, typer.Option(help="new folder for all parties' keys, data, ledgers and models")] = Path(
        "runs/launch"
    ),
    set_: SetOption = None,
) -> None:
    """Rehearse a deployment: all parties of a plan on this machine, one process each, over mutual TLS.

    Example: coterie launch --set run.rounds=20 --out runs/rehearsal
    """
    look_at([plan], set_)
    raise typer.Exit(launch(plan, out, set_ or [], console))
