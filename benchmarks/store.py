"""Data larger than memory: `python -m benchmarks.store FOLDER [--gigabytes 20] [--limit 4]`.

Writes a store of made records into FOLDER (which must not exist; it is removed at the end), then runs `coterie run` on
it with its memory limited (RLIMIT_DATA, all private memory of the process), once with all records in every round and
once with batches. Beside each: a plain sequential read of the same files in the same minutes, by one thread, into one
buffer. The files are dropped from the system's cache before every measurement, as they would be where they do not fit.
On a machine that is busy with other work processor times say more than the clock: both ratios are printed.
"""

from __future__ import annotations

import argparse
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
    """result.json of a limited `coterie run`, its peak resident memory in GB, and its processor time in seconds."""
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
    process = subprocess.Popen(command, preexec_fn=limited)
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
    return json.loads((out / "result.json").read_text()), peak, worked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--limit", type=float, default=4.0, help="GB of memory")
    parser.add_argument("--keep", action="store_true", help="leave the store there, or use the one that is")
    options = parser.parse_args()
    folder: Path = options.folder
    began = time.perf_counter()
    there = options.keep and folder.exists()
    store = open_store(folder / "store") if there else make(folder / "store", options.gigabytes)
    wrote = time.perf_counter() - began
    print(f"{store.size / 1e9:.1f} GB, {sum(store.counts):,} records of {AGENTS} agents; ready in {wrote:.0f} s\n")
    print("| case | GB read | seconds | records/s | GB/s | plain read | ratio | by processor time | peak memory |")
    print("|---|---|---|---|---|---|---|---|---|")
    try:
        for k, (case, changes) in enumerate(CASES.items()):
            forget(store)
            plain, plain_worked = plain_read(store)
            forget(store)
            result, peak, worked = run(store, changes, options.limit, folder / f"run-{k}")
            timing = result["timing"]
            print(
                f"| {case} | {timing['bytes_read'] / 1e9:.1f} | {timing['run_s']:.0f} | {timing['records_per_s']:,.0f} "
                f"| {timing['bytes_per_s'] / 1e9:.2f} | {plain / 1e9:.2f} GB/s | {timing['bytes_per_s'] / plain:.2f} "
                f"| {timing['bytes_read'] / worked / plain_worked:.2f} | {peak:.2f} GB |",
                flush=True,
            )
    finally:
        if not options.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
