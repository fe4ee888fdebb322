"""The standard picture of a figure: panels side by side, colour by label, line style by version, bands over seeds."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

from coterie.report.files import write_atomically
from reproduction.base import Figure, Panel, Result, Series

__all__ = ["COLOURS", "STYLES", "draw_panel", "draw_panels", "save"]

COLOURS = ("#1f6fb4", "#c8553d", "#2a9d5c", "#8a5cb5", "#d08b1d", "#4f9aa8", "#8c6d5a", "#b0558f", "#6b7280", "#7a8f1f")
STYLES: dict[str, Any] = {
    "as printed": (0, (5, 2)),
    "true ε": (0, (1, 1.5)),
    "corrected": "-",
    "theory": (0, (6, 1.5, 1, 1.5)),
    "reference": "-",
}
MARKERS = "osD^vP*X"


def save(figure: Figure, result: Result, folder: Path, slug: str) -> None:
    """Write SLUG.png and SLUG.svg; the same numbers give the same bytes."""
    wide = min(len(figure.panels), figure.columns)
    size = figure.size or (4.9 * max(wide, 1) + 0.4, 4.4 * math.ceil(len(figure.panels) / max(wide, 1)))
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10, "legend.fontsize": 7.5, "svg.hashsalt": slug}):
        drawn = plt.figure(figsize=size, layout="constrained")
        if figure.draw is not None:
            figure.draw(drawn, result)
        else:
            draw_panels(drawn, figure, result)
        write_atomically(folder / f"{slug}.svg", lambda p: drawn.savefig(p, format="svg", metadata={"Date": None}))
        write_atomically(folder / f"{slug}.png", lambda p: _small_png(drawn, p))
        plt.close(drawn)


def _small_png(drawn: Any, path: Path) -> None:
    """A PNG with a palette: a third of the bytes, and no difference that one could see."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=110)
    Image.open(buffer).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, "PNG", optimize=True)


def draw_panels(drawn: Any, figure: Figure, result: Result) -> None:
    """All panels of a figure on a grid."""
    wide = min(len(figure.panels), figure.columns)
    axes = drawn.subplots(math.ceil(len(figure.panels) / wide), wide, squeeze=False).ravel()
    for axis, panel in zip(axes, figure.panels, strict=False):
        draw_panel(axis, panel, [s for s in result.series if s.panel == panel.key])
    for axis in axes[len(figure.panels) :]:
        axis.axis("off")


def draw_panel(axis: Any, panel: Panel, series: list[Series]) -> None:
    """One panel with all its series."""
    names = list(dict.fromkeys(s.colour or s.label for s in series))
    for s in series:
        at = names.index(s.colour or s.label)
        plain = s.version in ("theory", "reference")
        colour = COLOURS[at % len(COLOURS)] if s.version != "theory" or s.colour else "#222222"
        x, y = np.asarray(s.x, float), np.asarray(s.y, float)
        marker = MARKERS[at % len(MARKERS)] if s.marked else ""
        text = s.label if plain else f"{s.label} ({s.version})"
        axis.plot(
            x, y, color=colour, linestyle=STYLES[s.version], marker=marker, markersize=4,
            linewidth=3.5 if s.broad else 1.1 if plain else 1.6, alpha=0.5 if s.broad else 1.0, label=text,
        )  # fmt: skip
        if s.low is not None and s.high is not None and s.seeds > 1:
            low, high = np.asarray(s.low, float), np.asarray(s.high, float)
            if panel.y_scale == "log":
                low = np.maximum(low, y / 10)
            axis.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
    axis.set(xlabel=panel.x, ylabel=panel.y, title=panel.title, xscale=panel.x_scale, yscale=panel.y_scale)
    few = sorted({float(x) for s in series if s.marked for x in s.x})
    if panel.x_scale == "log" and 0 < len(few) <= 10:  # ticks where something was computed
        axis.set_xticks(few, [f"{x:g}" for x in few])
        axis.set_xticks([], minor=True)
    elif panel.x_scale == "log" and np.divide(*axis.get_xlim()[::-1]) < 100:  # less than two decades: 1, 2, 5 are named
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
    if panel.x_limits:
        axis.set_xlim(*panel.x_limits)
    if panel.y_limits:
        axis.set_ylim(*panel.y_limits)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    if panel.legend:
        where: dict[str, Any] = {"loc": panel.legend, "frameon": True, "framealpha": 0.8, "edgecolor": "none"}
        if panel.legend == "below":
            where = {
                "loc": "upper center",
                "bbox_to_anchor": (0.5, -0.17),
                "frameon": False,
                "ncols": 1 + (len(series) > 3),
            }
        axis.legend(handlelength=3.4, columnspacing=1.2, **where)
