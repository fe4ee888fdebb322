"""Many processes, their traffic counted, and a model made of two of them: `python -m benchmarks.processes [--keep]`.

Noisy gradient descent by jax.distributed over gloo on 1, 2, 4 and 8 processes, each on one core: processor seconds of
a process in a round, and the bytes that reach its sockets, as the kernel counts them (TCP_INFO). The model

    bytes of a process      Σ over the waves it hears in: (longest list of the wave) · (size of a message) + header
    processor seconds       a · (parties of a process, padding included) + b · (waves) + c · (bytes sent and heard)

takes a from one process that has nobody to talk to, the header, b and c from two, and is then asked what 4 and 8 do.
Every process holds as many parties in all of these runs, because a party costs less where its records fit in a cache. A
small run would tell what a wave costs, too, but not how it goes with it: its processes wait more than they compute, and
waiting takes processor time. All graphs have degree 4, as reading neighbours costs too. Goals (`--check`): bytes exact,
processor seconds within a fifth.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import nnls

from benchmarks.measured import Row, arguments, finish

if TYPE_CHECKING:
    from coterie.drivers.sharded import Shards

WARM, PIECE, TAKES = 8, 64, 5  # rounds before anything is measured; rounds of one measurement; measurements of a run
RECORDS, DIM = 64, 64
BYTES_HEARD = 128  # where struct tcp_info has tcpi_bytes_received
ONE_CORE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class Case(NamedTuple):
    """One run."""

    processes: int
    parties: int  # of one process
    graph: str  # "grid", or "regular" of degree 4

    def __str__(self) -> str:
        graph = "grid" if self.graph == "grid" else "random 4-regular"
        many = "1 process" if self.processes == 1 else f"{self.processes} processes"
        return f"{many}, {graph}, {self.parties:,} parties each"


class Process(NamedTuple):
    """What one process of a run did in a round, and what it was laid out to do."""

    cpu: list[float]  # seconds, measurement by measurement
    heard: list[float]  # bytes, likewise
    payload: int  # bytes of the messages that it is to hear
    messages: int  # that it hears, a wave being one
    load: tuple[int, int, int]  # parties, waves, bytes sent and heard


def heard(coordinator: int) -> int:
    """Bytes that have reached this process's sockets, but for those of the coordinator."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as own:
                if own.type != socket.SOCK_STREAM or own.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                if coordinator in (own.getsockname()[1], own.getpeername()[1]):
                    continue
                info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                found += struct.unpack_from("Q", info, BYTES_HEARD)[0]
        except OSError:  # closed meanwhile, or never connected
            continue
    return found


class Watch:
    """What this process has spent and heard at the ends of the pieces of a run, where nothing is under way.

    Processes wait for each other there without sending anything: by files in one folder.
    """

    def __init__(self, folder: Path, me: int, port: int):
        self.folder, self.me, self.port = folder, me, port
        self.ends: list[int] = []  # rounds done
        self.heard: list[int] = []
        self.spent: list[float] = []  # processor seconds until then …
        self.went_on: list[float] = []  # … and until the next piece began

    def note(self, count: int, step: int) -> None:
        """A piece is done: the next goes on when all have come here and have read what they heard."""
        self.spent.append(time.process_time())
        self._meet(count, f"{len(self.ends)}-done")
        self.heard.append(heard(self.port))
        self._meet(count, f"{len(self.ends)}-read")
        self.ends.append(step + 1)
        self.went_on.append(time.process_time())

    def _meet(self, count: int, what: str) -> None:
        (self.folder / f"{what}-{self.me}").touch()
        while any(not (self.folder / f"{what}-{k}").exists() for k in range(count)):
            time.sleep(0.002)

    @property
    def last(self) -> int:
        """Rounds of the last piece."""
        return self.ends[-1] - (self.ends[-2] if len(self.ends) > 1 else 0)


def worker(cases: Sequence[Case], out: Path) -> None:
    """One process: all runs of so many processes, one after the other."""
    import jax

    from coterie.drivers import sharded, simulate

    me, address = int(os.environ["COTERIE_PROCESS_ID"]), os.environ["COTERIE_COORDINATOR"]
    count, port = cases[0].processes, int(address.rpartition(":")[2])
    jax.distributed.initialize(address, count, me)
    facts = []
    for k, case in enumerate(cases):
        watch = Watch(out / str(k), me, port)
        watch.folder.mkdir(exist_ok=True)
        # Pieces of WARM and PIECE rounds whatever the clock says, so that nothing is agreed on and nothing sent for it.
        simulate.PIECE_SECONDS = 1.0
        sharded._agree = lambda stop, seconds, watch=watch: (False, watch.last / PIECE)
        shards, run = _laid_out(case)
        run(lambda step, watch=watch: watch.note(count, step))
        facts.append(_process(shards, watch, me))
    out.joinpath(f"{me}.json").write_text(json.dumps(facts))


def _process(shards: Shards, watch: Watch, me: int) -> Process:
    """What was seen in pieces of PIECE rounds, and what the layout says."""
    taken = range(1, TAKES + 1)
    assert watch.ends[: TAKES + 1] == [WARM + k * PIECE for k in (0, *taken)], watch.ends
    size, traffic = 4 * DIM, shards.traffic
    mine = [(k, traffic.length(k) * size, pair) for k, wave in enumerate(traffic.waves) for pair in wave if me in pair]
    return Process(
        cpu=[(watch.spent[k] - watch.went_on[k - 1]) / PIECE for k in taken],
        heard=[(watch.heard[k] - watch.heard[k - 1]) / PIECE for k in taken],
        payload=sum(length for _, length, (_, target) in mine if target == me),
        messages=sum(target == me for _, _, (_, target) in mine),
        load=(shards.members.shape[1], len({k for k, _, _ in mine}), sum(length for _, length, _ in mine)),
    )


def _laid_out(case: Case) -> tuple[Shards, Callable[[Callable[[int], None]], object]]:
    """The parties of a run, spread over the processes, and what runs it."""
    from benchmarks.engine import RIDGE, classification
    from benchmarks.scale import ALGORITHM, CONFIG
    from coterie.drivers import sharded
    from coterie.drivers.simulate import Run
    from coterie.graphs import make_graph, mixing
    from coterie.losses.logistic import Logistic

    count, rounds = case.processes * case.parties, WARM + TAKES * PIECE
    x, y = classification(count * RECORDS, DIM, 0, np.float32)
    parts = np.arange(count * RECORDS).reshape(count, RECORDS)
    graph = make_graph(case.graph, count, seed=0, **({"degree": 4} if case.graph == "regular" else {}))
    what = Logistic(DIM), x, y, parts, graph, mixing(graph, "metropolis")
    options = {"rounds": rounds, "ridge": RIDGE, "dtype": np.float32}
    shards = sharded.make_shards(*what, **options, mesh=sharded.make_mesh())
    return shards, lambda note: sharded.simulate_shards(
        ALGORITHM, shards, [Run(0, CONFIG)], rounds=rounds, every=rounds, progress=note
    )


def launch(cases: Sequence[Case]) -> dict[Case, list[Process]]:
    """What every process of these runs did; all runs have equally many processes, which stay for all of them."""
    cores = sorted(os.sched_getaffinity(0))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as name:
        children = []
        for k in range(cases[0].processes):
            env = {**os.environ, "COTERIE_COORDINATOR": address, "COTERIE_PROCESS_ID": str(k), "XLA_FLAGS": ONE_CORE}
            env |= {"JAX_PLATFORMS": "cpu"}
            command = [sys.executable, "-m", "benchmarks.processes", "--worker", json.dumps(cases), "--out", name]
            pin = lambda k=k: os.sched_setaffinity(0, {cores[k % len(cores)]})  # noqa: E731
            children.append(subprocess.Popen(command, env=env, preexec_fn=pin, stderr=subprocess.DEVNULL))
        if any(child.wait(600) for child in children):
            raise SystemExit(f"a process of {cases} failed")
        told = [json.loads((Path(name) / f"{k}.json").read_text()) for k in range(cases[0].processes)]
    return {case: [Process(*process[at]) for process in told] for at, case in enumerate(cases)}


class Model(NamedTuple):
    """What one and two processes say of any number of them."""

    parts: np.ndarray  # seconds of a party, a wave and a byte
    header: float  # bytes that go with a message

    def bytes(self, run: Sequence[Process]) -> float:
        """That all its processes hear in a round."""
        return sum(p.payload + self.header * p.messages for p in run)

    def seconds(self, run: Sequence[Process]) -> float:
        """Processor time of its busiest process in a round."""
        return float(max(np.array(p.load) @ self.parts for p in run))


def fit(runs: dict[Case, list[list[Process]]], cases: Sequence[Case]) -> Model:
    """The model that says of these runs what they did, as well as costs can that are not negative."""
    loads = np.array([runs[case][0][0].load for case in cases], float)
    scale = loads.max(axis=0)  # parties are thousands and bytes hundreds of thousands
    first = runs[cases[-1]][0][0]
    return Model(
        nnls(loads / scale, [float(np.median(busiest(runs[case]))) for case in cases])[0] / scale,
        (float(np.median(first.heard)) - first.payload) / first.messages,
    )


def busiest(runs: Sequence[Sequence[Process]]) -> list[float]:
    """Processor seconds of the busiest process in a round, run by run: of each process the median."""
    return [max(float(np.median(p.cpu)) for p in run) for run in runs]


def main() -> int:
    """Print and store the runs beside what the model says of them; 1 if `--check` was given and a goal is missed."""
    parser = arguments(__doc__)
    parser.add_argument("--agents", type=int, default=1000, help="parties of one process")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker([Case(*case) for case in json.loads(args.worker)], args.out)
        return 0
    some = args.agents
    fitted = [Case(1, some, "grid"), Case(2, some, "grid"), Case(2, some, "regular")]
    asked = [Case(4, some, "regular"), Case(8, some, "regular"), Case(8, some, "grid")]
    runs: dict[Case, list[list[Process]]] = {case: [] for case in (*fitted, *asked)}
    for _ in range(args.repeats):
        for count in (1, 2, 4, 8):
            for case, run in launch([case for case in runs if case.processes == count]).items():
                runs[case].append(run)
    model = fit(runs, fitted)
    party, wave, byte = model.parts * (1e9, 1e6, 1e9)
    constants = f"{party:.0f} ns a party, {wave:.1f} µs a wave, {byte:.2f} ns a byte, {model.header:g} bytes of header"
    print(constants)
    rows, good = [], True
    for case, seen in runs.items():
        said = model.bytes(seen[0])
        found = [sum(p.heard[k] for p in run) for run in seen for k in range(TAKES)]
        if case.processes > 1:
            rows.append(Row(f"{case}: bytes a round", f"{np.median(found):,.10g}", f"said {said:,.10g}",
                            *(x / said for x in (np.median(found), min(found), max(found)))))  # fmt: skip
        expected, took = model.seconds(seen[0]), busiest(seen)
        ratio = [x / expected for x in (np.median(took), min(took), max(took))]
        mine = f"{1e3 * np.median(took):.2f} ms a round", f"said {1e3 * expected:.2f} ms"
        rows.append(Row(f"{case}: processor time of the busiest", *mine, *ratio))
        if case in asked:
            good &= set(found) == {said} and abs(rows[-1].ratio - 1) <= 0.2
    note = (
        f"{RECORDS} records each, {DIM} numbers in float32; every run {TAKES} times {PIECE} rounds. What the model "
        f"says rests on the runs of one and two processes alone: {constants}."
    )
    finish(args, "Many processes", rows, note)
    return 1 if args.check and not good else 0


if __name__ == "__main__":
    sys.exit(main())
