"""`coterie agent --preflight`: every problem before a party starts, at once."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from coterie.deploy.accounts import DataAccount
from coterie.deploy.files import private_files
from coterie.deploy.keys import default_folder
from coterie.deploy.preflight import preflight as check

__all__ = ["preflight"]

STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def preflight(
    agreement: Path, me: str, data: Path, keys: Path | None, state: Path, account: Path | None, listen: str | None,
    behind: Path | None, as_json: bool, console: Console,
) -> int:  # fmt: skip
    """Print what was found; 1 if there is a problem."""
    with private_files():
        given = None if account is None else DataAccount(account)
        found = check(agreement, keys or default_folder(me), data, state, me, listen, behind, given)
    counts = {level: sum(finding.level == level for finding in found) for level in STYLES}
    if as_json:
        console.print_json(json.dumps({"findings": [finding._asdict() for finding in found], "counts": counts}))
        return int(counts["problem"] > 0)
    for level, about, text in found:
        style = STYLES[level]
        console.print(f"[{style}]{level:8}[/] {escape(about)}: {escape(text)}", highlight=False)
    if counts["problem"]:
        console.print(f"{counts['problem']} problems, {counts['warning']} warnings; nothing was sent or charged")
        return 1
    console.print(f"no problem, {counts['warning']} warnings; nothing was sent or charged")
    return 0
