"""Secure noise samplers, processor time per number: `python -m benchmarks.samplers [--opendp PYTHON] [--keep]`.

The table with the operating system's bytes, with a stream cipher that the system keys for this call (what a deployed
party uses), the exact rational sampler, and OpenDP's of the same law, by the interpreter of an environment that has it.
All take turns in one run. Goal: at most 1 µs per number, and the cipher three times as fast as the system's bytes
(`--check` exits with 1 if not).
"""

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.measured import Row, arguments, finish, paired
from coterie.privacy.secure import (
    GRID_LAPLACE_SCALE,
    GRID_VARIANCE,
    DiscreteGaussianTable,
    DiscreteLaplaceTable,
    exact_discrete_gaussian,
    exact_discrete_laplace,
)
from coterie.sums.words import keyed

GOAL, FASTER = 1.0, 3.0  # µs per number; cipher over system
OPENDP = """
import sys, time, opendp.prelude as dp
dp.enable_features("contrib")
law, scale, count = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
near = dp.l2_distance(T=float) if law == "gaussian" else dp.l1_distance(T="i64")
space = dp.vector_domain(dp.atom_domain(T="i64")), near
made = getattr(dp.m, "make_" + law)(*space, scale=scale)
zeros = [0] * count
start = time.process_time()
made(zeros)
print(time.process_time() - start)
"""


def of_opendp(python: str, law: str, scale: float, count: int) -> float:
    """Processor seconds of `count` numbers by OpenDP."""
    call = [python, "-c", OPENDP, law, str(scale), str(count)]
    return float(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


def exact(draw: Callable[[Any], int], law: float, count: int) -> None:
    """So many numbers by the rational sampler."""
    for _ in range(count):
        draw(law)


def main() -> int:
    """Print and store one line for each law and peer; 1 if `--check` was given and a goal is missed."""
    parser = arguments(__doc__)
    parser.add_argument("--dimension", type=int, default=10**6)
    parser.add_argument("--few", type=int, default=10**4, help="numbers of the slow ones")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--opendp", metavar="PYTHON", help="interpreter of an environment with opendp")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()

    rows, good = [], True
    scale = DiscreteGaussianTable.from_variance(GRID_VARIANCE).sigma
    for name, law, table, slow, at in (
        ("gaussian", scale, DiscreteGaussianTable.from_variance(GRID_VARIANCE), exact_discrete_gaussian, GRID_VARIANCE),
        ("laplace", GRID_LAPLACE_SCALE, DiscreteLaplaceTable(GRID_LAPLACE_SCALE), exact_discrete_laplace,
         GRID_LAPLACE_SCALE),
    ):  # fmt: skip
        ours = functools.partial(table.sample, args.dimension, keyed)
        mine, theirs, ratio = paired(ours, functools.partial(table.sample, args.dimension), args.repeats)
        told = f"{1e9 * mine / args.dimension:.1f} ns"
        rows.append(
            Row(f"discrete {name}, cipher", told, f"system's bytes {1e9 * theirs / args.dimension:.1f} ns", *ratio)
        )
        good &= 1e6 * mine / args.dimension <= GOAL and ratio[0] >= FASTER
        more = args.dimension / args.few
        _, theirs, ratio = paired(ours, functools.partial(exact, slow, at, args.few), 3)
        rows.append(Row(f"discrete {name}, cipher", told, f"exact rational {1e9 * theirs / args.few:,.0f} ns",
                        *(more * x for x in ratio)))  # fmt: skip
        if args.opendp:
            seconds = sorted(of_opendp(args.opendp, name, law, args.few) / args.few for _ in range(3))
            spread = [x * args.dimension / mine for x in (seconds[1], seconds[0], seconds[2])]
            rows.append(Row(f"discrete {name}, cipher", told, f"OpenDP {1e9 * seconds[1]:,.0f} ns", *spread))
    note = "Processor time per number. OpenDP's samplers are exact; the tables are within 1e-32 a number, charged to δ."
    finish(args, "Noise of a deployed party", rows, note)
    return 1 if args.check and not good else 0


if __name__ == "__main__":
    sys.exit(main())
