"""`coterie spawn`: several processes on this machine that share one run, as a cluster's launcher would start them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Annotated

import typer

from coterie.commands import LEARN
from coterie.errors import InputError

__all__ = ["PANEL", "app", "spawn"]

PANEL = LEARN
app = typer.Typer()
GRACE = 10.0  # seconds that the others get to end once one has failed


def spawn(processes: int, arguments: list[str]) -> int:
    """Run `coterie run ARGUMENTS` in `processes` processes; the exit code of the first that fails, or 0.

    Cores are shared out evenly. Ctrl-C is passed on once, so that all end after the same round.
    """
    if reserved := {"--coordinator", "--process-id", "--processes"} & {a.split("=")[0] for a in arguments}:
        raise InputError(f"coterie spawn sets {min(reserved)} itself")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = {**os.environ, "COTERIE_COORDINATOR": address, "COTERIE_PROCESSES": str(processes)}
    command = [sys.executable, "-P", "-m", "coterie.cli", "run", *arguments]
    children = []
    for k, cores in enumerate(_cores(processes)):
        # A session of its own: a terminal's Ctrl-C would reach it twice otherwise, and the second means "at once".
        child = subprocess.Popen(command, env={**env, "COTERIE_PROCESS_ID": str(k)}, start_new_session=True)
        if cores:
            os.sched_setaffinity(child.pid, cores)
        children.append(child)

    def passed_on(number: int, _: object) -> None:
        for child in children:
            if child.poll() is None:
                child.send_signal(number)

    before = {s: signal.signal(s, passed_on) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _wait(children)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
        for s, handler in before.items():
            signal.signal(s, handler)


def _cores(processes: int) -> list[set[int]]:
    """An even share of this process's cores for each; nothing where there are too few or the system does not say."""
    mine = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    each = len(mine) // processes
    return [set(mine[k * each : (k + 1) * each]) for k in range(processes)]


def _wait(children: list[subprocess.Popen]) -> int:
    """Wait for all; once one fails, end the others."""
    while all(child.poll() in (None, 0) for child in children):
        if all(child.poll() == 0 for child in children):
            return 0
        time.sleep(0.05)
    lost = next(k for k, child in enumerate(children) if child.poll())
    code = children[lost].returncode
    end = time.monotonic() + GRACE
    while any(child.poll() is None for child in children) and time.monotonic() < end:
        time.sleep(0.05)
    for k, child in enumerate(children):  # what the others say is a consequence
        if (ended := child.poll() or 0) < 0:
            print(f"error: process {k} was ended by signal {-ended}", file=sys.stderr, flush=True)
    return code if code > 0 else 128 - code


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def command(
    context: typer.Context,
    processes: Annotated[int, typer.Argument(metavar="N", min=1, help="how many processes")],
) -> None:
    """Start `coterie run` in N processes on this machine that share one run; options are those of `coterie run`.

    A process that is lost ends the others; with --checkpoint the same command then goes on where it was.

    Example: coterie spawn 2 plan.toml --checkpoint runs/state --every-rounds 50 --out runs/big
    """
    raise typer.Exit(spawn(processes, context.args))
