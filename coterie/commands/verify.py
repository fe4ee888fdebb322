"""`coterie verify`: recompute a certificate without trusting the run that made it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.commands import PROVE, console
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.report.verification import Verified

__all__ = ["PANEL", "app"]

PANEL = PROVE
app = typer.Typer()
LARGEST = 256 * 2**20  # bytes of a certificate
SHOWN = 12  # groups of agents


def run(path: Path, key: str | None, strict: bool, console: Console) -> int:
    """Check the certificate and say what it proves; returns the exit code: 0 holds, 1 does not."""
    from coterie.report.verification import Refuted, parse, public_key, verify

    expected = None if key is None else public_key(key)
    if path.is_dir():
        raise InputError(f"{path} is a folder, expected the certificate: {path / 'certificate.json'}?")
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
    except Refuted as reason:
        console.print(f"[bold red]rejected:[/] {escape(str(reason))}", highlight=False, soft_wrap=True)
        return 1
    _show(verdict, console)
    return 0


def _whom(verdict: Verified) -> str:
    """ε for a record, a person, a person whom two parties know, as it was recomputed."""
    from coterie.privacy.people import Protects, unit_words

    told, delta = verdict.content.protects, verdict.content.claim.delta
    assert told is not None  # of a claim that holds
    assert delta is not None
    return f"one {told.unit}; {unit_words(cast(Protects, told.model_dump()), delta)}"


def _show(verdict: Verified, console: Console) -> None:
    content = verdict.content
    claim, names = content.claim, content.public.names
    said = Table(box=None, show_header=False)
    said.add_row("plan", escape(f"{content.plan.get('name', '')} ({content.algorithm.name})"))
    for what, one in (("claim", claim), *(("another claim", other) for other in content.other_claims)):
        paid = f"({float(one.epsilon):.6g}, {one.delta:g})-DP by {one.accountant}, {one.adjacency}"
        over = "" if one.private else "; more than the budget, which is for another adversary"
        said.add_row(what, f"{paid}; {escape(one.name)}{over}")
        said.add_row("  its adversary", escape(one.adversary))
    for seat in content.observers or ():
        learnt = [e for e in seat.epsilon if e is not None]
        said.add_row("an observer", escape(f"{seat.observer}: ε = {min(learnt):.4g} to {max(learnt):.4g}, by party"))
        said.add_row("  who", escape(seat.adversary))
    said.add_row("whom it is for", _whom(verdict))
    planned, done = content.algorithm.rounds, min(group.rounds for group in content.agents)
    said.add_row("rounds", f"{planned}" if done == planned else f"stopped early, after {done} of {planned}: only these")
    said.add_row("released", escape(", ".join(content.files)) or "no file: the claims are about the messages")
    said.add_row("noise", content.run.noise)
    said.add_row("signed by", verdict.signed_by or "nobody: free text and versions are only as good as their source")
    said.add_row("derived anew", "yes, from the plan" if verdict.derived else "no: made by other code")
    console.print(said)
    shown = Table(box=None, header_style="bold")
    summed = content.central is not None and claim.name == content.central.name  # then the budget is for sums
    price = "ε, every message seen" if content.alone is None else "ε of the claim"
    for column in ("parties", "records", "charges", price, "budget", "by"):
        shown.add_column(column, justify="left" if column in ("parties", "by") else "right")
    for group in content.agents[:SHOWN]:
        count = sum(last - first + 1 for first, last in group.members)
        first = group.members[0][0]
        who = (names[first] if names else f"agent {first}") + (f" and {count - 1} like it" if count > 1 else "")
        charges = sum(row["times"] for row in group.events if row["kind"] != "Free")
        by = ", ".join(f"{name} {float(value):.4g}" for name, value in group.totals.items())
        shown.add_row(
            escape(who),
            str(group.records),
            str(charges),
            f"{float(group.epsilon):.6g}",
            "for sums" if summed else f"{group.budget:g}",
            by,
        )
    if len(content.agents) > SHOWN:
        shown.add_row(f"… and {len(content.agents) - SHOWN} more groups, all within budget", "", "", "", "", "")
    console.print(shown)
    console.print("charges: messages that one record can change; where records are dealt to batches, not all of them")
    trusted = Table(box=None, header_style="bold", show_edge=False, pad_edge=False)
    trusted.add_column("it says that", ratio=3)
    trusted.add_column("for this you trust", ratio=2)
    for row in content.statements:
        trusted.add_row(escape(row.statement), escape(row.trust))
    console.print(trusted)
    for warning in verdict.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)
    console.print("[bold green]holds:[/] every total was recomputed from the listed events", highlight=False)


@app.command()
def command(
    certificate: Annotated[Path, typer.Argument(metavar="certificate.json", help="what `coterie run --out` wrote")],
    key: Annotated[str | None, typer.Option(help="public key that must have signed it: PEM file or 64 digits")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="reject what could not be derived anew or compared")] = False,
) -> None:
    """Recompute every total of a certificate from its events, trusting nobody. Exit code 1: it does not hold.

    Example: coterie verify runs/default/certificate.json
    """
    if run(certificate, key, strict, console):
        raise typer.Exit(1)
