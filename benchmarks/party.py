"""Memory of a deployed party, and what its start costs, beside a process that imports JAX and compiles one addition.

    python -m benchmarks.party [--parties 5] [--dim 5] [--rounds 20]

The parties run on this machine, one process each, on a ring over mutual TLS. Memory is read by each party from its own
/proc/self/smaps_rollup: resident, and proportional (pages that several processes share are counted once). Processor
time is that of the party and of the processes that it has started and that have ended (pricing and compiling, the
certificate), so it does not depend on who else is on the machine; seconds do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

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


def main() -> None:
    """Print two tables: memory at each stage, and the way to the first round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parties", type=int, default=5)
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=os.environ.get("COTERIE_BENCH_DIR")) as folder:
        start, notes = run(args.parties, args.dim, args.rounds, Path(folder) / "trial")
    alone = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, check=True)
    resident, processor = json.loads(alone.stdout)
    sent = [[n for n in note if n["event"] == "sent"] for note in notes]
    ends = [note[-1] for note in notes]
    print(f"JAX and one addition: {resident / MIB:.0f} MiB resident, {processor:.2f} s of processor\n")
    print("| a party's memory, median | resident MiB | ratio to JAX | proportional MiB |\n|---|---|---|---|")
    for name, rows in (("first round", [s[0] for s in sent]), ("last round", [s[-1] for s in sent]), ("end", ends)):
        rss, pss = (statistics.median(r[key] for r in rows) for key in ("rss", "pss"))
        print(f"| {name} | {rss:.0f} | {rss * MIB / resident:.2f} | {pss:.0f} |")
    for name, key in (("peak", "peak"), ("peak of the processes that prepare and certify", "peak_apart")):
        most = max(row[key] for row in ends)
        print(f"| {name} | {most:.0f} | {most * MIB / resident:.2f} | |")
    first = [s[0] for s in sent]
    own, apart = (statistics.median(r[key] for r in first) for key in ("processor", "processor_apart"))
    later = max(datetime.fromisoformat(r["time"]).timestamp() for r in first) - start
    whole = statistics.median(r["processor"] + r["processor_apart"] for r in ends)
    print("\n| until the first round is sent | seconds | ratio to JAX |\n|---|---|---|")
    print(f"| a party's processor time | {own + apart:.2f} | {(own + apart) / processor:.1f} |")
    print(f"| of it in the process that prices and compiles | {apart:.2f} | {apart / processor:.1f} |")
    print(f"| by the clock, all {args.parties} parties on {os.cpu_count()} cores | {later:.1f} | |")
    print(f"| a party's processor time to its end, certificate included | {whole:.2f} | {whole / processor:.1f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:  # one of the parties
        from coterie.cli import main as command

        process.Log = Metered  # type: ignore[misc]
        sys.exit(command(sys.argv[1:]))
    main()
