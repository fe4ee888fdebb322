"""Geometry of the report's charts: numbers in, coordinates and labels out; templates/charts.html draws them as SVG.

All text stays plain here and is escaped by the template, so a hostile name is only ever a name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, TypedDict

import numpy as np

if TYPE_CHECKING:
    from coterie.graphs import Graph

__all__ = [
    "Chart", "DotRow", "Level", "Series", "curve_chart", "dot_plot", "drawable", "line_chart", "network", "number",
]  # fmt: skip

WIDTH, HEIGHT = 440, 290
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 14, 46
LETTER = 7.0  # width of a letter of a name
LONGEST, SHORTEST = 18, 4  # letters of a name in the graph
BARS = 46  # of the tallest bar of a density, below a curve
FLAT = 1e-3  # the least part of its values that an axis shows
NAMES = 64  # for the names of categories, below it


@dataclass(frozen=True)
class Series:
    """A line (or, with `dots`, marked points), with ± `spread`; `style` names its colour."""

    name: str
    style: str
    x: Sequence[float]
    y: Sequence[float | None]
    spread: Sequence[float | None] = ()
    dots: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Level:
    """A reference: a horizontal line."""

    name: str
    style: str
    value: float


@dataclass(frozen=True)
class DotRow:
    """One row of a dot plot: a value, its spread, and single points."""

    label: str
    style: str
    value: float
    spread: float = 0.0
    points: Sequence[float] = ()


Chart = dict[str, object]  # what a template of charts.html draws


@dataclass(frozen=True)
class Scale:
    """From values to pixels, linear or logarithmic, with ticks."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    ticks: list[float] = field(default_factory=list)

    def __call__(self, value: float) -> float:
        f = math.log10 if self.log else float
        share = (f(value) - f(self.low)) / (f(self.high) - f(self.low))
        return round(self.start + share * (self.end - self.start), 2)

    @classmethod
    def around(
        cls, values: Sequence[float], start: float, end: float, log: bool = False, room: float = 0.0,
        whole: bool = False,
    ) -> Scale:  # fmt: skip
        """A scale that holds the values; a linear one ends at ticks unless `room` is 0; `whole`: no tick between two
        whole numbers.
        """
        if log:
            kept = [v for v in values if v > 0] or [1.0]
            low, high = min(kept), max(kept)
            first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
            if room:
                low, high = 10.0**first, 10.0 ** max(last, first + 1)
            elif low == high:
                low, high = low / 2, high * 2
            step = max(1, (last - first) // 4)
            marks = [10.0**e for e in range(first, max(last, first + 1) + 1, step)]
            inner = [m for m in marks if low * (1 - 1e-9) <= m <= high * (1 + 1e-9)]
            return cls(low, high, start, end, True, inner if len(inner) > 1 else sorted({low, *inner, high}))
        low, high = min(values), max(values)
        if low == high:
            low, high = (low - 0.5, high + 0.5) if low == 0 else (low - abs(low) / 10, high + abs(high) / 10)
        elif (lacking := FLAT * max(abs(low), abs(high)) - (high - low)) > 0:  # as good as constant: drawn as that
            low, high = low - lacking / 2, high + lacking / 2
        margin = room * (high - low)
        from matplotlib.ticker import MaxNLocator

        ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=whole).tick_values(low - margin, high + margin)
        if room:
            low, high = float(ticks[0]), float(ticks[-1])
        inside = [float(t) for t in ticks if low - 1e-12 <= t <= high + 1e-12]
        return cls(low, high, start, end, False, inside)


def labelled(scale: Scale) -> list[tuple[float, str]]:
    """Where the ticks are, and words that tell them apart.

    >>> [words for _, words in labelled(Scale(0.0, 1.0, 0, 1, ticks=[0.88481, 0.88482]))]
    ['0.88481', '0.88482']
    """
    for digits in range(4, 17):
        words = [f"{tick:.{digits}g}" for tick in scale.ticks]
        if len(set(words)) == len(words):
            break
    return [(scale(tick), text) for tick, text in zip(scale.ticks, words, strict=True)]


def number(value: float | None, digits: int = 4) -> str:
    """A number for people; what is not finite says so.

    >>> number(0.81333), number(float("inf")), number(None), number(123456.0)
    ('0.8133', '∞', 'none', '1.235e+05')
    """
    if value is None:
        return "none"
    return f"{value:.{digits}g}" if math.isfinite(value) else "∞"


def drawable(value: float | None, log: bool) -> bool:
    """Whether a number has a place on an axis."""
    return value is not None and math.isfinite(value) and (value > 1e-14 or not log)


def line_chart(
    name: str, title: str, x_label: str, y_label: str, series: Sequence[Series], levels: Sequence[Level] = (),
    *, log_x: bool = False, log_y: bool = False, least: float = -math.inf,
) -> Chart:  # fmt: skip
    """Lines over a common axis, for the template `chart`; no band or axis goes below `least`, as nothing can."""
    pairs = [(s, [(x, y) for x, y in zip(s.x, s.y, strict=True) if drawable(y, log_y)]) for s in series]
    shown: list[float] = [float(y) for _, points in pairs for _, y in points if y is not None]
    for s in series if not log_y else ():
        ends = [(y, d) for y, d in zip(s.y, s.spread, strict=False) if drawable(y, False) and drawable(d, False)]
        shown += [float(e) for y, d in ends if y is not None and d is not None for e in (max(y - d, least), y + d)]
    shown += [level.value for level in levels if drawable(level.value, log_y)]
    if not shown:
        return {"id": name, "title": title, "empty": True, "desc": "there is no finite number to draw"}
    x_values = [x for _, points in pairs for x, _ in points] or [0.0, 1.0]
    xs = Scale.around(x_values, LEFT, WIDTH - RIGHT, log_x, whole=all(float(x).is_integer() for x in x_values))
    ys = Scale.around(shown, HEIGHT - BOTTOM, TOP, log_y, room=0.02)
    if ys.low < least <= min(shown):
        ys = replace(ys, low=least, ticks=[tick for tick in ys.ticks if tick >= least])
    drawn, words = [], []
    for s, points in pairs:
        if not points:
            continue
        at = [(xs(x), ys(y)) for x, y in points if y is not None]
        drawn.append(
            {
                "name": s.name, "style": s.style, "dashed": s.dashed,
                "path": "M" + "L".join(f"{x} {y}" for x, y in at),
                "band": _band(s, xs, ys), "dots": at if s.dots or len(at) == 1 else [],
            }
        )  # fmt: skip
        words.append(f"{s.name} goes from {number(points[0][1])} to {number(points[-1][1])}")
    lines = [{"name": v.name, "style": v.style, "y": ys(v.value)} for v in levels if drawable(v.value, log_y)]
    words += [f"{v.name} is at {number(v.value)}" for v in levels]
    return {
        "id": name, "title": title, "empty": False, "x_label": x_label, "y_label": y_label,
        "width": WIDTH, "height": HEIGHT,
        "left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM,
        "x_ticks": labelled(xs), "y_ticks": labelled(ys),
        "series": drawn, "levels": lines, "desc": "; ".join(words) + ".",
        "readout": json.dumps(_readout(x_label, pairs, levels, xs)),
    }  # fmt: skip


def _band(s: Series, xs: Scale, ys: Scale) -> str | None:
    points = [
        (x, y, d)
        for x, y, d in zip(s.x, s.y, s.spread or [None] * len(s.x), strict=True)
        if drawable(y, ys.log) and drawable(d, False)
    ]
    if len(points) < 2 or not any(d for _, _, d in points):
        return None
    clip = lambda v: min(max(v, ys.low), ys.high)  # noqa: E731
    upper = [f"{xs(x)} {ys(clip(y + d))}" for x, y, d in points]  # type: ignore[operator]
    lower = [f"{xs(x)} {ys(clip(y - d))}" for x, y, d in reversed(points)]  # type: ignore[operator]
    return "M" + "L".join(upper + lower) + "Z"


def _readout(
    x_label: str, pairs: Sequence[tuple[Series, list]], levels: Sequence[Level], xs: Scale
) -> list[list[object]]:
    """[pixel, text] for every x: what the pointer shows."""
    found: dict[float, list[str]] = {}
    for s, points in pairs:
        for x, y in points:
            found.setdefault(x, []).append(f"{s.name}: {number(y)}")
    said = [f"{v.name}: {number(v.value)}" for v in levels]
    return [[xs(x), "\n".join([f"{x_label} {x:g}", *values, *said])] for x, values in sorted(found.items())]


def dot_plot(name: str, title: str, x_label: str, rows: Sequence[DotRow]) -> Chart:
    """Rows over one axis."""
    values = [float(v) for r in rows for v in (r.value, *r.points) if drawable(v, False)]
    if not values:
        return {"id": name, "title": title, "empty": True, "desc": "there is no finite number to draw"}
    top, step = 10, 46
    bottom = top + step * len(rows)
    xs = Scale.around(values, 24, WIDTH - 24, room=0.05)
    drawn = []
    for k, r in enumerate(rows):
        y = top + step * k + 30
        if not drawable(r.value, False):
            continue
        spread = r.spread if drawable(r.spread, False) else 0.0
        drawn.append(
            {
                "label": r.label, "style": r.style, "y": y, "x": xs(r.value), "text": number(r.value),
                "ends": [xs(max(r.value - spread, xs.low)), xs(min(r.value + spread, xs.high))],
                "points": [xs(p) for p in r.points if drawable(p, False)],
            }
        )  # fmt: skip
    return {
        "id": name, "title": title, "empty": False, "x_label": x_label, "width": WIDTH, "height": bottom + BOTTOM - 4,
        "bottom": bottom, "left": 24, "right": WIDTH - 24, "x_ticks": labelled(xs),
        "rows": drawn, "desc": "; ".join(f"{r.label}: {number(r.value)}" for r in rows) + ".",
    }  # fmt: skip


def curve_chart(
    name: str, title: str, y_label: str, labels: Sequence[str], values: Sequence[float], ends: tuple[float, float], *,
    marks: Sequence[str] | None = None, noise: Sequence[float] | None = None, shares: Sequence[float] | None = None,
) -> Chart:  # fmt: skip
    """A value for each bin, all bins equally wide: steps, or with `marks` (edges between bins) a curve over numbers.

    `noise` is the half-height of the band in every bin, `shares` of records are drawn as bars below, `ends` is the
    range of all such charts of a page, so that they can be compared.
    """
    count = len(values)
    width, bottom = (WIDTH - RIGHT - LEFT) / count, HEIGHT - BOTTOM
    ys = Scale.around(list(ends), bottom, TOP, room=0.02)
    at = [round(LEFT + width * k, 2) for k in range(count + 1)]
    tallest = max(shares, default=0.0) if shares is not None else 0.0
    steps = [
        {
            "x1": at[k], "x2": at[k + 1], "y": ys(v), "name": label, "text": number(v, 3),
            "top": ys(v + noise[k]) if noise else None, "low": ys(v - noise[k]) if noise else None,
            "bar": round(BARS * shares[k] / tallest, 2) if shares is not None and tallest else 0.0,
        }
        for k, (label, v) in enumerate(zip(labels, values, strict=True))
    ]  # fmt: skip
    every = max(1, math.ceil(len(marks or ()) / 7))
    ticks = [(at[k + 1], mark) for k, mark in enumerate(marks or ()) if k % every == 0]
    said = [f"{label}: {number(v, 3)}" + ("" if shares is None else f"; {100 * shares[k]:.1f} % of the records")
            for k, (label, v) in enumerate(zip(labels, values, strict=True))]  # fmt: skip
    highest, lowest = (labels[int(f(values))] for f in (np.argmax, np.argmin))
    centres = [round((left + right) / 2, 2) for left, right in pairwise(at)]
    return {
        "id": name, "title": title, "desc": f"Highest for {highest}, lowest for {lowest}.", "joined": marks is not None,
        "width": WIDTH, "height": HEIGHT + (NAMES if marks is None else 0), "left": LEFT, "right": WIDTH - RIGHT,
        "top": TOP, "bottom": bottom, "y_label": y_label, "y_ticks": labelled(ys),
        "x_ticks": ticks, "steps": steps, "zero": ys(0.0) if ys.low < 0 < ys.high else None,
        "readout": json.dumps([list(pair) for pair in zip(centres, said, strict=True)]),
    }  # fmt: skip


def network(graph: Graph, names: Sequence[str], records: Sequence[int]) -> Chart:
    """The graph with agents sized by their records."""
    import networkx as nx

    drawn = graph.to_networkx()
    circle = graph.kind in ("ring", "complete") or graph.size > 150
    where = nx.circular_layout(drawn) if circle else nx.kamada_kawai_layout(drawn)
    place = np.array([where[i] for i in range(graph.size)])
    low, high = place.min(0), place.max(0)
    width, height, margin = WIDTH, 330, 46
    scaled = margin + (place - low) / np.where(high > low, high - low, 1.0) * (np.array([width, height]) - 2 * margin)
    largest = max(records)
    many = graph.size > 24
    radius = lambda n: 4.0 if many else round(7 + 13 * math.sqrt(n / largest), 1)  # noqa: E731
    nodes: list[Node] = [
        {"x": round(float(x), 1), "y": round(float(y), 1), "name": name, "records": int(n), "label": None,
         "r": radius(n)}
        for (x, y), name, n in zip(scaled, names, records, strict=True)
    ]  # fmt: skip
    if not many:
        _name_nodes(nodes, width)
    edges = [(nodes[i], nodes[j]) for i, j in graph.edges.tolist()]
    return {
        "id": "graph", "title": f"The graph: {graph.kind}, {graph.size} parties, {len(edges)} links", "width": width,
        "height": height, "nodes": nodes, "edges": edges,
        "desc": "Each circle is a party, larger with more records; each line is a link that messages travel.",
    }  # fmt: skip


class Node(TypedDict, total=False):
    """A circle; `at`: where its label stands, if it has one."""

    x: float
    y: float
    r: float
    name: str
    records: int
    label: str | None
    at: tuple[float, float]


def _name_nodes(nodes: list[Node], width: int) -> None:
    """Names below their circles, as long as all have room; none where even short ones would meet or be alike."""
    names = [node["name"] for node in nodes]
    for length in range(min(LONGEST, max(map(len, names))), SHORTEST - 1, -1):
        short = [name if len(name) <= length else f"{name[: length - 1]}…" for name in names]
        boxes = [_box(node, text, width) for node, text in zip(nodes, short, strict=True)]
        if len(set(short)) == len(set(names)) and not any(_meet(a, b) for a, b in combinations(boxes, 2)):
            for node, text, (left, right, _, low) in zip(nodes, short, boxes, strict=True):
                node["label"], node["at"] = text, (round((left + right) / 2, 1), round(low, 1))
            return


def _box(node: Node, text: str, width: int) -> tuple[float, float, float, float]:
    """Where a name would stand: left, right, top, bottom."""
    half = len(text) * LETTER / 2 + 2
    middle = min(max(node["x"], half), width - half)
    return middle - half, middle + half, node["y"] + node["r"], node["y"] + node["r"] + 14


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
