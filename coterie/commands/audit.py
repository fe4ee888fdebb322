"""`coterie audit`: attack our own implementation, and show the least that it can have spent beside what it claims."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from coterie.arguments import budgets
from coterie.commands import PROVE, console, look_at
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.algorithms.base import Algorithm
    from coterie.audit.claims import Found
    from coterie.audit.planned import Looked
    from coterie.audit.wire import WireVerdict
    from coterie.plan import Plan

__all__ = ["PANEL", "app", "report"]

PANEL = PROVE
app = typer.Typer()


WORDS = {"REFUTED": "[bold red]REFUTED[/]", "could not check": "[red]could not check[/]"}


def run(
    targets: list[str], epsilons: list[float], delta: float, trials: int | None, as_json: bool,
    out: Path | None, console: Console, wire: bool = False, shared: bool = False, person: bool = False,
) -> int:  # fmt: skip
    """Audit what is named (all private algorithms if nothing is); the exit code, 1 unless all of it holds.

    A folder is a deployed run that left ledgers; with `wire` the bytes of deployed parties are attacked, with `shared`
    the sums that they open.
    """
    from coterie.report.files import check_out

    if shared and not wire:
        raise InputError("--shared goes with --wire: it attacks what deployed parties open")

    if person and wire:
        raise InputError("--person is for transcripts of algorithms: it does not go with --wire")
    if folders := [Path(t) for t in targets if Path(t).is_dir()]:
        if len(folders) < len(targets) or wire:
            raise InputError("folders of deployed runs are audited by themselves: give nothing else with them")
        return _recorded(folders, as_json, out, console)
    if not 0 < delta < 1:
        raise InputError(f"--delta must be in (0, 1), got {delta}")
    if out is not None:
        check_out(out)
    if wire:
        return _wire(targets, epsilons, delta, trials or 1000, as_json, out, console, shared)
    return report(_claims(targets, epsilons, delta, trials, person), as_json, out, console)


def report(jobs: list[tuple], as_json: bool, out: Path | None, console: Console) -> int:
    """Do audits, show and store what they found; the exit code, 1 unless all of it holds."""
    from coterie.audit.picture import tradeoff_curves
    from coterie.report.files import write_atomically, write_json

    found = []
    with _progress(Console(quiet=True) if as_json else console) as step:
        for name, work, count in jobs:
            found.append(work(partial(step, name, count)))
    if as_json:
        console.print_json(json.dumps([f.as_json() for f in found]))
    else:
        console.print(table(found))
        for f in found:
            bets = [f"bets: {f.bets.verdict}"] if f.bets is not None and f.bets.refuted else []
            for reason in [*f.verdict.reasons, *bets, *f.failed]:
                console.print(f"  {f.verdict.algorithm}: {reason}", highlight=False, markup=False)
            for where in f.looked:
                console.print(f"  looked at {where}", highlight=False, markup=False)
    if out is not None:
        write_json(out / "audit.json", [f.as_json() for f in found])
        write_atomically(out / "tradeoff.png", partial(tradeoff_curves, [(f.setting, f.verdict) for f in found]))
        if not as_json:
            console.print(f"wrote audit.json and tradeoff.png to {out}", highlight=False)
    return int(any(f.violated or f.undecided for f in found))


def table(found: list[Found]) -> Table:
    """Claim, bound, bets, checks and verdict of every audit."""
    sure = ", ".join(dict.fromkeys(f"{1 - f.verdict.confidence:.2g}" for f in found))
    shown = Table(
        header_style="bold", title="what transcripts prove, at least", title_justify="left", caption_justify="left",
        caption=f"claim: (ε, δ); a true one is refuted with a chance of {sure} at most",
    )  # fmt: skip
    shown.add_column("algorithm", overflow="fold", min_width=15)
    for name in ("claim", "ε ≥", "trials", "bets", "checks"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for f in found:
        v = f.verdict
        name = f"{v.algorithm}, {f.what}" if f.what else v.algorithm
        bets = "" if f.bets is None else f"won, {f.bets.pairs}" if f.bets.refuted else "lost"
        ways = "" if f.checks is None else f"{len(f.checks) - len(f.failed)}/{len(f.checks)}"
        claim = f"{v.epsilon:.4g}, {v.delta:g}"
        shown.add_row(name, claim, f"{v.lower_bound:.3f}", str(v.trials), bets, ways, WORDS.get(f.word, f.word))
    return shown


def _claims(
    targets: list[str], epsilons: list[float], delta: float, trials: int | None, person: bool
) -> list[tuple]:  # fmt: skip
    """Our own claims: each algorithm at each ε on every loss that it accepts, and each plan at its own."""
    from coterie.algorithms.base import all_algorithms, find
    from coterie.audit import checks
    from coterie.audit.claims import TRIALS, attack, attack_whole
    from coterie.audit.planned import of_plan, sums
    from coterie.privacy.ledger import Budget

    count = trials or TRIALS

    def whole(algorithm: Algorithm, epsilon: float, report: Callable[[float], None]) -> Found:
        return attack_whole(algorithm, Budget(epsilon, delta), count, report, person=person)

    def planned(plan: Plan, looked: list[Looked], report: Callable[[float], None]) -> Found:
        found = sums(plan)
        for k, one in enumerate(looked):
            report(0.5 * k / len(looked))
            found += [(one.words, f) for f in checks.examine(checks.gather(one.setting))]
        return attack(looked[0].setting, found, count, lambda share: report(0.5 + share / 2), planned=True)

    jobs = []
    for target in targets or [s for s, a in all_algorithms().items() if a.private and (not person or _for_people(a))]:
        if Path(target).suffix == ".toml":
            if person:
                raise InputError(f"--person is for algorithms: {target} states its unit itself (data.unit)")
            jobs.append((target, partial(planned, *of_plan(Path(target))), count))
            continue
        algorithm = find(target)
        if not algorithm.private:
            raise InputError(f"{algorithm.slug} makes no privacy claim: there is nothing to audit")
        for epsilon in epsilons:
            jobs.append((f"{target} at ε = {epsilon:g}", partial(whole, algorithm, epsilon), count))
    return jobs


def _for_people(algorithm: Algorithm) -> bool:
    """Whether its proof holds for people, on some loss."""
    from coterie.audit.losses import accepted

    return bool(accepted(algorithm, person=True))


def _recorded(folders: list[Path], as_json: bool, out: Path | None, console: Console) -> int:
    """Deployed runs, from their ledgers and frames."""
    from coterie.audit.recorded import audit_folder
    from coterie.report.files import check_out, write_json

    if out is not None:
        check_out(out)
    found = [(folder, party) for folder in folders for party in audit_folder(folder)]
    rows = [{"folder": str(folder), **party.as_json()} for folder, party in found]
    if as_json:
        console.print_json(json.dumps(rows))
    else:
        shown = Table(header_style="bold", title="what ledgers and frames show", title_justify="left")
        for name in ("party", "rounds", "check", "verdict", "found"):
            shown.add_column(name, justify="right" if name == "rounds" else "left", overflow="fold")
        for _, party in found:
            for k, f in enumerate(party.findings):
                verdict = {"holds": "holds", "refuted": "[bold red]REFUTED[/]"}.get(
                    f.verdict, "[red]could not check[/]"
                )
                first = (party.name, str(party.rounds)) if k == 0 else ("", "")
                shown.add_row(*first, f.check, verdict, f.detail)
        console.print(shown)
    if out is not None:
        write_json(out / "recorded.json", rows)
    return int(any(not party.passed for _, party in found))


def _wire(
    targets: list[str], epsilons: list[float], delta: float, trials: int, as_json: bool, out: Path | None,
    console: Console, shared: bool,
) -> int:  # fmt: skip
    """Deployed parties, attacked through the integers that they send, or through the sums that they open."""
    from coterie.audit.wire import WireVerdict
    from coterie.report.files import write_json

    jobs, found = _wire_jobs(targets, epsilons, delta, trials, shared), list[WireVerdict]()
    with _progress(Console(quiet=True) if as_json else console) as step:
        for k, (name, work) in enumerate(jobs):
            step(name, trials, k / len(jobs))
            found += work()
    rows = [v.as_json() for v in found]
    if as_json:
        console.print_json(json.dumps(rows))
    else:
        shown = Table(header_style="bold", title="what the bytes of deployed parties prove, at least")
        shown.add_column("algorithm", overflow="fold")
        for name in ("claimed ε", "δ", "ε ≥", "μ ≥", "claimed μ", "per world"):
            shown.add_column(name, justify="right", no_wrap=True)
        shown.add_column("verdict", no_wrap=True)
        for v in found:
            mu = "" if v.mu is None else f"{v.mu:.3f}"
            verdict = "[bold red]REFUTED[/]" if v.violated else "holds"
            shown.add_row(v.algorithm, f"{v.epsilon:.4g}", f"{v.delta:g}", f"{v.lower_bound:.3f}",
                          f"{v.mu_bound:.3f}", mu, str(v.trials), verdict)  # fmt: skip
        console.print(shown)
    if out is not None:
        write_json(out / "wire.json", rows)
    return int(any(v.violated for v in found))


def _wire_jobs(
    targets: list[str], epsilons: list[float], delta: float, trials: int, shared: bool
) -> list[tuple[str, Callable[[], Sequence[WireVerdict]]]]:
    """Attacks on bytes by name: algorithms at each ε, and plans with shared noise at their own."""
    from coterie.algorithms import ALGORITHMS
    from coterie.algorithms.base import all_algorithms, find
    from coterie.audit.sums import audit_sums, sum_worlds, sums_of_plan
    from coterie.audit.wire import audit_wire, make_worlds
    from coterie.deploy.noise import refusal
    from coterie.plan import read_plan

    def summed(slug: str, epsilon: float) -> Sequence[WireVerdict]:
        return audit_sums(sum_worlds(slug, epsilon=epsilon, delta=delta), trials)

    def sent(slug: str, epsilon: float) -> Sequence[WireVerdict]:
        against = (False, True) if find(slug).own_cost is not None else (False,)
        return [audit_wire(make_worlds(slug, epsilon=epsilon, delta=delta, everybody=e), trials) for e in against]

    def planned(path: Path) -> Sequence[WireVerdict]:
        return audit_sums(sums_of_plan(read_plan(path, [])), trials)

    if shared and not targets:
        raise InputError(
            "--shared needs algorithms by name, such as dp-dsgd or gauss-avg-gd: those that read only totals"
        )
    able = [slug for slug, algorithm in all_algorithms().items() if algorithm.wire is not None]
    able += [slug for slug, _ in ALGORITHMS.apart if find(slug).wire is not None]
    jobs: list[tuple[str, Callable[[], Sequence[WireVerdict]]]] = []
    for target in targets or able:
        if Path(target).suffix == ".toml":
            jobs.append((f"{target}, opened sums", partial(planned, Path(target))))
            continue
        slug = find(target).slug
        if reason := refusal(find(target), find(target).config()):
            raise InputError(f"{slug} cannot be deployed, so it sends no bytes to attack: {reason}")
        work, what = (summed, "opened sums") if shared else (sent, "bytes")
        jobs += [(f"{slug} at ε = {epsilon:g}, {what}", partial(work, slug, epsilon)) for epsilon in epsilons]
    return jobs


def _seats(
    targets: list[str], names: list[str], trials: int | None, as_json: bool, out: Path | None, console: Console
) -> int:
    """Plans, from the seat of some of their parties."""
    from coterie.audit.seats import FromSeat, from_seat
    from coterie.report.files import check_out, write_json

    if not targets or any(Path(t).suffix != ".toml" for t in targets):
        raise InputError(f"--observer needs plans (.toml), got {', '.join(targets) or 'nothing'}")
    if out is not None:
        check_out(out)
    found = list[FromSeat]()
    with _progress(Console(quiet=True) if as_json else console) as step:
        for target in targets:
            found += from_seat(Path(target), names, trials, partial(step, target, trials or 10_000))
    rows = [one.as_json() for one in found]
    if as_json:
        console.print_json(json.dumps(rows))
    else:
        sure = f"{found[0].seen.confidence:.0%}"
        shown = Table(
            header_style="bold", title=f"what {found[0].observers} learns of others", title_justify="left",
            caption=f"against one who {found[0].against}. Bounds hold at {sure}; δ = {found[0].delta:g}; "
            f"{found[0].rounds} rounds",
            caption_justify="left",
        )  # fmt: skip
        shown.add_column("record of", overflow="fold", min_width=8)
        for name in ("hops", "claim ε", "ε ≥", "claim μ", "μ ≥", "formula"):
            shown.add_column(name, justify="right", no_wrap=True)
        shown.add_column("verdict", no_wrap=True)
        for one, row in zip(found, rows, strict=True):
            other = "" if one.formula is None else f"{row['formula_epsilon']:.3g}{' ✗' if one.formula_refuted else ''}"
            shown.add_row(
                one.party, str(one.distance), f"{row['claimed_epsilon']:.4g}",
                f"{row['epsilon_at_least']:.3f}", f"{one.claimed:.3f}", f"{one.seen.mu:.3f}", other,
                WORDS["REFUTED"] if one.refuted else "holds",
            )  # fmt: skip
        console.print(shown)
        if any(one.formula is not None for one in found):
            console.print("formula: the matrix-factorisation account, which is not proved for learning and no claim of "
                          "this plan; ✗: refuted here (docs/errata.md)", highlight=False)  # fmt: skip
    if out is not None:
        write_json(out / "observers.json", rows)
    return int(any(one.refuted for one in found))


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int, float], None]]:
    """A bar per audit."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def step(name: str, count: int, share: float) -> None:
            bar.update(task, description=f"{name}, 2 × {count}", completed=share)

        yield step


@app.command()
def command(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ALGORITHM | PLAN.toml | FOLDER]...",
            help="default: every private algorithm; a folder is a deployed run that left ledgers",
        ),
    ] = None,
    epsilons: Annotated[str, typer.Option(help="comma-separated budgets of the algorithms")] = "1,8",
    delta: Annotated[float, typer.Option(help="δ of these budgets")] = 1e-5,
    trials: Annotated[int | None, typer.Option(min=1, max=10**7, help="transcripts per world; default 1000")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
    out: Annotated[Path | None, typer.Option(help="folder for audit.json and tradeoff.png")] = None,
    wire: Annotated[
        bool,
        typer.Option("--wire", help="attack the integers that deployed parties send; of a plan, the sums they open"),
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="with --wire: attack the sums of five parties that share their noise")
    ] = False,
    observer: Annotated[
        str | None,
        typer.Option(help="of plans: parties, by name and with commas between them, who look from where they sit"),
    ] = None,
    infer: Annotated[
        bool, typer.Option("--infer", help="guess an attribute from the messages, and a record from the model")
    ] = False,
    person: Annotated[
        bool, typer.Option("--person", help="worlds that differ in a person with 40 records, and not in one record")
    ] = False,
) -> None:
    """Attack our own implementation, on every loss that an algorithm accepts: what it must spend at least.

    Exit code 1: a claim is refuted, or something could not be checked.

    Example: coterie audit pr-admm dvp --epsilons 1,8 --trials 5000 --out runs/audit
    """
    if infer:
        if wire or shared or person or observer is not None:
            raise InputError("--infer guesses what a record says: leave out --wire, --shared, --person and --observer")
        if not 0 < delta < 1:
            raise InputError(f"--delta must be in (0, 1), got {delta}")
        levels = budgets("--epsilons", epsilons)
        from coterie.commands._inferred import inferred

        if inferred(targets or [], levels, delta, trials or 1000, as_json, out, console, _progress):
            raise typer.Exit(1)
        return
    look_at([Path(t) for t in targets or [] if t.endswith(".toml")], None)
    if observer is not None:
        if wire or shared or person:
            raise InputError("--observer looks at plans from a seat: leave out --wire, --shared and --person")
        if _seats(targets or [], observer.split(","), trials, as_json, out, console):
            raise typer.Exit(1)
        return
    if run(targets or [], budgets("--epsilons", epsilons), delta, trials, as_json, out, console, wire, shared, person):
        raise typer.Exit(1)
