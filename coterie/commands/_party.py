"""What `coterie agent` does: run one party as a process, or show how it is doing."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from coterie.deploy.accounts import DataAccount
from coterie.deploy.keys import default_folder
from coterie.deploy.process import EXIT, run_party
from coterie.deploy.watch import line, read_status
from coterie.deploy.window import WindowPlace
from coterie.errors import InputError
from coterie.names import host_and_port

__all__ = ["WindowPlace", "agent", "status"]


def agent(
    agreement: Path,
    me: str,
    data: Path,
    keys: Path | None,
    state: Path,
    account: Path | None,
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
    shown = terminal.status(f"{me}: starting") if terminal.is_terminal else None  # a service need not load its tables

    def show(line: str) -> None:  # it has a thread, and while a party prepares there must be none
        assert shown is not None
        shown.start()
        shown.update(line)

    try:
        code = run_party(
            agreement, keys, data, state, me=me, account=None if account is None else DataAccount(account),
            listen=listen, behind=behind, metrics=metrics,
            show=None if shown is None else show, level=level,
        )  # fmt: skip
    finally:
        if shown is not None:
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
