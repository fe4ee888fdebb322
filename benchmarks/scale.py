"""How cost grows, and what a second process brings: `python -m benchmarks.scale [slopes] [processes] [ring] [--keep]`.

    slopes     seconds of processor time per round against agents, records, dimension and edges, each over a factor of
               4; log-log fits (goal: slope ≤ 1.05) and, with --plot FILE, a picture
    processes  noisy gradient descent, compute-bound: two processes against one, on one core and on all of them
               (goal: ≥ 1.5 × the speed of one core), and the largest difference of the results (goal: ≤ 1e-5)
    ring       64 agents × 10⁴ numbers × 100 rounds over two processes (goal: ≤ 10 s)
Wall-clock times say little on a machine that is busy with other work; processor times stand beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if "--worker" not in sys.argv and "jax" not in sys.modules:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

import benchmarks.noisy_dgd as noisy_dgd
from benchmarks.engine import RIDGE, SIGMA, STEP, classification
from benchmarks.measured import Row, arguments, beside, finish
from coterie.algorithms.base import Algorithm
from coterie.drivers.layout import make_layout
from coterie.drivers.simulate import Run, simulate
from coterie.graphs import make_graph, mixing
from coterie.losses.logistic import Logistic

ALGORITHM = Algorithm.of("noisy-dgd", noisy_dgd)
CONFIG = noisy_dgd.Config(step=STEP, sigma=SIGMA)


def ingredients(agents: int, records: int, dim: int, degree: int, rounds: int) -> tuple[tuple, dict[str, Any]]:
    """Agents with logistic data on a ring (degree 2) or a random regular graph, float32."""
    x, y = classification(agents * records, dim, 0, np.float32)
    parts = np.arange(agents * records).reshape(agents, records)
    graph = make_graph("ring", agents) if degree == 2 else make_graph("regular", agents, degree=degree, seed=0)
    options = {"rounds": rounds, "ridge": RIDGE, "dtype": jnp.float32}
    return (Logistic(dim), x, y, parts, graph, mixing(graph, "metropolis")), options


# -- slopes -----------------------------------------------------------------------------------------------------------

# Data of 256 MB to 1 GB along the first three: beyond what caches hold at every point, for the end of a cache in the
# middle of a range would look like a slope (below 16,000 agents a round of one agent costs less than half as much).
GRIDS: dict[str, list[dict[str, int]]] = {
    "agents": [{"agents": n, "records": 16, "dim": 32, "degree": 2} for n in (128_000, 256_000, 512_000)],
    "records": [{"agents": 8000, "records": r, "dim": 32, "degree": 4} for r in (256, 512, 1024)],
    "dimension": [{"agents": 64_000, "records": 16, "dim": d, "degree": 4} for d in (64, 128, 256)],
    "edges": [{"agents": 64_000, "records": 1, "dim": 32, "degree": k} for k in (16, 32, 64)],
}
SIZE = {
    "agents": lambda g: g["agents"],
    "records": lambda g: g["agents"] * g["records"],
    "dimension": lambda g: g["dim"],
    "edges": lambda g: g["agents"] * g["degree"] // 2,
}


def costs(grids: list[dict[str, int]], repeats: int, rounds: int = 12) -> np.ndarray:
    """(repeats, grids): processor seconds of one round, of a long run minus a short one: what is done once is left out.

    The sizes take turns, so that an hour in which the machine is slow counts against all of them alike.
    """
    layouts = []
    for grid in grids:
        what, options = ingredients(**grid, rounds=rounds)
        layouts.append(make_layout(*what, **options))
    took = np.zeros((repeats + 1, len(grids), 2))
    for repeat in range(repeats + 1):
        for k, layout in enumerate(layouts):
            for which, count in enumerate((rounds, rounds // 4)):
                start = time.process_time()
                simulate(ALGORITHM, layout, [Run(0, CONFIG)], rounds=count, every=count)
                took[repeat, k, which] = time.process_time() - start
    return (took[1:, :, 0] - took[1:, :, 1]) / (rounds - rounds // 4)  # the first time compiles


def slopes(repeats: int, plot: Path | None) -> list[Row]:
    """Fit log(cost) against log(size) along each axis."""
    rows, found = [], {}
    for axis, grids in GRIDS.items():
        sizes, times = [SIZE[axis](g) for g in grids], costs(grids, repeats)
        every = [float(np.polyfit(np.log(sizes), np.log(one), 1)[0]) for one in times]
        middle = np.median(times, axis=0)
        found[axis] = (sizes, list(middle), float(np.median(every)))
        shown = ", ".join(f"{s:,}: {1e3 * c:.2f} ms" for s, c in zip(sizes, middle, strict=True))
        print(f"| {axis:<9} | {np.median(every):.2f} | {shown} |", flush=True)
        what = f"slope of a round's processor time, {sizes[0]:,} to {sizes[-1]:,} " + (
            "numbers a record" if axis == "dimension" else axis
        )
        rows.append(beside(what, every, "linear", 1.0, "{:.3f}"))
    if plot is not None:
        _draw(found, plot)
    return rows


def _draw(found: dict[str, tuple[list[int], list[float], float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panes = plt.subplots(1, 4, figsize=(13, 3.4), sharey=True, layout="constrained")
    for pane, (axis, (sizes, costs, slope)) in zip(panes, found.items(), strict=True):
        pane.loglog(sizes, 1e3 * np.array(costs), "o-", label=f"slope {slope:.2f}")
        pane.loglog(sizes, 1e3 * costs[-1] * np.array(sizes) / sizes[-1], "--", color="grey", label="slope 1")
        pane.set_xticks(sizes, [f"{s:,}" for s in sizes])
        pane.set_xticks([], minor=True)
        pane.set_xlabel(axis)
        pane.legend()
    panes[0].set_ylabel("processor time per round [ms]")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


# -- processes --------------------------------------------------------------------------------------------------------

GAP, RING = 1e-5, 10.0  # goals: largest difference of results, seconds of the ring
CASES = {
    "processes": {"agents": 2000, "records": 512, "dim": 64, "degree": 2, "rounds": 200},
    "ring": {"agents": 64, "records": 1, "dim": 10_000, "degree": 2, "rounds": 100},
}


def worker(case: str, out: Path) -> None:
    """One process of a run; writes its times and, the first one, the points."""
    from coterie.drivers.sharded import make_mesh, make_shards, simulate_shards

    me, count = int(os.environ["COTERIE_PROCESS_ID"]), int(os.environ["COTERIE_PROCESSES"])
    if count > 1:
        jax.distributed.initialize(os.environ["COTERIE_COORDINATOR"], count, me)
    what, options = ingredients(**CASES[case])
    rounds = CASES[case]["rounds"]
    if count == 1:
        layout, drive = make_layout(*what, **options), simulate
    else:
        layout, drive = make_shards(*what, **options, mesh=make_mesh()), simulate_shards
    spent: list[float] = []
    note = lambda done: spent.append(time.process_time())  # noqa: E731
    trace = drive(ALGORITHM, layout, [Run(0, CONFIG)], rounds=rounds, every=rounds, progress=note)
    pieces = max(1, len(spent) - 1)
    facts = {"wall": trace.timing["run_s"], "cpu": (spent[-1] - spent[0]) * (pieces + 1) / pieces}
    out.joinpath(f"{me}.json").write_text(json.dumps(facts))
    if me == 0:
        np.save(out / "points.npy", trace.points)


def launch(case: str, count: int, cores: list[set[int]], out: Path) -> tuple[list[dict[str, float]], np.ndarray]:
    """The facts of every process, and the points."""
    out.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    children = []
    for k in range(count):
        env = {**os.environ, "COTERIE_COORDINATOR": address, "COTERIE_PROCESSES": str(count)}
        env = {**env, "COTERIE_PROCESS_ID": str(k), "XLA_FLAGS": ""}
        command = [sys.executable, "-m", "benchmarks.scale", "--worker", case, "--out", str(out)]
        pin = (lambda k=k: os.sched_setaffinity(0, cores[k])) if cores else None
        children.append(subprocess.Popen(command, env=env, preexec_fn=pin, stderr=subprocess.DEVNULL))
    codes = [child.wait() for child in children]
    if any(codes):
        raise SystemExit(f"a process of {case!r} failed")
    return [json.loads(out.joinpath(f"{k}.json").read_text()) for k in range(count)], np.load(out / "points.npy")


def processes(case: str, repeats: int, out: Path) -> list[Row]:
    """One process on one core, one on all, two on one core each."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("two cores are needed")
        return []
    one, all_, two = "one process, one core", "one process, all cores", "two processes"
    setups: dict[str, tuple[int, list[set[int]]]] = {
        one: (1, [{cores[0]}]), all_: (1, []), two: (2, [{cores[0]}, {cores[1]}]),
    }  # fmt: skip
    size = ", ".join(f"{v:,} {k}" for k, v in CASES[case].items())
    clock: dict[str, list[float]] = {name: [] for name in setups}
    busy: dict[str, list[float]] = {name: [] for name in setups}
    results = {}
    for _ in range(repeats):
        for name, (count, pins) in setups.items():
            facts, results[name] = launch(case, count, pins, out / f"{case}-{count}-{len(pins)}")
            clock[name].append(max(f["wall"] for f in facts))
            busy[name].append(max(f["cpu"] for f in facts))
    gap = float(np.abs(results[one] - results[two]).max())
    rows = [
        beside(f"two processes, a core each, {size}: by the clock", clock[two], one, clock[one], "{:.2f} s"),
        beside("the same: processor time of the busiest", busy[two], one, busy[one], "{:.2f} s"),
        beside("the same: by the clock", clock[two], all_, clock[all_], "{:.2f} s"),
    ]
    if gap:
        rows.append(beside("largest difference of their results", [gap], "goal", GAP, "{:.0e}"))
    if case == "ring":
        rows.append(beside("the same: by the clock", clock[two], "goal", RING, "{:.2f} s"))
    return rows


def main() -> None:
    """Print and store what was asked for."""
    parser = arguments(__doc__)
    parser.add_argument("parts", nargs="*", default=["slopes", "processes", "ring"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/scale"))
    parser.add_argument("--worker", metavar="CASE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker, args.out)
        return
    rows = slopes(args.repeats, args.plot) if "slopes" in args.parts else []
    for case in CASES:
        if case in args.parts:
            rows += processes(case, args.repeats, args.out)
    finish(args, "How cost grows, and a second process", rows, "Noisy gradient descent in float32, one core a process.")


if __name__ == "__main__":
    main()
