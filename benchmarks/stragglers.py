"""Virtual time of simulated parties beside real time of deployed ones, on the same plan with machines of uneven speed.

    python -m benchmarks.stragglers [--rounds 40] [--second 0.2] [--json FILE] [--keep]

Five clinics on a ring train with `qdpsgd1`, each in a process of its own over TLS. Their machines are those of the
simulation, in real time: 10 to 90 records a virtual second, drawn anew for every party and round, and a virtual second
takes `--second` real ones, in which the party sleeps. Everything else is as deployed: noise, ledger, frames, the
party's clock. Three ways to live with slow machines:

    fixed   all of the batch, and everybody waits for the slowest
    clock   a batch by the clock: what is done when an average machine would be done with all of it
    late    all of the batch, but nobody waits longer than that for a message: the last one stands (deployed only)

The loss is that of the parties' mean message, on everybody's training records; beside it that of "fixed" at the same
time, and the deployed time beside the simulated one, in units of virtual seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import sys
import tempfile
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.measured import Row, arguments, beside, finish
from coterie.algorithms._sampling import batch_by_clock, deadline
from coterie.algorithms.batches import axes
from coterie.deploy.frames import HEADER_BYTES, SIGNATURE_BYTES
from coterie.deploy.noise import SystemSource
from coterie.deploy.party import Party, Terms, wire_of
from coterie.deploy.process import run_party
from coterie.deploy.trial import Site, deployed_plan, shards_of, sign_trial, start_agent
from coterie.drivers.simulate import Run, simulate
from coterie.experiment import Experiment, prepare
from coterie.plan import Plan, read_plan, validate

PLAN = Path(__file__).parents[1] / "coterie" / "plans" / "clinics.toml"
BATCH = 64
SECOND = "COTERIE_BENCH_SECOND"
MARKS = (0.1, 0.25, 0.5, 1.0)  # shares of the time that "fixed" takes
SETTINGS = {"name": "qdpsgd1", "batch": BATCH, "bits": 10, "range": 4, "step": 4, "averaging": 0.5, "link": 0}


def planned(way: str, rounds: int, second: float) -> tuple[Plan, Experiment]:
    """The deployed plan, of which a simulation ignores the deadlines; and its records."""
    scheme = "clock" if way == "clock" else "fixed"
    changes = [f"algorithm.{key}={value}" for key, value in {**SETTINGS, "scheme": scheme}.items()]
    plan = read_plan(PLAN, [*changes, f"run.rounds={rounds}", "run.seeds=1", "privacy.epsilon=4"])
    experiment, limit = prepare(plan), second * deadline(BATCH)
    tree = deployed_plan(plan, experiment).as_json()
    tree["run"] = {"rounds": rounds}  # no agreement takes a seed
    tree["deploy"] |= {"work": limit} if way == "clock" else {}
    tree["deploy"] |= {"deadline": limit if way == "late" else 60.0}
    return validate(tree), experiment


def losses(experiment: Experiment, points: np.ndarray) -> np.ndarray:
    """The objective of all parties at each point."""
    layout = experiment.layout(1, np.ones(1))
    with jax.enable_x64(True):

        def one(x: Any) -> Any:
            each = [jax.vmap(lambda s: s.value(x), (axes(g.shards),))(g.shards) for g in layout.arrays.groups]
            return sum(values.sum() for values in each) / layout.arrays.place.agents

        return np.asarray(jax.lax.map(one, jax.device_put(np.asarray(points, float))))


# ---- simulated -------------------------------------------------------------------------------------------------------


def simulated(way: str, rounds: int) -> dict[str, Any]:
    """Virtual seconds from the first message on, and the loss, message by message."""
    plan, experiment = planned(way, rounds, 1.0)
    priced = Terms.of(plan).priced
    layout, run = experiment.layout(rounds, priced.shape), Run(0, priced.cfg, priced.noise)
    told = simulate(priced.algorithm, layout, [run], rounds=rounds, record=True)
    ends = np.asarray(told.curves["time"])[0][1:]
    loss = losses(experiment, np.asarray(told.messages.z)[0].mean(axis=1))
    share = float(np.mean(np.asarray(told.messages.size)) / BATCH)
    return {"time": ends - ends[0], "loss": loss, "share": share}


# ---- deployed --------------------------------------------------------------------------------------------------------


class SlowMachine:
    """Turns that take as long as a virtual machine of this round's speed would, in real time."""

    def __init__(self, turn: Any, second: float, clock: bool):
        self.turn, self.second, self.clock = turn, second, clock
        self.rng, self.speed = np.random.default_rng(), 50.0

    def __call__(self, shard: Any, t: Any, carry: Any, draw: dict[str, Any]) -> Any:
        records = float(batch_by_clock(BATCH, draw["speed"], np.inf)) if self.clock else BATCH
        time.sleep(self.second * records / self.speed)
        return self.turn(shard, t, carry, draw)


def slow_down(second: float) -> None:
    """From now on every party of this process has such a machine."""
    speak = Party.speak

    def slowly(self: Party, t: int, carry: Any, source: Any) -> Any:
        if not isinstance(self.turns.turn, SlowMachine):
            machine: Any = SlowMachine(self.turns.turn, second, self.turns.work is not None)
            self.turns = replace(self.turns, turn=machine)
        machine = self.turns.turn
        machine.speed = machine.rng.uniform(10, 90)
        return speak(self, t, carry, source)

    Party.speak = slowly  # type: ignore[method-assign]


def deployed(way: str, rounds: int, second: float, folder: Path) -> dict[str, Any]:
    """Real seconds from the first message on, and the loss, message by message."""
    plan, experiment = planned(way, rounds, second)
    agreement, sites = sign_trial(plan, shards_of(experiment), folder)
    os.environ[SECOND] = str(second)
    running = [start_agent(agreement, site, "benchmarks.stragglers") for site in sites]
    if failed := [site.name for site, process in zip(sites, running, strict=True) if process.wait()]:
        raise RuntimeError(f"{', '.join(failed)}: " + (folder / failed[0] / "errors.txt").read_text()[-500:])
    noted = [[json.loads(line) for line in (s.state / "log.jsonl").read_text().splitlines()] for s in sites]
    sent = np.array([[_when(event) for event in own if event["event"] == "sent"] for own in noted])
    short = [event["share"] for own in noted for event in own if event["event"] == "slow"]
    ends, terms = sent.max(axis=0), Terms.of(plan)
    means = np.mean([_points(terms, node, site) for node, site in enumerate(sites)], axis=0)
    share = (sum(short) + sent.size - len(short)) / sent.size
    return {"time": ends - ends[0], "loss": losses(experiment, means), "share": share}


def _when(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["time"]).timestamp()


def _points(terms: Terms, node: int, site: Site) -> np.ndarray:
    """(round, number): what a party sent, from its ledger."""
    wire = wire_of(terms, terms.priced.places.dim)
    with contextlib.closing(sqlite3.connect(site.state / "ledger.db")) as db:
        frames = [bytes(f) for (f,) in db.execute("SELECT frame FROM release ORDER BY round")]
    numbers = [wire.decode(frame[HEADER_BYTES:-SIGNATURE_BYTES]) for frame in frames]
    return np.array(numbers) * terms.steps.size[node][:, None]


# ---- what they come to -----------------------------------------------------------------------------------------------


def compared(found: dict[tuple[str, str], dict[str, Any]], second: float) -> list[Row]:
    """Rounds of every way beside those of "fixed" in the same surroundings, losses at the same time, and real time
    beside virtual time."""
    rows = []
    for (kind, way), own in found.items():
        fixed = found[kind, "fixed"]
        if way != "fixed":
            took, its = (np.diff(one["time"]) for one in (own, fixed))
            mean = f"{took.mean():.2f} s", f"fixed {its.mean():.2f} s"
            whole = its.sum() / took.sum()
            rows.append(Row(f"{way}, {kind} time of a round, {own['share']:.2f} of a batch", *mean, *[whole] * 3))
        for mark in MARKS if way != "fixed" else ():
            at = [
                one["loss"][np.flatnonzero(one["time"] <= mark * fixed["time"][-1] + 1e-9)[-1]] for one in (own, fixed)
            ]
            what = f"{way}, loss at {mark:g} of the {kind} time that fixed takes"
            rows.append(beside(what, [float(at[0])], "fixed", float(at[1]), "{:.4f}"))
        if kind == "real" and ("virtual", way) in found:
            said, took = (float(one["time"][-1]) for one in (found["virtual", way], own))
            rows.append(beside(f"{way}, real time of all rounds", [took], "virtual", second * said, "{:.1f} s", False))
    return rows


def main() -> None:
    """Measure, print and store."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--second", type=float, default=0.2, help="real seconds of a virtual one")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = {("virtual", way): simulated(way, asked.rounds) for way in ("fixed", "clock")}
    for way in ("fixed", "clock", "late"):
        with tempfile.TemporaryDirectory() as folder:
            found["real", way] = deployed(way, asked.rounds, asked.second, Path(folder) / "trial")
    note = f"Five clinics, {asked.rounds} rounds, a virtual second takes {asked.second:g} s; speeds are drawn anew."
    finish(asked, "Machines of uneven speed", compared(found, asked.second), note)
    if asked.json is not None:
        plain = lambda own: {key: np.asarray(value).tolist() for key, value in own.items()}  # noqa: E731
        asked.json.write_text(json.dumps({" ".join(key): plain(own) for key, own in found.items()}))


def one_party() -> int:
    """`coterie agent` on a slow machine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("agreement", type=Path)
    for name in ("me", "data", "keys", "state"):
        parser.add_argument(f"--{name}", type=str if name == "me" else Path)
    a = parser.parse_args()
    slow_down(float(os.environ[SECOND]))
    return run_party(a.agreement, a.keys, a.data, a.state, me=a.me, source=SystemSource())


if __name__ == "__main__":
    sys.exit(one_party() if sys.argv[1:2] == ["agent"] else main())
