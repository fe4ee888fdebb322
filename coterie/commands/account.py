"""`coterie account`: what a plan costs, without data; and the account that a data set has for life."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from coterie.commands import PROVE, PlanArgument, SetOption, console, out_of_budget
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.deploy.accounts import AccountStatement, DataAccount, Settled
    from coterie.privacy.events import Event
    from coterie.privacy.lifetime import Unit

__all__ = ["DEFAULT", "PANEL", "app"]

PANEL = PROVE
DEFAULT = "plan"
SHOWN = ("algorithm", "rounds", "private", "claim", "epsilon", "delta", "accountant", "adjacency", "adversary",
         "paper_claim")  # fmt: skip


class _PlanUnlessNamed(TyperGroup):
    """`coterie account PLAN.toml` is `coterie account plan PLAN.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_PlanUnlessNamed,
    help="What a plan costs, without data: `coterie account PLAN.toml`. And the account of a data set, one budget for "
    "as long as it is kept, on which agreements and fits draw before they release anything: the other commands.",
)
FileArgument = Annotated[Path, typer.Argument(metavar="ACCOUNT", help="the account's file")]
JsonOption = Annotated[bool, typer.Option("--json", help="machine-readable")]


# ---- a plan ----------------------------------------------------------------------------------------------------------


@app.command(DEFAULT)
def plan(plan: PlanArgument = None, set_: SetOption = None, as_json: JsonOption = False) -> None:
    """What a plan costs every agent, by every valid accountant, without reading any data.

    Sizes are public and fix the noise: the plan must state them (partition.sizes, or agents and records).
    """
    from coterie.plan import read_plan

    asked = read_plan(plan, set_)  # a mistake in it is told before the rest is loaded
    from coterie.contracts import check_contract
    from coterie.data import find_source
    from coterie.experiment import public_network
    from coterie.pricing import needs_dimension, price
    from coterie.privacy.people import unit_words
    from coterie.report.result import privacy_block

    check_contract(asked)
    network = public_network(asked)
    if needs_dimension(asked, network):
        raise InputError(f"the price of {asked.algorithm.name} depends on the dimension: state problem.dim in the plan")
    priced = price(asked, network)
    paid = privacy_block(asked, network.problem, priced)
    if paid is None:
        raise InputError(f"{priced.algorithm.slug} is not private: there is nothing to account for")
    block = {"algorithm": priced.algorithm.slug, "rounds": priced.rounds, **paid}
    if as_json:
        console.print_json(json.dumps(block))
        return
    handed = find_source(asked.data.source).handed and asked.deploy is None
    shown = Table(box=None, show_header=False)
    for key in SHOWN:
        value = block[key]
        text = "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
        text = {"True": "yes", "False": "cannot tell" if handed else "no"}.get(text, text)
        shown.add_row(key.replace("_", " "), text)
    for name, value in paid["all_accountants"].items():
        shown.add_row(f"  by {name}", "∞" if value is None else f"{value:.6g}")
    for other in paid["other_claims"]:
        epsilon = "∞" if other["epsilon"] is None else f"{other['epsilon']:.6g}"
        shown.add_row(other["name"], f"ε = {epsilon} against one who {other['adversary']}")
    epsilons = paid["per_agent"]
    for i, (e, z) in enumerate(zip(epsilons[:12], paid["noise_multiplier"], strict=False)):
        shown.add_row(f"agent {i}", f"ε = {'∞' if e is None else f'{e:.6g}'}, noise multiplier {z:.6g}")
    if len(epsilons) > 12:
        shown.add_row("", f"… and {len(epsilons) - 12} more")
    console.print(shown)
    whom = f"ε is for one {paid['protects']['unit']}; {unit_words(paid['protects'], paid['delta'])}"
    console.print(whom, highlight=False, markup=False)
    for warning in priced.warnings:
        console.print(f"[yellow]warning:[/] {warning}")


# ---- the account of a data set ---------------------------------------------------------------------------------------


def _account(path: Path) -> DataAccount:
    from coterie.deploy.accounts import DataAccount

    return DataAccount(path)


def _say(text: str) -> None:
    Console(soft_wrap=True).print(text, highlight=False, markup=False)


@app.command("open")
def open_(
    account: FileArgument,
    data: Annotated[list[Path], typer.Option(help="the records: CSV, Parquet or npz; again for more about the same")],
    epsilon: Annotated[float, typer.Option(help="ε for the life of the data")],
    delta: Annotated[float, typer.Option(help="δ for the life of the data; 0: pure draws only")],
    name: Annotated[str, typer.Option(help="what people call the data set; default: the file's name")] = "",
    unit: Annotated[str, typer.Option(help="whose budget it is: record or person")] = "record",
    records_per_person: Annotated[
        int | None, typer.Option(help="with --unit person: nobody has more; lets draws priced per record in, dearer")
    ] = None,
    measure: Annotated[
        str | None, typer.Option(help="how draws add up: gaussian (default), renyi (any noise, dearer), pure (δ = 0)")
    ] = None,
    adjacency: Annotated[str, typer.Option(help="replace-one, add-remove or zero-out")] = "replace-one",
    against: Annotated[
        str, typer.Option(help="agreed: whom each draw's claim names; everybody: all other parties together")
    ] = "agreed",
    reserve: Annotated[
        float | None, typer.Option(help="part of δ for draws that have a δ of their own; default: a hundredth")
    ] = None,
    may: Annotated[list[str] | None, typer.Option(help="who may draw beside you: a party, its key, a user")] = None,
) -> None:
    """Open the account of a data set that nothing was released of yet. Its rules are for good.

    Example: coterie account open clinic.account --data patients.csv --epsilon 3 --delta 1e-6 --may harbour
    """
    from coterie.deploy.accounts import DataAccount
    from coterie.privacy.ledger import Budget

    made = DataAccount.open(
        account, Budget(epsilon, delta), data={str(path): path for path in data}, name=name,
        unit=unit, most=records_per_person, measure=measure, adjacency=adjacency,  # type: ignore[arg-type]
        against=against, reserve=reserve, may=may or (),  # type: ignore[arg-type]
    )  # fmt: skip
    found = made.statement()
    _say(str(found))
    if found.draws:
        _say("an account of these very records was closed, and what it has paid stays paid: it is drawn here too")
    _say(f"back up {made.path} and {made.keeper} together, and restore neither: an old copy is refused")


@app.command()
def show(account: FileArgument, as_json: JsonOption = False) -> None:
    """Print an account: what is spent and left, every draw, the records it is for, who may draw. Nothing is changed."""
    found = _account(account).statement()
    if as_json:
        console.print_json(json.dumps(found.as_json()))
        return
    _describe(found)


def _describe(found: AccountStatement) -> None:
    from coterie.privacy.lifetime import AGAINST

    rules = found.rules
    _say(str(found))
    how = {"gaussian": "μ² adds", "renyi": "Rényi divergences of one order add", "pure": "ε adds"}[rules.measure]
    _say(f"{how}, whatever is drawn next; neighbours: {rules.adjacency}; against {AGAINST[rules.against]}")
    _say(f"may draw: {', '.join(found.holders) or 'nobody'}")
    for epoch in found.epochs:
        begins = "with nothing spent" if epoch.all_new else "and goes on: what was drawn before stays drawn"
        why = ", all new as stated" if epoch.all_new and epoch.number else ""
        _say(f"epoch {epoch.number} from {epoch.created[:10]}{why}, {begins}: {', '.join(epoch.data)}; by {epoch.by}")
    if not found.draws:
        return
    table = Table("row", "when", "what", "by", "unit", "ε alone", "epoch")
    for draw in found.draws:
        what = draw.what + (f" (ended: {draw.settled})" if draw.settled else "")
        table.add_row(str(draw.number), draw.created[:10], what, draw.by, draw.unit, f"{draw.epsilon:.4g}",
                      str(draw.epoch))  # fmt: skip
    console.print(table)


@app.command()
def charge(
    account: FileArgument,
    what: Annotated[str, typer.Option(help="what is released, in words")],
    data: Annotated[Path, typer.Option(help="the records that it is of")],
    mu: Annotated[float | None, typer.Option(help="of a Gaussian release: sensitivity over noise")] = None,
    epsilon: Annotated[float | None, typer.Option(help="of a release by other means")] = None,
    delta: Annotated[float, typer.Option(help="with --epsilon; comes out of the account's reserve")] = 0.0,
    ledger: Annotated[
        Path | None, typer.Option(help="an agent's ledger from before the account: its plan, or what it sent if closed")
    ] = None,
    key: Annotated[str | None, typer.Option(help="a name of your own: the same key is drawn once")] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="that the price is for: record (default) or person; a --ledger's agreement says it"),
    ] = None,
    person: Annotated[
        str | None, typer.Option(help="with --unit person: the column that says whose a record is; it must stay so")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Draw on an account, before the release that it pays for. Exit code 3: it does not fit, and nothing was drawn.

    Agents draw by themselves (`coterie agent --account`), and fits in Python (`account=`): this is for the rest.

    Example: coterie account charge clinic.account --what "mean age, published" --data patients.csv --mu 0.05
    """
    from coterie.privacy.filter import BudgetExceeded

    cost = _cost(mu, epsilon, delta, ledger, key, unit)
    if ledger is not None:
        _need_its_claim(_account(account), ledger, key)
    if person is not None and cost.unit != "person":
        raise InputError(f"--person {person} goes with --unit person")
    try:
        draw = _account(account).charge(
            cost.events,
            what=what,
            kind="statistic",
            key=cost.key,
            data=data,
            by=cost.by,
            unit=cost.unit,
            settle=cost.settle,
            people=person,
        )
    except BudgetExceeded as error:
        raise out_of_budget(error) from None
    found = _account(account).statement()
    if as_json:
        block = {"number": draw.number, "key": draw.key, "epsilon": draw.epsilon, "spent": found.spent,
                 "left": found.left}  # fmt: skip
        console.print_json(json.dumps(block))
        return
    _say(f"drawn: ε {draw.epsilon:.4g} for {draw.what}, row {draw.number}")
    _say(str(found))


class _Cost(NamedTuple):
    """What `charge` draws: by names, or by this user where there are none."""

    events: Sequence[Event]
    key: str | None
    unit: Unit
    by: tuple[str, ...] = ()
    settle: Sequence[Settled] = ()


def _cost(
    mu: float | None, epsilon: float | None, delta: float, ledger: Path | None, key: str | None, unit: str | None
) -> _Cost:
    from coterie.privacy.events import Gaussian, Pure

    if sum(given is not None for given in (mu, epsilon, ledger)) != 1:
        raise InputError("say what it costs by one of --mu, --epsilon (with --delta) and --ledger")
    if delta and epsilon is None:
        raise InputError(f"--delta {delta:g} goes with --epsilon")
    if mu is not None:
        if not mu > 0:
            raise InputError(f"--mu must be > 0, got {mu:g}")
        return _Cost([Gaussian(mu, 1.0)], key, unit or "record")  # type: ignore[arg-type]
    if epsilon is not None:
        if not (epsilon > 0 and 0 <= delta < 1):
            raise InputError(f"--epsilon must be > 0 and --delta in [0, 1), got {epsilon:g} and {delta:g}")
        # what (ε, δ) allows at worst: all with chance δ, else ε
        return _Cost([Pure(epsilon, slack=delta)], key, unit or "record")  # type: ignore[arg-type]
    assert ledger is not None
    return _cost_of_ledger(ledger, key, unit)


def _cost_of_ledger(ledger: Path, key: str | None, unit: str | None) -> _Cost:
    """What a ledger has sent, if it is closed for good; else all that its agent may still send without the account."""
    from coterie.deploy.accounts import Settled, agreement_key, login, unit_of
    from coterie.deploy.agreement import AGREEMENT, unverified
    from coterie.deploy.reading import read
    from coterie.privacy.codec import from_json

    book = read(ledger)
    place, meta = ledger.resolve().parent / AGREEMENT, book.meta
    if place.exists() and (agreed := unverified(place)).plan_hash == meta.plan_hash:
        says = unit_of(agreed.plan)
        if unit not in (None, says):
            raise InputError(f"--unit {unit}, but the agreement of {ledger} is priced for each {says}")
        unit = says
    if unit is None:
        raise InputError(
            f"{place} is not there, or is not the agreement of {ledger}: say by --unit what it is priced for"
        )
    events = book.allowance.used() if book.stopped is not None else meta.events()
    key = key or agreement_key(meta.plan_hash.hex(), meta.agent)
    before = [
        Settled(
            agreement_key(run.plan_hash, meta.agent), [from_json(row) for row in run.events],  # type: ignore[arg-type]
            f"agreement {run.plan_hash[:16]}", f"agreement {meta.plan_hash.hex()[:16]} follows",
        )
        for run in book.earlier
    ]  # fmt: skip
    return _Cost(events, key, unit, (meta.agent, login()), before)  # type: ignore[arg-type]


def _need_its_claim(account: DataAccount, ledger: Path, key: str | None) -> None:
    """Refuse an account that holds against others than a ledger's charges do, or that has paid for another end."""
    from coterie.deploy.drawing import need_one_end
    from coterie.deploy.reading import read
    from coterie.deploy.succession import plan_of, pooled

    book = read(ledger)
    plan, everybody = plan_of(book, ledger.resolve().parent), account.contents().rules.against == "everybody"
    shared = plan is not None and pooled(plan) is not None
    if everybody and (shared or plan is None or book.earlier):
        raise InputError(
            f"account {account.path} holds against everybody, and what the rounds of {ledger} cost then is not in it: "
            "work that out, and say it by --mu"
        )
    if plan is not None and shared:
        if key is not None:
            raise InputError(f"--key {key}: where parties share noise, a ledger is drawn under its agreement's name")
        need_one_end(account, plan, book.meta.plan_hash.hex(), book.meta.agent)


@app.command()
def epoch(
    account: FileArgument,
    data: Annotated[list[Path], typer.Option(help="the records from now on; again for more about the same")],
    all_new: Annotated[
        bool, typer.Option("--all-new", help="you state that nobody in them was in the data of any epoch before")
    ] = False,
) -> None:
    """Say that the records have changed. Nothing is refilled: whoever was in the data before stays charged.

    With --all-new the records begin with nothing spent, and those before are not drawn for any more.
    """
    made = _account(account).epoch({str(path): path for path in data}, all_new=all_new)
    begins = "with nothing spent, as you state that all are new" if all_new else "and the account goes on"
    _say(f"epoch {made.number} begins, {begins}")
    _say(str(_account(account).statement()))


@app.command()
def allow(
    account: FileArgument,
    name: Annotated[str, typer.Argument(help="a party, the fingerprint of its frame key, or a user")],
    no_more: Annotated[bool, typer.Option("--no-more", help="from now on that one may not")] = False,
) -> None:
    """Let somebody draw on an account, or not any more."""
    _account(account).allow(name, not no_more)
    _say(f"may draw: {', '.join(_account(account).statement().holders) or 'nobody'}")


@app.command()
def close(
    account: FileArgument, why: Annotated[str, typer.Option(help="why, in words")] = "closed by its keeper"
) -> None:
    """End an account for good: nothing is drawn any more, and nothing is forgotten."""
    _account(account).close(why)
    _say(str(_account(account).statement()))
