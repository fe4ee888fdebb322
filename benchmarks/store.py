"""Data larger than memory: `python -m benchmarks.store FOLDER [--gigabytes 20] [--limit 4] [--keep]`.

Writes a store of made records into FOLDER (which must not exist; it is removed at the end), then runs `coterie run` on
it with its memory limited (RLIMIT_DATA, all private memory of the process), once with all records in every round and
once with batches. Beside each: a plain sequential read of the same files in the same minutes, by one thread, into one
buffer. The files are dropped from the system's cache before every measurement, as they would be where they do not fit.
Beside its memory: the limit, and what the records take. On a machine that is busy with other work processor times say
more than the clock.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measured import Row, arguments, beside, finish
from coterie.data import ALL_PUBLIC
from coterie.data.store import Chunk, Store, open_store
from coterie.data.store_writer import write_store

AGENTS, WIDTH, PIECE = 8, 249, 20_000  # a record is 1,000 bytes
BUFFER = 1 << 22
CASES = {
    "all records, 2 rounds": ["run.rounds=2"],
    "batches of 1,000, 20 rounds": ["algorithm.batch=1000", "run.rounds=20"],
}


def pieces(seed: int, count: int, truth: np.ndarray) -> Iterator[Chunk]:
    """Records in the unit ball with logistic labels: four blocks in turn, since only their size matters here."""
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(4):
        x = rng.standard_normal((PIECE, WIDTH), np.float32) / np.float32(np.sqrt(2 * WIDTH))
        blocks.append((x, (rng.uniform(size=PIECE) < 1 / (1 + np.exp(-x @ truth))).astype(np.float32)))
    for k, low in enumerate(range(0, count, PIECE)):
        x, y = blocks[k % 4]
        yield x[: count - low], y[: count - low]


def make(folder: Path, gigabytes: float) -> Store:
    """A store of about this size."""
    truth = 8 * np.random.default_rng(0).standard_normal(WIDTH, np.float32)
    count = int(gigabytes * 1e9 / AGENTS / (4 * (1 + WIDTH)))
    agents = {f"site-{i}": pieces(i + 1, count, truth) for i in range(AGENTS)}
    return write_store(folder, agents, test=next(pieces(0, 5000, truth)), classes=("no", "yes"), origins=ALL_PUBLIC)


def forget(store: Store) -> None:
    """Drop the files from the system's cache."""
    for agent in range(len(store.names)):
        with store.path(agent).open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(store: Store) -> tuple[float, float]:
    """Bytes per second of reading every file from end to end, by the clock and by processor time."""
    buffer, done = bytearray(BUFFER), 0
    began, worked = time.perf_counter(), time.process_time()
    for agent in range(len(store.names)):
        with store.path(agent).open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                done += got
    return done / (time.perf_counter() - began), done / (time.process_time() - worked)


def run(store: Store, changes: list[str], limit: float, out: Path) -> tuple[dict, float, float]:
    """Times of a limited `coterie run`, its peak resident memory in GB, and its processor time in seconds."""
    plan = out.with_suffix(".toml")
    plan.write_text(
        f'name = "store"\n[data]\nsource = "store"\npath = "{store.folder}"\n[graph]\nkind = "ring"\n'
        '[algorithm]\nname = "dp-dsgd"\nmixing = 1\n[privacy]\nepsilon = 1.0\ndelta = 1e-8\n[run]\ndtype = "float32"\n'
    )
    command = [sys.executable, "-m", "coterie.cli", "run", str(plan), "--out", str(out)]
    command += [part for change in changes for part in ("--set", change)]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit * 1e9), int(limit * 1e9)))

    peak, before = 0.0, resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, preexec_fn=limited, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(int(x.split()[1]) * 1024e-9 for x in status.splitlines() if x.startswith("VmHWM")))
        except (OSError, TypeError):  # it has just ended
            pass
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"coterie run failed with exit code {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads((out / "result.json").read_text())["timing"], peak, worked


def measure(store: Store, case: str, limit: float, repeats: int, folder: Path) -> list[Row]:
    """A run and a plain read in turns."""
    reads, runs = [], []
    for turn in range(repeats):
        forget(store)
        reads.append(plain_read(store))
        forget(store)
        timing, peak, worked = run(store, CASES[case], limit, folder / f"run-{turn}")
        runs.append((timing["bytes_per_s"], timing["bytes_read"] / worked, peak))
        shutil.rmtree(folder / f"run-{turn}")
    speed, busy, peak = ([*those] for those in zip(*runs, strict=True))
    plain, plain_busy = ([*those] for those in zip(*reads, strict=True))
    giga = lambda those: [x / 1e9 for x in those]  # noqa: E731
    say, whole = ("plain read", giga(plain), "{:.2f} GB/s", False), ("plain read", giga(plain_busy), "{:.2f} GB", False)
    return [
        beside(f"{case}: read a second of its rounds", giga(speed), *say),
        beside(f"{case}: read a processor second of the whole command", giga(busy), *whole),
        beside(f"{case}: peak memory", peak, "limit", limit, "{:.2f} GB"),
        beside(f"{case}: peak memory", peak, "records", store.size / 1e9, "{:.2f} GB"),
    ]


def main() -> None:
    """Print and store a few lines for every case."""
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--limit", type=float, default=4.0, help="GB of memory")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--reuse", action="store_true", help="leave the store there, or use the one that is")
    args = parser.parse_args()
    folder: Path = args.folder
    there = args.reuse and folder.exists()
    store = open_store(folder / "store") if there else make(folder / "store", args.gigabytes)
    try:
        rows = [row for case in CASES for row in measure(store, case, args.limit, args.repeats, folder)]
    finally:
        if not args.reuse:
            shutil.rmtree(folder)
    note = f"{store.size / 1e9:.1f} GB, {sum(store.counts):,} records of {AGENTS} agents, not in the system's cache."
    finish(args, "Data larger than memory", rows, note)


if __name__ == "__main__":
    main()
