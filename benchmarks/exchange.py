"""Secret sums against plain broadcast: seconds and bytes per round (`python -m benchmarks.exchange`).

All parties run one after the other in one process, so "seconds" (of processor time) is the work of everybody; a
party's own share of it is one N-th. "kB" is what one party sends in a round on a full mesh. Broadcast packs the vector,
sends it to the others and adds up what comes. `--flower PYTHON` also runs Flower's SecAgg+ with the interpreter of an
environment that has flwr (a star: clients send to a server only, which must be trusted to count drop-outs right).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from coterie.exchange.fixed_point import FixedPoint
from coterie.exchange.protocol import Post, make_seats, one_round
from coterie.exchange.sums import Opened, SumTerms


def best_of(run: Callable[[int], object], repeats: int) -> float:
    """Least processor time of `repeats` runs, in seconds: a busy machine does not count."""
    times = []
    for k in range(repeats):
        start = time.process_time()
        run(k)
        times.append(time.process_time() - start)
    return min(times)


def broadcast(values: np.ndarray, repeats: int) -> tuple[float, int]:
    """Everybody sends its vector to everybody."""
    n = len(values)

    def run(_: int) -> None:
        wire = [v.tobytes() for v in values]
        for i in range(n):
            total = values[i].copy()
            for j in range(n):
                if j != i:
                    total += np.frombuffer(bytes(bytearray(wire[j])))  # a copy: what the network would hand over
            assert np.isfinite(total[0])

    return best_of(run, repeats), 8 * values.shape[1] * (n - 1)


def secret_sum(values: np.ndarray, seeds: bool, repeats: int) -> tuple[float, int]:
    """A round of parties whose channels are set up."""
    n, d = values.shape
    post = Post(make_seats(SumTerms(FixedPoint(n)), d, seeds=seeds))
    exact = values.sum(0)

    def run(number: int) -> None:
        got = one_round(post, number, list(values))[0]
        assert isinstance(got, Opened)
        assert np.abs(got.values - exact).max() <= n * 2.0**-24

    seconds = best_of(run, repeats)
    return seconds, int(post.sent[0]) // repeats


def flower(python: str, dimension: int, asked: list[tuple[int, int, int]], repeats: int) -> list[dict[str, float]]:
    """Flower's SecAgg+ in its own environment: a round for each (parties, threshold, shares)."""
    script = Path(__file__).with_name("flower_secagg.py")
    command = [python, str(script), str(dimension), str(repeats), *(":".join(map(str, one)) for one in asked)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"Flower's SecAgg+ failed in {python}: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> int:
    """Print a table, one row per number of parties."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, default=10**4)
    parser.add_argument("--parties", type=int, nargs="+", default=[5, 10, 20, 50])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--flower", metavar="PYTHON", help="interpreter of an environment with flwr")
    args = parser.parse_args()

    peers = {}
    if args.flower:  # shares between all clients: the protection that a full mesh has
        asked = [(n, (n + 3) // 2, n) for n in args.parties]
        found = flower(args.flower, args.dimension, asked, args.repeats)
        peers = {f["parties"]: (f["seconds"], int(f["bytes"])) for f in found}
    print(f"d = {args.dimension}; seconds of all parties together, kB sent by one party, ratio to broadcast")
    names = ("broadcast", "secret-sum", "full shares", "Flower SecAgg")
    print(f"{'N':>4} " + "".join(f"{name:>32}" for name in names[: 3 + bool(peers)]))
    for n in args.parties:
        values = np.random.default_rng(0).uniform(-1, 1, (n, args.dimension))
        plain = broadcast(values, args.repeats)
        rows = [
            plain,
            secret_sum(values, True, args.repeats),
            secret_sum(values, False, args.repeats),
        ]
        rows += [peers[n]] if n in peers else []
        cells = [f"{s:.4f} s {b / 1e3:8.1f} kB {b / plain[1]:5.2f}" for s, b in rows]
        print(f"{n:>4} " + "".join(f"{cell:>32}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
