"""The report of a run: one HTML page that needs no network, made from result.json and certificate.json alone.

Everything is inlined: style, script and charts. Without JavaScript nothing is missing; with it, tables sort, charts
read out values and the colours can be switched. Names and texts are escaped by the template engine, and the page's own
content policy allows no script but the one that is hashed into it.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np

from coterie.algorithms.base import PRINTED, Erratum, all_algorithms
from coterie.api.trained import json_object
from coterie.errors import InputError
from coterie.fair import METHODS
from coterie.graphs import Graph, from_outside
from coterie.privacy.people import unit_words
from coterie.report import charts
from coterie.report.charts import Chart, DotRow, Level, Series, number
from coterie.report.costs import Sealed
from coterie.report.epsilon import Guess, guess
from coterie.report.errata import MEANING
from coterie.report.schema import SCHEMA, Curve, PrivacyBlock, RunResult, Score
from coterie.report.shapes import shapes
from coterie.report.units import home_words
from coterie.tables.links import GraphPlan
from coterie.worth.verdict import SaidWorth

if TYPE_CHECKING:
    from jinja2 import Environment

    from coterie.fair.study import FairCell, Metric  # which loads scikit-learn

__all__ = [
    "available",
    "errata_of",
    "fair_page",
    "page_of",
    "render",
    "run_page",
]

NEEDED = "the report needs the package jinja2: pip install 'coterie[report]'"
DRAWN = 300  # agents beyond which the graph is told, not drawn
LISTED = 200  # agents in the table
STYLES = 8  # colours of the palette
UNJUDGED = 'What the parties reach alone was not computed (run.references = "all" does), so nothing says who gains.'
UNTESTED = "There were no test records, so nothing says who gains."
KINDS = ("alone", "private", "blend", "pooled")  # what a party may choose between
EXTRA = {"test_auc": "AUC", "test_log_loss": "log-loss", "test_recall": "recall", "test_calibration": "calibration"}


def available() -> bool:
    """Whether pages can be made here (the extra `report` is installed)."""
    return find_spec("jinja2") is not None


def page_of(folder: Path) -> str:
    """The page of a folder that `coterie run` or `coterie fair` wrote."""
    if (result := json_object(folder / "result.json")) is not None:
        _known_schema(folder / "result.json", result.get("schema"))
        return _safely(folder / "result.json", run_page, result, json_object(folder / "certificate.json"))
    if (study := json_object(folder / "fair.json")) is not None:
        return _safely(folder / "fair.json", fair_page, study)
    wanted = "a folder that `coterie run` wrote, or the state folder of a party"
    raise InputError(f"{folder} holds neither result.json nor fair.json: give {wanted}")


def _known_schema(path: Path, found: object) -> None:
    """Refuse a result of another form: its numbers may mean something else."""
    if found != SCHEMA:
        raise InputError(
            f"{path} has schema {found!r}; this version of coterie reads {SCHEMA}: update coterie, or run again"
        )


def _safely(path: Path, make: Callable[..., str], *content: object) -> str:
    if not available():
        raise InputError(NEEDED)
    from jinja2 import UndefinedError

    try:
        return make(*content)
    except (KeyError, TypeError, IndexError, AttributeError, UndefinedError) as error:
        raise InputError(f"{path} is not a result of this version: {error!r}") from None


def render(template: str, **content: object) -> str:
    """A page: the template with its content, style and script inlined."""
    if not available():
        raise InputError(NEEDED)
    env = _environment()
    script = env.get_template("script.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    style = env.get_template("style.css").render()
    return env.get_template(template).render(script=script, script_hash=digest, style=style, **content)


@cache
def _environment() -> Environment:
    """The templates, each compiled when it is first asked for."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("coterie.report"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    env.filters |= {"number": number, "seconds": _seconds, "bytes": _bytes, "fixed": _fixed}
    return env


# ---- a run -----------------------------------------------------------------------------------------------------------


def upper(words: str) -> str:
    """The words as a sentence begins."""
    return words[:1].upper() + words[1:]


def run_page(result: RunResult, sealed: Sealed | None) -> str:
    """The page of a run: `result` as in result.json, `sealed` as in certificate.json (None: there is none)."""
    plan, privacy = result["plan"], result["privacy"]
    scores: tuple[Score, ...] = ("test_accuracy", "test_score")
    score = next((key for key in scores if key in result["metrics"]), None)  # None: no test records were given
    measure = "test accuracy" if score == "test_accuracy" else f"test {result['metric']}"
    slug = result["algorithm"]["name"]
    algorithm = all_algorithms().get(slug)
    graph = _graph(plan, result, sealed)
    worth = result.get("worth")  # none where nothing was compared, or an earlier version wrote it
    protects = None if privacy is None else privacy.get("protects")
    home = result.get("at_home")
    return render(
        "run.html",
        kinds=[] if worth is None else [kind for kind in KINDS if kind in worth["mean"]],
        extra={key: name for key, name in EXTRA.items() if key in result["metrics"]},
        result=result, plan=plan, privacy=privacy, certificate=sealed, score=score, measure=measure,
        agents=_agents(result), listed=LISTED, graph=graph, size=_size(result, sealed), odds=_odds(privacy),
        protects=None if privacy is None or protects is None else upper(unit_words(protects, privacy["delta"])),
        most=None if home is None else upper(home_words(home)),
        summary="" if algorithm is None else algorithm.summary,
        reference="" if algorithm is None else algorithm.reference.rstrip("."),
        **errata_of(() if algorithm is None else algorithm.errata, slug, touched=_touched(result)),
        answer=answer(worth, UNJUDGED if score else UNTESTED),
        scores=None if score is None else _scores(result, score, measure), curves=_curves(result, score, measure),
        shapes=shapes(result.get("additive")), table=_curve_table(result, score),
        settings=_settings(result["algorithm"]["settings"]),
        picture=None if graph is None or graph.size > DRAWN else charts.network(
            graph, [a["name"] for a in result["agents"]], [a["records"] for a in result["agents"]]
        ),
    )  # fmt: skip


def _size(result: RunResult, sealed: Sealed | None) -> int:
    return len(result["agents"]) if sealed is None else sealed["public"]["agents"]


def _graph(plan: dict[str, object], result: RunResult, sealed: Sealed | None) -> Graph | None:
    """The graph as the plan makes it; one from a file only if the certificate carries its edges."""
    size = _size(result, sealed)
    if size != len(result["agents"]):
        return None  # result.json lists the first thousand agents
    how = GraphPlan.model_validate(plan["graph"])
    if "." in how.kind:
        return None  # a result may come from others, and to look a module up is to run it
    if not from_outside(how.kind):
        return how.graph(size)
    if sealed is None or not sealed["public"]["edges"]:
        return None
    return Graph(size, np.array(sealed["public"]["edges"]), how.kind)


def _agents(result: RunResult) -> list[dict[str, object]]:
    """One row for each agent: what it holds, spends and sends."""
    privacy, rows = result["privacy"], list[dict[str, object]]()
    for k, agent in enumerate(result["agents"][:LISTED]):
        row: dict[str, object] = {**agent, "bytes_sent": agent.get("bytes_sent")}
        if privacy is None:
            row |= {"spent": None, "budget": None, "left": None, "share": 0}
        else:
            budget = privacy["budget"][k] if isinstance(privacy["budget"], list) else privacy["budget"]
            spent = privacy["per_agent"][k]
            spent = math.inf if spent is None else spent
            left = budget - spent
            row |= {
                "spent": spent, "budget": budget, "share": round(100 * min(spent / budget, 1.0), 1),
                "left": 0.0 if left < 1e-4 * budget else left,  # calibration stops so near below the budget
                "over": spent > budget * (1 + 1e-9),
            }  # fmt: skip
        rows.append(row)
    return rows


def _odds(privacy: PrivacyBlock | None) -> Guess | None:
    """How often the best guess between two records is right at most."""
    if privacy is None or privacy["epsilon"] is None:
        return None
    return guess(privacy["epsilon"], privacy["delta"], privacy["accountant"])


def _seconds(value: float) -> str:
    """A time for people, not to more digits than anybody cares about."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def answer(worth: SaidWorth | None, otherwise: str) -> dict[str, str]:
    """The first line of a page: was it worth it? `otherwise` is said where nothing was compared."""
    if worth is None:
        return {"word": "Not judged", "kind": "", "text": otherwise}
    verdict = worth["mean"].get("verdict") or "cannot tell"
    word = {"gains": "Yes", "loses": "No"}.get(verdict, "Cannot tell")
    text = worth["sentence"].removeprefix("Cannot tell whether joining pays ")  # the word before says it
    text = text if text == worth["sentence"] else text[0].upper() + text[1:]
    return {"word": word, "kind": {"gains": "good", "loses": "bad"}.get(verdict, ""), "text": text}


def _scores(result: RunResult, score: str, measure: str) -> Chart:
    metrics, references = result["metrics"][score], result["references"]
    fixed = lambda name, label: DotRow(label, name, references[name][score])  # noqa: E731
    mine = DotRow(
        f"together, by {result['algorithm']['name']}", "run", metrics["mean"], metrics["std"], metrics["per_seed"]
    )
    others = {
        "majority": "the larger class", "alone": "each party alone (mean)",
        "pooled": "all records in one place, no privacy",
    }  # fmt: skip
    known = {who: fixed(who, label) for who, label in others.items() if score in references.get(who, {})}
    order = (known.get("majority"), known.get("alone"), mine, known.get("pooled"))
    rows = [row for row in order if row is not None]
    return charts.dot_plot("scores", f"{measure.capitalize()} at the end", measure, rows)


def _curves(result: RunResult, score: Score | None, measure: str) -> list[Chart]:
    data, std, name = result["curves"], result["curves"]["std"], result["algorithm"]["name"]
    panels: list[tuple[Curve, str, str, bool]] = [
        ("train_loss", "Training loss", "training loss (mean over parties)", False),
        *([] if score is None else [(score, measure.capitalize(), measure, False)]),
        ("consensus_gap", "Disagreement between parties", "distance from the mean model (rms)", True),
    ]
    out = list[Chart]()
    for key, title, label, log in panels:
        if not any(charts.drawable(value, log) for value in data[key]):
            continue  # such as the disagreement of parties that hold the same model
        levels = [
            Level(who, who, result["references"][who][key])
            for who in ("pooled", "alone")
            if result["references"].get(who, {}).get(key) is not None
        ]
        series = Series(name, "run", data["round"], data[key], std[key])
        least = 0.0 if key in ("train_loss", "test_accuracy") else -math.inf
        out.append(charts.line_chart(key, title, "round", label, [series], levels, log_y=log, least=least))
    return out


def _curve_table(result: RunResult, score: Score | None) -> dict[str, object]:
    data = result["curves"]
    asked: tuple[Curve | None, ...] = ("train_loss", score, "consensus_gap", "time")
    keys = [key for key in asked if key is not None and key in data]
    head = ["round", *(k.replace("_", " ") for k in keys)]
    return {"head": head, "rows": [[r, *(data[k][i] for k in keys)] for i, r in enumerate(data["round"])]}


def _settings(settings: dict[str, object]) -> list[tuple[str, str]]:
    say = lambda v: "not set" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v)  # noqa: E731
    return [(name.replace("_", " "), say(value)) for name, value in settings.items()]


def errata_of(found: Sequence[Erratum], slug: str, *, touched: bool) -> dict[str, object]:
    """What a page says of a source's errors: a list where they touch its run, else that they do not."""
    order = list(MEANING)
    listed = sorted(found, key=lambda e: order.index(e.severity)) if touched else []
    untouched = None if touched or not found else {"count": len(found), "slug": slug}
    return {"errata": listed, "meaning": MEANING, "untouched": untouched}


def _touched(result: RunResult) -> bool:
    """Whether a run has anything of what was printed in it: its noise, or its claim."""
    said = result["plan"].get("privacy")
    paper = isinstance(said, dict) and said.get("claim") == "paper"
    return bool(result["algorithm"]["settings"].get(PRINTED)) or paper


def _fixed(value: float | None, signed: bool = False) -> str:
    """Three decimals, so that a column can be compared; nothing where nothing is known.

    >>> _fixed(0.05, True), _fixed(None)
    ('+0.050', '')
    """
    return "" if value is None else f"{value:+.3f}" if signed else f"{value:.3f}"


def _bytes(count: float | None) -> str:
    """Bytes for people.

    >>> _bytes(90240.0), _bytes(12.0)
    ('90.2 kB', '12 B')
    """
    if count is None:
        return "unknown"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


# ---- a fairness study ------------------------------------------------------------------------------------------------


class FairStudy(TypedDict):
    """fair.json."""

    plan: dict[str, object]
    cells: list[FairCell]


def fair_page(study: FairStudy) -> str:
    """The page of a fairness study: `study` as in fair.json."""
    cells = [c.copy() for c in study["cells"]]
    for c in cells:
        c["label"] = c["label"] if c["over"] == "one" else f"{c['label']}, {c['over']}"
    panels = [_panel(k, name, cells) for k, name in enumerate(dict.fromkeys(cell["panel"] for cell in cells))]
    methods = [METHODS[m] for m in dict.fromkeys(c["method"] for c in cells) if m in METHODS]
    printed = {c["method"] for c in cells if c["as_printed"]}
    errata = list(dict.fromkeys(e for m in methods if m.slug in printed for e in m.errata))
    return render(
        "fair.html", plan=study["plan"], panels=panels, methods=methods, **errata_of(errata, "", touched=bool(errata))
    )


def _panel(place: int, name: str, cells: Sequence[FairCell]) -> dict[str, object]:
    mine = [c for c in cells if c["panel"] == name]
    axis: Literal["wanted_delta", "epsilon"]
    axis = "wanted_delta" if len({c["wanted_delta"] for c in mine}) > 1 else "epsilon"
    letter = "ε" if axis == "epsilon" else "δ"
    pictures = []
    titles: dict[Metric, str] = {"accuracy": "Test accuracy", "risk_difference": "Risk difference"}
    for metric, title in titles.items():
        series, levels = list[Series](), list[Level]()
        for k, label in enumerate(dict.fromkeys(c["label"] for c in mine)):
            style = f"s{k % STYLES}" + (" alt" if k >= STYLES else "")
            row = [c for c in mine if c["label"] == label]
            private = sorted((c for c in row if c["epsilon"] is not None), key=lambda c: c[axis] or 0.0)
            if private:
                x = [c[axis] or 0.0 for c in private]
                y, d = [c[metric]["mean"] for c in private], [c[metric]["std"] for c in private]
                dashed = any(c["as_printed"] for c in private)
                series.append(Series(label, style, x, y, d, dots=True, dashed=dashed))
            levels += [
                Level(f"{label} (no privacy)", style, reached)
                for c in row
                if c["epsilon"] is None and (reached := c[metric]["mean"]) is not None
            ]
        pictures.append(
            charts.line_chart(f"{metric}-{place}", title, letter, title.lower(), series, levels, log_x=True, least=0.0)
        )
    return {"name": name, "cells": mine, "letter": letter, "axis": axis, "charts": pictures}
