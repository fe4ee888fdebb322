"""`coterie verify`: recompute a certificate without trusting the run that made it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.errors import InputError
from coterie.report.verification import Rejected, Verdict, parse, public_key, verify

__all__ = ["run"]

LARGEST = 256 * 2**20  # bytes of a certificate
SHOWN = 12  # groups of agents


def run(path: Path, key: str | None, strict: bool, console: Console) -> int:
    """Check the certificate and say what it proves; returns the exit code: 0 holds, 1 does not."""
    expected = None if key is None else public_key(key)
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} has more than {LARGEST >> 20} MB")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        verdict = verify(parse(text), key=expected, strict=strict, folder=path.parent)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except Rejected as reason:
        console.print(f"[bold red]rejected:[/] {escape(str(reason))}", highlight=False, soft_wrap=True)
        return 1
    _show(verdict, console)
    return 0


def _show(verdict: Verdict, console: Console) -> None:
    content = verdict.content
    claim, names = content.claim, content.public.names
    said = Table(box=None, show_header=False)
    said.add_row("plan", escape(f"{content.plan.get('name', '')} ({content.algorithm.name})"))
    said.add_row(
        "claim" if claim.private else "not within budget",
        f"({float(claim.epsilon):.6g}, {claim.delta:g})-DP by {claim.accountant}, {claim.adjacency}",
    )
    said.add_row("adversary", claim.adversary)
    if content.central is not None:
        sums = content.central
        said.add_row(
            "claim for sums", escape(f"({float(sums.epsilon):.6g}, {claim.delta:g})-DP, {sums.name}: {sums.adversary}")
        )
    said.add_row("noise", content.run.noise)
    said.add_row("signed by", verdict.signed_by or "nobody: free text and versions are only as good as their source")
    said.add_row("derived anew", "yes, from the plan" if verdict.derived else "no: made by other code")
    console.print(said)
    shown = Table(box=None, header_style="bold")
    for column in ("agents", "records", "messages", "ε recomputed", "budget", "by"):
        shown.add_column(column, justify="left" if column in ("agents", "by") else "right")
    for group in content.agents[:SHOWN]:
        count = sum(last - first + 1 for first, last in group.members)
        first = group.members[0][0]
        who = (names[first] if names else f"agent {first}") + (f" and {count - 1} like it" if count > 1 else "")
        messages = sum(row["times"] for row in group.events if row["kind"] != "Free")
        by = ", ".join(f"{name} {float(value):.4g}" for name, value in group.totals.items())
        shown.add_row(
            escape(who), str(group.records), str(messages), f"{float(group.epsilon):.6g}", f"{group.budget:g}", by
        )
    if len(content.agents) > SHOWN:
        shown.add_row(f"… and {len(content.agents) - SHOWN} more groups, all within budget", "", "", "", "", "")
    console.print(shown)
    for warning in verdict.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)
    console.print("[bold green]holds:[/] every total was recomputed from the listed events", highlight=False)
