"""`coterie stats`: counts, means, quantiles and correlations of a plan's table, in one noisy sum."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from coterie.commands import LEARN, PlanArgument, SetOption, console, out_of_budget
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.deploy.accounts import DataAccount
    from coterie.released.covered import CoveredNumber
    from coterie.released.table_statistics import TableStatistics

__all__ = ["PANEL", "app"]

PANEL = LEARN
app = typer.Typer()
SHOWN = 8  # levels of a column


@app.command()
def command(
    plan: PlanArgument = None,
    set_: SetOption = None,
    bins: Annotated[int, typer.Option(min=2, help="bins of a numeric column over its public range")] = 20,
    moments: Annotated[bool, typer.Option(help="also means, deviations and correlations")] = True,
    edges: Annotated[
        int | None, typer.Option(min=2, max=64, help="print edges of so many bins at quantiles, for [problem.bins]")
    ] = None,
    next_: Annotated[
        Path | None,
        typer.Option(
            "--next",
            help="of a plan with problem.bins at 'quantiles': count those columns alone, and write the plan that "
            "follows, with edges and what is left of the budget",
        ),
    ] = None,
    share: Annotated[float, typer.Option(help="with --next: the share of μ² that counts have")] = 0.1,
    out: Annotated[Path | None, typer.Option(help="file for all numbers, as JSON")] = None,
    account: Annotated[
        Path | None, typer.Option(help="the data set's account: what they cost is drawn first, or nothing is computed")
    ] = None,
) -> None:
    """Release statistics of a plan's table once: simulated, by its parties, exchange and budget.

    Ranges and levels are those that the plan states. A record that a model is trained on as well pays for both: with
    --account both draw on one budget, and the noise comes from the operating system. Exit code 3: it does not fit.

    Example: coterie stats plan.toml --out stats.json
    """
    from coterie.deploy.accounts import BudgetExceeded, DataAccount
    from coterie.plan import read_plan

    asked = read_plan(plan, set_) if next_ is None else None
    from coterie.released.statistics import planned_statistics
    from coterie.report.files import check_file, write_json

    for flag, path in {"--out": out, "--next": next_}.items():
        if path is not None:
            check_file(path, flag)  # what is paid for must find its place
    drawn = None if account is None else DataAccount(account)
    try:
        if asked is None:
            assert next_ is not None
            told = _write_next(plan, set_, next_, edges or 10, share, drawn)
        else:
            told = planned_statistics(asked, bins=bins, moments=moments, account=drawn)
    except BudgetExceeded as error:
        raise out_of_budget(error) from None
    _show(told, seeded=account is None)
    if edges is not None and next_ is None:
        _print_edges(told, edges)
    if out is not None:
        write_json(out, told.as_json())
        console.print(f"wrote {escape(str(out))}", highlight=False)


def _write_next(
    plan: Path | None, changes: list[str] | None, path: Path, bins: int, share: float, account: DataAccount | None
) -> TableStatistics:
    """Count what a plan's quantiles need, and write the plan that follows."""
    from coterie.released.quantile_plan import staged
    from coterie.report.files import write_atomically
    from coterie.written import read_tree, toml_of

    if path.exists():
        raise InputError(f"{path} is there already: --next writes a new plan")
    done = staged(read_tree(plan, "default.toml", changes), bins=bins, share=share, account=account)
    data = done.tree["data"]
    if isinstance(data.get("path"), str):
        data["path"] = os.path.relpath(data["path"], path.parent)
    write_atomically(path, lambda place: place.write_text(toml_of(done.tree), "utf-8"))
    console.print(
        f"wrote {escape(str(path))}: quantiles ε = {done.counts.epsilon:.4g}, then ε = {done.training.epsilon:.4g}, "
        f"together ({done.whole.epsilon:.4g}, {done.whole.delta:g})",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return done.told


def _show(told: TableStatistics, *, seeded: bool) -> None:
    number = lambda n: f"{n.value:.5g} ± {n.error:.2g}" if n.value is not None else f"refused: {n.why}"  # noqa: E731
    shown = Table(box=None, header_style="bold")
    for column in ("column", "mean", "deviation", "median (95 %)", "shares"):
        shown.add_column(column)
    for name, many in zip(told.names, told.problem.levels, strict=True):
        if many:
            shown.add_row(escape(name), "", "", "", escape(_shares(told.histogram(name))))
            continue
        try:
            middle = told.quantile(name, 0.5)
            median = f"{middle.value:.5g} ({middle.low:.5g} to {middle.high:.5g})"
        except InputError as error:  # it is paid for: what can be said is said
            median = f"refused: {error}"
        moments = (number(told.mean(name)), number(told.std(name))) if told.problem.moments else ("", "")
        shown.add_row(escape(name), *moments, median, "")
    console.print(shown)
    assert told.once is not None
    claim, unit = told.once.priced.claims[0], told.once.unit
    console.print(
        f"covered by ε: ({claim.account.epsilon:.4g}, {claim.account.delta:g}) per {unit} for all of it, in one "
        f"release of {told.problem.size} numbers; the adversary {claim.adversary}. "
        + ("A simulation: the noise has a seed" if seeded else "Drawn from the account"),
        highlight=False,
    )


def _print_edges(told: TableStatistics, bins: int) -> None:
    """A table for a later plan; it costs nothing more."""
    from coterie.released.quantile_bins import edges_of

    lines = ["[problem.bins]  # at quantiles, which the release above has paid for"]
    for name, many in zip(told.names, told.problem.levels, strict=True):
        if not many:
            found = ", ".join(f"{edge:.6g}" for edge in edges_of(told, name, bins))
            lines.append(f"{json.dumps(name, ensure_ascii=False)} = [{found}]")
    console.print(escape("\n".join(lines)), highlight=False, soft_wrap=True)


def _shares(levels: dict[str, CoveredNumber]) -> str:
    some = [f"{name} {n.value:.3f} ± {n.error:.3f}" for name, n in list(levels.items())[:SHOWN]]
    return ", ".join(some) + (f" and {len(levels) - SHOWN} more" if len(levels) > SHOWN else "")
