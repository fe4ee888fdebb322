"""Commits of the durable ledger against what they are made of (`python -m benchmarks.ledger [--keep]`).

For messages of 4 KB and 400 KB (state of the same size): one `release`, one bare SQLite transaction with the same two
blobs (WAL, synchronous=FULL), and one bare append with fdatasync of as many bytes, taken in turns so that all three see
the same disk. Goal: 99 of 100 releases within 15 ms at 400 KB (`--check` exits with 1 if not).
"""

import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.measured import arguments, beside, finish
from coterie.deploy.frames import Receipt
from coterie.deploy.ledger import DurableLedger
from coterie.privacy.events import DiscreteGaussian
from coterie.privacy.ledger import Budget

GOAL = 15.0  # ms, 99th percentile at 400 KB
TURNS = 5  # stretches of the rounds, whose medians are compared
EVENT = DiscreteGaussian(1.0, 200.0)


def measure(folder: Path, size: int, rounds: int) -> dict[str, np.ndarray]:
    """Milliseconds of every commit, by kind."""
    plan = [DiscreteGaussian(1.0, 200.0, times=rounds)]
    ledger = DurableLedger(
        folder / f"ledger-{size}", budget=Budget(50.0, 1e-5), plan_hash=bytes(32), agent="a", plan=plan, create=True
    )
    bare = sqlite3.connect(folder / f"bare-{size}", isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA locking_mode = EXCLUSIVE"):
        bare.execute(statement)
    bare.execute("CREATE TABLE release (round INTEGER PRIMARY KEY, frame BLOB, state BLOB)")
    file = os.open(folder / f"file-{size}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    held = {"b": Receipt(0, bytes(32)), "c": Receipt(0, bytes(32))}

    def sqlite_commit(t: int, frame: bytes, state: bytes) -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute("INSERT INTO release VALUES (?, ?, ?)", (t, frame, state))
        bare.execute("COMMIT")

    def append(t: int, frame: bytes, state: bytes) -> None:
        os.write(file, frame + state)
        os.fdatasync(file)

    kinds: dict[str, Callable[[int, bytes, bytes], None]] = {
        "release": lambda t, frame, state: ledger.release(t, [EVENT], frame, state, held),
        "SQLite FULL": sqlite_commit,
        "append + fdatasync": append,
    }
    times = {name: np.zeros(rounds) for name in kinds}
    with contextlib.closing(bare), ledger:
        for t in range(rounds):
            frame, state = os.urandom(size), os.urandom(size)
            for name, commit in kinds.items():
                start = time.perf_counter()
                commit(t, frame, state)
                times[name][t] = (time.perf_counter() - start) * 1e3
    os.close(file)
    return times


def main() -> int:
    """Print one line per size and peer; 1 if `--check` was given and the goal is missed."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for size in (4096, 400_000):
            times = measure(Path(folder), size, args.rounds)
            turns = {name: [float(np.median(part)) for part in np.array_split(x, TURNS)] for name, x in times.items()}
            ours = turns.pop("release")
            rows += [beside(f"a release of {size:,} bytes", ours, *peer, "{:.2f} ms") for peer in turns.items()]
            late = {name: float(np.percentile(x, 99)) for name, x in times.items()} | {"goal": GOAL}
    ours = [late.pop("release")]
    rows += [beside(f"99 of 100 releases of {size:,} bytes within", ours, *peer, "{:.1f} ms") for peer in late.items()]
    finish(args, "Commits of the ledger", rows, f"By the clock, medians of {TURNS} stretches of the rounds.")
    return int(args.check and ours[0] > GOAL)


if __name__ == "__main__":
    sys.exit(main())
