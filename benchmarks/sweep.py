"""A comparison of methods, budgets and seeds, beside an older commit: `python -m benchmarks.sweep --old PATH [--keep]`.

`coterie compare` on Adult (which wants COTERIE_DATA) as docs/comparison.md shows it, in new processes with an empty
cache of programs: processor time, user and system, of the whole command. `--old` names a checkout of an older commit
(`git worktree add PATH COMMIT`), whose command takes turns with ours; without it only ours is printed. `--each` runs a
command for every method by itself, which adds to each what all share: imports, data, references. Goal: a third.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measured import Row, arguments, finish, spread

HERE = Path(__file__).parent.parent
METHODS = "admm,pr-admm,p-admm,pp-admm,ipp-admm,dp-admm,dvp,pvp,m-admm,r-admm,mr-admm,ldp-admm,dp-dsgd"
EPSILONS, SEEDS = "0.1,0.5,1,5,10", 10


def command(checkout: Path, methods: str, epsilons: str, seeds: int) -> float:
    """Seconds of processor time that the command of a checkout takes, with its own plan."""
    call = [sys.executable, "-W", "ignore", "-m", "coterie.cli", "compare", "coterie/plans/adult.toml"]
    call += ["--algorithms", methods, "--epsilons", epsilons, "--seeds", str(seeds)]
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as cache:
        env = {**os.environ, "PYTHONPATH": str(checkout), "XDG_CACHE_HOME": cache}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(call, check=True, cwd=checkout, env=env, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(what: str, methods: str, args: argparse.Namespace) -> Row | None:
    """One comparison by both, taking turns; None where there is no older checkout to compare with."""
    ours, theirs = list[float](), list[float]()
    for _ in range(args.repeats):
        ours.append(command(HERE, methods, args.epsilons, args.seeds))
        print(f"{what}: {ours[-1]:.1f} s", flush=True)
        if args.old is not None:
            theirs.append(command(args.old, methods, args.epsilons, args.seeds))
            print(f"{what}, older: {theirs[-1]:.1f} s", flush=True)
    if args.old is None:
        return None
    now, then = f"{statistics.median(ours):.0f} s", f"{commit(args.old)} {statistics.median(theirs):.0f} s"
    return Row(what, now, then, *spread(ours, theirs))


def commit(checkout: Path) -> str:
    """The commit of a checkout."""
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=checkout, capture_output=True, text=True)
    return f"commit {told.stdout.strip()}"


def main() -> None:
    """Print and store what was measured."""
    parser = arguments(__doc__)
    parser.add_argument("--old", type=Path, help="a checkout of an older commit")
    parser.add_argument("--methods", default=METHODS, help="comma-separated")
    parser.add_argument("--epsilons", default=EPSILONS, help="comma-separated")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--repeats", type=int, default=1, help="turns")
    parser.add_argument("--each", action="store_true", help="one command for every method")
    args = parser.parse_args()
    methods = args.methods.split(",")
    size = f"{len(args.epsilons.split(','))} budgets × {args.seeds} seeds"
    asked = [(name, name) for name in methods] if args.each else [(f"{len(methods)} methods", args.methods)]
    rows = [row for what, names in asked if (row := measure(f"{what}, {size}", names, args)) is not None]
    if rows:
        note = "Processor time of whole commands, compiling in it; goal: a ratio of 3."
        finish(args, "Comparisons on Adult, beside an older commit", rows, note)


if __name__ == "__main__":
    main()
