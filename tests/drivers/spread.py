"""Run in its own process, since the number of devices is fixed when JAX starts: `python -m tests.drivers.spread`.

Compares runs over all devices with runs on one and writes what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np

import coterie.drivers.layout as layout_module
from coterie.algorithms.base import find
from coterie.drivers.layout import make_layout
from coterie.drivers.sharded import Shards, make_mesh, make_shards, simulate_shards
from coterie.drivers.simulate import Run, Test, Trace, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic
from tests.support import logistic_data

SIZES = [5, 9, 3, 7, 4, 6, 8, 2, 5, 3, 11, 4, 6]
DIM, ROUNDS = 3, 7


def ingredients(kind: str) -> tuple[tuple, dict[str, Any]]:
    """Thirteen unlike agents, so that three devices cannot share them evenly."""
    x, y = logistic_data(sum(SIZES), DIM)
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    params = {"edges": 18} if kind == "gnm" else {}  # few enough that no matrix product is used
    graph = make_graph(kind, len(SIZES), seed=1, **params)
    own = np.exp(np.sin(np.arange(len(SIZES) * ROUNDS))).reshape(len(SIZES), ROUNDS)  # a schedule of each agent's own
    options = {"rounds": ROUNDS, "ridge": 0.05, "shape": own if kind == "gnm" else None}
    return (Logistic(DIM), x, y, parts, graph, mixing(graph, "metropolis")), options


def both(slug: str, kind: str, devices: int) -> tuple[Trace, Trace, Shards]:
    """The run on one device and over several."""
    what, options = ingredients(kind)
    with jax.enable_x64(True):
        layout, shards = make_layout(*what, **options), make_shards(*what, **options, mesh=make_mesh(devices))
    algorithm = find(slug)
    noise = 0.01 * (1 + np.arange(len(SIZES))) if algorithm.private else 0.0
    runs = [Run(s, algorithm.example, noise) for s in (4, 5)]
    how: dict[str, Any] = {"rounds": ROUNDS, "every": 3, "test": Test(*logistic_data(20, DIM, seed=9))}
    return simulate(algorithm, layout, runs, **how), simulate_shards(algorithm, shards, runs, **how), shards


def main() -> None:
    """Arguments: SLUG:GRAPH:DEVICES[:groups] …"""
    found = {}
    for case in sys.argv[1:]:
        slug, kind, devices, *more = case.split(":")
        layout_module.SMALL = 0 if more else 1 << 18
        one, many, shards = both(slug, kind, int(devices))
        curves = {k: float(np.max(np.abs(v - many.curves[k]))) for k, v in one.curves.items()}
        found[case] = {
            "points": float(np.max(np.abs(one.points - many.points))),
            "moved": float(np.max(np.abs(one.points))),
            "curves": curves,
            "counts": bool((one.sent == many.sent).all() and (one.bytes == many.bytes).all()),
            "groups": len(shards.arrays.groups),
            "padding": int((~shards.real).sum()),
            "messages": shards.traffic.messages,
            "crossing_bytes": many.extras["crossing_bytes"],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
