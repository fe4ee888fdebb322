"""The task of `benchmarks.peers` through coterie's own driver, on one device or spread over several.

Called as `main` with rounds, repeats, double, private, devices: prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.peer_task import CLIP, DIM, PARTIES, RECORDS, RIDGE, SIGMA, STEP, Found, Mark, data
from coterie.algorithms.base import find
from coterie.drivers.layout import make_layout
from coterie.drivers.sharded import make_mesh, make_shards, simulate_shards
from coterie.drivers.simulate import Run, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic


def ours(rounds: int, double: bool, private: bool, devices: int = 1) -> Found:
    """The same through the driver; with privacy on, records are clipped and noise is drawn for every message."""
    x, y = data()
    graph = make_graph("complete", PARTIES)
    parts = np.arange(PARTIES * RECORDS).reshape(PARTIES, RECORDS)
    what = (Logistic(DIM), x.reshape(-1, DIM), y.ravel(), parts, graph, mixing(graph, "metropolis"))
    options = {"rounds": rounds, "ridge": RIDGE, "dtype": jnp.float64 if double else jnp.float32}
    with jax.enable_x64(double):
        alone = devices == 1
        layout = make_layout(*what, **options) if alone else make_shards(*what, **options, mesh=make_mesh(devices))
    if private:
        algorithm = find("dp-dsgd")
        cfg = algorithm.config(step=STEP, momentum=0.0, clip=CLIP, mixing=1, tail=0.0)  # a gradient in every round
        run = Run(0, cfg, SIGMA)
    else:
        algorithm = find("dgd")
        run = Run(0, algorithm.config(step=STEP, decay=0.0))
    pieces: list[tuple[int, float]] = []  # rounds done after each piece of the run, and processor time then
    note = lambda done: pieces.append((done, time.process_time()))  # noqa: E731
    drive = simulate if alone else simulate_shards
    trace = drive(algorithm, layout, [run], rounds=rounds, every=rounds, progress=note)
    (first, before), (last, after) = pieces[0], pieces[-1]
    processor = (after - before) * rounds / (last - first)
    return Found([Mark(trace.timing["run_s"], processor)], rounds, trace.points[0, 0])


def main() -> None:
    """Several runs, spread over devices of the host."""
    rounds, repeats, double, private, devices = map(int, sys.argv[1:])
    jax.config.update("jax_num_cpu_devices", devices)
    found = [ours(rounds, bool(double), bool(private), devices) for _ in range(repeats)]
    point = found[0].point
    assert point is not None
    print(json.dumps({"spans": [f.spans[0] for f in found], "point": point.tolist()}))
