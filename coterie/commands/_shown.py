"""What `coterie run` prints of a result: who gains, the run between its references, and the lines under that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.commands import show_whole

if TYPE_CHECKING:
    from coterie.released.covered import ToldCovered
    from coterie.report.schema import RunResult
    from coterie.worth.verdict import Model, SaidWorth, WorthMean

__all__ = ["covered_line", "notes", "show_worth", "table"]

COLUMNS = {"accuracy": "accuracy", "auc": "AUC", "log-loss": "log-loss", "r2": "R²", "loss": "loss"}
EXTRA = {"test_auc": "AUC"}
COMPARED = {"alone_s": "for every party alone", "pooled_s": "for all records in one place"}
SHOWN = 12  # parties in the table


def show_worth(worth: SaidWorth, console: Console) -> None:
    """Every party's choices on its own test records, and the sentence that they come to."""
    every: tuple[Model, ...] = ("alone", "private", "blend", "pooled")
    kinds = [kind for kind in every if kind in worth["mean"]]
    shown = Table(box=None, header_style="bold", title_justify="left", title_style="bold")
    over = f", mean of {worth['splits']} splits" if worth["splits"] > 1 else ""
    shown.title = f"{COLUMNS[worth['metric']]} on each party's own test records{over}"
    for column in ("party", "records", *kinds, "gain, 95 %", ""):
        shown.add_column(column, justify="left" if column in ("party", "") else "right", no_wrap=column != "party")
    number = lambda x: "" if x is None else f"{x:.3f}"  # noqa: E731

    def line(name: str, records: str, row: WorthMean) -> None:
        gained, told = "", row["verdict"] or "too few"
        if row["gain"] is not None and row["high"] is not None:
            gained = f"{row['gain']:+.3f} ± {row['high'] - row['gain']:.3f}"
        shown.add_row(escape(name), records, *(number(row.get(kind)) for kind in kinds), gained, told)

    for row in worth["parties"][:SHOWN]:
        line(row["name"], str(row["records"]), row)
    if kinds:
        count = len(worth["parties"])
        line("mean" if count == worth["of"] else f"mean of {count} of {worth['of']}", "", worth["mean"])
    for row in worth["outsiders"]:
        line(f"{row['name']} (took no part)", str(row["records"]), row)
    show_whole(shown, console)
    if len(worth["parties"]) > SHOWN:
        console.print(f"{len(worth['parties']) - SHOWN} more parties are in result.json", highlight=False)
    console.print(f"[bold]{escape(worth['sentence'])}[/]", highlight=False)


def table(result: RunResult) -> Table:
    """The run between its references, on everybody's test records."""
    from coterie.report.result import epsilon_words

    score = "test_accuracy" if "test_accuracy" in result["metrics"] else "test_score"
    epsilon = "" if result["privacy"] is None else f", {epsilon_words(result['privacy'])}"
    title = f"{result['algorithm']['name']}{epsilon}, on everybody's test records"
    shown = Table(box=None, header_style="bold", title=title, title_justify="left", title_style="bold")
    metrics, references = result["metrics"], result["references"]
    extra = [key for key in EXTRA if key in metrics]
    named = "accuracy" if score == "test_accuracy" else result["metric"]
    shown.add_column("")
    for column in (named, *(EXTRA[key] for key in extra), "train loss"):
        shown.add_column(column, justify="right", no_wrap=True)
    spread = len(result["seeds"]) > 1  # one run has none
    with_spread = lambda m: f"{m['mean']:.4f}" + (f" ± {m['std']:.3f}" if spread else "")  # noqa: E731

    def yardstick(who: str, label: str) -> None:
        if who in references:  # records that are streamed have none
            known = [references[who].get(key) for key in (score, *extra, "train_loss")]
            shown.add_row(label, *("" if x is None else f"{x:.4f}" for x in known))

    yardstick("majority", "the larger class")
    yardstick("alone", "alone (mean of the parties)")
    name = f"[bold]together, by {result['algorithm']['name']}[/]"
    shown.add_row(name, *(with_spread(metrics[key]) for key in (score, *extra, "train_loss")))
    yardstick("pooled", "pooled (all data, no privacy)")
    return shown


def notes(result: RunResult) -> list[str]:
    """Lines under the table: guarantee, disagreement, traffic, time."""
    from coterie.privacy.people import unit_words
    from coterie.report.units import home_words

    lines = []
    privacy = result["privacy"]
    if privacy is None:
        lines.append("privacy: none; every message carries exact values")
    elif privacy["leaks"]:
        read = "; ".join(map(escape, privacy["leaks"]))
        lines.append(
            f"privacy: [red]none that can be claimed[/]; the messages cost ε = {privacy['epsilon'] or math.inf:.4g} at "
            f"δ = {privacy['delta']:g}, but nothing pays for what was read from the records: {read}"
        )
    elif not privacy["private"]:
        lines.append("privacy: [red]none that can be claimed[/]; this is what was printed, not what is true")
    else:
        stated = result["plan"].get("privacy")
        asked = isinstance(stated, dict) and stated.get("claim") == "paper" and privacy["paper_claim"] is not None
        claim = f"; the paper would print ε = {privacy['paper_claim']:.3g}" if asked else ""
        lines.append(
            f"privacy: (ε, δ) = ({privacy['epsilon']:.4g}, {privacy['delta']:g}) per {privacy['protects']['unit']}, "
            f"{privacy['adjacency']}, by {privacy['accountant']}{claim}; the adversary {privacy['adversary']}"
        )
        lines.append(unit_words(privacy["protects"], privacy["delta"]))
        if (home := result.get("at_home")) is not None:
            lines.append(home_words(home))
        for other in privacy["other_claims"]:
            epsilon = "∞" if other["epsilon"] is None else f"{other['epsilon']:.4g}"
            lines.append(
                f"another adversary: ({epsilon}, {other['delta']:g}), {other['name']}: one who {other['adversary']}"
            )
        if len(result["seeds"]) > 1:
            every = privacy["all_seeds_epsilon"]
            lines.append(
                f"one run is released, that of seed {result['seeds'][0]}; the {len(result['seeds'])} seeds are for "
                f"study: to release them all would cost ε = {'∞' if every is None else f'{every:.4g}'}"
            )
    if (covered := result.get("covered")) is not None:
        lines.append(covered_line(covered))
    if (told := result.get("exchange")) and told["exchange"] != "broadcast":
        lines.append(f"exchange: {told['text']}")
    gap, timing = result["metrics"]["consensus_gap"]["mean"], result["timing"]
    agree = f"parties disagree by {gap:.2g} (rms)" if not gap < 1e-9 else "all parties hold the same model"
    lines.append(
        f"{agree}; {result['bytes_sent'] / 1e6:.3g} MB sent per run; "
        f"{timing['run_s']:.2f} s for {len(result['seeds'])} seed(s) after {timing['compile_s']:.1f} s compiling"
    )
    compared = [f"{timing[key]:.1f} s {what}" for key, what in COMPARED.items() if key in timing]
    if compared:
        lines.append(f"to compare: {', '.join(compared)}; --references none leaves that out")
    if "bytes_read" in timing:
        lines.append(
            f"read {timing['bytes_read'] / 1e9:.3g} GB of records from disk ({timing['records_read']:.3g} records) at "
            f"{timing['bytes_per_s'] / 1e9:.3g} GB/s, {timing['records_per_s']:.3g} records/s, computing included; "
            "no references: they would pass over all records hundreds of times"
        )
    if result["interrupted"]:
        adaptive = privacy is not None and privacy.get("adaptive") is not None
        lines.append(
            f"[yellow]interrupted after {result['completed_rounds']} of {result['rounds']} rounds[/]; ε is that of "
            f"all, the certificate charges {'all too' if adaptive else 'those in which something was sent'}"
        )
    return lines


def covered_line(covered: ToldCovered) -> str:
    """The scores that may leave, with their errors, in one line."""
    shown = []
    named = {"accuracy": covered["accuracy"], "AUC": covered["auc"], "calibration": covered["calibration"]}
    for words, told in named.items():
        known = told["value"] is not None
        shown.append(f"{words} {told['value']:.4f} ± {told['standard_error']:.4f}" if known else
                     f"{words} refused ({told['refused']})")  # fmt: skip
    return (
        f"{covered['marked']}: {'; '.join(shown)}; on {covered['records']} held-out records, which pay "
        f"({covered['epsilon']:.4g}, {covered['delta']:g}) each, once; every other score here is at home only"
    )
