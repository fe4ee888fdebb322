"""`coterie ledger`: what a party's ledger holds, and whether it is what was written. Nothing is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.commands import DEPLOY

if TYPE_CHECKING:
    from coterie.deploy.records import Book
    from coterie.privacy.events import Event
    from coterie.privacy.people import Protects

__all__ = ["PANEL", "app", "describe", "show", "verify"]

PANEL = DEPLOY
app = typer.Typer(help="Look at a party's ledger. Nothing is changed.", no_args_is_help=True)
LedgerArgument = Annotated[Path, typer.Argument(metavar="PATH", help="the ledger's database file")]


class ToldRun(TypedDict):
    """What was spent under an earlier agreement."""

    plan_hash: str
    epsilon: float
    delta: float
    spent: float
    rounds: int
    created: str


class Described(TypedDict):
    """Everything in a ledger except the messages and the state."""

    agent: str
    plan_hash: str
    created: str
    epsilon: float
    delta: float
    planned: float
    spent: float
    earlier: list[ToldRun]
    in_all: dict[str, float] | None
    stopped: str | None
    held: dict[str, dict[str, object]]
    head: str
    releases: list[dict[str, object]]


def describe(book: Book) -> Described:
    """The ledger as plain data."""
    from coterie.deploy.succession import in_all
    from coterie.privacy.accountants import account
    from coterie.privacy.codec import to_json

    budget = book.meta.budget
    total = in_all([*book.earlier, book.run]) if book.earlier else None
    return {
        "agent": book.meta.agent,
        "plan_hash": book.meta.plan_hash.hex(),
        "created": book.meta.created,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "planned": float.fromhex(book.meta.proved),
        "spent": account(book.allowance.used(), budget.delta, fast=True).epsilon,
        "earlier": [
            {
                "plan_hash": run.plan_hash,
                "epsilon": run.budget.epsilon,
                "delta": run.budget.delta,
                "spent": run.used,
                "rounds": run.rounds,
                "created": run.created,
            }
            for run in book.earlier
        ],
        "in_all": None if total is None else {"epsilon": total.epsilon, "delta": total.delta},
        "stopped": book.stopped,
        "held": {name: {"round": r.round, "digest": r.digest.hex()} for name, r in book.held.items()},
        "head": book.head.hex(),
        "releases": [
            {
                "round": row.round,
                "events": [to_json(event) for event in row.events],
                "total": str(row.total),
                "frame_bytes": row.frame_bytes,
                "frame_sha256": row.frame_hash.hex(),
                "hash": row.hash.hex(),
            }
            for row in book.rows
        ],
    }


def _protects(path: Path, book: Book) -> Protects | None:
    """Whom the ε that is spent is for, by the agreement beside the ledger; None: it is not there.

    A ledger knows its own party alone: a person whom two parties know has paid twice what is here. Where parties share
    noise, what it moves at both adds up before it is hidden.
    """
    import numpy as np

    from coterie.deploy.agreement import AGREEMENT, unverified
    from coterie.deploy.succession import pooled
    from coterie.privacy.people import units_of

    place = path.parent / AGREEMENT
    agreed = unverified(place) if place.is_file() else None
    if agreed is None or agreed.plan_hash != book.meta.plan_hash:
        return None
    plan, used = agreed.plan, [event for event in book.allowance.used() if np.any(event.times)]
    return units_of(
        [used, used], book.run.used, book.meta.budget.delta, by_person=plan.by_person, summed=pooled(plan) is not None
    )


@app.command()
def show(
    path: LedgerArgument, as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False
) -> None:
    """Print what a ledger holds: budget, what is spent, every release. It is checked first; an agent may be running."""
    from coterie.deploy.agreement import AGREEMENT
    from coterie.deploy.reading import look
    from coterie.privacy.people import unit_words

    console = Console()
    book, running = look(path)
    told = _protects(path, book)
    about = describe(book)
    if as_json:
        console.print_json(json.dumps({**about, "running": running, "protects": told}))
        return
    if running:
        console.print(f"running, round {len(book.rows)}", highlight=False)
    console.print(f"agent {about['agent']}, plan {about['plan_hash'][:16]}, made {about['created']}", markup=False)
    console.print(
        f"spent ε {about['spent']:.4g} of {about['epsilon']:g} at δ {about['delta']:g} in {len(book.rows)} rounds; "
        f"the whole plan costs {about['planned']:.4g}"
    )
    if told is None:
        console.print(f"whether ε is for a record or a person is in {AGREEMENT}, which is not beside the ledger")
    else:
        words = unit_words(told, about["delta"])
        told_two = ", if the other one pays as much" if told["unit"] == "person" else ""
        console.print(f"ε is for one {told['unit']}; {words}{told_two}", markup=False, soft_wrap=True)
    for run in about["earlier"]:
        console.print(
            f"before it, under agreement {run['plan_hash'][:16]}: ε {run['spent']:.4g} of {run['epsilon']:g} at δ "
            f"{run['delta']:g} in {run['rounds']} rounds", markup=False,
        )  # fmt: skip
    if about["in_all"] is not None:
        console.print("a record that was in all of them has paid "
                      f"ε {about['in_all']['epsilon']:.4g} at δ {about['in_all']['delta']:g}")  # fmt: skip
    if book.stopped:
        console.print(f"stopped: {book.stopped}", markup=False)
    limit = float(book.allowance.limit)
    table = Table("round", "charge", "share of the plan", "bytes", "SHA-256")
    for row in book.rows:
        share = float(row.total) / limit if limit else 0.0
        charge = ", ".join(_short(event) for event in row.events)
        table.add_row(str(row.round), charge, f"{share:.2%}", f"{row.frame_bytes:,}", row.frame_hash.hex()[:16])
    console.print(table)


def _short(event: Event) -> str:
    from coterie.privacy.codec import to_json

    hidden = ("kind", "slack", "tv", "adjacency")
    values = {name: value for name, value in to_json(event).items() if name not in hidden and value not in (None, 1)}
    if not values:
        return type(event).__name__
    numbers = {name: f"{float.fromhex(v):.4g}" if isinstance(v, str) and "x" in v else v for name, v in values.items()}
    return f"{type(event).__name__}({', '.join(f'{name} {value}' for name, value in numbers.items())})"


@app.command()
def verify(path: LedgerArgument) -> None:
    """Check every hash and every byte of a ledger. Exit code 1: it is not what was written; names the first bad row."""
    from coterie.deploy.reading import look
    from coterie.deploy.sealing import Damaged

    try:
        book, running = look(path)
    except Damaged as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        raise typer.Exit(1) from None
    so_far = " so far, running" if running else ""
    Console().print(
        f"{path}: {len(book.rows)} rounds{so_far}, every hash and every byte as written", markup=False, soft_wrap=True
    )
