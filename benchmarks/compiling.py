"""What compiling costs a command: `python -m benchmarks.compiling [--plan FILE] [--keep]`.

`coterie run` of a plan (pr-admm on the four hospitals of the heart data, which wants COTERIE_DATA) in new processes:
with an empty cache of programs, then with the one that the first left. Then the same runs again in one process, which
traces and compiles nothing anew. Goal: 3 seconds with a warm cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measured import Row, arguments, finish

GOAL = 3.0  # seconds
PLAN = """
data = { source = "heart" }
partition = { kind = "site" }
graph = { kind = "ring" }
problem = { loss = "logistic" }
algorithm = { name = "pr-admm" }
privacy = { epsilon = 1.0, delta = 1e-5 }
"""
TWICE = """
import sys
from pathlib import Path
from coterie.programs import keep
keep()
from coterie.experiment import prepare
from coterie.pricing import price
from coterie.plan import read_plan
plan = read_plan(Path(sys.argv[1]), None)
experiment = prepare(plan)
priced = price(plan, experiment.network)
print([experiment.run(priced, [seed]).timing["compile_s"] for seed in range(4)][1:])
"""


def command(plan: Path, out: Path, env: dict[str, str]) -> float:
    """Seconds of compiling, tracing included, that a run of the command reports."""
    call = [sys.executable, "-W", "ignore", "-m", "coterie.cli", "run", str(plan), "--out", str(out), "--quiet"]
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL, env=env)
    return float(json.loads((out / "result.json").read_text())["timing"]["compile_s"])


def main() -> None:
    """Print and store what was measured."""
    parser = arguments(__doc__)
    parser.add_argument("--plan", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as name:
        folder = Path(name)
        env = {**os.environ, "XDG_CACHE_HOME": name}
        plan = args.plan or folder / "plan.toml"
        if args.plan is None:
            plan.write_text(PLAN)
        cold = command(plan, folder / "out", env)
        warm = [command(plan, folder / "out", env) for _ in range(args.repeats)]
        said = subprocess.run(
            [sys.executable, "-c", TWICE, str(plan)], env=env, check=True, capture_output=True, text=True
        )
        again = json.loads(said.stdout)
    rows = []
    for what, took in (("an empty cache", [cold]), ("a warm cache", warm), ("again in the same process", again)):
        middle = sorted(took)[len(took) // 2]
        told = f"{middle:.3g} s", f"goal {GOAL:g} s"
        rows.append(Row(f"compiling and tracing, {what}", *told, *(GOAL / x for x in (middle, max(took), min(took)))))
    finish(args, f"Compiling, {'heart' if args.plan is None else args.plan.stem}", rows)


if __name__ == "__main__":
    main()
