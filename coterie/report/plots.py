"""Pictures of a run: curves with bands over seeds, and the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import networkx as nx

from coterie.experiment import Network

__all__ = ["curves", "network"]

INK, RUN, POOLED, ALONE = "#333333", "#1f6fb4", "#2a9d5c", "#c8553d"


def _style(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)


def curves(result: dict[str, Any], path: Path) -> None:
    """Train loss, test score and disagreement against rounds; references as lines; bands are ± one std over seeds."""
    data, std = result["curves"], result["curves"]["std"]
    score = "test_accuracy" if "test_accuracy" in data else "test_score"
    panels = [
        ("train_loss", "train loss (mean over agents)", False),
        (score, "test accuracy" if score == "test_accuracy" else f"test {result['metric']}", False),
        ("consensus_gap", "disagreement: rms ‖x_i − mean‖", True),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    rounds = np.array(data["round"])
    for axis, (key, label, log) in zip(axes, panels, strict=True):
        mean, spread = np.array(data[key]), np.array(std[key])
        if log:
            mean = np.where(mean > 1e-14, mean, np.nan)  # all agents start at the same point
            axis.set_yscale("log")
        seeds = len(result["seeds"])
        name = f"{result['algorithm']['name']} ({seeds} seed{'s' if seeds > 1 else ''})"
        axis.plot(rounds, mean, color=RUN, label=name)
        low = np.maximum(mean - spread, mean / 10) if log else mean - spread
        axis.fill_between(rounds, low, mean + spread, color=RUN, alpha=0.2, linewidth=0)
        for reference, colour, dash in (("pooled", POOLED, "--"), ("alone", ALONE, ":")):
            value = result["references"].get(reference, {}).get(key)
            if value is not None:
                axis.axhline(value, color=colour, linestyle=dash, label=reference)
        axis.set_xlabel("round")
        axis.set_ylabel(label)
        _style(axis)
    axes[0].legend(frameon=False, fontsize=8)
    privacy = result["privacy"]
    if privacy is None:
        guarantee = "no privacy"
    elif privacy["epsilon"] is None:
        guarantee = "NOT private (ε = ∞)"
    else:
        guarantee = f"ε = {privacy['epsilon']:.3g}, δ = {privacy['delta']:.0e}"
    figure.suptitle(f"{result['plan'].get('name', '')}: {result['algorithm']['name']}, {guarantee}", color=INK)
    figure.savefig(path, dpi=130, format="png")
    plt.close(figure)


def network(network: Network, path: Path) -> None:
    """The graph, with agents sized by their records (a histogram of degrees beyond 300 agents)."""
    graph = network.graph
    figure, axis = plt.subplots(figsize=(6, 4.6), layout="constrained")
    if graph.size > 300:
        axis.hist(graph.degrees, bins=min(50, int(graph.degrees.max() - graph.degrees.min()) + 1), color=RUN)
        axis.set_xlabel("neighbours")
        axis.set_ylabel("agents")
        _style(axis)
    else:
        drawn = graph.to_networkx()
        where = nx.circular_layout(drawn) if graph.kind in ("ring", "complete") else nx.kamada_kawai_layout(drawn)
        size = 300 + 1200 * network.sizes / network.sizes.max() if graph.size <= 40 else 60
        nx.draw_networkx_edges(drawn, where, ax=axis, edge_color="#888888")
        nx.draw_networkx_nodes(drawn, where, ax=axis, node_size=size, node_color="#a6cbe8", edgecolors=RUN)
        if graph.size <= 40:
            pairs = zip(network.names, network.sizes, strict=True)
            labels = {i: f"{n}\n{c}" for i, (n, c) in enumerate(pairs)}
            nx.draw_networkx_labels(drawn, where, labels, ax=axis, font_size=7, font_color="black")
        axis.margins(0.18)
        axis.axis("off")
    axis.set_title(f"{graph.kind}: {graph.size} agents, {len(graph.edges)} edges (labels: name, records)", fontsize=10)
    figure.savefig(path, dpi=130, format="png")
    plt.close(figure)
