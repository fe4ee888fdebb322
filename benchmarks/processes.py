"""Many processes, their traffic counted, and a model made of two of them: `python -m benchmarks.processes [--keep]`.

Noisy gradient descent by jax.distributed over gloo on 1, 2, 4 and 8 processes, each on one core: processor seconds of
a process in a round, and the bytes that reach its sockets, as the kernel counts them (TCP_INFO). The model

    bytes of a process      Σ over the waves it hears in: (longest list of the wave) · (size of a message) + header
    processor seconds       a · (parties of a process, padding included) + b · (waves) + c · (bytes sent and heard)

takes the header and a, b, c from runs of two processes alone (two sizes of a grid, one random graph: both of degree 4,
as reading neighbours costs too), and is then asked what 4 and 8 processes do. Goals (`--check`): bytes exact, processor
seconds within a fifth.
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
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measured import Row, keep, show

ROUNDS = 8 + 64  # pieces of the driver: read after the first and the second, so no compiling and no measuring
FIRST, LAST = 8, 72
RECORDS, DIM = 64, 64
BYTES_HEARD = 128  # where struct tcp_info has tcpi_bytes_received
ONE_CORE = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


class Case(NamedTuple):
    """One run."""

    processes: int
    parties: int
    graph: str  # "grid", or "regular" of degree 4


class Seen(NamedTuple):
    """What the processes of a run did in a round: medians over processes, except bytes, which are everybody's."""

    cpu: float  # seconds of the busiest
    heard: list[int]  # bytes, process by process
    load: np.ndarray  # (processes, 3): parties, waves, bytes sent and heard, as the program was laid out
    messages: list[int]  # that each process hears, a wave being one


def heard(coordinator: int) -> dict[str, int]:
    """Bytes that have reached each of this process's sockets, but for those of the coordinator."""
    found = {}
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
                found[os.readlink(f"/proc/self/fd/{name}")] = struct.unpack_from("Q", info, BYTES_HEARD)[0]
        except OSError:  # closed meanwhile, or never connected
            continue
    return found


def worker(case: Case, out: Path) -> None:
    """One process."""
    import jax

    from benchmarks.engine import RIDGE, classification
    from benchmarks.scale import ALGORITHM, CONFIG
    from coterie.drivers import sharded, simulate
    from coterie.drivers.simulate import Run
    from coterie.graphs import make_graph, mixing
    from coterie.losses.logistic import Logistic

    me, count = int(os.environ["COTERIE_PROCESS_ID"]), case.processes
    address = os.environ["COTERIE_COORDINATOR"]
    jax.distributed.initialize(address, count, me)
    simulate.PIECE_SECONDS = 1e9  # pieces of 8, 64 and 512 rounds, whatever the clock says …
    sharded._agree = lambda stop, seconds: (False, 1.0)  # … so that there is nothing to agree on, and nothing sent
    x, y = classification(case.parties * RECORDS, DIM, 0, np.float32)
    parts = np.arange(case.parties * RECORDS).reshape(case.parties, RECORDS)
    graph = make_graph(case.graph, case.parties, seed=0, **({"degree": 4} if case.graph == "regular" else {}))
    what = Logistic(DIM), x, y, parts, graph, mixing(graph, "metropolis")
    options = {"rounds": ROUNDS, "ridge": RIDGE, "dtype": np.float32}
    shards = sharded.make_shards(*what, **options, mesh=sharded.make_mesh())
    notes: dict[int, tuple[dict[str, int], float]] = {}

    def note(done: int) -> None:
        if done + 1 in (FIRST, LAST):
            spent = time.process_time()
            time.sleep(0.7)  # until all have come this far, so that nothing of the next piece is under way
            notes[done + 1] = heard(int(address.rpartition(":")[2])), spent
            time.sleep(0.7)

    sharded.simulate_shards(ALGORITHM, shards, [Run(0, CONFIG)], rounds=ROUNDS, every=ROUNDS, progress=note)
    rounds = LAST - FIRST
    size, traffic = 4 * DIM, shards.traffic
    mine = [(traffic.length(k), pair) for k, wave in enumerate(traffic.waves) for pair in wave if me in pair]
    facts = {
        # of each connection what every round brings: a word now and then that is not of a round is less than a byte
        "heard": sum((n - notes[FIRST][0].get(name, 0)) // rounds for name, n in notes[LAST][0].items()),
        "cpu": (notes[LAST][1] - notes[FIRST][1]) / rounds,
        "load": [shards.members.shape[1], len({k for k, w in enumerate(traffic.waves) for p in w if me in p}),
                 sum(length * size for length, _ in mine)],
        "payload": sum(length * size for length, (_, target) in mine if target == me),
        "messages": sum(target == me for _, (_, target) in mine),
    }  # fmt: skip
    out.joinpath(f"{me}.json").write_text(json.dumps(facts))


def run(case: Case) -> tuple[Seen, list[int]]:
    """What its processes did, and the payload that each was to hear in a round."""
    cores = sorted(os.sched_getaffinity(0))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as name:
        children = []
        for k in range(case.processes):
            env = {**os.environ, "COTERIE_COORDINATOR": address, "COTERIE_PROCESS_ID": str(k), "XLA_FLAGS": ONE_CORE}
            env |= {"JAX_PLATFORMS": "cpu"}
            command = [sys.executable, "-m", "benchmarks.processes", "--worker", json.dumps(case), "--out", name]
            pin = lambda k=k: os.sched_setaffinity(0, {cores[k % len(cores)]})  # noqa: E731
            children.append(subprocess.Popen(command, env=env, preexec_fn=pin, stderr=subprocess.DEVNULL))
        if any(child.wait(600) for child in children):
            raise SystemExit(f"a process of {case} failed")
        facts = [json.loads((Path(name) / f"{k}.json").read_text()) for k in range(case.processes)]
    seen = Seen(
        max(f["cpu"] for f in facts), [f["heard"] for f in facts], np.array([f["load"] for f in facts], float),
        [f["messages"] for f in facts],
    )  # fmt: skip
    return seen, [f["payload"] for f in facts]


def main() -> int:
    """Print and store the runs beside what the model says of them; 1 if `--check` was given and a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", action="store_true", help="store what was measured")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(Case(*json.loads(args.worker)), args.out)
        return 0
    few, many = args.agents // 8, args.agents
    fitted = [Case(2, many, "grid"), Case(2, few, "grid"), Case(2, many, "regular")]
    asked = [*fitted, Case(4, many, "regular"), Case(8, many, "regular"), Case(8, many, "grid")]
    runs = {case: [run(case) for _ in range(args.repeats)] for case in asked}
    loads = np.array([runs[case][0][0].load[0] for case in fitted])
    cpu = lambda case: [seen.cpu for seen, _ in runs[case]]  # noqa: E731
    parts = np.linalg.solve(loads, [np.median(cpu(case)) for case in fitted])
    first, payload = runs[fitted[2]][0]
    header = (first.heard[0] - payload[0]) // max(first.messages[0], 1)
    print(f"of a party {1e9 * parts[0]:.0f} ns, a wave {1e6 * parts[1]:.1f} µs, a byte {1e9 * parts[2]:.2f} ns; "
          f"a message's header {header:g} bytes")  # fmt: skip
    rows, good = [], True
    for case in asked:
        graph = "grid" if case.graph == "grid" else "random 4-regular"
        seen, payload = runs[case][0]
        bytes_said = [p + header * m for p, m in zip(payload, seen.messages, strict=True)]
        found = [sum(s.heard) for s, _ in runs[case]]
        said = sum(bytes_said)
        told = f"{case.processes} processes, {graph}, {case.parties:,} parties"
        rows.append(Row(f"{told}: bytes a round", f"{np.median(found):,.0f}", f"said {said:,.0f}",
                        *(x / said for x in (np.median(found), min(found), max(found)))))  # fmt: skip
        expected = float(np.max(seen.load @ parts))
        took = cpu(case)
        ratio = [x / expected for x in (np.median(took), min(took), max(took))]
        mine = f"{1e3 * np.median(took):.2f} ms a round", f"said {1e3 * expected:.2f} ms"
        rows.append(Row(f"{told}: processor time of the busiest", *mine, *ratio))
        if case not in fitted:
            good &= set(found) == {said} and abs(rows[-1].ratio - 1) <= 0.2
    show(rows)
    if args.keep:
        note = (
            f"{RECORDS} records each, {DIM} numbers in float32, {LAST - FIRST} rounds. What the model says rests on "
            f"the runs of two processes alone: {1e9 * parts[0]:.0f} ns a party, {1e6 * parts[1]:.1f} µs a wave, "
            f"{1e9 * parts[2]:.2f} ns a byte, {header:g} bytes of header."
        )
        keep(
            "processes", "Many processes", rows, f"python -m benchmarks.processes --repeats {args.repeats} --keep", note
        )
    return 1 if args.check and not good else 0


if __name__ == "__main__":
    sys.exit(main())
