"""Memory of a deployed party, and what its start costs, beside a process that imports JAX and compiles one addition.

    python -m benchmarks.party [--parties 5] [--dim 5] [--rounds 20] [--keep]

The parties run on this machine, one process each, on a ring over mutual TLS. Memory is read by each party from its own
/proc/self/smaps_rollup: resident, and proportional (pages that several processes share are counted once). Processor
time is that of the party and of the processes that it has started and that have ended (pricing and compiling, the
certificate), so it does not depend on who else is on the machine; seconds do. As many processes of JAX alone are
started at once.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measured import arguments, beside, finish
from coterie.deploy import process
from coterie.deploy.party import Records
from coterie.deploy.trial import Site, free_ports, sign_trial, start_agent
from coterie.plan import validate

MIB = 1024  # kB
ALONE = """
import json, resource, jax
jax.jit(lambda x: x + 1)(1.0).block_until_ready()
memory = dict(line.split(":", 1) for line in open("/proc/self/smaps_rollup").read().splitlines()[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([int(memory["Rss"].split()[0]), used.ru_utime + used.ru_stime]))
"""


def facts() -> dict[str, float]:
    """What this process holds and has used so far."""
    memory = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "rss": int(memory["Rss"].split()[0]) / MIB,
        "pss": int(memory["Pss"].split()[0]) / MIB,
        "peak": int(status["VmHWM"].split()[0]) / MIB,  # ru_maxrss would be that of the process that started this one
        "peak_apart": used[1].ru_maxrss / MIB,
        "processor": used[0].ru_utime + used[0].ru_stime,
        "processor_apart": used[1].ru_utime + used[1].ru_stime,
    }


class Metered(process.Log):
    """The log of an agent, with memory and processor time in every line."""

    def __call__(self, event: str, **said: Any) -> None:
        super().__call__(event, **said, **facts())


def trial(parties: int, dim: int, rounds: int, folder: Path) -> tuple[Path, tuple[Site, ...]]:
    """A logistic model on a ring."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(parties)]
    plan = validate(
        {
            "name": f"{parties} parties",
            "data": {"source": "csv"},
            "partition": {"kind": "iid", "sizes": [200] * parties},
            "graph": {"kind": "ring"},
            "problem": {"loss": "logistic", "dim": dim, "ridge": 0.01},
            "algorithm": {"name": "dp-dsgd"},
            "privacy": {"epsilon": 1.0, "delta": 1e-5},
            "run": {"rounds": rounds},
            "deploy": {"parties": [{"name": f"p{i}", "address": a} for i, a in enumerate(addresses)]},
        }
    )
    rng, shards = np.random.default_rng(0), []
    for _ in range(parties):
        x = rng.normal(size=(200, dim))
        shards.append(Records(x / np.linalg.norm(x, axis=1, keepdims=True), rng.integers(0, 2, 200), ("no", "yes"), ()))
    return sign_trial(plan, shards, folder)


def run(parties: int, dim: int, rounds: int, folder: Path) -> tuple[float, list[list[dict[str, Any]]]]:
    """When the parties were started, and what each of them noted."""
    agreement, sites = trial(parties, dim, rounds, folder)
    start = time.time()
    running = [start_agent(agreement, site, "benchmarks.party") for site in sites]
    try:
        for one, site in zip(running, sites, strict=True):
            if one.wait(1800):
                raise SystemExit((site.data.parent / "errors.txt").read_text())
    finally:
        for one in running:
            one.kill()
    return start, [[json.loads(n) for n in (s.state / "log.jsonl").read_text().splitlines()] for s in sites]


def alone(count: int) -> tuple[list[float], list[float], float]:
    """So many processes of JAX and one addition at once: their memory, processor seconds, and seconds by the clock."""
    start = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE) for _ in range(count)]
    said = [json.loads(one.communicate()[0]) for one in running]
    return [kilobytes / MIB for kilobytes, _ in said], [seconds for _, seconds in said], time.perf_counter() - start


def main() -> None:
    """Print and store memory at each stage, and the way to the first round."""
    parser = arguments(__doc__)
    parser.add_argument("--parties", type=int, default=5)
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=os.environ.get("COTERIE_BENCH_DIR")) as folder:
        start, notes = run(args.parties, args.dim, args.rounds, Path(folder) / "trial")
    resident, processor, clock = alone(args.parties)
    sent = [[n for n in note if n["event"] == "sent"] for note in notes]
    first, last, ends = [s[0] for s in sent], [s[-1] for s in sent], [note[-1] for note in notes]
    stages = (
        ("resident memory, first round", first, "rss"), ("resident memory, last round", last, "rss"),
        ("resident memory, end", ends, "rss"), ("peak memory", ends, "peak"),
        ("peak memory of the processes that prepare and certify", ends, "peak_apart"),
    )  # fmt: skip
    jax = "JAX and one addition"
    rows = [beside(name, [r[k] for r in those], jax, resident, "{:.0f} MiB") for name, those, k in stages]
    for name, those in (("until the first round is sent", first), ("to the end, certificate included", ends)):
        spent = [r["processor"] + r["processor_apart"] for r in those]
        rows.append(beside(f"processor time {name}", spent, jax, processor, "{:.2f} s"))
    later = max(datetime.fromisoformat(r["time"]).timestamp() for r in first) - start
    what = f"by the clock until {args.parties} parties have sent their first round"
    rows.append(beside(what, [later], f"as many processes of {jax}", clock, "{:.1f} s"))
    shared = sum(r["pss"] for r in last) / sum(r["rss"] for r in last)
    note = f"Pages that parties share counted once, their memory in the last round is {shared:.2f} of that."
    finish(args, "A deployed party's memory and start", rows, note)


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:  # one of the parties
        from coterie.cli import main as command

        process.Log = Metered  # type: ignore[misc]
        sys.exit(command(sys.argv[1:]))
    main()
