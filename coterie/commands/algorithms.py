"""`coterie algorithms`: what there is, and one of them in detail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.commands import LEARN, console

if TYPE_CHECKING:
    from coterie.algorithms.base import Algorithm

__all__ = ["PANEL", "app", "describe"]

PANEL = LEARN
app = typer.Typer()


class ToldSetting(TypedDict):
    """One setting of an algorithm."""

    default: object
    type: str
    description: str


class ToldMethod(TypedDict):
    """One line of the list; `deploys`: True, or why not."""

    name: str
    summary: str
    private: bool
    reference: str
    deploys: bool | str


class ToldAlgorithm(ToldMethod):
    """All of an algorithm."""

    graphs: list[str] | str
    settings: dict[str, ToldSetting]
    errata: list[dict[str, str]]


def describe(algorithm: Algorithm) -> ToldAlgorithm:
    """Everything a user can know about an algorithm without reading its file."""
    settings: dict[str, ToldSetting] = {
        name: {
            "default": field.get_default(call_default_factory=True),
            "type": str(field.annotation).replace("<class '", "").replace("'>", ""),
            "description": field.description or "",
        }
        for name, field in algorithm.config.model_fields.items()
    }
    from coterie.deploy.noise import refusal

    return {
        "name": algorithm.slug,
        "summary": algorithm.summary,
        "private": algorithm.private,
        "reference": algorithm.reference,
        "deploys": refusal(algorithm, algorithm.config()) or True,
        "graphs": list(algorithm.graphs) or "any connected graph",
        "settings": settings,
        "errata": [vars(e) for e in algorithm.errata],
    }


def show(name: str | None, as_json: bool, console: Console) -> None:
    """Print the list, or one entry."""
    from coterie.algorithms.base import all_algorithms, find
    from coterie.fair import METHODS
    from coterie.tables.algorithm import REFERENCES

    if name is not None:
        one = describe(find(name))
        if as_json:
            console.print_json(json.dumps(one, default=str))
        else:
            _detail(one, find(name).text, console)
        return
    entries = [describe(a) for a in all_algorithms().values()]
    fair: list[ToldMethod] = [
        {
            "name": m.slug,
            "summary": m.summary,
            "private": m.private,
            "reference": m.reference,
            "deploys": "it fits in one process: coterie fair",
        }
        for m in METHODS.values()
    ]
    if as_json:
        pools = "it pools data: a yardstick"
        references: list[ToldMethod] = [
            {"name": k, "summary": v, "private": False, "reference": "", "deploys": pools}
            for k, v in REFERENCES.items()
        ]
        console.print_json(json.dumps([*entries, *fair, *references], default=str))
        return
    shown = Table(box=None, header_style="bold")
    for column in ("name", "private", "deploys", "what it is"):
        shown.add_column(column, no_wrap=column == "name")
    for e in entries:
        shown.add_row(e["name"], _yes(e["private"]), _yes(e["deploys"] is True), escape(e["summary"]))
    for m in fair:
        shown.add_row(
            m["name"], _yes(m["private"]), _yes(m["deploys"] is True), f"(coterie fair) {escape(m['summary'])}"
        )
    for k, v in REFERENCES.items():
        shown.add_row(k, "no", "no", f"(reference) {escape(v)}")
    console.print(shown)
    console.print("details: coterie algorithms NAME")


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _detail(one: ToldAlgorithm, text: str, console: Console) -> None:
    console.print(escape(text.strip()), highlight=False)
    console.print(f"\n[bold]reference[/]: {escape(one['reference'])}")
    deploys = "yes, `coterie agent` runs it" if one["deploys"] is True else f"no: {one['deploys']}"
    console.print(f"[bold]deploys[/]: {escape(deploys)}")
    shown = Table(title="settings", box=None, header_style="bold", title_justify="left")
    for column in ("key", "default", "meaning"):
        shown.add_column(column)
    for key, s in one["settings"].items():
        shown.add_row(key, str(s["default"]), escape(s["description"]))
    console.print(shown)
    if one["errata"]:
        wrong = Table(title="what the paper got wrong", header_style="bold", title_justify="left", show_lines=True)
        for column in ("where", "printed", "correct", "severity"):
            wrong.add_column(column)
        for e in one["errata"]:
            wrong.add_row(*(escape(str(e[c])) for c in ("where", "printed", "correct", "severity")))
        console.print(wrong)


@app.command()
def command(
    name: Annotated[str | None, typer.Argument(help="show one algorithm's settings and errata")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="machine-readable")] = False,
) -> None:
    """List the algorithms, or show one: its settings, its paper, and what the paper got wrong."""
    show(name, as_json, console)
