"""Secure noise samplers: exact against table, µs per coordinate (`python -m benchmarks.samplers`).

The table draws 10^6 coordinates; the exact sampler's cost per draw does not depend on how many there are, so it is
timed on fewer. Goal: the table stays at or below 1 µs per coordinate (`--check` exits with 1 if not).
"""

import argparse
import os
import sys
import time
from collections.abc import Callable

from coterie.privacy.secure import (
    GRID_LAPLACE_SCALE,
    GRID_VARIANCE,
    DiscreteGaussianTable,
    DiscreteLaplaceTable,
    exact_discrete_gaussian,
    exact_discrete_laplace,
)

GOAL = 1.0  # µs per coordinate


def best_of(run: Callable[[], object], repeats: int) -> float:
    """Shortest wall time of `repeats` runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    """Print one line per law; 1 if `--check` was given and a table misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dimension", type=int, default=10**6)
    parser.add_argument("--exact-draws", type=int, default=10**4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()

    start = time.perf_counter()
    gaussian = DiscreteGaussianTable.from_variance(GRID_VARIANCE)
    laplace = DiscreteLaplaceTable(GRID_LAPLACE_SCALE)
    print(f"tables built once, in {time.perf_counter() - start:.3f} s; d = {args.dimension}")
    raw = best_of(lambda: os.urandom(16 * args.dimension), args.repeats) / args.dimension * 1e6
    worst = 0.0
    for name, table, exact in (
        ("discrete Gaussian, sigma = 65544", gaussian, lambda: exact_discrete_gaussian(GRID_VARIANCE)),
        ("discrete Laplace,  scale = 65536", laplace, lambda: exact_discrete_laplace(GRID_LAPLACE_SCALE)),
    ):
        fast = best_of(lambda: table.sample(args.dimension), args.repeats) / args.dimension * 1e6  # noqa: B023
        slow = best_of(lambda: [exact() for _ in range(args.exact_draws)], 1) / args.exact_draws * 1e6  # noqa: B023
        worst = max(worst, fast)
        print(
            f"{name}: exact {slow:6.1f} us, table {fast:.3f} us per coordinate, ratio {slow / fast:5.0f}; "
            f"its random bytes alone {raw:.3f} us ({raw / fast:.0%}); total variation {table.total_variation:.1e}"
        )
    return 1 if args.check and worst > GOAL else 0


if __name__ == "__main__":
    sys.exit(main())
