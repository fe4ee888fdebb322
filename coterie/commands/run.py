"""`coterie run`: simulate a plan, print the comparison, write the files."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from coterie.commands import LEARN, PlanArgument, SetOption, console, show_whole
from coterie.commands._shown import notes, show_worth, table
from coterie.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.progress import Progress

    from coterie.drivers.cluster import Spread
    from coterie.experiment import Experiment
    from coterie.plan import Plan
    from coterie.pricing import Priced
    from coterie.released.covered import ToldCovered
    from coterie.report.schema import RunResult

__all__ = ["PANEL", "app", "execute"]

LONG = 20.0  # seconds of a command, after which it says where they went
PANEL = LEARN
app = typer.Typer()


def run(
    path: Path | None, out: Path | None, seeds: int | None, changes: list[str], quiet: bool, console: Console,
    key: Path | None = None, spread: Spread | None = None,
) -> None:  # fmt: skip
    """Read the plan, run it (over the devices of `spread`), show and save the result."""
    from coterie.plan import read_plan

    plan = read_plan(path, changes + ([f"run.seeds={seeds}"] if seeds else []))
    written = {"--out": out, "--checkpoint": spread.checkpoint if spread else None}
    if any(written.values()):
        from coterie.report.files import check_out

        for flag, folder in written.items():
            if folder is not None:
                check_out(folder, flag)
    if key is not None:
        from coterie.report.sealing import private_key

        if out is None:
            raise InputError("--key signs the certificate, which is written with --out")
        private_key(key)  # a key that cannot be used is refused before any work is done
    if spread is None:
        _show(*execute(plan, out, console, quiet, key), console)
        return
    import jax

    try:
        with spread.joined() as engine:
            mine = console if spread.leader else Console(quiet=True)
            done = execute(plan, out if spread.leader else None, mine, quiet, key, engine)
            _show(*done, mine)
    except jax.errors.JaxRuntimeError as error:
        if spread.processes is None:
            raise
        again = "run the same command again" + (" to go on from the checkpoint" if spread.checkpoint else "")
        print(f"error: another process was lost ({str(error).splitlines()[0]}): {again}", file=sys.stderr, flush=True)
        os._exit(1)  # an orderly end would wait for the lost one


def _show(result: RunResult | None, files: list[Path], console: Console) -> None:
    if result is None or console.quiet:
        return
    if result["worth"] is not None:
        show_worth(result["worth"], console)
        console.print()
    show_whole(table(result), console)
    for line in notes(result):
        console.print(line)
    if files:
        console.print(f"wrote {', '.join(str(f) for f in files)}", highlight=False, soft_wrap=True)
        if files[-1].suffix == ".html":
            console.print(f"open {files[-1]} in a browser", highlight=False, soft_wrap=True)


def execute(
    plan: Plan, out: Path | None, console: Console, quiet: bool = True, key: Path | None = None,
    engine: Callable[[], dict[str, object]] = dict,
) -> tuple[RunResult | None, list[Path]]:  # fmt: skip
    """Run a plan; returns result.json's content and the files written (nothing where the console is quiet).

    `engine` gives options of `Experiment.run` that choose where it runs.
    """
    from coterie.passes import in_turns
    from coterie.privacy.adaptive import make as make_rule
    from coterie.tables.algorithm import REFERENCES

    if plan.algorithm.name in REFERENCES:
        raise InputError(
            f"{plan.algorithm.name} is a reference, which every run reports: choose an algorithm to compare with it"
        )
    if plan.run.covered and plan.privacy is None:
        raise InputError("run.covered = true needs a [privacy] table: covered scores are paid for")
    if plan.privacy is not None and plan.privacy.adaptive == "own":
        make_rule("own", plan.privacy.adaptive_options)  # refused before data is read
    marks = [time.perf_counter()]
    with in_turns(), ThreadPoolExecutor(1) as aside:
        began = aside.submit(_begin_device)
        from coterie.experiment import prepare

        # Imports go on beside passes over records, and not beside the making of them: both would take twice as long.
        experiment = prepare(plan, loaded=lambda: aside.submit(_load_the_rest))
        began.result()
    from coterie.api.trained import Trained
    from coterie.pricing import price
    from coterie.worth.judge import judge
    from coterie.worth.measures import need_measure
    from coterie.worth.splits import over_splits

    network = experiment.network
    need_measure(network.problem, plan.run.metric)
    priced = price(plan, network)
    for warning in priced.warnings:
        console.print(f"[yellow]warning:[/] {escape(warning)}")
    edges = len(network.transport.edges)
    held = f"{int(network.sizes.sum())} {'people' if plan.by_person else 'records'}"
    console.print(
        f"[bold]{escape(plan.name)}[/]: {network.graph.size} parties, {held}, {network.transport.kind} with "
        f"{edges} edges, {network.problem.dim} parameters, {priced.algorithm.slug}, {priced.rounds} rounds",
        highlight=False,
    )
    seeds = [plan.run.seed + k for k in range(plan.run.seeds)]
    marks.append(time.perf_counter())
    options: dict[str, Any] = engine()
    if "make" not in options and network.store is None:
        options["laid"] = experiment.layout(priced.rounds, priced.shape)
    if quiet or not console.is_terminal:
        trace = experiment.run(priced, seeds, **options)
    else:
        with _progress_bar(console) as bar:
            task = bar.add_task("training", total=priced.rounds)
            trace = experiment.run(priced, seeds, lambda done: bar.update(task, completed=done), **options)
    if console.quiet:  # another process reports
        return None, []
    if trace.extras.get("resumed"):
        console.print(f"went on from round {trace.extras['resumed']}", highlight=False)
    asked = plan.run
    marks.append(time.perf_counter())
    judged = judge(
        experiment, trace.points, asked.references, measure=asked.metric, specificity=asked.specificity,
        clip=priced.algorithm.clips(priced.cfg), laid=options.get("laid"),
    )  # fmt: skip
    if judged.worth is not None and asked.splits > 1 and trace.completed == priced.rounds:
        with console.status(f"judging over {asked.splits} splits") as shown:
            told = lambda k: shown.update(f"judging over {asked.splits} splits: {k} done")  # noqa: E731
            worth, warned = over_splits(plan, judged.worth, told)
            judged = dataclasses.replace(judged, worth=worth, warnings=[*judged.warnings, *warned])
    if asked.covered:
        judged = dataclasses.replace(judged, covered=_covered(experiment, priced, trace.points[0]))
    marks.append(time.perf_counter())
    done = Trained.of(experiment, priced, trace, seeds, judged)
    said = {words for _, words in experiment.dataset.remarks}  # as the records were read
    for warning in done.result["warnings"][len(priced.warnings) :]:
        if warning not in said:
            console.print(f"[yellow]warning:[/] {escape(warning)}")
    written = [] if out is None else done.save(out, key)
    if text := _where_time_went([*marks, time.perf_counter()]):
        console.print(text, highlight=False)
    return done.result, written


def _begin_device() -> None:
    """What a run needs first of JAX: an accelerator takes its memory, which lasts a second or two."""
    import jax

    jax.block_until_ready(jax.device_put(0.0))


def _load_the_rest() -> None:
    """What a run needs after its data, and takes seconds to import."""
    import coterie.api.trained
    import coterie.report.plots
    import coterie.worth.splits  # noqa: F401


def _where_time_went(marks: Sequence[float]) -> str:
    """What each part of a command took, in a line; nothing of one that was over soon."""
    whole = marks[-1] - marks[0]
    named = zip(("data and price", "rounds", "comparison", "report"), pairwise(marks), strict=True)
    parts = ", ".join(f"{b - a:.1f} s {name}" for name, (a, b) in named)
    return f"{whole:.0f} s in all: {parts}" if whole >= LONG else ""


def _covered(experiment: Experiment, priced: Priced, points: NDArray) -> ToldCovered:
    """Scores of the average of the parties' models, released with noise of another seed than the run's."""
    from coterie.released.judging import covered_scores

    seed = experiment.plan.run.seed + experiment.plan.run.seeds
    model = points.astype(float).mean(axis=0)
    return covered_scores(experiment, model, clip=priced.algorithm.clips(priced.cfg), seed=seed).as_json()


def _progress_bar(console: Console) -> Progress:
    """A bar with rounds and the time that is left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    return Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rounds"),
        TimeRemainingColumn(), console=console, transient=True,
    )  # fmt: skip


@app.command()
def command(
    plan: PlanArgument = None,
    out: Annotated[Path | None, typer.Option(help="folder for result, model, certificate and report")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="independent repetitions, in one batch")] = None,
    references: Annotated[
        str | None, typer.Option(help="compare with: none, alone, pooled or all (the plan's run.references)")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(min=1, help="train/test splits over which to say who gains (the plan's run.splits)")
    ] = None,
    set_: SetOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="no progress bar")] = False,
    key: Annotated[Path | None, typer.Option(help="PEM file of an Ed25519 private key: sign the certificate")] = None,
    devices: Annotated[str | None, typer.Option(help="spread the parties over devices: a number, or `all`")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="folder for the run's state; started again, it goes on")
    ] = None,
    every_rounds: Annotated[int, typer.Option(min=1, help="rounds between checkpoints")] = 100,
    coordinator: Annotated[str | None, typer.Option(help="HOST:PORT of process 0, if there are several")] = None,
    process_id: Annotated[int | None, typer.Option(help="number of this process, from 0")] = None,
    processes: Annotated[int | None, typer.Option(help="how many processes run this command")] = None,
) -> None:
    """Simulate a plan, and say who gains by joining: on its own test records, against what it reaches alone.

    Ctrl-C ends the run after the round in progress and keeps what is done.

    Example: coterie run clinics --set algorithm.name=admm --set graph.kind=star --seeds 5 --out runs/star
    """
    from coterie.drivers.cluster import Spread

    spread = Spread.read(devices=devices, coordinator=coordinator, process_id=process_id, processes=processes,
                         checkpoint=checkpoint, every_rounds=every_rounds)  # fmt: skip
    given = [] if references is None else [f"run.references={references}"]
    given += [] if splits is None else [f"run.splits={splits}"]
    run(plan, out, seeds, (set_ or []) + given, quiet, console, key, spread)
