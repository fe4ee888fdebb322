"""`coterie init`: a commented plan, from flags or questions; for a table also a code book, for its owner to check."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.commands import LEARN, console
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.data.proposal import Proposal

__all__ = ["PANEL", "app", "graphs", "init", "named"]

PANEL = LEARN
app = typer.Typer()
Answer = str | int | float | None
QUESTIONS = {
    "data": "Where is the data? A CSV or Parquet file, or {named}",
    "label": "Which column is the label?",
    "site": "Which column says to which site a record belongs? (empty: split at random)",
    "agents": "How many parties?",
    "algorithm": "Algorithm (dp-dsgd is the strong default; see `coterie algorithms`)",
    "graph": "Who talks to whom: {graphs} (more kinds, with parameters: edit the plan)",
    "epsilon": "Privacy budget ε of each party for the whole run (below 1 is strong)",
    "delta": "δ (well below 1 in the number of records)",
}
DEFAULTS: dict[str, Answer] = {
    "data": "clinics", "site": "", "agents": 5, "graph": "ring", "epsilon": 1.0, "delta": 1e-5, "algorithm": "dp-dsgd"
}  # fmt: skip


def init(
    out: Path, given: dict[str, Answer], bounds: list[str], force: bool, console: Console, table: Path | None = None
) -> None:
    """Ask for what the flags leave open (defaults where nobody can answer), write the plan, say what comes next.

    Of a `table` the records are looked at, and a code book is written too.
    """
    book = out.with_suffix(".codebook.toml")
    for file in (out, *([] if table is None else [book])):
        if file.exists() and not force:
            raise InputError(f"{file} exists: choose another name, or --force to replace it")
    if not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}")
    ranges = [_bound(b) for b in bounds]
    proposed = None
    if table is not None:
        from coterie.data.files import read_fields
        from coterie.data.proposal import propose

        stated = {column: (low, high) for column, low, high in ranges}
        label, site, person = (_word(given.get(key)) for key in ("label", "site", "person"))
        del given["person"]
        proposed = propose(read_fields(table), label, site, person, stated)
        given |= {"data": str(table), "label": proposed.label, "site": proposed.site or ""}
    elif given.pop("person", None):
        raise InputError("--person is for a table, as in `coterie init patients.csv --person patient`")
    answers = _answers(given, sys.stdin.isatty())
    if not _is_file(answers["data"]) and (ranges or given.get("label") or given.get("site")):
        raise InputError(f"--label, --site and --bounds are for a CSV or Parquet file, and --data is {answers['data']}")
    text = _text(answers, ranges, out, None if proposed is None else book.name)
    import tomllib

    from coterie.plan import validate

    tree = tomllib.loads(text)
    tree["data"].pop("codebook", None)  # a plan that cannot be read is a mistake in the answers
    validate(tree)
    if proposed is not None:
        _show(proposed, console)
        _write(book, proposed.toml(str(answers["data"])))
    _write(out, text)
    if proposed is None:
        console.print(f"wrote {out}. Next: `coterie plan check {out}`, then `coterie run {out}`", highlight=False)
        return
    console.print(
        f"wrote {out} and {book}. Next: check the code book, which was read from the records, and remove "
        f"read_from_records from it; then `coterie run {out}`", highlight=False,
    )  # fmt: skip


def _write(path: Path, text: str) -> None:
    from coterie.report.files import write_atomically

    write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))


def _show(proposed: Proposal, console: Console) -> None:
    """The columns, for the owner of the table."""
    shown = Table(box=None, header_style="bold")
    for heading in ("column", "looks like", "different values", "missing", "use"):
        shown.add_column(heading, justify="right" if heading in ("different values", "missing") else "left")
    for seen in proposed.columns:
        shown.add_row(escape(seen.name), seen.kind, str(seen.different), str(seen.gaps), seen.use)
    console.print(shown)
    for line in proposed.said:
        console.print(escape(line), highlight=False, soft_wrap=True)


def graphs() -> tuple[str, ...]:
    """Kinds of graphs without settings."""
    from coterie.graphs import KINDS

    return tuple(kind for kind in KINDS.names if KINDS.ours(kind) and not KINDS.load(kind).Settings.model_fields)


def named() -> tuple[str, ...]:
    """Data sets that are found by their names."""
    from coterie.data import SOURCES, find_source

    return tuple(name for name in SOURCES.names if SOURCES.ours(name) and not find_source(name).needs_path)


def _is_file(data: object) -> bool:
    from coterie.data.files import TABLES  # as the command line starts, NumPy would be loaded for it

    return Path(str(data)).suffix in TABLES


def _answers(given: dict[str, Answer], ask: bool) -> dict[str, Answer]:
    from coterie.algorithms.base import find
    from coterie.data.files import TABLES

    answers: dict[str, Answer] = {k: v for k, v in given.items() if v is not None}
    offered, kinds = named(), graphs()
    for key, question in QUESTIONS.items():
        file = _is_file(answers.get("data", ""))
        if key in answers or (key in ("label", "site") and not file) or (key == "agents" and answers.get("site")):
            continue
        if key in ("epsilon", "delta") and not find(str(answers["algorithm"])).private:
            continue
        question = question.format(named=", ".join(offered), graphs=", ".join(kinds))
        default = (*_graphs(str(answers["algorithm"])), DEFAULTS["graph"])[0] if key == "graph" else DEFAULTS.get(key)
        if ask:
            kind = type(default) if default is not None else str
            answers[key] = typer.prompt(question, default=default, type=kind)
        elif default is None:
            raise InputError(f"--{key} is needed: {question[0].lower()}{question[1:]}")
        else:
            answers[key] = default
    if not _is_file(answers["data"]) and answers["data"] not in offered:
        raise InputError(f"--data must be a {', '.join(TABLES)} file or {', '.join(offered)}, got {answers['data']}")
    if answers["graph"] not in kinds:
        raise InputError(f"--graph must be {', '.join(kinds)}, got {answers['graph']}: edit the plan for other kinds")
    fit = _graphs(str(answers["algorithm"]))
    if fit and answers["graph"] not in fit:
        raise InputError(f"{answers['algorithm']} runs on {' or '.join(fit)} graphs, not on {answers['graph']}")
    return answers


def _graphs(algorithm: str) -> tuple[str, ...]:
    """The graphs that an algorithm needs; none: it runs on any."""
    from coterie.algorithms.base import find

    return find(algorithm).graphs


def _bound(text: str) -> tuple[str, float, float]:
    column, _, span = text.partition("=")
    low, _, high = span.partition(":")
    try:
        numbers = float(low), float(high)
    except ValueError:
        raise InputError(f"--bounds needs column=low:high such as age=0:120, got {text!r}") from None
    if not -math.inf < numbers[0] < numbers[1] < math.inf or not column:
        raise InputError(f"--bounds {text}: expected a column and two finite numbers, the lower one first")
    return column, *numbers


def _text(a: dict[str, Answer], bounds: list[tuple[str, float, float]], out: Path, book: str | None) -> str:
    """The plan, with comments a newcomer needs; `book` names its code book."""
    from coterie.algorithms.base import find
    from coterie.data import find_source
    from coterie.data.files import PARQUET

    data, algorithm, path = str(a["data"]), str(a["algorithm"]), Path(str(a["data"]))
    file = _is_file(data)
    source = ("parquet" if path.suffix in PARQUET else "csv") if file else data
    found = find_source(source)
    lines = [
        "# Written by `coterie init`. `coterie plan check` explains it in words; docs/plan.md lists every key.",
        f"name = {_quote(f'{algorithm} on {path.stem}')}",
        "",
        "[data]",
        f"source = {_quote(source)}",
    ]
    if file:
        place = data if path.is_absolute() else os.path.relpath(path, out.parent)
        lines += [f"path = {_quote(place)}", f"label = {_quote(a['label'])}"]
    if file and a.get("site"):
        lines += [f"site = {_quote(a['site'])}        # who holds a record; never a feature"]
    lines += ["test_fraction = 0.2     # records held out to judge the model, in a simulation"]
    if book is not None:
        lines += [f"codebook = {_quote(book)}  # ranges, categories, names: check it before anything is claimed"]
    elif found.takes("row_norm") and found.options.model_fields["row_norm"].default == "none":
        lines += ["", "[data.options]", 'row_norm = "unit"       # a linear model takes records of norm at most 1']
    elif file:
        lines += [
            "",
            "# Names that everybody knows without looking at the data. Read from the records, they end every claim of",
            "# privacy; `coterie plan check` says so.",
            "[data.options]",
            '# classes = ["no", "yes"]     # of the label; of a number to predict: task = "regression"',
        ]
        lines += ['# sites = ["north", "south"]  # all of them'] if a.get("site") else []
        lines += [
            "",
            "# Ranges that everybody knows without looking at the data. A numeric column without one is used as it is,",
            "# and every record is shrunk into the unit ball by itself.",
            "[data.options.bounds]",
        ]
        lines += [f"{_quote(c)} = [{low}, {high}]" for c, low, high in bounds] or ["# age = [0, 120]"]
    lines += ["", "[partition]"]
    if (file and a.get("site")) or found.sited:
        lines += ['kind = "site"           # every site keeps its own records']
    else:
        lines += ['kind = "iid"            # records dealt at random, for trials']
    if not (file and a.get("site")) and (found.takes("sites") or not found.sited):
        lines += [f"agents = {a['agents']}"]
    lines += [
        "",
        "[graph]",
        f"kind = {_quote(a['graph'])}",
        "",
    ]
    if file and a.get("site"):
        lines += ["[problem]", 'weighting = "records"   # every record counts alike; "agents": every party does', ""]
    lines += [
        "[algorithm]             # `coterie algorithms` lists all of them and what each promises",
        f"name = {_quote(algorithm)}",
    ]
    if find(algorithm).private:
        lines += [
            "",
            "[privacy]",
            f"epsilon = {float(a['epsilon'] or 0)}           # of the whole run, for every party",
            f"delta = {float(a['delta'] or 0)}",
        ]
    lines += [
        "",
        "[run]",
        "seeds = 5               # repetitions of the simulation",
        "",
    ]
    return "\n".join(lines)


def _word(answer: Answer) -> str | None:
    return None if answer is None else str(answer)


def _quote(text: object) -> str:
    return json.dumps(str(text), ensure_ascii=False)


@app.command()
def command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[TABLE.csv] [PLAN.toml]", help="a table to look at; the plan to write (plan.toml)"),
    ] = None,
    data: Annotated[str | None, typer.Option(help="CSV or Parquet file, or the name of a data set")] = None,
    label: Annotated[str | None, typer.Option(help="label column")] = None,
    site: Annotated[str | None, typer.Option(help="column that says who holds a record; '' for none")] = None,
    person: Annotated[str | None, typer.Option(help="column that says whose record it is")] = None,
    bounds: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=LOW:HIGH", help="public range of a column")
    ] = None,
    agents: Annotated[int | None, typer.Option(min=2, help="number of parties")] = None,
    graph: Annotated[str | None, typer.Option(help="who talks to whom")] = None,
    epsilon: Annotated[float | None, typer.Option(help="privacy budget of each party")] = None,
    delta: Annotated[float | None, typer.Option(help="δ")] = None,
    algorithm: Annotated[str | None, typer.Option(help="see `coterie algorithms`")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace existing files")] = False,
) -> None:
    """Write a commented plan: asks for what the flags leave open, or takes the defaults where nobody can answer.

    Of a table it also shows the columns and proposes a code book, which you check before anything private is claimed.

    Example: coterie init patients.csv study.toml --label readmitted --site clinic --bounds age=0:120
    """
    tables, plans = ([f for f in files or [] if _is_file(f) == kind] for kind in (True, False))
    if stray := [f for f in plans if f.suffix.lower() in (".xlsx", ".xls", ".ods", ".json", ".tsv", ".txt", ".sav")]:
        raise InputError(f"{stray[0]} is neither a plan nor a table: expected a CSV or Parquet file and a plan (.toml)")
    if len(tables) > 1 or len(plans) > 1:
        raise InputError(f"expected a table and a plan, got {', '.join(map(str, files or []))}")
    if tables and data is not None:
        raise InputError(f"--data {data} and {tables[0]}: expected one of the two")
    given: dict[str, Answer] = {
        "data": data, "label": label, "site": site, "person": person, "agents": agents, "graph": graph,
        "epsilon": epsilon, "delta": delta, "algorithm": algorithm,
    }  # fmt: skip
    out = plans[0] if plans else Path("plan.toml")
    init(out, given, bounds or [], force, console, tables[0] if tables else None)
