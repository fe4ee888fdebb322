"""`coterie plan`: agreements between parties."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.commands import DEPLOY
from coterie.commands.keys import CERTIFICATES
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.deploy.agreement import Agreement

__all__ = ["PANEL", "app"]

PANEL = DEPLOY
app = typer.Typer(help="Plans that several parties sign up to.", no_args_is_help=True)
console = Console(soft_wrap=True)
LONGEST = 3650  # days


@app.command()
def sign(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="a plan with a table deploy")],
    ca: Annotated[Path, typer.Option(help="the authority's folder")],
    certs: Annotated[
        list[Path] | None,
        typer.Option(help="certificates of the parties, or a folder; default: all that it has signed"),
    ] = None,
    out: Annotated[Path, typer.Option(help="the agreement, for every party")] = Path("agreement.json"),
    days: Annotated[int, typer.Option(min=1, max=LONGEST, help="how long the agreement is valid")] = 365,
) -> None:
    """Sign a plan at the consortium's authority: who takes part, with which keys, under which rules.

    Example: coterie plan sign plan.toml --ca authority --out agreement.json
    """
    from coterie.deploy.agreement import sign_agreement
    from coterie.deploy.keys import load_authority, read_certificate
    from coterie.plan import read_plan

    places = certs or [ca / CERTIFICATES]
    files = [f for c in places for f in (sorted(c.glob("*.pem")) if c.is_dir() or not certs else [c])]
    if not files:
        raise InputError(
            f"no certificates in {', '.join(map(str, places))}: `coterie keys sign` keeps them in the authority's "
            "folder; or give --certs"
        )
    asked = read_plan(plan)
    if asked.data.label is not None and asked.data.options.get("features") is None:
        raise InputError(
            f"{plan} does not state data.options.features: of tables with columns in different orders the parties "
            "would learn from different columns, and nobody would notice; list them in one order"
        )
    authority, key = load_authority(ca)
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    agreement = sign_agreement(asked, [read_certificate(f) for f in files], authority, key, until)
    agreement.write(out)
    console.print(f"wrote {out}, valid until {agreement.valid_until:%Y-%m-%d}", highlight=False)
    console.print(f"plan hash {agreement.plan_hash.hex()}", highlight=False)


@app.command()
def amend(
    agreement: Annotated[Path, typer.Argument(metavar="AGREEMENT", help="the agreement in force, over or not")],
    ca: Annotated[Path, typer.Option(help="the authority's folder, or its ca.json")],
    leave: Annotated[list[str] | None, typer.Option(metavar="NAME", help="a party that leaves")] = None,
    join: Annotated[
        list[str] | None, typer.Option(metavar="NAME=RECORDS@HOST:PORT", help="a party that joins; no @: it dials out")
    ] = None,
    address: Annotated[
        list[str] | None, typer.Option(metavar="NAME=HOST:PORT", help="a party that moves; NAME= : it only dials out")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="any other change")] = None,
    out: Annotated[Path, typer.Option(help="the plan of the next agreement")] = Path("amended.toml"),
) -> None:
    """Write the plan of the agreement that follows: parties leave, join, move or have new keys; nobody's account ends.

    Then sign it as any plan. Its budget is in addition to what each party has spent, which its ledger carries over.

    Example: coterie plan amend agreement.json --ca authority --leave hill --out amended.toml
    """
    from coterie.deploy.agreement import EVER, read_agreement
    from coterie.deploy.amending import amended_plan, changes_in_words, newcomer
    from coterie.deploy.keys import read_authority
    from coterie.report.files import check_file, write_atomically
    from coterie.written import toml_of

    if out.exists():
        raise InputError(f"{out} exists: give another --out")
    check_file(out)
    before = read_agreement(agreement, read_authority(ca), EVER)
    moved = {}
    for text in address or []:
        name, equals, place = text.partition("=")
        if not equals:
            raise InputError(f"--address takes NAME=HOST:PORT, got {text!r}")
        moved[name] = place or None
    joining = [newcomer(text) for text in join or []]
    tree, plan = amended_plan(before, leave=leave or [], join=joining, addresses=moved, changes=set_ or [])
    write_atomically(out, lambda place: place.write_text(toml_of(tree), encoding="utf-8"))
    say = partial(console.print, highlight=False, markup=False)
    for line in changes_in_words(before, plan) or ["nothing changes but keys, for which certificates are read anew"]:
        say(line)
    say(f"the budget is in addition to what each party has spent under {before.plan_hash.hex()[:16]} and before it")
    say(f"wrote {out}; next: coterie plan sign {out} --ca {ca} --out next.json")


@app.command()
def check(
    plan: Annotated[
        Path | None, typer.Argument(metavar="[PLAN.toml]", help="a plan or an agreement; default: the embedded plan")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="override a key")] = None,
    rehearsal: Annotated[bool, typer.Option(help="try the plan on synthetic data of its shape")] = True,
) -> None:
    """Explain a plan or an agreement in words before anything runs: who sends what, what it costs, what to expect.

    Example: coterie plan check plan.toml
    """
    from coterie.plan import read_plan

    if plan is not None and _is_json(plan):
        from coterie.deploy.agreement import unverified

        if set_:
            raise InputError(f"--set does not apply to {plan}: an agreement is what was signed")
        found = unverified(plan)
        _show(found)
        console.print(f"The signature was not checked: coterie plan verify {plan} --ca ca.json", highlight=False)
        read = found.plan
    else:
        read = read_plan(plan, set_ or [])  # a mistake in it is told before the rest is loaded
    from coterie.explain import explain, rehearse

    lines, network, priced = explain(read)
    for line in lines:
        console.print(line, highlight=False, markup=False)
    if not rehearsal:
        return
    with console.status("rehearsing on synthetic data"):
        tried = rehearse(read, network, priced)
    if tried is None:
        console.print("No rehearsal: it knows logistic and hinge classifiers of moderate size.", highlight=False)
        return
    console.print(
        f"On made-up patients of this shape, each party's own: {tried.metric} {tried.score:.3f} by this plan, "
        f"{tried.alone:.3f} alone, {tried.pooled:.3f} with all records in one place. No promise: your data may be "
        "harder, and alone may do as well. `coterie run` on data like yours says who gains.",
        highlight=False,
    )


@app.command()
def verify(
    agreement: Annotated[Path, typer.Argument(metavar="AGREEMENT", help="agreement.json")],
    ca: Annotated[Path, typer.Option(help="the authority's ca.json")],
) -> None:
    """Check an agreement's signature, date and software, and show all that is agreed: cost, parties, every setting.

    Example: coterie plan verify agreement.json --ca ca.json
    """
    from coterie.deploy.agreement import read_agreement
    from coterie.deploy.keys import read_authority

    authority = read_authority(ca)
    found = read_agreement(agreement, authority)
    console.print(f"signed by {authority.name}", highlight=False, markup=False)
    _show(found)


def _is_json(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(1) == b"{"
    except OSError:
        return False  # whoever reads it next says why


def _show(agreement: Agreement) -> None:
    """All that is agreed: cost first, then who takes part, then every setting."""
    from coterie.deploy.wording import columns, headlines, settings

    say = partial(console.print, highlight=False, markup=False)
    until, protocol = f"{agreement.valid_until:%Y-%m-%d %H:%M} UTC", f"protocol {agreement.protocol}"
    say(f"valid until {until}, {protocol}, drawn up with {agreement.software}")
    for line in headlines(agreement):
        say(line)
    names, rows = columns(agreement)
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
    say("every setting that is signed:")
    for line in settings(agreement):
        say(f"  {line}")
