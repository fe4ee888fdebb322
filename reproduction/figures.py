"""`python -m reproduction figure`: figures of the papers, drawn by our code, with a verdict on what they claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from coterie.errors import InputError

if TYPE_CHECKING:
    from reproduction.base import Entry

__all__ = ["run"]


def run(
    names: list[str], quick: bool, out: Path | None, fresh: bool, docs: Path | None, console: Console,
    engine: str = "local",
) -> int:  # fmt: skip
    """List or make figures; the exit code is 2 if a figure asked for by name lacks its data, 130 after Ctrl-C."""
    from coterie.report.files import check_out
    from reproduction.base import choose_figures

    if "list" in names:
        if len(names) > 1:
            raise InputError("`list` stands alone: python -m reproduction figure list")
        console.print(listing())
        return 0
    if quick and docs is not None:
        raise InputError("--docs takes full runs: leave out --quick")
    entries = choose_figures(names)
    folder = out or Path("runs") / ("papers-quick" if quick else "papers")
    make = _one_by_one if engine == "local" else _by_engine(engine)
    check_out(folder)
    done: list[str] = []
    skipped = 0
    try:
        for entry, found in make(entries, folder, quick, fresh, console):
            if isinstance(found, str):
                skipped += 1
                console.print(f"[yellow]skipped[/] {escape(found)}", highlight=False, soft_wrap=True)
            else:
                done.append(entry.slug)
                console.print(f"[bold]{entry.slug}[/] {escape(entry.figure.title)}", highlight=False)
                console.print(verdict_table(found))
    except KeyboardInterrupt:
        console.print("interrupted: finished parts are kept, run it again to go on")
        return 130
    if done:
        kinds = "png, svg, csv and json"
        console.print(f"wrote {kinds} of {len(done)} figure{'s' * (len(done) > 1)} to {folder}", highlight=False)
    if docs is not None:
        from reproduction.pages import collect, write_pages

        collect(folder, docs, done)
        written = write_pages(docs)
        if "all" in names:
            from reproduction.theorems.__main__ import write

            console.print("measuring the theorems")
            written.append(docs / "papers" / "theorems.md")
            write(written[-1])
        console.print(f"wrote {len(written)} pages to {docs / 'papers'}", highlight=False)
    if skipped and done:
        console.print(f"{skipped} of {len(entries)} figures were skipped for lack of data", highlight=False)
    return 2 if skipped and (not done or "all" not in names) else 0


def _one_by_one(
    entries: Sequence[Entry], folder: Path, quick: bool, fresh: bool, console: Console
) -> Iterator[tuple[Entry, dict[str, Any] | str]]:
    """In this process, with a line that says what is being computed."""
    from reproduction.runner import MissingData, reproduce

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        for place, entry in enumerate(entries):
            task = bar.add_task(entry.slug)
            head = f"{entry.slug} [{place + 1} of {len(entries)}]"
            tell = lambda line, t=task, h=head: bar.update(t, description=escape(f"{h}: {line[:90]}"))  # noqa: E731
            try:
                yield entry, reproduce(entry, folder, quick, fresh, tell)
            except MissingData as error:
                yield entry, str(error)
            finally:
                bar.remove_task(task)


def _by_engine(
    name: str,
) -> Callable[[Sequence[Entry], Path, bool, bool, Console], Iterator[tuple[Entry, dict[str, Any] | str]]]:
    """On an engine: first a task for each long figure, then one for the rest of each paper, most figures first."""
    from coterie.engines import make_engine
    from reproduction.runner import reproduce_all

    engine = make_engine(name)

    def make(
        entries: Sequence[Entry], folder: Path, quick: bool, fresh: bool, console: Console
    ) -> Iterator[tuple[Entry, dict[str, Any] | str]]:
        by_slug = {e.slug: e for e in entries}
        short = [e for e in entries if not e.figure.long]
        papers = sorted({e.paper for e in short}, key=lambda p: -sum(e.paper == p for e in short))
        alone = [[e.slug] for e in entries if e.figure.long]
        groups = alone + [[e.slug for e in short if e.paper == p] for p in papers]
        tasks = [(slugs, folder, quick, fresh) for slugs in groups]
        with console.status(f"{len(entries)} figures in {len(tasks)} tasks"):
            for _, finished in engine(reproduce_all, tasks):
                for slug, found in finished:
                    yield by_slug[slug], found

    return make


def listing() -> Table:
    """Every figure, what it shows and which data it needs."""
    from reproduction.base import all_papers

    shown = Table(header_style="bold")
    for column in ("name", "figure", "needs"):
        shown.add_column(column, no_wrap=column == "name")
    for paper, entries in all_papers().values():
        shown.add_section()
        shown.add_row(f"[bold]{escape(entries[0].paper)}[/]", f"[bold]{escape(paper.title)}[/]", "")
        for e in entries:
            shown.add_row(e.slug, escape(e.figure.title), ", ".join(e.figure.needs))
    return shown


def verdict_table(found: dict[str, Any]) -> Table:
    """The claims of one figure: what holds, and the numbers."""
    from reproduction.pages import explanation

    shown = Table(header_style="bold", show_edge=False)
    for column in ("who", "claim", "verdict", "measured"):
        shown.add_column(column)
    colours = {"holds": "green", "fails": "red"}
    for c in found["claims"]:
        mark = f"[{colours.get(c['verdict'], 'yellow')}]{c['verdict']}[/]"
        shown.add_row(c["who"], escape(c["claim"]), mark, escape(c["measured"] + explanation(c)))
    return shown
