"""Pictures of a run: curves with bands over seeds, and the graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import stdtrit

from coterie.lazily import lazily
from coterie.network import Network
from coterie.report.result import epsilon_words
from coterie.report.schema import Curve, MetricValue, RunResult

if TYPE_CHECKING:
    import networkx as nx

    from coterie.comparison import Cell  # which draws by this module
else:
    nx = lazily("networkx")

__all__ = ["curves", "network", "style"]

INK, RUN, POOLED, ALONE = "#333333", "#1f6fb4", "#2a9d5c", "#c8553d"


FEW = 8  # measurements so few that each is marked: a line alone would hide where they are, or that there is one
NAMED = 16  # parties of a graph whose names do not hide one another
NOTHING = 1e-14  # what disagreement is when it is only rounding


def style(axis: Axes) -> None:
    """Two spines and a faint grid."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)


def curves(result: RunResult, path: Path) -> None:
    """Train loss, test score and any disagreement by round; references as lines; bands are ± one std over seeds."""
    data, std = result["curves"], result["curves"]["std"]
    score: Curve = "test_accuracy" if "test_accuracy" in data else "test_score"
    panels: list[tuple[Curve, str, bool]] = [
        ("train_loss", "train loss (mean over parties)", False),
        (score, "test accuracy" if score == "test_accuracy" else f"test {result['metric']}", False),
        ("consensus_gap", "disagreement: rms ‖x_i − mean‖", True),
    ]
    panels = [panel for panel in panels if panel[0] in data]  # without test records there is no score
    if not np.any(np.array(data["consensus_gap"], float) > NOTHING):  # all parties hold one model in every round
        panels.pop()
    figure = Figure(figsize=(1 + 4 * len(panels), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    rounds = np.array(data["round"])
    room = 0.05 * max(1, rounds[-1])
    for axis, (key, label, log) in zip(axes, panels, strict=True):
        mean, spread = np.array(data[key]), np.array(std[key])
        if log:
            mean = np.where(mean > NOTHING, mean, np.nan)  # all agents start at the same point
            axis.set_yscale("log")
        seeds = len(result["seeds"])
        name = f"{result['algorithm']['name']} ({seeds} seed{'s' if seeds > 1 else ''})"
        few = "o" if len(rounds) <= FEW else None
        axis.plot(rounds, mean, color=RUN, label=name, marker=few)
        low = np.maximum(mean - spread, mean / 10) if log else mean - spread
        axis.fill_between(rounds, low, mean + spread, color=RUN, alpha=0.2, linewidth=0)
        for reference, colour, dash in (("pooled", POOLED, "--"), ("alone", ALONE, ":")):
            value = result["references"].get(reference, {}).get(key)
            if value is not None:
                axis.axhline(value, color=colour, linestyle=dash, label=reference)
        axis.set_xlim(-room, rounds[-1] + room)  # one range for all, whatever a logarithm leaves out
        axis.set_xlabel("round")
        axis.set_ylabel(label)
        style(axis)
    axes[0].legend(frameon=False, fontsize=8)
    privacy = result["privacy"]
    if privacy is None:
        guarantee = "no privacy"
    elif privacy["epsilon"] is None:
        guarantee = "NOT private (ε = ∞)"
    else:
        guarantee = f"{epsilon_words(privacy)}, δ = {privacy['delta']:g}"
    figure.suptitle(f"{result['plan'].get('name', '')}: {result['algorithm']['name']}, {guarantee}", color=INK)
    figure.savefig(path, dpi=130, format=path.suffix[1:])


def network(network: Network, path: Path) -> None:
    """The graph, with parties sized by their records (a histogram of degrees beyond 300 of them)."""
    graph, what = network.transport, ""
    figure = Figure(figsize=(6, 4.6), layout="constrained")
    axis = figure.subplots()
    if graph.size > 300:
        axis.hist(graph.degrees, bins=min(50, int(graph.degrees.max() - graph.degrees.min()) + 1), color=RUN)
        axis.set_xlabel("neighbours")
        axis.set_ylabel("parties")
        style(axis)
    else:
        drawn = graph.to_networkx()
        where = nx.circular_layout(drawn) if graph.kind in ("ring", "complete") else nx.kamada_kawai_layout(drawn)
        named, share = graph.size <= NAMED, network.sizes / network.sizes.max()
        size = 300 + 1200 * share if named else 30 + 170 * share
        nx.draw_networkx_edges(drawn, where, ax=axis, edge_color="#888888")
        nx.draw_networkx_nodes(drawn, where, ax=axis, node_size=size, node_color="#a6cbe8", edgecolors=RUN)
        what += "labels: name, records" if named else "areas: records"
        if named:
            pairs = zip(network.names, network.sizes, strict=True)
            labels = {i: f"{n}\n{c}" for i, (n, c) in enumerate(pairs)}
            nx.draw_networkx_labels(drawn, where, labels, ax=axis, font_size=7, font_color="black")
        axis.margins(0.18)
        axis.axis("off")
    axis.set_title(f"{graph.kind}: {graph.size} parties, {len(graph.edges)} edges{what and f' ({what})'}", fontsize=10)
    figure.savefig(path, dpi=130, format=path.suffix[1:])


def _series(cells: list[Cell]) -> dict[str, list[Cell]]:
    out: dict[str, list[Cell]] = {}
    for cell in cells:
        out.setdefault(cell["method"], []).append(cell)
    return {k: sorted(v, key=lambda c: c["epsilon"] or float("inf")) for k, v in out.items()}


def _colours(labels: list[str]) -> dict[str, tuple[float, ...]]:
    palette = matplotlib.colormaps["tab20"].colors  # type: ignore[attr-defined]
    return {label: palette[(2 * i) % 20 + (2 * i // 20) % 2] for i, label in enumerate(labels)}


MARKS, DASHES = "osD^vPX*<>", ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


class _Look(TypedDict):
    """How a line looks, as matplotlib's arguments."""

    color: tuple[float, ...]
    marker: str
    linestyle: str | tuple[float, tuple[float, ...]]
    ms: float


def _looks(labels: list[str]) -> dict[str, _Look]:
    """How each line looks: colour, marker and dashes, so that print without colour tells them apart."""
    colours = _colours(labels)
    return {
        label: {"color": colours[label], "marker": MARKS[k % len(MARKS)], "linestyle": DASHES[k % len(DASHES)], "ms": 5}
        for k, label in enumerate(labels)
    }


def _interval(score: MetricValue) -> float:
    """Half of the 95 % interval of a mean over seeds; 0 for a single one."""
    seeds = np.asarray(score["per_seed"], float)
    return float(stdtrit(len(seeds) - 1, 0.975) * seeds.std(ddof=1) / np.sqrt(len(seeds))) if len(seeds) > 1 else 0.0


def _budgets(axis: Axes, epsilons: list[float]) -> None:
    """A logarithmic axis of ε with ticks at 0.1, 0.3, 1, 3, …"""
    axis.set_xscale("log")
    low, high = min(epsilons), max(epsilons)
    steps = [m * 10.0**k for k in range(-8, 7) for m in (1, 3)]
    ticks = [s for s in steps if low / 1.01 <= s <= high * 1.01]
    if len(ticks) < 2:
        ticks = sorted(set(epsilons))
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def _finish(figure: Figure, axis: Axes, path: Path) -> None:
    style(axis)
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=130, format=path.suffix[1:])


def score_against_epsilon(cells: list[Cell], references: dict[str, dict[str, float]], path: Path) -> None:
    """Score of every method against the budget; references and non-private methods as lines."""
    figure = Figure(figsize=(8.5, 4.6), layout="constrained")
    axis = figure.subplots()
    series = _series(cells)
    looks = _looks(list(series))
    for label, mine in series.items():
        private = [c for c in mine if c["epsilon"] is not None]
        if private:
            x = [c["epsilon"] or 0.0 for c in private]
            y = [c["score"]["mean"] for c in private]
            axis.errorbar(
                x, y, [_interval(c["score"]) for c in private], label=label, capsize=2, elinewidth=1.0, **looks[label]
            )
        for c in mine:
            if c["epsilon"] is None:
                axis.axhline(
                    c["score"]["mean"], label=f"{label} (no privacy)", linewidth=0.8, color=looks[label]["color"]
                )
    for name, dash in (("pooled", "--"), ("alone", ":")):  # colours are for methods
        if name in references:
            axis.axhline(references[name]["test_score"], color=INK, linestyle=dash, label=name)
    if budgets := [c["epsilon"] for c in cells if c["epsilon"] is not None]:
        _budgets(axis, budgets)
    axis.set_xlabel("privacy budget ε (the same δ, adjacency and adversary for all)")
    seeds = len(cells[0]["score"]["per_seed"])
    axis.set_ylabel(f"test {cells[0]['metric']}" + (f"\nmean and 95 % interval, {seeds} seeds" if seeds > 1 else ""))
    _finish(figure, axis, path)


def loss_against_round(cells: list[Cell], references: dict[str, dict[str, float]], path: Path) -> None:
    """Train loss against rounds at the budget nearest to 1, bands ± one std over seeds."""
    figure = Figure(figsize=(8.5, 4.6), layout="constrained")
    axis = figure.subplots()
    budgets = {c["epsilon"] for c in cells if c["epsilon"] is not None}
    chosen = min(budgets, key=lambda e: abs(np.log(e))) if budgets else None
    shown = [c for c in cells if c["epsilon"] in (chosen, None)]
    looks = _looks([c["method"] for c in shown])
    for c in shown:
        mean, std = np.array(c["loss_curve"]["mean"]), np.array(c["loss_curve"]["std"])
        look = looks[c["method"]]
        axis.plot(c["rounds"], mean, label=c["method"], markevery=0.15, **look)
        axis.fill_between(c["rounds"], mean - std, mean + std, color=look["color"], alpha=0.15, linewidth=0)
    start = max(c["loss_curve"]["mean"][0] for c in shown)
    level = [references["pooled"]["train_loss"]] if "pooled" in references else []  # a legend's line must be there
    lowest = min(*level, *(min(c["loss_curve"]["mean"]) for c in shown), start)
    axis.set_ylim(lowest - 0.05 * (start - lowest), start + 0.3 * (start - lowest))
    if "pooled" in references:
        axis.axhline(references["pooled"]["train_loss"], color=INK, linestyle="--", label="pooled")
    axis.set_xlabel("round")
    axis.set_ylabel("train loss (mean over parties)" + ("" if chosen is None else f" at ε = {chosen:g}"))
    _finish(figure, axis, path)


def loss_against_time(cells: list[Cell], references: dict[str, dict[str, float]], path: Path) -> None:
    """Train loss against virtual time (computing and sending), for algorithms that keep time."""
    figure = Figure(figsize=(8.5, 4.6), layout="constrained")
    axis = figure.subplots()
    colours = _colours(list(dict.fromkeys(c["method"] for c in cells)))
    budgets = sorted({c["epsilon"] for c in cells if c["epsilon"] is not None})
    for c in cells:
        if not (times := c["time_curve"]):
            continue
        name = c["method"] if c["epsilon"] is None else f"{c['method']}, ε = {c['epsilon']:g}"
        dash = "-" if c["epsilon"] is None else ("-", "--", ":", "-.")[budgets.index(c["epsilon"]) % 4]
        mean, std = np.array(c["loss_curve"]["mean"]), np.array(c["loss_curve"]["std"])
        axis.plot(times, mean, dash, label=name, color=colours[c["method"]])
        axis.fill_between(times, mean - std, mean + std, color=colours[c["method"]], alpha=0.15, linewidth=0)
    axis.set_xlabel("virtual time (s): computing and sending")
    axis.set_ylabel("train loss (mean over parties)")
    _finish(figure, axis, path)


def score_against_bytes(cells: list[Cell], references: dict[str, dict[str, float]], path: Path) -> None:
    """Score against traffic, one point per method and budget."""
    figure = Figure(figsize=(8.5, 4.6), layout="constrained")
    axis = figure.subplots()
    series = _series(cells)
    looks = _looks(list(series))
    for label, mine in series.items():
        look = looks[label].copy()
        look["linestyle"] = "none"
        axis.plot([c["bytes"] / 1e6 for c in mine], [c["score"]["mean"] for c in mine], label=label, **look)
    sent = [c["bytes"] / 1e6 for c in cells]
    axis.set_xscale("log")
    steps = [float(f"{m}e{k}") for k in range(-9, 10) for m in (1, 2, 5)]
    ticks = [step for step in steps if min(sent) / 2 <= step <= 2 * max(sent)]
    ticks = ticks if len(ticks) <= 8 else [step for step in ticks if f"{step:e}".startswith("1.")]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("traffic of a whole run, all links (MB)")
    axis.set_ylabel(f"test {cells[0]['metric']}")
    _finish(figure, axis, path)
