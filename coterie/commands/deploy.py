"""`coterie agent` and `coterie launch`: one party as a process, or all parties of a trial, one process each."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from coterie.deploy.keys import default_folder
from coterie.deploy.process import EXIT, run_party
from coterie.deploy.trial import Trial, make_trial, start_agent
from coterie.deploy.watch import line, read_status
from coterie.deploy.window import WindowPlace
from coterie.errors import InputError
from coterie.names import host_and_port
from coterie.plan import read_plan

__all__ = ["agent", "launch", "status"]

SETTLE = 20.0  # seconds that parties get to stop by themselves


def agent(
    agreement: Path,
    me: str,
    data: Path,
    keys: Path | None,
    state: Path,
    listen: str | None,
    behind: Path | None,
    metrics: WindowPlace | None,
    level: str,
    console: Console,
) -> int:
    """Run one party; returns the exit code."""
    keys = keys or default_folder(me)
    if listen is not None:
        host_and_port(listen)
        if behind is not None:
            raise InputError(f"--listen {listen} and --behind {behind}: a party behind a host does not listen itself")
    terminal = Console(stderr=True)  # with the log, so that neither tears the other
    shown = terminal.status(f"{me}: starting")

    def show(line: str) -> None:  # it has a thread, and while a party prepares there must be none
        shown.start()
        shown.update(line)

    try:
        code = run_party(
            agreement, keys, data, state, me=me, listen=listen, behind=behind, metrics=metrics,
            show=show if terminal.is_terminal else None, level=level,
        )  # fmt: skip
    finally:
        shown.stop()
    if code == EXIT["done"]:
        facts = read_status(state)
        console.print(
            f"{me}: done, {facts['rounds']} rounds, ε {facts['epsilon']:.4g} of {facts['budget']:g}; model.npz and "
            f"certificate.json are in {state}",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    return code


def status(state: Path, as_json: bool, console: Console) -> int:
    """Show the status of the agent whose folder this is; 0 if it runs or is done, 1 if it stopped on the way, 2 if that
    cannot be known."""
    facts = read_status(state)
    if as_json:
        console.print_json(json.dumps(facts))
    else:
        words = {
            True: " (running)",
            False: " (not running)",
            None: " (another user's: whether it runs cannot be known)",
        }
        ended = "" if facts["phase"] == "done" else words[facts["running"]]
        console.print(line(facts) + ended, highlight=False, soft_wrap=True)
    if facts["running"] is None and facts["phase"] != "done":
        return 2
    return 0 if facts["running"] or facts["phase"] == "done" else 1


def launch(plan: Path | None, out: Path, changes: list[str], console: Console) -> int:
    """Start every party of a plan on this machine, one process each, and wait for their models."""
    trial = make_trial(read_plan(plan, changes), out)
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


def _stop(processes: Any) -> None:
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
