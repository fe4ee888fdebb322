"""Other packages, side by side: `make bench-peers`, or `python -m benchmarks.peers [--only flower …]`.

Ten parties with 700 records of 105 numbers average over everybody and take a logistic gradient step (decentralized
gradient descent on a complete graph; federated averaging does the two in the other order): rounds per second of
    coterie     through its driver, float32 and float64, and with privacy on (clipped records, Gaussian noise)
    JAX scan    written by hand for this case
    NumPy loop  written by hand
    Flower      its simulation engine, FedAvg, all clients in every round, float64
    decent-bench  its DGD on the complete graph, NumPy backend, float64
Every answer is compared with the NumPy loop's. Packages get virtual environments of their own in the user's cache;
what does not install is said. Opacus is measured by `benchmarks.per_example --peer-python`, dp-accounting by
`benchmarks.accounting`: they have no such loop. What runs here is pinned to one core (--all-cores: it is not); packages
get all. Medians of several runs; nothing is asserted on wall-clock time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALL_CORES: set[int] = set()
if "--all-cores" not in sys.argv and __name__ == "__main__" and "--inside" not in sys.argv:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if hasattr(os, "sched_getaffinity"):
        ALL_CORES = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(ALL_CORES)})

import numpy as np  # noqa: E402

PARTIES, RECORDS, DIM = 10, 700, 105
STEP, RIDGE, CLIP, SIGMA = 0.5, 1e-3, 1.0, 0.05
INSTALL_SECONDS = 420
PACKAGES = {  # name -> requirement, oldest Python it takes, whether the loop above is written for it
    "flower": ("flwr[simulation]", "3.11", True),
    "decent-bench": ("decent-bench", "3.13", True),
    "gossipy": ("gossipy-dfl", "3.11", False),
    "pfl-research": ("pfl", "3.11", False),
    "p2pfl": ("p2pfl", "3.11", False),
    "opacus": ("opacus", "3.11", False),
    "jax-privacy": ("jax-privacy", "3.11", False),
}


def data() -> tuple[np.ndarray, np.ndarray]:
    """(parties, records, dim) on the unit sphere, and ±1 labels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((PARTIES, RECORDS, DIM))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    return x, np.where(rng.uniform(size=x.shape[:2]) < 1 / (1 + np.exp(-x @ rng.standard_normal(DIM))), 1.0, -1.0)


def gradient(x: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Gradient of one party's mean loss and ridge."""
    return -((y / (1 + np.exp(y * (x @ w)))) @ x) / len(y) + RIDGE * w


# -- in this interpreter ----------------------------------------------------------------------------------------------


def numpy_loop(rounds: int, average_last: bool = False) -> tuple[float, np.ndarray]:
    """Seconds, and the first party's point; `average_last`: in the order of federated averaging."""
    x, y = data()
    w = np.zeros((PARTIES, DIM))
    start = time.perf_counter()
    for _ in range(rounds):
        steps = np.stack([STEP * gradient(a, b, v) for a, b, v in zip(x, y, w, strict=True)])
        w = np.broadcast_to((w - steps).mean(0), w.shape) if average_last else w.mean(0) - steps
    return time.perf_counter() - start, w[0]


def jax_scan(rounds: int, double: bool) -> tuple[float, np.ndarray]:
    """The same as one compiled loop."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(double):
        x, y = (jnp.asarray(a, jnp.float64 if double else jnp.float32) for a in data())

        @jax.jit
        def run(w: jax.Array) -> jax.Array:
            def step(w: jax.Array, _: None) -> tuple[jax.Array, None]:
                slope = -y * jax.nn.sigmoid(-y * jnp.einsum("nrd,nd->nr", x, w))
                return w.mean(0) - STEP * (jnp.einsum("nr,nrd->nd", slope, x) / RECORDS + RIDGE * w), None

            return jax.lax.scan(step, w, None, length=rounds)[0]

        w = jnp.zeros((PARTIES, DIM), x.dtype)
        run(w).block_until_ready()
        start = time.perf_counter()
        w = run(w).block_until_ready()
        return time.perf_counter() - start, np.asarray(w[0])


def ours(rounds: int, double: bool, private: bool) -> tuple[float, np.ndarray]:
    """The same through the driver; with privacy on, records are clipped and noise is drawn for every message."""
    import jax
    import jax.numpy as jnp

    from coterie.algorithms.base import find
    from coterie.drivers.layout import make_layout
    from coterie.drivers.simulate import Run, simulate
    from coterie.graphs import make_graph, mixing
    from coterie.problems import Linear

    x, y = data()
    graph = make_graph("complete", PARTIES)
    parts = np.arange(PARTIES * RECORDS).reshape(PARTIES, RECORDS)
    dtype = jnp.float64 if double else jnp.float32
    with jax.enable_x64(double):
        layout = make_layout(
            Linear(DIM), x.reshape(-1, DIM), y.ravel(), parts, graph, mixing(graph, "metropolis"),
            rounds=rounds, ridge=RIDGE, dtype=dtype,
        )  # fmt: skip
    if private:
        algorithm = find("dp-dsgd")
        cfg = algorithm.Config(step=STEP, momentum=0.0, clip=CLIP, mixing=1, tail=0.0)  # a gradient in every round
        run = Run(0, cfg, SIGMA)
    else:
        algorithm = find("dgd")
        run = Run(0, algorithm.Config(step=STEP, decay=0.0))
    trace = simulate(algorithm, layout, [run], rounds=rounds, every=rounds)
    return trace.timing["run_s"], trace.points[0, 0]


# -- in a package's own environment -----------------------------------------------------------------------------------


def flower(rounds: int) -> tuple[float, np.ndarray]:
    """Flower's simulation: one full local step per client and round, averaged by FedAvg."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server = ClientApp(), ServerApp()
    found: dict[str, Any] = {}

    @client.train()
    def train(message: Message, context: Context) -> Message:
        x, y = data()
        k = int(context.node_config["partition-id"])
        w = message.content["arrays"].to_numpy_ndarrays()[0]
        arrays = ArrayRecord(numpy_ndarrays=[w - STEP * gradient(x[k], y[k], w)])
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": RECORDS})})
        return Message(content=content, reply_to=message)

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=PARTIES, min_available_nodes=PARTIES
        )
        start = time.perf_counter()
        result = strategy.start(grid, ArrayRecord(numpy_ndarrays=[np.zeros(DIM)]), num_rounds=rounds)
        found["seconds"] = time.perf_counter() - start
        found["point"] = result.arrays.to_numpy_ndarrays()[0]

    run_simulation(server, client, num_supernodes=PARTIES, backend_config={"client_resources": {"num_cpus": 1}})
    return found["seconds"], found["point"]


def decent_bench(rounds: int) -> tuple[float, np.ndarray]:
    """decent-bench: the same update, agent by agent, with its own network and message boxes; no snapshots."""
    import networkx as nx
    from decent_array import interoperability as arrays
    from decent_bench.agents import Agent
    from decent_bench.algorithms.p2p import DGD
    from decent_bench.costs import L2RegularizerCost, LogisticRegressionCost
    from decent_bench.networks import P2PNetwork

    arrays.set_backend("numpy")
    put, agents = arrays.from_numpy, []
    for x, y in zip(*data(), strict=True):
        records = [(put(a), put(np.array([b]))) for a, b in zip(x, (y + 1) / 2, strict=True)]
        loss = LogisticRegressionCost(records) + RIDGE * L2RegularizerCost((DIM,))
        agents.append(Agent(loss, state_snapshot_period=rounds + 1))
    network, algorithm = P2PNetwork(nx.complete_graph(PARTIES), agents), DGD(step_size=STEP)
    algorithm.run(network, 2)  # it keeps the records as a matrix from the first gradient on
    start = time.perf_counter()
    algorithm.run(network, rounds)
    return time.perf_counter() - start, np.asarray(arrays.to_numpy(network.agents()[0].x))


INSIDE: dict[str, Callable[[int], tuple[float, np.ndarray]]] = {"flower": flower, "decent-bench": decent_bench}
AVERAGES_LAST = {"flower"}  # in the order of federated averaging


def environment(name: str, cache: Path) -> Path | str:
    """The interpreter of a package's environment, or why there is none."""
    requirement, oldest, _ = PACKAGES[name]
    python = cache / name / "bin" / "python"
    if (cache / name / ".ready").exists():
        return python
    versions = (oldest, "3.13", "3.12", "3.11") if oldest == "3.11" else (oldest,)
    for version in versions:
        if any(_made(base, cache / name) for base in _interpreters(version)):
            break
    else:
        return f"needs Python {oldest}, which is not here"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement, "numpy"]
    try:
        done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"did not install within {INSTALL_SECONDS} s"
    if done.returncode:
        return f"did not install: {(done.stderr.strip().splitlines() or ['?'])[-1][:120]}"
    (cache / name / ".ready").touch()
    return python


def _interpreters(version: str) -> list[str]:
    """What may be a Python of this version: ours, the path's, pyenv's."""
    if version == f"3.{sys.version_info.minor}":
        return [sys.executable]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return [f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))]


def _made(base: str, folder: Path) -> bool:
    """Whether this interpreter made a virtual environment there."""
    try:
        return subprocess.run([base, "-m", "venv", folder], capture_output=True).returncode == 0
    except OSError:
        return False


def elsewhere(name: str, python: Path, rounds: int) -> tuple[float, np.ndarray] | str:
    """Run one measurement in the package's environment."""
    command = [python, __file__, "--inside", name, "--rounds", str(rounds)]
    free = (lambda: os.sched_setaffinity(0, ALL_CORES)) if ALL_CORES else None
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, preexec_fn=free)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return f"failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:120]}"
    found = json.loads(lines[-1])
    return found["seconds"], np.array(found["point"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PACKAGES, help="install and run these only")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1000)
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coterie" / "peers"
    parser.add_argument("--cache", type=Path, default=default, help="folder for the environments")
    parser.add_argument("--all-cores", action="store_true", help="do not pin to one core")
    parser.add_argument("--inside", choices=INSIDE, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        seconds, point = INSIDE[args.inside](args.rounds)
        print(json.dumps({"seconds": seconds, "point": point.tolist()}))
        return

    print(f"{PARTIES} parties × {RECORDS} × {DIM}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} when started")
    print("| what | rounds/s | against the NumPy loop | largest difference |\n|---|---|---|---|")
    here = {
        "NumPy loop": lambda: numpy_loop(args.rounds),
        "JAX scan, float64": lambda: jax_scan(args.rounds, True),
        "JAX scan, float32": lambda: jax_scan(args.rounds, False),
        "coterie dgd, float64": lambda: ours(args.rounds, True, False),
        "coterie dgd, float32": lambda: ours(args.rounds, False, False),
        "coterie dp-dsgd, float32": lambda: ours(args.rounds, False, True),
    }
    times: dict[str, list[float]] = {name: [] for name in here}
    points: dict[str, np.ndarray] = {}
    for _ in range(args.repeats):  # in turns, so that a disturbance hits all alike
        for name, measure in here.items():
            seconds, points[name] = measure()
            times[name].append(args.rounds / seconds)
    base = float(np.median(times["NumPy loop"]))

    def show(name: str, rate: float, point: np.ndarray, like: np.ndarray) -> None:
        gap = "private" if "dp-" in name else f"{np.abs(point - like).max():.0e}"
        print(f"| {name} | {rate:,.1f} | {rate / base:.3g} × | {gap} |", flush=True)

    for name in here:
        show(name, float(np.median(times[name])), points[name], points["NumPy loop"])
    for name, (requirement, _, written) in PACKAGES.items():
        if args.only is not None and name not in args.only:
            continue
        python = environment(name, args.cache)
        if isinstance(python, str):
            print(f"| {name} | {requirement} {python} | | |", flush=True)
            continue
        if not written:
            print(f"| {name} | {requirement} installs; the loop is not written for it | | |", flush=True)
            continue
        few = 20 if name in AVERAGES_LAST else 200
        found = [elsewhere(name, python, few) for _ in range(args.repeats)]
        if bad := [f for f in found if isinstance(f, str)]:
            print(f"| {name} | {bad[0]} | | |", flush=True)
            continue
        good = [f for f in found if not isinstance(f, str)]
        show(name, float(np.median([few / s for s, _ in good])), good[0][1], numpy_loop(few, name in AVERAGES_LAST)[1])


if __name__ == "__main__":
    main()
